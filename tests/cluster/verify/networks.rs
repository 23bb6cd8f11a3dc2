//! The other networks of a cluster's pods: what their definitions promise is tried.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testbed::Families;

use super::Verified;
use super::faults::{Watch, now};
use crate::path::scene::definition;

/// How each case came out, and how many of its probes passed.
fn states(verified: &Value) -> BTreeMap<String, (String, u64)> {
    let of = |case: &Value| (case["state"].as_str().unwrap().to_owned(), case["passed"].as_u64().unwrap_or(0));
    verified["cases"].as_array().unwrap().iter().map(|case| (case["id"].as_str().unwrap().to_owned(), of(case))).collect()
}

#[test]
fn what_other_networks_promise_is_tried() {
    let mut verified = Verified::new("verify-networks", Families::V4, "between: vxlan");
    let ipam = |subnet: &str| json!({"type": "host-local", "subnet": subnet});
    let beside = json!({"cniVersion": "1.1.0", "type": "bridge", "bridge": "beside0", "mtu": 1400, "ipam": ipam("10.77.0.0/24")});
    let apart = json!({"cniVersion": "1.1.0", "type": "bridge", "bridge": "apart0", "portIsolation": true, "ipam": ipam("10.78.0.0/24")});
    for (name, config) in [("beside", beside), ("apart", apart)] {
        verified.scene.apply(&definition(name, &json!({}), Some(&config)));
    }
    let tried = ["--network", "default/beside,default/apart", "--test", "^network-"];
    let (whole, code) = verified.run("other networks", &tried);
    let states = states(&whole);
    assert_eq!(code, 0, "{whole:#}");
    // Reach on one node, a packet of the MTU and one byte more, isolation.
    for case in ["network-1", "network-3", "network-4", "network-5"] {
        assert!(states[case].0 == "passed" && states[case].1 >= 2, "{case}: {states:?}");
    }
    verified.nothing_is_left();

    // A fault on one of them is named where it is.
    let mut watch = Watch::begin(&verified, "^network-1$", &["--network", "default/beside"]);
    let node = |argv: &[&str]| verified.scene.cluster.node("node-1").unwrap().run(argv).unwrap();
    let since = now();
    node(&["ip", "link", "set", "beside0", "down"]);
    let (fault, at, change) = watch.breaks(&since);
    assert_eq!((fault.as_str(), at.as_str()), ("LinkDown", "node-1 beside0"), "{change:#}");
    node(&["ip", "link", "set", "beside0", "up"]);
    assert!(watch.heals());
    watch.end();
    verified.nothing_is_left();
}
