//! A route as a message, and back.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Family, Hop, MAIN, Route, RouteKind, Scope};
use crate::batch::Request;
use crate::uapi::rtnetlink::*;
use crate::wire::{Attributes, Message, Received, ip, u16_at, u32_at, with_octets};

/// Length of `struct rtmsg`.
const RTMSG: usize = 12;
/// Length of `struct rtnexthop`.
const RTNEXTHOP: usize = 8;

/// `struct rtmsg`: family, length of the destination's prefix, of the source's, TOS, table, protocol, scope, type, flags.
pub(super) fn header(family: u8, prefix: u8, proto: u8, scope: u8, kind: u8) -> [u8; RTMSG] {
    [family, prefix, 0, 0, 0, proto, scope, kind, 0, 0, 0, 0]
}

/// `proto` 0 in a deletion: of any protocol.
pub(super) fn request(verb: &str, kind: u16, how: u16, route: &Route, proto: u8) -> Request<'static> {
    let adding = kind == RTM_NEWROUTE;
    // What deletes must not ask for a scope that was not given: it would match no other route.
    let scope = match route.scope {
        Some(scope) => scope,
        None if adding => default_scope(route),
        None => Scope::Nowhere,
    };
    let mut fixed = header(route.family().number(), route.dst.prefix_len(), proto, scope.into(), route.kind.into());
    let [_, _, from_prefix, tos, table, _, _, _, flags @ ..] = &mut fixed;
    *from_prefix = route.from.map_or(0, |net| net.prefix_len());
    *tos = route.tos;
    // A number of more than eight bits is told by an attribute instead.
    let small = u8::try_from(route.table);
    *table = small.unwrap_or(0);
    if route.onlink {
        *flags = u32::from(RTNH_F_ONLINK).to_ne_bytes();
    }
    let mut message = Message::new(kind, how, &fixed);
    if !route.is_default() {
        with_octets(route.dst.network(), |octets| message.put(RTA_DST, octets));
    }
    if let Some(from) = route.from {
        with_octets(from.network(), |octets| message.put(RTA_SRC, octets));
    }
    if let Some(gateway) = route.gateway {
        put_gateway(&mut message, route.family(), gateway);
    }
    if route.priority != 0 {
        message.put_u32(RTA_PRIORITY, route.priority);
    }
    if small.is_err() {
        message.put_u32(RTA_TABLE, route.table);
    }
    if let Some(src) = route.src {
        with_octets(src, |octets| message.put(RTA_PREFSRC, octets));
    }
    if let Some(oif) = route.oif {
        message.put_u32(RTA_OIF, oif);
    }
    if let Some(object) = route.nexthop {
        message.put_u32(RTA_NH_ID, object);
    }
    put_metrics(&mut message, route);
    put_hops(&mut message, route);
    let mut what = words(verb, route);
    if !adding && proto != 0 {
        what.push_str(&format!(" proto {proto}"));
    }
    Request::new(what, message)
}

fn default_scope(route: &Route) -> Scope {
    match route.kind {
        RouteKind::Local => Scope::Host,
        RouteKind::Broadcast => Scope::Link,
        RouteKind::Unicast if route.ways().all(|(gateway, _)| gateway.is_none()) => Scope::Link,
        _ => Scope::Universe,
    }
}

fn put_gateway(message: &mut Message, family: Family, gateway: IpAddr) {
    with_octets(gateway, |octets| match Family::of(gateway) == family {
        true => message.put(RTA_GATEWAY, octets),
        // `struct rtvia`: the family, then the address.
        false => {
            let [low, high] = u16::from(Family::of(gateway).number()).to_ne_bytes();
            let via: Vec<u8> = [low, high].iter().chain(octets).copied().collect();
            message.put(RTA_VIA, &via);
        }
    });
}

fn put_metrics(message: &mut Message, route: &Route) {
    if route.mtu.is_none() && route.advmss.is_none() {
        return;
    }
    message.nest(RTA_METRICS, |metrics| {
        if let Some(mtu) = route.mtu {
            metrics.put_u32(RTAX_MTU, mtu);
        }
        if let Some(advmss) = route.advmss {
            metrics.put_u32(RTAX_ADVMSS, advmss);
        }
    });
}

fn put_hops(message: &mut Message, route: &Route) {
    if route.hops.is_empty() {
        return;
    }
    message.nest(RTA_MULTIPATH, |all| {
        for hop in &route.hops {
            let flags = if hop.onlink { RTNH_F_ONLINK } else { 0 };
            // The kernel counts weights from 0.
            let weight = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
            let [a, b, c, d] = hop.oif.to_ne_bytes();
            all.record(&[0, 0, flags, weight, a, b, c, d], |hop_message| {
                if let Some(gateway) = hop.gateway {
                    put_gateway(hop_message, route.family(), gateway);
                }
            });
        }
    });
}

pub(super) fn parse(message: &Received<'_>) -> Option<Route> {
    let (fixed, attributes) = message.payload.split_at_checked(RTMSG)?;
    let [number, prefix, from_prefix, tos, table, proto, scope, kind, flags @ ..] = fixed else { return None };
    let family = Family::from_number(*number)?;
    let mut route = Route::to(family.everything());
    route.table = u32::from(*table);
    route.proto = *proto;
    route.tos = *tos;
    route.scope = Some(Scope::from(*scope));
    route.kind = RouteKind::from(*kind);
    let mut dst = family.everything().addr();
    for (kind, value) in Attributes(attributes) {
        match kind {
            RTA_DST => dst = ip(value)?,
            RTA_SRC => route.from = IpNet::new(ip(value)?, *from_prefix).ok(),
            RTA_GATEWAY => route.gateway = ip(value),
            RTA_VIA => route.gateway = value.get(2..).and_then(ip),
            RTA_OIF => route.oif = u32_at(value),
            RTA_PREFSRC => route.src = ip(value),
            RTA_PRIORITY => route.priority = u32_at(value)?,
            RTA_TABLE => route.table = u32_at(value)?,
            RTA_METRICS => parse_metrics(value, &mut route),
            RTA_MULTIPATH => route.hops = parse_hops(value),
            RTA_NH_ID => route.nexthop = u32_at(value),
            _ => {}
        }
    }
    route.onlink = route.gateway.is_some() && flags.first_chunk().is_some_and(|f| u32::from_ne_bytes(*f) & u32::from(RTNH_F_ONLINK) != 0);
    if route.oif.is_some() || !route.hops.is_empty() {
        route.nexthop = None;
    }
    route.dst = IpNet::new(dst, *prefix).ok()?;
    (Family::of(dst) == family).then_some(route)
}

fn parse_metrics(value: &[u8], route: &mut Route) {
    for (kind, value) in Attributes(value) {
        match kind {
            RTAX_MTU => route.mtu = u32_at(value),
            RTAX_ADVMSS => route.advmss = u32_at(value),
            _ => {}
        }
    }
}

fn parse_hops(mut value: &[u8]) -> Vec<Hop> {
    let mut hops = Vec::new();
    while let Some(length) = u16_at(value).map(usize::from) {
        let Some(record) = value.get(..length) else { break };
        let Some(([_, _, flags, weight, oif @ ..], attributes)) = record.split_first_chunk::<RTNEXTHOP>() else { break };
        let gateway = Attributes(attributes).find_map(|(kind, value)| match kind {
            RTA_GATEWAY => ip(value),
            RTA_VIA => value.get(2..).and_then(ip),
            _ => None,
        });
        let oif = u32_at(oif).unwrap_or(0);
        hops.push(Hop { gateway, oif, weight: u16::from(*weight) + 1, onlink: flags & RTNH_F_ONLINK != 0 });
        value = value.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    hops
}

fn words(verb: &str, route: &Route) -> String {
    let mut what = format!("ip route {verb} {}", route.dst);
    let _ = (|| -> std::fmt::Result {
        for (gateway, oif) in route.ways() {
            if !route.hops.is_empty() {
                what.write_str(" nexthop")?;
            }
            gateway.map_or(Ok(()), |gateway| write!(what, " via {gateway}"))?;
            oif.map_or(Ok(()), |oif| write!(what, " dev if{oif}"))?;
        }
        route.nexthop.map_or(Ok(()), |object| write!(what, " nhid {object}"))?;
        if route.priority != 0 {
            write!(what, " metric {}", route.priority)?;
        }
        if route.tos != 0 {
            write!(what, " tos {}", route.tos)?;
        }
        if route.table != MAIN {
            write!(what, " table {}", route.table)?;
        }
        if route.onlink {
            what.write_str(" onlink")?;
        }
        Ok(())
    })();
    what
}

// === impl RouteKind ===

impl From<u8> for RouteKind {
    fn from(value: u8) -> Self {
        match value {
            1 => RouteKind::Unicast,
            2 => RouteKind::Local,
            3 => RouteKind::Broadcast,
            6 => RouteKind::Blackhole,
            7 => RouteKind::Unreachable,
            8 => RouteKind::Prohibit,
            other => RouteKind::Other(other),
        }
    }
}

impl From<RouteKind> for u8 {
    fn from(kind: RouteKind) -> Self {
        match kind {
            RouteKind::Unicast => 1,
            RouteKind::Local => 2,
            RouteKind::Broadcast => 3,
            RouteKind::Blackhole => 6,
            RouteKind::Unreachable => 7,
            RouteKind::Prohibit => 8,
            RouteKind::Other(other) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Messages;

    #[test]
    fn what_is_written_is_read() {
        let net = |s: &str| s.parse::<IpNet>().unwrap();
        let ip = |s: &str| Some(s.parse::<IpAddr>().unwrap());
        let whole = Route {
            gateway: ip("10.1.0.1"),
            oif: Some(3),
            priority: 7,
            table: 1000,
            tos: 8,
            src: ip("10.1.0.9"),
            mtu: Some(1400),
            advmss: Some(1360),
            onlink: true,
            scope: Some(Scope::Universe),
            ..Route::to(net("192.0.2.0/24"))
        };
        let hop = |gateway, oif, weight| Hop { gateway, oif, weight, onlink: false };
        let several = Route {
            hops: vec![hop(ip("fe80::1"), 4, 1), hop(ip("fe80::2"), 5, 256)],
            scope: Some(Scope::Universe),
            table: 252,
            ..Route::to(net("::/0"))
        };
        let mixed = Route {
            gateway: ip("fe80::1"),
            oif: Some(2),
            scope: Some(Scope::Universe),
            kind: RouteKind::Unicast,
            ..Route::to(net("0.0.0.0/0"))
        };
        let from = Route { from: Some(net("fd00:7::/48")), scope: Some(Scope::Universe), oif: Some(2), ..Route::to(net("::/0")) };
        for route in [whole, several, mixed, from] {
            let request = request("add", RTM_NEWROUTE, 0, &route, route.proto);
            let message = Messages(&request.message).next().unwrap();
            assert_eq!(parse(&message).as_ref(), Some(&route), "{}", request.what());
        }
    }

    #[test]
    fn odd_hops_are_left_out() {
        let whole = [8, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0, 1];
        assert_eq!(parse_hops(&whole).len(), 2);
        for cut in 0..whole.len() {
            let _ = parse_hops(&whole[..cut]);
            for byte in [0, 1, 7, 255] {
                let mut odd = whole;
                odd[cut] = byte;
                let _ = parse_hops(&odd);
            }
        }
    }
}
