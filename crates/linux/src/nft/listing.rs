//! The whole ruleset of a namespace (`nft list ruleset`), whoever made it, as plain data: for those who follow a packet through it.
//!
//! What is not understood is kept by its name ([`Op::Other`]), so that a reader knows where it cannot tell. Tables of the families `arp` and
//! `netdev` and those of legacy iptables are not among it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::element::{DATA_VALUE, DATA_VERDICT, LIST_ELEMENTS, LIST_SET, LIST_TABLE, VERDICT_CODE, read_comment};
use super::expr::{EXPR_DATA, EXPR_NAME};
use super::wire::{self, Kind};
use super::{Family, ReadError, Socket, xtables};

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedTable {
    /// Which packets its chains see: `inet`, `ip`, `ip6`, `bridge`, `netdev`.
    pub family: String,
    /// Its name.
    pub name: String,
    /// Its chains.
    pub chains: Vec<ListedChain>,
    /// Its sets and maps, those without a name of their own included.
    pub sets: Vec<ListedSet>,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedChain {
    /// Its name.
    pub name: String,
    /// Where the kernel calls it; `None`: only other chains do.
    pub base: Option<ListedBase>,
    /// Its rules, in order.
    pub rules: Vec<ListedRule>,
}

/// Where the kernel calls a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedBase {
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// `NF_INET_*` and `NF_BR_*`: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting, 5 ingress of `inet`; of `netdev` 0 ingress, 1
    /// egress.
    pub hook: u32,
    /// Lower ones come first.
    pub priority: i32,
    /// What no rule decides is dropped (`policy drop`).
    pub drops: bool,
    /// Of ingress and egress: the links that it is for, by name; with `*` at the end, by the beginning of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
}

/// A rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedRule {
    /// Unique in its table.
    pub handle: u64,
    /// As `nft` shows it.
    pub comment: Option<String>,
    /// Packets that its counter has seen; `None`: it has none.
    pub packets: Option<u64>,
    /// How many of them since an earlier look; `None`: there was none.
    #[serde(default)]
    pub grown: Option<u64>,
    /// What it does, in order. A comparison or look-up that does not hold ends it.
    pub ops: Vec<Op>,
}

/// A set or a map, with its elements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSet {
    /// Its name; `__set0` and the like where it is written in a rule.
    pub name: String,
    /// Its elements are the ends of intervals.
    pub interval: bool,
    /// How many bytes of registers are its key.
    pub key_len: u32,
    /// Its elements.
    pub elements: Vec<ListedElement>,
}

/// An element of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedElement {
    /// The key; in a set of intervals where one begins.
    pub key: Vec<u8>,
    /// In a concatenation with intervals: where it ends.
    pub key_end: Option<Vec<u8>>,
    /// In a set of intervals of one field: an interval ends before this key.
    pub ends: bool,
    /// What the key leads to.
    pub data: Option<ListedData>,
}

/// What an element of a map leads to, or an immediate loads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ListedData {
    /// Bytes.
    Value(Vec<u8>),
    /// A decision.
    Verdict(ListedVerdict),
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ListedVerdict {
    /// `accept`
    Accept,
    /// `drop`
    Drop,
    /// `return`
    Return,
    /// `continue`
    Continue,
    /// `jump CHAIN`
    Jump(String),
    /// `goto CHAIN`
    Goto(String),
    /// Another number: `queue`, ...
    Other(i32),
}

/// A packet's header (`NFT_PAYLOAD_*_HEADER`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ListedHeader {
    /// Ethernet.
    Link,
    /// IPv4 or IPv6.
    Network,
    /// TCP, UDP, ...
    Transport,
    /// Another number.
    Other(u32),
}

/// One step of a rule. Registers are places in the kernel's 64-byte register file, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Op {
    /// Loads what is known of the packet besides its bytes, by its number (`NFT_META_*`).
    Meta {
        /// The number.
        key: u32,
        /// The register.
        into: u8,
    },
    /// Marks the packet.
    SetMark {
        /// The register that has the mark.
        from: u8,
    },
    /// Loads bytes of the packet.
    Payload {
        /// What the offset counts from.
        header: ListedHeader,
        /// First byte.
        offset: u32,
        /// How many.
        len: u32,
        /// The register.
        into: u8,
    },
    /// `into = (from & mask) ^ xor`
    Mask {
        /// Read.
        from: u8,
        /// Written.
        into: u8,
        /// As long as what is read.
        mask: Vec<u8>,
        /// As long.
        xor: Vec<u8>,
    },
    /// Compares with a value (`NFT_CMP_*`: 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=).
    Compare {
        /// The register.
        at: u8,
        /// The operator's number.
        how: u32,
        /// The value.
        value: Vec<u8>,
    },
    /// Whether it is between two values, both included, or not.
    Range {
        /// The register.
        at: u8,
        /// It must be outside.
        negated: bool,
        /// The lowest.
        from: Vec<u8>,
        /// The highest.
        to: Vec<u8>,
    },
    /// Looks up a key in a set or map of the same table.
    Lookup {
        /// The key's register.
        at: u8,
        /// The set's name.
        set: String,
        /// Goes on if the set does not have it.
        negated: bool,
        /// Of a map: where the value goes; `None`: the value is a verdict, or there is none.
        into: Option<u8>,
    },
    /// Loads bytes.
    Load {
        /// The register.
        into: u8,
        /// The bytes.
        value: Vec<u8>,
    },
    /// Loads what is known of the connection, by its number (`NFT_CT_*`).
    Ct {
        /// The number.
        key: u32,
        /// The register.
        into: u8,
    },
    /// Loads a part of the addresses and ports that the connection has in one direction, by its number (`NFT_CT_*`).
    CtTuple {
        /// The number.
        key: u32,
        /// In the direction of the answers.
        of_reply: bool,
        /// The register.
        into: u8,
    },
    /// Loads what kind of address the destination, or else the source, is (`fib daddr type`).
    AddressType {
        /// The destination's.
        of_destination: bool,
        /// The register.
        into: u8,
    },
    /// Loads whether the way back to the source leads out of the link that the packet came by, four bytes (`fib saddr . iif oif present`).
    ReversePath {
        /// The register.
        into: u8,
    },
    /// Loads one of several numbers, in the machine's order: by chance, in turn, or by a hash (`numgen`, `jhash`, `symhash`).
    Choice {
        /// The register.
        into: u8,
        /// How many there are.
        modulus: u32,
        /// The first one.
        offset: u32,
    },
    /// Rewrites the destination.
    Dnat {
        /// The register of the address.
        address: Option<u8>,
        /// The register of the port.
        port: Option<u8>,
    },
    /// Rewrites the source.
    Snat {
        /// The register of the address.
        address: Option<u8>,
    },
    /// Rewrites the source to the address of the link that the packet leaves by.
    Masquerade,
    /// Decides.
    Verdict(ListedVerdict),
    /// Drops the packet and tells its sender.
    Reject,
    /// Keeps the packet out of connection tracking (`notrack`): nothing of it is rewritten.
    Untracked,
    /// Changes nothing of the way: `counter`, `log`, ...
    Nothing,
    /// What is not understood, by the kernel's name of it.
    Other(String),
}

// === impl Socket ===

impl Socket {
    /// Everything that is there (`nft list ruleset`).
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn ruleset(&mut self) -> Result<Vec<ListedTable>, ReadError> {
        let mut tables = Vec::new();
        for family in [Family::Inet, Family::Ip, Family::Ip6, Family::Bridge, Family::Netdev] {
            let of_family = self.dump(
                &format!("tables {family}"),
                Kind::GetTable,
                family,
                |_| {},
                |frame, found: &mut Vec<String>| found.extend(wire::find(frame.body(), 1).map(wire::text)),
            );
            let names = match of_family {
                // A kernel without bridges, or without rules of links, has no such family.
                Err(ReadError::Refused { errno: nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EAFNOSUPPORT, .. }) => continue,
                names => names?,
            };
            if !names.is_empty() {
                tables.extend(self.tables_of(family, names)?);
            }
        }
        Ok(tables)
    }

    fn tables_of(&mut self, family: Family, names: Vec<String>) -> Result<Vec<ListedTable>, ReadError> {
        let chains = self.dump(
            &format!("chains {family}"),
            Kind::GetChain,
            family,
            |_| {},
            |frame, found| found.extend(chain(frame.body()).filter(|_| frame.kind == Kind::NewChain.number())),
        )?;
        let rules = self.dump(
            &format!("rules {family}"),
            Kind::GetRule,
            family,
            |_| {},
            |frame, found| found.extend(rule(frame.body()).filter(|_| frame.kind == Kind::NewRule.number())),
        )?;
        let mut sets = self.dump(
            &format!("sets {family}"),
            Kind::GetSet,
            family,
            |_| {},
            |frame, found| found.extend(set(frame.body()).filter(|_| frame.kind == Kind::NewSet.number())),
        )?;
        for (table, set) in &mut sets {
            set.elements = self.listed_elements(family, table, &set.name)?;
        }
        // There may be chains and rules by the ten thousand: each is looked at once, and moved.
        let mut of_chain: HashMap<(String, String), Vec<ListedRule>> = HashMap::new();
        for (table, chain, rule) in rules {
            of_chain.entry((table, chain)).or_default().push(rule);
        }
        let mut tables: Vec<ListedTable> =
            names.into_iter().map(|name| ListedTable { family: family.to_string(), name, chains: Vec::new(), sets: Vec::new() }).collect();
        for (of, chain) in chains {
            let rules = of_chain.remove(&(of.clone(), chain.name.clone())).unwrap_or_default();
            if let Some(table) = tables.iter_mut().find(|table| table.name == of) {
                table.chains.push(ListedChain { rules, ..chain });
            }
        }
        for (of, set) in sets {
            if let Some(table) = tables.iter_mut().find(|table| table.name == of) {
                table.sets.push(set);
            }
        }
        Ok(tables)
    }

    fn listed_elements(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<ListedElement>, ReadError> {
        let body = |w: &mut wire::Writer| {
            w.name(LIST_TABLE, table);
            w.name(LIST_SET, set);
        };
        self.dump(&format!("set {family} {table} {set}"), Kind::GetElement, family, body, |frame, found| {
            if frame.kind == Kind::NewElement.number() {
                let list = wire::find(frame.body(), LIST_ELEMENTS).unwrap_or_default();
                found.extend(wire::attributes(list).filter_map(|(_, e)| element(e)));
            }
        })
    }
}

/// For the fuzz target: a message's attributes, read as each kind.
#[cfg(fuzzing)]
pub(super) fn fuzz(body: &[u8]) {
    let _ = (chain(body), rule(body), set(body));
    let list = wire::find(body, LIST_ELEMENTS).unwrap_or_default();
    wire::attributes(list).for_each(|(_, e)| drop(element(e)));
}

fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    wire::find(bytes, kind)?.first_chunk().copied().map(u32::from_be_bytes)
}

fn name(bytes: &[u8], kind: u16) -> Option<String> {
    wire::find(bytes, kind).map(wire::text)
}

/// The place in the register file of `NFT_REG_1..4` and `NFT_REG32_00..15`; `None` of the verdict's.
fn register(bytes: &[u8], kind: u16) -> Option<u8> {
    let place = match number(bytes, kind)? {
        n @ 1..=4 => (n - 1) * 16,
        n @ 8..=23 => (n - 8) * 4,
        _ => return None,
    };
    u8::try_from(place).ok()
}

/// A chain, and its table's name.
fn chain(body: &[u8]) -> Option<(String, ListedChain)> {
    let (hook, kind) = (wire::find(body, 4), name(body, 7));
    let base = hook.zip(kind).and_then(|(hook, kind)| {
        let priority = wire::find(hook, 2)?.first_chunk().copied().map(i32::from_be_bytes)?;
        // NF_DROP is 0, and a base chain always has a policy.
        // NFTA_HOOK_DEV, or several in NFTA_HOOK_DEVS: NFTA_DEVICE_NAME, NFTA_DEVICE_PREFIX.
        let one = wire::find(hook, 3).map(wire::text);
        let several = wire::attributes(wire::find(hook, 4).unwrap_or_default()).map(|(kind, device)| match kind {
            2 => format!("{}*", wire::text(device)),
            _ => wire::text(device),
        });
        let devices = if one.is_some() { one.into_iter().collect() } else { several.collect() };
        Some(ListedBase { kind, hook: number(hook, 1)?, priority, drops: number(body, 5) == Some(0), devices })
    });
    Some((name(body, 1)?, ListedChain { name: name(body, 3)?, base, rules: Vec::new() }))
}

/// A rule, and the names of its table and chain.
fn rule(body: &[u8]) -> Option<(String, String, ListedRule)> {
    let handle = wire::find(body, 3)?.first_chunk().copied().map(u64::from_be_bytes)?;
    let comment = wire::find(body, 7).and_then(|udata| read_comment(udata, 0));
    let mut rule = ListedRule { handle, comment, ..ListedRule::default() };
    for (_, expression) in wire::attributes(wire::find(body, 4).unwrap_or_default()) {
        let (kind, data) = (name(expression, EXPR_NAME).unwrap_or_default(), wire::find(expression, EXPR_DATA).unwrap_or_default());
        if kind == "counter" {
            rule.packets = wire::find(data, 2).and_then(|packets| packets.first_chunk().copied()).map(u64::from_be_bytes);
        }
        if kind == "match" && name(data, 1).as_deref() == Some("comment") {
            rule.comment = rule.comment.take().or_else(|| xtables::comment(wire::find(data, 3)?));
        }
        rule.ops.extend(steps(&kind, data));
    }
    Some((name(body, 1)?, name(body, 2)?, rule))
}

/// A set without its elements, and its table's name.
fn set(body: &[u8]) -> Option<(String, ListedSet)> {
    const INTERVAL: u32 = 4;
    let interval = number(body, 3).unwrap_or(0) & INTERVAL != 0;
    Some((name(body, 1)?, ListedSet { name: name(body, 2)?, interval, key_len: number(body, 5)?, elements: Vec::new() }))
}

fn element(body: &[u8]) -> Option<ListedElement> {
    const INTERVAL_END: u32 = 1;
    let value = |kind| wire::find(wire::find(body, kind)?, DATA_VALUE).map(<[u8]>::to_vec);
    let ends = number(body, 3).unwrap_or(0) & INTERVAL_END != 0;
    Some(ListedElement { key: value(1)?, key_end: value(10), ends, data: wire::find(body, 2).and_then(data) })
}

fn data(body: &[u8]) -> Option<ListedData> {
    match wire::find(body, DATA_VALUE) {
        Some(value) => Some(ListedData::Value(value.to_vec())),
        None => verdict(wire::find(body, DATA_VERDICT)?).map(ListedData::Verdict),
    }
}

fn verdict(body: &[u8]) -> Option<ListedVerdict> {
    let code = wire::find(body, VERDICT_CODE)?.first_chunk().copied().map(i32::from_be_bytes)?;
    Some(match code {
        0 => ListedVerdict::Drop,
        1 => ListedVerdict::Accept,
        -1 => ListedVerdict::Continue,
        -3 => ListedVerdict::Jump(name(body, 2)?),
        -4 => ListedVerdict::Goto(name(body, 2)?),
        -5 => ListedVerdict::Return,
        other => ListedVerdict::Other(other),
    })
}

/// The steps of an expression.
fn steps(kind: &str, data: &[u8]) -> Vec<Op> {
    // Of iptables: name, revision and what the module reads.
    let of_module = |read: fn(&str, u32, &[u8]) -> Option<Vec<Op>>| {
        let module = name(data, 1).unwrap_or_default();
        let read = read(&module, number(data, 2).unwrap_or(0), wire::find(data, 3).unwrap_or_default());
        read.unwrap_or_else(|| vec![Op::Other(format!("{kind} {module}"))])
    };
    match kind {
        "match" => of_module(xtables::matched),
        "target" => of_module(xtables::target),
        _ => vec![op(kind, data).unwrap_or_else(|| Op::Other(kind.to_owned()))],
    }
}

/// An expression of nftables; `None` for what is not understood.
fn op(kind: &str, data: &[u8]) -> Option<Op> {
    // NFT_META_MARK
    const MARK: u32 = 3;
    let value = |kind| wire::find(wire::find(data, kind)?, DATA_VALUE).map(<[u8]>::to_vec);
    let zero = |kind| number(data, kind).unwrap_or(0) == 0;
    Some(match kind {
        "meta" => match (number(data, 2)?, register(data, 1), register(data, 3)) {
            (key, Some(into), None) => Op::Meta { key, into },
            (MARK, None, Some(from)) => Op::SetMark { from },
            // Priority, trace and the like.
            (_, None, Some(_)) => Op::Nothing,
            _ => return None,
        },
        "payload" => {
            let header = match number(data, 2)? {
                0 => ListedHeader::Link,
                1 => ListedHeader::Network,
                2 => ListedHeader::Transport,
                other => ListedHeader::Other(other),
            };
            Op::Payload { header, offset: number(data, 3)?, len: number(data, 4)?, into: register(data, 1)? }
        }
        "bitwise" if zero(6) => Op::Mask { from: register(data, 1)?, into: register(data, 2)?, mask: value(4)?, xor: value(5)? },
        "cmp" => Op::Compare { at: register(data, 1)?, how: number(data, 2)?, value: value(3)? },
        "range" => Op::Range { at: register(data, 1)?, negated: !zero(2), from: value(3)?, to: value(4)? },
        "lookup" => Op::Lookup { at: register(data, 2)?, set: name(data, 1)?, negated: !zero(5), into: register(data, 3) },
        "immediate" => match (register(data, 1), self::data(wire::find(data, 2)?)?) {
            (Some(into), ListedData::Value(value)) => Op::Load { into, value },
            (None, ListedData::Verdict(verdict)) => Op::Verdict(verdict),
            _ => return None,
        },
        // With another zone (NFT_CT_ZONE) the packet belongs to another connection. What else is set of it is seen by later packets alone.
        "ct" if register(data, 4).is_some() && number(data, 2) == Some(17) => return None,
        "ct" if register(data, 4).is_some() => Op::Nothing,
        "ct" if wire::find(data, 3).is_some() => {
            Op::CtTuple { key: number(data, 2)?, of_reply: wire::find(data, 3)? != [0], into: register(data, 1)? }
        }
        "ct" => Op::Ct { key: number(data, 2)?, into: register(data, 1)? },
        "numgen" => Op::Choice { into: register(data, 1)?, modulus: number(data, 2)?, offset: number(data, 4).unwrap_or(0) },
        "hash" => Op::Choice { into: register(data, 2)?, modulus: number(data, 4)?, offset: number(data, 6).unwrap_or(0) },
        // NFT_FIB_RESULT_ADDRTYPE; NFTA_FIB_F_SADDR is 1, NFTA_FIB_F_DADDR 2.
        "fib" if number(data, 2) == Some(3) && number(data, 3)? & 3 != 3 => {
            Op::AddressType { of_destination: number(data, 3)? & 2 != 0, into: register(data, 1)? }
        }
        // NFT_FIB_RESULT_OIF; NFTA_FIB_F_SADDR, _IIF and _PRESENT.
        "fib" if number(data, 2) == Some(1) && number(data, 3) == Some(1 | 8 | 32) => Op::ReversePath { into: register(data, 1)? },
        // Of several addresses, which one is not known.
        "nat" if register(data, 4).is_some_and(|last| Some(last) != register(data, 3)) => return None,
        // NFT_NAT_SNAT is 0.
        "nat" if zero(1) => Op::Snat { address: register(data, 3) },
        "nat" => Op::Dnat { address: register(data, 3), port: register(data, 5) },
        "masq" => Op::Masquerade,
        "reject" => Op::Reject,
        "notrack" => Op::Untracked,
        // `dynset` notes a packet in a set.
        "counter" | "log" | "dynset" => Op::Nothing,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::wire::Writer;
    use super::super::{Cmp, Ct, Expr, Meta, Original, Reg, Verdict};
    use super::*;

    /// An expression as the kernel gets it from us, which is how it tells it.
    fn read(expr: &Expr) -> Op {
        let mut w = Writer::default();
        expr.write_bare(&mut w);
        let bytes = w.finish().unwrap();
        let kind = name(&bytes, EXPR_NAME).unwrap();
        op(&kind, wire::find(&bytes, EXPR_DATA).unwrap_or_default()).unwrap_or(Op::Other(kind))
    }

    #[test]
    fn what_is_written_is_read() {
        let lookup = |set: &str, negated, into| Op::Lookup { at: 0, set: set.to_owned(), negated, into };
        let cases = [
            (Expr::ip_saddr(Reg::FIRST), Op::Payload { header: ListedHeader::Network, offset: 12, len: 4, into: 0 }),
            (Expr::ip6_daddr(Reg::word(1)), Op::Payload { header: ListedHeader::Network, offset: 24, len: 16, into: 4 }),
            (Expr::Meta { key: Meta::IifName, into: Reg::word(4) }, Op::Meta { key: 6, into: 16 }),
            (Expr::SetMark(Reg::FIRST), Op::SetMark { from: 0 }),
            (Expr::Mask { reg: Reg::FIRST, mask: vec![255, 0] }, Op::Mask { from: 0, into: 0, mask: vec![255, 0], xor: vec![0, 0] }),
            (Expr::Cmp { reg: Reg::FIRST, how: Cmp::NotEqual, value: vec![7] }, Op::Compare { at: 0, how: 1, value: vec![7] }),
            (Expr::Lookup { reg: Reg::FIRST, set: "own4".to_owned(), negate: true }, lookup("own4", true, None)),
            (Expr::VerdictMap { reg: Reg::FIRST, map: "snat4".to_owned() }, lookup("snat4", false, None)),
            (Expr::Map { reg: Reg::FIRST, map: "ports".to_owned(), into: Reg::word(8) }, lookup("ports", false, Some(32))),
            (Expr::Ct { key: Ct::Status, into: Reg::FIRST }, Op::Ct { key: 2, into: 0 }),
            (Expr::Original { key: Original::Port, into: Reg::word(1) }, Op::CtTuple { key: 12, of_reply: false, into: 4 }),
            (Expr::DestinationType { into: Reg::FIRST }, Op::AddressType { of_destination: true, into: 0 }),
            (Expr::DestinationTypeOnLink { into: Reg::FIRST }, Op::AddressType { of_destination: true, into: 0 }),
            (Expr::ReversePath { into: Reg::word(1) }, Op::ReversePath { into: 4 }),
            (Expr::Dnat { ip: crate::Family::V4, address: Reg::FIRST, port: Reg::word(1) }, Op::Dnat { address: Some(0), port: Some(4) }),
            (Expr::Jump("hostports".to_owned()), Op::Verdict(ListedVerdict::Jump("hostports".to_owned()))),
            (Expr::Counter, Op::Nothing),
            (Expr::Masquerade, Op::Masquerade),
            (Expr::Verdict(Verdict::Drop), Op::Verdict(ListedVerdict::Drop)),
            (Expr::Verdict(Verdict::Return), Op::Verdict(ListedVerdict::Return)),
        ];
        for (expr, op) in cases {
            assert_eq!(read(&expr), op, "{expr:?}");
        }
    }

    #[test]
    fn what_is_not_tracked() {
        assert_eq!(op("notrack", &[]), Some(Op::Untracked));
    }

    /// Of what is set of the connection, its zone alone changes what becomes of this packet.
    #[test]
    fn a_zone_of_connection_tracking_is_not_understood() {
        let set = |key: u32| {
            let mut w = Writer::default();
            w.number(2, key);
            w.number(4, 8);
            op("ct", &w.finish().unwrap())
        };
        assert_eq!((set(3), set(17)), (Some(Op::Nothing), None));
    }

    /// What is not understood keeps its name, and what is cut short is not taken for something else.
    #[test]
    fn what_is_not_understood_is_named() {
        let mut w = Writer::default();
        w.name(1, "quota");
        assert_eq!(steps("match", &w.finish().unwrap()), [Op::Other("match quota".to_owned())]);
        for kind in ["quota", "synproxy", "cmp", "payload", "lookup", "immediate", "range", "bitwise"] {
            assert_eq!(op(kind, &[]), None, "{kind}");
        }
    }
}
