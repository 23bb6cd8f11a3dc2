//! Which hardware address was asked for, and by whom.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};

use cni::{CniArgs, CniError, Code, Config, Mac};
use plugin::{Cx, Key, PlannedChange};
use serde::Deserialize;

use crate::address::Addresses;

/// Who may ask for a hardware address.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// `runtimeConfig.mac`, the capability
    Runtime,
    /// `args.cni.mac`, the convention before capabilities
    Args,
    /// `MAC=` in `CNI_ARGS`
    CniArgs,
    /// `mac` in the plugin's own configuration
    Own,
}

/// The order of every interface plugin.
pub(crate) const INTERFACE: [Source; 4] = [Source::Runtime, Source::Args, Source::CniArgs, Source::Own];

/// The key of [`of_new_link`].
pub(crate) const FROM_IP: Key = Key::new("macFromIP", "bool", "false", "hardware address 0a:58 and the first IPv4 address; \"mac\" wins");

#[derive(Deserialize, Default)]
#[serde(default)]
struct FromIp {
    #[serde(rename = "macFromIP")]
    from_ip: bool,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    mac: String,
    runtime_config: RuntimeKeys,
    args: ArgsKey,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RuntimeKeys {
    mac: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ArgsKey {
    cni: RuntimeKeys,
}

/// The first source in `order` that asks; each is named in the error if what it asks for cannot be had. `CNI_ARGS` must
/// be right also where another one wins.
pub(crate) fn requested(config: &Config, args: &CniArgs, order: [Source; 4]) -> Result<Option<Mac>, CniError> {
    let keys: Keys = config.read()?;
    args.well_formed()?;
    for source in order {
        let (place, text) = match source {
            Source::Runtime => ("runtimeConfig.mac", keys.runtime_config.mac.as_str()),
            Source::Args => ("args.cni.mac", keys.args.cni.mac.as_str()),
            Source::CniArgs => ("CNI_ARGS MAC", args.get("MAC").unwrap_or_default()),
            Source::Own => ("mac", keys.mac.as_str()),
        };
        if text.is_empty() {
            continue;
        }
        let code = if matches!(source, Source::CniArgs) { Code::INVALID_ENVIRONMENT } else { Code::INVALID_CONFIG };
        let bad = |why: String| CniError::new(code, format!("{place}: {why}")).at(place);
        let mac: Mac = text.parse().map_err(|e: cni::MacError| bad(e.to_string()))?;
        return match mac.is_unicast() && mac.as_bytes().len() == 6 {
            true => Ok(Some(mac)),
            false => Err(bad(format!("{mac} is not a valid hardware address: it needs 6 bytes, not all zero, the first one even"))),
        };
    }
    Ok(None)
}

/// The hardware address that a link is made with: the one that was asked for; or, with `macFromIP`, `0a:58` and the four
/// bytes of its first IPv4 address, as kubenet and OVN-Kubernetes make it: the neighbours' entries stay true when the
/// address goes to another container. Nobody has seen that one in the configuration.
pub(crate) fn of_new_link(config: &Config, asked: Option<Mac>, addresses: &Addresses, cx: &mut Cx<'_>) -> Result<Option<Mac>, CniError> {
    if asked.is_some() {
        return Ok(asked);
    }
    let made = made_of(config, addresses)?;
    made.iter().try_for_each(|mac| cx.review(PlannedChange::Mac(mac)))?;
    Ok(made)
}

fn made_of(config: &Config, addresses: &Addresses) -> Result<Option<Mac>, CniError> {
    if !from_ip(config)? {
        return Ok(None);
    }
    let none = |why: String| CniError::invalid("macFromIP", format!("there is no IPv4 address to derive a hardware address from: {why}"));
    let ips = match addresses {
        Addresses::Known(result) | Addresses::Unasked(result, _) => &result.ips,
        Addresses::None => return Err(none("set \"ipam\", or \"mac\" instead".into())),
        Addresses::Later(kind) => return Err(none(format!("{kind} assigns one only after the interface exists; set \"mac\" instead"))),
    };
    let v4 = ips.iter().find_map(|ip| if let IpAddr::V4(v4) = ip.address.addr() { Some(v4) } else { None });
    v4.ok_or_else(|| none("the IPAM plugin returned none; set \"mac\" instead".into())).map(of_address)
}

/// `0a:58` and the four bytes of an address.
pub(crate) fn of_address(address: Ipv4Addr) -> Option<Mac> {
    let [a, b, c, d] = address.octets();
    Mac::from_bytes(&[0x0a, 0x58, a, b, c, d])
}

/// One by chance, as the kernel makes them: of a single interface, administered locally.
pub(crate) fn random() -> Option<Mac> {
    let [first, rest @ ..] = chance();
    with_first(first & 0xfc | 0x02, rest)
}

/// One by chance for a port of a bridge, with the highest first byte that there is, as libvirt has it. A bridge whose address nobody has
/// set takes the lowest one of its ports: never this one, where it has another port.
pub(crate) fn of_port() -> Option<Mac> {
    let [_, rest @ ..] = chance();
    with_first(0xfe, rest)
}

fn with_first(first: u8, [second, third, fourth, fifth, sixth, ..]: [u8; 7]) -> Option<Mac> {
    Mac::from_bytes(&[first, second, third, fourth, fifth, sixth])
}

/// The standard library's hash keys are drawn from the kernel for each thread, and differ each time.
fn chance() -> [u8; 8] {
    RandomState::new().build_hasher().finish().to_ne_bytes()
}

/// Whether a configuration has `macFromIP`.
pub(crate) fn from_ip(config: &Config) -> Result<bool, CniError> {
    config.read().map(|FromIp { from_ip }| from_ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_in_the_hardware_address() {
        let config = |keys: &str| Config::parse(format!(r#"{{"name":"n","cniVersion":"1.0.0",{keys}}}"#).as_bytes()).unwrap().0;
        let on = config(r#""MACFROMIP":true"#);
        let known = |ips: &[&str]| {
            let ips = ips.iter().map(|ip| cni::IpConfig { address: ip.parse().unwrap(), gateway: None, interface: None }).collect();
            Addresses::Known(cni::AddResult { ips, ..Default::default() })
        };
        let made = |a: &Addresses| made_of(&on, a).map(|m| m.unwrap().to_string());
        assert_eq!(made(&known(&["fd00::2/64", "10.1.0.254/24", "10.2.0.3/24"])).unwrap(), "0a:58:0a:01:00:fe");
        assert_eq!(made_of(&config(r#""macFromIP":null"#), &known(&["10.1.0.2/24"])).unwrap(), None);
        for (addresses, says) in [
            (known(&["fd00::2/64"]), "the IPAM plugin returned none"),
            (Addresses::None, "set \"ipam\""),
            (Addresses::Later("dhcp".parse().unwrap()), "dhcp assigns one only after the interface exists"),
        ] {
            let e = made(&addresses).unwrap_err();
            assert!(e.code == Code::INVALID_CONFIG && e.msg.starts_with("macFromIP: ") && e.msg.contains(says), "{e}");
        }
    }

    #[test]
    fn the_first_source_that_asks_wins() {
        let config = |keys: &str| Config::parse(format!(r#"{{"name":"n","cniVersion":"1.0.0",{keys}}}"#).as_bytes()).unwrap().0;
        let all =
            config(r#""mac":"02:00:00:00:00:04","args":{"cni":{"mac":"02:00:00:00:00:02"}},"RuntimeConfig":{"mac":"02:00:00:00:00:01"}"#);
        let args = CniArgs::parse("MAC=02:00:00:00:00:03").unwrap();
        let got = |c: &Config, a: &CniArgs| requested(c, a, INTERFACE).unwrap().map(|m| m.to_string());
        assert_eq!(got(&all, &args).as_deref(), Some("02:00:00:00:00:01"));
        assert_eq!(got(&config(r#""mac":"02:00:00:00:00:04""#), &args).as_deref(), Some("02:00:00:00:00:03"));
        assert_eq!(got(&config(r#""mac":"""#), &CniArgs::default()), None);
        for bad in [r#""mac":"01:00:00:00:00:00""#, r#""mac":"00:00:00:00:00:00""#, r#""mac":"x""#, r#""mac":7"#] {
            let e = requested(&config(bad), &CniArgs::default(), INTERFACE).unwrap_err();
            assert!(e.msg.starts_with("mac: ") && e.code == Code::INVALID_CONFIG, "{e}");
        }
    }
}
