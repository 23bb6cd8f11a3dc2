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
//! The chain of a network is made with its first address, and goes when many are without any (`idle.rs`).
//!
//! An address belongs to the attachment that added it last. Two attachments with the same
//! address on one host, which the host could not route back to either, share one element.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cni::AttachmentId;
use ipnet::IpNet;
use linux::nft::{Base, ChainType, Cmp, Data, Element, Expr, Family, Field, Hook, Reg, SetElement};

use crate::part::{Fixed, Map, Rules, Subject, To};
use crate::phrase::{address, chain_of, destination, is_family_of, is_ipv4, is_ipv6, network_of, octets, within};
use crate::{OwnerKey, TABLE};

/// Begins the name of a network's chain.
const OUTSIDE: &str = "outside-";
const MASQUERADE4: &str = "masquerade4";
const MASQUERADE6: &str = "masquerade6";

/// What masquerading needs of the table.
pub static MASQUERADE: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: MASQUERADE4, key: &[Field::Ipv4Addr], to: To::Chain, held: false },
        Map { name: MASQUERADE6, key: &[Field::Ipv6Addr], to: To::Chain, held: false },
    ],
    chains: &[Fixed {
        name: "postrouting",
        base: Some(Base { kind: ChainType::Nat, hook: Hook::Postrouting, priority: Base::SRCNAT }),
        rules: base,
    }],
    former: &[],
    target: |chain| network_of(OUTSIDE, chain).map(|net| network(&net)),
    companion: |_| None,
};

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
            data: Some(Data::Jump(chain_of(OUTSIDE, net))),
            comment: Some(comment.as_str().to_owned()),
            note: None,
        },
    };
    widest.values().map(element).collect()
}

/// The address that an element masquerades, and its network; `None` for any other element.
pub(crate) fn masqueraded(element: &SetElement) -> Option<(IpAddr, IpNet)> {
    let Some(Data::Jump(chain)) = &element.element.data else { return None };
    Some((address(&element.element.key)?, network_of(OUTSIDE, chain)?))
}

fn base() -> Rules {
    let vmap = |map: &str| Expr::VerdictMap { reg: Reg::FIRST, map: map.to_owned() };
    vec![
        [is_ipv4().as_slice(), &[Expr::ip_saddr(Reg::FIRST), vmap(MASQUERADE4)]].concat(),
        [is_ipv6().as_slice(), &[Expr::ip6_saddr(Reg::FIRST), vmap(MASQUERADE6)]].concat(),
    ]
}

fn network(net: &IpNet) -> Rules {
    let (to, multicast) = (destination(net), if net.addr().is_ipv4() { MULTICAST4 } else { MULTICAST6 });
    let mut exprs = is_family_of(net).to_vec();
    exprs.extend(within(&to, Cmp::NotEqual, &octets(net.network()), net.prefix_len()));
    exprs.extend(within(&to, Cmp::NotEqual, multicast.0, multicast.1));
    exprs.push(Expr::Masquerade);
    vec![exprs]
}

const MULTICAST4: (&[u8], u8) = (&[224, 0, 0, 0], 4);
const MULTICAST6: (&[u8], u8) = (&[0xff], 8);

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
            let chain = chain_of(OUTSIDE, &net);
            assert!(!chain.contains(':') && chain.len() < 128);
            assert_eq!(network_of(OUTSIDE, &chain), Some(net), "{chain}");
        }
        for chain in ["postrouting", "outside-", "outside-10.0.0.1/24", "outside-10.0.0.0", "outside-fd00::/64"] {
            assert_eq!(network_of(OUTSIDE, chain), None, "{chain}");
        }
    }
}
