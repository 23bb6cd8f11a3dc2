//! Guards of a bridge's ports: a container sends with its own hardware address ([`spoof`](crate::spoof_guard)) and with its own IP
//! addresses ([`source`](crate::strict_source)), or not at all. Either may be asked for alone.
//!
//! ```text
//! table bridge netloom {
//! set ordinary4 { type iface_index . ether_addr . ipv4_addr;                             what passes without any other look, and the
//!     elements = { "veth77383ca0a07" . 0a:58:0a:58:00:05 . 10.88.0.5 comment "..." } }   same for IPv6
//! set ordinary  { type iface_index . ether_addr; }                                       of ports without strict sources
//! chain prerouting { type filter hook prerouting priority -300;                          every frame that comes by a port
//!     iif . @ll,48,64 . ip saddr @ordinary4 return
//!     meta l4proto != ipv6-icmp iif . @ll,48,64 . ip6 saddr @ordinary6 return
//!     iif . ether saddr @ordinary return
//!     ...                                                                                spoof.rs, then source.rs
//! ```
//!
//! **One look-up decides for the ordinary packet.** A base chain and each of a rule's steps cost every packet that a pod sends. Two chains with
//! a look-up in each took 0.51 us; one chain with one look-up by name and a comparison of the protocol 0.38 us, by index 0.30 us (Linux 6.18; a
//! loop of `sendto` into a bridge, turn by turn, medians); docs/internals/performance.md has more of them. So a port is known by its index
//! there, as a name of 16 bytes is slower to load and to hash, and the hardware address is loaded together with the two bytes behind it, which
//! saves the comparison: bytes 6 to 13 of the frame are its source and its Ethernet type, which is IPv4 or IPv6 in every key. A frame with a
//! VLAN tag has another type there, and is not ordinary. `nft` shows of these eight bytes of an element only the address, and the addresses in these two rules as `@nh,96,32` and
//! `@nh,64,128`.
//!
//! An element of `ordinary4` allows nothing that the guards would refuse: it has one hardware address and one IP address of the port.
//! Whether one is there decides how long a packet takes, and nothing else, as long as it goes when the address does.
//!
//! ICMPv6 is never ordinary, because an advertisement's target has to be looked at.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::{AttachmentId, Mac};
use linux::nft::{Base, ChainType, Cmp, Expr, Family, Field, Header, Hook, Meta, Reg, SetElement, Verdict};

use crate::part::{Fixed, Map, Rules, Subject, To};
use crate::phrase::octets;
use crate::source::{self, IPV4, IPV6, SOURCES4, SOURCES6, STRICT};
use crate::spoof::{self, GUARDED, MACS, element};

const ORDINARY: &str = "ordinary";
const ORDINARY4: &str = "ordinary4";
const ORDINARY6: &str = "ordinary6";
/// The bytes of an interface's index.
const INDEX: usize = 4;
/// `IPPROTO_ICMPV6`
pub(crate) const ICMPV6: u8 = 58;
/// The reference plugin's turn, before everything else.
pub(crate) const BASE: Base = Base { kind: ChainType::Filter, hook: Hook::Prerouting, priority: -300 };

/// What guards of ports need of the table.
pub static GUARDS: Subject = Subject {
    family: Family::Bridge,
    maps: &[
        Map { name: ORDINARY4, key: &[Field::IfIndex, Field::EtherAddr, Field::Ipv4Addr], to: To::Nothing, held: false },
        Map { name: ORDINARY6, key: &[Field::IfIndex, Field::EtherAddr, Field::Ipv6Addr], to: To::Nothing, held: false },
        Map { name: ORDINARY, key: &[Field::IfIndex, Field::EtherAddr], to: To::Nothing, held: false },
        Map { name: MACS, key: &[Field::IfName, Field::EtherAddr], to: To::Nothing, held: false },
        Map { name: GUARDED, key: &[Field::IfName], to: To::Count, held: false },
        Map { name: SOURCES4, key: &[Field::IfName, Field::Ipv4Addr], to: To::Nothing, held: false },
        Map { name: SOURCES6, key: &[Field::IfName, Field::Ipv6Addr], to: To::Nothing, held: false },
        Map { name: STRICT, key: &[Field::IfName], to: To::Count, held: false },
    ],
    chains: &[Fixed { name: "prerouting", base: Some(BASE), rules }],
    // A release of before had the rules of `source.rs` there.
    former: &["strict-source"],
    target: |_| None,
    companion: |_| None,
};

/// The elements by which what a port sends with its own addresses passes without any other look. `port`: its index. `addresses`: those of
/// a port with strict sources; `None` for one that may send with any IP address. Pure: add them with those of the guards.
#[must_use]
pub fn ordinary(owner: &AttachmentId, port: u32, mac: &Mac, addresses: Option<&[IpAddr]>) -> Vec<SetElement> {
    let of_port = |kind: u16| [port.to_ne_bytes().as_slice(), mac.as_bytes(), &kind.to_be_bytes()].concat();
    // There the two bytes only fill a word.
    let Some(addresses) = addresses else { return vec![element(owner, ORDINARY, of_port(0))] };
    let unique: BTreeSet<&IpAddr> = addresses.iter().collect();
    let of_address = |address: &IpAddr| {
        let (kind, set) = if address.is_ipv4() { (IPV4, ORDINARY4) } else { (IPV6, ORDINARY6) };
        element(owner, set, [of_port(kind), octets(*address)].concat())
    };
    unique.into_iter().map(of_address).collect()
}

/// The same element for another hardware address of the port; `None` for one that is not of [`ordinary`].
#[must_use]
pub fn ordinary_with(element: &SetElement, mac: &Mac) -> Option<SetElement> {
    let mut changed = element.clone();
    let of_mac = changed.element.key.get_mut(INDEX..).and_then(|rest| rest.first_chunk_mut::<6>()).filter(|_| is_ordinary(element))?;
    of_mac.copy_from_slice(mac.as_bytes());
    Some(changed)
}

/// Whether an element is one of [`ordinary`].
#[must_use]
pub fn is_ordinary(element: &SetElement) -> bool {
    element.family == Family::Bridge && [ORDINARY, ORDINARY4, ORDINARY6].contains(&element.set.as_str())
}

// --- rules ---

fn rules() -> Rules {
    // The source's hardware address and the Ethernet type.
    let source_and_type = Expr::Payload { header: Header::Link, offset: 6, len: 8, into: Reg::word(1) };
    let mut rules = vec![
        passes(&[source_and_type.clone(), Expr::ip_saddr(Reg::word(3))], ORDINARY4),
        [is_no_icmp().as_slice(), &passes(&[source_and_type, Expr::ip6_saddr(Reg::word(3))], ORDINARY6)].concat(),
        passes(&[Expr::ether_saddr(Reg::word(1))], ORDINARY),
    ];
    rules.extend(spoof::rules());
    rules.extend(source::rules());
    rules
}

/// `iif . FIELDS @SET return`: the index fills one word, the hardware address two.
fn passes(fields: &[Expr], set: &str) -> Vec<Expr> {
    let port = Expr::Meta { key: Meta::Iif, into: Reg::FIRST };
    let look_up = Expr::Lookup { reg: Reg::FIRST, set: set.to_owned(), negate: false };
    [&[port], fields, &[look_up, Expr::Verdict(Verdict::Return)]].concat()
}

/// `meta l4proto != ipv6-icmp`
fn is_no_icmp() -> [Expr; 2] {
    let reg = Reg::FIRST;
    [Expr::Meta { key: Meta::L4proto, into: reg }, Expr::Cmp { reg, how: Cmp::NotEqual, value: vec![ICMPV6] }]
}
