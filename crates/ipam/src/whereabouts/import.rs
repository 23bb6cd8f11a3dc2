//! What whereabouts has handed out, and what becomes of it here.
//!
//! ```text
//!   whereabouts' IPPools, reservations --+
//!   pods with their network status ------+--plan_import--> who keeps which address of which pool
//!   definitions, nodes ------------------+                 what is stale, and what a person has to look at
//! ```
//!
//! An address is left out only if its pod is gone, or lives and has another one there. Nothing is read here, and nothing written.

mod reservation;

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{Holder, Owner};
use pool::{Family, Run, number};
use serde::{Deserialize, Serialize};

pub use self::reservation::TheirReservation;
use super::{RangePools, WhereaboutsRange, sloppy_network};

/// An IPPool of whereabouts (`whereabouts.cni.cncf.io/v1alpha1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
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
    /// Addresses that it has noted a second time, each in an object of its own, so that no two ranges hand out the same.
    pub reservations: Vec<TheirReservation>,
    /// By `namespace/name`: every pod that there is.
    pub pods: BTreeMap<String, LivingPod>,
    /// The `metadata.uid` of each node, by its name.
    pub nodes: BTreeMap<String, String>,
    /// The pools that definitions mean.
    pub meant: RangePools,
}

/// An address that stays with its pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reservation {
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
    /// Who else says so.
    pub by: NotedBy,
}

/// Where it stands who has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotedBy {
    /// In a pool of whereabouts.
    Pool,
    /// In a reservation of whereabouts alone: its pool was written by somebody else in between, or not at all.
    Reservation,
    /// In the pod's network status alone.
    Pod,
}

/// An address that does not come over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// Whereabouts' pool, or its reservation.
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
    pub kept: Vec<Reservation>,
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
                plan.unclear.push(left("it is not in its range"));
                continue;
            };
            let theirs = |range: &WhereaboutsRange| all.is_theirs(pool, range);
            match fate(all, &theirs, address, (NotedBy::Pool, allocation), pod) {
                ReservationState::Kept(kept) => plan.kept.push(*kept),
                ReservationState::Stale(why) => plan.stale.push(left(why)),
                ReservationState::Unclear(why) => plan.unclear.push(left(why)),
            }
        }
    }
    reservation::plan(all, &mut plan);
    plan.kept.extend(told_by_pods(all, &plan.kept));
    plan.kept.sort();
    plan.kept.dedup();
    plan.take_out_doubles();
    plan
}

/// What living pods have and whereabouts has not noted: it may answer before it has.
fn told_by_pods(all: &Inventory, known: &[Reservation]) -> Vec<Reservation> {
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
            more.push(Reservation { pool, network, address, owner, node, node_uid: node_uid.clone(), confirmed: true, by: NotedBy::Pod });
        }
    }
    more
}

enum ReservationState {
    Kept(Box<Reservation>),
    Stale(&'static str),
    Unclear(&'static str),
}

/// `theirs`: whether whereabouts has noted the address for this range.
fn fate(
    all: &Inventory,
    theirs: &dyn Fn(&WhereaboutsRange) -> bool,
    address: IpAddr,
    (by, allocation): (NotedBy, &TheirAllocation),
    pod: &LivingPod,
) -> ReservationState {
    let attachments = pod.attachments.as_deref().unwrap_or_default();
    let ranges = || all.meant.ranges.iter().filter(|(_, range)| range.run.contains(address));
    let of_definition = |told: &PodAttachment| ranges().find(|(definition, _)| *definition == told.definition).map(|(_, range)| range);
    // One pod may have the same address in two networks.
    let having = || attachments.iter().filter(|attachment| attachment.addresses.contains(&address));
    let told = having().find(|attachment| !allocation.ifname.is_empty() && attachment.ifname == allocation.ifname);
    let told = told.or_else(|| having().find(|told| of_definition(told).is_some_and(theirs)));
    let told = told.or_else(|| having().next());
    let elsewhere = |attachment: &&PodAttachment| !allocation.ifname.is_empty() && attachment.ifname == allocation.ifname;
    if told.is_none() && attachments.iter().any(|attachment| elsewhere(&attachment) && !attachment.addresses.is_empty()) {
        return ReservationState::Stale("its pod is alive, and has another address on that interface");
    }
    let by_name = || ranges().map(|(_, range)| range).find(|range| theirs(range));
    let Some(range) = told.and_then(of_definition).or_else(by_name) else {
        return ReservationState::Unclear("no definition has a range with it: restore the definition that it was assigned for");
    };
    let Some(node_uid) = all.nodes.get(&pod.node) else { return ReservationState::Unclear("its pod's node does not exist") };
    let ifname = told.map_or(&allocation.ifname, |told| &told.ifname).clone();
    let attachment = Holder { container_id: allocation.id.clone(), ifname };
    let owner = Owner { pod: allocation.podref.clone(), attachment: Some(attachment), ..Owner::default() };
    let (pool, network, node) = (range.pool.clone(), range.network.clone(), pod.node.clone());
    ReservationState::Kept(Box::new(Reservation {
        pool,
        network,
        address,
        owner,
        node,
        node_uid: node_uid.clone(),
        confirmed: told.is_some(),
        by,
    }))
}

/// The address of an allocation: the number is one without a sign, however large.
pub(super) fn address_of(pool: &TheirPool, offset: &str) -> Option<IpAddr> {
    let (address, prefix) = sloppy_network(&pool.range)?;
    let net = Run::network(address, prefix);
    let at = number(net.first()).checked_add(offset.parse::<u128>().ok()?)?;
    (at <= net.numbers().1).then(|| Family::of(address).address(at))
}

// === impl Reservation ===

impl Reservation {
    /// Whether whereabouts has noted it; otherwise only the pod's network status says so.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.by != NotedBy::Pod
    }
}

// === impl Inventory ===

impl Inventory {
    /// Whether whereabouts keeps this range's addresses in that pool. Its name is `[network-][node-]range`; a node's slice is a
    /// part of the range.
    pub(super) fn is_theirs(&self, theirs: &TheirPool, range: &WhereaboutsRange) -> bool {
        let Some((address, prefix)) = sloppy_network(&theirs.range) else { return false };
        let net = Run::network(range.run.first(), range.prefix);
        self.is_of_network(theirs, &range.network_name) && net.covers(&Run::network(address, prefix))
    }

    /// Whether a pool is of a network, by its name; with an empty one, of none.
    fn is_of_network(&self, theirs: &TheirPool, network: &str) -> bool {
        let spelt = theirs.range.replace([':', '/'], "-");
        let Some(before) = theirs.name.strip_suffix(&spelt) else { return false };
        let network = if network.is_empty() { String::new() } else { format!("{network}-") };
        let Some(node) = before.strip_prefix(&network) else { return false };
        node.is_empty() || node.strip_suffix('-').is_some_and(|node| self.nodes.contains_key(node))
    }
}

// === impl ImportPlan ===

impl ImportPlan {
    /// Of two pods that whereabouts says have one address of a network, the one keeps it whose status says so; else whom a
    /// pool names.
    fn take_out_doubles(&mut self) {
        let mut holders: BTreeMap<(String, IpAddr), Reservation> = BTreeMap::new();
        for kept in std::mem::take(&mut self.kept) {
            let place = (kept.network.clone(), kept.address);
            let other = match holders.remove(&place) {
                None => {
                    holders.insert(place, kept);
                    continue;
                }
                Some(other) => other,
            };
            let doubt = |kept: &Reservation| (!kept.confirmed, kept.by);
            let (winner, loser) = if doubt(&kept) < doubt(&other) { (kept, other) } else { (other, kept) };
            if loser.by == NotedBy::Reservation && loser.owner.pod == winner.owner.pod {
                holders.insert(place, winner);
                continue;
            }
            let why = format!("pod {} has it as well", winner.owner.pod);
            self.unclear.push(Left { pool: loser.pool, address: loser.address.to_string(), pod: loser.owner.pod, why });
            holders.insert(place, winner);
        }
        self.kept = holders.into_values().collect();
        self.kept.sort();
    }
}

#[cfg(test)]
mod tests;
