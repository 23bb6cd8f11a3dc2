//! What whereabouts has handed out, and what becomes of it here.
//!
//! ```text
//!   whereabouts' IPPools, reservations --+
//!   pods with their network status ------+--plan_import--> who keeps which address of which pool
//!   definitions, nodes ------------------+                 what is stale, and what a person has to look at
//! ```
//!
//! An address is left out only if its pod is gone, or lives and has another one there. Nothing is read here, and nothing written.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{Holder, Owner};
use pool::{Family, Run, number};
use serde::Deserialize;

use super::{RangePools, WhereaboutsRange, sloppy_network};

/// An IPPool of whereabouts (`whereabouts.cni.cncf.io/v1alpha1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TheirPool {
    /// Its `metadata.name`: network, node and range with dashes between them, where there are such.
    #[serde(skip)]
    pub name: String,
    /// The range's network, as `10.0.0.0/24`.
    pub range: String,
    /// What of it is handed out, by the number of the address in the network.
    pub allocations: BTreeMap<String, TheirAllocation>,
}

/// An address that whereabouts has handed out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TheirAllocation {
    /// The container's ID.
    pub id: String,
    /// Its pod, `namespace/name`.
    pub podref: String,
    /// Its interface; older releases do not say it.
    pub ifname: String,
}

/// A pod that is there, as far as it says who has which address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LivingPod {
    /// Where it runs; empty: it is not scheduled.
    pub node: String,
    /// Whether all its containers have ended for good, though the object is there still: it has no address any more.
    pub over: bool,
    /// Its attachments, as its network status has them; `None`: it has no status yet.
    pub attachments: Option<Vec<PodAttachment>>,
}

/// An entry of a pod's network status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodAttachment {
    /// The definition, `namespace/name`.
    pub definition: String,
    /// The interface.
    pub ifname: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// What a cluster has.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Those of all namespaces.
    pub pools: Vec<TheirPool>,
    /// By `namespace/name`: every pod that there is.
    pub pods: BTreeMap<String, LivingPod>,
    /// The `metadata.uid` of each node, by its name.
    pub nodes: BTreeMap<String, String>,
    /// The pools that definitions mean.
    pub meant: RangePools,
}

/// An address that stays with its pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// The pool that it is of here.
    pub pool: String,
    /// Where it is unique.
    pub network: String,
    /// The address.
    pub address: IpAddr,
    /// Who has it.
    pub owner: Owner,
    /// The node where that pod runs.
    pub node: String,
    /// Its `metadata.uid`.
    pub node_uid: String,
    /// Whether the pod's network status says so, too.
    pub confirmed: bool,
}

/// An address that does not come over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// Whereabouts' pool.
    pub pool: String,
    /// The address, or what stands in its place.
    pub address: String,
    /// The pod that whereabouts names.
    pub pod: String,
    /// Why.
    pub why: String,
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportPlan {
    /// These stay with their pods.
    pub kept: Vec<Kept>,
    /// Nobody has these any more.
    pub stale: Vec<Left>,
    /// A pod may have these, and it cannot be said of which pool they are here: whoever goes on gives them to somebody else.
    pub unclear: Vec<Left>,
}

/// What becomes of each address.
#[must_use]
pub fn plan_import(all: &Inventory) -> ImportPlan {
    let mut plan = ImportPlan::default();
    for pool in &all.pools {
        for (offset, allocation) in &pool.allocations {
            let address = address_of(pool, offset);
            let left = |why: &str| Left {
                pool: pool.name.clone(),
                address: address.map_or_else(|| format!("{} + {offset}", pool.range), |address| address.to_string()),
                pod: allocation.podref.clone(),
                why: why.to_owned(),
            };
            let Some(pod) = all.pods.get(&allocation.podref) else {
                plan.stale.push(left("its pod is gone"));
                continue;
            };
            if pod.over {
                plan.stale.push(left("its pod has ended"));
                continue;
            }
            let Some(address) = address else {
                plan.unclear.push(left("it is no address of its range"));
                continue;
            };
            match fate(all, pool, address, allocation, pod) {
                Fate::Kept(kept) => plan.kept.push(*kept),
                Fate::Stale(why) => plan.stale.push(left(why)),
                Fate::Unclear(why) => plan.unclear.push(left(why)),
            }
        }
    }
    plan.kept.extend(told_by_pods(all, &plan.kept));
    plan.kept.sort();
    plan.kept.dedup();
    plan.take_out_doubles();
    plan
}

/// What living pods have and whereabouts has not noted: it may answer before it has.
fn told_by_pods(all: &Inventory, known: &[Kept]) -> Vec<Kept> {
    let mut more = Vec::new();
    for (name, pod) in all.pods.iter().filter(|(_, pod)| !pod.over) {
        let Some(node_uid) = all.nodes.get(&pod.node) else { continue };
        let addresses = pod.attachments.iter().flatten().flat_map(|told| told.addresses.iter().map(move |address| (told, *address)));
        for (told, address) in addresses {
            let mut ranges = all.meant.ranges.iter().filter(|(definition, _)| *definition == told.definition);
            let Some((_, range)) = ranges.find(|(_, range)| range.run.contains(address)) else { continue };
            if known.iter().any(|kept| kept.address == address && kept.owner.pod == *name && kept.network == range.network) {
                continue;
            }
            let attachment = Some(Holder { container_id: String::new(), ifname: told.ifname.clone() });
            let owner = Owner { pod: name.clone(), attachment, ..Owner::default() };
            let (pool, network, node) = (range.pool.clone(), range.network.clone(), pod.node.clone());
            more.push(Kept { pool, network, address, owner, node, node_uid: node_uid.clone(), confirmed: true });
        }
    }
    more
}

enum Fate {
    Kept(Box<Kept>),
    Stale(&'static str),
    Unclear(&'static str),
}

fn fate(all: &Inventory, theirs: &TheirPool, address: IpAddr, allocation: &TheirAllocation, pod: &LivingPod) -> Fate {
    let attachments = pod.attachments.as_deref().unwrap_or_default();
    let ranges = || all.meant.ranges.iter().filter(|(_, range)| range.run.contains(address));
    let of_definition = |told: &PodAttachment| ranges().find(|(definition, _)| *definition == told.definition).map(|(_, range)| range);
    // One pod may have the same address in two networks.
    let having = || attachments.iter().filter(|attachment| attachment.addresses.contains(&address));
    let told = having().find(|attachment| !allocation.ifname.is_empty() && attachment.ifname == allocation.ifname);
    let told = told.or_else(|| having().find(|told| of_definition(told).is_some_and(|range| all.is_theirs(theirs, range))));
    let told = told.or_else(|| having().next());
    let elsewhere = |attachment: &&PodAttachment| !allocation.ifname.is_empty() && attachment.ifname == allocation.ifname;
    if told.is_none() && attachments.iter().any(|attachment| elsewhere(&attachment) && !attachment.addresses.is_empty()) {
        return Fate::Stale("its pod lives, and has another address on that interface");
    }
    let by_name = || ranges().map(|(_, range)| range).find(|range| all.is_theirs(theirs, range));
    let Some(range) = told.and_then(of_definition).or_else(by_name) else {
        return Fate::Unclear("no definition has a range with it: bring back the definition that it was given for");
    };
    let Some(node_uid) = all.nodes.get(&pod.node) else { return Fate::Unclear("its pod runs on no node that there is") };
    let ifname = told.map_or(&allocation.ifname, |told| &told.ifname).clone();
    let attachment = Holder { container_id: allocation.id.clone(), ifname };
    let owner = Owner { pod: allocation.podref.clone(), attachment: Some(attachment), ..Owner::default() };
    let (pool, network, node) = (range.pool.clone(), range.network.clone(), pod.node.clone());
    Fate::Kept(Box::new(Kept { pool, network, address, owner, node, node_uid: node_uid.clone(), confirmed: told.is_some() }))
}

/// The address of an allocation: the number is one without a sign, however large.
fn address_of(pool: &TheirPool, offset: &str) -> Option<IpAddr> {
    let (address, prefix) = sloppy_network(&pool.range)?;
    let net = Run::network(address, prefix);
    let at = number(net.first()).checked_add(offset.parse::<u128>().ok()?)?;
    (at <= net.numbers().1).then(|| Family::of(address).address(at))
}

// === impl Kept ===

impl Kept {
    /// Whether whereabouts has noted it; otherwise only the pod's network status says so.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.owner.attachment.as_ref().is_some_and(|holder| !holder.container_id.is_empty())
    }
}

// === impl Inventory ===

impl Inventory {
    /// Whether whereabouts keeps this range's addresses in that pool. Its name is `[network-][node-]range`; a node's slice is a
    /// part of the range.
    fn is_theirs(&self, theirs: &TheirPool, range: &WhereaboutsRange) -> bool {
        let Some((address, prefix)) = sloppy_network(&theirs.range) else { return false };
        let net = Run::network(range.run.first(), range.prefix);
        let spelt = theirs.range.replace([':', '/'], "-");
        let Some(before) = theirs.name.strip_suffix(&spelt) else { return false };
        let network = if range.network_name.is_empty() { String::new() } else { format!("{}-", range.network_name) };
        let Some(node) = before.strip_prefix(&network) else { return false };
        let known = node.is_empty() || node.strip_suffix('-').is_some_and(|node| self.nodes.contains_key(node));
        known && net.covers(&Run::network(address, prefix))
    }
}

// === impl ImportPlan ===

impl ImportPlan {
    /// Of two pods that whereabouts says have one address of a network, the one keeps it whose status says so.
    fn take_out_doubles(&mut self) {
        let mut holders: BTreeMap<(String, IpAddr), Kept> = BTreeMap::new();
        for kept in std::mem::take(&mut self.kept) {
            let place = (kept.network.clone(), kept.address);
            let other = match holders.remove(&place) {
                None => {
                    holders.insert(place, kept);
                    continue;
                }
                Some(other) => other,
            };
            let (winner, loser) = if kept.confirmed && !other.confirmed { (kept, other) } else { (other, kept) };
            let why = format!("pod {} has it, too", winner.owner.pod);
            self.unclear.push(Left { pool: loser.pool, address: loser.address.to_string(), pod: loser.owner.pod, why });
            holders.insert(place, winner);
        }
        self.kept = holders.into_values().collect();
        self.kept.sort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_pools;

    fn inventory() -> Inventory {
        let config = |keys: &str| format!(r#"{{"ipam": {{"type": "whereabouts", {keys}}}}}"#);
        let configs = [
            ("d/plain", config(r#""range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/64"}]"#)),
            ("d/red", config(r#""range": "10.0.0.0/24", "network_name": "red""#)),
            ("d/low", config(r#""range": "10.0.0.0/24", "range_end": "10.0.0.99""#)),
            ("d/sliced", config(r#""range": "10.8.0.0/16", "node_slice_size": "/24""#)),
        ];
        let status = |definition: &str, ifname: &str, addresses: &[&str]| PodAttachment {
            definition: definition.to_owned(),
            ifname: ifname.to_owned(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        };
        let pod = |attachments| LivingPod { node: "n1".to_owned(), over: false, attachments };
        Inventory {
            pools: Vec::new(),
            pods: BTreeMap::from([
                ("d/both".to_owned(), pod(Some(vec![status("d/plain", "net1", &["10.0.0.5", "fd00::8000:0:0:7"])]))),
                ("d/low".to_owned(), pod(Some(vec![status("d/low", "net1", &["10.0.0.6"]), status("d/red", "net2", &["10.0.0.6"])]))),
                ("d/starting".to_owned(), pod(None)),
                ("d/lost".to_owned(), LivingPod { node: "n9".to_owned(), ..LivingPod::default() }),
            ]),
            nodes: BTreeMap::from([("n1".to_owned(), "u1".to_owned())]),
            meant: range_pools(configs.iter().map(|(name, config)| (*name, config.as_str()))),
        }
    }

    fn theirs(name: &str, range: &str, allocations: &[(&str, &str, &str)]) -> TheirPool {
        let one = |(offset, podref, ifname): &(&str, &str, &str)| {
            let allocation = TheirAllocation { id: format!("id-{podref}"), podref: (*podref).to_owned(), ifname: (*ifname).to_owned() };
            ((*offset).to_owned(), allocation)
        };
        TheirPool { name: name.to_owned(), range: range.to_owned(), allocations: allocations.iter().map(one).collect() }
    }

    /// Kept, stale and unclear ones, each in a line.
    fn planned(pools: Vec<TheirPool>) -> [Vec<String>; 3] {
        let plan = plan_import(&Inventory { pools, ..inventory() });
        let kept = |k: &Kept| {
            let holder = k.owner.attachment.clone().unwrap();
            format!("{} {} {} {} {} {}", k.address, k.pool, k.owner.pod, holder.ifname, k.node, if k.confirmed { "sure" } else { "" })
        };
        let left = |l: &Left| format!("{} {} {}", l.address, l.pod, l.why);
        [plan.kept.iter().map(kept).collect(), plan.stale.iter().map(left).collect(), plan.unclear.iter().map(left).collect()]
    }

    #[test]
    fn what_stays_and_what_does_not() {
        let [kept, stale, unclear] = planned(vec![
            theirs(
                "10.0.0.0-24",
                "10.0.0.0/24",
                &[("5", "d/both", "net1"), ("6", "d/low", "net1"), ("7", "d/gone", "net1"), ("8", "d/starting", "net1")],
            ),
            // An offset that has a sign for whereabouts.
            theirs("fd00---64", "fd00::/64", &[("9223372036854775815", "d/both", "net1"), ("3", "d/both", "net1")]),
            theirs("red-10.0.0.0-24", "10.0.0.0/24", &[("6", "d/low", "")]),
            theirs("n1-10.8.3.0-24", "10.8.3.0/24", &[("4", "d/starting", "net2"), ("5", "d/lost", "net1")]),
            theirs(
                "odd",
                "10.9.0.0/24",
                &[("4", "d/starting", "net3"), ("999", "d/starting", "net4"), ("-1", "d/starting", "net5"), ("-2", "d/gone", "")],
            ),
        ]);
        let name = |of: &str| inventory().meant.pools.iter().find(|(_, d)| d.definitions.iter().any(|d| d == of)).unwrap().0.clone();
        assert_eq!(
            kept,
            [
                "10.0.0.5 whereabouts-10.0.0.0-24 d/both net1 n1 sure".to_owned(),
                "10.0.0.8 whereabouts-10.0.0.0-24 d/starting net1 n1 ".to_owned(),
                format!("10.0.0.6 {} d/low net1 n1 sure", name("d/low")),
                format!("10.8.3.4 {} d/starting net2 n1 ", name("d/sliced")),
                "fd00::8000:0:0:7 whereabouts-fd00--0-64 d/both net1 n1 sure".to_owned(),
                format!("10.0.0.6 {} d/low net2 n1 sure", name("d/red")),
            ]
        );
        assert_eq!(
            stale,
            [
                "10.0.0.7 d/gone its pod is gone",
                "fd00::3 d/both its pod lives, and has another address on that interface",
                "10.9.0.0/24 + -2 d/gone its pod is gone",
            ]
        );
        assert_eq!(unclear.len(), 4, "{unclear:?}");
        assert!(unclear.iter().any(|u| u.starts_with("10.8.3.5 d/lost its pod runs on no node")), "{unclear:?}");
    }

    /// What whereabouts answered and did not keep.
    #[test]
    fn what_only_the_pod_says() {
        let [kept, ..] = planned(vec![theirs("10.0.0.0-24", "10.0.0.0/24", &[("5", "d/both", "net1")])]);
        assert_eq!(kept.len(), 4, "{kept:?}");
        assert!(kept.iter().any(|k| k == "fd00::8000:0:0:7 whereabouts-fd00--0-64 d/both net1 n1 sure"), "{kept:?}");
    }

    /// A pod that has ended keeps its status for as long as its object is there; somebody else may have its address by now.
    #[test]
    fn who_has_ended_has_nothing() {
        let mut all = inventory();
        let ended = LivingPod { over: true, ..all.pods["d/both"].clone() };
        all.pods.insert("d/again".to_owned(), all.pods["d/both"].clone());
        all.pods.insert("d/both".to_owned(), ended);
        all.pools = vec![theirs("10.0.0.0-24", "10.0.0.0/24", &[("5", "d/both", "net1"), ("9", "d/both", "net1")])];
        let plan = plan_import(&all);
        let of_it: Vec<&str> = plan.kept.iter().filter(|k| k.address.to_string() == "10.0.0.5").map(|k| k.owner.pod.as_str()).collect();
        assert_eq!(of_it, ["d/again"]);
        assert!(plan.kept.iter().all(|kept| kept.owner.pod != "d/both") && plan.unclear.is_empty(), "{plan:?}");
        let stale: Vec<(&str, &str)> = plan.stale.iter().map(|left| (left.address.as_str(), left.why.as_str())).collect();
        assert_eq!(stale, [("10.0.0.5", "its pod has ended"), ("10.0.0.9", "its pod has ended")]);
    }

    #[test]
    fn of_two_who_have_one_address_the_status_says_who() {
        let twice = |first: &str, second: &str| {
            vec![
                theirs("10.0.0.0-24", "10.0.0.0/24", &[("5", first, "net1")]),
                theirs("n1-10.0.0.0-25", "10.0.0.0/25", &[("5", second, "net7")]),
            ]
        };
        for pools in [twice("d/both", "d/starting"), twice("d/starting", "d/both")] {
            let [kept, _, unclear] = planned(pools);
            let of_it: Vec<&String> = kept.iter().filter(|k| k.starts_with("10.0.0.5 ")).collect();
            assert!(of_it.len() == 1 && of_it[0].contains("d/both"), "{kept:?}");
            assert_eq!(unclear, ["10.0.0.5 d/starting pod d/both has it, too"]);
        }
    }
}
