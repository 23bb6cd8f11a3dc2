//! What the kernel has of ours, in the planner's words.

use std::collections::BTreeMap;

use between::{Device, Plan, Route};
use ipnet::IpNet;
use linux::{Errno, Link, Netlink, ReadError, Request, RouteFilter, RouteKind, fdb, route};

use crate::wireguard::Secrets;
use crate::{PROTOCOL, device, entry};

/// A route of ours that is like none of a plan's, because another program has changed it: it differs from all that is wanted, so it is
/// replaced.
pub(crate) const ALTERED: Route = Route { via: None, device: Device::Link(0), onlink: false };

/// One look at the kernel.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Our tables.
    pub(crate) tables: Plan,
    /// The indexes of our devices, also of those that are not as any plan would want them.
    pub(crate) links: BTreeMap<Device, u32>,
    /// Routes of others to ranges that are wanted.
    pub(crate) foreign: BTreeMap<IpNet, linux::Route>,
    /// Takes away what is ours and cannot be in a plan.
    pub(crate) strays: Vec<Request<'static>>,
}

impl Observed {
    /// Reads devices, then what is on them, then routes. Of others' routes only those to ranges that are wanted count.
    pub(crate) fn read(netlink: &mut Netlink, secrets: &mut Secrets, wanted: &Plan) -> Result<Self, ReadError> {
        let mut observed = Observed::default();
        for link in netlink.links()? {
            if let Some(device) = device::recognise(&link) {
                observed.read_device(netlink, secrets, device, &link)?;
            }
        }
        for route in netlink.routes(RouteFilter { table: Some(route::MAIN), ..RouteFilter::default() })? {
            observed.enter_route(route, wanted);
        }
        Ok(observed)
    }

    fn read_device(&mut self, netlink: &mut Netlink, secrets: &mut Secrets, device: Device, link: &Link) -> Result<(), ReadError> {
        self.links.insert(device, link.index);
        let addresses = netlink.addresses(Some(link.index))?;
        let inner = secrets.read(link)?;
        self.tables.devices.insert(device, device::as_planned(link, &addresses, inner.as_ref()));
        if let Device::WireGuard { .. } = device {
            let peers = inner.iter().flat_map(|inner| secrets.peers(device, inner));
            self.tables.peers.extend(peers.map(|(key, peer)| ((device, key), peer)));
            return Ok(());
        }
        for neighbour in netlink.neighbours(link.index)? {
            if let Some(mac) = entry::mac_of(&neighbour) {
                self.tables.neighbours.insert((device, neighbour.address), mac);
            }
        }
        for found in netlink.fdb(link.index)? {
            match entry::forwarding(&found) {
                Some((mac, endpoint)) => drop(self.tables.forwarding.insert((device, mac), endpoint)),
                None => self.strays.push(fdb::delete(link.index, &found.mac).tolerate(Errno::ENOENT)),
            }
        }
        Ok(())
    }

    fn enter_route(&mut self, route: linux::Route, wanted: &Plan) {
        if route.proto != PROTOCOL {
            if keeps_range(&route, wanted) {
                self.foreign.entry(route.dst).or_insert(route);
            }
        } else if is_closed(&route) {
            self.tables.closed.insert(route.dst);
        } else if route.priority != entry::metric(route.dst)
            || route.kind != RouteKind::Unicast
            || self.tables.routes.contains_key(&route.dst)
        {
            // A second route to one range (`ip route append`) would neither be replaced nor removed with the first.
            self.strays.push(entry::removal(&route));
        } else {
            self.tables.routes.insert(route.dst, as_planned(&route, &self.links));
        }
    }
}

/// Whether another program's route keeps packets from a wanted route of ours to the same range, be it one without a way: a lower metric
/// wins, and of the same one there is only one.
pub(crate) fn keeps_range(route: &linux::Route, wanted: &Plan) -> bool {
    let ours = if wanted.routes.contains_key(&route.dst) {
        entry::metric(route.dst)
    } else if wanted.closed.contains(&route.dst) {
        entry::closed_metric(route.dst)
    } else {
        return false;
    };
    route.table == route::MAIN && route.proto != PROTOCOL && route.priority <= ours
}

/// Whether a route of ours is one without a way, as a plan would have it.
pub(crate) fn is_closed(route: &linux::Route) -> bool {
    route.kind == RouteKind::Unreachable && route.priority == entry::closed_metric(route.dst)
}

/// A route of ours in the planner's words; [`ALTERED`] if a plan has no words for it.
pub(crate) fn as_planned(route: &linux::Route, links: &BTreeMap<Device, u32>) -> Route {
    let Some(index) = route.oif else { return ALTERED };
    let device = links.iter().find(|(_, own)| **own == index).map_or(Device::Link(index), |(device, _)| *device);
    let planned = Route { via: route.gateway, device, onlink: route.onlink };
    let plain = linux::Route { scope: route.scope, ..entry::kernel_route(route.dst, &planned, index) };
    // What the kernel adds by itself is the same for each of ours.
    if plain == (linux::Route { priority: plain.priority, ..route.clone() }) { planned } else { ALTERED }
}

/// The words for a route that is not ours.
pub(crate) fn described(netlink: &mut Netlink, route: &linux::Route) -> String {
    let mut words = String::new();
    for (gateway, oif) in route.ways() {
        words += &gateway.map(|gateway| format!("via {gateway} ")).unwrap_or_default();
        words += &oif.map(|index| format!("dev {} ", device::shown(netlink, &Device::Link(index)))).unwrap_or_default();
    }
    format!("{words}proto {} metric {}", route.proto, route.priority)
}
