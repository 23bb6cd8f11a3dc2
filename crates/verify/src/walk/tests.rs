//! Each kind of fault, put into a network of two nodes and three pods, is found where it is.

mod captured;
mod devices;
mod kernel;
mod nobody;
mod promises;
mod redirected;
mod remedies;
mod scene;
mod services;
mod unobserved;

use linux::nft::{ListedBase, ListedChain, ListedRule, ListedTable, ListedVerdict, Op};

use crate::case::Protocol;
use crate::snapshot::{Neighbour, Place, Route, RouteKind, Rule, Snapshot};
use crate::{CASES, Check, Direction, Expected, ExpectedSource, Fault, Finding, Observation, explain};
use scene::{Mode, address, ip, link, mac, network, of, put, route};

const A: &str = "pod/default/a";
const B: &str = "pod/default/b";
const A2: &str = "pod/default/a2";

/// A probe from pod `a` to a pod at an address.
fn check(to: &str, at: &str) -> Check {
    Check {
        case: &CASES[1],
        network: None,
        from: A.parse().unwrap(),
        answerers: vec![to.parse().unwrap()],
        address: ip(at),
        protocol: Protocol::Tcp,
        port: crate::PORT,
        size: None,
        expected: Expected::Answer(ExpectedSource::As(vec![ip("10.244.0.2")])),
    }
}

fn to_b() -> Check {
    check(B, "10.244.1.2")
}

fn to_a2() -> Check {
    check(A2, "10.244.0.3")
}

/// What is found: fault, place, device, direction.
fn found(snapshot: &Snapshot, check: &Check) -> (Fault, String, String, Direction) {
    let Finding { fault, place, device, direction, .. } = explain(snapshot, check, &Observation::Silent);
    (fault, place.to_string(), device.unwrap_or_default(), direction)
}

/// Breaks a network in each mode, and expects one finding.
fn broken(modes: &[Mode], check: &Check, change: impl Fn(&mut Snapshot), fault: Fault, at: &str, direction: Direction) {
    for mode in modes {
        let mut snapshot = network(*mode);
        change(&mut snapshot);
        let (place, device) = at.split_once(' ').unwrap_or((at, ""));
        let finding = explain(&snapshot, check, &Observation::Silent);
        let whole = (fault, place.to_owned(), device.to_owned(), direction);
        assert_eq!(found(&snapshot, check), whole, "{mode:?}: {finding}");
        // As a file of it, it is explained in the same way.
        let read: Snapshot = serde_json::from_str(&serde_json::to_string(&snapshot).unwrap()).unwrap();
        assert_eq!(explain(&read, check, &Observation::Silent), finding);
    }
}

const BOTH: &[Mode] = &[Mode::Direct, Mode::Vxlan];
const REQUEST: Direction = Direction::Request;
const REPLY: Direction = Direction::Reply;

/// A chain that drops everything, or what a rule matches.
fn dropping(family: &str, hook: u32) -> ListedTable {
    let drop = ListedRule { handle: 7, ops: vec![Op::Verdict(ListedVerdict::Drop)], ..ListedRule::default() };
    let base = ListedBase { kind: "filter".to_owned(), hook, priority: 0, ..ListedBase::default() };
    let chain = ListedChain { name: "guard".to_owned(), base: Some(base), rules: vec![drop] };
    ListedTable { family: family.to_owned(), name: "other".to_owned(), chains: vec![chain], sets: Vec::new() }
}

/// A rule that masquerades everything.
fn masquerading() -> ListedTable {
    let mut table = dropping("ip", 4);
    table.chains[0].base.as_mut().unwrap().kind = "nat".to_owned();
    table.chains[0].rules[0].ops = vec![Op::Masquerade];
    table
}

#[test]
fn a_whole_network_is_not_explained() {
    for mode in BOTH {
        for check in [to_b(), to_a2()] {
            let finding = explain(&network(*mode), &check, &Observation::Silent);
            assert_eq!(finding.fault, Fault::Unexplained, "{mode:?}: {finding}");
            let refused = explain(&network(*mode), &check, &Observation::Refused);
            assert_eq!((refused.fault, refused.place), (Fault::NothingListens, check.answerers[0].clone()));
        }
    }
}

#[test]
fn routes() {
    let without =
        |place: &'static str, to: &'static str| move |s: &mut Snapshot| of(s, place).routes.retain(|route| route.to.to_string() != to);
    broken(BOTH, &to_b(), without("node/a", "10.244.1.0/24"), Fault::NoRoute, "node/a", REQUEST);
    broken(BOTH, &to_b(), without("node/b", "10.244.0.0/24"), Fault::NoRoute, "node/b", REPLY);
    broken(BOTH, &to_b(), without(A, "0.0.0.0/0"), Fault::NoDefaultRoute, A, REQUEST);
    broken(BOTH, &to_b(), without(B, "0.0.0.0/0"), Fault::NoDefaultRoute, B, REPLY);
    let refusing = |s: &mut Snapshot| {
        of(s, "node/a").routes.push(Route { kind: RouteKind::Blackhole, ways: Vec::new(), ..route("10.244.1.2/32", None, 2) });
    };
    broken(BOTH, &to_b(), refusing, Fault::RouteRefuses, "node/a", REQUEST);
    let rule = scene::rule(5, None);
    let refuse = |s: &mut Snapshot| of(s, "node/b").rules.insert(0, Rule { iif: Some("netloom0".to_owned()), ..rule.clone() });
    broken(BOTH, &to_b(), refuse, Fault::RouteRefuses, "node/b", REPLY);
    // Another table, asked first, leads back to where the packet came from.
    let aside = |s: &mut Snapshot| {
        let node = of(s, "node/b");
        node.rules.insert(0, Rule { table: Some(100), to: Some("10.244.1.0/24".parse().unwrap()), ..rule.clone() });
        node.routes.push(Route { table: 100, ..route("10.244.1.0/24", Some("172.30.0.1"), 2) });
    };
    broken(BOTH, &to_b(), aside, Fault::WrongNextHop, "node/b eth0", REQUEST);
    // Without it, another route leads to the router outside, which knows no pod.
    let outside = |s: &mut Snapshot| {
        let router = of(s, "underlay");
        router.rules = vec![Rule { table: Some(254), ..rule.clone() }];
        router.links[0].addresses.push(address("172.30.255.254/16"));
        router.routes = vec![route("172.30.0.0/16", None, 1)];
        put(s, "node/b", "10.244.0.0/24", route("0.0.0.0/0", Some("172.30.255.254"), 2));
    };
    broken(BOTH, &to_b(), outside, Fault::NoRoute, "node/b", REPLY);
    let gone = |s: &mut Snapshot| put(s, "node/a", "10.244.1.0/24", route("10.244.1.0/24", Some("172.30.0.77"), 2));
    broken(&[Mode::Direct], &to_b(), gone, Fault::GatewayMissing, "node/a eth0", REQUEST);
    let wide = |s: &mut Snapshot| {
        of(s, A).routes.push(route("10.244.0.0/16", None, 2));
        link(s, A, 2).addresses[0] = address("10.244.0.2/16");
    };
    broken(BOTH, &to_b(), wide, Fault::WrongPrefixLength, "pod/default/a eth0", REQUEST);
}

#[test]
fn links() {
    let down = |place: &'static str, index: u32| {
        move |s: &mut Snapshot| {
            link(s, place, index).up = false;
            link(s, place, index).carrier = false;
        }
    };
    broken(BOTH, &to_b(), down("node/a", 4), Fault::LinkDown, "node/a vetha", REQUEST);
    broken(BOTH, &to_b(), down("node/a", 2), Fault::LinkDown, "node/a eth0", REQUEST);
    broken(BOTH, &to_b(), down("node/b", 4), Fault::LinkDown, "node/b vethb", REQUEST);
    broken(&[Mode::Vxlan], &to_b(), down("node/b", 6), Fault::LinkDown, "node/b nl4", REQUEST);
    broken(BOTH, &to_b(), |s| link(s, "underlay", 10).carrier = false, Fault::NoCarrier, "underlay w1-1", REQUEST);
    let disabled = |s: &mut Snapshot| link(s, "node/b", 4).port.as_mut().unwrap().state = "disabled".to_owned();
    broken(BOTH, &to_b(), disabled, Fault::BridgePortDown, "node/b vethb", REQUEST);
    let loose = |index: u32| {
        move |s: &mut Snapshot| {
            link(s, "node/a", index).master = None;
            link(s, "node/a", index).port = None;
        }
    };
    broken(BOTH, &to_b(), loose(4), Fault::BridgePortMissing, "node/a vetha", REQUEST);
    broken(BOTH, &to_a2(), loose(5), Fault::BridgePortMissing, "node/a vetha2", REQUEST);
    let isolate = |s: &mut Snapshot| [4, 5].into_iter().for_each(|index| link(s, "node/a", index).port.as_mut().unwrap().isolated = true);
    broken(BOTH, &to_a2(), isolate, Fault::PortsIsolated, "node/a vetha2", REQUEST);
}

#[test]
fn addresses() {
    broken(BOTH, &to_b(), |s| link(s, B, 2).addresses.clear(), Fault::AddressMissing, "pod/default/b eth0", REQUEST);
    broken(BOTH, &to_b(), |s| link(s, B, 2).addresses[0].usable = false, Fault::AddressUnusable, "pod/default/b eth0", REQUEST);
    broken(
        BOTH,
        &to_a2(),
        |s| link(s, "node/a", 3).addresses.push(address("10.244.0.3/32")),
        Fault::DuplicateAddress,
        "node/a netloom0",
        REQUEST,
    );
    // The pod's own node has it: in what comes from another node, it takes it itself.
    let by_node = |s: &mut Snapshot| {
        link(s, "node/b", 3).addresses.push(address("10.244.1.2/32"));
        of(s, "node/b").routes.push(scene::local("10.244.1.2", 3));
    };
    broken(BOTH, &to_b(), by_node, Fault::DuplicateAddress, "node/b netloom0", REQUEST);
    let same_mac = |s: &mut Snapshot| link(s, A, 2).mac = Some(mac(0x22));
    broken(BOTH, &check(B, "10.244.1.2"), |s| link(s, A2, 2).mac = Some(mac(0x21)), Fault::DuplicateMac, "pod/default/a2 eth0", REPLY);
    broken(BOTH, &to_a2(), same_mac, Fault::Unexplained, A, REQUEST);
}

#[test]
fn neighbours_and_entries() {
    let wrong = |place: &'static str, index: u32, of: &'static str| {
        move |s: &mut Snapshot| {
            link(s, place, index).neighbours.push(Neighbour { address: ip(of), mac: Some(mac(0x99)), permanent: true });
        }
    };
    broken(BOTH, &to_b(), wrong("node/b", 3, "10.244.1.2"), Fault::WrongNeighbour, "node/b netloom0", REQUEST);
    broken(BOTH, &to_b(), wrong("node/a", 3, "10.244.0.2"), Fault::WrongNeighbour, "node/a netloom0", REPLY);
    let silent =
        |s: &mut Snapshot| link(s, "node/b", 3).neighbours.push(Neighbour { address: ip("10.244.1.2"), mac: None, permanent: false });
    broken(BOTH, &to_b(), silent, Fault::NeighbourSilent, "node/b netloom0", REQUEST);
    // Of a full table, a neighbour that did not answer is a consequence; one that was full long ago explains nothing.
    let full = |entries, cleared| {
        move |s: &mut Snapshot| {
            silent(s);
            let table = crate::FullTable { is_ipv4: true, entries, most: 1024, refused: 134, cleared };
            of(s, "node/b").full_tables = vec![table];
        }
    };
    broken(BOTH, &to_b(), full(1000, 3_000), Fault::NeighbourTableFull, "node/b netloom0", REQUEST);
    for full in [full(1000, 61_000), full(511, 3_000)] {
        broken(BOTH, &to_b(), full, Fault::NeighbourSilent, "node/b netloom0", REQUEST);
    }
    let entry = |port: u32| crate::FdbEntry { mac: mac(0x22), port: Some(port), endpoint: None };
    broken(BOTH, &to_a2(), |s| link(s, "node/a", 3).fdb = vec![entry(4)], Fault::StaleBridgeEntry, "node/a netloom0", REQUEST);
    broken(BOTH, &to_a2(), |s| link(s, "node/a", 3).fdb = vec![entry(5)], Fault::Unexplained, A, REQUEST);
}

#[test]
fn tunnels() {
    let vxlan = &[Mode::Vxlan];
    broken(vxlan, &to_b(), |s| link(s, "node/a", 6).neighbours.clear(), Fault::TunnelEntryMissing, "node/a nl4", REQUEST);
    broken(vxlan, &to_b(), |s| link(s, "node/b", 6).fdb.clear(), Fault::TunnelEntryMissing, "node/b nl4", REPLY);
    let stale = |s: &mut Snapshot| link(s, "node/a", 6).fdb[0].endpoint = Some(ip("172.30.0.77"));
    broken(vxlan, &to_b(), stale, Fault::TunnelEntryStale, "node/a nl4", REQUEST);
    let wrong = |s: &mut Snapshot| {
        link(s, "node/a", 6).neighbours[0].mac = Some(mac(0x99));
        link(s, "node/a", 6).fdb[0].mac = mac(0x99);
    };
    broken(vxlan, &to_b(), wrong, Fault::WrongNeighbour, "node/a nl4", REQUEST);
    broken(vxlan, &to_b(), |s| of(s, "node/b").links.retain(|link| link.index != 6), Fault::TunnelMissing, "node/b", REQUEST);
    // What is for the node itself: the tunnel's own packets.
    broken(vxlan, &to_b(), |s| of(s, "node/b").tables.push(dropping("inet", 1)), Fault::TunnelBlocked, "node/b eth0", REQUEST);
    broken(vxlan, &to_b(), |s| of(s, "node/a").tables.push(dropping("ip", 1)), Fault::TunnelBlocked, "node/a eth0", REPLY);
}

/// What a record of nodes says of the tunnels between them.
#[test]
fn the_nodes_behind_a_tunnel() {
    let behind = |mode: Mode| {
        let mut snapshot = network(mode);
        let node = of(&mut snapshot, "node/a").clone();
        crate::tunnels(&snapshot, &node)
    };
    assert_eq!(behind(Mode::Direct), []);
    assert_eq!(behind(Mode::Vxlan), [("b".to_owned(), true)]);
    // A wrong route that leads past the tunnel, beside the right one or in its place.
    let past = |to: &str| {
        let mut snapshot = network(Mode::Vxlan);
        put(&mut snapshot, "node/a", to, route("10.244.1.0/24", Some("172.30.0.99"), 2));
        let node = of(&mut snapshot, "node/a");
        node.routes.rotate_right(1);
        crate::tunnels(&snapshot, &snapshot.namespaces[0])
    };
    assert_eq!(past("nothing"), [("b".to_owned(), true)]);
    assert_eq!(past("10.244.1.0/24"), [("b".to_owned(), true)]);
}

/// Of a tunnel's own address, which is the network's first one, the kernel has a route for everybody as well as the one for itself.
#[test]
fn an_anycast_address_is_the_namespaces_own() {
    let anycast = |s: &mut Snapshot| {
        let node = of(s, "node/b");
        node.routes.insert(0, Route { kind: RouteKind::Other, ..scene::local("172.30.0.2", 3) });
        node.routes.push(route("172.30.0.2/32", None, 2));
    };
    let mut to_node = check("node/b", "172.30.0.2");
    to_node.expected = Expected::Answer(ExpectedSource::Anyhow);
    broken(BOTH, &to_node, anycast, Fault::Unexplained, A, REQUEST);
}

/// What WireGuard does with a packet is not observed, only that it ends on the node that the packet is for.
#[test]
fn wireguard() {
    let encrypts = |s: &mut Snapshot| {
        for place in ["node/a", "node/b"] {
            let device = link(s, place, 6);
            (device.kind, device.tunnel, device.mac) = ("wireguard".to_owned(), None, None);
        }
    };
    broken(&[Mode::Vxlan], &to_b(), encrypts, Fault::Unexplained, A, REQUEST);
    let ends = |s: &mut Snapshot| {
        encrypts(s);
        of(s, "node/b").links.retain(|link| link.index != 6);
    };
    broken(&[Mode::Vxlan], &to_b(), ends, Fault::TunnelMissing, "node/b", REQUEST);
}

#[test]
fn what_the_kernel_is_set_to() {
    broken(BOTH, &to_b(), |s| link(s, "node/a", 3).forwards_ipv4 = false, Fault::ForwardingOff, "node/a netloom0", REQUEST);
    broken(BOTH, &to_b(), |s| link(s, "node/b", 3).forwards_ipv4 = false, Fault::ForwardingOff, "node/b netloom0", REPLY);
    let strict = |s: &mut Snapshot| {
        link(s, "node/b", 2).rp_filter = 1;
        of(s, "node/b").routes.push(route("10.244.0.2/32", None, 3));
    };
    // Without a way back the packet does not get in: the way back is what is wrong.
    let no_way_back = |s: &mut Snapshot| {
        s.namespaces.iter_mut().flat_map(|namespace| &mut namespace.links).for_each(|link| link.rp_filter = 2);
        of(s, "node/b").routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
    };
    broken(BOTH, &to_b(), no_way_back, Fault::NoRoute, "node/b", REPLY);
    broken(&[Mode::Direct], &to_b(), strict, Fault::ReversePathFilter, "node/b eth0", REQUEST);
    broken(BOTH, &to_b(), |s| of(s, A).ttl = 1, Fault::HopLimitTooLow, A, REQUEST);
    broken(BOTH, &to_b(), |s| of(s, B).ttl = 2, Fault::HopLimitTooLow, B, REPLY);
    // Two nodes forward it; what an older file does not say is no fault.
    broken(BOTH, &to_b(), |s| of(s, A).ttl = 3, Fault::Unexplained, A, REQUEST);
    broken(BOTH, &to_b(), |s| of(s, A).ttl = 0, Fault::Unexplained, A, REQUEST);
    broken(BOTH, &to_a2(), |s| of(s, A).ttl = 1, Fault::Unexplained, A, REQUEST);
    let mut large = to_b();
    large.size = Some(1500);
    broken(&[Mode::Vxlan], &large, |_| {}, Fault::MtuExceeded, "node/a nl4", REQUEST);
    broken(&[Mode::Direct], &large, |s| link(s, "underlay", 11).mtu = 1400, Fault::MtuExceeded, "underlay w1-2", REQUEST);
    broken(&[Mode::Direct], &large, |s| link(s, B, 2).mtu = 1400, Fault::MtuExceeded, "pod/default/b eth0", REQUEST);
}

#[test]
fn rules() {
    let with = |place: &'static str, table: fn() -> ListedTable| move |s: &mut Snapshot| of(s, place).tables.push(table());
    broken(BOTH, &to_b(), with("node/a", || dropping("inet", 2)), Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
    let of_bridge = || dropping("bridge", 2);
    broken(BOTH, &to_a2(), with("node/a", of_bridge), Fault::ForeignRuleDrops, "node/a vetha", REQUEST);
    // With br_netfilter, frames from port to port meet the router's rules.
    let filtered = |s: &mut Snapshot| {
        link(s, "node/a", 3).filters_ipv4 = true;
        of(s, "node/a").tables.push(dropping("inet", 2));
    };
    broken(BOTH, &to_a2(), with("node/a", || dropping("inet", 2)), Fault::Unexplained, A, REQUEST);
    broken(BOTH, &to_a2(), filtered, Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
    let own = || ListedTable { name: "netloom".to_owned(), ..dropping("bridge", 0) };
    broken(BOTH, &to_a2(), with("node/a", own), Fault::OwnRuleDrops, "node/a vetha", REQUEST);
    let policy = || {
        let mut table = dropping("inet", 2);
        table.chains[0].rules.clear();
        table.chains[0].base.as_mut().unwrap().drops = true;
        table
    };
    broken(&[Mode::Direct], &to_b(), with("node/b", policy), Fault::ForeignRuleDrops, "node/b eth0", REQUEST);
    broken(&[Mode::Vxlan], &to_b(), with("node/b", policy), Fault::ForeignRuleDrops, "node/b nl4", REQUEST);
    broken(&[Mode::Direct], &to_b(), with("node/a", masquerading), Fault::MasqueradeTooWide, "node/a", REQUEST);
    // What is not tracked is not rewritten.
    let untracked = |s: &mut Snapshot| {
        let mut table = dropping("inet", 0);
        table.chains[0].rules[0].ops = vec![Op::Untracked];
        of(s, "node/a").tables.extend([table, masquerading()]);
    };
    broken(&[Mode::Direct], &to_b(), untracked, Fault::Unexplained, A, REQUEST);
    // A rule for another family, and one whose condition is not known.
    broken(BOTH, &to_b(), with("node/a", || dropping("ip6", 2)), Fault::Unexplained, A, REQUEST);
    let unknown = || {
        let mut table = dropping("inet", 2);
        table.chains[0].rules[0].ops.insert(0, Op::Other("match statistic".to_owned()));
        table
    };
    broken(BOTH, &to_b(), with("node/a", unknown), Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
}

#[test]
fn a_node_itself() {
    let mut to_node = check("node/b", "172.30.0.2");
    broken(BOTH, &to_node, |s| of(s, "node/b").tables.push(dropping("inet", 1)), Fault::NodeFirewall, "node/b eth0", REQUEST);
    to_node.answerers = vec![B.parse().unwrap()];
    to_node.port = 8080;
    broken(BOTH, &to_node, |_| {}, Fault::HostPortMissing, "node/b eth0", REQUEST);
    let gone = |s: &mut Snapshot| s.namespaces.retain(|namespace| namespace.place != Place::Pod("default/b".to_owned()));
    broken(BOTH, &to_b(), gone, Fault::NamespaceGone, B, REQUEST);
}
