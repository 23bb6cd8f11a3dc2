//! Ranges that come late, change, or are somebody else's.

use serde_json::json;

use super::scene::{A, B, Scene, node_path, reached};

#[test]
fn a_range_that_comes_late_is_waited_for() {
    let scene = Scene::new("between: direct", &[A]);
    scene.register(&A, json!([]));
    let a = &scene.nodes[0];
    a.launch();
    a.until("it says what it waits for", || a.status()["why"].as_str().is_some_and(|why| why.contains("Node a has no podCIDR yet")));
    a.until("the Node says so", || scene.condition(&A) == Some(("True".to_owned(), "NoPodCIDR".to_owned())));
    scene.register(&A, json!(A.ranges));
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    a.until("the Node says so", || scene.condition(&A) == Some(("False".to_owned(), "NetloomIsUp".to_owned())));
    let pod = a.pod("late", "");
    assert_eq!(pod.must("ADD").result()["ips"][0]["address"], "10.1.1.2/24");
    // Without the API server, a new agent has the range all the same.
    a.kill9();
    a.host.sh("", "ip link del netloom0");
    a.api_proxy.shut();
    a.launch();
    a.until("the bridge is there again", || a.host.link("", "netloom0").is_some());
    a.until("with its addresses", || a.host.addresses("", "netloom0") == ["10.1.1.1/24", "fd00:1:1::1/64"]);
    a.api_proxy.open();
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
}

#[test]
fn a_node_that_is_made_again_with_another_range_keeps_its_pods() {
    let scene = Scene::start("between: direct\nreconcileEvery: 1s\naddWait: 1s", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let old = a.pod("old", "");
    assert_eq!(old.must("ADD").result()["ips"][0]["address"], "10.1.1.2/24");
    scene.api.must("DELETE", &node_path(&A), &json!(null));
    b.until("nothing leads to a Node that is gone", || !b.host.sh("", "ip route show proto 110").contains("10.1.1.0/24"));
    assert!(a.host.sh("", "ip route show proto 110").contains("10.1.2.0/24"), "of its own Node's end nothing follows");
    scene.register(&A, json!(["10.1.7.0/24", "fd00:1:7::/64"]));
    a.until("the bridge has both", || a.host.addresses("", "netloom0").len() == 4);
    b.until("the new range is routed", || b.host.sh("", "ip route show proto 110").contains("10.1.7.0/24 via 192.0.2.11"));
    let events = || scene.api.must("GET", "/apis/events.k8s.io/v1/namespaces/default/events", &json!(null))["items"].to_string();
    a.until("an Event tells it", || events().contains("this node's pod ranges were 10.1.1.0/24, fd00:1:1::/64 and are 10.1.7.0/24"));
    let new = a.pod("new", "");
    a.until("pods get addresses of the new range", || a.status()["network"]["ranges"] == json!(["10.1.7.0/24", "fd00:1:7::/64"]));
    assert_eq!(new.must("ADD").result()["ips"][0]["address"], "10.1.7.2/24");
    assert!(a.host.run_ok(&old.sandbox(), &["ping", "-c1", "-W5", "10.1.1.1"]) && a.host.tcp(&old.sandbox(), &new.sandbox(), "10.1.7.2"));
    old.must("DEL");
    a.until("the old gateway goes with its last pod", || a.host.addresses("", "netloom0") == ["10.1.7.1/24", "fd00:1:7::1/64"]);
}

#[test]
fn ranges_of_two_nodes_that_overlap() {
    let scene = Scene::new("between: direct", &[A, B]);
    scene.register(&A, json!(A.ranges));
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    a.restart();
    // The later of two Nodes of one second is the one with the later name.
    scene.register(&B, json!(["10.1.1.0/25"]));
    b.launch();
    let why = "10.1.1.0/25 of node b overlaps with 10.1.1.0/24 of node a, which is older and keeps it";
    b.until("it says why", || b.log().contains(why) && a.log().contains(why));
    b.until("the Node says so", || scene.condition(&B).is_some_and(|(status, _)| status == "True"));
    assert_eq!((a.status()["ready"].clone(), b.status()["ready"].clone()), (json!(true), json!(false)));
    assert_eq!(reached(a), Some(0));
    // Nobody may change the range of a Node that has one.
    scene.api.must("DELETE", &node_path(&B), &json!(null));
    scene.register(&B, json!(["10.1.2.0/24"]));
    b.until("the agent is ready", || b.status()["ready"] == json!(true));
    a.until("the other one is reached", || reached(a) == Some(1));
}

/// A link that is no bridge is nobody's to be deleted.
#[test]
fn an_address_of_the_range_on_another_link_is_told() {
    let scene = Scene::new("between: direct\nreconcileEvery: 1s", &[A]);
    scene.register(&A, json!(A.ranges));
    let a = &scene.nodes[0];
    // Around the range, which is more specific; and an address alone, as of a load balancer.
    a.host.sh("", "ip addr add 10.2.0.1/8 dev up0");
    a.host.sh("", "ip addr add 10.1.1.8/32 dev up0");
    a.host.sh("", "ip addr add 10.1.1.9/24 dev up0");
    a.launch();
    let why = "link up0 has the address 10.1.1.9/24 of this node's pod range 10.1.1.0/24, so packets for pods may be sent there: change";
    a.until("it says why", || a.status()["why"].as_str().is_some_and(|text| text.contains(why)));
    a.host.sh("", "ip addr del 10.1.1.9/24 dev up0");
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    let pod = a.pod("one", "");
    assert_eq!(pod.must("ADD").result()["ips"][0]["address"], "10.1.1.2/24");
    // The pods that are there keep their network.
    a.host.sh("", "ip addr add 10.1.1.9/24 dev up0");
    a.until("it is a problem", || a.status()["network"]["problems"].to_string().contains(why));
    assert_eq!(a.status()["ready"], json!(true));
}
