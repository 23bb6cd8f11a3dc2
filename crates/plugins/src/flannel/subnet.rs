//! `subnet.env`: what flanneld says of its node, as lines of `KEY=VALUE`.

use std::net::IpAddr;
use std::path::Path;

use cni::{CniError, Code};
use ipnet::IpNet;
use linux::file::{self, Links, ReadError};

/// What such a file may have, in bytes: it has about two hundred.
const MAX_FILE: usize = 64 << 10;

/// What flanneld says; by default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subnet {
    /// Every network of flannel's, IPv4 first.
    pub(super) networks: Vec<IpNet>,
    /// This node's part of them, at most one for each family.
    pub(super) subnets: Vec<IpNet>,
    /// Bytes in a packet of a container's.
    pub(super) mtu: u32,
    /// Whether flanneld masquerades: then no plugin need do so.
    pub(super) ip_masq: bool,
}

impl Subnet {
    /// Code 11 where the file is missing: flanneld may come.
    pub(super) fn read(path: &Path) -> Result<Self, CniError> {
        let bytes = file::read(path, MAX_FILE, Links::Followed).map_err(|e| match e {
            ReadError::NotFound { .. } => {
                let msg = format!("open {}: no such file or directory: check that flanneld runs on this node", path.display());
                CniError::new(Code::TRY_AGAIN_LATER, msg)
            }
            other => CniError::new(Code::IO, other.to_string()),
        })?;
        Self::parse(&String::from_utf8_lossy(&bytes), path)
    }

    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, CniError> {
        let (mut networks, mut subnets, mut mtu, mut masq) = ([vec![], vec![]], [None, None], None, None);
        for line in text.lines() {
            let Some((key, value)) = line.trim().split_once('=') else { continue };
            let bad = |what: &str| CniError::new(Code::DECODE, format!("{}: {key}={value}: {what}", path.display()));
            let net = |text: &str| {
                text.trim().parse::<IpNet>().map(|net| net.trunc()).map_err(|_| bad("expected an address with a prefix length"))
            };
            match key {
                "FLANNEL_NETWORK" => networks[0] = value.split(',').map(net).collect::<Result<_, _>>()?,
                "FLANNEL_IPV6_NETWORK" => networks[1] = value.split(',').map(net).collect::<Result<_, _>>()?,
                "FLANNEL_SUBNET" => subnets[0] = Some(net(value)?),
                "FLANNEL_IPV6_SUBNET" => subnets[1] = Some(net(value)?),
                "FLANNEL_MTU" => mtu = Some(value.parse().map_err(|_| bad("expected a number"))?),
                "FLANNEL_IPMASQ" => masq = Some(value == "true"),
                _ => {}
            }
        }
        // Of each family that it has a node has both.
        let (ranges, own) = (networks.each_ref().map(|nets| !nets.is_empty()), subnets.map(|net| net.is_some()));
        let missing = [
            lacking("NETWORK", ranges, own),
            lacking("SUBNET", own, ranges),
            mtu.is_none().then(|| "FLANNEL_MTU".to_owned()),
            masq.is_none().then(|| "FLANNEL_IPMASQ".to_owned()),
        ];
        let missing: Vec<String> = missing.into_iter().flatten().collect();
        let mut networks = networks.concat();
        let mut seen = Vec::new();
        networks.retain(|net| {
            !seen.contains(net) && {
                seen.push(*net);
                true
            }
        });
        let subnets: Vec<IpNet> = subnets.into_iter().flatten().collect();
        match (mtu, masq) {
            (Some(mtu), Some(ip_masq)) if missing.is_empty() => Ok(Subnet { networks, subnets, mtu, ip_masq }),
            _ => {
                let msg = format!("{} is missing {}: flanneld may not have finished writing it", path.display(), missing.join(", "));
                Err(CniError::new(Code::TRY_AGAIN_LATER, msg))
            }
        }
    }

    /// Whether an address is this node's to give; one of a family that flannel does not have is somebody else's.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        let mut of_family = self.subnets.iter().filter(|net| net.addr().is_ipv4() == ip.is_ipv4()).peekable();
        of_family.peek().is_none() || of_family.any(|net| net.contains(&ip))
    }

    /// The subnets, for a message.
    pub(super) fn words(&self) -> String {
        self.subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// Which of a pair of keys is missing, of IPv4 and IPv6, as far as the other pair tells what the node has.
fn lacking(what: &str, has: [bool; 2], other: [bool; 2]) -> Option<String> {
    let [four, six] = [format!("FLANNEL_{what}"), format!("FLANNEL_IPV6_{what}")];
    match [other[0] && !has[0], other[1] && !has[1]] {
        [true, false] => Some(four),
        [false, true] => Some(six),
        [true, true] => Some(format!("{four}, {six}")),
        [false, false] => (has == [false, false]).then(|| format!("{four} or {six}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Subnet, CniError> {
        Subnet::parse(text, "/run/flannel/subnet.env".as_ref())
    }

    #[test]
    fn both_families() {
        let text = "FLANNEL_NETWORK=10.1.0.0/16,10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\n\nFLANNEL_IPV6_NETWORK=fd00::/48\n\
            FLANNEL_IPV6_SUBNET=fd00:0:0:11::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\nOTHER=x\nnothing\n";
        let found = parse(text).unwrap();
        let net = |s: &str| s.parse::<IpNet>().unwrap();
        let expected = Subnet {
            networks: vec![net("10.1.0.0/16"), net("fd00::/48")],
            subnets: vec![net("10.1.17.0/24"), net("fd00:0:0:11::/64")],
            mtu: 1450,
            ip_masq: false,
        };
        assert_eq!(found, expected);
        assert!(found.has("10.1.17.9".parse().unwrap()) && !found.has("10.1.18.9".parse().unwrap()));
        let four = Subnet { subnets: vec![net("10.1.17.0/24")], ..found };
        assert!(four.has("fd00::9".parse().unwrap()));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let (four, six) = ("FLANNEL_SUBNET=10.1.17.1/24\n", "FLANNEL_IPV6_SUBNET=fd00:0:0:11::1/64\n");
        let rest = "FLANNEL_MTU=1400\nFLANNEL_IPMASQ=true\n";
        for (text, missing) in [
            (four.to_owned(), "FLANNEL_NETWORK, FLANNEL_MTU, FLANNEL_IPMASQ"),
            (format!("{six}FLANNEL_IPMASQ=true"), "FLANNEL_IPV6_NETWORK, FLANNEL_MTU"),
            (format!("{six}{four}FLANNEL_MTU=1400"), "FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_IPMASQ"),
            ("FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_IPMASQ=true".to_owned(), "FLANNEL_SUBNET, FLANNEL_MTU"),
            // Half of a family, beside a whole one or another half.
            (format!("{four}FLANNEL_NETWORK=10.1.0.0/16\n{six}{rest}"), "FLANNEL_IPV6_NETWORK"),
            (format!("{six}FLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_NETWORK=10.1.0.0/16\n{rest}"), "FLANNEL_SUBNET"),
            (format!("FLANNEL_NETWORK=10.1.0.0/16\n{six}{rest}"), "FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET"),
            (
                "FLANNEL_MTU=1400\nFLANNEL_IPMASQ=true".to_owned(),
                "FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET",
            ),
        ] {
            let e = parse(&text).unwrap_err();
            assert!(e.msg.starts_with(&format!("/run/flannel/subnet.env is missing {missing}: flanneld may not have finished")), "{e}");
        }
        for bad in ["FLANNEL_SUBNET=10.1.17.1", "FLANNEL_NETWORK=10.1.0.0/16,x", "FLANNEL_MTU=-1", "FLANNEL_IPV6_SUBNET="] {
            let e = parse(bad).unwrap_err();
            assert!(e.msg.contains(bad) && e.code == Code::DECODE, "{e}");
        }
    }
}
