//! Calls while all is well.

use netloom_tests::Node;
use serde_json::json;

#[test]
fn a_pod_comes_is_told_of_and_goes() {
    let node = Node::start("calls", "");
    let before = node.before();
    let pod = node.pod("web", "mac1,mac2,mac3");
    let added = pod.must("ADD").result();
    assert_eq!(added["ips"].as_array().unwrap().len(), 1, "{added:#}");
    let status = pod.wait_for_status();
    let names: Vec<&str> = status.as_array().unwrap().iter().map(|network| network["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pods", "calls/mac1", "calls/mac2", "calls/mac3"], "{status:#}");
    let gateway = added["ips"][0]["gateway"].as_str().unwrap();
    assert!(node.host.pings(&pod.sandbox(), gateway));
    pod.must("CHECK");
    assert_eq!(node.told(&["pods"])[0]["state"], json!("Attached"));
    pod.must("DEL");
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "a pod");
}
