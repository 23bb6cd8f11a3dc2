//! Two nodes on one wire: pods `a` and `a2` on node `a`, pod `b` on node `b`, as a lab has them.

use std::net::IpAddr;

use cni::Mac;

use crate::snapshot::{Address, BridgePort, End, FdbEntry, Link, Namespace, Neighbour, Place, Route, RouteKind, Rule, Snapshot, Tunnel};

/// How packets get from node to node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mode {
    Direct,
    Vxlan,
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn mac(last: u8) -> Mac {
    Mac::from_bytes(&[2, 0, 0, 0, 0, last]).unwrap()
}

pub(super) fn address(net: &str) -> Address {
    Address { net: net.parse().unwrap(), usable: true }
}

/// A route of the main table by a link.
pub(super) fn route(to: &str, gateway: Option<&str>, link: u32) -> Route {
    let ways = vec![(gateway.map(ip), Some(link))];
    Route { to: to.parse().unwrap(), ways, table: 254, metric: 0, kind: RouteKind::Unicast, from: None, source: None, mtu: None }
}

pub(super) fn local(address: &str, link: u32) -> Route {
    Route { table: 255, kind: RouteKind::Local, ..route(&format!("{address}/32"), None, link) }
}

/// A link that is up; its hardware address ends with `last`.
fn device(index: u32, name: &str, kind: &str, last: u8) -> Link {
    Link {
        index,
        name: name.to_owned(),
        kind: kind.to_owned(),
        mac: Some(mac(last)),
        mtu: 1500,
        up: true,
        carrier: true,
        master: None,
        other: None,
        addresses: Vec::new(),
        vlan: None,
        private: false,
        vepa: false,
        tunnel: None,
        port: None,
        neighbours: Vec::new(),
        fdb: Vec::new(),
        forwards_ipv4: true,
        rp_filter: 0,
        ipv6_disabled: false,
        hop_limit: 64,
        filters_vlans: false,
        vlans: Vec::new(),
        filters_ipv4: false,
        filters_ipv6: false,
        no_arp: false,
        qdiscs: Vec::new(),
    }
}

/// An end of a pair; as a port of a bridge where `master` says so.
fn end(index: u32, name: &str, last: u8, other: (&str, u32), master: Option<u32>) -> Link {
    let port = master.map(|_| BridgePort { state: "forwarding".to_owned(), ..BridgePort::default() });
    let other = Some(End { place: other.0.parse().unwrap(), index: other.1 });
    Link { other, master, port, ..device(index, name, "veth", last) }
}

/// A rule of IPv4 without conditions.
pub(super) fn rule(priority: u32, table: Option<u32>) -> Rule {
    Rule {
        priority,
        is_ipv4: true,
        from: None,
        to: None,
        iif: None,
        oif: None,
        mark: None,
        suppress: None,
        table,
        negated: false,
        has_more: false,
    }
}

fn namespace(place: &str, node: Option<&str>, links: Vec<Link>, routes: Vec<Route>) -> Namespace {
    let rule = |priority, table| rule(priority, Some(table));
    Namespace {
        place: place.parse().unwrap(),
        node: node.map(str::to_owned),
        links,
        routes,
        rules: vec![rule(0, 255), rule(32766, 254), rule(32767, 253)],
        forwards_ipv6: true,
        ttl: 64,
        tables: Vec::new(),
        unread: Vec::new(),
        agent: None,
        full_tables: Vec::new(),
    }
}

fn pod(name: &str, node: &str, number: u8, own: &str, host: u32) -> Namespace {
    let gateway = format!("{}.1", own.rsplit_once('.').unwrap().0);
    let mut eth0 = end(2, "eth0", number, (&format!("node/{node}"), host), None);
    eth0.addresses.push(address(&format!("{own}/24")));
    let routes =
        vec![local(own, 2), route(&format!("{}.0/24", own.rsplit_once('.').unwrap().0), None, 2), route("0.0.0.0/0", Some(&gateway), 2)];
    namespace(&format!("pod/default/{name}"), Some(node), vec![eth0], routes)
}

/// Node number 1 or 2, with these pods: name, number of the host's end, of the pod's hardware address.
fn node(name: &str, number: u8, mode: Mode, pods: &[(&str, u32, u8)]) -> Namespace {
    let (own, other) = (format!("172.30.0.{number}"), format!("172.30.0.{}", 3 - number));
    let (range, far) = (number - 1, 2 - number);
    let mut eth0 = end(2, "eth0", number, ("underlay", 9 + u32::from(number)), None);
    eth0.addresses.push(address(&format!("{own}/16")));
    let mut bridge = device(3, "netloom0", "bridge", 0x10 + number);
    bridge.addresses.push(address(&format!("10.244.{range}.1/24")));
    let mut links = vec![eth0, bridge];
    links.extend(
        pods.iter().map(|(pod, index, last)| end(*index, &format!("veth{pod}"), 0x40 + last, (&format!("pod/default/{pod}"), 2), Some(3))),
    );
    let mut routes = vec![local(&own, 2), local(&format!("10.244.{range}.1"), 3), route("172.30.0.0/16", None, 2)];
    routes.push(route(&format!("10.244.{range}.0/24"), None, 3));
    let far_range = format!("10.244.{far}.0/24");
    match mode {
        Mode::Direct => routes.push(route(&far_range, Some(&other), 2)),
        Mode::Vxlan => {
            let next = format!("10.244.{far}.0");
            let tunnel = Some(Tunnel { vni: 4096, port: 8472, local: Some(ip(&own)), remote: None });
            let remote = mac(0x30 + 3 - number);
            let neighbours = vec![Neighbour { address: ip(&next), mac: Some(remote.clone()), permanent: true }];
            let fdb = vec![FdbEntry { mac: remote, port: None, endpoint: Some(ip(&other)) }];
            links.push(Link { tunnel, neighbours, fdb, mtu: 1450, ..device(6, "nl4", "vxlan", 0x30 + number) });
            routes.push(route(&far_range, Some(&next), 6));
        }
    }
    namespace(&format!("node/{name}"), None, links, routes)
}

/// The whole network, in which every packet passes.
pub(super) fn network(mode: Mode) -> Snapshot {
    let wire = device(1, "w1", "bridge", 0x50);
    let wires = vec![wire, end(10, "w1-1", 0x51, ("node/a", 2), Some(1)), end(11, "w1-2", 0x52, ("node/b", 2), Some(1))];
    Snapshot {
        namespaces: vec![
            node("a", 1, mode, &[("a", 4, 1), ("a2", 5, 2)]),
            node("b", 2, mode, &[("b", 4, 3)]),
            pod("a", "a", 0x21, "10.244.0.2", 4),
            pod("a2", "a", 0x22, "10.244.0.3", 5),
            pod("b", "b", 0x23, "10.244.1.2", 4),
            namespace("underlay", None, wires, Vec::new()),
        ],
        ..Snapshot::default()
    }
}

/// A namespace of it.
pub(super) fn of<'a>(snapshot: &'a mut Snapshot, place: &str) -> &'a mut Namespace {
    let place: Place = place.parse().unwrap();
    snapshot.namespaces.iter_mut().find(|namespace| namespace.place == place).unwrap()
}

/// A link of it.
pub(super) fn link<'a>(snapshot: &'a mut Snapshot, place: &str, index: u32) -> &'a mut Link {
    of(snapshot, place).links.iter_mut().find(|link| link.index == index).unwrap()
}

/// Puts a route in the place of another one.
pub(super) fn put(snapshot: &mut Snapshot, place: &str, to: &str, route: Route) {
    let namespace = of(snapshot, place);
    namespace.routes.retain(|route| route.to.to_string() != to);
    namespace.routes.push(route);
}
