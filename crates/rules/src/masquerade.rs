//! Masquerade, for the `ipMasq` of interface plugins: what leaves a pod for somewhere
//! outside its own network leaves with the host's address.
//!
//! ```text
//! map masquerade4 { type ipv4_addr : verdict;                            an element an address
//!     elements = { 10.88.0.5 comment "lab/pod-1/eth0" : jump outside-10.88.0.0/24 } }
//! chain outside-10.88.0.0/24 {                                           a chain a network
//!     ip daddr != 10.88.0.0/24 ip daddr != 224.0.0.0/4 masquerade }
//! chain postrouting { type nat hook postrouting priority srcnat; policy accept;
//!     ip saddr vmap @masquerade4 }                                       and the same for IPv6
//! ```
//!
//! The meaning is that of the reference plugins: from the address, to anything but its own
//! network and multicast. The own network is asked for although such packets are bridged,
//! not routed: with `br_netfilter` they pass here too.
//!
//! The first packet of a connection, and no other, costs one look-up in a hash, and if it
//! is a pod's two comparisons. The plainer form, a second set of `address . network` with
//! intervals, makes a DEL pay for all other pods: with 1,000 of them the kernel takes 2 ms
//! to delete an IPv4 element of such a set and 8 ms for IPv6 (it renumbers its tables),
//! against 9 microseconds from a hash.
//!
//! The chain of a network is made with its first address and stays, as the table does.
//!
//! An address belongs to the attachment that added it last. Two attachments with the same
//! address on one host, which the host could not route back to either, share one element.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cni::AttachmentId;
use ipnet::IpNet;
use linux::nft::{
    Base, Chain, ChainType, Cmp, Data, Element, Expr, Family, Field, Hook, MapTo, Meta, Mode, Reg, Rule, Set, SetElement, Step,
};

use crate::{OwnerKey, TABLE};

/// The chain that the kernel calls.
pub(crate) const CHAIN: &str = "postrouting";
/// How many rules it has.
pub(crate) const RULES: usize = 2;
/// How many rules the chain of a network has.
pub(crate) const NETWORK_RULES: usize = 1;

/// Begins the name of a network's chain.
const OUTSIDE: &str = "outside-";
const MASQUERADE4: &str = "masquerade4";
const MASQUERADE6: &str = "masquerade6";

/// The maps with attachments' elements, and the type of their keys.
pub(crate) const MAPS: [(&str, Field); 2] = [(MASQUERADE4, Field::Ipv4Addr), (MASQUERADE6, Field::Ipv6Addr)];

/// The elements that masquerade these addresses, each given with its network's prefix
/// length, as an IPAM result has them. Pure: add them with
/// [`install_and_add`](crate::install_and_add).
#[must_use]
pub fn masquerade(owner: &AttachmentId, addrs: &[IpNet]) -> Vec<SetElement> {
    let comment = OwnerKey::of(owner);
    // An address given twice is one: in the wider of the networks, which has the other.
    let mut widest = BTreeMap::<IpAddr, IpNet>::new();
    for net in addrs {
        let known = widest.entry(net.addr()).or_insert(*net);
        if net.prefix_len() < known.prefix_len() {
            *known = *net;
        }
    }
    // Nothing is outside of everything.
    widest.retain(|_, net| net.prefix_len() > 0);
    let element = |net: &IpNet| SetElement {
        family: Family::Inet,
        table: TABLE.to_owned(),
        set: if net.addr().is_ipv4() { MASQUERADE4 } else { MASQUERADE6 }.to_owned(),
        element: Element {
            key: octets(net.addr()),
            key_end: None,
            data: Some(Data::Jump(chain_of(net))),
            comment: Some(comment.as_str().to_owned()),
        },
    };
    widest.values().map(element).collect()
}

/// The name of a network's chain; `nft` reads no colon in a name.
fn chain_of(net: &IpNet) -> String {
    format!("{OUTSIDE}{}", net.trunc()).replace(':', "-")
}

/// The network whose chain this is, `None` for any other chain.
pub(crate) fn network_of(chain: &str) -> Option<IpNet> {
    let net: IpNet = chain.strip_prefix(OUTSIDE)?.replace('-', ":").parse().ok()?;
    (chain_of(&net) == chain).then_some(net)
}

/// The chain that an element leads to.
pub(crate) fn target(element: &Element) -> Option<&str> {
    match element.data.as_ref()? {
        Data::Jump(chain) => Some(chain),
        _ => None,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// The maps, the chain that the kernel calls, and its rules. With [`Mode::Add`] over what
/// is there; in the end the chain has the rules once.
pub(crate) fn base(mode: Mode) -> Vec<Step> {
    let base = Base { kind: ChainType::Nat, hook: Hook::Postrouting, priority: Base::SRCNAT };
    let map = |(name, field): (&str, Field)| Set {
        family: Family::Inet,
        table: TABLE.to_owned(),
        name: name.to_owned(),
        key: vec![field],
        interval: false,
        maps_to: Some(MapTo::Verdict),
    };
    let mut steps = chain(mode, CHAIN, Some(base));
    steps.extend(MAPS.map(|spec| Step::Set(mode, map(spec))));
    let vmap = |map: &str| Expr::VerdictMap { reg: Reg::FIRST, map: map.to_owned() };
    steps.push(rule(CHAIN, [is_ipv4().as_slice(), &[Expr::ip_saddr(Reg::FIRST), vmap(MASQUERADE4)]].concat()));
    steps.push(rule(CHAIN, [is_ipv6().as_slice(), &[Expr::ip6_saddr(Reg::FIRST), vmap(MASQUERADE6)]].concat()));
    steps
}

/// The chain of a network and its rule; see [`base`] for the mode.
pub(crate) fn network(mode: Mode, net: &IpNet) -> Vec<Step> {
    let name = chain_of(net);
    let mut steps = chain(mode, &name, None);
    let (protocol, to, multicast) = match net {
        IpNet::V4(_) => (is_ipv4(), Expr::ip_daddr(Reg::FIRST), MULTICAST4),
        IpNet::V6(_) => (is_ipv6(), Expr::ip6_daddr(Reg::FIRST), MULTICAST6),
    };
    let mut exprs = protocol.to_vec();
    exprs.extend(not_within(&to, &octets(net.network()), net.prefix_len()));
    exprs.extend(not_within(&to, multicast.0, multicast.1));
    exprs.push(Expr::Masquerade);
    steps.push(rule(&name, exprs));
    steps
}

const MULTICAST4: (&[u8], u8) = (&[224, 0, 0, 0], 4);
const MULTICAST6: (&[u8], u8) = (&[0xff], 8);

/// `ip daddr != NETWORK/LENGTH`, for an address that `load` loads. As `nft` has it: where
/// the prefix ends with a byte only those bytes are loaded, else the rest is masked.
fn not_within(load: &Expr, network: &[u8], length: u8) -> Vec<Expr> {
    let first = Reg::FIRST;
    let whole = usize::from(length / 8);
    if let (0, Expr::Payload { header, offset, .. }) = (length % 8, load) {
        let load = Expr::Payload { header: *header, offset: *offset, len: u32::from(length / 8), into: first };
        let value = network.iter().copied().take(whole).collect();
        return vec![load, Expr::Cmp { reg: first, how: Cmp::NotEqual, value }];
    }
    let partial = 0xff_u8.checked_shl(u32::from(8 - length % 8)).unwrap_or(0);
    let ones = std::iter::repeat_n(0xff, whole).chain([partial]);
    let mask = ones.chain(std::iter::repeat(0)).take(network.len()).collect();
    let value = network.to_vec();
    vec![load.clone(), Expr::Mask { reg: first, mask }, Expr::Cmp { reg: first, how: Cmp::NotEqual, value }]
}

fn is_ipv4() -> [Expr; 2] {
    const NFPROTO_IPV4: u8 = 2;
    is_protocol(NFPROTO_IPV4)
}

fn is_ipv6() -> [Expr; 2] {
    const NFPROTO_IPV6: u8 = 10;
    is_protocol(NFPROTO_IPV6)
}

/// Which protocol's header it is, before one reads it.
fn is_protocol(protocol: u8) -> [Expr; 2] {
    let (reg, how) = (Reg::FIRST, Cmp::Equal);
    [Expr::Meta { key: Meta::Nfproto, into: reg }, Expr::Cmp { reg, how, value: vec![protocol] }]
}

fn chain(mode: Mode, name: &str, base: Option<Base>) -> Vec<Step> {
    let (family, table, name) = (Family::Inet, TABLE.to_owned(), name.to_owned());
    let made = Chain { family, table: table.clone(), name: name.clone(), base };
    let mut steps = vec![Step::Chain(mode, made)];
    if mode == Mode::Add {
        steps.push(Step::FlushChain { family, table, name });
    }
    steps
}

fn rule(chain: &str, exprs: Vec<Expr>) -> Step {
    let (table, chain) = (TABLE.to_owned(), chain.to_owned());
    Step::Rule(Rule { family: Family::Inet, table, chain, exprs })
}

#[cfg(test)]
mod tests {
    use cni::{ContainerId, IfName, NetworkName};

    use super::*;

    fn id() -> AttachmentId {
        AttachmentId {
            network: NetworkName::parse("lab").unwrap(),
            container: ContainerId::parse("c1").unwrap(),
            ifname: IfName::parse("eth0").unwrap(),
        }
    }

    fn texts(addrs: &[&str]) -> Vec<String> {
        let addrs: Vec<IpNet> = addrs.iter().map(|a| a.parse().unwrap()).collect();
        masquerade(&id(), &addrs).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_element_an_address() {
        let both = [
            "inet netloom masquerade4 0a580005>outside-10.88.0.0/24 lab/c1/eth0",
            "inet netloom masquerade6 fd000000000000000000000000000005>outside-fd00--/64 lab/c1/eth0",
        ];
        assert_eq!(texts(&["10.88.0.5/24", "fd00::5/64"]), both);
        assert!(texts(&[]).is_empty());
    }

    #[test]
    fn the_same_address_twice_is_one_in_the_wider_network() {
        let one = ["inet netloom masquerade4 0a000005>outside-10.0.0.0/16 lab/c1/eth0"];
        assert_eq!(texts(&["10.0.0.5/24", "10.0.0.5/16", "10.0.0.5/32"]), one);
        assert!(texts(&["10.0.0.5/24", "10.0.0.5/0", "fd00::5/0"]).is_empty());
    }

    #[test]
    fn a_chains_name_tells_its_network() {
        for net in ["10.88.0.0/24", "192.0.2.1/32", "fd00::/64", "::/1", "fd00:0:0:1::/60", "2001:db8::5/128"] {
            let net = net.parse::<IpNet>().unwrap().trunc();
            let chain = chain_of(&net);
            assert!(!chain.contains(':') && chain.len() < 128);
            assert_eq!(network_of(&chain), Some(net), "{chain}");
        }
        for chain in ["postrouting", "outside-", "outside-10.0.0.1/24", "outside-10.0.0.0", "outside-fd00::/64"] {
            assert_eq!(network_of(chain), None, "{chain}");
        }
    }
}
