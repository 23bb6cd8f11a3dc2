//! Who may send to a vxlan tunnel: the cluster's nodes. A vxlan device believes every packet at its port, so whoever reaches that port would send
//! with any pod's address.
//!
//! ```text
//! set vxlanports { type inet_service; elements = { 4789 } }              the tunnel's port
//! set nodes4     { type ipv4_addr; elements = { 192.0.2.11, ... } }      the nodes' addresses, the own one among them
//! chain vxlan-turned { ip daddr @nodes4 counter drop }                                      and the same for IPv6
//! chain vxlan-masqueraded { type filter hook postrouting priority 101; policy accept;
//!     ct status snat udp sport @vxlanports jump vxlan-turned }
//! chain vxlan-senders { ip saddr @nodes4 ct original ip daddr @nodes4
//!                           meta l4proto udp ct original proto-dst @vxlanports return      and the same for IPv6
//!                       ct state untracked ip saddr @nodes4 ip daddr @nodes4 return        and the same for IPv6
//!                       counter drop }
//! chain vxlan-nodes   { the first two rules of vxlan-senders
//!                       ip daddr @nodes4 jump vxlan-senders }            and the same for IPv6
//! chain vxlan-strays  { meta iifkind "bridge" fib saddr . iif oif missing counter drop }   and the same for the other kinds of pods' links
//! chain vxlan-arrived { jump vxlan-strays
//!                       jump vxlan-senders }
//! chain vxlan-passing { jump vxlan-strays
//!                       jump vxlan-nodes }
//! chain vxlan-arrivals { type filter hook input priority 101; policy accept;
//!     udp dport @vxlanports jump vxlan-arrived }
//! chain vxlan-forward { type filter hook forward priority filter; policy accept;
//!     udp dport @vxlanports jump vxlan-passing }
//! chain vxlan-output  { type filter hook output priority filter; policy accept;
//!     udp dport @vxlanports jump vxlan-nodes }
//! ```
//!
//! **From a node, and sent to a node.** The kernel takes the tunnel's packets at every address that the node has. What a pod sends to another one of them passes
//! its own node, which knows no such address of a node's, and arrives with that node's address (masquerade).
//!
//! **Nothing leaves from the tunnel's port behind masquerade.** Masquerade keeps a pod's source port where it can. If a pod sent to another node from
//! the tunnel's port, that node's tunnel packets with the same two ports would be answers to the pod: the kernel would turn their destination to it
//! before any chain here sees them. So a packet whose source was rewritten does not go from the tunnel's port to a node, whichever rule rewrote it, and
//! the kernel keeps no connection of a packet that is dropped. This looks behind masquerade (`srcnat`).
//!
//! **Sent there from the start.** A Service, a host port or another rule may lead to the tunnel what was sent elsewhere: a node that
//! sends it on with its own address, or passes on what came with another node's (masquerade), would vouch for a pod's packet. The connection still
//! knows where its first packet was sent (`ct original`), whoever turned it: DNAT, IPVS, which leaves no other trace, or a program that rewrites
//! packets. What was sent to a node's tunnel by a pod is dropped by that pod's own node.
//!
//! **Behind all of them.** The node looks at what arrives behind IPVS (`NF_IP_PRI_NAT_SRC` less 1, net/netfilter/ipvs/ip_vs_core.c), and at what it sends itself, as
//! IPVS sends packets on from there. Those of pods still have the pod's address. Tunnels' own packets have a node's.
//!
//! **What passes on is looked at as well.** A pod's packet to another node may leave with this node's address (masquerade), and then that node cannot
//! know it from this node's own. So it does not leave: at this hook it still has the pod's address, and already the destination that a Service has
//! turned it to.
//!
//! **Packets that nobody tracks** (`notrack`, as some set it for the tunnel's port) are judged by their addresses alone. IPVS tracks what it turns as long as
//! `net.ipv4.vs.conntrack` is 1, as kube-proxy sets it.
//!
//! **By the port alone**, and not by the network's number in the packet. A pod may send a packet of many segments (`UDP_SEGMENT`), which passes
//! here as one, and each segment has a number of its own. Another program's vxlan at the same port gets packets from the cluster's nodes only.
//!
//! **Not by a link of pods, unless the way back to the source leads there.** A pod that may send raw packets, on a bridge or a pair whose port is not
//! kept to its own addresses, forges a node's address, and a loose `rp_filter` lets it in; for IPv6 there is none. This asks what a strict one asks,
//! but of packets by the kinds of links that pods' networks end in on the host (`KINDS`) alone. A node with two uplinks may get another node's packets by one and
//! reach that node by the other: of a NIC, a bond, or a VLAN on one of them nothing is asked, and neither is it of a bridge or a pair that has the
//! address to which the packet was sent, as an uplink has. What comes by a VLAN of a bridge that an administrator made is not asked either: its
//! kind is that of a VLAN on a NIC.
//!
//! It is no proof: who can send with a node's address from outside is let through. WireGuard proves who sends, and needs none of this.
//!
//! **What it costs.** A UDP packet to another port costs a look-up in a set of 65,536 bits at each hook but the last. There, a packet whose source
//! nobody rewrites costs a look at its connection. A packet of the tunnel passes two rules where it leaves, and two where it arrives: two look-ups
//! in that set and two in a hash each time, whatever the number of nodes. One that arrives by a bridge or a pair costs a look-up of a route more;
//! one by a NIC, whose driver has no kind, none.
//!
//! These elements belong to no attachment, as those of `egress.rs`: [`guard_vxlan`] and [`guard_vxlan_also`] alone change them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use linux::nft::{
    Base, ChainType, Cmp, Ct, Element, Expr, Family, Field, Header, Hook, Meta, Mode, Original, ReadError, Reg, SetElement, Socket, Step,
    Verdict,
};

use crate::TABLE;
use crate::install::{AddError, ROUNDS, is_ours, whole, without_former, wrong_fixed};
use crate::part::{Fixed, Map, Rules, Subject, To, filter};
use crate::phrase::{address, connection, is_ipv4, is_ipv6, octets};

const PORTS: &str = "vxlanports";
const NODES4: &str = "nodes4";
const NODES6: &str = "nodes6";
const TURNED: &str = "vxlan-turned";
const SENDERS: &str = "vxlan-senders";
const NODES: &str = "vxlan-nodes";
const STRAYS: &str = "vxlan-strays";
const ARRIVED: &str = "vxlan-arrived";
const PASSING: &str = "vxlan-passing";
/// Three times the nodes that Kubernetes supports. The kernel allocates a hash table of 256 KiB for them, and finds a node in it with one step.
const MOST_NODES: u32 = 16_384;
/// The kinds of links by which pods' packets come to the host.
const KINDS: [&str; 5] = ["bridge", "veth", "netkit", "tun", "openvswitch"];
/// How long a kind is in a packet's `meta` (IFNAMSIZ).
const KIND: usize = 16;
/// Behind IPVS, which turns packets at this hook.
const INPUT: Base = Base { kind: ChainType::Filter, hook: Hook::Input, priority: Base::SRCNAT + 1 };
/// Behind masquerade, which chooses the source port.
const POSTROUTING: Base = Base { kind: ChainType::Filter, hook: Hook::Postrouting, priority: Base::SRCNAT + 1 };
const OUTPUT: Base = Base { kind: ChainType::Filter, hook: Hook::Output, priority: Base::FILTER };

/// What the guard of vxlan tunnels needs of the table.
pub static VXLAN: Subject = Subject {
    family: Family::Inet,
    maps: &[
        Map { name: PORTS, key: &[Field::InetService], to: To::OfNode(None), held: false },
        Map { name: NODES4, key: &[Field::Ipv4Addr], to: To::OfNode(Some(MOST_NODES)), held: false },
        Map { name: NODES6, key: &[Field::Ipv6Addr], to: To::OfNode(Some(MOST_NODES)), held: false },
    ],
    chains: &[
        Fixed { name: TURNED, base: None, rules: turned },
        Fixed { name: "vxlan-masqueraded", base: Some(POSTROUTING), rules: || vec![masqueraded()] },
        Fixed { name: SENDERS, base: None, rules: senders },
        Fixed { name: NODES, base: None, rules: nodes },
        Fixed { name: STRAYS, base: None, rules: strays },
        Fixed { name: ARRIVED, base: None, rules: arrived },
        Fixed { name: PASSING, base: None, rules: passing },
        Fixed { name: "vxlan-arrivals", base: Some(INPUT), rules: || vec![to_tunnel(ARRIVED)] },
        Fixed { name: "vxlan-forward", base: Some(filter(Base::FILTER)), rules: || vec![to_tunnel(PASSING)] },
        Fixed { name: "vxlan-output", base: Some(OUTPUT), rules: || vec![to_tunnel(NODES)] },
    ],
    // The kernel changes the priority of no chain.
    former: &["vxlan-input"],
    target: |_| None,
    companion: |_| None,
};

/// Whose packets a tunnel takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enclosed {
    /// The UDP ports that tunnels end at; none: there is no tunnel, and nobody's packets are looked at.
    pub ports: BTreeSet<u16>,
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
    let needs_rules = !now.ports.is_empty();
    let wanted = (&now.ports, if needs_rules { &now.nodes } else { &none });
    if let Some(before) = before.filter(|before| !before.ports.is_empty() && needs_rules) {
        let steps = differences((&before.ports, &before.nodes), wanted);
        match socket.commit(&steps.iter().cloned().collect()) {
            Ok(()) => return Ok(steps.len()),
            Err(e) if e.is_present() || e.is_missing() => {}
            Err(e) => return Err(e.into()),
        }
    }
    write(socket, needs_rules, |ports, nodes| differences((ports, nodes), wanted))
}

/// Makes the kernel have these elements beside those that it has, and the rules over them, in one transaction; how many elements were written.
///
/// # Errors
/// As of [`guard_vxlan`].
pub fn guard_vxlan_also(socket: &mut Socket, more: &Enclosed) -> Result<usize, AddError> {
    if more.ports.is_empty() {
        return Ok(0);
    }
    write(socket, true, |ports, nodes| {
        let all = (ports.union(&more.ports).copied().collect(), nodes.union(&more.nodes).copied().collect());
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

/// A packet's source and destination, and where its connection's first packet was sent.
struct Addresses {
    is_family: fn() -> [Expr; 2],
    nodes: &'static str,
    source: Expr,
    destination: Expr,
    original: Original,
}

/// Of each family.
fn addresses() -> [Addresses; 2] {
    let reg = Reg::FIRST;
    let (source, destination) = (Expr::ip_saddr(reg), Expr::ip_daddr(reg));
    let v4 = Addresses { is_family: is_ipv4, nodes: NODES4, source, destination, original: Original::Ipv4Daddr };
    let (source, destination) = (Expr::ip6_saddr(reg), Expr::ip6_daddr(reg));
    [v4, Addresses { is_family: is_ipv6, nodes: NODES6, source, destination, original: Original::Ipv6Daddr }]
}

/// Nearly all that the tunnel sends and gets: `ip saddr @nodes4 ct original ip daddr @nodes4 meta l4proto udp ct original proto-dst @vxlanports return`
fn passed() -> impl Iterator<Item = Vec<Expr>> {
    let reg = Reg::FIRST;
    addresses().into_iter().map(move |Addresses { is_family, nodes, source, original, .. }| {
        let to = |key| Expr::Original { key, into: reg };
        let mut exprs = is_family().to_vec();
        exprs.extend([source, look_up(nodes), to(original), look_up(nodes)]);
        exprs.extend(is_udp());
        exprs.extend([to(Original::Port), look_up(PORTS), Expr::Verdict(Verdict::Return)]);
        exprs
    })
}

/// `ct state untracked ip saddr @nodes4 ip daddr @nodes4 return`
fn passed_untracked() -> impl Iterator<Item = Vec<Expr>> {
    addresses().into_iter().map(|Addresses { is_family, nodes, source, destination, .. }| {
        let mut exprs = connection(Ct::State, Ct::UNTRACKED, Cmp::NotEqual).to_vec();
        exprs.extend(is_family());
        exprs.extend([source, look_up(nodes), destination, look_up(nodes), Expr::Verdict(Verdict::Return)]);
        exprs
    })
}

/// `ct status snat udp sport @vxlanports jump vxlan-turned`: first what ends the rule for nearly every packet.
fn masqueraded() -> Vec<Expr> {
    const SOURCE: u32 = 0;
    let turned = connection(Ct::Status, Ct::SNAT, Cmp::NotEqual).into_iter();
    turned.chain(has_tunnels_port(SOURCE)).chain([Expr::Jump(TURNED.to_owned())]).collect()
}

/// `ip daddr @nodes4 counter drop`
fn turned() -> Rules {
    let rule = |Addresses { is_family, nodes, destination, .. }| {
        let mut exprs = is_family().to_vec();
        exprs.extend([destination, look_up(nodes), Expr::Counter, Expr::Verdict(Verdict::Drop)]);
        exprs
    };
    addresses().into_iter().map(rule).collect()
}

fn senders() -> Rules {
    passed().chain(passed_untracked()).chain([vec![Expr::Counter, Expr::Verdict(Verdict::Drop)]]).collect()
}

fn nodes() -> Rules {
    let asked = addresses().into_iter().map(|Addresses { is_family, nodes, destination, .. }| {
        let mut exprs = is_family().to_vec();
        exprs.extend([destination, look_up(nodes), Expr::Jump(SENDERS.to_owned())]);
        exprs
    });
    passed().chain(asked).collect()
}

/// `meta iifkind KIND fib daddr . iif type != local fib saddr . iif oif missing counter drop`
fn strays() -> Rules {
    let reg = Reg::FIRST;
    /// RTN_LOCAL
    const LOCAL: u32 = 2;
    let is = |value: Vec<u8>| Expr::Cmp { reg, how: Cmp::Equal, value };
    let is_not = |value: u32| Expr::Cmp { reg, how: Cmp::NotEqual, value: value.to_ne_bytes().to_vec() };
    let of_kind = |kind: &str| {
        let mut name = kind.as_bytes().to_vec();
        name.resize(KIND, 0);
        let came_by = [Expr::Meta { key: Meta::IifKind, into: reg }, is(name)];
        let elsewhere = [Expr::DestinationTypeOnLink { into: reg }, is_not(LOCAL)];
        let strays = [Expr::ReversePath { into: reg }, is(vec![0; 4]), Expr::Counter, Expr::Verdict(Verdict::Drop)];
        came_by.into_iter().chain(elsewhere).chain(strays).collect()
    };
    KINDS.into_iter().map(of_kind).collect()
}

fn arrived() -> Rules {
    [STRAYS, SENDERS].map(|chain| vec![Expr::Jump(chain.to_owned())]).to_vec()
}

fn passing() -> Rules {
    [STRAYS, NODES].map(|chain| vec![Expr::Jump(chain.to_owned())]).to_vec()
}

/// `udp dport @vxlanports jump CHAIN`
fn to_tunnel(chain: &str) -> Vec<Expr> {
    const DESTINATION: u32 = 2;
    has_tunnels_port(DESTINATION).chain([Expr::Jump(chain.to_owned())]).collect()
}

/// `meta l4proto udp` and one of the two ports, by where it is in the header, `@vxlanports`
fn has_tunnels_port(offset: u32) -> impl Iterator<Item = Expr> {
    let port = Expr::Payload { header: Header::Transport, offset, len: 2, into: Reg::FIRST };
    is_udp().into_iter().chain([port, look_up(PORTS)])
}

/// `meta l4proto udp`
fn is_udp() -> [Expr; 2] {
    const UDP: u8 = 17;
    let reg = Reg::FIRST;
    [Expr::Meta { key: Meta::L4proto, into: reg }, Expr::Cmp { reg, how: Cmp::Equal, value: vec![UDP] }]
}
