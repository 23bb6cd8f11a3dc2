//! Parts of rules that several rules share, in words of `nft`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use linux::nft::{Cmp, Ct, Expr, Meta, Reg};

/// `ip version 4`: which protocol's header it is, before one reads it.
pub(crate) fn is_ipv4() -> [Expr; 2] {
    const NFPROTO_IPV4: u8 = 2;
    is_protocol(NFPROTO_IPV4)
}

/// `ip6 version 6`
pub(crate) fn is_ipv6() -> [Expr; 2] {
    const NFPROTO_IPV6: u8 = 10;
    is_protocol(NFPROTO_IPV6)
}

/// The one of an address' family.
pub(crate) fn is_family_of(net: &IpNet) -> [Expr; 2] {
    if net.addr().is_ipv4() { is_ipv4() } else { is_ipv6() }
}

fn is_protocol(protocol: u8) -> [Expr; 2] {
    let (reg, how) = (Reg::FIRST, Cmp::Equal);
    [Expr::Meta { key: Meta::Nfproto, into: reg }, Expr::Cmp { reg, how, value: vec![protocol] }]
}

/// `ip saddr`, of the network's family.
pub(crate) fn source(net: &IpNet) -> Expr {
    if net.addr().is_ipv4() { Expr::ip_saddr(Reg::FIRST) } else { Expr::ip6_saddr(Reg::FIRST) }
}

/// `ip daddr`, of the network's family.
pub(crate) fn destination(net: &IpNet) -> Expr {
    if net.addr().is_ipv4() { Expr::ip_daddr(Reg::FIRST) } else { Expr::ip6_daddr(Reg::FIRST) }
}

/// `ip daddr != NETWORK/LENGTH`, or `==`, for an address that `load` loads. As `nft` has it: where the prefix ends with a
/// byte only those bytes are loaded, else the rest is masked.
pub(crate) fn within(load: &Expr, how: Cmp, network: &[u8], length: u8) -> Vec<Expr> {
    let first = Reg::FIRST;
    let whole = usize::from(length / 8);
    if let (0, Expr::Payload { header, offset, .. }) = (length % 8, load) {
        let load = Expr::Payload { header: *header, offset: *offset, len: u32::from(length / 8), into: first };
        let value = network.iter().copied().take(whole).collect();
        return vec![load, Expr::Cmp { reg: first, how, value }];
    }
    let partial = 0xff_u8.checked_shl(u32::from(8 - length % 8)).unwrap_or(0);
    let ones = std::iter::repeat_n(0xff, whole).chain([partial]);
    let mask = ones.chain(std::iter::repeat(0)).take(network.len()).collect();
    let value = network.to_vec();
    vec![load.clone(), Expr::Mask { reg: first, mask }, Expr::Cmp { reg: first, how, value }]
}

/// `ct status dnat`, or with [`Cmp::Equal`] its contrary: whether one of these bits is set.
pub(crate) fn connection(key: Ct, bits: u32, how: Cmp) -> [Expr; 3] {
    let reg = Reg::FIRST;
    let mask = bits.to_ne_bytes().to_vec();
    [Expr::Ct { key, into: reg }, Expr::Mask { reg, mask }, Expr::Cmp { reg, how, value: vec![0; 4] }]
}

/// An address as in a packet.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// Back from [`octets`].
pub(crate) fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(octets).ok().map(|o| IpAddr::V4(Ipv4Addr::from(o)));
    let v6 = || <[u8; 16]>::try_from(octets).ok().map(|o| IpAddr::V6(Ipv6Addr::from(o)));
    v4().or_else(v6)
}

/// The name of a network's chain: `nft` reads no colon in a name.
pub(crate) fn chain_of(prefix: &str, net: &IpNet) -> String {
    format!("{prefix}{}", net.trunc()).replace(':', "-")
}

/// The network whose chain this is, `None` for any other chain.
pub(crate) fn network_of(prefix: &str, chain: &str) -> Option<IpNet> {
    let net: IpNet = chain.strip_prefix(prefix)?.replace('-', ":").parse().ok()?;
    (chain_of(prefix, &net) == chain).then_some(net)
}
