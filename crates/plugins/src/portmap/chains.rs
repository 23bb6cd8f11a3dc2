//! The chains and rules of the iptables backend: those of the reference plugin, so that each removes what the other has made, and
//! CHECKs it. In the words and the order in which `iptables-save` prints them, so that they are known when they are there.
//!
//! ```text
//! PREROUTING, OUTPUT    -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT              behind what is there: Services first
//! CNI-HOSTPORT-DNAT     -p tcp -m multiport --dports 8080,8081 CONDITIONS -j CNI-DN-... a container's, 15 ports a rule
//! CNI-DN-...            -s 10.88.0.0/24 -p tcp --dport 8080 -j CNI-HOSTPORT-SETMARK    hairpin
//!                       -s 127.0.0.1 -p tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
//!                       -p tcp --dport 8080 -j DNAT --to-destination 10.88.0.5:80
//! CNI-HOSTPORT-SETMARK  -j MARK --set-xmark 0x2000/0x2000
//! POSTROUTING           -j CNI-HOSTPORT-MASQ                                           ahead of what is there
//! CNI-HOSTPORT-MASQ     -m mark --mark 0x2000/0x2000 -j MASQUERADE
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cni::{AttachmentId, NetworkName};
use ipnet::IpNet;
use linux::Family;
use rules::iptables::{Changes, Rule, Saved};
use rules::{HostPort, Protocol, Rewrite};

use super::conf::{ConditionWords, Conf, Mapping, Marks};
use crate::foreign::NAT;

/// What leads to every container's chain.
pub(super) const TOP: &str = "CNI-HOSTPORT-DNAT";
const SET_MARK: &str = "CNI-HOSTPORT-SETMARK";
const MASQUERADE: &str = "CNI-HOSTPORT-MASQ";
/// As long as a chain's name may be.
const NAME: usize = 28;
/// How many ports a rule may list.
const PORTS: usize = 15;
/// How long a comment may be.
const COMMENT: usize = 255;

/// The names of the chains of one attachment: of its ports, and the one that releases of the reference plugin before 0.8 made
/// for source addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Own {
    pub(super) ports: String,
    pub(super) old: String,
}

/// All that one address of an attachment needs.
pub(super) struct Wanted {
    chain: String,
    /// Chains that others use as well, and what they need: nothing is taken away from them while somebody uses them.
    shared: Vec<(&'static str, Rule, ChainPlace)>,
    entries: Vec<Rule>,
    /// Whether each of these may have become several: `-s 192.0.2.1,192.0.2.2`.
    conditional: bool,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChainPlace {
    First,
    Last,
}

/// The ports that an attachment's chain publishes.
pub(super) fn published(saved: &Saved, own: &Own) -> Vec<HostPort> {
    saved.rules(&own.ports).filter_map(port_of).collect()
}

fn port_of(rule: &Rule) -> Option<HostPort> {
    let protocol = rule.after("-p")?;
    let protocol = Protocol::ALL.into_iter().find(|p| p.name() == protocol)?;
    let at: Option<IpNet> = rule.after("-d").and_then(|at| at.parse().ok());
    let to: SocketAddr = rule.after("--to-destination")?.parse().ok()?;
    Some(HostPort { protocol, at: at.map(|net| net.addr()), port: rule.after("--dport")?.parse().ok()?, to })
}

/// One of these ports that another container's chain publishes, where one of the two would take it from the other, and whose it is: of
/// the same address, or of all where one of the two is of all, whatever its conditions. One that had the same address cannot be there
/// any more.
pub(super) fn taken(saved: &Saved, id: &AttachmentId, ports: &[HostPort]) -> Option<(HostPort, String)> {
    let own = Own::of(id).ports;
    let numbers: Vec<String> = ports.iter().map(|port| port.port.to_string()).collect();
    for entry in saved.rules(TOP) {
        // Most have other ports.
        let text = entry.to_string();
        if !numbers.iter().any(|number| text.contains(number)) {
            continue;
        }
        let Some(chain) = entry.target().filter(|chain| *chain != own) else { continue };
        let owner = comment(entry).as_deref().and_then(owner).map(|(network, container)| (network.to_owned(), container.to_owned()));
        if owner.as_ref().is_some_and(|(_, container)| container == id.container.as_str()) {
            continue;
        }
        let is_same = |one: &HostPort, other: &HostPort| {
            let at_one = one.at.is_none() || other.at.is_none() || one.at == other.at;
            at_one && (one.protocol, one.port) == (other.protocol, other.port) && one.to.ip() != other.to.ip()
        };
        let same = saved.rules(&chain).filter_map(port_of).find_map(|other| ports.iter().find(|port| is_same(port, &other)));
        if let Some(port) = same {
            let owner = owner.map_or_else(|| "of an unknown owner".to_owned(), |(network, container)| format!("{network}/{container}"));
            return Some((*port, owner));
        }
    }
    None
}

/// The first comment of a rule. Conditions, which come behind, may have comments of their own.
fn comment(rule: &Rule) -> Option<String> {
    rule.words().into_iter().skip_while(|word| word != "--comment").nth(1)
}

/// Network and container that such a comment names.
fn owner(comment: &str) -> Option<(&str, &str)> {
    let (network, container) = comment.strip_prefix("dnat name: \"")?.split_once("\" id: \"")?;
    Some((network, container.strip_suffix('"')?))
}

/// The chains of a network's attachments, of which the comments tell: those that are not among these.
pub(super) fn stale(saved: &Saved, network: &NetworkName, valid: &[Own]) -> Vec<Own> {
    let begin = format!("dnat name: \"{network}\" id: \"");
    let of_network = |rule: &&Rule| comment(rule).is_some_and(|comment| comment.starts_with(&begin));
    let chains = saved.rules(TOP).filter(of_network).filter_map(Rule::target);
    let own = chains.filter_map(|ports| Some(Own { old: ports.strip_prefix("CNI-DN-").map(|hash| format!("CNI-SN-{hash}"))?, ports }));
    let mut gone: Vec<Own> = own.filter(|own| !valid.contains(own)).collect();
    gone.sort();
    gone.dedup();
    gone
}

// === impl Own ===

impl Own {
    /// Of network and container alone: an attachment's interface is not in it.
    pub(super) fn of(id: &AttachmentId) -> Self {
        let hash = crate::foreign::hash(&format!("{}{}", id.network, id.container), NAME);
        let named = |prefix: &str| format!("{prefix}{hash}").chars().take(NAME).collect();
        Own { ports: named("CNI-DN-"), old: named("CNI-SN-") }
    }
}

// === impl Wanted ===

impl Wanted {
    pub(super) fn of(conf: &Conf, words: &ConditionWords, id: &AttachmentId, address: IpNet) -> Self {
        let chain = Own::of(id).ports;
        let set_mark = match &words.marks {
            Marks::Bit(_) => SET_MARK,
            Marks::Chain(chain) => chain,
        };
        let family = Family::of(address.addr());
        let of_family = conf.mappings.iter().filter(|m| m.is_of(family));
        let rules: Vec<Rule> = of_family.flat_map(|m| port(m, conf.rewrite, set_mark, address)).collect();
        // Where none of its rules lead to them, they go with those of others.
        let rewrite = conf.rewrite.filter(|_| !rules.is_empty());
        let conditions = words.conditions(family);
        let entries = entries(&conf.mappings, id, conditions, &chain);
        Wanted { shared: shared(rewrite, &words.marks), chain, entries, conditional: !conditions.is_empty(), rules }
    }

    /// What makes it of what is there. What an ADD before left of it goes.
    pub(super) fn changes(&self, saved: &Saved) -> Changes {
        let mut changes = Changes::of(NAT);
        changes.empty_chain(&self.chain);
        for chain in [SET_MARK, MASQUERADE, TOP] {
            let needed = chain == TOP || self.shared.iter().any(|(of, ..)| *of == chain);
            if needed && !saved.has_chain(chain) {
                changes.new_chain(chain);
            }
        }
        for (chain, rule, place) in self.shared.iter().filter(|(chain, rule, _)| !saved.has(chain, rule)) {
            match place {
                ChainPlace::First => changes.insert(chain, rule),
                ChainPlace::Last => changes.append(chain, rule),
            }
        }
        for (of, rule) in saved.leading_to(&self.chain) {
            changes.delete(of, rule);
        }
        for rule in &self.rules {
            changes.append(&self.chain, rule);
        }
        for rule in &self.entries {
            changes.append(TOP, rule);
        }
        changes
    }

    /// The rules of it that are not there in these words, each with its chain. Conditions have others, when they are printed.
    pub(super) fn unseen(&self, saved: &Saved) -> Vec<(String, Rule)> {
        let shared = self.shared.iter().map(|(chain, rule, _)| ((*chain).to_owned(), rule.clone()));
        let own = self.rules.iter().map(|rule| (self.chain.clone(), rule.clone()));
        let entries = self.entries.iter().map(|rule| (TOP.to_owned(), rule.clone()));
        shared.chain(own).chain(entries).filter(|(chain, rule)| !saved.has(chain, rule)).collect()
    }

    /// The chain that has not the number of rules of this attachment that it should have, and how many it has.
    pub(super) fn wrong_number(&self, saved: &Saved) -> Option<(&str, usize)> {
        let entries = saved.leading_to(&self.chain).count();
        let rules = saved.rules(&self.chain).count();
        let wanted = self.entries.len();
        if rules != self.rules.len() {
            return Some((&self.chain, rules));
        }
        (entries < wanted || entries > wanted && !self.conditional).then_some((TOP, entries))
    }
}

/// What marks and masquerades connections goes with the last chain that leads there: it holds for whatever has the mark, another
/// program's packets too. `gone`: the chains that go.
pub(super) fn without_users(saved: &Saved, gone: &[String], changes: &mut Changes) {
    let is_gone = |chain: &str| gone.iter().any(|own| own == chain);
    if saved.leading_to(SET_MARK).any(|(of, _)| !is_gone(of)) {
        return;
    }
    for chain in [SET_MARK, MASQUERADE].into_iter().filter(|chain| saved.has_chain(chain)) {
        for (of, rule) in saved.leading_to(chain).filter(|(of, _)| !is_gone(of)) {
            changes.delete(of, rule);
        }
        changes.remove_chain(chain);
    }
}

fn shared(rewrite: Option<Rewrite>, marks: &Marks) -> Vec<(&'static str, Rule, ChainPlace)> {
    let mut shared = Vec::new();
    if let (Some(_), Marks::Bit(bit)) = (rewrite, marks) {
        let mark = 1_u32.checked_shl(u32::from(*bit)).unwrap_or_default();
        let mark = format!("{mark:#x}/{mark:#x}");
        let set = ["-m", "comment", "--comment", "CNI portfwd masquerade mark", "-j", "MARK", "--set-xmark", &mark];
        shared.push((SET_MARK, Rule::new(set), ChainPlace::Last));
        shared.push((MASQUERADE, Rule::new(["-m", "mark", "--mark", &mark, "-j", "MASQUERADE"]), ChainPlace::Last));
        let entry = ["-m", "comment", "--comment", "CNI portfwd requiring masquerade", "-j", MASQUERADE];
        // The rules of `ipMasq` would take such a connection for one that stays in the network, and accept it.
        shared.push(("POSTROUTING", Rule::new(entry), ChainPlace::First));
    }
    let local = Rule::new(["-m", "addrtype", "--dst-type", "LOCAL", "-j", TOP]);
    shared.extend(["PREROUTING", "OUTPUT"].map(|chain| (chain, local.clone(), ChainPlace::Last)));
    shared
}

/// What leads to the attachment's chain.
fn entries(mappings: &[Mapping], id: &AttachmentId, conditions: &[String], chain: &str) -> Vec<Rule> {
    let mut comment = format!("dnat name: \"{}\" id: \"{}\"", id.network, id.container);
    if comment.len() > COMMENT {
        comment.truncate(COMMENT - 3);
        comment.push_str("...");
    }
    let mut ports: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for mapping in mappings {
        ports.entry(mapping.protocol.name()).or_default().push(mapping.host_port.to_string());
    }
    let mut rules = Vec::new();
    for (protocol, ports) in &ports {
        for some in ports.chunks(PORTS) {
            let list = some.join(",");
            let fixed = ["-p", protocol, "-m", "comment", "--comment", &comment, "-m", "multiport", "--dports", &list];
            let words = fixed.into_iter().chain(conditions.iter().map(String::as_str)).chain(["-j", chain]);
            rules.push(Rule::new(words));
        }
    }
    rules
}

/// The rules of one port.
fn port(mapping: &Mapping, rewrite: Option<Rewrite>, set_mark: &str, address: IpNet) -> Vec<Rule> {
    let (protocol, port) = (mapping.protocol.name(), mapping.host_port.to_string());
    let at = mapping.one().map(|at| IpNet::from(at).to_string());
    let rule = |from: Option<&str>, target: &[&str]| {
        let from = from.into_iter().flat_map(|from| ["-s", from]);
        let at = at.as_deref().into_iter().flat_map(|at| ["-d", at]);
        let fixed = ["-p", protocol, "-m", protocol, "--dport", &port, "-j"];
        Rule::new(from.chain(at).chain(fixed).chain(target.iter().copied()))
    };
    let marked = |from: Option<&str>| rule(from, &[set_mark]);
    let mut rules = Vec::new();
    match rewrite {
        None => {}
        // As iptables has it, `-s 0.0.0.0/0` is nothing.
        Some(Rewrite::Everything) => rules.push(marked(None)),
        Some(Rewrite::Hairpin) => {
            rules.push(marked((address.prefix_len() > 0).then(|| address.trunc().to_string()).as_deref()));
            if address.addr().is_ipv4() {
                rules.push(marked(Some("127.0.0.1/32")));
            }
        }
    }
    let to = SocketAddr::new(address.addr(), mapping.container_port);
    rules.push(rule(None, &["DNAT", "--to-destination", &to.to_string()]));
    rules
}

#[cfg(test)]
mod tests {
    use cni::{ContainerId, IfName};

    use super::*;

    /// `printf testnetcontainer1 | sha512sum`
    #[test]
    fn the_chain_of_a_container() {
        let id = AttachmentId {
            network: NetworkName::parse("testnet").unwrap(),
            container: ContainerId::parse("container1").unwrap(),
            ifname: IfName::parse("eth0").unwrap(),
        };
        let own = Own::of(&id);
        assert_eq!(own.ports, "CNI-DN-9a2f7cdb1bace83d1a0b9");
        assert_eq!(own.old, "CNI-SN-9a2f7cdb1bace83d1a0b9");
    }
}
