//! Which writes come first: an operator carries out as many a second as it may, and decides anew in between.

use std::collections::HashSet;

use api::{CellState, IpLedgerShardSpec, NodeIpPoolSpec};

use crate::{Snapshot, Write};

/// The earlier, the sooner it is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// What everything else of a pool waits for.
    Begins,
    /// What pods wait for: a cell, then the spec that says so.
    PodsWait,
    /// Claims: pods wait for what follows.
    Claims,
    /// The object of a new node: it cannot say before whether its pods wait.
    Empty,
    /// What nodes want in store.
    Ahead,
    /// What people read, and what goes.
    Told,
}

/// The writes in this order; those of one rank stay in theirs.
pub(crate) fn in_order(world: &Snapshot, mut writes: Vec<Write>) -> Vec<Write> {
    let waits = |seen: &crate::NodePoolSeen| seen.status.demand.iter().any(|demand| demand.waiting);
    let waiting = world.node_pools.values().filter(|seen| waits(seen)).map(|seen| seen.spec.node_uid.as_str()).collect();
    writes.sort_by_cached_key(|write| rank(world, &waiting, write));
    writes
}

fn rank(world: &Snapshot, waiting: &HashSet<&str>, write: &Write) -> Rank {
    match write {
        Write::Finalizer { .. } => Rank::Begins,
        Write::Shard { version: None, spec, .. } if spec.cells.is_empty() => Rank::Begins,
        Write::Shard { name, spec, .. } => {
            let before = world.shards.get(name).map(|seen| &seen.spec);
            if is_waited_for(before, spec, waiting) { Rank::PodsWait } else { Rank::Ahead }
        }
        Write::NodePool { name, version: Some(_), spec } => {
            let before = world.node_pools.get(name).map(|seen| &seen.spec);
            let ips = before.is_some_and(|before| before.ips != spec.ips);
            if ips || is_asked(before, spec) || waiting.contains(spec.node_uid.as_str()) { Rank::PodsWait } else { Rank::Ahead }
        }
        Write::Claim { .. } | Write::ClaimFinalizer { .. } => Rank::Claims,
        Write::PoolStatus { .. } | Write::ClaimStatus { .. } | Write::ClaimGone { .. } | Write::NodePoolGone { .. } => Rank::Told,
        Write::NodePool { version: None, .. } | Write::CiliumNode { .. } => Rank::Empty,
        // A CiliumNode does not say whether pods wait.
        Write::CiliumPool { .. } => Rank::PodsWait,
        Write::CiliumRelease { .. } | Write::CiliumNodeGone { .. } => Rank::Told,
    }
}

/// Whether a node is asked for blocks that it was not asked for before.
fn is_asked(before: Option<&NodeIpPoolSpec>, after: &NodeIpPoolSpec) -> bool {
    let keep = |spec: &NodeIpPoolSpec, name: &String| {
        let pool = spec.pools.get(name);
        [true, false].map(|is_ipv4| pool?.family(is_ipv4)?.keep)
    };
    let less = |before: Option<u64>, after: Option<u64>| after.is_some_and(|after| before.is_none_or(|before| after < before));
    before.is_some_and(|before| {
        let both = |name| keep(before, name).into_iter().zip(keep(after, name));
        after.pools.keys().any(|name| both(name).any(|(before, after)| less(before, after)))
    })
}

/// Whether a cell of a shard becomes that of a node whose pods wait, or single addresses of one change.
fn is_waited_for(before: Option<&IpLedgerShardSpec>, after: &IpLedgerShardSpec, waiting: &HashSet<&str>) -> bool {
    let changed = after.cells.iter().filter(|(number, cell)| before.and_then(|spec| spec.cells.get(*number)) != Some(cell));
    let mut changed = changed.map(|(_, cell)| cell);
    changed.any(|cell| cell.state == CellState::Shared || waiting.contains(cell.node_uid.as_str()))
}
