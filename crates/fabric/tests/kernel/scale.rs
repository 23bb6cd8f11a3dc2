//! A cluster of 5,000 nodes, and what one change costs there and among 100. Nothing is asserted of time: it is printed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use between::{Family, Mode, NodeSeen, OwnNode, Plan, Underlay, plan};
use netloom_fabric::{Applied, Fabric};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::cluster::{settings, vxlan};
use crate::space::{Space, drain};

fn node(n: u16) -> NodeSeen {
    let [high, low] = n.to_be_bytes();
    NodeSeen {
        name: format!("node-{n:05}"),
        uid: format!("6f7c1b1e-0000-4000-8000-{n:012}"),
        created: "2026-01-01T00:00:00Z".into(),
        ranges: vec![format!("10.{high}.{low}.0/24").parse().unwrap(), format!("fd00:0:0:{n:x}::/64").parse().unwrap()],
        endpoints: vec![IpAddr::V4(Ipv4Addr::new(172, 16, high, low)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n))],
        ..NodeSeen::default()
    }
}

/// The time that this thread has had a processor, its system calls included.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let of = |time: TimeVal| Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap());
    of(usage.user_time()) + of(usage.system_time())
}

fn measured(what: &str, work: impl FnOnce() -> Applied) -> usize {
    let (begun, before) = (Instant::now(), cpu());
    let applied = work();
    println!("  {what:24} {:6} changes in {:>10.3?}, {:>10.3?} of CPU", applied.changes, begun.elapsed(), cpu() - before);
    assert_eq!((applied.errors, applied.skipped), (Vec::new(), 0));
    applied.changes
}

fn lines(space: &Space, line: &str) -> usize {
    space.sh(line).lines().count()
}

/// A node that gets this number of peers, sees one replaced, and loses all. How many changes the one took, and how many the kernel reported.
fn life(mode: Mode, peers: u16) -> (usize, usize) {
    println!("{mode}, {peers} peers:");
    let space = Space::new();
    space.sh("ip link add eth0 type veth peer name wire");
    for link in ["eth0", "wire"] {
        // Link-local addresses become usable at some moment, and the kernel reports that, too.
        space.sh(&format!("ip link set {link} addrgenmode none"));
        space.sh(&format!("ip link set {link} up"));
    }
    space.sh("ip addr add 172.16.255.254/16 dev eth0");
    space.sh("ip -6 addr add 2001:db8::ffff/64 dev eth0 nodad");
    let addresses = ["172.16.255.254/16", "2001:db8::ffff/64"].map(|net| net.parse().unwrap()).to_vec();
    let links = vec![Underlay { index: space.index("eth0"), name: "eth0".into(), mtu: 1500, addresses }];
    let own = OwnNode { name: "node-10000".into(), links, ..OwnNode::default() };
    let mut nodes: Vec<NodeSeen> = (1..=peers).map(node).collect();
    nodes.push(NodeSeen { endpoints: own.links[0].addresses.iter().map(|net| net.addr()).collect(), ..node(10_000) });
    let all = plan(&settings(mode), &own, &nodes).unwrap();
    assert!(all.problems.is_empty());
    // Another machine under the same name.
    nodes[50].uid = "another".into();
    nodes[50].endpoints = vec!["172.16.200.1".parse().unwrap(), "2001:db8::c801".parse().unwrap()];
    let changed = plan(&settings(mode), &own, &nodes).unwrap();
    let mut fabric = Fabric::default();
    let mut apply = |what: &str, plan: &Plan| space.run(|_, netlink| measured(what, || fabric.apply(netlink, plan).unwrap()));
    let entries = usize::from(peers) * if mode == Mode::Direct { 2 } else { 5 } + all.devices.len();
    assert_eq!(apply("all are new", &all), entries);
    assert_eq!(apply("nothing changes", &all), 0);
    let mut monitor = space.monitor();
    let changes = apply("one is replaced", &changed);
    let reported = drain(&mut monitor).len();
    assert_eq!(space.run(|_, netlink| measured("a start finds all", || Fabric::default().apply(netlink, &changed).unwrap())), 0);
    let expected = usize::from(peers);
    assert_eq!((lines(&space, "ip route show proto 110"), lines(&space, "ip -6 route show proto 110")), (expected, expected));
    if mode == Mode::Vxlan {
        let name = vxlan(Family::V4);
        let neighbours = lines(&space, &format!("ip neigh show dev {name} nud permanent"));
        assert_eq!((lines(&space, &format!("bridge fdb show dev {name}")), neighbours), (expected, 2 * expected));
    }
    assert_eq!(apply("all are gone", &Plan::default()), entries);
    assert_eq!(lines(&space, "ip route show proto 110") + lines(&space, "ip -6 route show proto 110"), 0);
    (changes, reported)
}

/// With its machine a peer's VTEP and endpoint are others: over vxlan a forwarding entry, its neighbour of IPv6 and the route via that, each
/// comes and the old one goes, and the neighbour of IPv4 stays by its address.
#[test]
fn one_change_costs_the_same_among_a_hundred_nodes_and_five_thousand() {
    for (mode, changes) in [(Mode::Direct, 2), (Mode::Vxlan, 6)] {
        let costs = [100, 5_000].map(|peers| life(mode, peers));
        assert_eq!(costs[0], costs[1], "{mode}");
        assert_eq!(costs[0].0, changes, "{mode}");
    }
}
