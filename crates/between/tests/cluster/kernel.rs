//! Tables as a kernel keeps them, changed one entry at a time.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use netloom_between::{Change, Device, Entry, Mac, Plan, Route};

/// All that a packet for a range meets.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Link(Route),
    Vxlan(Route, Mac, IpAddr),
    WireGuard(Route, [u8; 32], SocketAddr),
}

/// Carries out what leads from one plan to the next, with a look at the tables after each change. How many changes there are, and how many
/// routes they do not concern.
pub(crate) fn carry_out(before: &Plan, now: &Plan) -> (usize, usize) {
    let changes = before.difference(now);
    let untouched: Vec<(&IpNet, Way)> = before.routes.keys().filter_map(|range| Some((range, way(before, range)?))).collect();
    let untouched: Vec<_> = untouched.into_iter().filter(|(range, was)| way(now, range).as_ref() == Some(was)).collect();
    let mut tables = before.clone();
    let mut taken = before.clone();
    changes.iter().cloned().for_each(|change| taken.take(change));
    assert_eq!(taken.difference(now), []);
    for change in &changes {
        apply(&mut tables, change);
        for (range, was) in &untouched {
            assert_eq!(way(&tables, range).as_ref(), Some(was), "{range} is cut off by {change:?}");
        }
        for (range, route) in tables.routes.iter().filter(|(_, route)| !matches!(route.device, Device::WireGuard { .. })) {
            assert!(way(&tables, range).is_some(), "{range} leads nowhere by {route:?} after {change:?}");
        }
        for range in before.closed.intersection(&now.closed) {
            assert!(tables.closed.contains(range), "plain packets to {range} may leave after {change:?}");
        }
        let entries = tables.neighbours.keys().map(|(device, _)| device).chain(tables.forwarding.keys().map(|(device, _)| device));
        let entries = entries.chain(tables.peers.keys().map(|(device, _)| device));
        entries.for_each(|device| assert!(tables.devices.contains_key(device), "{device:?} is gone before its entries"));
    }
    let Plan { devices, peers, forwarding, neighbours, routes, closed, .. } = tables;
    assert_eq!(&Plan { devices, peers, forwarding, neighbours, routes, closed, ..now.clone() }, now);
    (changes.len(), untouched.len())
}

fn way(tables: &Plan, range: &IpNet) -> Option<Way> {
    let route = *tables.routes.get(range)?;
    if let Device::Link(_) = route.device {
        return Some(Way::Link(route));
    }
    tables.devices.get(&route.device)?;
    if let Device::Vxlan { .. } = route.device {
        let mac = *tables.neighbours.get(&(route.device, route.via?))?;
        return Some(Way::Vxlan(route, mac, *tables.forwarding.get(&(route.device, mac))?));
    }
    let mut peers = tables.peers.iter().filter(|((device, _), _)| *device == route.device);
    let ((_, key), peer) = peers.find(|(_, peer)| peer.allowed.contains(range))?;
    Some(Way::WireGuard(route, *key, peer.endpoint))
}

fn apply(tables: &mut Plan, change: &Change) {
    let (entry, was) = match change {
        Change::Add(entry) => (entry, false),
        Change::Replace(entry) | Change::Remove(entry) => (entry, true),
    };
    let remove = matches!(change, Change::Remove(_));
    let known = match entry.clone() {
        Entry::Device(device, wanted) if remove => tables.devices.remove(&device).inspect(|old| assert_eq!(*old, wanted)).is_some(),
        Entry::Device(device, wanted) => tables.devices.insert(device, wanted).is_some(),
        Entry::Peer(device, key, _) if remove => tables.peers.remove(&(device, key)).is_some(),
        Entry::Peer(device, key, peer) => {
            // What is allowed to a peer is taken from the one that had it.
            let others = tables.peers.iter_mut().filter(|((on, _), _)| *on == device);
            others.for_each(|(_, other)| other.allowed.retain(|range| !peer.allowed.contains(range)));
            tables.peers.insert((device, key), peer).is_some()
        }
        Entry::Forwarding(device, mac, to) if remove => {
            tables.forwarding.remove(&(device, mac)).inspect(|old| assert_eq!(*old, to)).is_some()
        }
        Entry::Forwarding(device, mac, to) => tables.forwarding.insert((device, mac), to).is_some(),
        Entry::Neighbour(device, at, mac) if remove => {
            tables.neighbours.remove(&(device, at)).inspect(|old| assert_eq!(*old, mac)).is_some()
        }
        Entry::Neighbour(device, at, mac) => tables.neighbours.insert((device, at), mac).is_some(),
        Entry::Route(range, route) if remove => tables.routes.remove(&range).inspect(|old| assert_eq!(*old, route)).is_some(),
        Entry::Route(range, route) => tables.routes.insert(range, route).is_some(),
        Entry::Closed(range) if remove => tables.closed.remove(&range),
        Entry::Closed(range) => !tables.closed.insert(range),
    };
    assert_eq!(known, was, "{change:?}");
}
