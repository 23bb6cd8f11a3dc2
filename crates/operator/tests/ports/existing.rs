//! Ports that exist already, and ports of virtual functions.

use serde_json::{Value, json};

use crate::scene::{NODE, Scene, run, until};

/// A port that somebody made: its ID.
fn made(scene: &Scene, more: &Value) -> String {
    let network = scene.neutron.ask("GET", &format!("subnets/{}", scene.subnets["red"]), &Value::Null).unwrap();
    let mut port = json!({"network_id": network["subnet"]["network_id"], "project_id": scene.project, "name": "mail", "tags": ["mail"]});
    port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let port = scene.neutron.ask("POST", "ports", &json!({"port": port})).unwrap();
    port["port"]["id"].as_str().unwrap().to_owned()
}

fn now(scene: &Scene, id: &str) -> Value {
    scene.neutron.ask("GET", &format!("ports/{id}"), &Value::Null).unwrap()["port"].clone()
}

/// All of a port but for what changes with each change.
fn lasting(mut port: Value) -> Value {
    for key in ["revision_number", "updated_at", "binding:vif_details", "status"] {
        port.as_object_mut().unwrap().remove(key);
    }
    port
}

fn rule(allow: &Value) -> Value {
    json!({"file": {"policy": [{"name": "tests", "allow": {"neutron": allow}}]}})
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn an_existing_port_is_bound_to_a_pod_and_given_back() {
    let mut scene = Scene::new(&[("red", "10.81.0.0/24")]);
    scene.more = rule(&json!({"subnets": ["*"], "ports": ["*"]}));
    let mail = made(&scene, &json!({"fixed_ips": [{"subnet_id": scene.subnets["red"], "ip_address": "10.81.0.25"}]}));
    let router = made(&scene, &json!({"device_owner": "compute:nova", "device_id": "a-server"}));
    let before = [&mail, &router].map(|id| now(&scene, id));
    scene.define("mail", &json!({"portId": mail}));
    scene.define("server", &json!({"portId": router}));
    scene.define("nowhere", &json!({"portId": "11111111-2222-4333-8444-555555555555"}));
    run(async {
        let operator = scene.operator_of(scene.options_with(&scene.neutron.url(), &rule(&json!({"subnets": ["*"]}))));
        scene.pod("first", NODE, "mail,red");
        let is_told = |pod: &str, words: &str| scene.events(pod).iter().any(|event| event.contains(words));
        until("it is refused", || is_told("first", "policy rule \"tests\" does not allow portId")).await;
        drop(operator);
        // It dies when the port has the pod's tags, and when it is bound.
        for point in ["operator-port-tagged", "operator-port-handed"] {
            scene.killed_at(point).await;
        }
        let operator = scene.operator();
        until("it has both ports", || scene.vifs("first").len() == 2).await;
        let port = now(&scene, &mail);
        let uid = scene.pods().into_iter().find(|(name, _)| name == "first").unwrap().1;
        assert_eq!(
            (&port["device_id"], &port["binding:host_id"], &port["device_owner"]),
            (&json!(uid), &json!(NODE), &json!("compute:kuryr"))
        );
        assert!(port["tags"].as_array().unwrap().contains(&json!("mail")), "{port}");
        assert_eq!((&port["name"], &port["security_groups"]), (&before[0]["name"], &before[0]["security_groups"]));
        let vif = scene.kuryr_port("first").unwrap()["status"]["vifs"]["eth1"]["vif"]["versioned_object.data"].clone();
        assert_eq!((&vif["id"], &vif["preserve_on_delete"]), (&json!(mail), &json!(true)));
        scene.plug_all();
        until("both are ACTIVE", || scene.vifs("first").iter().all(|(_, active)| *active)).await;

        for (pod, networks, words) in [
            ("second", "mail", "is in use by another pod"),
            ("taken", "red,server", "is in use by compute:nova a-server"),
            ("lost", "nowhere", "does not exist in Neutron"),
            ("picky", r#"[{"name": "mail", "ips": ["10.81.0.26"]}]"#, "is in use by another pod"),
        ] {
            scene.pod(pod, NODE, networks);
            until(&format!("{pod}: {words}: {:?}", scene.events(pod)), || is_told(pod, words)).await;
        }
        // The next one has it when the first one is gone.
        scene.delete_pod("picky");
        scene.delete_pod("first");
        until("it has the port", || scene.vifs("second").len() == 1).await;
        until("the first one's own port is gone", || scene.ports().len() == 2).await;
        scene.delete_pod("second");
        drop(operator);
        // It dies when the port is bound to nothing, and when it has its own tags again.
        for point in ["operator-port-handed", "operator-port-tagged"] {
            scene.killed_at(point).await;
        }
        let _operator = scene.operator();
        until("it is given back", || scene.kuryr_port("second").is_none()).await;
        assert_eq!([&mail, &router].map(|id| lasting(now(&scene, id))), before.map(lasting));
        scene.pod("picky", NODE, r#"[{"name": "mail", "ips": ["10.81.0.26"]}]"#);
        until("it is told", || is_told("picky", "does not have the address 10.81.0.26")).await;
        assert_eq!(lasting(now(&scene, &mail))["device_id"], "");
    });
}

/// A card's virtual function, as Neutron's driver `sriovnicswitch` binds it.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_port_of_a_virtual_function_says_its_physical_network() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let network = json!({"network": {"name": "cards", "project_id": scene.project, "provider:network_type": "vlan",
        "provider:physical_network": "physnet1"}});
    let network = scene.neutron.ask("POST", "networks", &network).unwrap()["network"].clone();
    let subnet = json!({"subnet": {"network_id": network["id"], "project_id": scene.project, "ip_version": 4, "cidr": "10.85.0.0/24"}});
    let subnet = scene.neutron.ask("POST", "subnets", &subnet).unwrap()["subnet"]["id"].clone();
    scene.define("card", &json!({"subnetId": subnet, "vnicType": "direct"}));
    run(async {
        let operator = scene.operator();
        scene.pod("web", "node-1.sriov", "card");
        let is_told = |pod: &str, words: &str| scene.events(pod).iter().any(|event| event.contains(words));
        until("it is refused", || is_told("web", "does not allow")).await;
        drop(operator);
        let allow = rule(&json!({"subnets": ["*"], "vnicTypes": ["normal", "direct"]}));
        let _operator = scene.operator_of(scene.options_with(&scene.neutron.url(), &allow));
        until("it has its port", || scene.vifs("web").len() == 1).await;
        let vif = scene.kuryr_port("web").unwrap()["status"]["vifs"]["eth1"]["vif"].clone();
        let data = &vif["versioned_object.data"];
        assert_eq!((&vif["versioned_object.name"], &data["physnet"]), (&json!("VIFSriov"), &json!("physnet1")));
        let of_network = &data["network"]["versioned_object.data"];
        assert_eq!((&of_network["vlan"], &of_network["should_provide_vlan"]), (&network["provider:segmentation_id"], &json!(true)));
        assert_eq!(now(&scene, data["id"].as_str().unwrap())["binding:vnic_type"], "direct");
        // A host without such cards.
        scene.pod("db", NODE, "card");
        until("it is told", || is_told("db", "no mechanism driver serves this host")).await;
    });
}
