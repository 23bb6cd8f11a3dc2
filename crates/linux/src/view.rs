//! The links, addresses and routes of a namespace, kept as the kernel reports changes of them.
//!
//! ```text
//!   first look ---------> all three lists are read
//!   every other look ---> what was reported since is done to the lists
//!                         a report that does not say all --> the list that it is about is read again
//! ```
//!
//! To list links the kernel takes the lock under which links are made (`rtnl_mutex`), and who asks waits for all that make some. A report
//! takes no lock, and is there before the call returns that made the change: a look sees what the lists would show if they were read.
//!
//! Not every change is reported: with a link that goes down, and with the address that they send from, IPv4 routes go silently
//! (`fib_sync_down_dev`, `fib_sync_down_addr` in net/ipv4/fib_semantics.c). Where a route may have gone so, routes are read again. What
//! changes without a report and without such a sign is left out: see [`Snapshot`].

use std::sync::Arc;
use std::time::Duration;

use netlink_sys::Socket;
use nix::errno::Errno;

use crate::addr::{AddrFlags, Address};
use crate::link::{self, Change, LOOPBACK, Link};
use crate::monitor::{self, Notice, Object};
use crate::netlink::{Netlink, OpenError, ReadError};
use crate::netns::Inside;
use crate::receive::Buffer;
use crate::route::{Route, RouteFilter, Scope};
use crate::uapi::netlink::NLM_F_REPLACE;
use crate::uapi::rtnetlink::*;
use crate::wire::{Messages, Received};

const GROUPS: [u32; 6] = [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_NEXTHOP];

/// What the kernel may keep for us between two looks, in bytes: the reports of a few hundred pods. After more, everything is read again.
const ROOM: usize = 1 << 20;

/// Reports that one look takes in, that it ends however fast they come. After more, everything is read again.
const AT_ONCE: usize = 8192;

/// All links, addresses and routes of a namespace, of one moment.
///
/// The kernel reports no change of these: of a link how many want it promiscuous, its flags and state as a bridge's port and its settings
/// for IPv6, and of a route its metrics. They are as if the kernel had not told them. An IPv6 address that the kernel or a router has given a
/// link is there once nobody else is found to have it. Of a link that is down, the group, the altnames, the alias and what it is made with may
/// be those that it had when it was last reported: who is about to use a link asks for it. In which other namespace the other end of a link is
/// may be outdated, but not whether it is in another one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// In the order of their indexes.
    pub links: Arc<Vec<Link>>,
    /// IPv4 first, in the order of their links' indexes; of one link in the kernel's.
    pub addresses: Arc<Vec<Address>>,
    /// Of all tables: IPv4 first, in the order of their tables, destinations and priorities; of one destination in the kernel's.
    pub routes: Arc<Vec<Route>>,
}

/// A namespace that is looked at again and again.
#[derive(Debug)]
pub struct View {
    reports: Socket,
    netlink: Netlink,
    now: Snapshot,
    unknown: Unknown,
}

/// Which lists have to be read again.
#[derive(Debug, Clone, Copy, Default)]
struct Unknown {
    links: bool,
    addresses: bool,
    routes: bool,
    /// The kernel may still be at work on what it has reported.
    unfinished: bool,
}

// === impl Snapshot ===

impl Snapshot {
    /// Reads all three lists.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(netlink: &mut Netlink) -> Result<Self, ReadError> {
        let mut all = Snapshot::default();
        all.read_again(netlink, Unknown::ALL)?;
        Ok(all)
    }

    fn read_again(&mut self, netlink: &mut Netlink, unknown: Unknown) -> Result<(), ReadError> {
        if unknown.links {
            self.links = Arc::new(netlink.links()?.into_iter().map(Link::reported).collect());
        }
        if unknown.addresses {
            let mut all = netlink.addresses(None)?;
            all.retain(is_reported);
            all.sort_by_key(place_of_address);
            self.addresses = Arc::new(all);
        }
        if unknown.routes {
            let mut all: Vec<Route> = netlink.routes(RouteFilter::default())?.into_iter().map(reported).collect();
            all.sort_by_key(place_of_route);
            self.routes = Arc::new(all);
        }
        Ok(())
    }
}

/// The same without what changes while the kernel reports nothing.
fn reported(route: Route) -> Route {
    Route { mtu: None, advmss: None, ..route }
}

/// Whether an address is one that the kernel reports.
fn is_reported(address: &Address) -> bool {
    let is_made_by_kernel = || !address.flags.contains(AddrFlags::PERMANENT) || address.scope == Scope::Link;
    !(address.flags.contains(AddrFlags::TENTATIVE) && is_made_by_kernel())
}

fn place_of_address(address: &Address) -> (bool, u32) {
    (address.net.addr().is_ipv6(), address.index)
}

fn place_of_route(route: &Route) -> (bool, u32, ipnet::IpNet, u32) {
    (route.dst.addr().is_ipv6(), route.table, route.dst, route.priority)
}

/// Whether the kernel puts a new route behind those of the same place: an IPv6 one that cannot become one of their hops (`fib6_add_rt2node` in
/// net/ipv6/ip6_fib.c), as each link has one to `fe80::/64`.
fn is_last(route: &Route) -> bool {
    route.dst.addr().is_ipv6() && route.gateway.is_none() && route.hops.is_empty() && route.nexthop.is_none()
}

/// Whether two addresses are one to the kernel, which may have other flags now, or another end.
fn is_same_address(one: &Address, other: &Address) -> bool {
    let is_same = one.index == other.index && one.net.addr() == other.net.addr();
    is_same && (one.net.addr().is_ipv6() || (one.net, one.peer) == (other.net, other.peer))
}

// === impl Unknown ===

impl Unknown {
    const NOTHING: Unknown = Unknown { links: false, addresses: false, routes: false, unfinished: false };
    const ALL: Unknown = Unknown { links: true, addresses: true, routes: true, unfinished: true };
}

// === impl View ===

impl View {
    /// A view of the namespace that this thread is in. Nothing is read before the first look.
    ///
    /// # Errors
    /// [`OpenError`] when there is no descriptor left.
    pub fn open(inside: &Inside) -> Result<Self, OpenError> {
        let reports = monitor::listen(inside, &GROUPS, ROOM)?;
        Ok(View { reports, netlink: Netlink::open(inside)?, now: Snapshot::default(), unknown: Unknown::ALL })
    }

    /// What is there now: all that was done before this call, and perhaps what is done during it.
    ///
    /// # Errors
    /// [`ReadError`]: the next look begins anew.
    pub fn look(&mut self) -> Result<Snapshot, ReadError> {
        self.take_reports();
        // The first report of one end of a pair is older than the other end.
        self.unknown.links |= self.now.links.iter().any(|link| link.parent.is_none() && (link.is("veth") || link.is("netkit")));
        let unknown = std::mem::replace(&mut self.unknown, Unknown::ALL);
        if unknown.unfinished {
            // Nothing is changed by this, but it waits until what is being done to links has been done.
            let wait = link::set(LOOPBACK, &Change::default());
            self.netlink.send_one(wait).map_err(|e| ReadError::Refused(e.first().clone()))?;
        }
        self.now.read_again(&mut self.netlink, unknown)?;
        self.unknown = Unknown::NOTHING;
        Ok(self.now.clone())
    }

    /// Takes in what has been reported, so that the next look finds less to do. Nothing before the first look.
    pub fn keep_up(&mut self) {
        if !self.now.links.is_empty() {
            self.take_reports();
        }
    }

    /// Takes in all reports that are there. Some may be of what the lists had already when they were read: what comes last is true.
    fn take_reports(&mut self) {
        let mut buffer = Buffer::take();
        for _ in 0..AT_ONCE {
            match monitor::receive(&self.reports, &mut buffer, Some(Duration::ZERO)) {
                Ok(()) => Messages(&buffer).for_each(|message| self.take(&message)),
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                // More was reported than there is room for.
                Err(_) => self.unknown = Unknown::ALL,
            }
        }
        self.unknown = Unknown::ALL;
    }

    fn take(&mut self, message: &Received<'_>) {
        match message.kind {
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => self.unknown.routes = true,
            // The one that it takes the place of is not told.
            RTM_NEWROUTE if message.flags & NLM_F_REPLACE != 0 => self.unknown.routes = true,
            _ => match monitor::read(message) {
                Some(Notice::Present(Object::Link(link))) => self.link(*link),
                Some(Notice::Gone(Object::Link(link))) => self.link_is_gone(link.index),
                Some(Notice::Present(Object::Address(address))) if is_reported(&address) => self.address(*address),
                Some(Notice::Gone(Object::Address(address))) => self.address_is_gone(&address),
                Some(Notice::Present(Object::Route(route))) => self.route(*route),
                Some(Notice::Gone(Object::Route(route))) => self.route_is_gone(*route),
                _ => {}
            },
        }
    }

    fn link(&mut self, link: Link) {
        let link = link.reported();
        let place = self.now.links.binary_search_by_key(&link.index, |link| link.index);
        let before = place.ok().and_then(|place| self.now.links.get(place));
        if before == Some(&link) {
            return;
        }
        let went_down = before.is_some_and(|before| before.flags.up()) && !link.flags.up();
        // What stands on a link, or is the other end of one, is told from where it is, and not that the other comes and goes.
        let became_parent = before.is_none() && self.is_parent(link.index);
        self.unknown.links |= became_parent;
        if went_down {
            self.routes_over_are_unknown(link.index);
        }
        let links = Arc::make_mut(&mut self.now.links);
        match place {
            Ok(place) => links.splice(place..=place, [link]),
            Err(place) => links.splice(place..place, [link]),
        };
    }

    fn link_is_gone(&mut self, index: u32) {
        self.routes_over_are_unknown(index);
        if let Ok(place) = self.now.links.binary_search_by_key(&index, |link| link.index) {
            Arc::make_mut(&mut self.now.links).remove(place);
        }
        if self.is_parent(index) {
            (self.unknown.links, self.unknown.unfinished) = (true, true);
        }
        if self.now.addresses.iter().any(|address| address.index == index) {
            Arc::make_mut(&mut self.now.addresses).retain(|address| address.index != index);
        }
    }

    fn is_parent(&self, index: u32) -> bool {
        self.now.links.iter().any(|link| link.parent == Some(index))
    }

    /// Routes over a link go silently where it goes down.
    fn routes_over_are_unknown(&mut self, index: u32) {
        if self.now.routes.iter().any(|route| route.ways().any(|(_, oif)| oif == Some(index))) {
            (self.unknown.routes, self.unknown.unfinished) = (true, true);
        }
    }

    fn address(&mut self, address: Address) {
        let place = place_of_address(&address);
        let before = self.now.addresses.iter().position(|one| is_same_address(one, &address));
        match before {
            Some(at) if self.now.addresses.get(at) == Some(&address) => {}
            Some(at) => drop(Arc::make_mut(&mut self.now.addresses).splice(at..=at, [address])),
            // Which comes first is the kernel's choice.
            None if self.now.addresses.iter().any(|one| place_of_address(one) == place) => self.unknown.addresses = true,
            None => {
                let at = self.now.addresses.partition_point(|one| place_of_address(one) < place);
                Arc::make_mut(&mut self.now.addresses).insert(at, address);
            }
        }
    }

    fn address_is_gone(&mut self, address: &Address) {
        self.routes_over_are_unknown(address.index);
        if self.now.routes.iter().any(|route| route.src == Some(address.net.addr())) {
            (self.unknown.routes, self.unknown.unfinished) = (true, true);
        }
        let Some(at) = self.now.addresses.iter().position(|one| is_same_address(one, address)) else { return };
        Arc::make_mut(&mut self.now.addresses).remove(at);
        // The kernel may have put another one in its place.
        self.unknown.addresses |= self.now.addresses.iter().any(|one| place_of_address(one) == place_of_address(address));
        self.unknown.unfinished |= self.unknown.addresses;
    }

    fn route(&mut self, route: Route) {
        // Its ways are not told.
        self.unknown.routes |= route.nexthop.is_some();
        let route = reported(route);
        let place = place_of_route(&route);
        let at = self.now.routes.partition_point(|one| place_of_route(one) < place);
        let same = || self.now.routes.iter().skip(at).take_while(|one| place_of_route(one) == place);
        if same().next().is_none() {
            Arc::make_mut(&mut self.now.routes).insert(at, route);
        } else if same().all(|one| *one != route) && is_last(&route) {
            let behind = same().count();
            Arc::make_mut(&mut self.now.routes).insert(at + behind, route);
        } else if same().all(|one| *one != route) {
            // It stands before or behind the others, or makes one with them.
            self.unknown.routes = true;
        }
    }

    fn route_is_gone(&mut self, route: Route) {
        let route = reported(route);
        let place = place_of_route(&route);
        let at = self.now.routes.partition_point(|one| place_of_route(one) < place);
        let mut same = self.now.routes.iter().skip(at).take_while(|one| place_of_route(one) == place);
        match same.position(|one| *one == route) {
            Some(behind) => drop(Arc::make_mut(&mut self.now.routes).remove(at + behind)),
            // One of several hops.
            None => self.unknown.routes = true,
        }
    }
}
