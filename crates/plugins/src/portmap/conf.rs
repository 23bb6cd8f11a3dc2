//! The keys of `portmap`, as received and as checked.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cni::{CniError, Config};
use ipnet::IpNet;
use linux::Family;
use rules::{ConditionError, Conditions, HostPort, Protocol, Rewrite};
use serde::Deserialize;

/// Kubernetes has 14 and 15, Calico 20 to 31.
const DEFAULT_BIT: i64 = 13;
/// Options of `iptables` that are about what it does, not about packets (iptables(8)).
const OF_PROGRAM: [&str; 22] = [
    "append",
    "check",
    "delete",
    "delete-chain",
    "flush",
    "goto",
    "help",
    "insert",
    "ipv4",
    "ipv6",
    "jump",
    "line-numbers",
    "list",
    "list-rules",
    "modprobe",
    "new-chain",
    "policy",
    "rename-chain",
    "replace",
    "table",
    "version",
    "zero",
];

/// Options of `iptables` and of its matches for which it takes the name of a machine in place of an address (`XTTYPE_HOST`,
/// `XTTYPE_HOSTMASK`).
const OF_ADDRESSES: [&str; 15] = [
    "source",
    "src",
    "destination",
    "dst",
    // `conntrack`, `policy`, `recent`, `ipvs`, `srh`.
    "ctorigsrc",
    "ctorigdst",
    "ctreplsrc",
    "ctrepldst",
    "tunnel-src",
    "tunnel-dst",
    "mask",
    "vaddr",
    "srh-psid",
    "srh-nsid",
    "srh-lsid",
];

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    backend: String,
    snat: Option<bool>,
    masq_all: bool,
    #[serde(rename = "conditionsV4")]
    conditions_v4: Vec<String>,
    #[serde(rename = "conditionsV6")]
    conditions_v6: Vec<String>,
    mark_masq_bit: Option<i64>,
    external_set_mark_chain: Option<String>,
    runtime_config: RuntimeKeys,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct RuntimeKeys {
    port_mappings: Vec<MappingKeys>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct MappingKeys {
    host_port: i64,
    container_port: i64,
    protocol: String,
    #[serde(rename = "hostIP")]
    host_ip: String,
}

/// The checked configuration.
pub(super) struct Conf {
    /// What is rewritten on the way to the container; `None`: nothing (`snat: false`).
    pub(super) rewrite: Option<Rewrite>,
    pub(super) mappings: Vec<Mapping>,
    pub(super) backend: Backend,
}

/// In whose rules ports are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Backend {
    /// What connections of each family must match.
    Nftables([Option<Conditions>; 2]),
    Iptables(ConditionWords),
}

/// What is said in the words of iptables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConditionWords {
    conditions_v4: Vec<String>,
    conditions_v6: Vec<String>,
    pub(super) marks: Marks,
}

/// What marks connections that shall get the host's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Marks {
    /// A chain of ours, with this bit.
    Bit(u8),
    /// A chain of another program, which sees to the rest as well.
    Chain(String),
}

/// One element of `portMappings`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) protocol: Protocol,
    at: AddressSide,
    pub(super) host_port: u16,
    pub(super) container_port: u16,
}

/// Where a port is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressSide {
    /// At all addresses.
    Everywhere,
    /// At all of one family: `hostIP` is `0.0.0.0` or `::`.
    Ipv4,
    Ipv6,
    /// At one.
    One(IpAddr),
}

// === impl Conf ===

impl Conf {
    pub(super) fn read(config: &Config) -> Result<Self, CniError> {
        Conf::parse(config).map_err(|e| e.within("failed to parse config"))
    }

    fn parse(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let backend = Backend::of(&keys)?;
        let rewrite = match (keys.snat.unwrap_or(true), keys.masq_all) {
            (false, _) => None,
            (true, false) => Some(Rewrite::Hairpin),
            (true, true) => Some(Rewrite::Everything),
        };
        let mappings = keys.runtime_config.port_mappings.iter().enumerate().map(|(i, m)| Mapping::read(i, m));
        let mappings: Vec<Mapping> = mappings.collect::<Result<_, _>>()?;
        distinct(&mappings)?;
        if let Backend::Nftables(conditions) = &backend {
            unconditional(&mappings, conditions)?;
        }
        Ok(Conf { rewrite, mappings, backend })
    }

    /// What a connection to this address must match to be taken.
    pub(super) fn conditions(&self, address: IpNet) -> Option<&Conditions> {
        let Backend::Nftables([v4, v6]) = &self.backend else { return None };
        if address.addr().is_ipv4() { v4.as_ref() } else { v6.as_ref() }
    }

    /// What is published of one address.
    pub(super) fn ports(&self, address: IpNet) -> Vec<HostPort> {
        let mut ports: Vec<HostPort> = self.mappings.iter().filter_map(|m| m.of(address.addr())).collect();
        ports.sort();
        ports.dedup();
        ports
    }
}

// === impl Backend ===

impl Backend {
    /// The one that is asked for, or the one that the other keys need.
    fn of(keys: &Keys) -> Result<Self, CniError> {
        let external = keys.external_set_mark_chain.as_deref().filter(|chain| !chain.is_empty());
        let marks = match (keys.mark_masq_bit, external) {
            (Some(_), Some(_)) => {
                return Err(CniError::worded("Cannot specify externalSetMarkChain and markMasqBit", "remove one of them")
                    .at("externalSetMarkChain"));
            }
            (None, Some(chain)) => Marks::Chain(chain.to_owned()),
            (bit, None) => {
                let bit = bit.unwrap_or(DEFAULT_BIT);
                let known = u8::try_from(bit).ok().filter(|bit| *bit < 32);
                Marks::Bit(known.ok_or_else(|| {
                    CniError::worded("MasqMarkBit must be between 0 and 31", format_args!("markMasqBit is {bit}")).at("markMasqBit")
                })?)
            }
        };
        let conditions = [("conditionsV4", &keys.conditions_v4), ("conditionsV6", &keys.conditions_v6)];
        let of = |iptables: bool| conditions.iter().filter(move |(_, c)| syntax(c) == Some(iptables)).map(|(key, _)| *key);
        let for_iptables: Vec<&str> = external.map(|_| "externalSetMarkChain").into_iter().chain(of(true)).collect();
        let for_nftables: Vec<&str> = of(false).collect();
        let iptables = match keys.backend.as_str() {
            "iptables" => true,
            "nftables" => false,
            // With nftables no mark is needed: one that is wished for is a wish for iptables.
            "" => !for_iptables.is_empty() || keys.mark_masq_bit.is_some() && for_nftables.is_empty(),
            other => {
                return Err(CniError::worded(format_args!("unrecognized backend {other:?}"), "backend is \"nftables\" or \"iptables\"")
                    .at("backend"));
            }
        };
        let (backend, wrong, keys_of_wrong) =
            if iptables { ("iptables", "nftables", for_nftables) } else { ("nftables", "iptables", for_iptables) };
        if !keys_of_wrong.is_empty() {
            let list = keys_of_wrong.join(" ");
            let why = format!("{backend} backend was requested but configuration contains {wrong}-specific options [{list}]");
            return Err(CniError::worded(why, "change \"backend\", or remove them").at("backend"));
        }
        if iptables {
            let [v4, v6] = conditions;
            let (conditions_v4, conditions_v6) = (said(Family::V4, v4)?, said(Family::V6, v6)?);
            return Ok(Backend::Iptables(ConditionWords { conditions_v4, conditions_v6, marks }));
        }
        let [v4, v6] = conditions;
        Ok(Backend::Nftables([understood(Family::V4, v4)?, understood(Family::V6, v6)?]))
    }
}

fn understood(family: Family, (key, words): (&str, &Vec<String>)) -> Result<Option<Conditions>, CniError> {
    let refused = |e: ConditionError| {
        let why = format!("{e}; express it as iptables matches instead (backend \"iptables\")");
        CniError::unsupported(key, format!("{words:?}"), &why)
    };
    let read = Conditions::read(family, words).map_err(refused)?;
    Ok((!read.is_empty()).then_some(read))
}

/// Whether conditions are words of iptables, whose first one begins with a hyphen or is an exclamation mark, or of nftables; `None`:
/// there are none.
fn syntax(conditions: &[String]) -> Option<bool> {
    let first = conditions.iter().find_map(|piece| piece.trim_start().chars().next())?;
    Some(matches!(first, '-' | '!'))
}

/// Words of iptables, none of which is for the program itself, and none a name that it would have to look up.
fn said(family: Family, (key, conditions): (&str, &Vec<String>)) -> Result<Vec<String>, CniError> {
    let words = conditions.iter().enumerate();
    let mut of_program = words.filter(|(at, word)| is_for_program(word) && !is_of_policy(word, conditions.get(..*at).unwrap_or_default()));
    if let Some((_, word)) = of_program.next() {
        return Err(CniError::invalid(key, format!("{word:?} is not an iptables match: it is a command or a value")));
    }
    if syntax(conditions).is_none() {
        return Ok(Vec::new());
    }
    let next = conditions.iter().skip(1).map(String::as_str).chain([""]);
    match conditions.iter().zip(next).find_map(|(word, next)| Some((word, not_an_address(word, next, family)?))) {
        None => Ok(conditions.clone()),
        Some((option, value)) => {
            let family = if family == Family::V4 { "IPv4" } else { "IPv6" };
            let why = "iptables would look a name up while other programs wait for its lock; write the addresses";
            Err(CniError::invalid(key, format!("{value:?} of {option:?} is not an address or a network of {family}: {why}")))
        }
    }
}

/// Whether a word is the option of the match `policy` that has the whole name which `--policy` of the program begins with. Behind that match
/// alone it is one (`getopt_long`: a whole name comes before one that is cut short).
fn is_of_policy(word: &str, before: &[String]) -> bool {
    let is_named = word == "--pol" || word.starts_with("--pol=");
    let next = before.iter().skip(1).map(String::as_str).chain([""]);
    let mut pairs = before.iter().map(String::as_str).zip(next);
    is_named && pairs.any(|pair| matches!(pair, ("-m" | "--match", "policy") | ("-mpolicy" | "--match=policy", _)))
}

/// Whether a word is an option of the program `iptables` instead of a match: `--modprobe` runs whatever it names, `-h` ends the
/// program as if all were done, `-4` passes a rule over. Letters are told together, and long names by their beginnings, of one letter
/// too (`getopt_long`); `--` alone ends the options, and with them the rule's target.
fn is_for_program(word: &str) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split_once('=').map_or(long, |(name, _)| name);
        return OF_PROGRAM.iter().any(|of_program| of_program.starts_with(name));
    }
    match word.strip_prefix('-').and_then(|letters| letters.chars().next()) {
        None => false,
        // All but the last have a value, which may stand in the same word.
        Some('s' | 'd' | 'i' | 'o' | 'p' | 'm') => false,
        Some(_) => word != "-f",
    }
}

/// The value of an option for addresses, in the same word or the next one, if it is anything else.
fn not_an_address<'w>(word: &'w str, next: &'w str, family: Family) -> Option<&'w str> {
    let value = match word.strip_prefix("--") {
        Some(long) => {
            let (name, value) = long.split_once('=').unwrap_or((long, next));
            // A long name may be cut short (`getopt_long`).
            OF_ADDRESSES.iter().any(|of_addresses| of_addresses.starts_with(name)).then_some(value)?
        }
        None => match word.strip_prefix("-s").or_else(|| word.strip_prefix("-d"))? {
            "" => next,
            value => value,
        },
    };
    value.split(',').any(|one| !is_address(one, family)).then_some(value)
}

/// Whether it is an address with or without a mask, which is a number of bits or an address.
fn is_address(text: &str, family: Family) -> bool {
    let is_of_family = |text: &str| text.parse::<IpAddr>().is_ok_and(|address| Family::of(address) == family);
    let is_written = |text: &str| is_of_family(text) || family == Family::V4 && is_short(text);
    let bits = if family == Family::V4 { 32 } else { 128 };
    let is_mask = |text: &str| is_of_family(text) || text.parse::<u8>().is_ok_and(|mask| mask <= bits);
    text.split_once('/').map_or_else(|| is_written(text), |(address, mask)| is_written(address) && is_mask(mask))
}

/// Whether it is an address of IPv4 whose last numbers are missing: iptables takes `10/8` for `10.0.0.0/8`, and `10.1` for `10.1.0.0`
/// (`xtables_numeric_to_ipaddr`).
fn is_short(text: &str) -> bool {
    let is_plain = |number: &str| number.parse::<u8>().is_ok_and(|value| value.to_string() == number);
    (1..4).contains(&text.split('.').count()) && text.split('.').all(is_plain)
}

// === impl ConditionWords ===

impl ConditionWords {
    /// What a packet of this family must match.
    pub(super) fn conditions(&self, family: Family) -> &[String] {
        match family {
            Family::V4 => &self.conditions_v4,
            Family::V6 => &self.conditions_v6,
        }
    }
}

/// One address of the host is a condition already, which has a map of its own.
fn unconditional(mappings: &[Mapping], conditions: &[Option<Conditions>; 2]) -> Result<(), CniError> {
    let [v4, v6] = conditions;
    let conditional = |at: IpAddr| if at.is_ipv4() { v4.is_some() } else { v6.is_some() };
    match mappings.iter().enumerate().find_map(|(i, m)| Some((i, m.one().filter(|at| conditional(*at))?))) {
        None => Ok(()),
        Some((i, at)) => {
            let key = if at.is_ipv4() { "conditionsV4" } else { "conditionsV6" };
            let why = format!("cannot be combined with {key}: use `daddr {at}` there instead, or the backend \"iptables\"");
            Err(CniError::unsupported(&format!("runtimeConfig.portMappings[{i}].hostIP"), at, &why))
        }
    }
}

/// Two mappings of one host port that lead to different places: which one would win?
fn distinct(mappings: &[Mapping]) -> Result<(), CniError> {
    for family in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let mut known = BTreeMap::new();
        for (i, port) in mappings.iter().enumerate().filter_map(|(i, m)| Some((i, m.of(family)?))) {
            let to = port.to.port();
            let (first, other) = *known.entry((port.protocol, port.port, port.at)).or_insert((i, to));
            if other != to {
                let why = format!(
                    "hostPort {}/{} is mapped to containerPort {other} already, by mapping {first}",
                    port.port,
                    port.protocol.name()
                );
                return Err(CniError::invalid(&format!("runtimeConfig.portMappings[{i}]"), why));
            }
        }
    }
    Ok(())
}

// === impl Mapping ===

impl Mapping {
    fn read(i: usize, keys: &MappingKeys) -> Result<Self, CniError> {
        let place = format!("runtimeConfig.portMappings[{i}]");
        let bad = |why: String| CniError::invalid(&place, why);
        let port = |what: &str, n: i64| match u16::try_from(n) {
            Ok(port) if port != 0 => Ok(port),
            _ => Err(CniError::worded(format_args!("Invalid {what} port number: {n}"), &place).at(&place)),
        };
        let container_port = port("container", keys.container_port)?;
        let host_port = port("host", keys.host_port)?;
        let protocol = Protocol::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(&keys.protocol));
        let protocol = protocol.ok_or_else(|| bad(format!("protocol {:?} is unknown: use tcp, udp or sctp", keys.protocol)))?;
        let ip = Some(keys.host_ip.as_str()).filter(|ip| !ip.is_empty());
        let ip: Option<IpAddr> = ip.map(|ip| ip.parse().map_err(|_| bad(format!("hostIP {ip:?} is not an IP address")))).transpose()?;
        // `::ffff:192.0.2.1` is an IPv4 address, as it is for Go.
        let at = match ip.map(|ip| ip.to_canonical()) {
            None => AddressSide::Everywhere,
            Some(IpAddr::V4(ip)) if ip.is_unspecified() => AddressSide::Ipv4,
            Some(IpAddr::V6(ip)) if ip.is_unspecified() => AddressSide::Ipv6,
            Some(ip) => AddressSide::One(ip),
        };
        Ok(Mapping { protocol, at, host_port, container_port })
    }

    /// What it publishes of an address; nothing where `hostIP` is of the other family.
    fn of(&self, address: IpAddr) -> Option<HostPort> {
        let v4 = address.is_ipv4();
        let at = match self.at {
            AddressSide::Everywhere => None,
            AddressSide::Ipv4 => v4.then_some(None)?,
            AddressSide::Ipv6 => (!v4).then_some(None)?,
            AddressSide::One(ip) => Some((ip.is_ipv4() == v4).then_some(ip)?),
        };
        Some(HostPort { protocol: self.protocol, at, port: self.host_port, to: SocketAddr::new(address, self.container_port) })
    }

    /// Whether it publishes addresses of this family.
    pub(super) fn is_of(&self, family: Family) -> bool {
        match self.at {
            AddressSide::Everywhere => true,
            AddressSide::Ipv4 => family == Family::V4,
            AddressSide::Ipv6 => family == Family::V6,
            AddressSide::One(ip) => Family::of(ip) == family,
        }
    }

    /// The one address of the host that it is published at.
    pub(super) fn one(&self) -> Option<IpAddr> {
        if let AddressSide::One(ip) = self.at { Some(ip) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--pol` was taken for the program's `--policy`, cut short, also where the match has been named that has it.
    #[test]
    fn an_option_of_a_match_may_begin_as_one_of_the_program() {
        let is_match = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            said(Family::V4, ("conditionsV4", &words)).is_ok_and(|said| said == words)
        };
        for line in [
            "-m policy --dir in --pol ipsec",
            "-mpolicy --pol=none --dir in",
            "! -s 192.0.2.1 --match policy --pol none",
            "--match=policy --pol none",
            "-m conntrack --ctorigsrc 192.0.2.1",
        ] {
            assert!(is_match(line), "{line}");
        }
        for line in [
            "-s 192.0.2.1 --pol ACCEPT",
            "--pol none -m policy",
            "-m policy --poli none",
            "-m policy --policy ACCEPT",
            "-m policy --po none",
            "-m tcp policy --pol none",
            "-m policies --pol none",
        ] {
            assert!(!is_match(line), "{line}");
        }
    }
}
