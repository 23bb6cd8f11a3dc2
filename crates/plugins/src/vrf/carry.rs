//! What a link has, over the moment at which it gets another master.
//!
//! The kernel sets it down and up again (drivers/net/vrf.c, `cycle_netdev`). IPv4 addresses stay, and their networks' routes
//! come again, in the table of the new master. Other routes are gone, and so are IPv6 addresses unless
//! `keep_addr_on_down` is set.

use cni::CniError;
use linux::{AddrFlags, Address, Batch, Errno, Netlink, Route, RouteFilter, RouteKind, Scope, addr, route};

use crate::internal;

/// Who made a route: the kernel itself, or a router's advertisement, after which it comes again (linux/rtnetlink.h, `RTPROT_*`).
const PROTO_KERNEL: u8 = 2;
const PROTO_RA: u8 = 9;

/// The IPv6 addresses and the routes of a link that has no master.
#[derive(Debug, Clone)]
pub(super) struct Saved {
    index: u32,
    addresses: Vec<Address>,
    routes: Vec<Route>,
}

pub(super) fn save(netlink: &mut Netlink, index: u32) -> Result<Saved, CniError> {
    let addresses = global_addresses(netlink, index)?;
    let routes = routes_over(netlink, index)?;
    Ok(Saved { index, addresses, routes })
}

fn global_addresses(netlink: &mut Netlink, index: u32) -> Result<Vec<Address>, CniError> {
    let mut addresses = netlink.addresses(Some(index)).map_err(internal)?;
    let lasting = |a: &Address| a.scope == Scope::Universe && a.flags.contains(AddrFlags::PERMANENT);
    addresses.retain(|a| a.net.addr().is_ipv6() && lasting(a));
    Ok(addresses)
}

fn routes_over(netlink: &mut Netlink, index: u32) -> Result<Vec<Route>, CniError> {
    let filter = RouteFilter { oif: Some(index), ..RouteFilter::default() };
    let routes = netlink.routes(filter).map_err(internal)?;
    Ok(routes.iter().filter(|r| r.kind == RouteKind::Unicast).filter_map(|r| r.over(index)).collect())
}

impl Saved {
    /// Makes it so again, with the routes of the main table in this one.
    pub(super) fn put_back(&self, netlink: &mut Netlink, table: u32) -> Result<(), CniError> {
        let there = global_addresses(netlink, self.index)?;
        let lost = self.addresses.iter().filter(|a| !there.iter().any(|t| t.net == a.net));
        // They were asked for when they came first.
        let flags = |a: &Address| {
            let prefix = if a.flags.contains(AddrFlags::NOPREFIXROUTE) { AddrFlags::NOPREFIXROUTE } else { AddrFlags::NONE };
            AddrFlags::NODAD | prefix
        };
        netlink.send(lost.map(|a| addr::add(self.index, a.net, flags(a)).tolerate(Errno::EEXIST)).collect()).map_err(internal)?;
        linux::crash_point!("vrf-addresses-back");
        let mut routes: Vec<&Route> = self.routes.iter().filter(|r| r.proto != PROTO_KERNEL && r.proto != PROTO_RA).collect();
        // A gateway is accepted where there is a way to it.
        routes.sort_by_key(|r| r.gateway.is_some());
        let moved = |r: &Route| Route { table: if r.table == route::MAIN { table } else { r.table }, ..r.clone() };
        netlink.send(routes.into_iter().map(|r| route::add(&moved(r)).tolerate(Errno::EEXIST)).collect()).map_err(internal)?;
        // Now that no gateway is looked for any more.
        self.drop_new_networks(netlink, table)
    }

    /// A network's route that somebody had removed (as `ptp` does) is not wanted now either.
    fn drop_new_networks(&self, netlink: &mut Netlink, table: u32) -> Result<(), CniError> {
        let by_kernel = |r: &&Route| r.proto == PROTO_KERNEL && r.family() == linux::Family::V4;
        let was_there = |r: &Route| self.routes.iter().any(|old| old.proto == PROTO_KERNEL && old.dst == r.dst);
        let now = routes_over(netlink, self.index)?;
        let new = now.iter().filter(by_kernel).filter(|r| r.table == table && !was_there(r));
        let batch: Batch<'_> = new.map(|r| route::delete(r).tolerate(Errno::ESRCH)).collect();
        netlink.send(batch).map(drop).map_err(internal)
    }
}
