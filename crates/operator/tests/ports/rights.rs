//! What the credentials may do: a project's member before Neutron's own policy, which lets administrators alone bind ports to hosts.

use std::fs::File;
use std::path::PathBuf;

use netloom_operator::{OpenStack, rights};
use objects::Store;
use serde_json::{Value, json};
use testbed::openstack::{Keystone, Neutron, request};

use crate::killed::begin_with_log;
use crate::scene::{kubeconfig_of, run, until};

/// A Keystone, a Neutron, a project with a subnet, and a member of it.
struct Cloud {
    keystone: Keystone,
    neutron: Neutron,
    project: String,
    network: String,
    subnet: String,
    admin: String,
    member: String,
    dir: PathBuf,
}

// === impl Cloud ===

impl Cloud {
    fn new(what: &str) -> Self {
        let name = |part: &str| format!("test-{}-{what}-{part}", std::process::id());
        let keystone = Keystone::named(&name("keystone"), 3600).unwrap();
        let neutron = Neutron::named(&name("neutron"), Some(&keystone)).unwrap();
        let (admin, project) = keystone.ids().unwrap();
        let dir = std::env::temp_dir().join(name("files"));
        std::fs::create_dir_all(&dir).unwrap();
        let mut cloud =
            Cloud { keystone, neutron, project, network: String::new(), subnet: String::new(), admin, member: String::new(), dir };
        let id = |answer: &Value| answer["id"].as_str().unwrap().to_owned();
        let user = json!({"user": {"name": "operator", "password": "pw", "default_project_id": cloud.project}});
        cloud.member = id(&cloud.keystone.ask("POST", "users", &user).unwrap()["user"]);
        let roles = cloud.keystone.ask("GET", "roles?name=member", &Value::Null).unwrap();
        let assign = format!("projects/{}/users/{}/roles/{}", cloud.project, cloud.member, id(&roles["roles"][0]));
        cloud.keystone.ask("PUT", &assign, &Value::Null).unwrap();
        cloud.network = id(&cloud.made("network", &json!({"name": "n", "project_id": cloud.project})));
        let subnet = json!({"network_id": cloud.network, "project_id": cloud.project, "ip_version": 4, "cidr": "10.86.0.0/24",
            "enable_dhcp": false});
        cloud.subnet = id(&cloud.made("subnet", &subnet));
        cloud
    }

    /// What an administrator makes.
    fn made(&self, kind: &str, body: &Value) -> Value {
        let token = self.keystone.token().unwrap();
        let url = format!("{}/v2.0/{kind}s", self.neutron.url());
        let (status, answer) = request("POST", &url, Some(&token), &json!({kind: body})).unwrap();
        assert_eq!(status, 201, "{answer}");
        answer[kind].clone()
    }

    /// The file of settings of a user.
    fn settings(&self, user: &str, password: &str) -> PathBuf {
        let url = self.keystone.url();
        let cloud = json!({"authType": "password", "authUrl": url, "userId": user, "password": password, "projectId": self.project});
        let defaults = json!({"project": self.project, "podSubnet": self.subnet});
        let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"]});
        let settings = json!({"cluster": "c", "openstack": {"kubernetes": kubernetes, "neutron": cloud, "neutronDefaults": defaults}});
        let file = self.dir.join("openstack.yaml");
        std::fs::write(&file, settings.to_string()).unwrap();
        file
    }

    fn ports(&self) -> Vec<Vec<String>> {
        self.neutron.sql("SELECT id FROM ports").unwrap()
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
#[ignore = "needs Keystone and Neutron: cargo xtask test neutron"]
fn a_missing_right_is_named_and_nothing_is_left() {
    let cloud = Cloud::new("rights");
    let missing = |user: &str, password: &str| {
        let all = rights(&OpenStack::read(Some(&cloud.settings(user, password)), None, None).unwrap()).unwrap();
        assert_eq!(all.len(), 5);
        all.into_iter().filter_map(|right| Some((right.name, right.missing?))).collect::<Vec<_>>()
    };
    assert_eq!(missing(&cloud.admin, cloud.keystone.password()), []);
    let of_member = missing(&cloud.member, "pw");
    let names: Vec<&str> = of_member.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["create_port:binding:host_id"], "{of_member:?}");
    assert!(of_member[0].1.contains("create_port:binding:host_id") && of_member[0].1.contains("403"), "{of_member:?}");
    assert_eq!(cloud.ports(), Vec::<Vec<String>>::new());
}

/// An operator names it when it starts, and deletes what one that was killed has left of its own trial.
#[test]
#[ignore = "needs Keystone and Neutron: cargo xtask test neutron"]
fn an_operator_that_starts_names_a_missing_right() {
    let cloud = Cloud::new("rights-start");
    let port = |description: &str| {
        let about =
            json!({"network_id": cloud.network, "project_id": cloud.project, "device_owner": "compute:kuryr", "description": description});
        cloud.made("port", &about)["id"].as_str().unwrap().to_owned()
    };
    let of_a_user = port("somebody's own");
    port("Netloom has made this port to see whether it may, and deletes it when it looks the next time");
    let (store, log) = (Store::new(), cloud.dir.join("log"));
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let kubeconfig = kubeconfig_of(&cloud.dir, listener.local_addr().unwrap().port());
        let served = tokio::spawn(store.serve(listener));
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        let operator = begin_with_log(&cloud.settings(&cloud.member, "pw"), &kubeconfig, "", File::create(&log).unwrap().into());
        until("it names the right", || said().contains("missing=create_port:binding:host_id")).await;
        until("nothing is left", || cloud.ports() == [[of_a_user.clone()]]).await;
        drop(operator);
        served.abort();
    });
}
