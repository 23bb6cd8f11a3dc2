//! A pod's life, and what it costs.

use serde_json::json;

use crate::between::{Act, Between};
use crate::scene::{NODE, Scene, run, until};

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_pod_of_two_networks_gets_its_ports_and_they_go_with_it() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let others = scene.others();
    run(async {
        let operator = scene.operator();
        scene.pod(
            "web",
            NODE,
            r#"[{"name": "red", "ips": ["10.81.0.77"], "mac": "02:00:00:00:00:77"}, {"name": "blue", "interface": "data0"}]"#,
        );
        scene.pod("plain", NODE, "none-of-ours");
        let vif = |name: &str, active: bool| (name.to_owned(), active);
        until("both ports are bound", || scene.vifs("web") == [vif("data0", false), vif("eth1", false)]).await;
        let object = scene.kuryr_port("web").unwrap();
        let (_, uid) = scene.pods().into_iter().find(|(name, _)| name == "web").unwrap();
        assert_eq!((&object["spec"]["podUid"], &object["spec"]["podNodeName"]), (&json!(uid), &json!(NODE)));
        assert_eq!(object["metadata"]["finalizers"], json!(["kuryr.openstack.org/kuryrport-finalizer"]));
        assert_eq!(object["metadata"]["labels"]["kuryr.openstack.org/nodeName"], NODE);
        let data = &object["status"]["vifs"]["eth1"]["vif"]["versioned_object.data"];
        assert_eq!((&data["address"], &data["bridge_name"]), (&json!("02:00:00:00:00:77"), &json!("br-int")));
        let subnet = &data["network"]["versioned_object.data"]["subnets"]["versioned_object.data"]["objects"][0]["versioned_object.data"];
        assert_eq!(subnet["ips"]["versioned_object.data"]["objects"][0]["versioned_object.data"]["address"], "10.81.0.77");
        scene.plug_all();
        until("both are ACTIVE", || scene.vifs("web") == [vif("data0", true), vif("eth1", true)]).await;
        let metrics = operator.metrics();
        assert!(
            metrics.contains("netloom_operator_neutron_requests_total{method=\"POST\",resource=\"ports\",status=\"201\"} 1\n"),
            "{metrics}"
        );
        scene.delete_pod("web");
        until("its ports are gone", || scene.ports().len() == others.len()).await;
        until("its KuryrPort is gone", || scene.kuryr_port("web").is_none()).await;
        assert!(scene.ports().iter().all(|port| others.contains(&port.id)));
        assert!(scene.events("web").is_empty() && scene.events("plain").is_empty());
    });
}

/// Kuryr's drivers send 9 requests for a pod of three networks, and 10 where they wait until it is ACTIVE.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn ten_pods_of_three_networks_cost_a_quarter_of_kuryrs_requests() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24"), ("green", "10.83.0.0/24")]);
    run(async {
        (0..10).for_each(|n| scene.pod(&format!("p{n}"), "node-1", "red,blue,green"));
        let operator = scene.operator();
        until("all are ACTIVE", || (0..10).all(|n| scene.vifs(&format!("p{n}")).iter().filter(|(_, active)| *active).count() == 3)).await;
        scene.assert_ports(3, &[]);
        let requests = |of: &str| {
            let metrics = operator.metrics();
            let lines = metrics.lines().filter(|line| line.starts_with("netloom_operator_neutron_requests_total{") && line.contains(of));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
        };
        // What is not answered in time on a busy machine is sent again. Lists are one a second for all pods together, as long as some wait.
        let (all, lists, lost) = (requests(""), requests("GET\",resource=\"ports\""), requests("status=\"none\""));
        let up = all - lists - lost;
        assert!(up * 4 <= 9 * 10, "{up} requests: {}", operator.metrics());
        (0..10).for_each(|n| scene.delete_pod(&format!("p{n}")));
        until("all are gone", || scene.ports().is_empty()).await;
        until("and released", || (0..10).all(|n| scene.kuryr_port(&format!("p{n}")).is_none())).await;
        assert_eq!(requests("status=\"204\""), 30);
        println!("10 pods of 3 networks: {up} requests and {lists} lists until they were ACTIVE, 30 DELETE");
    });
}

/// With ports that wait, pods cost lists and nothing else: neither when they come nor when they go.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn ten_pods_of_three_networks_with_ready_ports_cost_no_change_of_neutron() {
    let mut scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24"), ("green", "10.83.0.0/24")]);
    let group = json!({"security_group": {"name": "web", "project_id": scene.project}});
    let group = scene.neutron.ask("POST", "security-groups", &group).unwrap()["security_group"]["id"].clone();
    let kubernetes = json!({"multiVifDrivers": ["npwg_multiple_interfaces"], "vifPoolDriver": "neutron"});
    let pool = json!({"portsPoolMin": 1, "portsPoolBatch": 12});
    scene.more = json!({"openstack": {"kubernetes": kubernetes, "vifPool": pool}});
    for (name, subnet) in &scene.subnets {
        scene.define(name, &json!({"subnetId": subnet, "securityGroups": [group]}));
    }
    let between = Between::before(&scene.neutron.url(), |_| Act::Pass);
    let changes = || ["POST /v2.0/ports", "PUT /v2.0/ports", "DELETE /v2.0/ports"].map(|line| between.passed(line));
    run(async {
        let operator = scene.operator_of(scene.options(&between.url()));
        scene.pod("first", NODE, "red,blue,green");
        // Its own three, and twelve that wait in each network: not before Neutron has bound them can a pod have them.
        let wait = || operator.metrics().contains("netloom_operator_neutron_ready_ports 36\n");
        until("others wait", || scene.vifs("first").len() == 3 && scene.ports().len() == 39 && wait()).await;
        let before = (changes(), between.passed(""));
        let names: Vec<String> = (0..10).map(|n| format!("p{n}")).collect();
        names.iter().for_each(|name| scene.pod(name, NODE, "red,blue,green"));
        until("all have theirs", || names.iter().all(|name| scene.vifs(name).len() == 3)).await;
        scene.plug_all();
        until("all are ACTIVE", || names.iter().all(|name| scene.vifs(name).iter().all(|(_, active)| *active))).await;
        names.iter().for_each(|name| scene.delete_pod(name));
        until("all are released", || names.iter().all(|name| scene.kuryr_port(name).is_none())).await;
        assert_eq!(changes(), before.0, "POST, PUT, DELETE");
        println!("10 pods of 3 networks with ready ports: no change, and {} lists until they were gone", between.passed("") - before.1);
    });
}
