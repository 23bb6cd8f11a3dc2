//! A node forwards the packets of its pods, and keeps the default routes that routers advertise.

use thiserror::Error;

use crate::link::Ipv6Conf;
use crate::netlink::{Netlink, ReadError};
use crate::netns::Inside;
use crate::route::{self, Family, RouteFilter};
use crate::sysctl::{Sysctl, SysctlError};

/// Advertisements are taken although the node forwards.
const EVEN_AS_ROUTER: &str = "2";

/// A sysctl that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Which one.
    pub sysctl: Sysctl,
    /// Its value before.
    pub before: String,
    /// Its value now.
    pub now: &'static str,
}

/// Forwarding could not be turned on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// A sysctl cannot be read or written.
    #[error("cannot let the node forward packets: {0} (is /proc/sys mounted read-only?)")]
    Sysctl(SysctlError),
    /// The default routes, or their links, cannot be read.
    #[error("cannot let the node forward packets: {0}")]
    Read(ReadError),
}

/// Lets the node forward packets of a family (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`), if it does not yet. What was changed;
/// nothing where the kernel lacks the family.
///
/// When IPv6 forwarding is turned on, the kernel deletes the default routes that it has taken from router advertisements, and takes no more
/// (`rt6_purge_dflt_routers` in net/ipv6/route.c), except on links with `accept_ra` 2. So that is written first, to each link that has such
/// a route and an `accept_ra` of 1. Where it is 0 another program takes the advertisements (systemd-networkd, NetworkManager), and the
/// kernel leaves that program's routes alone.
///
/// # Errors
/// [`ForwardError`]. What was written before stays: each value by itself is harmless, and a second call goes on.
pub fn forward(inside: &Inside, netlink: &mut Netlink, family: Family) -> Result<Vec<Written>, ForwardError> {
    let switch = match family {
        Family::V4 => Sysctl::new(["net", "ipv4", "ip_forward"]),
        Family::V6 => Sysctl::new(["net", "ipv6", "conf", "all", "forwarding"]),
    };
    let switch = switch.map_err(ForwardError::Sysctl)?;
    // To write what is there already makes the kernel walk over all links. IPv6 has another value that forwards, too.
    if !switch.exists(inside) || switch.read(inside).map_err(ForwardError::Sysctl)? != "0" {
        return Ok(Vec::new());
    }
    let mut written = Vec::new();
    if family == Family::V6 {
        keep_advertised_routes(inside, netlink, &mut written)?;
    }
    switch.write(inside, "1").map_err(ForwardError::Sysctl)?;
    written.push(Written { sysctl: switch, before: "0".to_owned(), now: "1" });
    Ok(written)
}

fn keep_advertised_routes(inside: &Inside, netlink: &mut Netlink, written: &mut Vec<Written>) -> Result<(), ForwardError> {
    let routes =
        netlink.routes(RouteFilter { family: Some(Family::V6), table: Some(route::MAIN), oif: None }).map_err(ForwardError::Read)?;
    let advertised = routes.iter().filter(|route| route.is_default() && route.proto == route::PROTO_RA);
    let mut indexes: Vec<u32> = advertised.flat_map(|route| route.ways().filter_map(|(_, oif)| oif)).collect();
    indexes.sort_unstable();
    indexes.dedup();
    for index in indexes {
        let Some(link) = netlink.link_by_index(index).map_err(ForwardError::Read)? else { continue };
        if link.ipv6(Ipv6Conf::AcceptRa) == Some(1) {
            let sysctl = Sysctl::new(["net", "ipv6", "conf", &link.name, Ipv6Conf::AcceptRa.name()]).map_err(ForwardError::Sysctl)?;
            sysctl.write(inside, EVEN_AS_ROUTER).map_err(ForwardError::Sysctl)?;
            written.push(Written { sysctl, before: "1".to_owned(), now: EVEN_AS_ROUTER });
        }
    }
    Ok(())
}
