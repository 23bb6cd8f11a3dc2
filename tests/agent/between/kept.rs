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

/// A device that another agent has left takes packets all the while.
#[test]
fn without_the_api_server_the_tunnel_takes_packets_from_the_nodes_of_before() {
    let scene = Scene::start("between: vxlan", &[A, B]);
    let a = &scene.nodes[0];
    let is_guarded = || {
        let (nodes, ports) = (elements(&a.host, "nodes4"), elements(&a.host, "vxlanports"));
        nodes.contains("192.0.2.11") && nodes.contains("192.0.2.12") && ports.contains("4789")
    };
    a.until("the tunnel is guarded", is_guarded);
    a.until("it is kept", || {
        let kept = std::fs::read_to_string(a.host.path("/var/lib/netloom/cluster-network.json")).unwrap_or_default();
        kept.contains("endpoints") && kept.contains("192.0.2.12")
    });
    reboot_without_api(a);
    a.until("it is guarded again", is_guarded);
    assert!(a.host.sh("", "nft list chain inet netloom vxlan-arrivals").contains("jump vxlan-arrived"));
}

/// A device that packets still take stays, and listens at its port as before.
#[test]
fn a_tunnel_that_cannot_go_yet_stays_guarded() {
    let scene = Scene::start("between: vxlan\nreconcileEvery: 1s", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    a.until("the tunnel is guarded", || elements(&a.host, "vxlanports").contains("4789"));
    for node in [a, b] {
        node.kill9();
        let settings = std::fs::read_to_string(node.host.path(netloom_tests::SETTINGS)).unwrap();
        node.host.write(netloom_tests::SETTINGS, &settings.replace("between: vxlan", "between: direct"));
    }
    // A node of another mode is not reached at all.
    b.launch();
    let announced = || scene.api.must("GET", &super::scene::node_path(&B), &json!(null))["metadata"]["annotations"].to_string();
    b.until("the other node announces the mode", || announced().contains("direct"));
    // The direct route cannot be written: packets still take the tunnel.
    a.host.sh("", "ip link set eth0 down");
    a.launch();
    a.until("it says what cannot be done", || {
        a.status()["network"].to_string().contains("cannot replace the route to 10.1.2.0/24 via 192.0.2.12 on eth0")
    });
    let device = || !a.host.sh("", "ip -o link show type vxlan").is_empty();
    assert!(device());
    assert!(elements(&a.host, "vxlanports").contains("4789"), "{}", a.host.sh("", "nft list table inet netloom"));
    // In this mode no node sends to it.
    assert!(!elements(&a.host, "nodes4").contains("192.0.2.12"));
    a.host.sh("", "ip link set eth0 up");
    a.until("the tunnel goes, and its guard", || !device() && !elements(&a.host, "vxlanports").contains("4789"));
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

/// A pod whose connections begin without masquerade keeps its own address in them.
#[test]
fn pods_wait_until_masquerade_is_written_and_are_told_what_is_missing() {
    let scene = Scene::new("between: direct\naddWait: 1s\nreconcileEvery: 1s", &[A, B]);
    [A, B].iter().for_each(|place| scene.register(place, json!(place.ranges)));
    let a = &scene.nodes[0];
    // Somebody else's set of the same name, which holds no addresses.
    let spoil = || {
        a.host.run(
            "",
            &[
                "nft",
                "add table inet netloom; delete table inet netloom; add table inet netloom; \
            add set inet netloom own4 { type inet_service; }",
            ],
        );
    };
    let says = || a.status()["why"].as_str().is_some_and(|why| why.contains("cannot masquerade what leaves the cluster"));
    spoil();
    a.launch();
    a.until("it says what is missing", says);
    a.until("the Node says so", || scene.condition(&A) == Some(("True".to_owned(), "NetloomIsDown".to_owned())));
    let early = a.pod("early", "").call("ADD");
    assert!(early.error()["code"] == 11 && early.message().contains("cannot masquerade what leaves the cluster"), "{early:?}");
    a.host.run("", &["nft", "delete", "table", "inet", "netloom"]);
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    assert!(a.host.sh("", "nft list chain inet netloom egress").contains("masquerade"));
    let pod = a.pod("late", "");
    pod.must("ADD");
    // The same later.
    spoil();
    a.until("it says what is missing", || says() && a.status()["ready"] == json!(false));
    a.host.run("", &["nft", "delete", "table", "inet", "netloom"]);
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    pod.must("DEL");
}

/// As an agent that was down while its Node was created again.
#[test]
fn a_pod_that_comes_before_the_first_plan_gets_no_address_of_a_range_that_the_node_has_lost() {
    let scene = Scene::start("between: direct\naddWait: 2m", &[A]);
    let a = &scene.nodes[0];
    a.kill9();
    scene.api.must("DELETE", &super::scene::node_path(&A), &json!(null));
    scene.register(&A, json!(["10.1.7.0/24"]));
    let pod = a.pod("early", "");
    a.api_proxy.slow(true);
    a.launch();
    a.until("the bridge is there, as before", || a.status()["network"]["ranges"] == json!(A.ranges));
    a.until("it waits for the Nodes", || a.status()["network"]["lacks"].to_string().contains("the API server has not told of the Nodes"));
    let added = std::thread::scope(|scope| {
        let waits = scope.spawn(|| pod.call("ADD"));
        a.until("the ADD waits", || a.status()["calls"] != 0);
        a.api_proxy.slow(false);
        waits.join().unwrap()
    });
    assert_eq!(added.code, 0, "{added:?}");
    assert_eq!(added.result()["ips"][0]["address"], "10.1.7.2/24");
    pod.must("DEL");
}

/// What another node has around a former range of this one stays closed but for that.
#[test]
fn a_former_range_opens_nothing_but_itself() {
    let scene = Scene::new("between: wireguard\nreconcileEvery: 1s\naddWait: 1s", &[A, B]);
    scene.register(&A, json!(["10.1.1.0/24"]));
    let a = &scene.nodes[0];
    a.launch();
    a.until("the bridge is there", || a.host.link("", "netloom0").is_some());
    let pod = a.pod("old", "");
    a.until("pods get the network", || pod.call("ADD").code == 0);
    scene.api.must("DELETE", &super::scene::node_path(&A), &json!(null));
    scene.register(&A, json!(["10.1.9.0/24"]));
    scene.register(&B, json!(["10.1.0.0/22"]));
    let closed = || {
        let routes = a.host.sh("", "ip -4 route show type unreachable");
        routes.lines().map(|route| route.split(' ').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    a.until("the rest is closed", || closed() == ["10.1.0.0/24", "10.1.2.0/23"]);
    assert!(a.host.sh("", "ip route get 10.1.1.2").contains("dev netloom0"));
    let guarded = || elements(&a.host, "tunnelled4");
    a.until("and guarded", || guarded().contains("10.1.0.0/24") && guarded().contains("10.1.2.0/23") && !guarded().contains("10.1.1."));
    pod.must("DEL");
    a.until("with its last pod all of it is", || closed() == ["10.1.0.0/22"]);
}
