//! Routes (`ip route`): one type, written and read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::errno::Errno;

use crate::batch::{Reply, Request};
use crate::netlink::{Netlink, ReadError};
use crate::uapi::family;
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use crate::uapi::rtnetlink::*;
use crate::wire::{Message, Received, with_octets};

mod nexthop;
mod wire;

/// The main routing table.
pub const MAIN: u32 = 254;
/// Routes that an administrator's program made (`proto boot`), as the reference CNI plugins mark theirs.
pub const PROTO_BOOT: u8 = 3;
/// Routes that a router has advertised (`proto ra`, RFC 4861).
pub const PROTO_RA: u8 = 9;

/// A route.
///
/// `Route { gateway: Some(ip), ..Route::to(net) }` is `ip route add NET via IP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where it leads; a prefix of length 0 is the default route.
    pub dst: IpNet,
    /// The next router; for an IPv4 destination it may be an IPv6 one (`via inet6`).
    pub gateway: Option<IpAddr>,
    /// Index of the link that packets leave by.
    pub oif: Option<u32>,
    /// Several ways at once (`nexthop ...`); `gateway` and `oif` are `None` then. The kernel tells an IPv6 route with several
    /// as one, whether they came together or one by one.
    pub hops: Vec<Hop>,
    /// Metric, the lowest wins; 0: the kernel's default, which is 0 for IPv4 and 1024 for IPv6.
    pub priority: u32,
    /// Routing table.
    pub table: u32,
    /// How far the destination is. `None` when written: chosen as `ip` does, link without and universe with a gateway.
    pub scope: Option<Scope>,
    /// Of packets from where; `None`: of all. Only IPv6 has such routes (`ip -6 route add ... from NET`).
    pub from: Option<IpNet>,
    /// Only for packets with this type of service (`tos`, IPv4); 0: for all.
    pub tos: u8,
    /// Source address for packets that have none yet.
    pub src: Option<IpAddr>,
    /// Bytes in a packet.
    pub mtu: Option<u32>,
    /// Bytes in a TCP segment that is offered to the other side.
    pub advmss: Option<u32>,
    /// Who made it (`RTPROT_*`, linux/rtnetlink.h).
    pub proto: u8,
    /// The gateway is reached over `oif` though no route says so.
    pub onlink: bool,
    /// What happens to packets.
    pub kind: RouteKind,
    /// The object that says its ways (`ip route add NET nhid NUMBER`); `gateway`, `oif` and `hops` are unset then. What [`Netlink::routes`]
    /// reads has the ways instead.
    pub nexthop: Option<u32>,
}

/// One of several next hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The next router.
    pub gateway: Option<IpAddr>,
    /// Index of the link that packets leave by.
    pub oif: u32,
    /// Its share among the hops, from 1 to 256.
    pub weight: u16,
    /// The gateway is reached over `oif` though no route says so.
    pub onlink: bool,
}

/// How far a destination or address is (`RT_SCOPE_*`, linux/rtnetlink.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// Anywhere (`global`).
    Universe,
    /// Within the site.
    Site,
    /// On the link.
    Link,
    /// This machine.
    Host,
    /// Nowhere.
    Nowhere,
    /// Another number.
    Other(u8),
}

/// What happens to packets (`RTN_*`, linux/rtnetlink.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RouteKind {
    /// They are sent on.
    #[default]
    Unicast,
    /// They are for this machine.
    Local,
    /// They are for this machine, and others.
    Broadcast,
    /// They vanish.
    Blackhole,
    /// The sender is told that there is no way.
    Unreachable,
    /// The sender is told that it is forbidden.
    Prohibit,
    /// Another number.
    Other(u8),
}

/// Which routes to read; what is `None` does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteFilter {
    /// Of this family.
    pub family: Option<Family>,
    /// Of this table.
    pub table: Option<u32>,
    /// Leaving by this link, with one of their hops at least.
    pub oif: Option<u32>,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

// === impl Family ===

impl Family {
    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// The network of all its addresses: the destination of a default route.
    pub fn everything(self) -> IpNet {
        match self {
            Family::V4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0)),
            Family::V6 => IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0)),
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Family::V4 => family::INET,
            Family::V6 => family::INET6,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            family::INET => Some(Family::V4),
            family::INET6 => Some(Family::V6),
            _ => None,
        }
    }
}

// === impl Scope ===

impl From<u8> for Scope {
    fn from(value: u8) -> Self {
        match value {
            0 => Scope::Universe,
            200 => Scope::Site,
            253 => Scope::Link,
            254 => Scope::Host,
            255 => Scope::Nowhere,
            other => Scope::Other(other),
        }
    }
}

impl From<Scope> for u8 {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Universe => 0,
            Scope::Site => 200,
            Scope::Link => 253,
            Scope::Host => 254,
            Scope::Nowhere => 255,
            Scope::Other(other) => other,
        }
    }
}

// === impl Route ===

impl Route {
    /// A unicast route in the main table, without gateway and link.
    pub fn to(dst: IpNet) -> Self {
        Route {
            dst,
            gateway: None,
            oif: None,
            hops: Vec::new(),
            priority: 0,
            table: MAIN,
            scope: None,
            from: None,
            tos: 0,
            src: None,
            mtu: None,
            advmss: None,
            proto: PROTO_BOOT,
            onlink: false,
            kind: RouteKind::Unicast,
            nexthop: None,
        }
    }

    /// IPv4 or IPv6.
    pub fn family(&self) -> Family {
        Family::of(self.dst.addr())
    }

    /// Whether it is a default route.
    pub fn is_default(&self) -> bool {
        self.dst.prefix_len() == 0
    }

    /// All next hops, be it one or several: gateway and link.
    pub fn ways(&self) -> impl Iterator<Item = (Option<IpAddr>, Option<u32>)> + '_ {
        let single = self.hops.is_empty().then_some((self.gateway, self.oif));
        single.into_iter().chain(self.hops.iter().map(|hop| (hop.gateway, Some(hop.oif))))
    }

    /// The route over one of its links alone; `None` if it does not lead over that link.
    pub fn over(&self, index: u32) -> Option<Route> {
        let hop = self.hops.iter().find(|hop| hop.oif == index);
        match hop {
            Some(hop) => {
                Some(Route { gateway: hop.gateway, oif: Some(index), onlink: hop.onlink || self.onlink, hops: Vec::new(), ..self.clone() })
            }
            None => (self.oif == Some(index)).then(|| self.clone()),
        }
    }

    pub(crate) fn parse(message: &Received<'_>) -> Option<Self> {
        wire::parse(message)
    }
}

/// Makes a route (`ip route add`). Errors: `EEXIST`, there is one to the same destination with the same metric in that table;
/// `ENETUNREACH`, the gateway is not on a network of the link's (add `onlink`); `ENETDOWN`, the link is down.
pub fn add(route: &Route) -> Request<'static> {
    wire::request("add", RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route, route.proto)
}

/// Makes a route, or puts it in the place of the first one to the same destination with the same metric in that table, in one step
/// (`ip route replace`). Whose that one is does not matter to the kernel. Errors: as [`add`]'s, but for `EEXIST`.
pub fn replace(route: &Route) -> Request<'static> {
    wire::request("replace", RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route, route.proto)
}

/// Deletes the route that is like this one in everything that is given, whoever made it (`ip route del`). Error: `ESRCH`, there is none.
pub fn delete(route: &Route) -> Request<'static> {
    wire::request("del", RTM_DELROUTE, 0, route, 0)
}

/// As [`delete`], only of a route that has the protocol `route.proto` (`ip route del ... proto PROTO`).
pub fn delete_of_proto(route: &Route) -> Request<'static> {
    wire::request("del", RTM_DELROUTE, 0, route, route.proto)
}

impl Netlink {
    /// Routes (`ip route show table TABLE dev LINK`), in the kernel's order.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Torn`] where routes come and go too fast to read them.
    pub fn routes(&mut self, filter: RouteFilter) -> Result<Vec<Route>, ReadError> {
        let family = filter.family.map_or(family::UNSPEC, Family::number);
        let mut question = Message::new(RTM_GETROUTE, 0, &wire::header(family, 0, 0, 0, 0));
        if let Some(table) = filter.table {
            question.put_u32(RTA_TABLE, table);
        }
        if let Some(oif) = filter.oif {
            question.put_u32(RTA_OIF, oif);
        }
        // No such table, no such link: no such routes.
        let none = [Errno::ENOENT, Errno::ENODEV];
        let is_wanted = |route: &Route| {
            filter.family.is_none_or(|family| family == route.family())
                && filter.table.is_none_or(|table| table == route.table)
                && filter.oif.is_none_or(|oif| route.nexthop.is_some() || route.ways().any(|(_, way)| way == Some(oif)))
        };
        let read = |m: &Received<'_>| (m.kind == RTM_NEWROUTE).then(|| Route::parse(m)).flatten().filter(is_wanted);
        let mut routes = self.dump("ip route show", question, &none, read)?;
        if nexthop::resolve(self, &mut routes)? {
            routes.retain(is_wanted);
        }
        Ok(routes)
    }

    /// Index of the link of the main table's default route with the lowest metric; `None`: there is no such route.
    ///
    /// # Errors
    /// As [`Netlink::routes`].
    pub fn default_route_link(&mut self, family: Family) -> Result<Option<u32>, ReadError> {
        let routes = self.routes(RouteFilter { family: Some(family), table: Some(MAIN), oif: None })?;
        let defaults = routes.iter().filter(|route| route.is_default() && route.kind == RouteKind::Unicast);
        let best = defaults.min_by_key(|route| route.priority);
        Ok(best.and_then(|route| route.ways().find_map(|(_, oif)| oif)))
    }

    /// The way that a packet to this address takes (`ip route get IP`); `None`: there is none. The destination of what
    /// comes back is the address alone.
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn route_to(&mut self, ip: IpAddr) -> Result<Option<Route>, ReadError> {
        let family = Family::of(ip);
        let length = if ip.is_ipv4() { 32 } else { 128 };
        let mut question = Message::new(RTM_GETROUTE, 0, &wire::header(family.number(), length, 0, 0, 0));
        with_octets(ip, |octets| question.put(RTA_DST, octets));
        let request = Request::new(format!("ip route get {ip}"), question).tolerate(Errno::ENETUNREACH).tolerate(Errno::EHOSTUNREACH);
        Ok(self.ask(request)?.and_then(|reply| match reply {
            Reply::Route(route) if route.kind == RouteKind::Unicast || route.kind == RouteKind::Local => Some(*route),
            _ => None,
        }))
    }
}
