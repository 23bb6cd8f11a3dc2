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

/// An address that somebody else had a moment ago, and that the node still remembers as his: its neighbours are told.
#[test]
fn an_address_that_another_pod_had() {
    let node = Node::start("again", "");
    let network = json!({"cniVersion": "1.0.0", "name": "few", "type": "bridge", "bridge": "br1", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24", "rangeStart": "10.77.0.5", "rangeEnd": "10.77.0.6"}]]}});
    node.define("few", &network.to_string());
    let (lasting, pod) = (node.pod("lasting", "few"), node.pod("web", "few"));
    lasting.must("ADD");
    for life in 0..5 {
        let added = pod.must("ADD");
        let addresses = pod.addresses();
        let address = addresses.as_array().unwrap().iter().find(|one| one[0] == "net1").unwrap()[1].as_str().unwrap().to_owned();
        let neighbours = node.host.sh("", "ip neigh show dev br1");
        let link = node.host.sh(&pod.sandbox(), "ip -br link show net1");
        assert!(node.host.pings("", &address), "life {life}: {address} does not answer: {neighbours}{link}{added:?}");
        // Sleeps: an entry of a neighbour ages by the kernel's clock.
        std::thread::sleep(std::time::Duration::from_millis(1200));
        pod.must("DEL");
        pod.renew();
        node.settled();
    }
}
