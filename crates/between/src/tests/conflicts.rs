//! What two nodes claim, what nobody may have, and what is missing.

use std::collections::BTreeSet;

use super::*;

#[test]
fn of_two_ranges_that_overlap_the_older_nodes_stays() {
    let mut older = node("z", &["10.1.2.128/25"], &["192.0.2.26"]);
    older.created = "2025-01-01T00:00:00Z".into();
    // What b has lost is in nobody's way.
    let third = node("c", &["10.1.2.0/25"], &["192.0.2.3"]);
    for nodes in [[a(), b(), third.clone(), older.clone()], [older, third, b(), a()]] {
        let plan = of_a(Mode::Vxlan, &nodes);
        let ranges: Vec<String> = plan.routes.keys().map(ToString::to_string).collect();
        assert_eq!(ranges, ["10.1.2.0/25", "10.1.2.128/25", "fd00:1:2::/64"]);
        let told = "10.1.2.0/24 of node b overlaps with 10.1.2.128/25 of node z, which is older and keeps it";
        assert_eq!(problems(&plan), [told]);
    }
}

#[test]
fn of_nodes_of_one_age_the_name_decides() {
    let plan = of_a(Mode::Vxlan, &[node("c", &["10.1.2.0/24"], &["192.0.2.3"]), b(), a()]);
    assert_eq!(plan.neighbours[&(OVER_V4, ip("10.1.2.0"))], vtep_mac("uid of b"));
    assert_eq!(problems(&plan), ["10.1.2.0/24 of node c overlaps with 10.1.2.0/24 of node b, which is older and keeps it"]);
}

#[test]
fn the_own_nodes_ranges_are_checked_as_all_others() {
    let mut b = b();
    b.ranges = a().ranges;
    b.created = "2025-01-01T00:00:00Z".into();
    let plan = of_a(Mode::Vxlan, &[a(), b.clone()]);
    assert_eq!(plan.routes.keys().copied().collect::<Vec<_>>(), b.ranges);
    assert_eq!(plan.problems.len(), 2);
    let Wanted::Vxlan { addresses, .. } = &plan.devices[&OVER_V4] else { panic!("{:?}", plan.devices) };
    assert!(addresses.is_empty());
}

#[test]
fn a_range_inside_another_one_of_the_same_node_is_part_of_it() {
    let mut b = b();
    b.ranges = vec![net("10.1.2.64/26"), net("10.1.2.7/24"), net("10.1.2.0/24")];
    let plan = of_a(Mode::Vxlan, &[a(), b]);
    assert_eq!(plan.routes.keys().copied().collect::<Vec<_>>(), [net("10.1.2.0/24")]);
    assert!(plan.problems.is_empty());
}

#[test]
fn ranges_of_services_subnets_and_endpoints_are_nobodys() {
    let plan = of_a(
        Mode::Vxlan,
        &[
            a(),
            node("b", &["10.97.0.0/24", "::/0"], &["192.0.2.2"]),
            node("c", &["192.0.2.128/25", "2001:db8::/48"], &["192.0.2.3"]),
            node("d", &["198.51.100.0/24"], &["198.51.100.4"]),
            node("e", &["0.0.0.0/0", "fe80::/64"], &["192.0.2.5"]),
        ],
    );
    assert!(plan.routes.is_empty(), "{:?}", plan.routes);
    assert_eq!(
        problems(&plan).into_iter().collect::<BTreeSet<_>>(),
        [
            "0.0.0.0/0 of node e overlaps with 10.96.0.0/12, which is reserved",
            "10.97.0.0/24 of node b overlaps with 10.96.0.0/12, which is reserved",
            "192.0.2.128/25 of node c overlaps with 192.0.2.0/24, the subnet of eth2 on node a",
            "198.51.100.0/24 of node d contains 198.51.100.4, the InternalIP of node d",
            "2001:db8::/48 of node c contains 2001:db8::1, the InternalIP of node a",
            "::/0 of node b overlaps with fd00:96::/112, which is reserved",
            "fe80::/64 of node e overlaps with fe80::/10, which is reserved",
        ]
        .map(str::to_owned)
        .into()
    );
}

/// Who makes its own Node may give it any range, and would get the packets for whatever is there.
#[test]
fn a_range_outside_of_the_clusters_is_nobodys() {
    let settings = Settings { within: vec![net("10.1.0.0/16"), net("fd00:1::/32")], ..settings(Mode::WireGuard) };
    let nodes = [a(), b(), node("c", &["198.18.0.0/24", "10.0.0.0/15", "10.1.3.0/24"], &["192.0.2.3"])];
    let plan = plan(&settings, &own(&["192.0.2.1/24"]), &nodes).unwrap();
    let ranges: Vec<String> = plan.closed.iter().map(ToString::to_string).collect();
    assert_eq!(ranges, ["10.1.2.0/24", "fd00:1:2::/64"], "what is elsewhere stays reachable");
    assert_eq!(
        problems(&plan),
        ["10.0.0.0/15", "198.18.0.0/24"]
            .map(|range| format!("{range} of node c is in none of the cluster's ranges: see the setting clusterCIDRs"))
    );
}

#[test]
fn a_range_around_a_subnet_of_the_own_node_is_not_routed_here() {
    let own = own(&["192.0.2.1/24", "10.1.2.65/26", "10.1.3.1/16"]);
    let plan = |links: usize| {
        let mut own = own.clone();
        own.links[0].addresses.truncate(links);
        plan(&settings(Mode::Vxlan), &own, &[node("a", &[], &["192.0.2.1"]), b(), node("c", &["10.1.3.0/24"], &["192.0.2.3"])]).unwrap()
    };
    assert_eq!([1, 2, 3].map(|links| plan(links).routes.len()), [3, 2, 1]);
    assert!(problems(&plan(2)).contains(&"10.1.2.0/24 of node b overlaps with 10.1.2.64/26, the subnet of eth2 on node a".to_owned()));
}

#[test]
fn of_two_nodes_with_one_endpoint_the_older_one_is_reached() {
    let plan = of_a(Mode::Vxlan, &[a(), b(), node("c", &["10.1.3.0/24"], &["192.0.2.2"])]);
    assert_eq!((plan.routes.len(), plan.forwarding.len()), (2, 1));
    assert_eq!(problems(&plan), ["nodes c and b have the same InternalIP 192.0.2.2: node b is older and keeps it"]);
    // By its other endpoint it is reached.
    let plan = of_a(Mode::Vxlan, &[a(), b(), node("c", &["10.1.3.0/24"], &["192.0.2.2", "2001:db8::3"])]);
    assert_eq!(route(&plan, "10.1.3.0/24").unwrap().device, OVER_V6);
}

/// Whoever may write its own Node's addresses would else take any node's pods away, over WireGuard with plain packets to them.
#[test]
fn an_endpoint_in_an_older_nodes_range_takes_nothing_from_it() {
    let younger = node("c", &["10.1.3.0/24"], &["10.1.2.9", "2001:db8::3"]);
    for mode in [Mode::Vxlan, Mode::WireGuard] {
        let plan = of_a(mode, &[a(), b(), younger.clone()]);
        assert!(route(&plan, "10.1.2.0/24").is_some() && plan.unreached.is_empty(), "{mode}: {:?}", plan.routes);
        assert_eq!(problems(&plan), ["the InternalIP 10.1.2.9 of node c lies in 10.1.2.0/24 of node b, which is older and keeps it"]);
        let alone = of_a(mode, &[a(), b(), NodeSeen { endpoints: vec![ip("10.1.2.9")], ..younger.clone() }]);
        assert_eq!((route(&alone, "10.1.3.0/24"), &alone.unreached), (None, &["c".to_owned()].into()), "{mode}: not by another address");
    }
    // An older node's endpoint is no pod's address, and what is left of the range is closed.
    let older = NodeSeen { created: "2025-01-01T00:00:00Z".into(), ..node("c", &[], &["10.1.2.9"]) };
    let plan = of_a(Mode::WireGuard, &[a(), NodeSeen { ranges: vec![net("10.1.2.8/30")], ..b() }, older]);
    assert_eq!(problems(&plan), ["10.1.2.8/30 of node b contains 10.1.2.9, the InternalIP of node c"]);
    assert_eq!(plan.closed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.1.2.8/32", "10.1.2.10/31"]);
}

#[test]
fn packets_for_another_nodes_endpoint_do_not_stay_here() {
    let mut a = a();
    a.endpoints.remove(0);
    for mode in [Mode::Direct, Mode::Vxlan] {
        let c = node("c", &["fd00:1:3::/64"], &["192.0.2.3", "2001:db8::1:3"]);
        let own = own(&["192.0.2.1/24", "2001:db8::1:3/64"]);
        let plan = plan(&settings(mode), &own, &[a.clone(), c]).unwrap();
        assert!(plan.routes.is_empty(), "{mode}");
        assert_eq!(problems(&plan), ["the InternalIP 2001:db8::1:3 of node c is an address of node a"], "{mode}");
    }
}

#[test]
fn a_node_without_ranges_is_nothing_and_one_without_endpoint_a_problem() {
    let nodes = [node("a", &[], &["192.0.2.1"]), node("b", &[], &[]), node("c", &["10.1.3.0/24"], &["127.0.0.1"])];
    let plan = of_a(Mode::Vxlan, &nodes);
    assert_eq!((plan.routes.len(), plan.devices.len()), (0, 0));
    assert_eq!(problems(&plan), ["node c has no usable InternalIP"]);
}

#[test]
fn nodes_of_another_mode_are_not_reached() {
    let (mut a, mut b) = (a(), b());
    (a.mode, b.mode) = (Some(Mode::Vxlan), Some(Mode::Auto(Tunnel::Vxlan)));
    let c = node("c", &["10.1.3.0/24"], &["192.0.2.3"]);
    let plan = of_a(Mode::Vxlan, &[a.clone(), b.clone(), c.clone()]);
    assert_eq!(plan.routes.len(), 1);
    assert_eq!(problems(&plan), ["node b announces the mode auto, and node a has vxlan"]);
    a.mode = Some(Mode::Direct);
    let plan = of_a(Mode::Vxlan, &[a, c]);
    assert_eq!((plan.routes.len(), problems(&plan).len()), (1, 1));
}

#[test]
fn a_wireguard_peer_needs_a_key_of_its_own() {
    let (mut b, mut c) = (b(), node("c", &["10.1.3.0/24"], &["192.0.2.3"]));
    c.keys = b.keys.clone();
    let plan = of_a(Mode::WireGuard, &[a(), b.clone(), c]);
    assert_eq!((plan.routes.len(), plan.peers.len()), (2, 1));
    let said = problems(&plan);
    assert!(matches!(said.as_slice(), [one] if one.starts_with("nodes c and b announce the same WireGuard key, which node b had first")));
    b.keys.clear();
    let plan = of_a(Mode::WireGuard, &[a(), b.clone()]);
    assert_eq!((plan.routes.len(), problems(&plan)), (0, vec!["node b announces no WireGuard key".to_owned()]));
    // Who is next to us needs none.
    assert!(of_a(Mode::Auto(Tunnel::WireGuard), &[a(), b]).problems.is_empty());
}

#[test]
fn of_two_nodes_with_one_vtep_address_the_older_one_is_reached() {
    let mut c = node("c", &["10.1.3.0/24"], &["192.0.2.3"]);
    c.uid = b().uid;
    let plan = of_a(Mode::Vxlan, &[a(), b(), c.clone()]);
    assert_eq!((plan.routes.len(), plan.forwarding.len()), (2, 1));
    let mac = vtep_mac(&c.uid);
    assert_eq!(problems(&plan), [format!("nodes c and b have the same VTEP address {mac}: node b is older and keeps it")]);
}

#[test]
fn ipv6_ranges_need_an_mtu_of_1280() {
    let own = |mtu| OwnNode { name: "a".into(), links: vec![link(2, mtu, &["192.0.2.1/24"])], ..OwnNode::default() };
    let plan = |mtu| plan(&settings(Mode::Vxlan), &own(mtu), &[a(), b()]).unwrap();
    assert_eq!((plan(1330).routes.len(), plan(1330).problems.len()), (2, 0));
    let small = plan(1329);
    assert_eq!(small.routes.keys().copied().collect::<Vec<_>>(), [net("10.1.2.0/24")]);
    assert_eq!(problems(&small), ["pods of node a would have an MTU of 1279, and IPv6 needs 1280: raise the MTU of the node's links"]);
}

#[test]
fn without_the_own_node_nothing_is_planned() {
    let missing = plan(&settings(Mode::Vxlan), &own(&[]), &[b()]);
    assert_eq!(missing, Err(OwnNodeMissing("a".into())));
    assert!(missing.unwrap_err().to_string().contains("node a is not among"));
}

/// Whom a plan of `a` gives the key of `b` to, as the ranges that it allows.
fn holder(nodes: &[NodeSeen], known: &[&str]) -> Vec<String> {
    let key = b().keys[0].key;
    let known = [(key, known.iter().map(|range| net(range)).collect())].into();
    let plan = plan(&settings(Mode::WireGuard), &OwnNode { known, ..own(&["192.0.2.1/24"]) }, nodes).unwrap();
    plan.peers.get(&(WIREGUARD, key)).into_iter().flat_map(|peer| &peer.allowed).map(ToString::to_string).collect()
}

#[test]
fn an_older_node_that_copies_a_key_does_not_take_it_from_the_one_that_is_known() {
    let thief = NodeSeen { created: "2020-01-01T00:00:00Z".into(), keys: b().keys, ..node("thief", &["10.1.66.0/24"], &["192.0.2.66"]) };
    let nodes = [a(), b(), thief.clone()];
    let of_b = ["10.1.2.0/24", "fd00:1:2::/64"];
    assert_eq!(holder(&nodes, &["10.1.2.0/24"]), of_b);
    assert_eq!(holder(&nodes, &of_b), of_b);
    // Nobody is known: the older one has it.
    assert_eq!(holder(&nodes, &[]), ["10.1.66.0/24"]);
    // Who was known announces another key by now.
    let mut rotated = b();
    rotated.keys[0].key = [9; 32];
    assert_eq!(holder(&[a(), rotated, thief], &["10.1.2.0/24"]), ["10.1.66.0/24"]);
}

#[test]
fn the_own_key_stays_the_own_one_whoever_else_announces_it() {
    let thief = NodeSeen { created: "2020-01-01T00:00:00Z".into(), keys: a().keys, ..node("thief", &["10.1.66.0/24"], &["192.0.2.66"]) };
    // Whatever is said of the past.
    let known = [(a().keys[0].key, [net("10.1.66.0/24")].into())].into();
    for own in [own(&["192.0.2.1/24"]), OwnNode { known, ..own(&["192.0.2.1/24"]) }] {
        let plan = plan(&settings(Mode::WireGuard), &own, &[a(), b(), thief.clone()]).unwrap();
        let Wanted::WireGuard { key, .. } = &plan.devices[&WIREGUARD] else { panic!("{:?}", plan.devices) };
        assert_eq!((*key, plan.routes.len()), (a().keys[0].key, 2), "the way to b stays");
        assert_eq!(plan.unreached, ["thief".to_owned()].into());
        let said = problems(&plan);
        assert!(matches!(said.as_slice(), [one] if one.starts_with("nodes thief and a announce the same WireGuard key")), "{said:?}");
    }
}

/// No packet goes to it, so whatever has its address sends none that is taken.
#[test]
fn a_node_of_another_mode_sends_nothing_to_the_tunnel() {
    let all = ["192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2"].map(ip);
    let endpoints = |of_own: Option<Mode>, peer: Option<Mode>| {
        let nodes = [NodeSeen { mode: of_own, ..a() }, NodeSeen { mode: peer, ..b() }];
        let plan = of_a(Mode::Vxlan, &nodes);
        let mut planner = Planner::new();
        nodes.into_iter().for_each(|node| planner.set(node));
        let own = own(&["192.0.2.1/24", "2001:db8::1/64", "fe80::1/64"]);
        planner.plan(&settings(Mode::Vxlan), &own).unwrap();
        planner.set(NodeSeen { mode: None, ..b() });
        planner.plan(&settings(Mode::Vxlan), &own).unwrap();
        planner.set(NodeSeen { mode: peer, ..b() });
        assert_eq!(planner.plan(&settings(Mode::Vxlan), &own).unwrap().endpoints, plan.endpoints);
        plan.endpoints
    };
    for believed in [None, Some(Mode::Vxlan)] {
        assert_eq!(endpoints(believed, believed), all.into(), "{believed:?}");
    }
    assert_eq!(endpoints(None, Some(Mode::Direct)), all[..2].iter().copied().collect());
    assert_eq!(endpoints(Some(Mode::Direct), None), all.into(), "the own node has the mode that it has");
}
