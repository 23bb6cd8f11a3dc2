//! Packets between pods of several nodes, and to what is elsewhere.

use netloom_tests::{Node, Pod};
use serde_json::json;

use super::scene::{A, B, FAR, Scene};

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
fn all_meet(scene: &Scene) {
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

#[test]
fn vxlan_between_links() {
    let scene = Scene::start("between: vxlan", &[A, B, FAR]);
    all_meet(&scene);
    assert_eq!(scene.nodes[0].status()["network"]["mtu"], json!(1450));
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
