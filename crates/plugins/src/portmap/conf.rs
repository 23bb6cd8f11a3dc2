//! The keys of `portmap`, as received and as checked.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cni::{CniError, Config};
use ipnet::IpNet;
use rules::{HostPort, Protocol, Rewrite};
use serde::Deserialize;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    backend: String,
    snat: Option<bool>,
    masq_all: bool,
    #[serde(rename = "conditionsV4")]
    conditions_v4: Vec<String>,
    #[serde(rename = "conditionsV6")]
    conditions_v6: Vec<String>,
    mark_masq_bit: Option<i64>,
    external_set_mark_chain: Option<String>,
    runtime_config: RuntimeKeys,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct RuntimeKeys {
    port_mappings: Vec<MappingKeys>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct MappingKeys {
    host_port: i64,
    container_port: i64,
    protocol: String,
    #[serde(rename = "hostIP")]
    host_ip: String,
}

/// The checked configuration.
pub(super) struct Conf {
    /// What is rewritten on the way to the container; `None`: nothing (`snat: false`).
    pub(super) rewrite: Option<Rewrite>,
    pub(super) mappings: Vec<Mapping>,
}

/// One element of `portMappings`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    protocol: Protocol,
    at: At,
    host_port: u16,
    container_port: u16,
}

/// Where a port is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// At all addresses.
    Everywhere,
    /// At all of one family: `hostIP` is `0.0.0.0` or `::`.
    Ipv4,
    Ipv6,
    /// At one.
    One(IpAddr),
}

// === impl Conf ===

impl Conf {
    pub(super) fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        unsupported(&keys)?;
        let rewrite = match (keys.snat.unwrap_or(true), keys.masq_all) {
            (false, _) => None,
            (true, false) => Some(Rewrite::Hairpin),
            (true, true) => Some(Rewrite::Everything),
        };
        let mappings = keys.runtime_config.port_mappings.iter().enumerate().map(|(i, m)| Mapping::read(i, m));
        let mappings: Vec<Mapping> = mappings.collect::<Result<_, _>>()?;
        distinct(&mappings)?;
        Ok(Conf { rewrite, mappings })
    }

    /// What is published of one address.
    pub(super) fn ports(&self, address: IpNet) -> Vec<HostPort> {
        let mut ports: Vec<HostPort> = self.mappings.iter().filter_map(|m| m.of(address.addr())).collect();
        ports.sort();
        ports.dedup();
        ports
    }
}

/// What is said in the words of iptables, or needs rules of one attachment.
fn unsupported(keys: &Keys) -> Result<(), CniError> {
    const ONLY: &str = "portmap works with nftables, where an attachment has elements of maps and no rules";
    match keys.backend.as_str() {
        "" | "nftables" => {}
        "iptables" => return Err(CniError::unsupported("backend", "\"iptables\"", &format!("{ONLY}: remove the key"))),
        other => return Err(CniError::invalid("backend", format!("unrecognized backend {other:?}: \"nftables\" is known"))),
    }
    for (key, conditions) in [("conditionsV4", &keys.conditions_v4), ("conditionsV6", &keys.conditions_v6)] {
        if conditions.iter().any(|c| !c.is_empty()) {
            let why = format!("{ONLY}: publish the port at one address of the host with hostIP, or remove the key");
            return Err(CniError::unsupported(key, format!("{conditions:?}"), &why));
        }
    }
    if keys.mark_masq_bit.is_some() && keys.external_set_mark_chain.is_some() {
        return Err(CniError::invalid("markMasqBit", "Cannot specify externalSetMarkChain and markMasqBit"));
    }
    if let Some(bit) = keys.mark_masq_bit {
        return Err(CniError::unsupported("markMasqBit", bit, &format!("{ONLY}, and sets no mark: remove the key")));
    }
    match keys.external_set_mark_chain.as_deref() {
        None | Some("") => Ok(()),
        Some(chain) => {
            let why = format!("{ONLY}, and needs no other program's chain: remove the key");
            Err(CniError::unsupported("externalSetMarkChain", format!("{chain:?}"), &why))
        }
    }
}

/// Two mappings of one host port that lead to different places: which one would win?
fn distinct(mappings: &[Mapping]) -> Result<(), CniError> {
    for family in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let mut known = BTreeMap::new();
        for (i, port) in mappings.iter().enumerate().filter_map(|(i, m)| Some((i, m.of(family)?))) {
            let to = port.to.port();
            let (first, other) = *known.entry((port.protocol, port.port, port.at)).or_insert((i, to));
            if other != to {
                let why =
                    format!("hostPort {}/{} leads to containerPort {other} already, by mapping {first}", port.port, port.protocol.name());
                return Err(CniError::invalid(&format!("runtimeConfig.portMappings[{i}]"), why));
            }
        }
    }
    Ok(())
}

// === impl Mapping ===

impl Mapping {
    fn read(i: usize, keys: &MappingKeys) -> Result<Self, CniError> {
        let place = format!("runtimeConfig.portMappings[{i}]");
        let bad = |why: String| CniError::invalid(&place, why);
        let port = |what: &str, n: i64| match u16::try_from(n) {
            Ok(port) if port != 0 => Ok(port),
            _ => Err(bad(format!("Invalid {what} port number: {n}"))),
        };
        let container_port = port("container", keys.container_port)?;
        let host_port = port("host", keys.host_port)?;
        let protocol = Protocol::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(&keys.protocol));
        let protocol = protocol.ok_or_else(|| bad(format!("protocol {:?} is unknown: tcp, udp and sctp are known", keys.protocol)))?;
        let ip = Some(keys.host_ip.as_str()).filter(|ip| !ip.is_empty());
        let ip: Option<IpAddr> = ip.map(|ip| ip.parse().map_err(|_| bad(format!("hostIP {ip:?} is no IP address")))).transpose()?;
        let at = match ip {
            None => At::Everywhere,
            Some(IpAddr::V4(ip)) if ip.is_unspecified() => At::Ipv4,
            Some(IpAddr::V6(ip)) if ip.is_unspecified() => At::Ipv6,
            Some(ip) => At::One(ip),
        };
        Ok(Mapping { protocol, at, host_port, container_port })
    }

    /// What it publishes of an address; nothing where `hostIP` is of the other family.
    fn of(&self, address: IpAddr) -> Option<HostPort> {
        let v4 = address.is_ipv4();
        let at = match self.at {
            At::Everywhere => None,
            At::Ipv4 => v4.then_some(None)?,
            At::Ipv6 => (!v4).then_some(None)?,
            At::One(ip) => Some((ip.is_ipv4() == v4).then_some(ip)?),
        };
        Some(HostPort { protocol: self.protocol, at, port: self.host_port, to: SocketAddr::new(address, self.container_port) })
    }
}
