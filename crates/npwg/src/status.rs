//! What a pod got: the annotation [`NETWORK_STATUS`] (S32 to S44).

use std::net::IpAddr;

use cni::{AddResult, Dns, IfName, Interface, IpConfig};
use json::{Object, Value};
use serde::{Serialize, Serializer};

use crate::DeviceInfo;

/// The pod's annotation that tells what it is attached to (S32).
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// One attachment of a pod, as the annotation tells it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkStatus {
    /// `namespace/name` of the definition, or the default network's name (S37).
    pub name: String,
    /// The interface in the pod (S38).
    pub interface: Option<String>,
    /// Its addresses, as [`StatusIps`] says (S39).
    pub ips: Vec<String>,
    /// Its hardware address; given only with an interface (S40).
    pub mac: Option<String>,
    /// Its MTU in bytes; Multus's, not in the standard.
    pub mtu: Option<u32>,
    /// Whether this is the pod's default network: true of one entry of a pod (S35, S41).
    pub default: bool,
    /// Name resolution (S42).
    pub dns: Dns,
    /// The gateways that the pod asked for with the selection's key `default-route` (S43).
    pub default_route: Option<Vec<IpAddr>>,
    /// The gateways of the attachment's default routes; Multus's key, which existing consumers read.
    pub gateway: Vec<IpAddr>,
    /// Information on the device, by the Device Information specification (S44).
    pub device_info: Option<DeviceInfo>,
    /// Keys that are not known here, as they came (S36).
    pub extensions: Object,
}

/// How addresses stand in the annotation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StatusIps {
    /// `192.0.2.2`, as Multus writes and every existing consumer expects.
    #[default]
    Bare,
    /// `192.0.2.2/24`, as in the standard's examples.
    Cidr,
}

// === impl NetworkStatus ===

impl NetworkStatus {
    /// The entry of one attachment, from the result of its ADD (S34): its first interface inside the pod with that
    /// interface's addresses and hardware address. A result that names no such interface is told with its addresses
    /// under `ifname`, the interface that was asked for (S38); a result without addresses too gives the minimal entry.
    /// `default` says whether this is the pod's default network.
    pub fn from_result(name: &str, result: &AddResult, ifname: &IfName, default: bool, ips: StatusIps) -> Self {
        let first = result.interfaces.iter().enumerate().find(|(_, i)| !i.sandbox.is_empty());
        let addresses = addresses(result, first.map(|(index, _)| index));
        let text = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let interface = match first {
            Some((_, interface)) => text(&interface.name).or_else(|| Some(ifname.to_string())),
            None => (!addresses.is_empty()).then(|| ifname.to_string()),
        };
        NetworkStatus {
            name: name.to_owned(),
            interface,
            ips: addresses.iter().map(|ip| ips.print(ip)).collect(),
            mac: first.and_then(|(_, i)| text(&i.mac)),
            mtu: first.map(|(_, i)| i.mtu).filter(|mtu| *mtu != 0),
            default,
            dns: result.dns.clone(),
            gateway: gateways(result, default),
            ..NetworkStatus::default()
        }
    }

    fn to_object(&self) -> Object {
        let mut pairs: Vec<(&str, Value)> = vec![("name", Value::from(self.name.as_str()))];
        pairs.extend(self.interface.as_deref().map(|name| ("interface", Value::from(name))));
        pairs.extend((!self.ips.is_empty()).then(|| ("ips", Value::from(self.ips.clone()))));
        pairs.extend(self.mac.as_deref().filter(|_| self.interface.is_some()).map(|mac| ("mac", Value::from(mac))));
        pairs.extend(self.mtu.map(|mtu| ("mtu", Value::from(u64::from(mtu)))));
        pairs.push(("default", Value::from(self.default)));
        // Present even if empty: Multus always writes it.
        pairs.push(("dns", dns(&self.dns).into()));
        pairs.extend(self.default_route.as_deref().map(|route| ("default-route", addresses_value(route))));
        pairs.extend((!self.gateway.is_empty()).then(|| ("gateway", addresses_value(&self.gateway))));
        pairs.extend(self.device_info.as_ref().map(|info| ("device-info", info.raw().clone().into())));
        let known = pairs.into_iter().map(|(key, value)| (key.to_owned(), value));
        known.chain(self.extensions.iter().map(|(key, value)| (key.to_owned(), value.clone()))).collect()
    }
}

impl Serialize for NetworkStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_object().serialize(serializer)
    }
}

/// The annotation's text: each entry indented by four, joined as Multus joins them, which is what people compare with.
pub fn to_json(entries: &[NetworkStatus]) -> String {
    let entries: Vec<String> = entries.iter().map(|entry| json::indented(entry, 4)).collect();
    format!("[{}]", entries.join(","))
}

// === impl StatusIps ===

impl StatusIps {
    fn print(self, ip: &IpConfig) -> String {
        match self {
            StatusIps::Bare => ip.address.addr().to_string(),
            StatusIps::Cidr => ip.address.to_string(),
        }
    }
}

/// The addresses of the first interface inside the pod (S39). One without an index is its as well where it is the only
/// interface inside: it can be nobody else's, and Multus's consumers see it. The standard takes only the first address
/// without an index where no interface is told; here it is all, or an attachment with two families would show one.
fn addresses(result: &AddResult, first: Option<usize>) -> Vec<&IpConfig> {
    let inside = result.interfaces.iter().filter(|i: &&Interface| !i.sandbox.is_empty()).count();
    let belongs = |ip: &&IpConfig| match ip.interface {
        Some(index) if index >= 0 => first.is_some_and(|first| i64::try_from(first) == Ok(index)),
        _ => inside <= 1,
    };
    result.ips.iter().filter(belongs).collect()
}

/// The next hops of the result's default routes; a route without one goes over the gateway of its family's address.
/// The default network's addresses imply a default route over their gateways where the result tells no route.
fn gateways(result: &AddResult, default: bool) -> Vec<IpAddr> {
    let of_family = |v4: bool| result.ips.iter().filter(move |ip| ip.address.addr().is_ipv4() == v4).find_map(|ip| ip.gateway);
    let mut gateways = Vec::new();
    for v4 in [true, false] {
        let mut routes = result.routes.iter().filter(|r| r.is_default() && r.dst.addr().is_ipv4() == v4).peekable();
        if routes.peek().is_none() && default {
            gateways.extend(of_family(v4));
        }
        for gateway in routes.filter_map(|r| r.gw.or_else(|| of_family(v4))) {
            if !gateways.contains(&gateway) {
                gateways.push(gateway);
            }
        }
    }
    gateways
}

fn dns(dns: &Dns) -> Object {
    let mut o = Object::new();
    let lists = |list: &Vec<String>| (!list.is_empty()).then(|| Value::from(list.clone()));
    let domain = (!dns.domain.is_empty()).then(|| Value::from(dns.domain.as_str()));
    let pairs =
        [("nameservers", lists(&dns.nameservers)), ("domain", domain), ("search", lists(&dns.search)), ("options", lists(&dns.options))];
    for (key, value) in pairs {
        if let Some(value) = value {
            o.set(key, value);
        }
    }
    o
}

fn addresses_value(list: &[IpAddr]) -> Value {
    Value::Array(list.iter().map(|ip| Value::from(ip.to_string())).collect())
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
