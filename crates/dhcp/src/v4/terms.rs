//! What a server granted, read from its DHCPACK.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cni::{AddResult, IpConfig, Route};
use ipnet::{IpNet, Ipv4Net};

use super::message::Message;
use super::option;
use crate::bytes::Bytes;
use crate::names;
use crate::times::Times;

/// How long a lease is whose server does not say: as in the reference plugin.
const DEFAULT_LENGTH: Duration = Duration::from_secs(3600);
/// The kernel's number of a route to a neighbour (linux/rtnetlink.h, `RT_SCOPE_LINK`).
const SCOPE_LINK: u8 = 253;

/// Why a lease is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Useless {
    #[error("DHCP option Subnet Mask not found in DHCPACK, or no mask: does the server have option 1?")]
    Mask,
    #[error("the server grants {0}, which is no address of a host")]
    Address(Ipv4Addr),
}

/// The address with its network's prefix length.
pub(crate) fn address(ack: &Message) -> Result<Ipv4Net, Useless> {
    let address = ack.yiaddr;
    if address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback() {
        return Err(Useless::Address(address));
    }
    let mask = ack.options.address(option::SUBNET_MASK).ok_or(Useless::Mask)?;
    Ipv4Net::with_netmask(address, mask).map_err(|_| Useless::Mask)
}

/// When it is to be renewed; it was asked for at `begun`.
pub(crate) fn times(ack: &Message, begun: Duration) -> Times {
    let options = &ack.options;
    let length = match options.get(option::LEASE_TIME) {
        Some(_) => options.seconds(option::LEASE_TIME),
        None => Some(DEFAULT_LENGTH),
    };
    Times::new(begun, length, options.seconds(option::T1), options.seconds(option::T2))
}

/// Adds address, routes and name servers to a result.
pub(crate) fn add_to(result: &mut AddResult, ack: &Message, priority: Option<u32>) -> Result<(), Useless> {
    let address = address(ack)?;
    let router = ack.options.addresses(option::ROUTERS).first().copied().filter(|r| !r.is_unspecified());
    result.ips.push(IpConfig { interface: None, address: IpNet::V4(address), gateway: router.map(IpAddr::V4) });
    result.routes.extend(routes(ack, router).into_iter().map(|route| Route { priority, ..route }));
    let dns = &mut result.dns;
    dns.nameservers.extend(ack.options.addresses(option::DNS).iter().map(ToString::to_string));
    if let Some(domain) = ack.options.get(option::DOMAIN).and_then(names::text) {
        dns.domain = domain;
    }
    add_new(&mut dns.search, names::read(ack.options.get(option::SEARCH).unwrap_or_default()));
    Ok(())
}

/// Those that are not there yet.
pub(crate) fn add_new(list: &mut Vec<String>, more: Vec<String>) {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

/// Classless routes where the server gives any; they stand for the others then, the router's too (RFC 3442).
fn routes(ack: &Message, router: Option<Ipv4Addr>) -> Vec<Route> {
    let classless = classless(Bytes(ack.options.get(option::CLASSLESS_ROUTES).unwrap_or_default()));
    if !classless.is_empty() {
        return classless;
    }
    let pairs = ack.options.addresses(option::STATIC_ROUTES);
    let static_route = |pair: &[Ipv4Addr]| match pair {
        // A default route is not to stand here (RFC 2132 5.8).
        [to, via] if !to.is_unspecified() => Some(Route::new(classful(*to), Some(IpAddr::V4(*via)))),
        _ => None,
    };
    let everywhere = router.map(|router| Route::new(IpNet::V4(Ipv4Net::default()), Some(IpAddr::V4(router))));
    pairs.chunks_exact(2).filter_map(static_route).chain(everywhere).collect()
}

fn classless(mut bytes: Bytes<'_>) -> Vec<Route> {
    let mut routes = Vec::new();
    while let Some(prefix) = bytes.u8() {
        let Some(significant) = bytes.take(usize::from(prefix).div_ceil(8)) else { break };
        let Some(router) = bytes.v4() else { break };
        let mut octets = [0; 4];
        octets.iter_mut().zip(significant).for_each(|(to, from)| *to = *from);
        let Ok(to) = Ipv4Net::new(Ipv4Addr::from(octets), prefix) else { break };
        let to = IpNet::V4(to.trunc());
        // Without a router the destination is on the link itself.
        routes.push(match router.is_unspecified() {
            true => Route { scope: Some(SCOPE_LINK), ..Route::new(to, Some(IpAddr::V4(router))) },
            false => Route::new(to, Some(IpAddr::V4(router))),
        });
    }
    routes
}

/// The network that an address names by its first bits (RFC 791 3.2).
fn classful(to: Ipv4Addr) -> IpNet {
    let prefix = match to.octets() {
        [0..=127, ..] => 8,
        [128..=191, ..] => 16,
        _ => 24,
    };
    Ipv4Net::new(to, prefix).map_or_else(|_| IpNet::from(IpAddr::V4(to)), |net| IpNet::V4(net.trunc()))
}

#[cfg(test)]
mod tests {
    use super::super::message::Kind;
    use super::*;

    fn ack(options: &[(u8, &[u8])]) -> Message {
        let mut ack = Message::new(Kind::Ack, 1, [2; 6]);
        ack.yiaddr = Ipv4Addr::new(10, 1, 2, 3);
        ack.options.set(option::SUBNET_MASK, [255, 255, 255, 0]);
        for (code, value) in options {
            ack.options.set(*code, *value);
        }
        ack
    }

    fn shown(ack: &Message) -> Vec<String> {
        let mut result = AddResult::default();
        add_to(&mut result, ack, Some(5)).unwrap();
        assert!(result.routes.iter().all(|r| r.priority == Some(5)));
        let scope = |r: &Route| r.scope.map(|s| format!(" scope {s}")).unwrap_or_default();
        result.routes.iter().map(|r| format!("{} via {}{}", r.dst, r.gw.unwrap(), scope(r))).collect()
    }

    #[test]
    fn routes() {
        let router: (u8, &[u8]) = (option::ROUTERS, &[10, 1, 2, 1]);
        assert_eq!(shown(&ack(&[router])), ["0.0.0.0/0 via 10.1.2.1"]);
        let statics: (u8, &[u8]) = (option::STATIC_ROUTES, &[172, 16, 0, 0, 10, 1, 2, 9, 0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(shown(&ack(&[router, statics])), ["172.16.0.0/16 via 10.1.2.9", "0.0.0.0/0 via 10.1.2.1"]);
        let classless: (u8, &[u8]) =
            (option::CLASSLESS_ROUTES, &[0, 10, 1, 2, 7, 12, 172, 16, 10, 1, 2, 8, 32, 9, 9, 9, 9, 0, 0, 0, 0, 24, 1]);
        let wanted = ["0.0.0.0/0 via 10.1.2.7", "172.16.0.0/12 via 10.1.2.8", "9.9.9.9/32 via 0.0.0.0 scope 253"];
        assert_eq!(shown(&ack(&[router, statics, classless])), wanted);
    }

    #[test]
    fn useless_leases() {
        let mut without = ack(&[]);
        without.options.set(option::SUBNET_MASK, [255, 0, 255, 0]);
        assert_eq!(address(&without), Err(Useless::Mask));
        let mut nobody = ack(&[]);
        nobody.yiaddr = Ipv4Addr::BROADCAST;
        assert!(address(&nobody).is_err());
    }
}
