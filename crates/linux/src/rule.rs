//! Rules of policy routing (`ip rule`): which packets look into which routing table.

use std::fmt::Write as _;
use std::net::IpAddr;

use cni::IfName;
use ipnet::IpNet;

use crate::batch::Request;
use crate::netlink::{Netlink, ReadError};
use crate::route::Family;
use crate::uapi::fib_rules::*;
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use crate::uapi::rtnetlink::{RTM_DELRULE, RTM_GETRULE, RTM_NEWRULE};
use crate::wire::{Attributes, Message, Received, ip, text, u32_at, with_octets};

/// Length of `struct fib_rule_hdr`.
const FIB_RULE_HDR: usize = 12;

/// A rule: packets that meet every condition look into a table.
///
/// `Rule { from: Some(net), ..Rule::to_table(Family::V4, 100) }` is `ip rule add from NET table 100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Of which packets.
    pub family: Family,
    /// Their source; `None`: any.
    pub from: Option<IpNet>,
    /// Their destination; `None`: any.
    pub to: Option<IpNet>,
    /// The link that they came by; `lo` for packets of this machine's own.
    pub iif: Option<String>,
    /// The link that their socket is bound to.
    pub oif: Option<String>,
    /// The mark that they have, in the bits of a mask: `fwmark VALUE/MASK`.
    pub mark: Option<(u32, u32)>,
    /// Of the table's answers, those with a prefix of at most this length do not count (`suppress_prefixlength`).
    pub suppress: Option<u32>,
    /// The lowest number is asked first. 0 when written: before those that are there (`ip rule add` without a priority).
    pub priority: u32,
    /// The routing table.
    pub table: u32,
    /// What happens.
    pub action: RuleAction,
    /// It is for the packets for which its conditions do not hold (`not`).
    pub negated: bool,
    /// It was read with conditions that this type does not have (a port, a user). Such a rule is not to be
    /// taken for one of ours, and cannot be written.
    pub has_more: bool,
}

/// What a rule does (`FR_ACT_*`, linux/fib_rules.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RuleAction {
    /// The table is asked; where it has no route, the next rule is.
    Table,
    /// Another number: `goto`, `blackhole`, `unreachable`, ...
    Other(u8),
}

// === impl Rule ===

impl Rule {
    /// A rule without conditions.
    pub fn to_table(family: Family, table: u32) -> Self {
        Rule {
            family,
            from: None,
            to: None,
            iif: None,
            oif: None,
            mark: None,
            suppress: None,
            priority: 0,
            table,
            action: RuleAction::Table,
            negated: false,
            has_more: false,
        }
    }

    /// A rule for what one address sends.
    pub fn from_address(address: IpAddr, table: u32) -> Self {
        Rule { from: Some(IpNet::from(address)), ..Rule::to_table(Family::of(address), table) }
    }

    /// The address, where its source is nothing else, and there are no other conditions.
    pub fn only_from(&self) -> Option<IpAddr> {
        let bare = Rule { priority: self.priority, from: self.from, ..Rule::to_table(self.family, self.table) };
        let one = self.from.filter(|net| net.prefix_len() == net.max_prefix_len());
        one.filter(|_| *self == bare).map(|net| net.addr())
    }

    pub(crate) fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(FIB_RULE_HDR)?;
        let [family, to, from, tos, table, _, _, action, flags @ ..] = fixed else { return None };
        let family = Family::from_number(*family)?;
        let mut rule = Rule::to_table(family, u32::from(*table));
        rule.action = RuleAction::from(*action);
        // Of the flags only this one is a condition; the others say what the kernel thinks of the rule.
        rule.negated = u32_at(flags)? & FIB_RULE_INVERT != 0;
        rule.has_more = *tos != 0;
        let (mut mark, mut mask) = (None, u32::MAX);
        for (kind, value) in Attributes(attributes) {
            match kind {
                FRA_FWMARK => mark = Some(u32_at(value)?),
                FRA_FWMASK => mask = u32_at(value)?,
                FRA_SUPPRESS_PREFIXLEN => rule.suppress = u32_at(value).filter(|length| *length != u32::MAX),
                FRA_SRC => rule.from = IpNet::new(ip(value)?, *from).ok(),
                FRA_DST => rule.to = IpNet::new(ip(value)?, *to).ok(),
                FRA_IIFNAME => rule.iif = Some(text(value)),
                FRA_OIFNAME => rule.oif = Some(text(value)),
                FRA_PRIORITY => rule.priority = u32_at(value)?,
                FRA_TABLE => rule.table = u32_at(value)?,
                FRA_PROTOCOL | FRA_SUPPRESS_IFGROUP if is_nothing(kind, value) => {}
                FRA_PAD => {}
                _ => rule.has_more = true,
            }
        }
        // A mask alone asks for no bit to be set.
        rule.mark = mark.or((mask != u32::MAX).then_some(0)).map(|mark| (mark, mask));
        let family_of = |net: Option<IpNet>| net.is_none_or(|net| Family::of(net.addr()) == family);
        (family_of(rule.from) && family_of(rule.to)).then_some(rule)
    }
}

/// Attributes that come with every rule, and what they have where nobody asked for them.
fn is_nothing(kind: u16, value: &[u8]) -> bool {
    kind == FRA_PROTOCOL || u32_at(value) == Some(u32::MAX)
}

// === impl RuleAction ===

impl From<u8> for RuleAction {
    fn from(value: u8) -> Self {
        match value {
            FR_ACT_TO_TBL => RuleAction::Table,
            other => RuleAction::Other(other),
        }
    }
}

/// Makes a rule (`ip rule add`). Errors: `EEXIST`, there is the same one with the same priority (the kernel compares only
/// rules that give one); `EAFNOSUPPORT` or `EOPNOTSUPP`, the kernel has no policy routing.
pub fn add(rule: &Rule) -> Request<'static> {
    request("add", RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, rule)
}

/// Deletes the first rule that is like this one in everything that is given (`ip rule del`). Error: `ENOENT`, there is none.
pub fn delete(rule: &Rule) -> Request<'static> {
    request("del", RTM_DELRULE, 0, rule)
}

fn request(verb: &str, kind: u16, how: u16, rule: &Rule) -> Request<'static> {
    let length = |net: Option<IpNet>| net.map_or(0, |net| net.prefix_len());
    // A number of more than eight bits is told by an attribute instead.
    let small = u8::try_from(rule.table);
    let action = match rule.action {
        // What deletes need not say it.
        RuleAction::Table if kind == RTM_DELRULE => 0,
        RuleAction::Table => FR_ACT_TO_TBL,
        RuleAction::Other(other) => other,
    };
    let table = small.unwrap_or(0);
    let [a, b, c, d] = if rule.negated { FIB_RULE_INVERT } else { 0 }.to_ne_bytes();
    let fixed: [u8; FIB_RULE_HDR] = [rule.family.number(), length(rule.to), length(rule.from), 0, table, 0, 0, action, a, b, c, d];
    let mut message = Message::new(kind, how, &fixed);
    for (attribute, net) in [(FRA_SRC, rule.from), (FRA_DST, rule.to)] {
        if let Some(net) = net {
            with_octets(net.addr(), |octets| message.put(attribute, octets));
        }
    }
    if small.is_err() {
        message.put_u32(FRA_TABLE, rule.table);
    }
    if let Some((mark, mask)) = rule.mark {
        message.put_u32(FRA_FWMARK, mark);
        message.put_u32(FRA_FWMASK, mask);
    }
    if let Some(length) = rule.suppress {
        message.put_u32(FRA_SUPPRESS_PREFIXLEN, length);
    }
    if rule.priority != 0 {
        message.put_u32(FRA_PRIORITY, rule.priority);
    }
    for (attribute, name) in [(FRA_IIFNAME, &rule.iif), (FRA_OIFNAME, &rule.oif)] {
        // What is no name of a link is none of the kernel's either.
        if let Some(name) = name.as_deref().and_then(|name| IfName::parse(name).ok()) {
            message.put_str(attribute, name.as_str());
        }
    }
    Request::new(words(verb, rule), message)
}

fn words(verb: &str, rule: &Rule) -> String {
    let six = if rule.family == Family::V6 { " -6" } else { "" };
    let mut what = format!("ip{six} rule {verb}{}", if rule.negated { " not" } else { "" });
    // Writing to a string cannot fail.
    let _ = (|| -> std::fmt::Result {
        rule.from.map_or(Ok(()), |net| write!(what, " from {net}"))?;
        rule.to.map_or(Ok(()), |net| write!(what, " to {net}"))?;
        rule.iif.as_ref().map_or(Ok(()), |name| write!(what, " iif {name}"))?;
        rule.oif.as_ref().map_or(Ok(()), |name| write!(what, " oif {name}"))?;
        rule.mark.map_or(Ok(()), |(mark, mask)| write!(what, " fwmark {mark:#x}/{mask:#x}"))?;
        rule.suppress.map_or(Ok(()), |length| write!(what, " suppress_prefixlength {length}"))?;
        if rule.priority != 0 {
            write!(what, " priority {}", rule.priority)?;
        }
        write!(what, " table {}", rule.table)
    })();
    what
}

impl Netlink {
    /// Every rule of a family, or of both, in the order in which they are asked (`ip rule show`).
    ///
    /// # Errors
    /// [`ReadError`]; `EAFNOSUPPORT` or `EOPNOTSUPP`: the kernel has no policy routing.
    pub fn rules(&mut self, family: Option<Family>) -> Result<Vec<Rule>, ReadError> {
        let number = family.map_or(crate::uapi::family::UNSPEC, Family::number);
        let fixed: [u8; FIB_RULE_HDR] = [number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let question = Message::new(RTM_GETRULE, 0, &fixed);
        // Without a family the kernel tells also what is no rule for addresses (multicast routing).
        self.dump("ip rule show", question, &[], |m| (m.kind == RTM_NEWRULE).then(|| Rule::parse(m)).flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Messages;

    fn net(net: &str) -> IpNet {
        net.parse().unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let address = Rule::from_address("10.1.0.2".parse().unwrap(), 100);
        let whole = Rule {
            from: Some(net("fd00::2/128")),
            to: Some(net("fd00:9::/64")),
            iif: Some("lo".to_owned()),
            oif: Some("eth0.7".to_owned()),
            mark: Some((0x4000, 0xf000)),
            suppress: Some(0),
            priority: 77,
            negated: true,
            ..Rule::to_table(Family::V6, 1000)
        };
        let other = Rule { action: RuleAction::Other(6), ..Rule::to_table(Family::V4, 0) };
        for rule in [address, whole, other, Rule::to_table(Family::V4, 254)] {
            let request = add(&rule);
            let message = Messages(&request.message).next().unwrap();
            assert_eq!(Rule::parse(&message).as_ref(), Some(&rule), "{}", request.what());
        }
    }

    #[test]
    fn only_a_bare_rule_is_an_addresss() {
        let bare = Rule { priority: 32765, ..Rule::from_address("10.1.0.2".parse().unwrap(), 100) };
        assert_eq!(bare.only_from(), Some("10.1.0.2".parse().unwrap()));
        for other in [
            Rule { from: Some(net("10.1.0.0/24")), ..bare.clone() },
            Rule { from: None, ..bare.clone() },
            Rule { to: Some(net("10.9.0.0/16")), ..bare.clone() },
            Rule { iif: Some("lo".to_owned()), ..bare.clone() },
            Rule { action: RuleAction::Other(8), ..bare.clone() },
            Rule { has_more: true, ..bare.clone() },
            Rule { negated: true, ..bare.clone() },
            Rule { mark: Some((1, u32::MAX)), ..bare.clone() },
            Rule { suppress: Some(0), ..bare.clone() },
        ] {
            assert_eq!(other.only_from(), None, "{other:?}");
        }
    }

    /// What is read with a condition that is not told here is marked; what every rule comes with is no condition.
    #[test]
    fn other_conditions_are_noticed() {
        let read = |more: &[(u16, u32)]| {
            let mut message = Message::new(RTM_NEWRULE, 0, &[2, 0, 32, 0, 100, 0, 0, 1, 0, 0, 0, 0]);
            message.put(FRA_SRC, &[10, 1, 0, 2]);
            more.iter().for_each(|(kind, value)| message.put_u32(*kind, *value));
            Rule::parse(&Messages(&message.finish()).next().unwrap()).unwrap()
        };
        assert!(!read(&[(FRA_SUPPRESS_PREFIXLEN, u32::MAX), (FRA_SUPPRESS_IFGROUP, u32::MAX), (FRA_PROTOCOL, 3)]).has_more);
        // FRA_FLOW, FRA_TUN_ID
        assert!(read(&[(11, 7)]).has_more && read(&[(12, 7)]).has_more);
        assert_eq!(read(&[(FRA_FWMARK, 7)]).mark, Some((7, u32::MAX)));
        assert_eq!(read(&[(FRA_FWMARK, 7), (FRA_FWMASK, 15)]).mark, Some((7, 15)));
        assert_eq!(read(&[(FRA_SUPPRESS_PREFIXLEN, 0)]).suppress, Some(0));
    }
}
