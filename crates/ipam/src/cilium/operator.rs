//! The other side: an operator that fills `spec.ipam.pool`, and takes addresses back when a node has too many for long.
//!
//! ```text
//!   too few             --> more of them into the pool
//!   too many, for long  --> marked-for-release -- the agent --> ready-for-release --> released --> out of the pool --> gone: free
//!                                              `-- do-not-release --> forgotten, another one later
//! ```
//!
//! One step looks at the object as it is, and says what to write: the status or the pool, never both, as they are two writes. The
//! pool is never without an address that the status has not released, and an address is free for others when neither has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{CiliumAddress, CiliumNode, Release};
use pool::Family;

use super::fill::{Fill, fill};
use super::run_of;

/// What an operator does next for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It writes `spec.ipam.pool`.
    Pool(BTreeMap<String, CiliumAddress>),
    /// It writes `status.ipam.release-ips`.
    Release(BTreeMap<String, Release>),
    /// Nothing, or nothing yet.
    Rest {
        /// The node has more than it needs: so many. Since when that is so is for the operator to remember.
        excess: u64,
    },
}

/// The next step for a node, of one family. `settled` says that it has had too many for [`super::RELEASE_DELAY`]; `free` are
/// addresses that no node has, in the order in which they are given.
pub fn step(node: &CiliumNode, family: Family, settled: bool, free: impl Iterator<Item = IpAddr>) -> Step {
    let release = &node.status.ipam.release_ips;
    let none = BTreeMap::new();
    let pool = node.spec.ipam.pool.as_ref().unwrap_or(&none);
    let is_ours = |key: &String| address_of(key).filter(|a| Family::of(*a) == family);
    // Addresses by themselves are what this operator gives: what else is there, is there by somebody else's hand.
    let given: BTreeMap<IpAddr, &String> = pool.keys().filter_map(|key| Some((is_ours(key)?, key))).collect();
    let state: BTreeMap<IpAddr, &Release> = release.iter().filter_map(|(key, r)| Some((address_of(key)?, r))).collect();
    let used: BTreeSet<IpAddr> = node.status.ipam.used.keys().filter_map(|key| address_of(key)).collect();

    let released = |address: &IpAddr| matches!(state.get(address), Some(Release::Released));
    if let Some(gone) = given.iter().find(|(address, _)| released(address)) {
        let without = pool.iter().filter(|(key, _)| *key != *gone.1);
        return Step::Pool(without.map(|(key, address)| (key.clone(), address.clone())).collect());
    }
    // Who is being asked for one counts as having it until it has been taken.
    let (available, in_use) = (given.len() as u64, given.keys().filter(|address| used.contains(*address)).count() as u64);
    let wanted = fill(&node.spec.ipam, available, in_use);
    let excess = if let Fill::Excess(n) = wanted { n } else { 0 };
    let asked =
        given.iter().filter(|(address, _)| matches!(state.get(*address), Some(Release::MarkedForRelease | Release::ReadyForRelease)));
    let asked: Vec<(IpAddr, &String)> = asked.map(|(address, key)| (*address, *key)).collect();
    let answered = answered(release, &state, &asked, usize::try_from(excess).unwrap_or(usize::MAX));
    if answered != *release {
        return Step::Release(answered);
    }
    if let Fill::More(more) = wanted {
        // One whose release is not at its end is nobody's yet.
        let free = free.filter(|a| Family::of(*a) == family && !given.contains_key(a) && !state.contains_key(a));
        let more: Vec<IpAddr> = free.take(usize::try_from(more).unwrap_or(usize::MAX)).collect();
        if !more.is_empty() {
            let more = more.iter().map(|address| (address.to_string(), CiliumAddress::default()));
            return Step::Pool(pool.clone().into_iter().chain(more).collect());
        }
    }
    let open = usize::try_from(excess).unwrap_or(usize::MAX).saturating_sub(asked.len());
    if settled && open > 0 {
        let pinned = |key: &String| pool.get(key).is_some_and(|address| !address.owner.is_empty());
        let idle = given.iter().rev().filter(|(address, key)| !used.contains(*address) && !state.contains_key(*address) && !pinned(key));
        let marked: Vec<String> = idle.take(open).map(|(_, key)| (*key).clone()).collect();
        if !marked.is_empty() {
            let marked = marked.into_iter().map(|key| (key, Release::MarkedForRelease));
            return Step::Release(release.clone().into_iter().chain(marked).collect());
        }
    }
    Step::Rest { excess }
}

/// What follows on the agent's answers: of those that are ready as many are taken as are too many, the others stay.
fn answered(
    release: &BTreeMap<String, Release>,
    state: &BTreeMap<IpAddr, &Release>,
    asked: &[(IpAddr, &String)],
    excess: usize,
) -> BTreeMap<String, Release> {
    let ready = asked.iter().filter(|(address, _)| matches!(state.get(address), Some(Release::ReadyForRelease)));
    let taken: BTreeSet<IpAddr> = ready.map(|(address, _)| *address).take(excess).collect();
    // Ready ones come first: the agent has done its part for them.
    let marked =
        asked.iter().filter(|(address, _)| !taken.contains(address) && matches!(state.get(address), Some(Release::MarkedForRelease)));
    let kept: BTreeSet<IpAddr> = marked.map(|(address, _)| *address).take(excess.saturating_sub(taken.len())).collect();
    let next = |(key, said): (&String, &Release)| {
        let address = address_of(key);
        let next = match said {
            Release::DoNotRelease => None,
            Release::ReadyForRelease if address.is_some_and(|a| taken.contains(&a)) => Some(Release::Released),
            Release::MarkedForRelease if address.is_some_and(|a| kept.contains(&a)) => Some(Release::MarkedForRelease),
            // It has thought better of it, or never gave it; of other families somebody else speaks.
            Release::MarkedForRelease | Release::ReadyForRelease if asked.iter().any(|(a, _)| Some(*a) == address) => None,
            other => Some(other.clone()),
        };
        next.map(|next| (key.clone(), next))
    };
    release.iter().filter_map(next).collect()
}

/// A key that is one address.
fn address_of(key: &str) -> Option<IpAddr> {
    run_of(key).filter(|run| run.count() == 1).map(|run| run.first())
}
