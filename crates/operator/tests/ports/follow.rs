//! What changes while pods run, and what is not known for a while.

use netloom_operator::start;
use serde_json::{Value, json};

use crate::between::{Act, Between};
use crate::scene::{NODE, Scene, run, until};

fn group(scene: &Scene, name: &str) -> String {
    let group = json!({"security_group": {"name": name, "project_id": scene.project}});
    let made = scene.neutron.ask("POST", "security-groups", &group).unwrap();
    made["security_group"]["id"].as_str().unwrap().to_owned()
}

/// Security groups of a definition reach the ports of pods that run.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn security_groups_follow_the_definition() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let groups = ["web", "db"].map(|name| group(&scene, name));
    let define = |groups: &[&String]| scene.define("red", &json!({"subnetId": scene.subnets["red"], "securityGroups": groups}));
    let of_ports = || {
        let rows = scene.neutron.sql(&format!(
            "SELECT b.security_group_id FROM securitygroupportbindings b JOIN ports p ON p.id = b.port_id WHERE p.project_id = '{}'",
            scene.project
        ));
        let mut all: Vec<String> = rows.unwrap().into_iter().map(|row| row[0].clone()).collect();
        all.sort();
        all
    };
    run(async {
        define(&[&groups[0]]);
        let _operator = scene.operator();
        scene.pod("web", NODE, "red");
        until("it has its port", || scene.vifs("web").len() == 1).await;
        assert_eq!(of_ports(), [groups[0].clone()]);
        let port = scene.ports();
        define(&[&groups[0], &groups[1]]);
        let mut both = groups.to_vec();
        both.sort();
        until("both groups", || of_ports() == both).await;
        define(&[&groups[1]]);
        until("the other one", || of_ports() == [groups[1].clone()]).await;
        assert_eq!(scene.ports(), port, "it is the same port");
        // A definition that cannot be used takes nothing from pods that run, and is no problem of theirs.
        scene.define("red", &json!({"subnetID": "typo"}));
        scene.plug_all();
        until("it is ACTIVE", || scene.vifs("web") == [("eth1".to_owned(), true)]).await;
        scene.define("red", &json!({"subnetId": scene.subnets["red"], "securityGroups": ["0c1d2e3f-0000-4000-8000-00000000dead"]}));
        until("its owner can read why", || scene.events("web").iter().any(|event| event.contains("securityGroups"))).await;
        assert!(scene.events("web").iter().all(|event| !event.contains("subnetID")), "{:?}", scene.events("web"));
        assert_eq!(of_ports(), [groups[1].clone()]);
    });
}

/// A definition's QoS policy and address pairs are the port's, where a rule allows them.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_port_has_the_policy_and_the_address_pairs_of_its_definition() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let policy = json!({"policy": {"name": "slow", "project_id": scene.project}});
    let policy = scene.neutron.ask("POST", "qos/policies", &policy).unwrap()["policy"]["id"].as_str().unwrap().to_owned();
    let pairs = json!([{"ipAddress": "10.99.0.0/24"}, {"ipAddress": "10.81.0.250", "macAddress": "00:00:5e:00:01:07"}]);
    scene.define("red", &json!({"subnetId": scene.subnets["red"], "qosPolicy": policy, "allowedAddressPairs": pairs}));
    let rule = |allow: Value| json!({"file": {"policy": [{"name": "tests", "allow": {"neutron": allow}}]}});
    run(async {
        let operator = scene.operator();
        scene.pod("web", NODE, "red");
        let says = |words: &str| scene.events("web").iter().any(|event| event.contains(words));
        until("it is refused", || says("does not allow qosPolicy")).await;
        drop(operator);
        let allow = json!({"subnets": ["*"], "qosPolicies": [policy], "allowedAddressPairs": true});
        let _operator = scene.operator_of(scene.options_with(&scene.neutron.url(), &rule(allow)));
        until("it has its port", || scene.vifs("web").len() == 1).await;
        let port = scene.neutron.ask("GET", &format!("ports/{}", scene.ports()[0].id), &Value::Null).unwrap()["port"].clone();
        assert_eq!(port["qos_policy_id"], json!(policy));
        let mut all: Vec<(Value, Value)> = port["allowed_address_pairs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| (pair["ip_address"].clone(), pair["mac_address"].clone()))
            .collect();
        all.sort_by_key(|(ip, _)| ip.to_string());
        assert_eq!(all, [(json!("10.81.0.250"), json!("00:00:5e:00:01:07")), (json!("10.99.0.0/24"), port["mac_address"].clone())]);
    });
}

/// A server that fails between a port and its binding leaves one that nobody binds: it is asked to bind it.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_port_that_neutron_has_forgotten_to_bind() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    run(async {
        scene.pod("web", NODE, "red");
        scene.killed_at("operator-port-made").await;
        let made = scene.ports();
        let ids = format!("SELECT id FROM ports WHERE project_id = '{}'", scene.project);
        scene
            .neutron
            .sql(&format!("UPDATE ml2_port_bindings SET vif_type = 'unbound', vif_details = '' WHERE port_id IN ({ids})"))
            .unwrap();
        let _operator = scene.operator();
        until("it is bound", || scene.vifs("web").len() == 1).await;
        assert_eq!((scene.ports(), made.len()), (made, 1), "it is the same port");
    });
}

/// A Neutron that takes no tags with a port: it gets them afterwards. Who is killed in between leaves one that the next one finds.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn tags_come_later_where_neutron_takes_none_with_a_port() {
    let scene = Scene::without_tags(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let tags = || {
        let rows = scene.neutron.sql(&format!(
            "SELECT t.tag FROM tags t JOIN ports p ON p.standard_attr_id = t.standard_attr_id WHERE p.project_id = '{}'",
            scene.project
        ));
        rows.unwrap().into_iter().filter(|row| row[0].starts_with("netloom:pod=")).count()
    };
    run(async {
        scene.pod("first", "node-1", "red,blue");
        scene.killed_at("operator-port-made").await;
        assert_eq!((scene.ports().len(), tags()), (2, 0), "made, and without tags");
        let _operator = scene.operator();
        until("they are found", || scene.vifs("first").iter().filter(|(_, active)| *active).count() == 2).await;
        until("and get their tags", || tags() == 2).await;
        scene.assert_ports(2, &[]);
        scene.pod("second", "node-1", "red");
        until("another one", || scene.vifs("second").len() == 1 && tags() == 3).await;
        ["first", "second"].iter().for_each(|name| scene.delete_pod(name));
        until("nothing is left", || scene.ports().is_empty() && scene.kuryr_port("second").is_none()).await;
    });
}

/// Neutron is slow: it makes a port when nobody waits any more, and after lists that do not have it. It is not made a second time.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_port_that_is_made_late_is_made_once() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let between = Between::before(&scene.neutron.url(), move |line| {
        let is_made = line.starts_with("POST /v2.0/ports");
        if is_made && is_first.swap(false, std::sync::atomic::Ordering::Relaxed) { Act::Late } else { Act::Pass }
    });
    run(async {
        // A port takes Neutron seconds here.
        let _operator = scene.operator_of(scene.options_with(&between.url(), &json!({"neutron": {"timeout": 30}})));
        scene.pod("web", "node-1", "red");
        until("lists do not have it", || between.passed("GET /v2.0/ports?") > 3).await;
        assert_eq!((scene.ports().len(), between.passed("POST /v2.0/ports")), (0, 0), "nobody knows yet");
        between.release();
        until("it is there", || scene.vifs("web") == [("eth1".to_owned(), true)]).await;
        assert_eq!(between.passed("POST /v2.0/ports"), 1);
        scene.assert_ports(1, &[]);
    });
}

/// A pod whose ports wait for a subnet that nobody may read, or whose KuryrPort nobody may write, tells its owner.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn its_owner_sees_what_cannot_be_read_or_written() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let blue = scene.subnets["blue"].clone();
    let neutron = Between::before(&scene.neutron.url(), move |line| {
        if line.starts_with(&format!("GET /v2.0/subnets/{blue}")) { Act::Refuse(403) } else { Act::Pass }
    });
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let api = Between::before(&url, |line| if line.starts_with("POST /apis/openstack.org/") { Act::Refuse(403) } else { Act::Pass });
        let kubeconfig = scene.kubeconfig(api.port());
        let connection = cluster::client(Some(&kubeconfig)).await.unwrap();
        let _operator = start(connection, scene.options(&neutron.url()));
        scene.pod("unread", NODE, "blue");
        scene.pod("unwritten", NODE, "red");
        let says = |pod: &str, words: &[&str]| {
            let all = scene.events(pod);
            all.iter().any(|event| event.starts_with("NeutronPortsFailed: ") && words.iter().all(|word| event.contains(word)))
        };
        until("the subnet", || says("unread", &["GET subnets/", "no such right (403", "may see its networks and subnets"])).await;
        until("the object", || says("unwritten", &["KuryrPort default/unwritten: ", "no such right", "deploy/openstack/access.yaml"]))
            .await;
        assert_eq!(scene.ports().len(), 1, "one has its port");
        served.abort();
    });
}

/// What a subnet says is read again before a port is made after it was refused; a subnet that is gone is named.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_subnet_that_is_gone_is_named() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    run(async {
        let _operator = scene.operator();
        scene.pod("first", "node-1", "blue");
        until("it has its port", || scene.vifs("first").len() == 1).await;
        scene.delete_pod("first");
        until("it is gone", || scene.ports().is_empty()).await;
        scene.neutron.ask("DELETE", &format!("subnets/{}", scene.subnets["blue"]), &Value::Null).unwrap();
        scene.pod("second", "node-1", "blue");
        let says = |event: &String| event.contains(&format!("subnet {} does not exist in Neutron", scene.subnets["blue"]));
        until("its owner can read why", || scene.events("second").iter().any(says)).await;
        assert!(scene.ports().is_empty());
    });
}

/// Every pod of the cluster has a port as its default network, in the subnets that its annotation adds as well, but for one that chooses another
/// default network.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn the_default_network_is_a_port() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let network =
        |subnet: &str| scene.neutron.ask("GET", &format!("subnets/{subnet}"), &Value::Null).unwrap()["subnet"]["network_id"].clone();
    // The first one of the networks is the default: blue.
    let more = json!({"subnet": {"network_id": network(&scene.subnets["blue"]), "project_id": scene.project, "ip_version": 4, "cidr": "10.85.0.0/24",
        "enable_dhcp": false}});
    let more = scene.neutron.ask("POST", "subnets", &more).unwrap()["subnet"]["id"].clone();
    let policy = json!([{"name": "tests", "allow": {"neutron": {"subnets": ["*"]}}}]);
    let options = scene.options_with(&scene.neutron.url(), &json!({"file": {"defaultNetwork": "port", "policy": policy}}));
    let addresses = |pod: &str| {
        let object = scene.kuryr_port(pod).unwrap();
        let eth0 = &object["status"]["vifs"]["eth0"];
        assert_eq!(eth0["default"], true);
        let subnets =
            &eth0["vif"]["versioned_object.data"]["network"]["versioned_object.data"]["subnets"]["versioned_object.data"]["objects"];
        let mut cidrs: Vec<String> =
            subnets.as_array().unwrap().iter().map(|subnet| subnet["versioned_object.data"]["cidr"].as_str().unwrap().to_owned()).collect();
        cidrs.sort();
        cidrs
    };
    run(async {
        let _operator = scene.operator_of(options);
        scene.pod_with("plain", "node-1", &json!({}));
        scene.pod("selects", "node-1", "red");
        scene.pod_with("two", "node-1", &json!({"openstack.org/kuryr-additional-subnets": json!([more]).to_string()}));
        scene.pod_with("other", "node-1", &json!({"v1.multus-cni.io/default-network": "red"}));
        let active = |interface: &str| (interface.to_owned(), true);
        until("a plain one", || scene.vifs("plain") == [active("eth0")]).await;
        until("one that selects", || scene.vifs("selects") == [active("eth0"), active("eth1")]).await;
        until("one of two subnets", || scene.vifs("two") == [active("eth0")]).await;
        assert_eq!(
            (addresses("plain"), addresses("two")),
            (vec!["10.82.0.0/24".to_owned()], vec!["10.82.0.0/24".to_owned(), "10.85.0.0/24".to_owned()])
        );
        assert!(scene.kuryr_port("other").is_none() && scene.ports().len() == 4);
        ["plain", "selects", "two", "other"].iter().for_each(|pod| scene.delete_pod(pod));
        until("nothing is left", || scene.ports().is_empty()).await;
    });
}

/// Ready ports: a pod gets one without a request that makes one, and another pod gets the same one after it.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn ready_ports_go_from_pod_to_pod() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let groups = [group(&scene, "web")];
    scene.define("red", &json!({"subnetId": scene.subnets["red"], "securityGroups": groups}));
    let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"], "vifPoolDriver": "neutron"});
    let pool = json!({"portsPoolMin": 2, "portsPoolBatch": 3});
    let more = json!({"openstack": {"kubernetes": kubernetes, "vifPool": pool}});
    let between = Between::before(&scene.neutron.url(), |_| Act::Pass);
    let id = |pod: &str| scene.kuryr_port(pod).unwrap()["status"]["vifs"]["eth1"]["vif"]["versioned_object.data"]["id"].clone();
    run(async {
        let operator = scene.operator_of(scene.options_with(&between.url(), &more));
        scene.pod("first", NODE, "red");
        let ids = || scene.ports().into_iter().map(|row| json!(row.id)).collect::<Vec<_>>();
        until("some wait", || scene.vifs("first").len() == 1 && scene.ports().len() >= 3).await;
        let before = ids();
        scene.pod("second", NODE, "red");
        until("it has one", || scene.vifs("second").len() == 1).await;
        assert!(before.contains(&id("second")), "it was there before");
        scene.delete_pod("second");
        until("it is released", || scene.kuryr_port("second").is_none()).await;
        assert_eq!(between.passed("DELETE /v2.0/ports"), 0);
        let before = ids();
        scene.pod("third", NODE, "red");
        until("it has one, too", || scene.vifs("third").len() == 1).await;
        assert!(before.contains(&id("third")));
        drop(operator);
        // Another operator without pools deletes what waits, and nothing of pods.
        let _operator = scene.operator();
        until("what waited is gone", || scene.ports().len() == 2).await;
        assert_eq!(scene.vifs("third").len(), 1);
        ["first", "third"].iter().for_each(|pod| scene.delete_pod(pod));
        until("nothing is left", || scene.ports().is_empty()).await;
    });
}
