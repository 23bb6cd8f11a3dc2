//! A cluster of 5,000 nodes: a plan is made for every change of a Node, so it may compare no node with every other one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use netloom_between::{Mode, NodeSeen, OwnNode, Plan, Planner, PublicKey, Settings, Tunnel, Underlay, Vxlan, plan};

const NODES: u32 = 5_000;

fn node(n: u32) -> NodeSeen {
    let mut key = [1; 32];
    key[..4].copy_from_slice(&n.to_be_bytes());
    NodeSeen {
        name: format!("node-{n:05}"),
        uid: format!("6f7c1b1e-0000-4000-8000-{n:012}"),
        created: "2026-01-01T00:00:00Z".into(),
        ranges: vec![
            format!("{}/24", Ipv4Addr::from(0x0a00_0000 + (n << 8))).parse().unwrap(),
            format!("fd00:0:0:{n:x}::/64").parse().unwrap(),
        ],
        // 250 of them in each subnet.
        endpoints: vec![IpAddr::V4(Ipv4Addr::from(0xac10_0000 + ((n / 250) << 8) + n % 250 + 1))],
        keys: vec![PublicKey { key, port: None, rotation: 0 }],
        ..NodeSeen::default()
    }
}

#[test]
fn five_thousand_nodes_are_planned_for() {
    let own = Underlay { index: 2, name: "eth0".into(), mtu: 1500, addresses: vec!["172.16.0.1/24".parse().unwrap()] };
    let own = OwnNode { name: "node-00000".into(), links: vec![own], ..OwnNode::default() };
    let mut nodes: Vec<NodeSeen> = (0..NODES).map(node).collect();
    // A node that was made again under another name, and one that claims what 1,000 others have.
    nodes[4_000].endpoints = nodes[10].endpoints.clone();
    nodes[4_001].ranges = vec!["10.8.0.0/14".parse().unwrap()];
    for (mode, routes, direct) in [
        (Mode::Vxlan, 9_994, 0),
        (Mode::WireGuard, 9_994, 0),
        (Mode::Auto(Tunnel::Vxlan), 9_994, 249),
        (Mode::Auto(Tunnel::WireGuard), 9_994, 249),
    ] {
        let settings =
            Settings { mode, vxlan: Vxlan { vni: 1, port: 8472 }, wireguard_port: 51820, reserved: Vec::new(), within: Vec::new() };
        let begun = Instant::now();
        let all = plan(&settings, &own, &nodes).unwrap();
        println!("{mode}: {:?}", begun.elapsed());
        // Without itself, and those two nodes.
        assert_eq!((all.routes.len(), all.problems.len()), (routes, 2), "{mode}");
        assert_eq!(all.routes.values().filter(|route| route.device == netloom_between::Device::Link(2)).count(), direct, "{mode}");
        let begun = Instant::now();
        let changes = Plan::default().difference(&all).len();
        println!("{mode}: {changes} changes in {:?}", begun.elapsed());
        let mut fewer = nodes.clone();
        fewer.pop();
        let gone = all.difference(&plan(&settings, &own, &fewer).unwrap());
        assert!((3..=6).contains(&gone.len()), "{mode}: {gone:?}");
    }
}

/// A change of one Node among many costs what it changes, whichever Node it is: it is planned for without the others, and so it is right.
#[test]
fn a_change_among_thousands_is_planned_for_alone() {
    let own = Underlay { index: 2, name: "eth0".into(), mtu: 1500, addresses: vec!["172.16.0.1/24".parse().unwrap()] };
    let own = OwnNode { name: "node-00000".into(), links: vec![own], ..OwnNode::default() };
    for mode in [Mode::Vxlan, Mode::Auto(Tunnel::Vxlan), Mode::Direct] {
        let settings =
            Settings { mode, vxlan: Vxlan { vni: 1, port: 8472 }, wireguard_port: 51820, reserved: Vec::new(), within: Vec::new() };
        let mut planner = Planner::new();
        // As an agent has them: the last one is in use while the next one is made.
        let mut in_use = Vec::new();
        let mut nodes: BTreeMap<String, NodeSeen> = (0..600).map(|n| (node(n).name, node(n))).collect();
        nodes.values().for_each(|seen| planner.set(seen.clone()));
        planner.plan(&settings, &own).unwrap();
        // By a generator of numbers (Knuth, MMIX): which node, and what becomes of it.
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..400 {
            let which = u32::try_from(next(700)).unwrap();
            let mut seen = node(which);
            match next(6) {
                0 if which > 0 => {
                    nodes.remove(&seen.name);
                    planner.remove(&seen.name);
                    continue;
                }
                1 => seen.ranges.truncate(1),
                2 => seen.ranges = vec![format!("{}/24", Ipv4Addr::from(0x0b00_0000 + (which << 8))).parse().unwrap()],
                3 => seen.endpoints = vec![IpAddr::V4(Ipv4Addr::from(0xac11_0000 + which))],
                4 => seen.uid = format!("{step}-{which}"),
                _ => {}
            }
            planner.set(seen.clone());
            nodes.insert(seen.name.clone(), seen);
            // Several changes at once are one, now and then.
            if next(4) > 0 {
                let all: Vec<NodeSeen> = nodes.values().cloned().collect();
                let planned = planner.plan(&settings, &own).unwrap();
                assert_eq!(*planned, plan(&settings, &own, &all).unwrap(), "{mode}, step {step}: node {which}");
                in_use = vec![planned];
            }
        }
        // Only those of the own node are planned for as a whole.
        assert!(planner.changes() > 200 && planner.copies() < 20, "{mode}: {} {}", planner.changes(), planner.copies());
        drop(in_use);
    }
}

/// The plan that is in use stays as it is, and the next one is no copy of it.
#[test]
fn a_change_copies_no_table_however_many_nodes_there_are() {
    let own = Underlay { index: 2, name: "eth0".into(), mtu: 1500, addresses: vec!["172.16.0.1/24".parse().unwrap()] };
    let own = OwnNode { name: "node-00000".into(), links: vec![own], ..OwnNode::default() };
    let vxlan = Vxlan { vni: 1, port: 8472 };
    let settings = Settings { mode: Mode::Vxlan, vxlan, wireguard_port: 51820, reserved: Vec::new(), within: Vec::new() };
    for nodes in [100, NODES] {
        let mut planner = Planner::new();
        (0..nodes).for_each(|n| planner.set(node(n)));
        let mut in_use = planner.plan(&settings, &own).unwrap();
        for step in 1..=200 {
            planner.set(NodeSeen { uid: format!("{step}"), ..node(step % (nodes - 1) + 1) });
            let before = (step % 20 == 0).then(|| in_use.as_ref().clone());
            let now = planner.plan(&settings, &own).unwrap();
            if let Some(before) = before {
                // The Node's MAC: its forwarding entry, its neighbours, its route of IPv6.
                assert!((4..=10).contains(&in_use.difference(&now).len()), "{nodes} nodes, step {step}");
                assert_eq!(*in_use, before, "{nodes} nodes, step {step}: it is in use");
            }
            in_use = now;
        }
        // One after the whole plan.
        assert_eq!((planner.changes(), planner.copies()), (200, 1), "{nodes} nodes");
        // Who keeps a plan for long pays for it once.
        let kept = std::sync::Arc::clone(&in_use);
        for step in 201..=210 {
            planner.set(NodeSeen { uid: format!("{step}"), ..node(7) });
            in_use = planner.plan(&settings, &own).unwrap();
        }
        assert!(planner.copies() <= 2 && *kept != *in_use, "{nodes} nodes: {}", planner.copies());
    }
}
