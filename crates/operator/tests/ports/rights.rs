//! What the credentials may do: a project's member before Neutron's own policy, which lets administrators alone bind ports to hosts.

use netloom_operator::{OpenStack, rights};
use serde_json::{Value, json};
use testbed::openstack::{Keystone, Neutron, request};

#[test]
#[ignore = "needs Keystone and Neutron: cargo xtask test neutron"]
fn a_missing_right_is_named_and_nothing_is_left() {
    let name = |what: &str| format!("test-{}-rights-{what}", std::process::id());
    let keystone = Keystone::named(&name("keystone"), 3600).unwrap();
    let neutron = Neutron::named(&name("neutron"), Some(&keystone)).unwrap();
    let (admin, project) = keystone.ids().unwrap();
    let id = |answer: &Value| answer["id"].as_str().unwrap().to_owned();
    let user = json!({"user": {"name": "operator", "password": "pw", "default_project_id": project}});
    let user = id(&keystone.ask("POST", "users", &user).unwrap()["user"]);
    let roles = keystone.ask("GET", "roles?name=member", &Value::Null).unwrap();
    let member = id(&roles["roles"][0]);
    let token = keystone.token().unwrap();
    let ask = |path: &str, body: &Value| {
        let (status, answer) = request("POST", &format!("{}/v2.0/{path}", neutron.url()), Some(&token), body).unwrap();
        assert_eq!(status, 201, "{answer}");
        answer
    };
    let network = id(&ask("networks", &json!({"network": {"name": "n", "project_id": project}}))["network"]);
    let subnet = json!({"network_id": network, "project_id": project, "ip_version": 4, "cidr": "10.86.0.0/24", "enable_dhcp": false});
    let subnet = id(&ask("subnets", &json!({"subnet": subnet}))["subnet"]);
    let assign = format!("projects/{project}/users/{user}/roles/{member}");
    keystone.ask("PUT", &assign, &Value::Null).unwrap();
    let missing = |user: &str, password: &str| {
        let cloud = json!({"authType": "password", "authUrl": keystone.url(), "userId": user, "password": password, "projectId": project});
        let defaults = json!({"project": project, "podSubnet": subnet});
        let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"]});
        let settings = json!({"cluster": "c", "openstack": {"kubernetes": kubernetes, "neutron": cloud, "neutronDefaults": defaults}});
        let file = std::env::temp_dir().join(name("settings"));
        std::fs::write(&file, settings.to_string()).unwrap();
        let all = rights(&OpenStack::read(Some(&file), None, None).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(all.len(), 5);
        all.into_iter().filter_map(|right| Some((right.name, right.missing?))).collect::<Vec<_>>()
    };
    assert_eq!(missing(&admin, keystone.password()), []);
    let of_member = missing(&user, "pw");
    let names: Vec<&str> = of_member.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["create_port:binding:host_id"], "{of_member:?}");
    assert!(of_member[0].1.contains("create_port:binding:host_id") && of_member[0].1.contains("403"), "{of_member:?}");
    assert_eq!(neutron.sql("SELECT id FROM ports").unwrap(), Vec::<Vec<String>>::new());
}
