//! The addresses that a caller asks `host-local` for, and how many a version of the specification can express.

use std::net::IpAddr;

use cni::{CniArgs, CniError, Code, Version};

use crate::{net, shown};

/// The pairs of `CNI_ARGS` that `host-local` knows.
pub const HOST_LOCAL_ARGS: &[&str] = &["IP"];

/// Where requested addresses come from; all count, in this order.
#[derive(Debug, Clone, Copy)]
pub struct RequestedSources<'a> {
    /// `CNI_ARGS`: its `IP`
    pub args: &'a CniArgs,
    /// Whether that may be several, with commas between: one of each family.
    pub args_list: bool,
    /// `args.cni.ips`
    pub args_ips: &'a [String],
    /// `runtimeConfig.ips`
    pub runtime_ips: &'a [String],
}

/// A request that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {text:?} {}", if *several { "names several addresses of a family: one of each is expected" } else {
    "is not an IP address: expected one such as 10.1.0.7 or 10.1.0.7/16"
})]
pub struct RequestedError {
    /// Where it stands.
    pub place: String,
    /// What stands there.
    pub text: String,
    /// They are addresses, and two are of one family.
    pub several: bool,
}

/// More addresses of a family than a version can express (before 0.3.0: one).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "CNI version {version} does not support more than 1 address per family: there are several of {family}; use 0.3.0 or later, or \
     configure one range or address for each family"
)]
pub struct FamilyError {
    /// The configuration's version.
    pub version: Version,
    /// `IPv4` or `IPv6`
    pub family: &'static str,
}

impl From<RequestedError> for CniError {
    fn from(e: RequestedError) -> Self {
        let code = if e.place.starts_with("CNI_ARGS") { Code::INVALID_ENVIRONMENT } else { Code::INVALID_CONFIG };
        CniError::new(code, e.to_string())
    }
}

impl From<FamilyError> for CniError {
    fn from(e: FamilyError) -> Self {
        CniError::new(Code::INVALID_CONFIG, e.to_string())
    }
}

/// All requested addresses, each once: a runtime may name one in several places. A prefix length may follow one and is ignored: the range's subnet has it.
///
/// # Errors
/// [`RequestedError`] for the first that is no address.
pub fn requested_addresses(sources: RequestedSources<'_>) -> Result<Vec<IpAddr>, RequestedError> {
    let from_args = sources.args.get("IP").filter(|ip| !ip.is_empty());
    let from_args = from_args.map_or_else(|| Ok(Vec::new()), |text| of_args(text, sources.args_list));
    let list = |key: &'static str, texts: &'_ [String]| -> Vec<Result<IpAddr, RequestedError>> {
        texts.iter().enumerate().map(|(i, text)| read(format!("{key}[{i}]"), text)).collect()
    };
    let all =
        from_args?.into_iter().map(Ok).chain(list("args.cni.ips", sources.args_ips)).chain(list("runtimeConfig.ips", sources.runtime_ips));
    let mut requested = Vec::new();
    for address in all {
        let address = address?;
        if !requested.contains(&address) {
            requested.push(address);
        }
    }
    Ok(requested)
}

fn of_args(text: &str, list: bool) -> Result<Vec<IpAddr>, RequestedError> {
    let place = || "CNI_ARGS IP".to_owned();
    let texts = if list { text.split(',').map(str::trim).collect() } else { vec![text] };
    let addresses = texts.into_iter().map(|text| read(place(), text)).collect::<Result<Vec<_>, _>>()?;
    let one_of_each = [true, false].into_iter().all(|v4| addresses.iter().filter(|a| a.is_ipv4() == v4).count() < 2);
    if one_of_each { Ok(addresses) } else { Err(RequestedError { place: place(), text: shown(text), several: true }) }
}

fn read(place: String, text: &str) -> Result<IpAddr, RequestedError> {
    let address = match text.contains('/') {
        true => net(text).map(|net| net.addr()),
        false => text.parse::<IpAddr>().ok(),
    };
    address.map(|ip| ip.to_canonical()).ok_or(RequestedError { place, text: shown(text), several: false })
}

/// Refuses more than one address of a family in a version that cannot express them; one item for each address.
///
/// # Errors
/// [`FamilyError`] naming the family.
pub fn one_per_family(version: Version, is_ipv4: impl IntoIterator<Item = bool>) -> Result<(), FamilyError> {
    if version >= Version::V0_3_0 {
        return Ok(());
    }
    let (mut v4, mut v6) = (0u32, 0u32);
    for is_v4 in is_ipv4 {
        let (count, family) = if is_v4 { (&mut v4, "IPv4") } else { (&mut v6, "IPv6") };
        *count += 1;
        if *count > 1 {
            return Err(FamilyError { version, family });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sources_count() {
        let args = CniArgs::parse("IP=10.0.0.7").unwrap();
        let (a, b) = (["10.0.0.8/24".to_owned()], ["fd00::8".to_owned(), "::ffff:10.0.0.9".to_owned(), "10.0.0.8".to_owned()]);
        let got = requested_addresses(RequestedSources { args: &args, args_list: false, args_ips: &a, runtime_ips: &b }).unwrap();
        let shown: Vec<String> = got.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.7", "10.0.0.8", "fd00::8", "10.0.0.9"]);
        for (ip, good) in [("", true), ("10.0.0", false), ("10.0.0.1/33", false), ("10.0.0.1,10.0.0.2", false)] {
            let args = CniArgs::parse(&format!("IP={ip}")).unwrap();
            let got = requested_addresses(RequestedSources { args: &args, args_list: false, args_ips: &[], runtime_ips: &[] });
            assert_eq!(got.is_ok(), good, "{ip}");
        }
        for (ip, says) in [
            ("10.0.0.1, fd00::1", None),
            ("10.0.0.1,10.0.0.2", Some("CNI_ARGS IP: \"10.0.0.1,10.0.0.2\" names several addresses of a family")),
            ("10.0.0.1,", Some("CNI_ARGS IP: \"\" is not an IP address")),
        ] {
            let args = CniArgs::parse(&format!("IP={ip}")).unwrap();
            let got = requested_addresses(RequestedSources { args: &args, args_list: true, args_ips: &[], runtime_ips: &[] });
            match says {
                None => assert_eq!(got.unwrap().len(), 2, "{ip}"),
                Some(says) => assert!(got.unwrap_err().to_string().starts_with(says), "{ip}"),
            }
        }
        let bad = requested_addresses(RequestedSources {
            args: &CniArgs::default(),
            args_list: false,
            args_ips: &[String::new()],
            runtime_ips: &[],
        });
        assert!(bad.unwrap_err().to_string().starts_with("args.cni.ips[0]: \"\" is not an IP address"));
    }

    #[test]
    fn old_versions_have_room_for_one() {
        assert!(one_per_family(Version::V0_2_0, [true, false]).is_ok());
        assert!(one_per_family(Version::V0_3_0, [true, true]).is_ok());
        assert_eq!(one_per_family(Version::V0_2_0, [false, true, false]).unwrap_err().family, "IPv6");
    }
}
