//! What nftables does with a packet: the kernel's machine, over as much of the packet as is known.
//!
//! A comparison with a byte that is not known may hold or not. A rule that may hold is passed over, and remembered if it would have dropped
//! the packet. If it would have let it pass, what drops it after that in the same chain is remembered only as well: so a rule that is named as
//! the one that drops the packet does drop it. Where a ruleset leaves something to chance, as the rules of a Service with several endpoints do,
//! one way is followed at a time ([`Choices`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linux::nft::{ListedBase, ListedChain, ListedData, ListedHeader, ListedRule, ListedSet, ListedTable, ListedVerdict, Op};

use super::choices::Choices;
use super::packet::{Bytes, Connection, Packet};
use super::route::{Key, Routed, route};
use crate::case::Protocol;
use crate::network::is_link_local;
use crate::snapshot::{Link, Namespace};

/// Bytes of the register file.
const REGISTERS: usize = 64;
/// Where a statement leads a packet past its destination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    /// To the namespace itself.
    Here,
    /// To a proxy of the namespace, if a route keeps it there.
    Proxy,
    /// To another link.
    Link,
}

/// How the text of a policy that drops begins.
pub(crate) const POLICY: &str = "the policy drop of";
/// Jumps into jumps, as the kernel limits them (`NFT_JUMP_STACK_SIZE`).
const DEEPEST: usize = 16;

/// Where the kernel asks (`NF_INET_*`, and the same numbers of a bridge).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
    /// Of a link, before a bridge or the router has the packet.
    Ingress = 5,
    /// Of a link, after them.
    Egress = 6,
}

/// A packet at a hook.
pub(super) struct HookPoint<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) hook: Hook,
    /// Whether a bridge asks, and not the router.
    pub(super) in_bridge: bool,
    pub(super) iif: Option<&'a Link>,
    pub(super) oif: Option<&'a Link>,
}

/// What came of a hook.
#[derive(Debug, Default)]
pub(super) struct Passage {
    /// Who dropped it.
    pub(super) dropped: Option<Culprit>,
    /// Who may have dropped it.
    pub(super) unsure: Vec<Culprit>,
    /// The source is to be that of the outgoing link (`None`), or this one.
    pub(super) source: Option<(Option<IpAddr>, Culprit)>,
    /// The destination is to be this address and port.
    pub(super) destination: Option<(IpAddr, Option<u16>, Culprit)>,
    /// What gives the packet to a proxy of the namespace, if a route keeps it there (`tproxy`).
    pub(super) proxied: Option<Culprit>,
    pub(super) mark: u32,
    /// What keeps the packet out of connection tracking.
    pub(super) untracked: Option<Culprit>,
    /// What rewrites bytes of the packet that are not followed.
    pub(super) changed: Vec<Culprit>,
}

/// A rule, or the policy of a chain.
#[derive(Debug, Clone)]
pub(super) struct Culprit {
    pub(super) is_own: bool,
    /// It is one of kube-proxy's.
    pub(super) is_of_proxy: bool,
    /// It tells the sender.
    pub(super) rejects: bool,
    /// It has counted packets while the probe was repeated.
    pub(super) has_counted: bool,
    pub(super) text: String,
    pub(super) show: String,
}

/// Whether a step's condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Yes,
    No,
    Maybe,
}

/// How a chain ended.
enum End {
    Accept,
    Drop(Culprit),
    /// No rule has decided.
    Through,
}

struct Machine<'a> {
    at: &'a HookPoint<'a>,
    packet: &'a Packet,
    /// A rule that may hold has let the packet pass, as far as this chain decides.
    doubt: bool,
    table: &'a ListedTable,
    registers: [Option<u8>; REGISTERS],
    passage: &'a mut Passage,
    choices: &'a mut Choices,
}

/// Asks every chain at a hook, in order of priority, until one drops the packet.
pub(super) fn ask(at: &HookPoint<'_>, packet: &Packet, choices: &mut Choices) -> Passage {
    let mut passage = Passage { mark: packet.mark, ..Passage::default() };
    let mut packet = packet.clone();
    let family = if packet.destination.is_ipv4() { "ip" } else { "ip6" };
    let sees = |table: &&ListedTable| match (at.hook, at.in_bridge) {
        (Hook::Ingress, _) => table.family == "netdev" || table.family == "inet",
        (Hook::Egress, _) => table.family == "netdev",
        (_, true) => table.family == "bridge",
        (_, false) => table.family == "inet" || table.family == family,
    };
    let chains = at.namespace.tables.iter().filter(sees).flat_map(|table| table.chains.iter().map(move |chain| (table, chain)));
    let mut based: Vec<_> = chains.filter_map(|(table, chain)| Some((table, chain, chain.base.as_ref()?))).collect();
    let is_of_link = |base: &ListedBase| {
        let names =
            |name: &str| base.devices.iter().any(|device| device.strip_suffix('*').map_or(device == name, |begin| name.starts_with(begin)));
        at.iif.or(at.oif).is_some_and(|link| names(&link.name))
    };
    // NF_NETDEV_INGRESS, NF_NETDEV_EGRESS; NF_INET_INGRESS
    based.retain(|(table, _, base)| match at.hook {
        Hook::Ingress => base.hook == if table.family == "netdev" { 0 } else { 5 } && is_of_link(base),
        Hook::Egress => base.hook == 1 && is_of_link(base),
        hook => base.hook == hook as u32,
    });
    based.sort_by_key(|(_, _, base)| base.priority);
    for (table, chain, base) in based {
        // Where a connection goes is decided with its first packet, and by the first chain that decides.
        let begins = match packet.connection {
            Connection::New => true,
            Connection::Unknown => packet.protocol == Protocol::Udp,
            Connection::Established | Connection::Untracked => false,
        };
        let begins = begins && passage.untracked.is_none();
        if base.kind == "nat" && (!begins || passage.source.is_some() || passage.destination.is_some()) {
            continue;
        }
        let registers = [None; REGISTERS];
        let mut machine = Machine { at, packet: &packet, doubt: false, table, registers, passage: &mut passage, choices: &mut *choices };
        let end = machine.chain(chain, 0);
        let doubt = machine.doubt;
        let dropped = match end {
            End::Drop(culprit) => Some(culprit),
            End::Through if base.drops => Some(Culprit::policy(table, chain)),
            End::Through | End::Accept => None,
        };
        match dropped {
            Some(culprit) if doubt => passage.unsure.push(culprit),
            Some(culprit) => {
                passage.dropped = Some(culprit);
                break;
            }
            None => {}
        }
        // The chains after this one see what it has rewritten.
        if let Some((to, port, _)) = &passage.destination {
            (packet.destination, packet.port, packet.rewritten) = (*to, port.unwrap_or(packet.port), true);
        }
        if let Some((Some(source), _)) = &passage.source {
            packet.source = *source;
        }
    }
    passage
}

// === impl Elsewhere ===

impl Elsewhere {
    /// By the statement's name in nftables or the target's in iptables.
    fn of(statement: &str) -> Option<Self> {
        match statement {
            "redir" | "target REDIRECT" => Some(Elsewhere::Here),
            "tproxy" | "target TPROXY" => Some(Elsewhere::Proxy),
            "fwd" => Some(Elsewhere::Link),
            _ => None,
        }
    }
}

// === impl Machine ===

impl<'a> Machine<'a> {
    fn chain(&mut self, chain: &'a ListedChain, depth: usize) -> End {
        for rule in &chain.rules {
            match self.rule(chain, rule, depth) {
                None | Some(ListedVerdict::Continue) => {}
                Some(ListedVerdict::Return) => return End::Through,
                Some(ListedVerdict::Accept) => return End::Accept,
                Some(ListedVerdict::Drop) => return End::Drop(Culprit::rule(self.table, chain, rule)),
                Some(ListedVerdict::Jump(name)) => match self.call(&name, depth) {
                    End::Through => {}
                    end => return end,
                },
                Some(ListedVerdict::Goto(name)) => return self.call(&name, depth),
                // What another program decides.
                Some(ListedVerdict::Other(_)) => {
                    self.passage.unsure.push(Culprit::rule(self.table, chain, rule));
                    return End::Accept;
                }
            }
        }
        End::Through
    }

    fn call(&mut self, name: &str, depth: usize) -> End {
        let table = self.table;
        match table.chains.iter().find(|chain| chain.name == name) {
            Some(chain) if depth < DEEPEST => self.chain(chain, depth + 1),
            // It was not read, and may have let the packet pass.
            _ => {
                self.doubt = true;
                End::Through
            }
        }
    }

    /// The verdict of a rule; `None`: it has none, or does not hold for certain.
    fn rule(&mut self, chain: &'a ListedChain, rule: &'a ListedRule, depth: usize) -> Option<ListedVerdict> {
        let mut is_sure = true;
        for op in &rule.ops {
            match op {
                // What loads bytes of the packet or its connection is understood: this writes some, whatever they are.
                Op::Other(name) if name == "payload" || name == "ct" => {
                    self.passage.changed.push(Culprit::rule(self.table, chain, rule));
                    continue;
                }
                Op::Other(name) => {
                    if let Some(to) = Elsewhere::of(name) {
                        if self.redirect(Culprit::rule(self.table, chain, rule), to, is_sure) {
                            return Some(ListedVerdict::Accept);
                        }
                        continue;
                    }
                }
                _ => {}
            }
            let mut decided = None;
            match self.step(op, &mut decided) {
                Holds::No => return None,
                Holds::Maybe => is_sure = false,
                Holds::Yes => {}
            }
            if let Some(verdict) = decided {
                if is_sure {
                    return Some(verdict);
                }
                self.perhaps(chain, rule, &verdict, depth);
                return None;
            }
            if is_sure {
                self.rewrite(chain, rule, op);
            }
        }
        let rewrites = rule.ops.iter().any(|op| matches!(op, Op::Masquerade | Op::Snat { .. } | Op::Dnat { .. }));
        self.doubt |= rewrites && !is_sure;
        // A target that is not understood may decide anything.
        if rule.ops.iter().any(|op| matches!(op, Op::Other(name) if name.starts_with("target "))) {
            self.doubt = true;
            self.passage.unsure.push(Culprit::rule(self.table, chain, rule));
        }
        (rewrites && is_sure).then_some(ListedVerdict::Accept)
    }

    /// A statement that leads the packet elsewhere; whether that decides. Which port a redirected packet gets is not read.
    fn redirect(&mut self, culprit: Culprit, to: Elsewhere, is_sure: bool) -> bool {
        match to {
            Elsewhere::Here if is_sure => self.passage.destination = Some((self.own_address(), Some(0), culprit)),
            Elsewhere::Proxy if is_sure => self.passage.proxied = Some(culprit),
            _ => {
                self.doubt |= to == Elsewhere::Here;
                self.passage.changed.push(culprit);
            }
        }
        is_sure && to == Elsewhere::Here
    }

    /// Where a redirected packet goes: to an address of the link that it came by, or to the namespace's own loopback.
    fn own_address(&self) -> IpAddr {
        let is_ipv4 = self.packet.destination.is_ipv4();
        let own = self.at.iif.into_iter().flat_map(|link| &link.addresses).map(|own| own.net.addr());
        let mut global = own.filter(|own| own.is_ipv4() == is_ipv4 && !is_link_local(*own));
        global.next().unwrap_or(if is_ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() })
    }

    /// A rule that may hold decides something, or not.
    fn perhaps(&mut self, chain: &'a ListedChain, rule: &'a ListedRule, verdict: &ListedVerdict, depth: usize) {
        match verdict {
            ListedVerdict::Drop | ListedVerdict::Other(_) => self.passage.unsure.push(Culprit::rule(self.table, chain, rule)),
            ListedVerdict::Accept | ListedVerdict::Return => self.doubt = true,
            ListedVerdict::Jump(name) | ListedVerdict::Goto(name) => {
                let (source, destination, mark) = (self.passage.source.clone(), self.passage.destination.clone(), self.passage.mark);
                let doubted = std::mem::replace(&mut self.doubt, false);
                let choices = self.choices.clone();
                let end = self.call(name, depth);
                *self.choices = choices;
                let lets_pass = self.doubt || matches!(end, End::Accept) || matches!(verdict, ListedVerdict::Goto(_));
                if let End::Drop(culprit) = end {
                    self.passage.unsure.push(culprit);
                }
                self.doubt = doubted || lets_pass;
                // What it may have rewritten is not what is followed.
                (self.passage.source, self.passage.destination, self.passage.mark) = (source, destination, mark);
            }
            ListedVerdict::Continue => {}
        }
    }

    fn rewrite(&mut self, chain: &ListedChain, rule: &ListedRule, op: &Op) {
        let culprit = || Culprit::rule(self.table, chain, rule);
        let length = if self.packet.destination.is_ipv4() { 4 } else { 16 };
        let address = |register: &Option<u8>| address_of(&self.read(usize::from((*register)?), length));
        match op {
            Op::Masquerade => self.passage.source = Some((None, culprit())),
            Op::Untracked => self.passage.untracked = Some(culprit()),
            Op::Snat { address: register } => self.passage.source = address(register).map(|address| (Some(address), culprit())),
            Op::Dnat { address: register, port } => {
                let port = port.and_then(|register| match self.read(usize::from(register), 2).as_slice() {
                    [Some(high), Some(low)] => Some(u16::from_be_bytes([*high, *low])),
                    _ => None,
                });
                // Without an address it is the packet's own: another port of the same host.
                let address = address(register).or(register.is_none().then_some(self.packet.destination));
                self.passage.destination = address.map(|address| (address, port, culprit()));
            }
            _ => {}
        }
    }

    fn step(&mut self, op: &Op, decided: &mut Option<ListedVerdict>) -> Holds {
        match op {
            Op::Meta { key, into } => self.write(*into, &self.meta(*key)),
            Op::SetMark { from } => {
                let bytes: Option<Vec<u8>> = self.read(usize::from(*from), 4).into_iter().collect();
                self.passage.mark = bytes.and_then(|bytes| bytes.first_chunk().copied()).map_or(0, u32::from_ne_bytes);
                Holds::Yes
            }
            Op::Payload { header, offset, len, into } => self.write(*into, &self.payload(*header, *offset, *len)),
            Op::Mask { from, into, mask, xor } => {
                let read = self.read(usize::from(*from), mask.len());
                let bits = read.iter().zip(mask.iter().zip(xor)).map(|(byte, (mask, xor))| match (byte, mask) {
                    (_, 0) => Some(*xor),
                    (byte, mask) => byte.map(|byte| (byte & mask) ^ xor),
                });
                self.write(*into, &bits.collect::<Bytes>())
            }
            Op::Compare { at, how, value } => compare(&self.read(usize::from(*at), value.len()), *how, value),
            Op::Range { at, negated, from, to } => {
                let read = self.read(usize::from(*at), from.len());
                let inside = both(compare(&read, 5, from), compare(&read, 3, to));
                if *negated { not(inside) } else { inside }
            }
            Op::Lookup { at, set, negated, into } => self.look_up((*at, *negated, *into), set, decided),
            Op::Load { into, value } => self.write(*into, &value.iter().copied().map(Some).collect::<Bytes>()),
            Op::Ct { key, into } => self.write(*into, &self.connection(*key)),
            Op::CtTuple { key, of_reply, into } => self.write(*into, &self.tuple(*key, *of_reply)),
            Op::AddressType { of_destination, into } => {
                let address = if *of_destination { self.packet.destination } else { self.packet.source };
                // RTN_LOCAL, RTN_UNICAST
                let kind: u32 = if self.at.namespace.is_local(address) { 2 } else { 1 };
                self.write(*into, &kind.to_ne_bytes().map(Some))
            }
            Op::ReversePath { into } => self.write(*into, &self.reverse_path()),
            Op::Choice { into, modulus, offset } => {
                let number = offset.wrapping_add(self.choices.take(*modulus));
                self.write(*into, &number.to_ne_bytes().map(Some))
            }
            Op::Verdict(verdict) => {
                *decided = Some(verdict.clone());
                Holds::Yes
            }
            Op::Reject => {
                *decided = Some(ListedVerdict::Drop);
                Holds::Yes
            }
            Op::Dnat { .. } | Op::Snat { .. } | Op::Masquerade | Op::Untracked | Op::Nothing => Holds::Yes,
            Op::Other(_) => {
                // It may have written any register.
                self.registers = [None; REGISTERS];
                Holds::Maybe
            }
        }
    }

    fn look_up(&mut self, (at, negated, into): (u8, bool, Option<u8>), set: &str, decided: &mut Option<ListedVerdict>) -> Holds {
        let set = self.table.sets.iter().find(|own| own.name == set);
        let key_len = |set: &ListedSet| usize::try_from(set.key_len).unwrap_or(0);
        let key: Option<Vec<u8>> = set.and_then(|set| self.read(usize::from(at), key_len(set)).into_iter().collect());
        let Some((set, key)) = set.zip(key) else {
            // What it leads to is not known either: a value, or any decision.
            match into {
                Some(into) => self.registers.iter_mut().skip(usize::from(into)).for_each(|byte| *byte = None),
                None => self.doubt |= set.is_none_or(|set| set.elements.iter().any(|element| element.data.is_some())),
            }
            return Holds::Maybe;
        };
        let found = find(set, &key);
        match (found, negated) {
            (Some(_), true) | (None, false) => Holds::No,
            (None, true) => Holds::Yes,
            (Some(data), false) => {
                match (data, into) {
                    (Some(ListedData::Verdict(verdict)), _) => *decided = Some(verdict.clone()),
                    (Some(ListedData::Value(value)), Some(into)) => {
                        self.write(into, &value.iter().copied().map(Some).collect::<Bytes>());
                    }
                    _ => {}
                }
                Holds::Yes
            }
        }
    }

    /// `NFT_META_*`, as far as it is known.
    fn meta(&self, key: u32) -> Bytes {
        let name = |link: Option<&Link>| -> Bytes {
            let mut bytes: Bytes = link.map_or("", |link| &link.name).bytes().map(Some).collect();
            bytes.resize(16, Some(0));
            bytes
        };
        // Of hardware the kernel has none, and no comparison holds: nothing that a rule names is as short.
        let kind = |link: Option<&Link>| -> Bytes {
            let mut bytes: Bytes = link.map_or("", |link| &link.kind).bytes().map(Some).collect();
            bytes.resize(16, Some(0));
            bytes
        };
        let index = |link: Option<&Link>| link.map_or(0, |link| link.index).to_ne_bytes().map(Some).to_vec();
        let is_ipv4 = self.packet.destination.is_ipv4();
        match key {
            0 => self.packet.size.to_ne_bytes().map(Some).to_vec(),
            1 => if is_ipv4 { [0x08, 0x00] } else { [0x86, 0xdd] }.map(Some).to_vec(),
            3 => self.passage.mark.to_ne_bytes().map(Some).to_vec(),
            4 => index(self.at.iif),
            5 => index(self.at.oif),
            6 => name(self.at.iif),
            7 => name(self.at.oif),
            26 => kind(self.at.iif),
            27 => kind(self.at.oif),
            15 => vec![Some(if is_ipv4 { 2 } else { 10 })],
            16 => vec![Some(self.packet.protocol.number())],
            _ => vec![None; 16],
        }
    }

    fn payload(&self, header: ListedHeader, offset: u32, len: u32) -> Bytes {
        let bytes = match header {
            ListedHeader::Link => self.packet.link_header(),
            ListedHeader::Network => self.packet.network_header(),
            ListedHeader::Transport => self.packet.transport_header(),
            ListedHeader::Other(_) => Vec::new(),
        };
        let (from, len) = (usize::try_from(offset).unwrap_or(usize::MAX), usize::try_from(len).unwrap_or(0).min(REGISTERS));
        (from..from.saturating_add(len)).map(|at| bytes.get(at).copied().flatten()).collect()
    }

    /// Whether the way back leads out of the link that the packet came by. Of several ways of a route each counts.
    fn reverse_path(&self) -> Bytes {
        let key = Key { to: self.packet.source, from: Some(self.packet.destination), came_by: None, mark: 0, turn: 0 };
        let leads = match route(self.at.namespace, key) {
            Routed::On(way) if way.among > 1 => return vec![None; 4],
            Routed::On(way) => self.at.iif.is_some_and(|link| link.index == way.link.index),
            _ => false,
        };
        u32::from(leads).to_ne_bytes().map(Some).to_vec()
    }

    /// `NFT_CT_STATE`, `NFT_CT_DIRECTION` and `NFT_CT_STATUS`.
    fn connection(&self, key: u32) -> Bytes {
        let (invalid, established, new, untracked, dnat): (u32, u32, u32, u32, u32) = (1, 2, 8, 0x40, 0x20);
        let state = match (self.packet.connection, self.packet.protocol) {
            (Connection::Established, _) => established,
            (Connection::Untracked, _) => untracked,
            // A SYN and ACK without a SYN before, or the acknowledgement of an INIT.
            (Connection::Unknown, Protocol::Tcp | Protocol::Sctp) => invalid,
            (Connection::Unknown, Protocol::Udp) | (Connection::New, _) => new,
        };
        let is_reply = self.packet.connection == Connection::Established;
        match key {
            0 => state.to_ne_bytes().map(Some).to_vec(),
            _ if self.packet.connection == Connection::Untracked => vec![None; 16],
            1 => vec![Some(u8::from(is_reply))],
            2 if !is_reply => if self.packet.rewritten { dnat } else { 0 }.to_ne_bytes().map(Some).to_vec(),
            _ => vec![None; 16],
        }
    }

    /// `NFT_CT_PROTO_DST`, `NFT_CT_DST_IP` and `NFT_CT_DST_IP6` of a connection that this packet begins. What it was rewritten from is not known.
    fn tuple(&self, key: u32, of_reply: bool) -> Bytes {
        let begins = matches!(self.packet.connection, Connection::New | Connection::Unknown) && !self.packet.rewritten && !of_reply;
        match (key, self.packet.destination) {
            (12, _) if begins => self.packet.port.to_be_bytes().map(|byte| (self.packet.port != 0).then_some(byte)).to_vec(),
            (20, IpAddr::V4(address)) if begins => address.octets().map(Some).to_vec(),
            (22, IpAddr::V6(address)) if begins => address.octets().map(Some).to_vec(),
            _ => vec![None; 16],
        }
    }

    fn read(&self, at: usize, len: usize) -> Bytes {
        (at..at.saturating_add(len)).map(|at| self.registers.get(at).copied().flatten()).collect()
    }

    /// The rest of the last four bytes is zero, as the kernel has it.
    fn write(&mut self, at: u8, bytes: &[Option<u8>]) -> Holds {
        let padded = bytes.iter().copied().chain(std::iter::repeat(Some(0))).take(bytes.len().next_multiple_of(4));
        self.registers.iter_mut().skip(usize::from(at)).zip(padded).for_each(|(register, byte)| *register = byte);
        Holds::Yes
    }
}

fn address_of(bytes: &[Option<u8>]) -> Option<IpAddr> {
    let known: Vec<u8> = bytes.iter().copied().collect::<Option<_>>()?;
    match known.len() {
        4 => known.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        16 => known.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}

/// `NFT_CMP_*`
fn compare(read: &[Option<u8>], how: u32, value: &[u8]) -> Holds {
    let differs = read.iter().zip(value).any(|(byte, value)| byte.is_some_and(|byte| byte != *value));
    let known: Option<Vec<u8>> = read.iter().copied().collect();
    let holds = |holds: bool| if holds { Holds::Yes } else { Holds::No };
    match (known, how) {
        (None, 0) if differs => Holds::No,
        (None, 1) if differs => Holds::Yes,
        (None, _) => Holds::Maybe,
        (Some(known), 0) => holds(known == value),
        (Some(known), 1) => holds(known != value),
        (Some(known), 2) => holds(known.as_slice() < value),
        (Some(known), 3) => holds(known.as_slice() <= value),
        (Some(known), 4) => holds(known.as_slice() > value),
        (Some(known), 5) => holds(known.as_slice() >= value),
        _ => Holds::Maybe,
    }
}

fn both(one: Holds, other: Holds) -> Holds {
    match (one, other) {
        (Holds::No, _) | (_, Holds::No) => Holds::No,
        (Holds::Yes, Holds::Yes) => Holds::Yes,
        _ => Holds::Maybe,
    }
}

fn not(holds: Holds) -> Holds {
    match holds {
        Holds::Yes => Holds::No,
        Holds::No => Holds::Yes,
        Holds::Maybe => Holds::Maybe,
    }
}

/// The element that a key is in, and what it leads to.
fn find<'a>(set: &'a ListedSet, key: &[u8]) -> Option<Option<&'a ListedData>> {
    let within = |from: &[u8], to: &[u8]| {
        let fields = key.chunks(4).zip(from.chunks(4).zip(to.chunks(4)));
        fields.into_iter().all(|(key, (from, to))| from <= key && key <= to)
    };
    let found = if set.elements.iter().any(|element| element.key_end.is_some()) {
        set.elements.iter().find(|element| within(&element.key, element.key_end.as_deref().unwrap_or(&element.key)))
    } else if set.interval {
        // The last end before the key: of two at one place, an interval begins where another one ends.
        let before = set.elements.iter().filter(|element| element.key.as_slice() <= key);
        before.max_by(|a, b| a.key.cmp(&b.key).then(b.ends.cmp(&a.ends))).filter(|element| !element.ends)
    } else {
        set.elements.iter().find(|element| element.key == key)
    };
    found.map(|element| element.data.as_ref())
}

// === impl Culprit ===

impl Culprit {
    fn rule(table: &ListedTable, chain: &ListedChain, rule: &ListedRule) -> Self {
        let mut culprit = Culprit::of(table, chain);
        culprit.rejects = rule.ops.iter().any(|op| matches!(op, Op::Reject));
        culprit.text = format!("the rule with handle {} of {}", rule.handle, culprit.text);
        if let Some(comment) = &rule.comment {
            culprit.text.push_str(&format!(" ({comment})"));
        }
        culprit.has_counted = rule.grown.is_some_and(|grown| grown > 0);
        match (rule.packets, rule.grown) {
            (Some(packets), Some(grown)) => {
                culprit.text.push_str(&format!(" ({packets} packets counted, {grown} of them while the probe was repeated)"));
            }
            (Some(packets), None) => culprit.text.push_str(&format!(" ({packets} packets counted)")),
            (None, _) => {}
        }
        culprit
    }

    fn policy(table: &ListedTable, chain: &ListedChain) -> Self {
        let culprit = Culprit::of(table, chain);
        Culprit { text: format!("{POLICY} {}", culprit.text), ..culprit }
    }

    fn of(table: &ListedTable, chain: &ListedChain) -> Self {
        let (family, name) = (&table.family, &table.name);
        Culprit {
            rejects: false,
            has_counted: false,
            is_of_proxy: name == "kube-proxy" || chain.name.starts_with("KUBE-"),
            is_own: name == "netloom" && matches!(family.as_str(), "inet" | "bridge"),
            text: format!("chain {} of table {family} {name}", chain.name),
            show: format!("nft -a list chain {family} {name} {}", chain.name),
        }
    }
}
