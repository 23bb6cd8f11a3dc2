//! Packets between pods of several nodes, and to what is elsewhere.

use netloom_tests::{Node, Pod};
use serde_json::json;

use super::scene::{A, B, C, FAR, Scene, reached};

/// The port at which each pod answers with its name and the address that it sees.
pub(super) const PORT: u16 = 7000;

/// A pod that answers, and its address of each range of its node.
pub(super) fn pod<'n>(node: &'n Node, name: &str) -> (Pod<'n>, Vec<String>) {
    let pod = node.pod(name, "");
    let added = pod.must("ADD");
    // The runtime's part.
    node.host.sh(&pod.sandbox(), "ip link set lo up");
    let ips = added.result()["ips"].as_array().unwrap().clone();
    let addresses = ips.iter().map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect();
    node.host.answer_at(&pod.sandbox(), name, "::", PORT);
    (pod, addresses)
}

/// Every pod reaches every other one by its own address, over both families.
pub(super) fn all_meet(scene: &Scene) {
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    for (node, (from, own)) in &pods {
        for (_, (to, addresses)) in &pods {
            for (address, seen_as) in addresses.iter().zip(own) {
                let told = node.host.told_over_tcp(&from.sandbox(), address, PORT);
                assert_eq!(told, format!("{} {seen_as}", to.name), "{} to {address}\n{}", from.name, node.tail());
            }
        }
    }
    // Elsewhere the node is seen, and no pod.
    A.routers.iter().for_each(|address| scene.router.answer_at("", "router", address, PORT));
    let (node, (from, _)) = &pods[0];
    for (to, own) in A.routers.into_iter().zip(A.addresses) {
        assert_eq!(node.host.told_over_tcp(&from.sandbox(), to, PORT), format!("router {own}"), "{}", node.tail());
    }
    pods.iter().for_each(|(_, (pod, _))| drop(pod.must("DEL")));
}

#[test]
fn direct_on_one_link() {
    let scene = Scene::start("between: direct", &[A, B]);
    all_meet(&scene);
    let a = &scene.nodes[0];
    assert!(a.host.sh("", "ip route show proto 110").contains("10.1.2.0/24 via 192.0.2.12 dev eth0"));
    assert_eq!(a.status()["network"]["mtu"], json!(1500));
    a.until("the Node says so", || scene.condition(&A) == Some(("False".to_owned(), "NetloomIsUp".to_owned())));
}

/// The link gets another MTU, as it does when a person sets one or the network's own protocol says so.
#[test]
fn pods_follow_the_mtu_of_the_link_from_then_on() {
    let scene = Scene::start("between: vxlan\nreconcileEvery: 10m", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let mtu = |pod: &Pod<'_>| a.host.json(&pod.sandbox(), "ip -j link show eth0")[0]["mtu"].clone();
    let (old, of_old) = pod(a, "old");
    let (far, of_far) = pod(b, "far");
    assert_eq!(mtu(&old), json!(1450));
    a.host.sh("", "ip link set eth0 mtu 1400");
    a.until("it is seen", || a.status()["network"]["mtu"] == json!(1350));
    a.until("the tunnel follows", || a.host.json("", "ip -j link show nl4-1000-12b5")[0]["mtu"] == json!(1350));
    let (new, of_new) = pod(a, "new");
    assert_eq!((mtu(&new), mtu(&old)), (json!(1350), json!(1450)));
    for (name, address) in [("old", &of_old[0]), ("new", &of_new[0])] {
        assert_eq!(b.host.told_over_tcp(&far.sandbox(), address, PORT), format!("{name} {}", of_far[0]));
    }
}

#[test]
fn ranges_of_both_families_may_come_in_either_order() {
    let scene = Scene::new("between: direct", &[A]);
    scene.register(&A, json!([A.ranges[1], A.ranges[0]]));
    let a = &scene.nodes[0];
    a.launch();
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    let (only, mut addresses) = pod(a, "only");
    addresses.sort();
    assert_eq!(addresses, ["10.1.1.2", "fd00:1:1::2"]);
    for (family, gateway) in [("-4", "10.1.1.1"), ("-6", "fd00:1:1::1")] {
        let routes = a.host.sh(&only.sandbox(), &format!("ip {family} route show default"));
        assert!(routes.contains(&format!("default via {gateway} dev eth0")), "{routes}");
    }
}

#[test]
fn vxlan_between_links() {
    let scene = Scene::start("between: vxlan", &[A, B, FAR]);
    all_meet(&scene);
    assert_eq!(scene.nodes[0].status()["network"]["mtu"], json!(1450));
}

/// What a monitoring system reads.
#[test]
fn metrics_of_the_network() {
    let scene = Scene::start("between: vxlan\nhealthAddress: 127.0.0.1:9180", &[A, B]);
    let node = &scene.nodes[0];
    let network = || {
        let metrics = node.host.sh("", "curl -s http://127.0.0.1:9180/metrics");
        ["peers", "peers_reached", "routes", "problems", "lacks"].map(|what| {
            let value = |line: &str| line.strip_prefix("netloom_network_")?.strip_prefix(what)?.strip_prefix(' ')?.parse::<u64>().ok();
            metrics.lines().find_map(value).unwrap_or_else(|| panic!("no {what}: {metrics}"))
        })
    };
    assert_eq!(network(), [1, 1, 2, 0, 0]);
    // One of its ranges is another node's.
    scene.register(&C, json!([B.ranges[0], C.ranges[1]]));
    node.until("the other node and what is wrong with it are counted", || matches!(network(), [2, _, _, problems, 0] if problems > 0));
}

#[test]
fn auto_is_direct_where_it_can_be() {
    let scene = Scene::start("", &[A, B, FAR]);
    all_meet(&scene);
    let routes = scene.nodes[0].host.sh("", "ip route show proto 110");
    assert!(
        routes.contains("10.1.2.0/24 via 192.0.2.12 dev eth0") && routes.contains("10.1.3.0/24 via 10.1.3.0 dev nl4-1000-12b5 onlink"),
        "{routes}"
    );
    // What comes to another node from a pod comes from there where it came directly, and from the node behind a tunnel.
    let (from, own) = pod(&scene.nodes[0], "pod-x");
    for (n, seen_as) in [(1, own[0].as_str()), (2, A.addresses[0])] {
        let node = &scene.nodes[n];
        node.host.answer_at("", "node", "0.0.0.0", PORT + 1);
        let address = [B, FAR][n - 1].addresses[0];
        assert_eq!(scene.nodes[0].host.told_over_tcp(&from.sandbox(), address, PORT + 1), format!("node {seen_as}"), "{address}");
    }
}

/// This machine's kernel may have no WireGuard: then its node says which module it lacks, and all else goes on.
#[test]
fn a_kernel_without_wireguard_says_so() {
    let scene = Scene::new("between: wireguard", &[A, B]);
    [A, B].iter().for_each(|place| scene.register(place, json!(place.ranges)));
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let has_it = a.host.run_ok("", &["ip", "link", "add", "probe0", "type", "wireguard"]);
    [a, b].iter().for_each(|node| node.launch());
    if has_it {
        a.until("the peer is reached", || reached(a) == Some(1));
        return;
    }
    let why = "this kernel has no WireGuard: load its module with `modprobe wireguard`, or choose another mode";
    a.until("it says why", || a.log().contains(why));
    a.until("the Node says so", || scene.condition(&A) == Some(("True".to_owned(), "NetloomIsDown".to_owned())));
    let told = a.status()["network"].clone();
    // That it announces no key follows from that, and is not told as well.
    assert_eq!(json!([told["lacks"], told["problems"], told["peersReached"]]), json!([[why], [], 0]), "{told}");
    assert!(a.host.list("/var/lib/netloom").iter().all(|name| !name.contains("wireguard")), "no key is made");
    // Its pods have the bridge and the way out.
    let (here, own) = pod(a, "here");
    assert_eq!((own[0].as_str(), a.host.addresses("", "netloom0").len()), ("10.1.1.2", 2));
    scene.router.answer_at("", "router", A.routers[0], PORT);
    assert_eq!(a.host.told_over_tcp(&here.sandbox(), A.routers[0], PORT), format!("router {}", A.addresses[0]));
    let said = a.host.command("", netloom_tests::netloom()).args(["agent", "rotate-keys"]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("this node has none"), "{said:?}");
}
