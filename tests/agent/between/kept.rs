//! What a node does before the API server has told of the Nodes: what it did before, and nothing less.

use netloom_tests::{Host, Node};
use serde_json::json;

use super::scene::{A, B, Scene};

/// Takes away what a reboot takes away, and starts an agent that reaches no API server.
fn reboot_without_api(node: &Node) {
    node.kill9();
    for line in [
        "ip link del netloom0",
        "ip -4 route flush proto 110",
        "ip -6 route flush proto 110",
        "nft delete table inet netloom",
        "nft delete table bridge netloom",
    ] {
        // Not all of it is there on each node.
        node.host.try_run("", &line.split(' ').collect::<Vec<_>>());
    }
    node.api_proxy.shut();
    node.launch();
}

fn elements(host: &Host, set: &str) -> String {
    String::from_utf8_lossy(&host.try_run("", &["nft", "list", "set", "inet", "netloom", set]).stdout).into_owned()
}

#[test]
fn without_the_api_server_after_a_reboot_pods_are_masqueraded_as_before() {
    let scene = Scene::start("between: direct", &[A, B]);
    let a = &scene.nodes[0];
    reboot_without_api(a);
    // Inside are the other node's range and address, in whichever ranges they are kept.
    a.until("the other node is inside again", || {
        let inside = elements(&a.host, "inside4");
        inside.contains("10.1.1.0") && inside.contains("192.0.2.12") && elements(&a.host, "own4").contains("10.1.1.0/24")
    });
    a.until("and what leaves the cluster is masqueraded", || a.host.sh("", "nft list chain inet netloom egress").contains("masquerade"));
}

/// This kernel may have no WireGuard: what is closed does not depend on that.
#[test]
fn without_the_api_server_after_a_reboot_no_packet_leaves_plain() {
    let scene = Scene::new("between: wireguard", &[A, B]);
    [A, B].iter().for_each(|place| scene.register(place, json!(place.ranges)));
    let a = &scene.nodes[0];
    let is_closed = || {
        let there = |family: &str, range: &str| a.host.sh("", &format!("ip {family} route show type unreachable")).contains(range);
        there("-4", "10.1.2.0/24") && there("-6", "fd00:1:2::/64")
    };
    a.launch();
    a.until("the other node's ranges are closed", is_closed);
    a.until("it is kept", || {
        std::fs::read_to_string(a.host.path("/var/lib/netloom/cluster-network.json")).is_ok_and(|text| text.contains("closed"))
    });
    reboot_without_api(a);
    a.until("the bridge is there", || a.host.link("", "netloom0").is_some());
    a.until("they are closed again", is_closed);
    a.until("and what comes from there is refused", || elements(&a.host, "tunnelled4").contains("10.1.2.0/24"));
    assert!(elements(&a.host, "local4").contains("10.1.1.0/24"));
}

/// A connection keeps the address that it began with, and its first packet takes the route that is there.
#[test]
fn pods_get_the_network_after_its_routes_and_masquerade() {
    let scene = Scene::start("between: direct", &[A, B]);
    let a = &scene.nodes[0];
    a.kill9();
    for line in ["ip link del netloom0", "ip -4 route flush proto 110", "nft delete table inet netloom"] {
        a.host.sh("", line);
    }
    std::fs::remove_file(a.host.path("/var/lib/netloom/cluster-network.json")).unwrap();
    // The agent dies where the next thing that it does is to give pods the network.
    a.set("NETLOOM_CRASH_AT", "network-offered");
    a.launch();
    a.ended();
    assert!(a.host.sh("", "ip route show proto 110").contains("10.1.2.0/24 via 192.0.2.12"));
    assert!(elements(&a.host, "inside4").contains("192.0.2.12") && elements(&a.host, "own4").contains("10.1.1.0/24"));
    assert_eq!(a.host.addresses("", "netloom0").len(), 2);
    a.set("NETLOOM_CRASH_AT", "");
    a.launch();
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
}
