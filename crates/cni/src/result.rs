//! What ADD returns.
//!
//! There is one form in memory, a superset of every version; [`AddResult::parse`] reads any version into it, and
//! [`AddResult::print`](crate::AddResult::print) writes any version from it.

use std::net::IpAddr;

use ipnet::IpNet;
use json::Value;
use serde::Deserialize;

use crate::{CniError, Code, Family, Version, VersionError};

/// The result of ADD (SPEC 1.1.0, section 5): interfaces, addresses, routes and DNS of one attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddResult {
    /// Every interface that was made, inside and outside the container.
    pub interfaces: Vec<Interface>,
    /// The addresses that were assigned.
    pub ips: Vec<IpConfig>,
    /// The routes inside the container.
    pub routes: Vec<Route>,
    /// Name resolution.
    pub dns: Dns,
}

/// One interface of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address as text; empty where it has none.
    pub mac: String,
    /// Its MTU in bytes; 0 where not told (1.1.0).
    pub mtu: u32,
    /// The namespace's path; empty for an interface of the host.
    pub sandbox: String,
    /// A socket that stands for the interface; empty otherwise (1.1.0).
    pub socket_path: String,
    /// A PCI function's address; empty otherwise (1.1.0).
    pub pci_id: String,
}

/// One address of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfig {
    /// Index into [`AddResult::interfaces`]; `None` where the plugin does not say, as IPAM plugins do not.
    pub interface: Option<i64>,
    /// The address with its network's prefix length.
    pub address: IpNet,
    /// The default gateway of that network.
    pub gateway: Option<IpAddr>,
}

/// One route inside the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination as it was written, see [`Route::network`]; prefix length 0 is the default route.
    pub dst: IpNet,
    /// Next hop; `None` means the gateway of the address of the same family.
    pub gw: Option<IpAddr>,
    /// Path MTU in bytes (1.1.0).
    pub mtu: Option<u32>,
    /// Advertised maximal segment size in bytes (1.1.0).
    pub advmss: Option<u32>,
    /// Metric, lower is better (1.1.0).
    pub priority: Option<u32>,
    /// Routing table (1.1.0).
    pub table: Option<u32>,
    /// Scope, the kernel's number: 0 global, 253 link (1.1.0).
    pub scope: Option<u8>,
}

/// Name resolution for the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Name servers' addresses, in order.
    pub nameservers: Vec<String>,
    /// Local domain.
    pub domain: String,
    /// Search list.
    pub search: Vec<String>,
    /// Resolver options.
    pub options: Vec<String>,
}

/// Bytes that are no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The text is not JSON.
    #[error("the result is {0}")]
    Json(#[from] json::ParseError),
    /// A key has the wrong shape.
    #[error("in the result: {0}")]
    Shape(#[from] json::ReadError),
    /// `cniVersion` is not known.
    #[error("the result's cniVersion: {0}")]
    Version(#[from] VersionError),
    /// An address, route or gateway cannot be read.
    #[error("in the result: {path}: {text:?} is not a valid {expected}")]
    Address {
        /// Where it stands.
        path: String,
        /// What stands there.
        text: String,
        /// What belongs there.
        expected: &'static str,
    },
}

impl From<DecodeError> for CniError {
    fn from(e: DecodeError) -> Self {
        CniError::new(Code::DECODE, e.to_string())
    }
}

// === impl Dns ===

impl Dns {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.nameservers.is_empty() && self.domain.is_empty() && self.search.is_empty() && self.options.is_empty()
    }
}

// === impl Route ===

impl Route {
    /// A route with nothing but a destination and perhaps a next hop.
    pub fn new(dst: IpNet, gw: Option<IpAddr>) -> Self {
        Route { dst, gw, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }

    /// Where it leads: the destination without host bits. The kernel drops those of IPv6, and would refuse those of IPv4.
    pub fn network(&self) -> IpNet {
        self.dst.trunc()
    }

    /// Whether it is a default route of the main table, which packets take that no rule sends elsewhere. The table's
    /// number is 254; the kernel takes 0 for it, too (`include/uapi/linux/rtnetlink.h`).
    pub fn is_default(&self) -> bool {
        self.dst.prefix_len() == 0 && matches!(self.table, None | Some(0 | 254))
    }
}

// === impl AddResult ===

impl AddResult {
    /// Reads a result of any version; one that does not say its version has the version of its configuration.
    ///
    /// # Errors
    /// [`DecodeError`] naming the key.
    pub fn parse(bytes: &[u8], configured: Version) -> Result<(Self, Version), DecodeError> {
        Self::read(&json::parse(bytes)?, configured)
    }

    /// [`AddResult::parse`] for what is JSON already. `null` is the empty result, as the reference library has it.
    ///
    /// # Errors
    /// [`DecodeError`] naming the key.
    pub fn read(value: &Value, configured: Version) -> Result<(Self, Version), DecodeError> {
        let stated = value.as_object().and_then(|o| o.str("cniVersion")).filter(|s| !s.is_empty());
        let version = stated.map_or(Ok(configured), str::parse)?;
        let result = match version.family() {
            Family::V0_2 => json::read::<Raw02>(value)?.check()?,
            Family::V0_4 => json::read::<Raw>(value)?.without_news().check()?,
            Family::V1 => json::read::<Raw>(value)?.check()?,
        };
        Ok((result, version))
    }

    /// The first address of a family.
    pub fn first(&self, v4: bool) -> Option<&IpConfig> {
        self.ips.iter().find(|ip| ip.address.addr().is_ipv4() == v4)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    interfaces: Vec<RawInterface>,
    ips: Vec<RawIp>,
    routes: Vec<RawRoute>,
    dns: Dns,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct RawInterface {
    name: String,
    mac: String,
    mtu: u32,
    sandbox: String,
    socket_path: String,
    #[serde(rename = "pciID")]
    pci_id: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawIp {
    interface: Option<i64>,
    address: String,
    gateway: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawRoute {
    dst: String,
    gw: String,
    mtu: u32,
    advmss: u32,
    priority: u32,
    table: Option<u32>,
    scope: Option<u8>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw02 {
    ip4: Option<RawIp02>,
    ip6: Option<RawIp02>,
    dns: Dns,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawIp02 {
    ip: String,
    gateway: String,
    routes: Vec<RawRoute>,
}

impl Raw {
    /// What interfaces had only later is an unknown key in these versions.
    fn without_news(mut self) -> Self {
        for i in &mut self.interfaces {
            (i.mtu, i.socket_path, i.pci_id) = Default::default();
        }
        self
    }

    fn check(self) -> Result<AddResult, DecodeError> {
        let interfaces = self.interfaces.into_iter().map(RawInterface::take).collect();
        let ips = self.ips.iter().enumerate().map(|(i, raw)| {
            let place = format!("ips[{i}]");
            Ok(IpConfig {
                interface: raw.interface,
                address: net(&place, "address", &raw.address)?,
                gateway: gateway(&place, &raw.gateway)?,
            })
        });
        let ips = ips.collect::<Result<_, DecodeError>>()?;
        Ok(AddResult { interfaces, ips, routes: routes("routes", &self.routes)?, dns: self.dns })
    }
}

impl RawInterface {
    fn take(self) -> Interface {
        let RawInterface { name, mac, mtu, sandbox, socket_path, pci_id } = self;
        Interface { name, mac, mtu, sandbox, socket_path, pci_id }
    }
}

impl Raw02 {
    fn check(self) -> Result<AddResult, DecodeError> {
        let mut result = AddResult { dns: self.dns, ..AddResult::default() };
        for (place, raw) in [("ip4", self.ip4), ("ip6", self.ip6)] {
            let Some(raw) = raw else { continue };
            result.ips.push(IpConfig { interface: None, address: net(place, "ip", &raw.ip)?, gateway: gateway(place, &raw.gateway)? });
            result.routes.extend(routes(&format!("{place}.routes"), &raw.routes)?);
        }
        Ok(result)
    }
}

fn routes(place: &str, raw: &[RawRoute]) -> Result<Vec<Route>, DecodeError> {
    let one = |(i, r): (usize, &RawRoute)| -> Result<Route, DecodeError> {
        let place = format!("{place}[{i}]");
        let given = |n: u32| (n != 0).then_some(n);
        Ok(Route {
            mtu: given(r.mtu),
            advmss: given(r.advmss),
            priority: given(r.priority),
            table: r.table,
            scope: r.scope,
            ..Route::new(net(&place, "dst", &r.dst)?, gateway_of(&place, "gw", &r.gw)?)
        })
    };
    raw.iter().enumerate().map(one).collect()
}

fn net(place: &str, key: &str, text: &str) -> Result<IpNet, DecodeError> {
    let bad = |_| DecodeError::Address {
        path: format!("{place}.{key}"),
        text: text.chars().take(80).collect(),
        expected: "address with a prefix length, such as 10.1.2.3/24",
    };
    text.parse().map_err(bad)
}

fn gateway(place: &str, text: &str) -> Result<Option<IpAddr>, DecodeError> {
    gateway_of(place, "gateway", text)
}

fn gateway_of(place: &str, key: &str, text: &str) -> Result<Option<IpAddr>, DecodeError> {
    if text.is_empty() {
        return Ok(None);
    }
    let bad = |_| DecodeError::Address { path: format!("{place}.{key}"), text: text.chars().take(80).collect(), expected: "IP address" };
    text.parse().map(Some).map_err(bad)
}
