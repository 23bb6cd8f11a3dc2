//! Limits of bandwidth are tried where somebody asks for it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Lab, node, pod};

/// What a pod may send is so much more than it may receive that no busy machine is as slow.
const NETWORK: &str = r#"apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: slow}
spec: {config: '{"cniVersion":"1.0.0","plugins":[{"type":"bridge","bridge":"slow0","ipam":{"type":"host-local","subnet":"10.8.0.0/24"}},
  {"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":160000000,"egressBurst":8000000}]}'}
---
"#;

fn states(json: &Value) -> Vec<(&str, u64)> {
    let cases = json["cases"].as_array().unwrap().iter();
    cases.map(|case| (case["state"].as_str().unwrap(), case["passed"].as_u64().unwrap())).collect()
}

#[test]
fn a_limit_holds_or_its_pod_is_named() {
    let on = |name: &str| pod(name, "left").replace("{name: ", "{annotations: {k8s.v1.cni.cncf.io/networks: slow}, name: ");
    let lab = Lab::up(&[node("left"), NETWORK.to_owned(), on("a"), on("b")].concat(), &[]);
    let (code, json) = lab.verified(&["--test", "^bandwidth-"]);
    assert_eq!((code, states(&json)), (0, vec![("skipped", 0), ("skipped", 0)]), "{json:#}");
    assert!(json["cases"][0]["skipped"][0]["why"].as_str().unwrap().contains("--bandwidth"), "{json:#}");
    let measured = || lab.verified(&["--bandwidth", "--test", "^bandwidth-"]);
    let (code, json) = measured();
    assert_eq!((code, states(&json)), (0, vec![("passed", 1), ("passed", 1)]), "{json:#}");

    // Somebody has put another limit in the place of what `a` receives, which `b` sends.
    let inner = lab.host.link("nl.lab.pod.default.a", "net1").unwrap();
    let links = lab.host.json("nl.lab.node.left", "ip -j -d link");
    let outer = links.as_array().unwrap().iter().find(|link| Some(&link["ifindex"]) == inner.0.get("link_index")).unwrap();
    let link = outer["ifname"].as_str().unwrap();
    lab.run("node.left", &format!("tc qdisc del dev {link} root"));
    let (code, json) = measured();
    let found: BTreeSet<(&str, &str)> = json["cases"][0]["failures"]
        .as_array()
        .unwrap_or_else(|| panic!("{json:#}"))
        .iter()
        .map(|failure| (failure["fault"].as_str().unwrap(), failure["place"].as_str().unwrap()))
        .collect();
    // What it sends is `b`'s to receive, and has its limit.
    assert_eq!((code, states(&json)), (3, vec![("failed", 0), ("passed", 1)]), "{json:#}");
    assert_eq!(found, BTreeSet::from([("BandwidthDiffers", "pod/default/a")]), "{json:#}");
    assert_eq!(json["cases"][0]["failures"][0]["network"], "default/slow");
    lab.down();
}
