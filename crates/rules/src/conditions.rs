//! Host ports that only some connections may use: `portmap`'s conditions in words of `nft`.
//!
//! ```text
//! map hostports4_if   { type inet_proto . inet_service : verdict;                           an element a port
//!     elements = { tcp . 8080 comment "lab/pod-1/eth0" : jump when-ip/and/saddr-not-192.0.2.0/24 } }
//! map hostports4_then { type inet_proto . inet_service : ipv4_addr . inet_service;          the same port
//!     elements = { tcp . 8080 comment "lab/pod-1/eth0" : 10.88.0.5 . 80 } }
//!
//! chain when-ip/and/saddr-not-192.0.2.0/24 {                                                a chain for the same conditions
//!     ip saddr != 192.0.2.0/24 dnat ip to meta l4proto . th dport map @hostports4_then }
//! chain conditions     { meta l4proto . th dport vmap @hostports4_if }                      and the same for IPv6
//! chain conditions-in  { type nat hook prerouting priority dstnat + 9;
//!     ip daddr 127.0.0.0/8 return
//!     fib daddr type local jump conditions }
//! chain conditions-out { type nat hook output priority dstnat + 9; ... }
//! ```
//!
//! They are looked up ahead of ports without conditions: where none hold, the same port can be another one of the same container's.
//! They are the attachment's that has them, and nobody else's. The chain's name says what its rule says, so that the rule can be put back.
//! All else, `snat4` and what is about 127.0.0.0/8, is as with other host ports (`hostports.rs`).

use std::fmt;
use std::net::IpAddr;

use cni::AttachmentId;
use ipnet::IpNet;
use linux::nft::{Cmp, Data, Expr, Family, Field, Hook, Reg, SetElement};

use crate::hostports::{PRIORITY, V4, V6, element, from_here, from_outside, nat, port_into};
use crate::ingress::came_by;
use crate::part::{Fixed, Map, Rules, Subject, To};
use crate::phrase::{destination, is_ipv4, is_ipv6, octets, source, within};
use crate::{HostPort, host_ports};

/// The chain that both ways in jump to.
const LOOK_UP: &str = "conditions";
/// Stands between conditions in a chain's name: no address and no interface has it.
const AND: &str = "/and/";
/// As long as a chain's name may be (`NFT_CHAIN_MAXNAMELEN` with its NUL is 256).
const NAME: usize = 255;
/// An interface's name with its NUL (`IFNAMSIZ`).
const IFNAME: usize = 16;

const KEY: &[Field] = &[Field::InetProto, Field::InetService];

/// What host ports with conditions need of the table, besides what host ports need.
pub static CONDITIONS: Subject = Subject {
    family: Family::Inet,
    maps: &[
        // Who has the port is said by the other map: both change together.
        Map { name: "hostports4_if", key: KEY, to: To::Chain, held: false },
        Map { name: "hostports6_if", key: KEY, to: To::Chain, held: false },
        Map { name: "hostports4_then", key: KEY, to: To::Fields(V4), held: true },
        Map { name: "hostports6_then", key: KEY, to: To::Fields(V6), held: true },
    ],
    chains: &[
        Fixed { name: LOOK_UP, base: None, rules: look_up },
        Fixed { name: "conditions-in", base: Some(nat(Hook::Prerouting, PRIORITY - 1)), rules: || from_outside(LOOK_UP) },
        Fixed { name: "conditions-out", base: Some(nat(Hook::Output, PRIORITY - 1)), rules: || from_here(LOOK_UP) },
    ],
    former: &[],
    target: |chain| Conditions::named(chain).map(|conditions| conditions.rules()),
    companion: |_| None,
};

/// What a connection must match to be led to a container; all of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conditions {
    family: linux::Family,
    all: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Condition {
    what: What,
    not: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum What {
    From(IpNet),
    To(IpNet),
    /// The interface that it came by.
    By(String),
}

/// Why conditions cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// A word that is none of those that are known.
    #[error(
        "{word:?} is not supported: use `{ip} saddr`, `{ip} daddr` or `iifname`, optionally `==` or `!=`, then an address, a network or \
            a name"
    )]
    Word {
        /// The word.
        word: String,
        /// `ip` or `ip6`.
        ip: &'static str,
    },
    /// Something is missing at the end.
    #[error("a value is missing after {after:?}")]
    End {
        /// The last word.
        after: String,
    },
    /// No address of this family, or every address.
    #[error("{word:?} is not an {ip} address or network")]
    Network {
        /// The word.
        word: String,
        /// `ip` or `ip6`.
        ip: &'static str,
    },
    /// No name of an interface that can be part of a chain's name.
    #[error("{word:?} is not an interface name of letters, digits, `.`, `-` and `_`")]
    Interface {
        /// The word.
        word: String,
    },
    /// More than fit a chain's name.
    #[error("too many conditions: they need a chain name of {length} characters, but only {NAME} are possible")]
    TooMany {
        /// How long it would be.
        length: usize,
    },
}

/// The elements that publish these ports for connections that match. Pure, as [`host_ports`]; ports at one address of the host
/// have none.
#[must_use]
pub fn host_ports_if(owner: &AttachmentId, ports: &[HostPort], conditions: &Conditions) -> Vec<SetElement> {
    let of_family = |port: &&HostPort| port.at.is_none() && linux::Family::of(port.to.ip()) == conditions.family;
    let ports: Vec<HostPort> = ports.iter().filter(of_family).copied().collect();
    let v4 = conditions.family == linux::Family::V4;
    let (first, then) = (if v4 { "hostports4_if" } else { "hostports6_if" }, conditional(v4));
    let mut elements = Vec::new();
    for port in host_ports(owner, &ports) {
        elements.push(element(owner, first, port.element.key.clone(), Data::Jump(conditions.to_string())));
        elements.push(SetElement { set: then.to_owned(), ..port });
    }
    elements
}

/// The map of a family's ports that have conditions.
pub(crate) fn conditional(v4: bool) -> &'static str {
    if v4 { "hostports4_then" } else { "hostports6_then" }
}

// === impl Conditions ===

impl Conditions {
    /// Reads words of `nft`: `ip saddr != 192.0.2.0/24 iifname eth0`, in as many pieces as one likes.
    ///
    /// # Errors
    /// [`ConditionError`]: the first word that is not understood.
    pub fn read<W: AsRef<str>>(family: linux::Family, words: &[W]) -> Result<Self, ConditionError> {
        let mut words = words.iter().flat_map(|piece| piece.as_ref().split_whitespace()).peekable();
        let ip = if family == linux::Family::V4 { "ip" } else { "ip6" };
        let mut all = Vec::new();
        while let Some(word) = words.next() {
            let end = |after: &str| ConditionError::End { after: after.to_owned() };
            let field = match word {
                "iifname" => word,
                _ if word == ip => words.next().ok_or_else(|| end(word))?,
                _ => return Err(ConditionError::Word { word: word.to_owned(), ip }),
            };
            let how = words.next_if(|word| matches!(*word, "!=" | "=="));
            let value = words.next().ok_or_else(|| end(field))?;
            let what = match field {
                "saddr" => What::From(network(family, value)?),
                "daddr" => What::To(network(family, value)?),
                "iifname" => What::By(interface(value)?),
                _ => return Err(ConditionError::Word { word: field.to_owned(), ip }),
            };
            all.push(Condition { what, not: how == Some("!=") });
        }
        let conditions = Conditions { family, all };
        match conditions.to_string().len() {
            length if length > NAME => Err(ConditionError::TooMany { length }),
            _ => Ok(conditions),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The ones that a chain is named after; `None`: it is another's.
    fn named(chain: &str) -> Option<Self> {
        let mut parts = chain.split(AND);
        let family = match parts.next()? {
            "when-ip" => linux::Family::V4,
            "when-ip6" => linux::Family::V6,
            _ => return None,
        };
        let all = parts.map(|part| Condition::named(family, part)).collect::<Option<Vec<_>>>()?;
        let conditions = Conditions { family, all };
        (conditions.to_string() == chain).then_some(conditions)
    }

    fn rules(&self) -> Rules {
        let v4 = self.family == linux::Family::V4;
        let (proto, map) = (if v4 { is_ipv4() } else { is_ipv6() }, conditional(v4));
        let mut exprs = proto.to_vec();
        self.all.iter().for_each(|condition| exprs.extend(condition.exprs()));
        exprs.extend(port_into(0));
        exprs.push(Expr::Map { reg: Reg::FIRST, map: map.to_owned(), into: Reg::FIRST });
        let words = if v4 { 1 } else { 4 };
        exprs.push(Expr::Dnat { ip: self.family, address: Reg::FIRST, port: Reg::word(words) });
        vec![exprs]
    }
}

/// The name of their chain: `nft` reads no colon in a name.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.family == linux::Family::V4 { "when-ip" } else { "when-ip6" })?;
        for Condition { what, not } in &self.all {
            let how = if *not { "not" } else { "is" };
            match what {
                What::From(net) => write!(f, "{AND}saddr-{how}-{}", net.to_string().replace(':', "-"))?,
                What::To(net) => write!(f, "{AND}daddr-{how}-{}", net.to_string().replace(':', "-"))?,
                What::By(name) => write!(f, "{AND}iifname-{how}-{name}")?,
            }
        }
        Ok(())
    }
}

fn network(family: linux::Family, word: &str) -> Result<IpNet, ConditionError> {
    let ip = if family == linux::Family::V4 { "ip" } else { "ip6" };
    let net = word.parse::<IpNet>().ok().or_else(|| word.parse::<IpAddr>().ok().map(IpNet::from));
    let some = net.filter(|net| linux::Family::of(net.addr()) == family && net.prefix_len() > 0).map(|net| net.trunc());
    some.ok_or_else(|| ConditionError::Network { word: word.to_owned(), ip })
}

fn interface(word: &str) -> Result<String, ConditionError> {
    let name = word.strip_prefix('"').and_then(|w| w.strip_suffix('"')).unwrap_or(word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() >= IFNAME || !name.chars().all(plain) {
        return Err(ConditionError::Interface { word: word.to_owned() });
    }
    Ok(name.to_owned())
}

fn look_up() -> Rules {
    let vmap = |is_ip: [Expr; 2], map: &str| {
        [is_ip.as_slice(), &port_into(0), &[Expr::VerdictMap { reg: Reg::FIRST, map: map.to_owned() }]].concat()
    };
    vec![vmap(is_ipv4(), "hostports4_if"), vmap(is_ipv6(), "hostports6_if")]
}

// === impl Condition ===

impl Condition {
    fn named(family: linux::Family, part: &str) -> Option<Self> {
        let mut words = part.splitn(3, '-');
        let (field, how, value) = (words.next()?, words.next()?, words.next()?);
        let net = || network(family, &value.replace('-', ":")).ok();
        let what = match field {
            "saddr" => What::From(net()?),
            "daddr" => What::To(net()?),
            "iifname" => What::By(interface(value).ok()?),
            _ => return None,
        };
        Some(Condition { what, not: how == "not" })
    }

    fn exprs(&self) -> Vec<Expr> {
        let how = if self.not { Cmp::NotEqual } else { Cmp::Equal };
        let net = |load: Expr, net: &IpNet| within(&load, how, &octets(net.network()), net.prefix_len());
        match &self.what {
            What::From(from) => net(source(from), from),
            What::To(to) => net(destination(to), to),
            What::By(name) => came_by(name, how).to_vec(),
        }
    }
}

/// For the fuzz target: what is read is told in the chain's name, and read again from it.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn fuzz(text: &str) {
    for family in [linux::Family::V4, linux::Family::V6] {
        if let Ok(conditions) = Conditions::read(family, &[text]) {
            let chain = conditions.to_string();
            assert!(chain.len() <= NAME && chain.chars().all(|c| c.is_ascii_alphanumeric() || "-/._".contains(c)), "{chain:?}");
            assert_eq!(Conditions::named(&chain).as_ref(), Some(&conditions), "{chain:?}");
            assert!(!conditions.rules().is_empty());
        }
        let _ = Conditions::named(text).map(|conditions| assert_eq!(conditions.to_string(), text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(family: linux::Family, text: &str) -> Result<String, ConditionError> {
        Conditions::read(family, &[text]).map(|conditions| {
            assert_eq!(Conditions::named(&conditions.to_string()).as_ref(), Some(&conditions));
            conditions.to_string()
        })
    }

    #[test]
    fn a_chain_is_named_after_what_it_says() {
        let v4 = |text| read(linux::Family::V4, text).unwrap();
        assert_eq!(v4("ip daddr != 192.0.2.7/24"), "when-ip/and/daddr-not-192.0.2.0/24");
        assert_eq!(v4("ip saddr 192.0.2.7 iifname == \"br_lan-1.5\""), "when-ip/and/saddr-is-192.0.2.7/32/and/iifname-is-br_lan-1.5");
        let v6 = |text| read(linux::Family::V6, text).unwrap();
        assert_eq!(v6("ip6 saddr != fd00::/8 ip6 daddr ::1"), "when-ip6/and/saddr-not-fd00--/8/and/daddr-is---1/128");
        let pieces = ["ip", "daddr", "!=", "192.0.2.0/24"];
        assert_eq!(Conditions::read(linux::Family::V4, &pieces).unwrap().to_string(), "when-ip/and/daddr-not-192.0.2.0/24");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let cases = [
            ("tcp dport 80", "\"tcp\" is not supported"),
            ("ip6 saddr fd00::/8", "\"ip6\" is not supported"),
            ("ip protocol tcp", "\"protocol\" is not supported"),
            ("ip saddr { 192.0.2.1, 192.0.2.2 }", "\"{\" is not an ip address"),
            ("ip saddr 0.0.0.0/0", "\"0.0.0.0/0\" is not an ip address or network"),
            ("ip saddr fd00::1", "\"fd00::1\" is not an ip address"),
            ("ip saddr !=", "a value is missing after \"saddr\""),
            ("ip", "a value is missing after \"ip\""),
            ("iifname eth*", "\"eth*\" is not an interface name"),
            ("iifname sixteen-letters-", "is not an interface name"),
        ];
        for (text, said) in cases {
            let e = read(linux::Family::V4, text).unwrap_err().to_string();
            assert!(e.contains(said), "{text}: {e}");
        }
        let many = "ip saddr != 192.0.2.0/24 ".repeat(10);
        assert_eq!(read(linux::Family::V4, &many), Err(ConditionError::TooMany { length: 7 + 10 * 27 }));
        for chain in ["when-ip", "hostports", "when-ip/and/", "when-ip/and/saddr-is-192.0.2.7/24", "when-ip/and/saddr-maybe-192.0.2.7/32"] {
            let found = Conditions::named(chain);
            assert!(found.is_none_or(|c| c.is_empty()), "{chain}");
        }
    }
}
