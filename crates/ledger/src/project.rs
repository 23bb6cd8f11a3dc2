//! What stands in a node's spec: what was read in the ledger, and the terms of the pools that the node may use.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use api::{CellState, GrantedBlock, GrantedFamily, GrantedIp, GrantedPool, NodeIpPoolSpec};
use pool::{Family, Run};

use crate::adopt::families;
use crate::audit::held_elsewhere;
use crate::grid::{CellPosition, root_name};
use crate::index::{Index, held};
use crate::{Gone, NodePoolSeen, NodeSeen, Pool, Snapshot, Violation, Write, shared};

/// What a node has, by the ledger.
type Holdings = (Vec<GrantedBlock>, Vec<GrantedIp>);

/// The writes of nodes' objects.
pub(crate) fn node_pools(index: &Index<'_>) -> Vec<Write> {
    let world = index.world;
    let (mut holdings, contested) = (holdings(index), contested(index));
    let mut next = |name: &String, uid: &str, node: Option<&NodeSeen>, seen: Option<&NodePoolSeen>| {
        // One that is made has nothing yet: what comes into a spec is what the ledger has after that spec was read.
        let holdings = seen.and_then(|_| holdings.remove(uid)).unwrap_or_default();
        let own = contested.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let spec = spec_of(index, uid, node, seen, holdings, own);
        let version = seen.map(|seen| seen.version.clone());
        seen.is_none_or(|seen| seen.owned || seen.spec != spec).then(|| Write::NodePool { name: name.clone(), version, spec })
    };
    let (orphans, leaving): (Vec<_>, Vec<_>) = orphans(index).into_iter().partition(|orphan| orphan.stays);
    let goes = |Orphan { name, seen, .. }| {
        let (uid, version) = (seen.uid.clone(), seen.version.clone());
        Write::NodePoolGone { name: String::clone(name), uid, version }
    };
    let mut writes: Vec<Write> = leaving.into_iter().map(goes).collect();
    writes.extend(orphans.into_iter().filter_map(|Orphan { name, seen, .. }| next(name, &seen.spec.node_uid, None, Some(seen))));
    for (name, node) in &world.nodes {
        let seen = world.node_pools.get(name);
        // That of a node of the same name, which is no more, has to go first.
        if seen.is_none_or(|seen| seen.spec.node_uid == node.uid) {
            writes.extend(next(name, &node.uid, Some(node), seen));
        }
    }
    writes
}

/// The object of a node that is no more.
struct Orphan<'a> {
    name: &'a String,
    seen: &'a NodePoolSeen,
    /// Its agent may live, and is to say so.
    stays: bool,
}

/// The objects of nodes that are known to be no more. One goes when its agent has been silent for long enough, when a Node of its name is
/// there again, whose agent tells what it holds, or when no node of that name has anything.
fn orphans<'a>(index: &Index<'a>) -> Vec<Orphan<'a>> {
    let world = index.world;
    let is_own = |name: &String, uid: &str| world.nodes.get(name).is_some_and(|node| node.uid == uid);
    let all = world.node_pools.iter().filter(|(name, seen)| !is_own(name, &seen.spec.node_uid));
    let all: Vec<_> = all.filter_map(|(name, seen)| Some((name, seen, *world.gone.get(&seen.spec.node_uid)?))).collect();
    // Of a ledger that is lost nobody knows who has what.
    let known: Option<HashSet<&str>> = (!all.is_empty() && world.is_whole()).then(|| index.in_cells().map(|(name, _)| name).collect());
    let has_nothing =
        |name: &String, seen: &NodePoolSeen| !seen.has_something() && known.as_ref().is_some_and(|known| !known.contains(name.as_str()));
    let stays = |name: &String, seen: &NodePoolSeen, gone: Gone| {
        // Who was not asked whether it lives has not been silent.
        let is_asked = world.grace.is_none() || seen.spec.reclaim_after_seconds.is_some();
        let is_over = gone >= Gone::ByHand || (gone == Gone::GraceOver && is_asked);
        !is_over && !world.nodes.contains_key(name) && !has_nothing(name, seen)
    };
    all.into_iter().map(|(name, seen, gone)| Orphan { name, seen, stays: stays(name, seen, gone) }).collect()
}

/// The shards that say that a node has what would come into its spec: who adds it must have read them after the spec, or what has
/// left it, and was given back, might come again.
#[must_use]
pub fn added(world: &Snapshot, node: &str, spec: &NodeIpPoolSpec) -> BTreeSet<String> {
    let none = NodeIpPoolSpec::default();
    let before = world.node_pools.get(node).map_or(&none, |seen| &seen.spec);
    let blocks = spec.blocks.iter().filter(|b| !before.blocks.contains(b)).map(|b| (&b.network, &b.cidr));
    let ips = spec.ips.iter().filter(|ip| !before.ips.contains(ip)).map(|ip| (&ip.network, &ip.ip));
    let shard = |(network, text): (&String, &String)| {
        let run: Run = text.parse().ok()?;
        let root = world.shards.get(&root_name(network, run.family()))?;
        Some(CellPosition::of(run.first(), root.spec.cell_prefix).shard_name(network))
    };
    blocks.chain(ips).filter_map(shard).collect()
}

/// What each node has, by UID, as it was read.
fn holdings<'a>(index: &Index<'a>) -> HashMap<&'a str, Holdings> {
    let mut found: HashMap<&str, Holdings> = HashMap::new();
    for (network, place, cell) in index.seen_cells() {
        let network = network.to_owned();
        if cell.state == CellState::Granted {
            let cidr = cidr(&place);
            let block = GrantedBlock { cidr, network: network.clone(), pool: cell.pool.clone(), epoch: cell.epoch };
            found.entry(&cell.node_uid).or_default().0.push(block);
        }
        if cell.state != CellState::Shared {
            continue;
        }
        for (number, ip) in cell.ips.iter().filter(|(_, ip)| ip.owner.cilium_node.is_empty()) {
            let Some(address) = shared::address(&place, number) else { continue };
            for hold in ip.holds().filter(|hold| !hold.returning) {
                let other = ip.holds().find(|other| other.epoch != hold.epoch);
                let granted = GrantedIp {
                    ip: address.to_string(),
                    network: network.clone(),
                    pool: ip.pool.clone(),
                    epoch: hold.epoch,
                    owner: ip.owner.clone(),
                    ending: hold.ending,
                    also: other.map(|other| other.node.clone()).unwrap_or_default(),
                };
                found.entry(&hold.node_uid).or_default().1.push(granted);
            }
        }
    }
    found
}

/// A block as text, one of a single address as well.
fn cidr(place: &CellPosition) -> String {
    format!("{}/{}", place.run().first(), place.run().prefix().unwrap_or_default())
}

/// What pods of other nodes have of each node's blocks, by the node's name: networks and runs. Also of a node whose Node is gone.
fn contested(index: &Index<'_>) -> BTreeMap<String, Vec<(String, Run)>> {
    let mut found: BTreeMap<String, Vec<(String, Run)>> = BTreeMap::new();
    let all = index.world.node_pools.iter().flat_map(|(node, seen)| held(seen).filter_map(|held| held_elsewhere(&index.nets, node, held)));
    for violation in all {
        if let Violation::HeldElsewhere { network, block, nodes: [holder, _] } = violation
            && let Ok(run) = block.parse()
        {
            found.entry(holder).or_default().push((network, run));
        }
    }
    found
}

/// What stands in the spec of the node of that UID. `node`: its Node, if it is there.
fn spec_of(
    index: &Index<'_>,
    uid: &str,
    node: Option<&NodeSeen>,
    seen: Option<&NodePoolSeen>,
    (mut blocks, mut ips): Holdings,
    contested: &[(String, Run)],
) -> NodeIpPoolSpec {
    let before = seen.map(|seen| &seen.spec);
    // What is in the spec leaves it when the ledger was seen to be at least as new, and not because something was not seen.
    let old = before.into_iter().flat_map(|spec| &spec.blocks);
    let kept: Vec<GrantedBlock> = old.filter(|b| !blocks.contains(b) && newer(index, &b.network, &b.cidr, b.epoch)).cloned().collect();
    let old = before.into_iter().flat_map(|spec| &spec.ips);
    let kept_ips: Vec<GrantedIp> = old.filter(|i| !ips.contains(i) && newer(index, &i.network, &i.ip, i.epoch)).cloned().collect();
    blocks.extend(kept);
    ips.extend(kept_ips);
    blocks.sort_by_cached_key(|b| (b.pool.clone(), b.network.clone(), b.cidr.parse::<Run>().ok(), b.epoch));
    ips.sort_by_cached_key(|i| (i.pool.clone(), i.network.clone(), i.ip.parse::<Run>().ok(), i.epoch));
    let mut pools = terms(index, (uid, node), before, &blocks, &ips);
    for (name, pool) in &mut pools {
        exclude(name, pool, &blocks, contested);
    }
    let reclaim_after_seconds = if node.is_none() { index.world.grace } else { None };
    NodeIpPoolSpec { node_uid: uid.to_owned(), blocks, ips, pools, reclaim_after_seconds }
}

/// Nothing is handed out of what pods of another node have of a pool's blocks.
fn exclude(name: &str, pool: &mut GrantedPool, blocks: &[GrantedBlock], contested: &[(String, Run)]) {
    let own = contested.iter().filter(|(network, _)| *network == pool.network).map(|(_, run)| *run);
    let granted = |run: &Run| {
        let of_pool = blocks.iter().filter(|b| b.pool == name && b.network == pool.network);
        of_pool.filter_map(|b| b.cidr.parse().ok()).any(|block: Run| block.contains(run.first()))
    };
    let own = own.filter(granted);
    let runs: Vec<Run> = own.chain(pool.exclude.iter().filter_map(|text| text.parse().ok())).collect();
    if runs.len() > pool.exclude.len() {
        pool.exclude = crate::runs::union(runs).iter().map(ToString::to_string).collect();
    }
}

/// Whether a spec knows a later life of something than the ledger as it was read.
fn newer(index: &Index<'_>, network: &str, text: &str, epoch: u64) -> bool {
    let Ok(run) = text.parse::<Run>() else { return true };
    let Some(net) = index.nets.get(&(network.to_owned(), run.family())) else { return true };
    let place = CellPosition::of(run.first(), net.prefix);
    let read = net.shards.get(&place.base().numbers().0).and_then(|draft| draft.seen);
    let Some(cell) = read.and_then(|spec| spec.cells.get(&place.cell().to_string())) else { return true };
    let of_ip = shared::offset_of(&place, &run).and_then(|number| cell.ips.get(&number)).map(api::SharedIp::last_epoch);
    cell.epoch.max(of_ip.unwrap_or_default()) < epoch
}

fn terms(
    index: &Index<'_>,
    (uid, node): (&str, Option<&NodeSeen>),
    before: Option<&NodeIpPoolSpec>,
    blocks: &[GrantedBlock],
    ips: &[GrantedIp],
) -> BTreeMap<String, GrantedPool> {
    let mut found = BTreeMap::new();
    let used: BTreeSet<&str> = blocks.iter().map(|b| b.pool.as_str()).chain(ips.iter().map(|i| i.pool.as_str())).collect();
    for (name, checked) in &index.pools {
        let Some(seen) = index.world.pools.get(*name) else { continue };
        let last = before.and_then(|spec| spec.pools.get(*name));
        let Ok(pool) = checked else {
            // What is wrong now was right before: those who have something of it go on as they did.
            let ending = |last: &GrantedPool| last.ending || seen.deleting;
            found.extend(last.map(|last| ((*name).to_owned(), GrantedPool { ending: ending(last), ..unasked(last) })));
            continue;
        };
        let selector = seen.spec.as_ref().ok().and_then(|spec| spec.node_selector.as_ref());
        let is_for_it = match node {
            Some(node) => selector.is_none_or(|s| s.takes(&node.labels)),
            // Its labels went with its Node: what it was for it is for.
            None => last.is_some_and(|last| !last.ending),
        };
        let meant = !seen.deleting && is_for_it;
        if meant || used.contains(name) {
            found.insert((*name).to_owned(), granted(index, uid, pool, !meant, blocks));
        }
    }
    // Somebody has taken a pool away without its finalizer: what nodes have of it stays theirs until they return it.
    for name in used {
        let last = before.and_then(|spec| spec.pools.get(name)).filter(|_| !found.contains_key(name));
        if let Some(last) = last.cloned() {
            found.insert(name.to_owned(), GrantedPool { ending: true, ..last });
        }
    }
    found
}

/// A node's terms, without what it was asked for: nobody waits for what cannot be granted.
fn unasked(last: &GrantedPool) -> GrantedPool {
    let family = |of: &Option<GrantedFamily>| of.clone().map(|of| GrantedFamily { keep: None, ..of });
    GrantedPool { ipv4: family(&last.ipv4), ipv6: family(&last.ipv6), ..last.clone() }
}

/// A pool's terms for a node that has these blocks.
fn granted(index: &Index<'_>, uid: &str, pool: &Pool, ending: bool, blocks: &[GrantedBlock]) -> GrantedPool {
    let spec = &pool.spec;
    let own = blocks.iter().filter(|b| b.pool == spec.name && b.network == spec.network);
    let runs: Vec<Run> = own.filter_map(|b| b.cidr.parse().ok()).collect();
    let texts = |runs: Vec<Run>| runs.iter().map(ToString::to_string).collect();
    let mut withheld = index.withheld(&spec.network);
    // Its own one stands in its terms.
    let own = Family::ALL.map(|family| spec.terms(family).gateway.map(Run::single));
    withheld.gateways.retain(|gateway| !own.contains(&Some(*gateway)));
    let reserved = runs.iter().flat_map(|run| crate::runs::within(&withheld.reserved, run)).collect();
    let excluded = runs.iter().flat_map(|run| pool.excluded(run).into_iter().chain(crate::runs::within(&withheld.gateways, run)));
    let family = |family: Family| {
        let terms = spec.terms(family);
        let gateway = terms.gateway.map(|g| g.to_string());
        families(pool).any(|f| f == family).then(|| GrantedFamily {
            prefix_length: terms.prefix,
            gateway,
            block_prefix: pool.block(family),
            keep: index.asked.get(&(uid, spec.name.as_str(), family)).copied(),
        })
    };
    let raw = index.world.pools.get(&spec.name).and_then(|seen| seen.spec.as_ref().ok());
    GrantedPool {
        network: spec.network.clone(),
        ipv4: family(Family::V4),
        ipv6: family(Family::V6),
        exclude: texts(crate::runs::union(excluded.collect())),
        reserved: texts(crate::runs::union(reserved)),
        scaling: raw.map(|raw| raw.scaling).unwrap_or_default(),
        reuse: raw.map(|raw| raw.reuse).unwrap_or_default(),
        conflict_detection: raw.map(|raw| raw.conflict_detection).unwrap_or_default(),
        pod_selector: raw.and_then(|raw| raw.pod_selector.clone()),
        namespace_selector: raw.and_then(|raw| raw.namespace_selector.clone()),
        ending,
    }
}
