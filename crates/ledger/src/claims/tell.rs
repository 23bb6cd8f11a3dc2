//! What is written of claims: the objects themselves, their finalizer, their status.

use std::collections::BTreeMap;

use api::{Condition, IpamClaimStatus, OwnerPod, SharedIp};
use pool::Family;

use super::{ClaimReasons, ClaimSeen};
use crate::index::Index;
use crate::{Write, shared};

/// The condition that says whether a claim has its addresses.
pub const ALLOCATED: &str = "IPsAllocated";
/// The condition that says whether the node of the claim's pod may hand them out.
pub const DELEGATED: &str = "Delegated";

/// An address as it was read: its text with prefix length, and who has it.
type Has<'a> = (Family, String, &'a SharedIp);

/// The writes of claims. A status tells what was read in the ledger, never what is yet to be written there.
pub(crate) fn writes(index: &Index<'_>, told: &ClaimReasons) -> Vec<Write> {
    let world = index.world;
    if !world.claims.complete {
        return Vec::new();
    }
    let mut has = has(index);
    let mut writes = made(index);
    for (name, claim) in &world.claims.claims {
        let own = has.remove(name.as_str()).unwrap_or_default();
        let (name, version) = (name.clone(), claim.version.clone());
        match (claim.deleting, claim.finalizer) {
            (true, true) if !own.iter().any(|(_, _, ip)| ip.owner.claim_uid == claim.uid) && !drafted(index, &claim.uid) => {
                writes.push(Write::ClaimFinalizer { name, version, present: false });
            }
            (true, _) => {}
            (false, _) if shrunk(index, &name, claim) => {
                writes.push(Write::ClaimGone { name, uid: claim.uid.clone(), version });
            }
            // Another address management's, or one that comes before its network.
            (false, false) if world.claims.source(&name, &claim.spec.network).is_err() => {}
            (false, false) => writes.push(Write::ClaimFinalizer { name, version, present: true }),
            (false, true) => {
                let status = status(index, &name, claim, &own, told);
                if status != claim.status {
                    writes.push(Write::ClaimStatus { name, version, status });
                }
            }
        }
    }
    writes
}

/// The claims of pods that keep their addresses, which are not there yet.
fn made(index: &Index<'_>) -> Vec<Write> {
    let claims = &index.world.claims;
    let wanted = claims.pods.values().filter(|pod| !pod.over).flat_map(|pod| &pod.auto);
    let missing = wanted.filter(|auto| !claims.claims.contains_key(&auto.name));
    // One whose addresses are of no pool needs none.
    let missing = missing.filter(|auto| claims.definitions.get(&auto.definition).is_some_and(|seen| seen.source.is_ok()));
    let write = |auto: &super::AutoClaim| Write::Claim { name: auto.name.clone(), auto: auto.clone() };
    missing.map(write).collect()
}

/// Whether a claim's StatefulSet has no pod of its number any more, and is not to keep the address for a later one.
fn shrunk(index: &Index<'_>, name: &str, claim: &ClaimSeen) -> bool {
    let claims = &index.world.claims;
    let Some((set, number)) = &claim.shrinks_with else { return false };
    let beyond = claims.sets.get(set).is_some_and(|(pods, first)| *number >= first.saturating_add(*pods) || number < first);
    beyond && !claims.pods.values().any(|pod| pod.claims.iter().any(|c| c == name))
}

/// What claims have, as it was read.
fn has<'a>(index: &Index<'a>) -> BTreeMap<&'a str, Vec<Has<'a>>> {
    let mut found: BTreeMap<&str, Vec<Has<'_>>> = BTreeMap::new();
    for (_, place, cell) in index.seen_cells() {
        for (number, ip) in cell.ips.iter().filter(|(_, ip)| !ip.owner.claim.is_empty()) {
            let Some(address) = shared::address(&place, number) else { continue };
            let family = Family::of(address);
            let terms = index.pools.get(ip.pool.as_str()).and_then(|pool| pool.as_ref().ok()).map(|pool| pool.spec.terms(family).prefix);
            let text = format!("{address}/{}", terms.filter(|prefix| *prefix > 0).unwrap_or(family.bits()));
            found.entry(&ip.owner.claim).or_default().push((family, text, ip));
        }
    }
    found.values_mut().for_each(|all| all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1))));
    found
}

/// Whether something is its claim's in the ledger as it is to be.
fn drafted(index: &Index<'_>, uid: &str) -> bool {
    let specs = index.nets.values().flat_map(|net| net.shards.values()).filter_map(|draft| draft.spec());
    specs.flat_map(|spec| spec.cells.values()).flat_map(|cell| cell.ips.values()).any(|ip| ip.owner.claim_uid == uid)
}

fn status(index: &Index<'_>, name: &str, claim: &ClaimSeen, own: &[Has<'_>], told: &ClaimReasons) -> IpamClaimStatus {
    let mut conditions = Vec::new();
    let mut put = |kind: &str, status: bool, reason: &str, message: String| {
        let status = if status { "True" } else { "False" };
        let last = claim.status.conditions.iter().find(|c| c.kind == kind && c.status == status);
        let last_transition_time = last.map(|c| c.last_transition_time.clone()).unwrap_or_default();
        let (kind, status, reason) = (kind.to_owned(), status.to_owned(), reason.to_owned());
        conditions.push(Condition { kind, status, reason, message, observed_generation: claim.generation, last_transition_time });
    };
    match (told.get(name), own.is_empty()) {
        (Some((reason, why)), _) => put(ALLOCATED, false, reason, why.clone()),
        (None, true) => put(ALLOCATED, false, "Pending", "its addresses are being added to the ledger".to_owned()),
        (None, false) => put(ALLOCATED, true, "SuccessfulAllocation", String::new()),
    }
    let (pod, delegated, reason, message) = delegated(index, name, own);
    put(DELEGATED, delegated, reason, message);
    // What was told once is the claim's, also where the ledger is empty: by it, a lost ledger is made again.
    let ips = if own.is_empty() { claim.status.ips.clone() } else { own.iter().map(|(_, text, _)| text.clone()).collect() };
    IpamClaimStatus { ips, owner_pod: pod.map(|name| OwnerPod { name }), conditions }
}

/// The pod whose node has the addresses, whether that is so, and the words for it.
fn delegated(index: &Index<'_>, name: &str, own: &[Has<'_>]) -> (Option<String>, bool, &'static str, String) {
    let mut holders: Vec<_> = index.holders(name).collect();
    holders.sort_by_key(|(name, pod)| (&pod.created, *name));
    let holds: Vec<_> = own.iter().find(|(_, _, ip)| ip.is_held()).iter().flat_map(|(_, _, ip)| ip.holds()).collect();
    let Some(first) = holds.first() else {
        let waits = if holders.is_empty() {
            "no pod that names this claim is on a node"
        } else {
            "its addresses are being granted to \
            its node"
        };
        return (None, false, if holders.is_empty() { "NoPod" } else { "Pending" }, waits.to_owned());
    };
    let migrates = own.iter().any(|(_, _, ip)| ip.is_held() && ip.owner.migrates);
    // Pods for which the life is that their node has.
    let on =
        |uid: &str, pod: &super::PodSeen| pod.migrates == migrates && index.world.nodes.get(&pod.node).is_some_and(|node| node.uid == uid);
    let short = |pod: &str| pod.split_once('/').map_or(pod, |(_, name)| name).to_owned();
    let others = holders.iter().filter(|(_, pod)| !holds.iter().any(|hold| on(&hold.node_uid, pod)));
    let others: Vec<String> = others.map(|(name, pod)| format!("{} on {}", short(name), pod.node)).collect();
    let mut more = Vec::new();
    if let Some(second) = holds.get(1) {
        more.push(format!("node {} has them as well, because the pod is migrating", second.node));
    }
    if !others.is_empty() {
        more.push(format!("pods {} wait for node {} to return the addresses", others.join(", "), first.node));
    }
    match holders.iter().find(|(_, pod)| on(&first.node_uid, pod)) {
        Some((pod, _)) => (Some(short(pod)), true, "Delegated", more.join("; ")),
        None => {
            more.insert(0, format!("node {} has the addresses until its container with them is gone", first.node));
            (None, false, "Returning", more.join("; "))
        }
    }
}
