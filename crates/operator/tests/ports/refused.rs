//! A pod that cannot have its ports waits alone, and its owner sees why.

use serde_json::json;

use crate::scene::{Scene, run, until};

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn each_waits_for_its_own_reason_and_the_others_do_not() {
    // Of the small subnet one address can be had.
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("small", "10.84.0.0/30")]);
    scene.define("foreign", &json!({"subnetId": "11111111-2222-4333-8444-555555555555"}));
    scene.define("vlan", &json!({"driverType": "nested-vlan"}));
    scene.define("typo", &json!({"subnetID": "x"}));
    let group = "0c1d2e3f-0000-4000-8000-00000000dead";
    scene.define("grouped", &json!({"subnetId": scene.subnets["red"], "securityGroups": [group]}));
    run(async {
        let _operator = scene.operator();
        for name in ["small-0", "small-1"] {
            scene.pod(name, "node-1", "red,small");
        }
        for (name, networks) in [
            ("foreign", "red,foreign"),
            ("vlan", "vlan,red"),
            ("typo", "typo"),
            ("missing", "red,nowhere"),
            ("wrong", "[1, red"),
            ("grouped", "grouped"),
        ] {
            scene.pod(name, "node-1", networks);
        }
        scene.pod("unbound", "node-1.fail", "red");
        scene.pod("good", "node-1", "red");
        until("the good one", || scene.vifs("good") == [("eth1".to_owned(), true)]).await;
        let is_told = |pod: &str, words: &str| {
            scene.events(pod).iter().any(|event| event.starts_with("NeutronPortsFailed: ") && event.contains(words))
        };
        until("that one has no address", || (0..2).any(|n| is_told(&format!("small-{n}"), "No more IP addresses available"))).await;
        for (pod, words) in [
            ("foreign", "policy rule \"tests\" does not allow subnetId \"11111111-2222-4333-8444-555555555555\""),
            ("vlan", "nested-vlan"),
            ("typo", "unknown key \"subnetID\""),
            ("missing", "definition default/nowhere does not exist"),
            ("unbound", "Neutron cannot bind the port of eth1 on node-1.fail: no mechanism driver serves this host"),
            ("grouped", "Neutron refuses the port of eth1 in"),
            ("grouped", &format!("Security group {group} does not exist")),
        ] {
            until(&format!("{pod}: {words}: {:?}", scene.events(pod)), || is_told(pod, words)).await;
        }
        // Their nodes read it in their KuryrPorts.
        let reads = |pod: &str, words: &str| {
            let object = scene.kuryr_port(pod).unwrap_or_default();
            object["metadata"]["annotations"]["netloom.io/reason"].as_str().is_some_and(|why| why.contains(words))
        };
        for (pod, words) in
            [("typo", "unknown key \"subnetID\""), ("missing", "definition default/nowhere does not exist"), ("grouped", group)]
        {
            until(&format!("the node of {pod} reads it"), || reads(pod, words)).await;
            assert_eq!(scene.vifs(pod), []);
        }
        // Nothing was made for those that cannot be served.
        let devices: Vec<String> = scene.ports().into_iter().map(|port| port.device).collect();
        for (name, uid) in scene.pods() {
            let of = devices.iter().filter(|device| **device == uid).count();
            let wanted = match name.as_str() {
                "foreign" | "vlan" | "typo" | "missing" | "wrong" | "grouped" => 0..=0,
                "unbound" => 0..=1,
                "good" => 1..=1,
                _ => 0..=2,
            };
            assert!(wanted.contains(&of), "{name} has {of}");
        }
        // One goes, and the one that waits has its place.
        let served = |n: &u32| scene.vifs(&format!("small-{n}")).len() == 2;
        until("one of them", || (0..2).any(|n| served(&n))).await;
        let gone = (0..2).find(served).unwrap();
        scene.delete_pod(&format!("small-{gone}"));
        until("its place is taken", || served(&(1 - gone))).await;
        // What is mended is served.
        scene.define("nowhere", &json!({"subnetId": scene.subnets["red"]}));
        until("the definition is there", || scene.vifs("missing").len() == 2).await;
        assert!(!reads("missing", ""), "what was mended is still a reason");
        scene.delete_pod("typo");
        until("nothing is left of a pod that had no ports", || scene.kuryr_port("typo").is_none()).await;
        for pod in ["foreign", "unbound"] {
            assert_eq!(scene.events(pod).len(), 1, "said once: {:?}", scene.events(pod));
        }
    });
}
