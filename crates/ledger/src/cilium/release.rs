//! How many addresses a node gets, and which of them are taken back when it has too many for long.
//!
//! ```text
//!   too many, for long  --> marked-for-release -- the agent --> ready-for-release --> released
//!                                              `-- do-not-release --> forgotten, another one later
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::Release;
use pool::Family;

use super::CiliumNodeSeen;
use super::fill::{Fill, fill};

/// What is to be written of how far addresses are, by their keys; `None`: nothing any more.
pub(super) type Changes = BTreeMap<String, Option<Release>>;

/// What a node's addresses of one family come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// It gets so many more.
    pub(super) more: u64,
    /// It has so many more than it needs: since when is for the caller to remember.
    pub(super) excess: u64,
    /// What follows on its answers, and what it is asked for next.
    pub(super) changes: Changes,
}

/// What the ledger has as a node's, of one family; `true`: its pool has it no more, so it goes as soon as nobody uses it.
pub(super) type LedgerAddresses = BTreeMap<IpAddr, bool>;

/// Decides. `settled`: it has had too many for long.
pub(super) fn decide(node: &CiliumNodeSeen, family: Family, held: &LedgerAddresses, settled: bool) -> Decision {
    let is_used = |address: &IpAddr| node.used.contains(address);
    // What somebody else has put there the node has, too.
    let foreign = node.pool.keys().filter(|a| Family::of(**a) == family && !held.contains_key(*a));
    let own = held.iter().filter(|(address, stale)| !**stale || is_used(address)).map(|(address, _)| address);
    let all: BTreeSet<&IpAddr> = own.chain(foreign).collect();
    // Who is being asked for one counts as having it until it has been taken.
    let in_use = all.iter().filter(|address| is_used(address)).count() as u64;
    // Who waits will use one.
    let (more, excess) = match fill(&node.wants, all.len() as u64, in_use.saturating_add(node.waiting)) {
        Fill::More(more) => (more, 0),
        Fill::Excess(excess) => (0, excess),
        Fill::Enough => (0, 0),
    };
    let (mut changes, mut left) = answered(node, family, held, excess);
    if !settled {
        left = 0;
    }
    // The last ones first: what is left lies together.
    let idle = held.iter().rev().filter(|(address, _)| !is_used(address) && !node.release.contains_key(*address));
    for (address, stale) in idle {
        let Some(pooled) = node.pool.get(address).filter(|pooled| !pooled.pinned) else { continue };
        if *stale || left > 0 {
            left -= u64::from(!*stale);
            changes.insert(pooled.key.clone(), Some(Release::MarkedForRelease));
        }
    }
    Decision { more, excess, changes }
}

/// What follows on the agent's answers: of those that are ready as many are taken as are too many, the others stay. How many are
/// too many besides.
fn answered(node: &CiliumNodeSeen, family: Family, held: &LedgerAddresses, excess: u64) -> (Changes, u64) {
    let mut changes = Changes::new();
    let mut left = excess;
    // Ready ones come first: the agent has done its part for them.
    for ready in [true, false] {
        let said = node.release.iter().filter(|(address, _)| Family::of(**address) == family);
        for (address, (key, said)) in said {
            let goes = match (said, held.get(address)) {
                (Release::DoNotRelease, _) if !ready => false,
                (Release::ReadyForRelease, Some(stale)) if ready => take(*stale, &mut left),
                (Release::MarkedForRelease, Some(stale)) if !ready => take(*stale, &mut left),
                _ => continue,
            };
            match goes {
                true if ready => drop(changes.insert(key.clone(), Some(Release::Released))),
                true => {}
                // It needs it, or the operator has thought better of it.
                false => drop(changes.insert(key.clone(), None)),
            }
        }
    }
    (changes, left)
}

/// Whether one goes.
fn take(stale: bool, left: &mut u64) -> bool {
    let goes = stale || *left > 0;
    *left -= u64::from(goes && !stale);
    goes
}
