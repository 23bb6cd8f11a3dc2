//! A packet on its way through the tables of the node that sends it, and into the device of the node that gets it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netloom_between::{Device, Plan, Route, Wanted};

use crate::oracle::Oracle;
use crate::world::World;

/// How a packet travels; a tunnel over IPv4 if so it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Direct,
    Vxlan(bool),
    WireGuard(bool),
}

/// Where a packet arrives, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) node: String,
    pub(crate) kind: Kind,
    /// WireGuard's, of the sender and of the receiver.
    pub(crate) ports: Option<(u16, u16)>,
}

struct Packet<'a> {
    world: &'a World,
    oracle: &'a Oracle<'a>,
    plans: &'a BTreeMap<String, Plan>,
    from: &'a str,
    address: IpAddr,
}

/// Follows a packet; `None` without a route.
pub(crate) fn packet(world: &World, oracle: &Oracle<'_>, plans: &BTreeMap<String, Plan>, from: &str, address: IpAddr) -> Option<Fate> {
    let routes = plans[from].routes.iter().filter(|(range, _)| range.contains(&address));
    let (_, route) = routes.max_by_key(|(range, _)| range.prefix_len())?;
    let packet = Packet { world, oracle, plans, from, address };
    Some(match route.device {
        Device::Link(index) => packet.direct(route, index),
        Device::Vxlan { .. } => packet.vxlan(route),
        Device::WireGuard { .. } => packet.wireguard(route),
    })
}

impl Packet<'_> {
    fn plan(&self) -> &Plan {
        &self.plans[self.from]
    }

    /// Whose endpoint that is.
    fn node(&self, endpoint: IpAddr) -> &str {
        let mut all = self.world.members.iter();
        let found = all.find(|member| self.oracle.endpoint(member, endpoint.is_ipv4()) == Some(endpoint));
        &found.unwrap_or_else(|| panic!("{endpoint} is nobody's endpoint")).seen.name
    }

    fn direct(&self, route: &Route, index: u32) -> Fate {
        let via = route.via.unwrap();
        assert_eq!(via.is_ipv4(), self.address.is_ipv4());
        let link = self.world.get(self.from).own.links.iter().find(|link| link.index == index).unwrap();
        assert!(!route.onlink && link.addresses.iter().any(|net| net.contains(&via)), "{via} is not on {}", link.name);
        Fate { node: self.node(via).to_owned(), kind: Kind::Direct, ports: None }
    }

    fn vxlan(&self, route: &Route) -> Fate {
        let (plan, via) = (self.plan(), route.via.unwrap());
        assert_eq!(route.onlink, via.is_ipv4());
        let mac = plan.neighbours[&(route.device, via)];
        let remote = plan.forwarding[&(route.device, mac)];
        let Wanted::Vxlan { local, mtu, .. } = &plan.devices[&route.device] else { panic!("{route:?}") };
        assert_eq!(local.is_ipv4(), remote.is_ipv4());
        assert!(plan.mtu.unwrap() <= *mtu);
        assert_eq!(self.node(*local), self.from);
        let node = self.node(remote);
        if self.is_awaited(node) {
            let Some(Wanted::Vxlan { mac: own, local, .. }) = self.plans[node].devices.get(&route.device) else {
                panic!("{node} has no {:?}", route.device)
            };
            assert_eq!((*own, *local), (mac, remote));
        }
        Fate { node: node.to_owned(), kind: Kind::Vxlan(remote.is_ipv4()), ports: None }
    }

    fn wireguard(&self, route: &Route) -> Fate {
        let plan = self.plan();
        assert!(route.via.is_none() && !route.onlink);
        let on_device = plan.peers.iter().filter(|((device, _), _)| *device == route.device);
        let allowed: Vec<_> = on_device.filter(|(_, peer)| peer.allowed.iter().any(|range| range.contains(&self.address))).collect();
        let [((_, key), peer)] = allowed.as_slice() else { panic!("{} is allowed to {allowed:?}", self.address) };
        let Wanted::WireGuard { key: own_key, mtu, .. } = &plan.devices[&route.device] else { panic!("{route:?}") };
        assert!(plan.mtu.unwrap() <= *mtu);
        let node = self.node(peer.endpoint.ip());
        if self.is_awaited(node) && !self.oracle.is_contested(self.from, node) {
            let device = Device::WireGuard { port: peer.endpoint.port() };
            let there = &self.plans[node];
            let Some(Wanted::WireGuard { key: found, .. }) = there.devices.get(&device) else { panic!("{node} has no {device:?}") };
            assert_eq!(found, key);
            // What comes out has an address of the sender's, which the receiver has to allow.
            let known = &there.peers[&(device, *own_key)];
            for (_, range) in self.oracle.owned().iter().filter(|(owner, _)| owner == self.from) {
                let back = self.oracle.path(node, self.from, range);
                assert_eq!(known.allowed.contains(range), matches!(back, Some(Kind::WireGuard(_))), "{range} of {}", self.from);
            }
        }
        let Device::WireGuard { port } = route.device else { panic!("{route:?}") };
        Fate { node: node.to_owned(), kind: Kind::WireGuard(peer.endpoint.is_ipv4()), ports: Some((port, peer.endpoint.port())) }
    }

    /// Whether the receiver has a path back, and routes the range itself: then its device has to be there. It has none if it does not know
    /// yet which mode the sender has, or if the range is in the way of its own subnets.
    fn is_awaited(&self, node: &str) -> bool {
        let (_, range) = self.oracle.owner(self.address).unwrap();
        let is_routed = !self.oracle.is_local(node, range) && (range.addr().is_ipv4() || self.plans[node].mtu.unwrap() >= 1280);
        let same = self.world.get(node).mode == self.world.get(self.from).mode;
        is_routed && same && self.oracle.kind(node, self.from, range.addr().is_ipv4()).is_some()
    }
}
