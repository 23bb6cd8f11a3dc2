//! The addresses of `static`: no store, only what configuration and caller say.
//!
//! ```text
//! ipam.addresses + CNI_ARGS IP (with GATEWAY)      appended
//!     <- args.cni.ips, if any                      replaces
//!         <- runtimeConfig.ips, if any             replaces
//! ```

use std::net::IpAddr;

use cni::{CniArgs, CniError, Code, IpConfig};
use ipnet::IpNet;
use serde::Deserialize;

use crate::shown;

/// The pairs of `CNI_ARGS` that `static` knows.
pub const STATIC_ARGS: &[&str] = &["IP", "GATEWAY"];

/// An address as it stands in `ipam.addresses`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RawAddress {
    /// The address with its prefix length, as `10.1.0.7/16`.
    pub address: String,
    /// Its gateway; none if empty.
    pub gateway: String,
}

/// Where the addresses come from.
#[derive(Debug, Clone, Copy)]
pub struct StaticSources<'a> {
    /// `ipam.addresses`
    pub addresses: &'a [RawAddress],
    /// `CNI_ARGS`: `IP` (a list with commas) is appended; `GATEWAY` (a list with commas) becomes the gateway of those
    /// of them whose network contains it.
    pub args: &'a CniArgs,
    /// `args.cni.ips`; they come without gateways.
    pub args_ips: &'a [String],
    /// `runtimeConfig.ips`; they come without gateways.
    pub runtime_ips: &'a [String],
}

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StaticError {
    /// An address without a prefix length, or none at all.
    #[error("{}, got: '{text}': {place} must be as 10.1.0.7/16", words(place))]
    Address {
        /// Where it stands.
        place: String,
        /// What stands there.
        text: String,
    },
    /// A gateway that is no address.
    #[error("{place}: {text:?} is not an IP address")]
    Gateway {
        /// Where it stands.
        place: String,
        /// What stands there.
        text: String,
    },
    /// A gateway of the other family.
    #[error("{place}: {gateway} is not of the same address family as its address {address}")]
    Family {
        /// Where it stands.
        place: String,
        /// What stands there.
        gateway: IpAddr,
        /// The address.
        address: IpNet,
    },
}

/// How the reference plugin begins, by which scripts know it.
fn words(place: &str) -> &'static str {
    match place {
        "CNI_ARGS IP" => "the 'ip' field is expected to be in CIDR notation",
        place if place.starts_with("ipam.") => "the 'address' field is expected to be in CIDR notation",
        _ => "an entry in the 'ips' field is NOT in CIDR notation",
    }
}

impl From<StaticError> for CniError {
    fn from(e: StaticError) -> Self {
        let (StaticError::Address { place, .. } | StaticError::Gateway { place, .. } | StaticError::Family { place, .. }) = &e;
        let code = if place.starts_with("CNI_ARGS") { Code::INVALID_ENVIRONMENT } else { Code::INVALID_CONFIG };
        CniError::new(code, e.to_string()).at(place)
    }
}

/// The addresses of an attachment, in order; possibly none. What is replaced need not be right, but `CNI_ARGS` must be.
///
/// # Errors
/// [`StaticError`] naming the first bad value.
pub fn static_addresses(sources: StaticSources<'_>) -> Result<Vec<IpConfig>, StaticError> {
    let from_args = of_args(sources.args)?;
    let plain = |key: &str, texts: &[String]| -> Result<Vec<IpConfig>, StaticError> {
        texts.iter().enumerate().map(|(i, text)| Ok(without_gateway(net(format!("{key}[{i}]"), text)?))).collect()
    };
    if !sources.runtime_ips.is_empty() {
        return plain("runtimeConfig.ips", sources.runtime_ips);
    }
    if !sources.args_ips.is_empty() {
        return plain("args.cni.ips", sources.args_ips);
    }
    let configured = sources.addresses.iter().enumerate().map(|(i, raw)| configured(&format!("ipam.addresses[{i}]"), raw));
    configured.chain(from_args.into_iter().map(Ok)).collect()
}

fn of_args(args: &CniArgs) -> Result<Vec<IpConfig>, StaticError> {
    let listed = |key: &str| args.get(key).filter(|v| !v.is_empty()).into_iter().flat_map(|v| v.split(',')).map(str::trim);
    let mut addresses = Vec::new();
    for text in listed("IP") {
        addresses.push(without_gateway(net("CNI_ARGS IP".to_owned(), text)?));
    }
    for text in listed("GATEWAY") {
        let gateway = ip("CNI_ARGS GATEWAY".to_owned(), text)?;
        addresses.iter_mut().filter(|a| a.address.contains(&gateway)).for_each(|a| a.gateway = Some(gateway));
    }
    Ok(addresses)
}

fn configured(place: &str, raw: &RawAddress) -> Result<IpConfig, StaticError> {
    let address = net(format!("{place}.address"), &raw.address)?;
    let place = format!("{place}.gateway");
    let gateway = match raw.gateway.as_str() {
        "" => None,
        text => Some(ip(place.clone(), text)?),
    };
    match gateway {
        Some(gateway) if gateway.is_ipv4() != address.addr().is_ipv4() => Err(StaticError::Family { place, gateway, address }),
        _ => Ok(IpConfig { interface: None, address, gateway }),
    }
}

fn without_gateway(address: IpNet) -> IpConfig {
    IpConfig { interface: None, address, gateway: None }
}

fn net(place: String, text: &str) -> Result<IpNet, StaticError> {
    crate::net(text).ok_or_else(|| StaticError::Address { place, text: shown(text) })
}

fn ip(place: String, text: &str) -> Result<IpAddr, StaticError> {
    text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| StaticError::Gateway { place, text: shown(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(addresses: &[(&str, &str)], args: &str, args_ips: &[&str], runtime_ips: &[&str]) -> Result<String, StaticError> {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<String>>();
        let addresses: Vec<RawAddress> = addresses.iter().map(|(a, g)| RawAddress { address: (*a).into(), gateway: (*g).into() }).collect();
        let args = CniArgs::parse(args).unwrap();
        let (a, r) = (own(args_ips), own(runtime_ips));
        let got = static_addresses(StaticSources { addresses: &addresses, args: &args, args_ips: &a, runtime_ips: &r })?;
        let text = |ip: &IpConfig| format!("{}>{}", ip.address, ip.gateway.map(|g| g.to_string()).unwrap_or_default());
        Ok(got.iter().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn precedence() {
        let configured = [("10.0.0.5/24", "10.0.0.254"), ("fd00::5/64", "")];
        for (args, args_ips, runtime_ips, expected) in [
            ("", vec![], vec![], "10.0.0.5/24>10.0.0.254 fd00::5/64>"),
            ("IP=10.0.1.5/24", vec![], vec![], "10.0.0.5/24>10.0.0.254 fd00::5/64> 10.0.1.5/24>"),
            (
                "IP=10.0.1.5/24, fd01::5/64;GATEWAY=10.0.1.1,fd01::1",
                vec![],
                vec![],
                "10.0.0.5/24>10.0.0.254 fd00::5/64> 10.0.1.5/24>10.0.1.1 fd01::5/64>fd01::1",
            ),
            ("GATEWAY=10.0.0.1", vec![], vec![], "10.0.0.5/24>10.0.0.254 fd00::5/64>"),
            ("IP=10.0.1.5/24", vec!["10.0.2.5/24"], vec![], "10.0.2.5/24>"),
            ("IP=10.0.1.5/24", vec!["10.0.2.5/24"], vec!["10.0.3.5/24", "fd03::5/64"], "10.0.3.5/24> fd03::5/64>"),
        ] {
            assert_eq!(run(&configured, args, &args_ips, &runtime_ips).unwrap(), expected, "{args}");
        }
        assert_eq!(run(&[], "", &[], &[]).unwrap(), "");
        assert_eq!(run(&[("bad", "")], "", &[], &["10.0.3.5/24"]).unwrap(), "10.0.3.5/24>");
    }

    #[test]
    fn bad_values_are_named() {
        for (got, expected) in [
            (
                run(&[("10.0.0.5", "")], "", &[], &[]),
                "the 'address' field is expected to be in CIDR notation, got: '10.0.0.5': ipam.addresses[0].address must be",
            ),
            (run(&[("10.0.0.5/24", "x")], "", &[], &[]), "ipam.addresses[0].gateway: \"x\" is not an IP address"),
            (run(&[("10.0.0.5/24", "fd00::1")], "", &[], &[]), "ipam.addresses[0].gateway: fd00::1 is not of the same"),
            (
                run(&[], "IP=10.0.0.5", &[], &["10.0.0.5/24"]),
                "the 'ip' field is expected to be in CIDR notation, got: '10.0.0.5': CNI_ARGS IP",
            ),
            (run(&[], "IP=10.0.0.5/24,", &[], &[]), "the 'ip' field is expected to be in CIDR notation, got: ''"),
            (run(&[], "GATEWAY=x", &[], &[]), "CNI_ARGS GATEWAY: \"x\""),
            (run(&[], "", &["10.0.0.5"], &[]), "an entry in the 'ips' field is NOT in CIDR notation, got: '10.0.0.5': args.cni.ips[0]"),
            (
                run(&[], "", &[], &["10.0.0.5/24", "10.0.0.5/33"]),
                "an entry in the 'ips' field is NOT in CIDR notation, got: '10.0.0.5/33': runtimeConfig.ips[1]",
            ),
        ] {
            let text = got.unwrap_err().to_string();
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
