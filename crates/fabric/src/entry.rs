//! The rows of a plan's tables, as messages and back.

use std::collections::BTreeMap;
use std::net::IpAddr;

use between::{Change, Device, Entry, Mac, Route};
use ipnet::IpNet;
use linux::{Errno, FdbEntry, Neighbour, Request, RouteKind, fdb, neigh, route};

use crate::PROTOCOL;
use crate::device::ethernet;

/// The metric that the kernel gives a route for which none is asked: 0 to IPv4, 1024 to IPv6 (`IP6_RT_PRIO_USER`,
/// include/uapi/linux/ipv6_route.h).
pub(crate) fn metric(range: IpNet) -> u32 {
    if range.addr().is_ipv4() { 0 } else { 1024 }
}

/// The metric of the route without a way behind one of ours: the next one, so that no other program's route comes between.
pub(crate) fn closed_metric(range: IpNet) -> u32 {
    metric(range) + 1
}

/// The message that carries out a change, but for those of devices. `None` if the device is not there.
///
/// On our own devices whatever is there is overwritten. A route is added only where there is none, as another program may have made one a
/// moment ago. What is replaced is the route that was last seen there: the kernel cannot be asked to replace that one or none.
pub(crate) fn request(change: &Change, links: &BTreeMap<Device, u32>) -> Option<Request<'static>> {
    match change {
        Change::Add(Entry::Route(range, wanted)) => Some(route::add(&kernel_route(*range, wanted, index_of(&wanted.device, links)?))),
        Change::Replace(Entry::Route(range, wanted)) => {
            Some(route::replace(&kernel_route(*range, wanted, index_of(&wanted.device, links)?)))
        }
        Change::Remove(Entry::Route(range, _)) => {
            Some(removal(&linux::Route { priority: metric(*range), proto: PROTOCOL, ..linux::Route::to(*range) }))
        }
        Change::Add(Entry::Closed(range)) | Change::Replace(Entry::Closed(range)) => Some(route::add(&closed_route(*range))),
        Change::Remove(Entry::Closed(range)) => Some(removal(&closed_route(*range))),
        Change::Add(Entry::Neighbour(device, address, mac)) | Change::Replace(Entry::Neighbour(device, address, mac)) => {
            Some(neigh::replace(index_of(device, links)?, *address, &hardware_address(*mac)?))
        }
        Change::Remove(Entry::Neighbour(device, address, _)) => {
            Some(neigh::delete(index_of(device, links)?, *address).tolerate(Errno::ENOENT).tolerate(Errno::ENODEV))
        }
        Change::Add(Entry::Forwarding(device, mac, endpoint)) | Change::Replace(Entry::Forwarding(device, mac, endpoint)) => {
            Some(fdb::replace(index_of(device, links)?, &hardware_address(*mac)?, *endpoint))
        }
        Change::Remove(Entry::Forwarding(device, mac, _)) => {
            Some(fdb::delete(index_of(device, links)?, &hardware_address(*mac)?).tolerate(Errno::ENOENT).tolerate(Errno::ENODEV))
        }
        Change::Add(Entry::Device(..) | Entry::Peer(..))
        | Change::Replace(Entry::Device(..) | Entry::Peer(..))
        | Change::Remove(Entry::Device(..) | Entry::Peer(..)) => None,
    }
}

/// A route as it is written.
pub(crate) fn kernel_route(range: IpNet, wanted: &Route, index: u32) -> linux::Route {
    linux::Route { gateway: wanted.via, oif: Some(index), onlink: wanted.onlink, proto: PROTOCOL, ..linux::Route::to(range) }
}

/// A route without a way, as it is written. Who sends is told so at once (`EHOSTUNREACH`, ICMP).
pub(crate) fn closed_route(range: IpNet) -> linux::Route {
    linux::Route { kind: RouteKind::Unreachable, priority: closed_metric(range), proto: PROTOCOL, ..linux::Route::to(range) }
}

/// Takes away a route of ours that is like this one in everything that is given.
pub(crate) fn removal(route: &linux::Route) -> Request<'static> {
    route::delete_of_proto(route).tolerate(Errno::ESRCH)
}

/// The hardware address of a neighbour that a program has written; `None` for one that the kernel has asked for.
pub(crate) fn mac_of(neighbour: &Neighbour) -> Option<Mac> {
    neighbour.mac.as_ref().filter(|_| neighbour.permanent).and_then(ethernet)
}

/// An entry as a plan has it; `None` if no plan has.
pub(crate) fn forwarding(found: &FdbEntry) -> Option<(Mac, IpAddr)> {
    let mac = ethernet(&found.mac).filter(|_| found.plain && found.mac.is_unicast())?;
    Some((mac, found.endpoint?))
}

fn index_of(device: &Device, links: &BTreeMap<Device, u32>) -> Option<u32> {
    match device {
        Device::Link(index) => Some(*index),
        other => links.get(other).copied(),
    }
}

fn hardware_address(mac: Mac) -> Option<cni::Mac> {
    cni::Mac::from_bytes(&mac.0)
}
