//! `ipam.routes`: the same for every IPAM plugin, copied to its result.

use std::net::IpAddr;

use cni::{CniError, Code, Route};
use ipnet::IpNet;
use serde::Deserialize;

use crate::{net, shown};

/// A route as it stands in a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RawRoute {
    /// Destination, as `0.0.0.0/0`.
    pub dst: String,
    /// Next hop; empty: the gateway of the address of the same family.
    pub gw: String,
    /// Path MTU in bytes; 0: the link's.
    pub mtu: u32,
    /// Advertised maximal segment size in bytes; 0: the kernel's choice.
    pub advmss: u32,
    /// Metric; 0: the kernel's choice.
    pub priority: u32,
    /// Routing table.
    pub table: Option<u32>,
    /// Scope, the kernel's number.
    pub scope: Option<u8>,
}

/// A route that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// A destination that is no network.
    #[error("{place}.dst: {text:?} is not a network: expected address/prefix length, such as 192.0.2.0/24 or 0.0.0.0/0")]
    Destination {
        /// The route.
        place: String,
        /// What stands there.
        text: String,
    },
    /// A next hop that is no address.
    #[error("{place}.gw: {text:?} is not an IP address")]
    Gateway {
        /// The route.
        place: String,
        /// What stands there.
        text: String,
    },
    /// A next hop of the other family.
    #[error("{place}.gw: {gw} is not of the same address family as the destination {dst}")]
    Family {
        /// The route.
        place: String,
        /// What stands there.
        gw: IpAddr,
        /// The destination.
        dst: IpNet,
    },
}

impl From<RouteError> for CniError {
    fn from(e: RouteError) -> Self {
        let (place, key) = match &e {
            RouteError::Destination { place, .. } => (place, "dst"),
            RouteError::Gateway { place, .. } | RouteError::Family { place, .. } => (place, "gw"),
        };
        CniError::new(Code::INVALID_CONFIG, e.to_string()).at(format!("{place}.{key}"))
    }
}

/// Checks all routes of a list; `place` is its key, as `ipam.routes`.
///
/// # Errors
/// [`RouteError`] naming the first bad one.
pub fn check_routes(place: &str, raw: &[RawRoute]) -> Result<Vec<Route>, RouteError> {
    raw.iter().enumerate().map(|(i, r)| check(format!("{place}[{i}]"), r)).collect()
}

fn check(place: String, raw: &RawRoute) -> Result<Route, RouteError> {
    let Some(dst) = net(&raw.dst) else { return Err(RouteError::Destination { place, text: shown(&raw.dst) }) };
    let gw = match raw.gw.as_str() {
        "" => None,
        text => match text.parse::<IpAddr>() {
            Ok(gw) => Some(gw.to_canonical()),
            Err(_) => return Err(RouteError::Gateway { place, text: shown(text) }),
        },
    };
    if let Some(gw) = gw.filter(|gw| gw.is_ipv4() != dst.addr().is_ipv4()) {
        return Err(RouteError::Family { place, gw, dst });
    }
    let given = |n: u32| (n != 0).then_some(n);
    Ok(Route {
        mtu: given(raw.mtu),
        advmss: given(raw.advmss),
        priority: given(raw.priority),
        table: raw.table,
        scope: raw.scope,
        ..Route::new(dst, gw)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let raw: Vec<RawRoute> =
            serde_json::from_str(r#"[{"dst":"0.0.0.0/0"},{"dst":"fd01::/64","gw":"fd00::1","mtu":1400,"table":7,"scope":0}]"#).unwrap();
        let routes = check_routes("ipam.routes", &raw).unwrap();
        assert_eq!(routes[0], Route::new("0.0.0.0/0".parse().unwrap(), None));
        assert_eq!((routes[1].mtu, routes[1].table, routes[1].scope, routes[1].priority), (Some(1400), Some(7), Some(0), None));
        for (dst, gw, expected) in [
            ("", "", "ipam.routes[0].dst: \"\" is not a network"),
            ("10.0.0.1", "", "is not a network"),
            ("10.0.0.0/24", "x", "ipam.routes[0].gw: \"x\" is not an IP address"),
            ("10.0.0.0/24", "fd00::1", "fd00::1 is not of the same address family as the destination 10.0.0.0/24"),
        ] {
            let raw = RawRoute { dst: dst.into(), gw: gw.into(), ..RawRoute::default() };
            let text = check_routes("ipam.routes", &[raw]).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}
