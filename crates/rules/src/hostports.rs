//! Host ports, for `portmap`: what comes for a port of the host goes to a container.
//!
//! ```text
//! map hostports4 { type inet_proto . inet_service : ipv4_addr . inet_service;              an element a port
//!     elements = { tcp . 8080 comment "lab/pod-1/eth0" : 10.88.0.5 . 80 } }
//! map hostports4_at { type ipv4_addr . inet_proto . inet_service : ...                     for one of the host's addresses
//! map snat4 { type ipv4_addr : verdict;                                                    an element an address of a container
//!     elements = { 10.88.0.5 comment "lab/pod-1/eth0" : jump hairpin-10.88.0.0/24 } }
//!
//! chain hostports-in   { type nat hook prerouting priority dstnat + 10;                    what comes from outside, or a container
//!     ip daddr 127.0.0.0/8 return
//!     fib daddr type local jump hostports }
//! chain hostports-out  { type nat hook output priority dstnat + 10;                        what the host itself sends
//!     ip6 daddr ::1 return
//!     fib daddr type local jump hostports }
//! chain hostports      { dnat ip to ip daddr . meta l4proto . th dport map @hostports4_at
//!     dnat ip to meta l4proto . th dport map @hostports4 }
//! chain hostports-back { type nat hook postrouting priority srcnat;
//!     ct status dnat ip daddr vmap @snat4 }
//! chain hairpin-10.88.0.0/24 { ip saddr 10.88.0.0/24 masquerade                            a chain a network
//!     ip saddr 127.0.0.0/8 masquerade }
//! chain loopback       { type filter hook input priority filter;
//!     iif != lo ip daddr 127.0.0.0/8 ct state != established,related ct status != dnat drop }      and the same for IPv6
//! ```
//!
//! **What is taken.** Only what is for an address of the host (`fib daddr type local`): other traffic that passes through, to the
//! same port elsewhere, is not looked at (CVE-2025-67499). A port of one address wins over the same port of all, and one with conditions
//! (`conditions.rs`) over both. So no two containers have one port in several of these maps ([`are_free`]): the first would lose it.
//!
//! **After the Services.** Priority 10 behind `dstnat`: where a Service's rules (kube-proxy, at `dstnat`) have decided where a
//! connection goes, the kernel asks no later chain (CVE-2019-9946).
//!
//! **Who answers.** A container in the same network would answer the one that asked directly, past the host, which alone can
//! translate back. So what comes from the container's own network leaves with the host's address; and what comes from
//! 127.0.0.1, which nobody could answer.
//!
//! **Loopback.** For the latter an interface needs `route_localnet`, with which the kernel takes packets for 127.0.0.0/8 from
//! its neighbours too. They are dropped (CVE-2020-8558), and a port published at 127.0.0.1 is not reached from outside.
//! IPv6 has no such setting: what is for ::1 stays with the host, so that `localhost` fails at once and is tried again over IPv4.
//!
//! The first packet of a connection pays for it, and no other: one look-up in a hash for an address of the host and one for
//! all, whatever the number of ports. The chain `loopback` costs each packet for the host a comparison.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cni::AttachmentId;
use ipnet::IpNet;
use linux::nft::{Base, ChainType, Cmp, Ct, Data, Element, Expr, Family, Field, Header, Hook, Meta, Reg, SetElement, Socket, Verdict};

use crate::conditions::conditional;
use crate::install::{AddError, holder_of, lacks};
use crate::part::{Fixed, Map, Rules, Subject, To};
use crate::phrase::{address, chain_of, connection, is_family_of, is_ipv4, is_ipv6, network_of, octets, source, within};
use crate::{OwnerKey, TABLE};

/// Begins the name of a network's chain.
const HAIRPIN: &str = "hairpin-";
/// The chain of those that never see who asks.
const EVERYTHING: &str = "hairpin-everything";
/// The chain that both ways in jump to.
const LOOK_UP: &str = "hostports";
/// `dstnat + 10`
pub(crate) const PRIORITY: i32 = Base::DSTNAT + 10;
/// `RTN_LOCAL`
pub(crate) const LOCAL: u32 = 2;

pub(crate) const V4: &[Field] = &[Field::Ipv4Addr, Field::InetService];
pub(crate) const V6: &[Field] = &[Field::Ipv6Addr, Field::InetService];

/// What host ports need of the table.
pub static HOST_PORTS: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: "hostports4", key: &[Field::InetProto, Field::InetService], to: To::Fields(V4), held: true },
        Map { name: "hostports4_at", key: &[Field::Ipv4Addr, Field::InetProto, Field::InetService], to: To::Fields(V4), held: true },
        Map { name: "hostports6", key: &[Field::InetProto, Field::InetService], to: To::Fields(V6), held: true },
        Map { name: "hostports6_at", key: &[Field::Ipv6Addr, Field::InetProto, Field::InetService], to: To::Fields(V6), held: true },
        Map { name: "snat4", key: &[Field::Ipv4Addr], to: To::Chain, held: false },
        Map { name: "snat6", key: &[Field::Ipv6Addr], to: To::Chain, held: false },
    ],
    chains: &[
        Fixed { name: LOOK_UP, base: None, rules: look_up },
        Fixed { name: "hostports-in", base: Some(nat(Hook::Prerouting, PRIORITY)), rules: || from_outside(LOOK_UP) },
        Fixed { name: "hostports-out", base: Some(nat(Hook::Output, PRIORITY)), rules: || from_here(LOOK_UP) },
        Fixed { name: "hostports-back", base: Some(nat(Hook::Postrouting, Base::SRCNAT)), rules: back },
        Fixed {
            name: "loopback",
            base: Some(Base { kind: ChainType::Filter, hook: Hook::Input, priority: Base::FILTER }),
            rules: loopback,
        },
    ],
    former: &[],
    target: |chain| match chain {
        EVERYTHING => Some(vec![vec![Expr::Masquerade]]),
        _ => network_of(HAIRPIN, chain).map(|net| hairpin(&net)),
    },
    companion: |_| None,
};

/// A transport protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

/// One port of the host, and where what comes for it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// Of which protocol.
    pub protocol: Protocol,
    /// Of this address of the host; `None`: of all.
    pub at: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// The container's address and port.
    pub to: SocketAddr,
}

/// Which connections through a host port reach the container with the host's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    /// Those from the container's own network, and from 127.0.0.0/8.
    Hairpin,
    /// All.
    Everything,
}

/// The elements that publish these ports. Pure: add them with [`install_and_add`](crate::install_and_add). A port at an address
/// of another family than the container's has none.
#[must_use]
pub fn host_ports(owner: &AttachmentId, ports: &[HostPort]) -> Vec<SetElement> {
    let same_family = |port: &&HostPort| port.at.is_none_or(|at| at.is_ipv4() == port.to.is_ipv4());
    ports.iter().filter(same_family).map(|port| port.element(owner)).collect()
}

/// Whether no other container has one of these ports: of the same address, or of all where one of the two is of all; with conditions or
/// without. One that had this container's address cannot be there any more. To be asked before the ports are published, so that nothing
/// changes for who has them; and once more afterwards: of two that do so at once, each sees the other then.
///
/// # Errors
/// [`AddError::Held`]: the first that another has.
pub fn are_free(socket: &mut Socket, owner: &AttachmentId, ports: &[HostPort]) -> Result<(), AddError> {
    let mut places = Vec::new();
    for port in ports {
        let of_all = HostPort { at: None, ..*port }.element(owner);
        let conditional = SetElement { set: conditional(port.to.is_ipv4()).to_owned(), ..of_all.clone() };
        let of_one = port.at.map(|_| port.element(owner));
        places.extend([of_all, conditional].into_iter().chain(of_one).map(|place| (port, place)));
    }
    let elements: Vec<SetElement> = places.iter().map(|(_, place)| place.clone()).collect();
    let mut there: Vec<(&HostPort, Element)> = Vec::new();
    for ((port, _), found) in places.iter().zip(socket.find(&elements)?) {
        there.extend(found.map(|found| (*port, found)));
    }
    for v4 in [true, false] {
        let of_all: Vec<&HostPort> = ports.iter().filter(|port| port.at.is_none() && port.to.is_ipv4() == v4).collect();
        if of_all.is_empty() {
            continue;
        }
        for found in socket.elements(Family::Inet, TABLE, if v4 { "hostports4_at" } else { "hostports6_at" })? {
            let same = of_all.iter().find(|port| found.key.ends_with(&port.key()));
            there.extend(same.map(|port| (*port, found)));
        }
    }
    for (port, found) in there {
        let key = found.comment.as_deref().and_then(OwnerKey::parse);
        let is_own = key.as_ref().is_some_and(|key| key.is_of_container(&owner.container));
        if !is_own && leads_to(&found) != Some(octets(port.to.ip()).as_slice()) {
            return Err(AddError::Held { what: port.to_string(), owner: holder_of(&found) });
        }
    }
    Ok(())
}

/// The address that a port leads to.
pub(crate) fn leads_to(element: &Element) -> Option<&[u8]> {
    match &element.data {
        Some(Data::Value(value)) => value.split_last_chunk::<4>().map(|(address, _)| address),
        _ => None,
    }
}

/// The element that says which connections reach this address, given with its network's prefix length, with the host's.
#[must_use]
pub fn sources(owner: &AttachmentId, address: IpNet, rewrite: Rewrite) -> SetElement {
    let chain = match rewrite {
        Rewrite::Hairpin if address.prefix_len() > 0 => chain_of(HAIRPIN, &address),
        _ => EVERYTHING.to_owned(),
    };
    let map = if address.addr().is_ipv4() { "snat4" } else { "snat6" };
    element(owner, map, octets(address.addr()), Data::Jump(chain))
}

/// Whether the kernel has all that host ports need (`CONFIG_NFT_FIB_INET`, `CONFIG_NFT_NAT`, `CONFIG_NFT_MASQ`, `CONFIG_NFT_CT`).
/// `None`: it has; else what it says.
///
/// # Errors
/// [`AddError`], if it could not be asked, or an ADD would fail for another reason.
pub fn lacks_host_ports(socket: &mut Socket) -> Result<Option<String>, AddError> {
    lacks(socket, &HOST_PORTS, EVERYTHING)
}

/// The address whose connections an element of [`sources`] is about, and the network that they come from, `None` for all of
/// them; `None` for any other element.
pub(crate) fn rewritten(element: &SetElement) -> Option<(IpAddr, Option<IpNet>)> {
    let Some(Data::Jump(chain)) = &element.element.data else { return None };
    let from = network_of(HAIRPIN, chain);
    (from.is_some() || chain == EVERYTHING).then_some((address(&element.element.key)?, from))
}

pub(crate) fn element(owner: &AttachmentId, map: &str, key: Vec<u8>, data: Data) -> SetElement {
    let comment = Some(OwnerKey::of(owner).as_str().to_owned());
    let element = Element { key, key_end: None, data: Some(data), comment, note: None };
    SetElement { family: Family::Inet, table: TABLE.to_owned(), set: map.to_owned(), element }
}

// === impl Protocol ===

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// Its number in an IP header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }

    pub(crate) fn named(number: u8) -> Option<Self> {
        Protocol::ALL.into_iter().find(|p| p.number() == number)
    }
}

// === impl HostPort ===

impl HostPort {
    fn element(&self, owner: &AttachmentId) -> SetElement {
        let map = match (self.to.is_ipv4(), self.at) {
            (true, None) => "hostports4",
            (true, Some(_)) => "hostports4_at",
            (false, None) => "hostports6",
            (false, Some(_)) => "hostports6_at",
        };
        let mut key = self.at.map(octets).unwrap_or_default();
        key.extend(self.key());
        let mut to = octets(self.to.ip());
        to.extend(padded(self.to.port()));
        element(owner, map, key, Data::Value(to))
    }

    /// Protocol and port, as they stand in the keys of maps, behind an address where there is one.
    fn key(&self) -> [u8; 8] {
        let [high, low] = self.port.to_be_bytes();
        [self.protocol.number(), 0, 0, 0, high, low, 0, 0]
    }

    /// The port that an element publishes; `None` for any other element.
    #[must_use]
    pub fn of(element: &SetElement) -> Option<Self> {
        let Some(Data::Value(to)) = &element.element.data else { return None };
        let (rest, port) = element.element.key.split_last_chunk::<4>()?;
        let (at, protocol) = rest.split_last_chunk::<4>()?;
        let (to, to_port) = to.split_last_chunk::<4>()?;
        let at = if at.is_empty() { None } else { Some(address(at)?) };
        let [protocol, ..] = *protocol;
        let (protocol, port) = (Protocol::named(protocol)?, unpadded(*port));
        Some(HostPort { protocol, at, port, to: SocketAddr::new(address(to)?, unpadded(*to_port)) })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host port {}/{}", self.port, self.protocol.name())?;
        self.at.map_or(Ok(()), |at| write!(f, " of {at}"))
    }
}

/// A port as a field of a concatenation.
fn padded(port: u16) -> [u8; 4] {
    let [high, low] = port.to_be_bytes();
    [high, low, 0, 0]
}

fn unpadded([high, low, ..]: [u8; 4]) -> u16 {
    u16::from_be_bytes([high, low])
}

// --- rules ---

pub(crate) const fn nat(hook: Hook, priority: i32) -> Base {
    Base { kind: ChainType::Nat, hook, priority }
}

/// The chain `hostports`: one address first.
fn look_up() -> Rules {
    let mut rules = Vec::new();
    for (ip, is_ip, load, words) in
        [(linux::Family::V4, is_ipv4(), Expr::ip_daddr(Reg::FIRST), 1), (linux::Family::V6, is_ipv6(), Expr::ip6_daddr(Reg::FIRST), 4)]
    {
        let name = if ip == linux::Family::V4 { "hostports4" } else { "hostports6" };
        let dnat = |map: String| {
            [Expr::Map { reg: Reg::FIRST, map, into: Reg::FIRST }, Expr::Dnat { ip, address: Reg::FIRST, port: Reg::word(words) }]
        };
        rules.push([is_ip.as_slice(), &[load], &port_into(words), &dnat(format!("{name}_at"))].concat());
        rules.push([is_ip.as_slice(), &port_into(0), &dnat(name.to_owned())].concat());
    }
    rules
}

/// `meta l4proto . th dport`, from this word on.
pub(crate) fn port_into(word: u8) -> [Expr; 2] {
    let port = Expr::Payload { header: Header::Transport, offset: 2, len: 2, into: Reg::word(word + 1) };
    [Expr::Meta { key: Meta::L4proto, into: Reg::word(word) }, port]
}

/// `fib daddr type local jump hostports`
fn jump(to: &str) -> Vec<Expr> {
    let reg = Reg::FIRST;
    let local = Expr::Cmp { reg, how: Cmp::Equal, value: LOCAL.to_ne_bytes().to_vec() };
    vec![Expr::DestinationType { into: reg }, local, Expr::Jump(to.to_owned())]
}

/// `ip daddr 127.0.0.0/8`
fn to_loopback4() -> Vec<Expr> {
    [is_ipv4().to_vec(), within(&Expr::ip_daddr(Reg::FIRST), Cmp::Equal, &Ipv4Addr::LOCALHOST.octets(), 8)].concat()
}

pub(crate) fn from_outside(to: &str) -> Rules {
    let mut elsewhere = to_loopback4();
    elsewhere.push(Expr::Verdict(Verdict::Return));
    vec![elsewhere, jump(to)]
}

pub(crate) fn from_here(to: &str) -> Rules {
    let mut loopback6 = is_ipv6().to_vec();
    loopback6.extend(within(&Expr::ip6_daddr(Reg::FIRST), Cmp::Equal, &Ipv6Addr::LOCALHOST.octets(), 128));
    loopback6.push(Expr::Verdict(Verdict::Return));
    vec![loopback6, jump(to)]
}

fn back() -> Rules {
    let dnat = connection(Ct::Status, Ct::DNAT, Cmp::NotEqual);
    let vmap = |map: &str| Expr::VerdictMap { reg: Reg::FIRST, map: map.to_owned() };
    vec![
        [dnat.as_slice(), &is_ipv4(), &[Expr::ip_daddr(Reg::FIRST), vmap("snat4")]].concat(),
        [dnat.as_slice(), &is_ipv6(), &[Expr::ip6_daddr(Reg::FIRST), vmap("snat6")]].concat(),
    ]
}

fn hairpin(net: &IpNet) -> Rules {
    let from = |network: &[u8], length: u8| {
        let mut exprs = is_family_of(net).to_vec();
        exprs.extend(within(&source(net), Cmp::Equal, network, length));
        exprs.push(Expr::Masquerade);
        exprs
    };
    let mut rules = vec![from(&octets(net.network()), net.prefix_len())];
    if net.addr().is_ipv4() {
        rules.push(from(&Ipv4Addr::LOCALHOST.octets(), 8));
    }
    rules
}

fn loopback() -> Rules {
    let reg = Reg::FIRST;
    let elsewhere = Expr::Cmp { reg, how: Cmp::NotEqual, value: linux::link::LOOPBACK.to_ne_bytes().to_vec() };
    let mut exprs = vec![Expr::Meta { key: Meta::Iif, into: reg }, elsewhere];
    exprs.extend(to_loopback4());
    exprs.extend(connection(Ct::State, Ct::ESTABLISHED | Ct::RELATED, Cmp::Equal));
    exprs.extend(connection(Ct::Status, Ct::DNAT, Cmp::Equal));
    exprs.push(Expr::Verdict(Verdict::Drop));
    vec![exprs]
}
