//! Strict sources: a container sends with its own IP addresses, or not at all.
//!
//! ```text
//! table bridge netloom {
//! set sources4 { type ifname . ipv4_addr;                                an element an address, and the same for IPv6
//!     elements = { "veth77383ca0a07" . 10.88.0.5 comment "lab/pod-1/eth0" } }
//! set strict   { type ifname; counter;                                   an element a port of a bridge
//!     elements = { "veth77383ca0a07" counter packets 3 bytes 126 comment "lab/pod-1/eth0" } }
//! chain prerouting {                                                     for what is not ordinary (guards.rs), behind spoof.rs
//!     iifname . ip saddr @sources4 return
//!     iifname . arp saddr ip @sources4 return
//!     icmpv6 type nd-neighbor-advert icmpv6 taddr != fe80::/10 iifname . icmpv6 taddr != @sources6 iifname @strict drop
//!     iifname . ip6 saddr @sources6 return
//!     ip saddr 0.0.0.0 return                                            DHCP; and ARP probes, with the same address
//!     ip saddr 169.254.0.0/16 ip daddr 169.254.0.0/16 return             link-local addresses, on the link: and to 224.0.0.0/24 and
//!     arp saddr ip 169.254.0.0/16 return                                 255.255.255.255
//!     ip6 saddr :: return; ip6 saddr fe80::/10 return                    duplicate address detection; neighbours
//!     meta protocol != { ip, arp, ip6, 8021q, 8021ad } return
//!     iifname @strict drop } }
//! ```
//!
//! A frame costs two look-ups in a hash more than an ordinary one, whatever the number of containers. What is dropped is counted in the
//! element of `strict`, as that is looked up only for what no rule before has let through.
//!
//! **A VLAN tag hides nothing.** The kernel takes the outermost off before these rules, and `meta protocol` is what is behind it.
//! Where a second one is behind it the frame is dropped: a receiver takes off any number of tags of VLAN 0.
//!
//! **Neighbour advertisements** say whose an address is in their target, as ARP does in its sender; so that is looked at as well.
//!
//! **Frames to 01:80:c2:00:00:0X** that are for the bridge itself do not pass this chain, and reach no other container. The host takes
//! an IP packet in one for its own, as come by the port; where `rp_filter` is strict it drops those whose address is elsewhere.
//!
//! A port is known by its name, as in `spoof.rs`. Linux 5.7 counts; the family `bridge` is `CONFIG_NF_TABLES_BRIDGE`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use cni::{AttachmentId, IfName};
use linux::nft::{Cmp, Count, Expr, Family, Header, Meta, ReadError, Reg, SetElement, Socket, Verdict};

use crate::guards::ICMPV6;
use crate::part::Rules;
use crate::phrase::{address, octets, within};
use crate::spoof::{NAME, element, name, port_of};
use crate::{GUARDS, Meaning, OwnerKey, TABLE, all};

pub(crate) const SOURCES4: &str = "sources4";
pub(crate) const SOURCES6: &str = "sources6";
pub(crate) const STRICT: &str = "strict";

/// The elements that let this port of a bridge send with these IP addresses, and no others. Pure: add them with
/// [`install_and_add`](crate::install_and_add), all in one call.
#[must_use]
pub fn strict_source(owner: &AttachmentId, port: &IfName, addresses: &[IpAddr]) -> Vec<SetElement> {
    let unique: BTreeSet<&IpAddr> = addresses.iter().collect();
    let of_address = |address: &&IpAddr| {
        let mut key = name(port);
        key.extend(octets(**address));
        element(owner, if address.is_ipv4() { SOURCES4 } else { SOURCES6 }, key)
    };
    unique.iter().map(of_address).chain([strict(owner, port)]).collect()
}

/// The element by which a port's sources are checked; which addresses it may send with is told by others.
#[must_use]
pub fn strict(owner: &AttachmentId, port: &IfName) -> SetElement {
    element(owner, STRICT, name(port))
}

/// The port whose sources an element checks, or lets send; `None` for one of another subject.
#[must_use]
pub fn strict_port(element: &SetElement) -> Option<String> {
    let is_of_it = element.family == Family::Bridge && [SOURCES4, SOURCES6, STRICT].contains(&element.set.as_str());
    if is_of_it { port_of(&element.element.key) } else { None }
}

/// The IP address that an element lets a port send with; `None` for any other element.
#[must_use]
pub fn strict_address(element: &SetElement) -> Option<IpAddr> {
    strict_port(element).and_then(|_| address(element.element.key.get(NAME..)?))
}

/// What all attachments have of strict sources: one meaning a port.
pub(crate) fn meanings(socket: &mut Socket) -> Result<Vec<(OwnerKey, Meaning)>, ReadError> {
    let counts = socket.counts(Family::Bridge, TABLE, STRICT)?;
    let dropped: HashMap<Vec<u8>, Count> = counts.into_iter().map(|(element, count)| (element.key, count)).collect();
    let mut of_port: BTreeMap<Vec<u8>, (OwnerKey, BTreeSet<IpAddr>)> = BTreeMap::new();
    let elements = all(socket, &GUARDS)?;
    for (owner, element) in elements.iter().filter(|(_, e)| e.set == STRICT) {
        of_port.insert(element.element.key.clone(), (owner.clone(), BTreeSet::new()));
    }
    // Where a port is not checked, its address is let through as any other is.
    for (_, element) in &elements {
        let of_element = element.element.key.get(..NAME).and_then(|port| of_port.get_mut(port));
        if let (Some((_, addresses)), Some(address)) = (of_element, strict_address(element)) {
            addresses.insert(address);
        }
    }
    let meaning = |(key, (owner, addresses)): (Vec<u8>, (OwnerKey, BTreeSet<IpAddr>))| {
        let dropped = *dropped.get(&key)?;
        let port = port_of(&key).unwrap_or_default();
        Some((owner, Meaning::StrictSource { port, addresses: addresses.into_iter().collect(), dropped }))
    };
    Ok(of_port.into_iter().filter_map(meaning).collect())
}

// --- rules ---

pub(crate) const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
/// VLAN tags.
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// `meta protocol ip`
fn protocol(number: u16, how: Cmp) -> [Expr; 2] {
    let reg = Reg::FIRST;
    [Expr::Meta { key: Meta::Protocol, into: reg }, Expr::Cmp { reg, how, value: number.to_be_bytes().to_vec() }]
}

/// `iifname . FIELD @SET`: the name fills four words.
fn own(field: &Expr, set: &str, negate: bool) -> [Expr; 3] {
    let mut behind = field.clone();
    if let Expr::Payload { into, .. } = &mut behind {
        *into = Reg::word(4);
    }
    [Expr::Meta { key: Meta::IifName, into: Reg::FIRST }, behind, Expr::Lookup { reg: Reg::FIRST, set: set.to_owned(), negate }]
}

/// `iifname @strict drop`
fn or_drop() -> [Expr; 3] {
    let reg = Reg::FIRST;
    let in_set = Expr::Lookup { reg, set: STRICT.to_owned(), negate: false };
    [Expr::Meta { key: Meta::IifName, into: reg }, in_set, Expr::Verdict(Verdict::Drop)]
}

pub(crate) fn rules() -> Rules {
    const LINK_LOCAL4: (&[u8], u8) = (&[169, 254, 0, 0], 16);
    const LOCAL_MULTICAST4: (&[u8], u8) = (&[224, 0, 0, 0], 24);
    const BROADCAST4: (&[u8], u8) = (&[255; 4], 32);
    const NONE4: (&[u8], u8) = (&[0; 4], 32);
    const NONE6: (&[u8], u8) = (&[0; 16], 128);
    let passes = || Expr::Verdict(Verdict::Return);
    // `arp saddr ip`, of an Ethernet.
    let (ip, arp, ip6) = (Expr::ip_saddr(Reg::FIRST), Expr::network(14, 4, Reg::FIRST), Expr::ip6_saddr(Reg::FIRST));
    let known =
        |number: u16, load: &Expr, set: &str| [protocol(number, Cmp::Equal).as_slice(), &own(load, set, false), &[passes()]].concat();
    let always = |number: u16, load: &Expr, (network, length): (&[u8], u8)| {
        [protocol(number, Cmp::Equal).as_slice(), &within(load, Cmp::Equal, network, length), &[passes()]].concat()
    };
    // A router passes none of them on (RFC 3927 section 2.7), and neither does a node.
    let on_link = |(network, length): (&[u8], u8)| {
        let mut exprs = protocol(IPV4, Cmp::Equal).to_vec();
        exprs.extend(within(&ip, Cmp::Equal, LINK_LOCAL4.0, LINK_LOCAL4.1));
        exprs.extend(within(&Expr::ip_daddr(Reg::FIRST), Cmp::Equal, network, length));
        exprs.push(passes());
        exprs
    };
    vec![
        known(IPV4, &ip, SOURCES4),
        known(ARP, &arp, SOURCES4),
        advertised(),
        known(IPV6, &ip6, SOURCES6),
        always(IPV4, &ip, NONE4),
        on_link(LINK_LOCAL4),
        on_link(LOCAL_MULTICAST4),
        on_link(BROADCAST4),
        always(ARP, &arp, NONE4),
        always(ARP, &arp, LINK_LOCAL4),
        always(IPV6, &ip6, NONE6),
        always(IPV6, &ip6, LINK_LOCAL6),
        others(),
        or_drop().to_vec(),
    ]
}

const LINK_LOCAL6: (&[u8], u8) = (&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 10);

/// A neighbour advertisement of an address that is not the port's own.
fn advertised() -> Vec<Expr> {
    const ADVERTISEMENT: u8 = 136;
    let reg = Reg::FIRST;
    let is = |value: u8| Expr::Cmp { reg, how: Cmp::Equal, value: vec![value] };
    let transport = |offset: u32, len: u32| Expr::Payload { header: Header::Transport, offset, len, into: reg };
    let target = transport(8, 16);
    let (network, length) = LINK_LOCAL6;
    let mut exprs = protocol(IPV6, Cmp::Equal).to_vec();
    exprs.extend([Expr::Meta { key: Meta::L4proto, into: reg }, is(ICMPV6), transport(0, 1), is(ADVERTISEMENT)]);
    exprs.extend(within(&target, Cmp::NotEqual, network, length));
    exprs.extend(own(&target, SOURCES6, true));
    exprs.extend(or_drop());
    exprs
}

/// What has no IP address that a receiver would find.
fn others() -> Vec<Expr> {
    let mut exprs: Vec<Expr> = [IPV4, ARP, IPV6].into_iter().chain(TAGS).flat_map(|number| protocol(number, Cmp::NotEqual)).collect();
    exprs.push(Expr::Verdict(Verdict::Return));
    exprs
}
