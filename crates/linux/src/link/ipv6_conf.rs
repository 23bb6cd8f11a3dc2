//! The settings below `net.ipv6.conf.LINK` that come with every link that is read: no file is opened for them.

use crate::uapi::family;
use crate::uapi::link::IFLA_INET6_CONF;
use crate::wire::{Attributes, i32_at};

/// A setting of `net.ipv6.conf.LINK`, by its place among them (linux/ipv6.h, `DEVCONF_*`). Netlink tells them; they are
/// changed by [`crate::Sysctl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ipv6Conf {
    /// `hop_limit`: of packets that leave by the link.
    HopLimit = 1,
    /// `accept_ra`: router advertisements are taken.
    AcceptRa = 3,
    /// `disable_ipv6`
    DisableIpv6 = 26,
    /// `accept_dad`: addresses wait for duplicate address detection.
    AcceptDad = 27,
    /// `ndisc_notify`: tell the neighbours when the link comes up or its hardware address changes.
    NdiscNotify = 29,
    /// `keep_addr_on_down`: addresses stay when the link goes down.
    KeepAddrOnDown = 42,
    /// `enhanced_dad`: duplicate address detection with a nonce (RFC 7527).
    EnhancedDad = 46,
}

// === impl Ipv6Conf ===

impl Ipv6Conf {
    /// Its file's name below `net.ipv6.conf.LINK`.
    pub fn name(self) -> &'static str {
        match self {
            Ipv6Conf::HopLimit => "hop_limit",
            Ipv6Conf::AcceptRa => "accept_ra",
            Ipv6Conf::DisableIpv6 => "disable_ipv6",
            Ipv6Conf::AcceptDad => "accept_dad",
            Ipv6Conf::NdiscNotify => "ndisc_notify",
            Ipv6Conf::KeepAddrOnDown => "keep_addr_on_down",
            Ipv6Conf::EnhancedDad => "enhanced_dad",
        }
    }
}

/// All settings of a link, from `IFLA_AF_SPEC`; empty where the kernel has no IPv6.
pub(super) fn parse(families: &[u8]) -> Vec<i32> {
    let inet6 = Attributes(families).find(|(kind, _)| *kind == u16::from(family::INET6));
    let conf = inet6.and_then(|(_, inet6)| Attributes(inet6).find(|(kind, _)| *kind == IFLA_INET6_CONF));
    conf.map(|(_, values)| values.chunks_exact(4).filter_map(i32_at).collect()).unwrap_or_default()
}
