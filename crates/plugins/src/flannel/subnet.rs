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
                let msg = format!("open {}: no such file or directory: is flanneld running on this node?", path.display());
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
        let mut networks = networks.concat();
        let mut seen = Vec::new();
        networks.retain(|net| {
            !seen.contains(net) && {
                seen.push(*net);
                true
            }
        });
        let subnets: Vec<IpNet> = subnets.into_iter().flatten().collect();
        let missing = [
            (networks.is_empty(), "FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK"),
            (subnets.is_empty(), "FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET"),
            (mtu.is_none(), "FLANNEL_MTU"),
            (masq.is_none(), "FLANNEL_IPMASQ"),
        ];
        let missing: Vec<&str> = missing.into_iter().filter_map(|(is, what)| is.then_some(what)).collect();
        match (mtu, masq) {
            (Some(mtu), Some(ip_masq)) if missing.is_empty() => Ok(Subnet { networks, subnets, mtu, ip_masq }),
            _ => {
                let msg = format!("{} is missing {}: has flanneld written all of it?", path.display(), missing.join(", "));
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
        let e = parse("FLANNEL_SUBNET=10.1.17.1/24\n").unwrap_err();
        let says = "/run/flannel/subnet.env is missing FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_MTU, FLANNEL_IPMASQ";
        assert!(e.msg.starts_with(says), "{e}");
        for bad in ["FLANNEL_SUBNET=10.1.17.1", "FLANNEL_NETWORK=10.1.0.0/16,x", "FLANNEL_MTU=-1", "FLANNEL_IPV6_SUBNET="] {
            let e = parse(bad).unwrap_err();
            assert!(e.msg.contains(bad) && e.code == Code::DECODE, "{e}");
        }
    }
}
