//! One rule after the other, as one node or two see it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::*;

mod closed;
mod conflicts;
mod steps;

const VXLAN: Vxlan = Vxlan { vni: 4096, port: 8472 };
const OVER_V4: Device = Device::Vxlan { over: Family::V4, vni: 4096, port: 8472 };
const OVER_V6: Device = Device::Vxlan { over: Family::V6, vni: 4096, port: 8472 };
const WIREGUARD: Device = Device::WireGuard { port: 51820 };

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn settings(mode: Mode) -> Settings {
    Settings { mode, vxlan: VXLAN, wireguard_port: 51820, reserved: vec![net("10.96.0.0/12"), net("fd00:96::/112")], within: Vec::new() }
}

/// Created in the order of their names.
fn node(name: &str, ranges: &[&str], endpoints: &[&str]) -> NodeSeen {
    let mut key = [0; 32];
    name.bytes().zip(&mut key).for_each(|(from, to)| *to = from);
    NodeSeen {
        name: name.to_owned(),
        uid: format!("uid of {name}"),
        created: "2026-01-01T00:00:00Z".to_owned(),
        ranges: ranges.iter().map(|text| net(text)).collect(),
        endpoints: endpoints.iter().map(|text| ip(text)).collect(),
        keys: vec![PublicKey { key, port: None, rotation: 0 }],
        ..NodeSeen::default()
    }
}

fn link(index: u32, mtu: u32, addresses: &[&str]) -> Underlay {
    Underlay { index, name: format!("eth{index}"), mtu, addresses: addresses.iter().map(|text| net(text)).collect() }
}

/// The node `a`, on a link with these addresses.
fn own(addresses: &[&str]) -> OwnNode {
    OwnNode { name: "a".to_owned(), links: vec![link(2, 1500, addresses)], ..OwnNode::default() }
}

fn a() -> NodeSeen {
    node("a", &["10.1.1.0/24", "fd00:1:1::/64"], &["192.0.2.1", "2001:db8::1"])
}

fn b() -> NodeSeen {
    node("b", &["10.1.2.0/24", "fd00:1:2::/64"], &["192.0.2.2", "2001:db8::2"])
}

fn of_a(mode: Mode, nodes: &[NodeSeen]) -> Plan {
    plan(&settings(mode), &own(&["192.0.2.1/24", "2001:db8::1/64", "fe80::1/64"]), nodes).unwrap()
}

fn problems(plan: &Plan) -> Vec<String> {
    plan.problems.iter().map(ToString::to_string).collect()
}

fn route(plan: &Plan, range: &str) -> Option<Route> {
    plan.routes.get(&net(range)).copied()
}

#[test]
fn a_direct_route_leads_via_the_endpoint_of_the_ranges_family() {
    let plan = of_a(Mode::Direct, &[a(), b()]);
    let via = |text| Some(Route { via: Some(ip(text)), device: Device::Link(2), onlink: false });
    assert_eq!(route(&plan, "10.1.2.0/24"), via("192.0.2.2"));
    assert_eq!(route(&plan, "fd00:1:2::/64"), via("2001:db8::2"));
    assert_eq!((plan.routes.len(), plan.devices.len(), plan.mtu), (2, 0, Some(1500)));
    assert!(plan.problems.is_empty());
}

#[test]
fn vxlan_has_a_route_a_neighbour_and_a_forwarding_entry_for_each_peer() {
    let plan = of_a(Mode::Vxlan, &[a(), b()]);
    let mac = vtep_mac("uid of b");
    assert_eq!(route(&plan, "10.1.2.0/24"), Some(Route { via: Some(ip("10.1.2.0")), device: OVER_V4, onlink: true }));
    // Over IPv4, whatever is inside.
    let next_hop = ip("fe80::5c35:50ff:fe25:b4ad");
    assert_eq!(route(&plan, "fd00:1:2::/64"), Some(Route { via: Some(next_hop), device: OVER_V4, onlink: false }));
    assert_eq!(plan.neighbours.get(&(OVER_V4, next_hop)), Some(&mac));
    assert_eq!(plan.neighbours.get(&(OVER_V4, ip("10.1.2.0"))), Some(&mac));
    assert_eq!(plan.forwarding.into_iter().collect::<Vec<_>>(), [((OVER_V4, mac), ip("192.0.2.2"))]);
    let addresses = [ip("10.1.1.0"), ip("fd00:1:1::")].into();
    let wanted = Wanted::Vxlan { mac: vtep_mac("uid of a"), local: ip("192.0.2.1"), mtu: 1450, addresses };
    assert_eq!(plan.devices.into_iter().collect::<Vec<_>>(), [(OVER_V4, wanted)]);
    assert_eq!(plan.mtu, Some(1450));
}

/// Any address of a block may be a pod's, so none is taken for the node: it says which it has.
#[test]
fn a_node_with_blocks_sends_through_tunnels_from_addresses_of_its_own() {
    let blocks = node("a", &["10.20.0.64/26", "10.20.0.0/26", "10.20.9.5/32", "10.20.0.32/28"], &["192.0.2.1"]);
    let given: std::collections::BTreeSet<IpAddr> = [ip("10.20.0.7")].into();
    let own = OwnNode { addresses: Some(given.clone()), ..own(&["192.0.2.1/24"]) };
    let plan = plan(&settings(Mode::Vxlan), &own, &[blocks, b()]).unwrap();
    let Some(Wanted::Vxlan { addresses, .. }) = plan.devices.get(&OVER_V4) else { panic!("{:?}", plan.devices) };
    assert_eq!(*addresses, given);
    let ranges: Vec<String> = plan.ranges.iter().map(ToString::to_string).collect();
    assert_eq!(ranges, ["10.20.0.0/26", "10.20.0.64/26", "10.20.9.5/32"], "without the one that lies in another one");
}

#[test]
fn own_ranges_lead_to_the_pods_and_a_block_that_moves_is_replaced() {
    let block = "10.20.0.64/26";
    let mut before = of_a(Mode::Direct, &[node("a", &[block], &["192.0.2.1"]), node("b", &[], &["192.0.2.2"])]);
    before.lead_home(7, &[net(block)]);
    assert_eq!(route(&before, block), Some(Route { via: None, device: Device::Link(7), onlink: false }));
    let after = of_a(Mode::Direct, &[node("a", &[], &["192.0.2.1"]), node("b", &[block], &["192.0.2.2"])]);
    let moved = Route { via: Some(ip("192.0.2.2")), device: Device::Link(2), onlink: false };
    assert_eq!(before.difference(&after), [Change::Replace(Entry::Route(net(block), moved))]);
}

#[test]
fn wireguard_allows_a_peers_ranges_and_routes_them_to_the_device() {
    let plan = of_a(Mode::WireGuard, &[a(), b()]);
    assert_eq!(route(&plan, "10.1.2.0/24"), Some(Route { via: None, device: WIREGUARD, onlink: false }));
    let peer = &plan.peers[&(WIREGUARD, b().keys[0].key)];
    assert_eq!(*peer, Peer { endpoint: "192.0.2.2:51820".parse().unwrap(), allowed: b().ranges.into_iter().collect(), keepalive: 0 });
    let Wanted::WireGuard { key, mtu, .. } = &plan.devices[&WIREGUARD] else { panic!("{:?}", plan.devices) };
    assert_eq!((*key, *mtu, plan.mtu), (a().keys[0].key, 1440, Some(1440)));
}

#[test]
fn headers_are_as_long_as_the_protocols_say() {
    let all = [(Tunnel::Vxlan, 50, 70), (Tunnel::WireGuard, 60, 80)];
    all.into_iter().for_each(|(tunnel, v4, v6)| assert_eq!((header(tunnel, Family::V4), header(tunnel, Family::V6)), (v4, v6)));
    let six = |mode| {
        let mut b = b();
        b.endpoints.remove(0);
        let plan = of_a(mode, &[a(), b, node("c", &["10.1.3.0/24"], &["192.0.2.3"])]);
        (plan.mtu, plan.devices.keys().copied().collect::<Vec<_>>())
    };
    assert_eq!(six(Mode::Vxlan), (Some(1430), vec![OVER_V4, OVER_V6]));
    assert_eq!(six(Mode::WireGuard), (Some(1420), vec![WIREGUARD]));
}

#[test]
fn the_smallest_link_decides_the_mtu_and_a_tunnel_counts_before_there_is_a_peer() {
    let links = vec![link(2, 9000, &["192.0.2.1/24"]), link(3, 1400, &[])];
    let own = OwnNode { name: "a".into(), links, ..OwnNode::default() };
    let mtu = |mode, own: &OwnNode| plan(&settings(mode), own, &[a()]).unwrap().mtu;
    assert_eq!(mtu(Mode::Direct, &own), Some(1400));
    assert_eq!(mtu(Mode::Vxlan, &own), Some(1350));
    assert_eq!(mtu(Mode::WireGuard, &own), Some(1340));
    assert_eq!(mtu(Mode::Auto(Tunnel::Vxlan), &own), Some(1400));
    assert_eq!(mtu(Mode::Vxlan, &OwnNode { name: "a".into(), ..OwnNode::default() }), None);
}

#[test]
fn a_link_that_is_too_small_for_ipv6_is_named_and_carries_ipv4() {
    let of = |mtu| {
        let links = vec![link(2, mtu, &["192.0.2.1/24", "2001:db8::1/64"])];
        let own = OwnNode { name: "a".into(), links, ..OwnNode::default() };
        plan(&settings(Mode::Vxlan), &own, &[a(), b()]).unwrap()
    };
    let small = of(1329);
    let why = "pods of node a would have an MTU of 1279, and IPv6 needs 1280: raise the MTU of the node's links";
    assert_eq!((problems(&small), small.mtu), (vec![why.to_owned()], Some(1279)));
    assert!(small.unreached.contains("b") && route(&small, "10.1.2.0/24").is_some() && route(&small, "fd00:1:2::/64").is_none());
    assert!(small.ranges.iter().all(|range| range.addr().is_ipv4()) && small.ranges.len() == 1);
    let large = of(1330);
    assert!(large.problems.is_empty() && route(&large, "fd00:1:2::/64").is_some() && large.ranges.len() == 2);
}

#[test]
fn auto_is_direct_within_a_subnet_and_a_tunnel_elsewhere() {
    let far = node("c", &["10.1.3.0/24"], &["198.51.100.3"]);
    let plan = of_a(Mode::Auto(Tunnel::Vxlan), &[a(), b(), far.clone()]);
    assert_eq!(route(&plan, "10.1.2.0/24").unwrap().device, Device::Link(2));
    assert_eq!(route(&plan, "10.1.3.0/24").unwrap().device, OVER_V4);
    assert_eq!((plan.forwarding.len(), plan.mtu), (1, Some(1450)));
    let plan = of_a(Mode::Auto(Tunnel::WireGuard), &[a(), b(), far]);
    assert_eq!(route(&plan, "10.1.3.0/24").unwrap().device, WIREGUARD);
    assert_eq!((plan.peers.len(), plan.mtu), (1, Some(1440)));
}

#[test]
fn auto_takes_a_tunnel_for_a_range_whose_family_has_no_endpoint() {
    let mut b = b();
    b.endpoints.pop();
    let plan = of_a(Mode::Auto(Tunnel::Vxlan), &[a(), b]);
    assert_eq!(route(&plan, "10.1.2.0/24").unwrap().device, Device::Link(2));
    assert_eq!(route(&plan, "fd00:1:2::/64").unwrap().device, OVER_V4);
    assert!(plan.problems.is_empty());
}

/// The other side finds the own endpoint in none of its subnets, and takes the tunnel.
#[test]
fn auto_takes_no_second_link_that_the_peer_does_not_know_of() {
    let links = vec![link(2, 1500, &["192.0.2.1/24"]), link(3, 1500, &["198.51.100.1/24"])];
    let (own, far) = (OwnNode { name: "a".into(), links, ..OwnNode::default() }, node("c", &["10.1.3.0/24"], &["198.51.100.3"]));
    let device = |mode| route(&plan(&settings(mode), &own, &[a(), far.clone()]).unwrap(), "10.1.3.0/24").unwrap().device;
    assert_eq!(device(Mode::Auto(Tunnel::Vxlan)), OVER_V4);
    assert_eq!(device(Mode::Direct), Device::Link(3));
}

#[test]
fn the_longest_prefix_decides_the_link_and_link_local_addresses_count_for_none() {
    let links = vec![link(2, 1500, &["192.0.2.1/16", "fe80::1/64"]), link(3, 1500, &["192.0.2.200/24"])];
    let own = OwnNode { name: "a".into(), links, ..OwnNode::default() };
    let local = node("c", &["fd00:1:3::/64"], &["fe80::3"]);
    let plan = plan(&settings(Mode::Direct), &own, &[a(), b(), local]).unwrap();
    assert_eq!(route(&plan, "10.1.2.0/24").unwrap().device, Device::Link(3));
    assert_eq!(
        problems(&plan),
        [
            "node c has no usable InternalIP",
            "the InternalIP 2001:db8::2 of node b is in no subnet of node a, and the mode is direct: use auto"
        ]
    );
}

#[test]
fn direct_needs_an_endpoint_on_link_and_of_the_family() {
    let far = node("c", &["10.1.3.0/24", "fd00:1:3::/64"], &["198.51.100.3"]);
    let plan = of_a(Mode::Direct, &[a(), b(), far]);
    assert_eq!(plan.routes.len(), 2);
    assert_eq!(
        problems(&plan),
        [
            "node c has no usable InternalIP of IPv6, which a direct route to an IPv6 range needs",
            "the InternalIP 198.51.100.3 of node c is in no subnet of node a, and the mode is direct: use auto"
        ]
    );
}

#[test]
fn a_tunnel_needs_endpoints_of_one_family() {
    let six = node("c", &["10.1.3.0/24"], &["2001:db8:1::3"]);
    let mut a = a();
    a.endpoints.pop();
    let plan = of_a(Mode::Vxlan, &[a, b(), six]);
    assert_eq!((plan.routes.len(), problems(&plan)), (2, vec!["nodes c and a have no InternalIP of the same family".to_owned()]));
}

/// What its host sends to our pods comes over the tunnel.
#[test]
fn a_peer_without_ranges_meets_a_device() {
    let plan = of_a(Mode::Vxlan, &[a(), node("b", &[], &["192.0.2.2"])]);
    assert_eq!(plan.devices.keys().copied().collect::<Vec<_>>(), [OVER_V4]);
    assert!(plan.routes.is_empty() && plan.problems.is_empty());
}

/// A key of a rotation, on the port of that.
fn rotated(byte: u8, rotation: u64) -> PublicKey {
    PublicKey { key: [byte; 32], port: Some(if rotation % 2 == 1 { 1 } else { 2 }), rotation }
}

const ODD: Device = Device::WireGuard { port: 1 };
const EVEN: Device = Device::WireGuard { port: 2 };

#[test]
fn two_nodes_have_a_tunnel_for_each_rotation_that_both_have_a_key_of() {
    let used = |mine: &[PublicKey], theirs: &[PublicKey]| {
        let (mut a, mut b) = (a(), b());
        (a.keys, b.keys) = (mine.to_vec(), theirs.to_vec());
        let plan = of_a(Mode::WireGuard, &[a, b]);
        let peers: Vec<_> = plan.peers.iter().map(|((device, key), peer)| (*device, key[0], peer.endpoint.port())).collect();
        assert!(plan.peers.values().all(|peer| peer.allowed.len() == 2));
        (route(&plan, "10.1.2.0/24").unwrap().device, peers)
    };
    let [a1, a2, a3, b1, b2, b3] = [(11, 1), (12, 2), (13, 3), (21, 1), (22, 2), (23, 3)].map(|(byte, rotation)| rotated(byte, rotation));
    let first = (ODD, vec![(ODD, 21, 1)]);
    assert_eq!(used(&[a1], &[b1]), first);
    assert_eq!(used(&[a1, a2], &[b1]), first);
    assert_eq!(used(&[a1, a2], &[b1, b2]), (EVEN, vec![(ODD, 21, 1), (EVEN, 22, 2)]));
    assert_eq!(used(&[a1, a2], &[b2]), (EVEN, vec![(EVEN, 22, 2)]));
    // One rotation after the other: what both announce on a port need not be of one rotation.
    assert_eq!(used(&[a2, a3], &[b1, b2]), (EVEN, vec![(EVEN, 22, 2)]));
    assert_eq!(used(&[a2, a3], &[b2, b3]), (ODD, vec![(ODD, 23, 1), (EVEN, 22, 2)]));
    // Nothing in common: the newest of both.
    assert_eq!(used(&[a1], &[b2]), (ODD, vec![(ODD, 22, 2)]));
    assert_eq!(used(&[rotated(9, 0), a1, a2], &[rotated(8, 0), b1]), (ODD, vec![(ODD, 21, 1)]), "the last two count");
}

/// Both ends announce both keys; the routes wait for a handshake with the new ones.
#[test]
fn a_new_tunnel_is_used_when_it_is_proven() {
    let (mut a, mut b) = (a(), b());
    (a.keys, b.keys) = (vec![rotated(11, 1), rotated(12, 2)], vec![rotated(21, 1), rotated(22, 2)]);
    let used = |nodes: &[NodeSeen], unproven: &[(u16, u8)]| {
        let unproven = unproven.iter().map(|(port, key)| (*port, [*key; 32])).collect();
        let plan = plan(&settings(Mode::WireGuard), &OwnNode { unproven, ..own(&["192.0.2.1/24"]) }, nodes).unwrap();
        let Device::WireGuard { port } = route(&plan, "10.1.2.0/24").unwrap().device else { panic!("{:?}", plan.routes) };
        (port, plan.peers.len(), plan.peers.values().next().unwrap().keepalive)
    };
    let both = [a.clone(), b.clone()];
    assert_eq!(used(&both, &[(2, 22)]), (1, 2, 25), "by the old one, and the new one is tried");
    assert_eq!(used(&both, &[]), (2, 2, 25));
    assert_eq!(used(&both, &[(1, 21)]), (2, 2, 25));
    assert_eq!(used(&both, &[(1, 21), (2, 22)]), (1, 2, 25), "the peer knows the old one for sure");
    assert_eq!(used(&both, &[(2, 99)]), (2, 2, 25), "a handshake with another key says nothing");
    b.keys.remove(0);
    assert_eq!(used(&[a.clone(), b.clone()], &[(2, 22)]), (2, 1, 25), "there is no other one");
    a.keys.remove(0);
    assert_eq!(used(&[a, b], &[]), (2, 1, 0), "nothing is tried when it is over");
}

/// A port that another program has is found out before any other node knows the key.
#[test]
fn the_device_of_a_key_is_made_before_others_are_told_of_it() {
    let (mut a, mut b) = (a(), b());
    (a.keys, b.keys) = (vec![rotated(11, 1)], vec![rotated(21, 1)]);
    let devices = |a: &NodeSeen, b: &NodeSeen, spare| {
        let plan = plan(&settings(Mode::WireGuard), &OwnNode { spare, ..own(&["192.0.2.1/24"]) }, &[a.clone(), b.clone()]).unwrap();
        assert_eq!((plan.peers.len(), route(&plan, "10.1.2.0/24").unwrap().device), (1, ODD));
        plan.devices.keys().copied().collect::<Vec<_>>()
    };
    assert_eq!(devices(&a, &b, Some(rotated(12, 2))), [ODD, EVEN]);
    assert_eq!(devices(&a, &b, None), [ODD]);
    // Told, and nobody has a key of that rotation yet.
    a.keys.push(rotated(12, 2));
    assert_eq!(devices(&a, &b, None), [ODD, EVEN]);
}

/// It is in the tables of every peer: another one would be a cut for a cluster of two versions.
#[test]
fn the_vtep_address_stays_as_it_is() {
    assert_eq!(vtep_mac("6f7c1b1e-0000-4000-8000-000000000001").to_string(), "d6:eb:c3:20:98:00");
    for n in 0..2000 {
        let Mac([first, ..]) = vtep_mac(&n.to_string());
        assert_eq!(first & 3, 2);
    }
}

#[test]
fn a_mode_has_one_word() {
    for (word, mode) in [
        ("direct", Mode::Direct),
        ("vxlan", Mode::Vxlan),
        ("wireguard", Mode::WireGuard),
        ("auto", Mode::Auto(Tunnel::Vxlan)),
        ("auto-wireguard", Mode::Auto(Tunnel::WireGuard)),
    ] {
        assert_eq!((mode.to_string().as_str(), word.parse()), (word, Ok(mode)));
    }
    assert_eq!("Direct".parse::<Mode>(), Err(UnknownMode("Direct".to_owned())));
}

#[test]
fn a_pods_address_is_seen_inside_but_by_no_node_behind_a_tunnel() {
    let far = node("c", &["10.1.3.0/24"], &["198.51.100.3"]);
    let inside = |mode| of_a(mode, &[a(), b(), far.clone()]).inside.iter().map(ToString::to_string).collect::<Vec<_>>();
    let ranges = ["10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24"];
    assert_eq!(inside(Mode::Vxlan), [&ranges[..], &["fd00:1:1::/64", "fd00:1:2::/64"]].concat());
    let near = [&ranges[..], &["192.0.2.2/32", "2001:db8::2/128", "fd00:1:1::/64", "fd00:1:2::/64"]].concat();
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    let mut expected: Vec<String> = near.into_iter().map(str::to_owned).collect();
    expected.sort();
    assert_eq!(sorted(inside(Mode::Auto(Tunnel::Vxlan))), expected, "the node behind the tunnel is not among them");
    assert_eq!(sorted(inside(Mode::Direct)), expected, "nor one that is not reached");
    let unreached = |mode| of_a(mode, &[a(), b(), far.clone()]).unreached.into_iter().collect::<Vec<_>>();
    assert_eq!((unreached(Mode::Direct), unreached(Mode::Auto(Tunnel::Vxlan))), (vec!["c".to_owned()], vec![]));
}

#[test]
fn the_own_pods_have_what_nobody_older_has() {
    let older = NodeSeen { created: "2025-01-01T00:00:00Z".to_owned(), ..node("b", &["10.1.1.0/24"], &["192.0.2.2"]) };
    let plan = of_a(Mode::Direct, &[a(), older]);
    assert_eq!(plan.ranges, [net("fd00:1:1::/64")].into());
    assert_eq!(of_a(Mode::Direct, &[a(), b()]).ranges, [net("10.1.1.0/24"), net("fd00:1:1::/64")].into());
}
