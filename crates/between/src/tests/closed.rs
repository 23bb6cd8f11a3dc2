//! Where a tunnel is missing, packets do not leave unencrypted.

use super::*;

fn closed(plan: &Plan) -> Vec<String> {
    plan.closed.iter().map(ToString::to_string).collect()
}

#[test]
fn packets_to_a_peer_without_a_tunnel_find_no_other_way() {
    let both = ["10.1.2.0/24", "fd00:1:2::/64"];
    assert_eq!(closed(&of_a(Mode::WireGuard, &[a(), b()])), both, "also behind a tunnel that stands: its device may be deleted");
    let mut keyless = b();
    keyless.keys.clear();
    let mut without_endpoint = b();
    without_endpoint.endpoints.clear();
    let mut of_another_mode = b();
    of_another_mode.mode = Some(Mode::Direct);
    for peer in [keyless, without_endpoint, of_another_mode] {
        let plan = of_a(Mode::WireGuard, &[a(), peer]);
        assert_eq!((plan.routes.len(), closed(&plan)), (0, both.map(str::to_owned).to_vec()));
    }
    for mode in [Mode::Direct, Mode::Vxlan, Mode::Auto(Tunnel::Vxlan)] {
        assert_eq!(closed(&of_a(mode, &[a(), b()])), [""; 0], "{mode}");
    }
}

#[test]
fn a_direct_pair_of_auto_wireguard_is_not_closed_and_a_distant_one_is() {
    let far = NodeSeen { keys: Vec::new(), ..node("c", &["10.1.3.0/24"], &["198.51.100.3"]) };
    assert_eq!(closed(&of_a(Mode::Auto(Tunnel::WireGuard), &[a(), b(), far])), ["10.1.3.0/24"]);
}

/// What is nobody's range, or a subnet of the node's, must stay reachable.
#[test]
fn a_range_that_a_node_does_not_keep_is_not_closed() {
    let claims = node("c", &["10.96.3.0/24", "192.0.2.128/25", "10.1.2.0/24"], &["192.0.2.3"]);
    assert_eq!(closed(&of_a(Mode::WireGuard, &[a(), b(), claims])), ["10.1.2.0/24", "fd00:1:2::/64"]);
}

#[test]
fn a_range_is_closed_before_its_route_comes_and_after_it_is_gone() {
    let (with, without) = (of_a(Mode::WireGuard, &[a(), b()]), of_a(Mode::WireGuard, &[a()]));
    let is_closed = |change: &Change| matches!(change, Change::Add(Entry::Closed(_)) | Change::Remove(Entry::Closed(_)));
    assert!(without.difference(&with).iter().take(2).all(is_closed));
    assert!(with.difference(&without).iter().rev().take(2).all(is_closed));
}

/// One Node's mistake fills no table: each part is a route of the kernel's.
#[test]
fn of_a_range_in_too_many_parts_the_largest_are_closed() {
    let elsewhere = |n: u32| {
        let [a, b, c] = [n % 251, n * 37 % 256, n * 91 % 256];
        node(&format!("n{n:03}"), &[], &[&format!("11.{a}.{b}.{c}")])
    };
    let claims = node("z", &["11.0.0.0/8"], &["198.51.100.3"]);
    let nodes: Vec<NodeSeen> = [a(), b(), claims].into_iter().chain((1..500).map(elsewhere)).collect();
    let plan = of_a(Mode::WireGuard, &nodes);
    let parts: Vec<IpNet> = plan.closed.iter().filter(|range| net("11.0.0.0/8").contains(*range)).copied().collect();
    assert_eq!(parts.len(), 4096);
    let addresses: u64 = parts.iter().map(|part| 1_u64 << (32 - part.prefix_len())).sum();
    assert!(addresses > (1 << 24) * 99 / 100, "{addresses}");
    let told: Vec<String> = problems(&plan).into_iter().filter(|problem| problem.contains("too many parts")).collect();
    assert_eq!(
        told,
        [
            "11.0.0.0/8 of node z, which overlaps with what others have, leaves too many parts that nobody has: the 4096 largest are closed to \
          unencrypted packets, and the others are not; correct the ranges of Node z"
        ]
    );
}

/// Its pods are there all the same.
#[test]
fn of_a_range_that_a_node_loses_the_rest_is_closed() {
    let claims = node("c", &["10.1.2.128/25", "10.1.1.0/23", "192.0.2.0/23"], &["198.51.100.3"]);
    let plan = of_a(Mode::Auto(Tunnel::WireGuard), &[a(), b(), claims]);
    // The own node's range is 10.1.1.0/24, b is reached directly, and 192.0.2.0/24 is a subnet of the own node.
    assert_eq!(closed(&plan), ["10.1.0.0/24", "192.0.3.0/24"]);
}

/// A node that has pods with addresses of a former range, in the midst of what another node has now.
#[test]
fn of_a_range_around_a_former_one_the_rest_stays_closed_and_routed() {
    let of_b = ["10.2.0.0/22", "10.3.0.0/24", "fd00:1:2::/64"];
    let mut plan = of_a(Mode::WireGuard, &[a(), NodeSeen { ranges: of_b.map(net).to_vec(), ..b() }]);
    let former = ["10.2.1.0/24", "10.3.0.0/16", "10.9.0.0/24"].map(net);
    assert_eq!(plan.shared_with(&former), ["10.2.0.0/22", "10.3.0.0/24"].map(net).into());
    plan.leave(&former);
    assert_eq!(closed(&plan), ["10.2.0.0/24", "10.2.2.0/23", "fd00:1:2::/64"]);
    assert_eq!(plan.routes.keys().copied().collect::<Vec<_>>(), ["10.2.0.0/22", "fd00:1:2::/64"].map(net));
    let before = plan.clone();
    plan.leave(&[net("10.9.0.0/24")]);
    assert_eq!(plan, before);
}
