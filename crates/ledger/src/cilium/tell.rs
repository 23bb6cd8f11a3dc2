//! What is written of CiliumNodes: one thing at a time of each, as each write makes its version another one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{Release, SharedIp};
use pool::Run;

use super::Decided;
use crate::grid::CellPosition;
use crate::index::Index;
use crate::{Snapshot, Write, shared};

/// What the ledger was read to have as each node's, by name.
type Read<'a> = BTreeMap<&'a str, Vec<(IpAddr, &'a SharedIp)>>;

/// The writes of CiliumNodes. A pool tells what was read in the ledger, never what is yet to be written there.
pub(crate) fn writes(index: &Index<'_>, decided: &Decided) -> Vec<Write> {
    let world = index.world;
    if !world.cilium.complete {
        return Vec::new();
    }
    let read = read(index);
    let mut writes = Vec::new();
    for (name, seen) in &world.cilium.nodes {
        let has = read.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        if seen.unreadable {
            continue;
        }
        let node = world.nodes.get(name);
        if node.is_none_or(|node| !seen.node_uid.is_empty() && node.uid != seen.node_uid) {
            // Who has the ledger's addresses in it, and whose Node is no more, is dangling.
            if world.gone.contains_key(&seen.node_uid) && has.iter().any(|(_, ip)| ip.hold.node_uid == seen.node_uid) {
                writes.push(Write::CiliumNodeGone { name: name.clone(), uid: seen.uid.clone(), version: seen.version.clone() });
            }
            continue;
        }
        let uid = node.map(|node| node.uid.as_str()).unwrap_or_default();
        let mut pool = BTreeMap::new();
        for (address, ip) in has.iter().filter(|(_, ip)| ip.hold.node_uid == uid) {
            let released = seen.release.get(address).map(|(_, said)| said);
            match (seen.pool.get(address), ip.hold.returning) {
                (None, false) if released.is_none() => drop(pool.insert(address.to_string(), true)),
                (Some(pooled), true) if released == Some(&Release::Released) => drop(pool.insert(pooled.key.clone(), false)),
                _ => {}
            }
        }
        let version = seen.version.clone();
        let node_uid = (seen.node_uid.is_empty() && !has.is_empty()).then(|| uid.to_owned());
        if !pool.is_empty() || node_uid.is_some() {
            writes.push(Write::CiliumPool { name: name.clone(), version, node_uid, pool });
        } else if let Some(release) = decided.changes.get(name).cloned() {
            writes.push(Write::CiliumRelease { name: name.clone(), version, release });
        }
    }
    writes.extend(made(index));
    writes
}

/// Objects of nodes that have none.
fn made(index: &Index<'_>) -> Vec<Write> {
    let world = index.world;
    let Some(pool) = world.pools.get(&world.cilium.pool) else { return Vec::new() };
    let wants = pool.spec.as_ref().map(|spec| spec.scaling).unwrap_or_default();
    let all = world.nodes.iter().filter(|(name, node)| !world.cilium.nodes.contains_key(*name) && index.is_meant(&node.labels));
    all.map(|(name, node)| Write::CiliumNode { name: name.clone(), node_uid: node.uid.clone(), wants }).collect()
}

fn read<'a>(index: &Index<'a>) -> Read<'a> {
    let mut found = Read::new();
    for (_, place, cell) in index.seen_cells() {
        for (number, ip) in cell.ips.iter().filter(|(_, ip)| !ip.owner.cilium_node.is_empty()) {
            let Some(address) = shared::address(&place, number) else { continue };
            found.entry(ip.owner.cilium_node.as_str()).or_default().push((address, ip));
        }
    }
    found
}

/// The shards that may say that a node has what would come into its pool: who adds it must have read them after the object, or what
/// has left it, and was given back, might come again.
#[must_use]
pub fn added_addresses(world: &Snapshot, pool: &BTreeMap<String, bool>) -> BTreeSet<String> {
    let roots: Vec<_> = world.shards.values().map(|seen| &seen.spec).filter(|spec| spec.base.ends_with("/0")).collect();
    let shards = |(key, _): (&String, &bool)| {
        let address: IpAddr = key.parse().ok()?;
        let of_family = move |base: &str| base.parse::<Run>().is_ok_and(|base| base.contains(address));
        let of = roots.iter().filter(move |root| of_family(&root.base));
        Some(of.map(move |root| CellPosition::of(address, root.cell_prefix).shard_name(&root.network)))
    };
    let all = pool.iter().filter(|(_, there)| **there).filter_map(shards).flatten();
    all.filter(|name| world.shards.contains_key(name)).collect()
}
