//! What is not encrypted neither leaves nor arrives.

use std::net::UdpSocket;
use std::time::Duration;

use super::*;

/// Endpoints of IPv6 alone; pods have both families.
const A6: Place = Place { addresses: ["", "2001:db8:1::11"], ..A };
const FAR6: Place = Place { addresses: ["", "2001:db8:2::13"], ..FAR };

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn an_ipv6_underlay_carries_pods_of_both_families_and_nothing_else_is_on_the_wire() {
    let scene = Scene::start("between: wireguard", &[A6, FAR6]);
    count(&scene, &A6);
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    all_meet(&pods);
    assert!(counted(&scene, "tunnel") > 10);
    assert_eq!(counted(&scene, "other"), 0, "{}", scene.router.sh("", "nft list ruleset"));
    assert_eq!(scene.nodes[0].status()["network"]["mtu"], json!(1420));
}

/// A node whose key nobody knows: its pods are unreachable, and no packet for them leaves plainly.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn without_a_key_a_node_is_unreachable_and_no_plain_packet_leaves() {
    let scene = Scene::start("between: wireguard", &[A, B]);
    let a = &scene.nodes[0];
    let (from, _) = pod(a, "pod-a");
    scene.register(&FAR, json!(FAR.ranges));
    let told = || a.status()["network"]["problems"].to_string();
    a.until("the node without a key is told", || told().contains("node far announces no WireGuard key"));
    count(&scene, &A);
    for address in ["10.1.3.7", "fd00:1:3::7"] {
        let asked = a.host.try_run(&from.sandbox(), &["ping", "-c1", "-w3", "-n", address]);
        let said = String::from_utf8_lossy(&asked.stdout).to_lowercase();
        assert!(!asked.status.success() && said.contains("unreachable"), "{address}: {said}");
        // Nor does the node itself send any.
        assert!(!a.host.try_run("", &["ping", "-c1", "-w3", "-n", address]).status.success());
    }
    assert_eq!(counted(&scene, "other"), 0, "{}", scene.router.sh("", "nft list ruleset"));
    // The device is gone for a moment: its peers are unreachable as well.
    a.kill9();
    a.host.sh("", "ip link del nlw-ca6c");
    let asked = a.host.try_run(&from.sandbox(), &["ping", "-c1", "-w3", "-n", "10.1.2.7"]);
    assert!(!asked.status.success());
    assert_eq!(counted(&scene, "other"), 0, "{}", scene.router.sh("", "nft list ruleset"));
}

/// Another node's machine, or whoever is on the wire, sends to a pod with the source of a pod: plainly, past the tunnel.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_plain_packet_with_a_pods_source_reaches_no_pod() {
    let scene = Scene::start("between: wireguard", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    all_meet(&pods);
    let (_, own) = &pods[0].1;
    // The first address of a node's range is that of its device.
    for (to, source, via) in [(&own[0], "10.1.2.0", "192.0.2.11"), (&own[1], "fd00:1:2::", "2001:db8:1::11")] {
        let heard = || {
            let socket = b.host.within("", || UdpSocket::bind((source, 0)).unwrap());
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            (0..3).any(|_| {
                socket.send_to(b"1", (to.as_str(), PORT)).unwrap();
                socket.recv(&mut [0; 64]).is_ok()
            })
        };
        assert!(heard(), "through the tunnel {source} is answered");
        b.host.sh("", &format!("ip route add {to} via {via} dev eth0"));
        let before = dropped(a);
        assert!(!heard(), "a plain packet from {source} reached the pod");
        assert!(dropped(a) > before, "{}", a.host.sh("", "nft list chain inet netloom tunnelled"));
        // Flushed by another program, it is put back.
        a.host.sh("", "nft flush chain inet netloom tunnelled");
        a.until("the rules are back", || a.host.sh("", "nft list chain inet netloom tunnelled").matches("drop").count() == 2);
        assert!(!heard());
    }
}

/// How many plain packets a node has refused.
fn dropped(node: &Node) -> u64 {
    let listed = node.host.sh("", "nft list chain inet netloom tunnelled");
    let counts = listed.split("counter packets ").skip(1).filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    counts.sum()
}
