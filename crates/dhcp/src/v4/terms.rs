//! What a server granted, read from its DHCPACK.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cni::{AddResult, IpConfig, Route};
use dhcproto::v4::{DhcpOption, Message, OptionCode};
use ipnet::{IpNet, Ipv4Net};

use super::message::said;
use crate::names;
use crate::times::Times;

/// How long a lease is whose server does not say: as in the reference plugin.
const DEFAULT_LENGTH: Duration = Duration::from_secs(3600);
/// The kernel's number of a route to a neighbour (linux/rtnetlink.h, `RT_SCOPE_LINK`).
const SCOPE_LINK: u8 = 253;

/// Why a lease is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Useless {
    #[error("DHCP option Subnet Mask not found in DHCPACK, or it is invalid: check option 1 of the server")]
    Mask,
    #[error("the server grants {0}, which is not the address of a host")]
    Address(Ipv4Addr),
}

/// The address with its network's prefix length.
pub(crate) fn address(ack: &Message) -> Result<Ipv4Net, Useless> {
    let address = ack.yiaddr();
    if address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback() {
        return Err(Useless::Address(address));
    }
    let mask = *said!(ack, SubnetMask).ok_or(Useless::Mask)?;
    Ipv4Net::with_netmask(address, mask).map_err(|_| Useless::Mask)
}

/// When it is to be renewed; it was asked for at `begun`.
pub(crate) fn times(ack: &Message, begun: Duration) -> Times {
    let length = said!(ack, AddressLeaseTime).map_or(Some(DEFAULT_LENGTH), |s| seconds(*s));
    let [t1, t2] = [said!(ack, Renewal), said!(ack, Rebinding)].map(|s| s.and_then(|s| seconds(*s)));
    Times::new(begun, length, t1, t2)
}

/// `None` for a number that means for ever.
pub(crate) fn seconds(number: u32) -> Option<Duration> {
    (number != u32::MAX).then(|| Duration::from_secs(number.into()))
}

/// Adds address, routes and name servers to a result.
pub(crate) fn add_to(result: &mut AddResult, ack: &Message, priority: Option<u32>) -> Result<(), Useless> {
    let address = address(ack)?;
    let router = said!(ack, Router).and_then(|all| all.first()).copied().filter(|r| !r.is_unspecified());
    result.ips.push(IpConfig { interface: None, address: IpNet::V4(address), gateway: router.map(IpAddr::V4) });
    result.routes.extend(routes(ack, router).into_iter().map(|route| Route { priority, ..route }));
    let dns = &mut result.dns;
    dns.nameservers.extend(said!(ack, DomainNameServer).into_iter().flatten().map(ToString::to_string));
    if let Some(domain) = said!(ack, DomainName).and_then(|name| names::text(name)) {
        dns.domain = domain;
    }
    add_new(&mut dns.search, said!(ack, DomainSearch).map(|names| names::list(names)).unwrap_or_default());
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
    if let Some(routes) = said!(ack, ClasslessStaticRoute) {
        return routes.iter().map(|(to, router)| classless(*to, *router)).collect();
    }
    let pairs = said!(ack, StaticRoutingTable).into_iter().flatten();
    // A default route is not to stand here (RFC 2132 5.8).
    let pairs = pairs.filter(|(to, _)| !to.is_unspecified());
    let static_routes = pairs.map(|(to, via)| Route::new(classful(*to), Some(IpAddr::V4(*via))));
    let everywhere = router.map(|router| Route::new(IpNet::V4(Ipv4Net::default()), Some(IpAddr::V4(router))));
    static_routes.chain(everywhere).collect()
}

/// Without a router the destination is on the link itself.
fn classless(to: Ipv4Net, router: Ipv4Addr) -> Route {
    let scope = router.is_unspecified().then_some(SCOPE_LINK);
    Route { scope, ..Route::new(IpNet::V4(to.trunc()), Some(IpAddr::V4(router))) }
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
    use super::super::message;
    use super::*;
    use dhcproto::v4::MessageType;

    fn ack(options: &[DhcpOption]) -> Message {
        let mut ack = message::new(MessageType::Ack, 1, [2; 6]);
        ack.set_yiaddr([10, 1, 2, 3]).opts_mut().insert(DhcpOption::SubnetMask([255, 255, 255, 0].into()));
        for option in options {
            ack.opts_mut().insert(option.clone());
        }
        message::parse(&message::print(&ack)).unwrap()
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
        let raw = message::raw;
        let router = DhcpOption::Router(vec![[10, 1, 2, 1].into()]);
        assert_eq!(shown(&ack(std::slice::from_ref(&router))), ["0.0.0.0/0 via 10.1.2.1"]);
        let statics = raw(OptionCode::StaticRoutingTable, &[172, 16, 0, 0, 10, 1, 2, 9, 0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(shown(&ack(&[router.clone(), statics.clone()])), ["172.16.0.0/16 via 10.1.2.9", "0.0.0.0/0 via 10.1.2.1"]);
        let bytes = [0, 10, 1, 2, 7, 12, 172, 16, 10, 1, 2, 8, 32, 9, 9, 9, 9, 0, 0, 0, 0];
        let classless = raw(OptionCode::ClasslessStaticRoute, &bytes);
        let torn = raw(OptionCode::ClasslessStaticRoute, &[&bytes[..], &[24, 1]].concat());
        assert_eq!(shown(&ack(&[router.clone(), torn])), ["0.0.0.0/0 via 10.1.2.1"], "half a list is none");
        let wanted = ["0.0.0.0/0 via 10.1.2.7", "172.16.0.0/12 via 10.1.2.8", "9.9.9.9/32 via 0.0.0.0 scope 253"];
        assert_eq!(shown(&ack(&[router, statics, classless])), wanted);
    }

    #[test]
    fn useless_leases() {
        let without = ack(&[DhcpOption::SubnetMask([255, 0, 255, 0].into())]);
        assert_eq!(address(&without), Err(Useless::Mask));
        let mut nobody = ack(&[]);
        nobody.set_yiaddr(Ipv4Addr::BROADCAST);
        assert!(address(&nobody).is_err());
    }
}
