//! Ranges that are reached encrypted or not at all. Keys are missing here, so there is no tunnel; `tests/guest` has those.

use between::{Family, Mode};
use netloom_fabric::Fabric;

use crate::cluster::{Cluster, pod_address};
use crate::oracle;

/// Two nodes of which the first one has its default routes to the second one: plain packets would arrive.
fn cluster() -> Cluster {
    let cluster = Cluster::new(2, Mode::Direct, &[Family::V4, Family::V6]);
    cluster.nodes[0].space.sh("ip route add default via 192.0.2.2");
    cluster.nodes[0].space.sh("ip -6 route add default via 2001:db8::2");
    cluster
}

/// How a packet to the second node's pods leaves the first one.
fn ways(cluster: &Cluster) -> Vec<String> {
    let way = |family| cluster.nodes[0].space.try_sh(&format!("ip route get {}", pod_address(family, 2)));
    let text = |output: std::process::Output| String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    [Family::V4, Family::V6].map(|family| text(way(family))).to_vec()
}

#[test]
fn without_a_tunnel_packets_do_not_follow_the_default_route() {
    let mut cluster = cluster();
    cluster.reaches();
    cluster.settings.mode = Mode::WireGuard;
    cluster.apply(0);
    assert!(cluster.plan(0).routes.is_empty() && cluster.plan(0).closed.len() == 2);
    let node = &cluster.nodes[0];
    for family in [Family::V4, Family::V6] {
        let asked = node.pod.try_sh(&format!("ping -c1 -w5 -n {}", pod_address(family, 2)));
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        assert!(!asked.status.success() && said.to_lowercase().contains("unreachable"), "{said}");
    }
    assert!(ways(&cluster).iter().all(|way| !way.contains("dev eth0")), "{:?}", ways(&cluster));
    // Back to plain packets, and nothing is left.
    cluster.settings.mode = Mode::Direct;
    cluster.apply(0);
    cluster.reaches();
}

#[test]
fn what_keeps_packets_in_is_put_back_and_found_by_a_new_process() {
    let mut cluster = cluster();
    cluster.settings.mode = Mode::WireGuard;
    cluster.apply(0);
    cluster.nodes[0].noticed();
    for line in [
        "ip route del unreachable 10.1.2.0/24 proto 110",
        "ip -6 route del unreachable fd00:1:2::/64 dev lo proto 110",
        // One too many.
        "ip route add unreachable 10.1.9.0/24 proto 110 metric 1",
    ] {
        cluster.nodes[0].space.sh(line);
        assert!(cluster.nodes[0].noticed(), "{line}: not noticed");
        assert!(cluster.apply(0) > 0, "{line}");
        cluster.nodes[0].noticed();
    }
    cluster.nodes[0].fabric = Fabric::default();
    assert_eq!(cluster.apply(0), 0);
    cluster.nodes.pop();
    cluster.apply(0);
}

/// It would lead packets out unencrypted.
#[test]
fn another_programs_route_to_a_closed_range_is_reported() {
    let mut cluster = cluster();
    cluster.settings.mode = Mode::WireGuard;
    cluster.nodes[0].space.sh("ip route replace 10.1.2.0/24 via 192.0.2.2 dev eth0 proto 99");
    let said: Vec<String> = cluster.try_apply(0).errors.iter().map(ToString::to_string).collect();
    assert!(matches!(said.as_slice(), [one] if one.contains("there is another one, via 192.0.2.2 dev eth0 proto 99")), "{said:?}");
    cluster.nodes[0].space.sh("ip route del 10.1.2.0/24 proto 99");
    cluster.apply(0);
    oracle::agrees(&cluster.nodes[0].space, &cluster.plan(0));
}
