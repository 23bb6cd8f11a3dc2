//! Addresses that a claim keeps from one pod to the next (IPAMClaim, S56 to S60).
//!
//! ```text
//!   claim --definition of its network--> pool --an address of a shared cell--> the claim's
//!     a pod that names it is scheduled     --> the address is the pod's node's, which alone hands it out
//!     it migrates, as both of its pods say --> the address is the other pod's node's as well, for pods that say so alone
//!     no pod of it on that node any more   --> the node is asked to return it; it does when its container is gone
//!     the claim is deleted, and no node has the address --> free (S57)
//! ```
//!
//! That a pod is gone frees nothing: it may be forced out of the API while it runs. Only the node's own word moves an address, or
//! that the node is no more.

mod pick;
mod seen;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{Cell, Owner, SharedIp};
use pool::Family;

use crate::grid::CellPosition;
use crate::index::Index;
use crate::{SharedError, shared};
pub use seen::{AutoClaim, ClaimSeen, Claims, DefinitionSeen, PodSeen, Source, claim_address};
pub(crate) use tell::writes;
pub use tell::{ALLOCATED, DELEGATED};

/// Why a claim has not what it should have: a word for programs, and a text.
pub(crate) type Why = (&'static str, String);

/// Claims that have addresses in the ledger and were not seen, as name and UID: whether they are gone somebody must ask.
pub(crate) fn missing(index: &Index<'_>) -> BTreeSet<(String, String)> {
    let claims = &index.world.claims;
    if !claims.complete {
        return BTreeSet::new();
    }
    let owners = index.seen_cells().flat_map(|(_, _, cell)| cell.ips.values()).map(|ip| &ip.owner);
    let unseen = owners.filter(|owner| !owner.claim.is_empty() && !claims.claims.contains_key(&owner.claim));
    unseen.map(|owner| (owner.claim.clone(), owner.claim_uid.clone())).collect()
}

/// What is to be told of claims, by `namespace/name`.
pub(crate) type ClaimReasons = BTreeMap<String, Why>;

/// An address of the ledger that is somebody's by itself.
pub(crate) struct KeptAddress {
    pub(crate) network: String,
    pub(crate) family: Family,
    pub(crate) place: CellPosition,
    pub(crate) address: IpAddr,
    pub(crate) ip: SharedIp,
}

// === impl Index ===

impl Index<'_> {
    /// Gives claims their addresses, and nodes those of the pods that are on them.
    pub(crate) fn claims(&mut self) -> ClaimReasons {
        let world = self.world;
        let mut told = ClaimReasons::new();
        if !world.claims.complete {
            return told;
        }
        let mut kept = self.kept(|owner| &owner.claim);
        let mut order: Vec<_> = world.claims.claims.iter().collect();
        order.sort_by_key(|(name, claim)| (&claim.created, *name));
        for (name, claim) in order {
            let own = kept.remove(name.as_str()).unwrap_or_default();
            if claim.deleting {
                // What is there may be another one of its name by now, of which this view does not know.
                own.iter().filter(|kept| kept.ip.owner.claim_uid == claim.uid).for_each(|kept| self.let_go(name, kept));
                continue;
            }
            // The finalizer comes before the address: one that a claim has is never forgotten.
            if !claim.finalizer {
                continue;
            }
            let own = self.renamed(own, name, claim);
            if let Err(why) = self.assign(name, claim, &own) {
                told.insert(name.clone(), why);
            }
            own.iter().for_each(|kept| self.place_at(name, kept));
        }
        // Somebody took the finalizer off, and the object went before its addresses did.
        for (name, own) in kept {
            own.iter().filter(|kept| world.claims.gone.contains(&kept.ip.owner.claim_uid)).for_each(|kept| self.let_go(&name, kept));
        }
        told
    }

    /// What owners of a kind have, as it was read and is going to be, by the owner's name, which is empty for other kinds.
    pub(crate) fn kept(&self, name: impl Fn(&Owner) -> &str) -> BTreeMap<String, Vec<KeptAddress>> {
        let mut found: BTreeMap<String, Vec<KeptAddress>> = BTreeMap::new();
        for ((network, family), net) in &self.nets {
            let shards = net.shards.values().filter_map(|draft| draft.spec());
            for (place, cell) in shards.flat_map(crate::index::cells) {
                for (number, ip) in cell.ips.iter().filter(|(_, ip)| !name(&ip.owner).is_empty()) {
                    let Some(address) = shared::address(&place, number) else { continue };
                    let kept = KeptAddress { network: network.clone(), family: *family, place, address, ip: ip.clone() };
                    found.entry(name(&ip.owner).to_owned()).or_default().push(kept);
                }
            }
        }
        found
    }

    /// A claim that was made anew under its name has what the old one had: two of one name are never there at once.
    fn renamed(&mut self, mut own: Vec<KeptAddress>, name: &str, claim: &ClaimSeen) -> Vec<KeptAddress> {
        for kept in own.iter_mut().filter(|kept| kept.ip.owner.claim_uid != claim.uid) {
            let new = owner(name, claim);
            kept.ip.owner.claim_uid.clone_from(&new.claim_uid);
            self.change(kept, |cell, place, address| shared::rename(cell, place, address, &new));
        }
        own
    }

    /// Of a claim that is deleted: what no node has is free, what one has goes with its pod.
    fn let_go(&mut self, name: &str, kept: &KeptAddress) {
        if !kept.ip.is_held() {
            return self.change(kept, shared::release);
        }
        for hold in kept.ip.holds().filter(|hold| !self.is_held(name, &hold.node_uid)).collect::<Vec<_>>() {
            self.change(kept, |cell, place, address| shared::recall(cell, place, address, &hold.node_uid));
        }
    }

    /// Brings an address to the node of the claim's pod. A life is for pods that migrate or for those that do not: where none of its
    /// own is left it ends, and another one begins.
    fn place_at(&mut self, name: &str, kept: &KeptAddress) {
        let migrates = kept.ip.owner.migrates;
        for hold in kept.ip.holds().filter(|hold| !hold.returning) {
            match self.are_on(name, &hold.node_uid, |pod| pod.migrates == migrates) {
                true => self.change(kept, |cell, place, ip| shared::delegate(cell, place, ip, &hold.node, &hold.node_uid)),
                false => self.change(kept, |cell, place, ip| shared::recall(cell, place, ip, &hold.node_uid)),
            }
        }
        let first = kept.ip.holds().next();
        let next = if first.is_none() { self.first_holder(name) } else { None };
        if let Some((node, uid, migrates)) = next {
            self.change(kept, |cell, place, ip| shared::delegate_for(cell, place, ip, (&node, &uid), migrates));
        }
        if let Some((node, uid)) = first.and_then(|first| self.migrates_to(name, &first.node_uid)) {
            self.change(kept, |cell, place, ip| shared::join(cell, place, ip, &node, &uid));
        }
    }

    /// The node to which the claim's pod on that node migrates, as name and UID: another pod of the claim is there, and both say that
    /// they may have its addresses at the same time.
    fn migrates_to(&self, name: &str, node_uid: &str) -> Option<(String, String)> {
        let marked = || self.holders(name).filter(|(_, pod)| pod.migrates);
        let uid = |pod: &PodSeen| self.world.nodes.get(&pod.node).map(|node| node.uid.as_str());
        marked().find(|(_, pod)| uid(pod) == Some(node_uid))?;
        let others = marked().filter(|(_, pod)| uid(pod).is_some_and(|uid| uid != node_uid));
        let (_, pod) = others.min_by_key(|(name, pod)| (&pod.created, *name))?;
        Some((pod.node.clone(), uid(pod)?.to_owned()))
    }

    /// Whether a pod that names the claim is on that node.
    fn is_held(&self, name: &str, node_uid: &str) -> bool {
        self.are_on(name, node_uid, |_| true)
    }

    /// Whether one of those pods is.
    fn are_on(&self, name: &str, node_uid: &str, those: impl Fn(&PodSeen) -> bool) -> bool {
        let mut all = self.holders(name).filter(|(_, pod)| those(pod));
        all.any(|(_, pod)| self.world.nodes.get(&pod.node).is_some_and(|node| node.uid == node_uid))
    }

    /// The node of the oldest pod that names the claim, as name and UID, and whether that pod says that it migrates.
    fn first_holder(&self, name: &str) -> Option<(String, String, bool)> {
        let (_, pod) = self.holders(name).min_by_key(|(name, pod)| (&pod.created, *name))?;
        self.world.nodes.get(&pod.node).map(|node| (pod.node.clone(), node.uid.clone(), pod.migrates))
    }

    /// The pods that name the claim and are on a node.
    pub(crate) fn holders(&self, name: &str) -> impl Iterator<Item = (&str, &PodSeen)> {
        let pods = self.world.claims.pods.iter().map(|(name, pod)| (name.as_str(), pod));
        pods.filter(move |(_, pod)| !pod.over && !pod.node.is_empty() && pod.claims.iter().any(|claim| claim == name))
    }

    /// A change of the address's cell, if its rules let it: nothing is written where it changes nothing.
    pub(crate) fn change(&mut self, kept: &KeptAddress, change: impl FnOnce(&mut Cell, &CellPosition, IpAddr) -> Result<(), SharedError>) {
        let first_epoch = self.world.first_epoch;
        let Some(net) = self.nets.get_mut(&(kept.network.clone(), kept.family)) else { return };
        let Some(mut cell) = net.cell(&kept.place).cloned() else { return };
        let before = cell.clone();
        if change(&mut cell, &kept.place, kept.address).is_ok()
            && cell != before
            && let Some(slot) = net.cell_mut(&kept.network, &kept.place, first_epoch)
        {
            *slot = cell;
        }
    }
}

fn owner(name: &str, claim: &ClaimSeen) -> Owner {
    Owner { claim: name.to_owned(), claim_uid: claim.uid.clone(), ..Owner::default() }
}
