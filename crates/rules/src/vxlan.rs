//! Who may send to a vxlan tunnel: the cluster's nodes. A vxlan device believes every packet at its port, so whoever reaches that port would send
//! with any pod's address.
//!
//! ```text
//! set vxlanports { type inet_service; elements = { 4789 } }              the tunnel's port
//! set nodes4     { type ipv4_addr; elements = { 192.0.2.11, ... } }      the nodes' addresses, the own one among them
//! chain vxlan-senders { ct status dnat counter drop
//!                       ip saddr @nodes4 ip daddr @nodes4 return         and the same for IPv6
//!                       counter drop }
//! chain vxlan-nodes   { ip daddr @nodes4 jump vxlan-senders }            and the same for IPv6
//! chain vxlan-arrivals { type filter hook input priority 101; policy accept;
//!     udp dport @vxlanports jump vxlan-senders }
//! chain vxlan-forward { type filter hook forward priority filter; policy accept;
//!     udp dport @vxlanports jump vxlan-nodes }
//! chain vxlan-output  { type filter hook output priority filter; policy accept;
//!     udp dport @vxlanports jump vxlan-nodes }
//! ```
//!
//! **Both addresses are nodes'.** The kernel takes the tunnel's packets at every address that the node has. What a pod sends to another one of them passes
//! its own node, which knows no such address of a node's, and arrives with that node's address (masquerade).
//!
//! **Nothing is turned there.** A Service, a host port or another rule that leads to the tunnel (DNAT) has a connection of its own to show for it. IPVS
//! shows none: so the node looks at what arrives behind IPVS (`NF_IP_PRI_NAT_SRC` less 1, net/netfilter/ipvs/ip_vs_core.c), and at what it sends itself, as
//! IPVS sends pods' packets on from there. They still have the pod's address. Tunnels' own packets have a node's.
//!
//! **What passes on is looked at as well.** A pod's packet to another node may leave with this node's address (masquerade), and then that node cannot
//! know it from this node's own. So it does not leave: at this hook it still has the pod's address, and already the destination that a Service has
//! turned it to.
//!
//! **By the port alone**, and not by the network's number in the packet. A pod may send a packet of many segments (`UDP_SEGMENT`), which passes
//! here as one, and each segment has a number of its own. Another program's vxlan at the same port gets packets from the cluster's nodes only.
//!
//! It is no proof: who can send with a node's address from outside is let through. WireGuard proves who sends, and needs none of this.
//!
//! A packet to another port costs a look-up in a set of 65,536 bits, one of the tunnel a look-up in a hash more, whatever the number of nodes.
//! These elements belong to no attachment, as those of `egress.rs`: [`guard_vxlan`] and [`guard_vxlan_also`] alone change them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use linux::nft::{
    Base, ChainType, Cmp, Ct, Element, Expr, Family, Field, Header, Hook, Meta, Mode, ReadError, Reg, SetElement, Socket, Step, Verdict,
};

use crate::TABLE;
use crate::install::{AddError, ROUNDS, is_ours, whole, without_former, wrong_fixed};
use crate::part::{Fixed, Map, Rules, Subject, To, filter};
use crate::phrase::{address, connection, is_ipv4, is_ipv6, octets};

const PORTS: &str = "vxlanports";
const NODES4: &str = "nodes4";
const NODES6: &str = "nodes6";
const SENDERS: &str = "vxlan-senders";
const NODES: &str = "vxlan-nodes";
/// Behind IPVS, which turns packets at this hook.
const INPUT: Base = Base { kind: ChainType::Filter, hook: Hook::Input, priority: Base::SRCNAT + 1 };
const OUTPUT: Base = Base { kind: ChainType::Filter, hook: Hook::Output, priority: Base::FILTER };

/// What the guard of vxlan tunnels needs of the table.
pub static VXLAN: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: PORTS, key: &[Field::InetService], to: To::OfNode, held: false },
        Map { name: NODES4, key: &[Field::Ipv4Addr], to: To::OfNode, held: false },
        Map { name: NODES6, key: &[Field::Ipv6Addr], to: To::OfNode, held: false },
    ],
    chains: &[
        Fixed { name: SENDERS, base: None, rules: senders },
        Fixed { name: NODES, base: None, rules: nodes },
        Fixed { name: "vxlan-arrivals", base: Some(INPUT), rules: arrivals },
        Fixed { name: "vxlan-forward", base: Some(filter(Base::FILTER)), rules: to_nodes },
        Fixed { name: "vxlan-output", base: Some(OUTPUT), rules: to_nodes },
    ],
    // The kernel changes the priority of no chain.
    former: &["vxlan-input"],
    target: |_| None,
    companion: |_| None,
};

/// Whose packets a tunnel takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enclosed {
    /// The UDP port that tunnels end at; `None`: there is no tunnel, and nobody's packets are looked at.
    pub port: Option<u16>,
    /// The addresses that nodes send them from.
    pub nodes: BTreeSet<IpAddr>,
}

/// Makes the kernel have exactly these elements, and the rules over them, in one transaction; how many elements were written. `before`: what the
/// last call has left, as far as is known; then nothing is read unless the kernel says that it has something else.
///
/// # Errors
/// [`AddError`]; nothing has changed then.
pub fn guard_vxlan(socket: &mut Socket, before: Option<&Enclosed>, now: &Enclosed) -> Result<usize, AddError> {
    let none = BTreeSet::new();
    let wanted = (now.port.into_iter().collect(), if now.port.is_some() { &now.nodes } else { &none });
    if let Some(before) = before.filter(|before| before.port.is_some() && now.port.is_some()) {
        let steps = differences((&before.port.into_iter().collect(), &before.nodes), (&wanted.0, wanted.1));
        match socket.commit(&steps.iter().cloned().collect()) {
            Ok(()) => return Ok(steps.len()),
            Err(e) if e.is_present() || e.is_missing() => {}
            Err(e) => return Err(e.into()),
        }
    }
    write(socket, now.port.is_some(), |ports, nodes| differences((ports, nodes), (&wanted.0, wanted.1)))
}

/// Makes the kernel have these elements beside those that it has, and the rules over them, in one transaction; how many elements were written.
///
/// # Errors
/// As of [`guard_vxlan`].
pub fn guard_vxlan_also(socket: &mut Socket, more: &Enclosed) -> Result<usize, AddError> {
    if more.port.is_none() {
        return Ok(0);
    }
    write(socket, true, |ports, nodes| {
        let all = (ports.iter().copied().chain(more.port).collect(), nodes.union(&more.nodes).copied().collect());
        differences((ports, nodes), (&all.0, &all.1))
    })
}

/// Writes what leads from what the kernel has to what is wanted, and the rules where they are needed and lack.
fn write(
    socket: &mut Socket,
    needs_rules: bool,
    steps: impl Fn(&BTreeSet<u16>, &BTreeSet<IpAddr>) -> Vec<Step>,
) -> Result<usize, AddError> {
    for round in 0.. {
        let (ports, nodes) = read(socket)?;
        let elements = steps(&ports, &nodes);
        let lacks_rules = needs_rules && wrong_fixed(socket, &VXLAN)?.is_some();
        if elements.is_empty() && !lacks_rules {
            break;
        }
        is_ours(socket, VXLAN.family)?;
        let mut all = Vec::new();
        if lacks_rules {
            all.extend(whole(Mode::Add, &[&VXLAN], &BTreeSet::new()));
            all.extend(without_former(socket, &[&VXLAN])?);
        }
        let written = elements.len();
        match socket.commit(&all.into_iter().chain(elements).collect()) {
            Ok(()) => return Ok(written),
            // Somebody else was faster: look again.
            Err(e) if round < ROUNDS && (e.is_present() || e.is_missing()) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(0)
}

/// The ports and the nodes that the kernel has.
fn read(socket: &mut Socket) -> Result<(BTreeSet<u16>, BTreeSet<IpAddr>), ReadError> {
    let mut keys = |set| socket.elements(VXLAN.family, TABLE, set).map(|elements| elements.into_iter().map(|element| element.key));
    let port = |key: Vec<u8>| key.first_chunk().copied().map(u16::from_be_bytes);
    let ports = keys(PORTS)?.filter_map(port).collect();
    let nodes = keys(NODES4)?.filter_map(|key| address(&key)).collect::<BTreeSet<_>>();
    Ok((ports, keys(NODES6)?.filter_map(|key| address(&key)).chain(nodes).collect()))
}

/// What leads from the elements that there are to those that are wanted.
fn differences(there: (&BTreeSet<u16>, &BTreeSet<IpAddr>), wanted: (&BTreeSet<u16>, &BTreeSet<IpAddr>)) -> Vec<Step> {
    let element = |set: &str, key: Vec<u8>| SetElement {
        family: VXLAN.family,
        table: TABLE.to_owned(),
        set: set.to_owned(),
        element: Element { key, key_end: None, data: None, comment: None, note: None },
    };
    let of_port = |port: &u16| element(PORTS, port.to_be_bytes().to_vec());
    let of_node = |node: &IpAddr| element(if node.is_ipv4() { NODES4 } else { NODES6 }, octets(*node));
    let go = there.0.difference(wanted.0).map(of_port).chain(there.1.difference(wanted.1).map(of_node));
    let come = wanted.0.difference(there.0).map(of_port).chain(wanted.1.difference(there.1).map(of_node));
    go.map(Step::DeleteElement).chain(come.map(|element| Step::Element(Mode::Create, element))).collect()
}

// --- rules ---

fn look_up(set: &str) -> Expr {
    Expr::Lookup { reg: Reg::FIRST, set: set.to_owned(), negate: false }
}

/// Does it where these addresses are nodes'.
fn of_nodes<const N: usize>(is_family: [Expr; 2], addresses: [Expr; N], set: &str, then: Expr) -> Vec<Expr> {
    let are_nodes = addresses.into_iter().flat_map(|address| [address, look_up(set)]);
    is_family.into_iter().chain(are_nodes).chain([then]).collect()
}

fn senders() -> Rules {
    let passes = || Expr::Verdict(Verdict::Return);
    let drops = [Expr::Counter, Expr::Verdict(Verdict::Drop)];
    vec![
        [connection(Ct::Status, Ct::DNAT, Cmp::NotEqual).as_slice(), &drops].concat(),
        of_nodes(is_ipv4(), [Expr::ip_saddr(Reg::FIRST), Expr::ip_daddr(Reg::FIRST)], NODES4, passes()),
        of_nodes(is_ipv6(), [Expr::ip6_saddr(Reg::FIRST), Expr::ip6_daddr(Reg::FIRST)], NODES6, passes()),
        drops.to_vec(),
    ]
}

fn nodes() -> Rules {
    let asks = || Expr::Jump(SENDERS.to_owned());
    vec![
        of_nodes(is_ipv4(), [Expr::ip_daddr(Reg::FIRST)], NODES4, asks()),
        of_nodes(is_ipv6(), [Expr::ip6_daddr(Reg::FIRST)], NODES6, asks()),
    ]
}

fn arrivals() -> Rules {
    vec![to_tunnel(SENDERS)]
}

fn to_nodes() -> Rules {
    vec![to_tunnel(NODES)]
}

/// `udp dport @vxlanports jump CHAIN`
fn to_tunnel(chain: &str) -> Vec<Expr> {
    const UDP: u8 = 17;
    let reg = Reg::FIRST;
    vec![
        Expr::Meta { key: Meta::L4proto, into: reg },
        Expr::Cmp { reg, how: Cmp::Equal, value: vec![UDP] },
        Expr::Payload { header: Header::Transport, offset: 2, len: 2, into: reg },
        look_up(PORTS),
        Expr::Jump(chain.to_owned()),
    ]
}
