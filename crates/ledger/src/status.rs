//! What a pool's status says, and whether a pool may go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use api::{CellState, Condition, IpPoolStatus, IpPoolUse, Owner};
use pool::{Family, Run};

use crate::adopt::families;
use crate::demand::Tally;
use crate::index::{Index, Net};
use crate::runs::count;
use crate::{Pool, PoolSeen, Write, recover};

/// The condition that says whether a pool is used: its `False` has the key that is wrong.
pub const READY: &str = "Ready";
/// The condition that says whether somebody needs addresses that the pool has not.
pub const EXHAUSTED: &str = "Exhausted";
/// The condition that says whether another pool of the network has some of the same addresses.
pub const OVERLAP: &str = "Overlap";

/// The reason of [`READY`] that the ledger of the pool's network was lost.
pub const GATHERING: &str = "Gathering";
/// So many nodes are named.
const NAMED: usize = 8;

type Tallies = BTreeMap<(String, Family), Tally>;

/// The writes of pools' finalizers and status.
pub(crate) fn pools(index: &Index<'_>, tallies: &Tallies) -> Vec<Write> {
    let (in_use, granted) = (used_pools(index), granted(index));
    let mut writes = Vec::new();
    for (name, seen) in &index.world.pools {
        let present = !seen.deleting || in_use.contains(name.as_str());
        // A pool that is being deleted can get no finalizer any more.
        if present != seen.finalizer && !(present && seen.deleting) {
            writes.push(Write::Finalizer { pool: name.clone(), version: seen.version.clone(), present });
            continue;
        }
        let status = status(index, name, seen, tallies, &granted);
        if (present || !seen.deleting) && seen.status.as_ref() != Some(&status) {
            writes.push(Write::PoolStatus { pool: name.clone(), version: seen.version.clone(), status });
        }
    }
    writes
}

/// The pools of which somebody has something: in the ledger, as it was and as it is to be, or in a node's spec.
fn used_pools<'a>(index: &'a Index<'_>) -> HashSet<&'a str> {
    let drafts = index.nets.values().flat_map(|net| net.shards.values());
    let cells = drafts.flat_map(|draft| draft.seen.into_iter().chain(draft.new.as_ref())).flat_map(|spec| spec.cells.values());
    let of_cells = cells.flat_map(|cell| {
        let ips = cell.ips.values().filter(|ip| ip.owner != Owner::default() || ip.is_held()).map(|ip| ip.pool.as_str());
        ips.chain((cell.state != CellState::Free).then_some(cell.pool.as_str()))
    });
    let specs = index.world.node_pools.values().map(|seen| &seen.spec);
    let of_specs = specs.flat_map(|spec| spec.blocks.iter().map(|b| b.pool.as_str()).chain(spec.ips.iter().map(|i| i.pool.as_str())));
    of_cells.chain(of_specs).filter(|name| !name.is_empty()).collect()
}

/// How many addresses nodes have of each pool and family, as it was read.
fn granted<'a>(index: &Index<'a>) -> HashMap<(&'a str, Family), u64> {
    let mut found: HashMap<(&str, Family), u128> = HashMap::new();
    for (_, place, cell) in index.seen_cells() {
        let family = place.run().family();
        if matches!(cell.state, CellState::Granted | CellState::Returning) {
            let usable = |pool: &Pool| count(&pool.usable(&place.run()), family);
            let of_pool = index.pools.get(cell.pool.as_str()).and_then(|pool| pool.as_ref().ok());
            *found.entry((&cell.pool, family)).or_default() += of_pool.map_or(0, usable);
        }
        for ip in cell.ips.values().filter(|ip| ip.is_held()) {
            *found.entry((&ip.pool, family)).or_default() += 1;
        }
    }
    found.into_iter().map(|(of, n)| (of, u64::try_from(n).unwrap_or(u64::MAX))).collect()
}

fn status(index: &Index<'_>, name: &str, seen: &PoolSeen, tallies: &Tallies, granted: &HashMap<(&str, Family), u64>) -> IpPoolStatus {
    let mut conditions = Vec::new();
    let mut put = |kind: &str, status: bool, reason: &str, message: String| {
        let status = if status { "True" } else { "False" };
        let last = seen.status.iter().flat_map(|s| &s.conditions).find(|c| c.kind == kind && c.status == status);
        let last_transition_time = last.map(|c| c.last_transition_time.clone()).unwrap_or_default();
        let (kind, status, reason) = (kind.to_owned(), status.to_owned(), reason.to_owned());
        conditions.push(Condition { kind, status, reason, message, observed_generation: seen.generation, last_transition_time });
    };
    let checked = index.pools.get(name);
    let pool = match checked {
        Some(Ok(pool)) => pool,
        wrong => {
            let (reason, message) = wrong.and_then(|w| w.as_ref().err()).cloned().unwrap_or_default();
            put(READY, false, reason, message);
            return IpPoolStatus { observed_generation: seen.generation, ipv4: None, ipv6: None, conditions };
        }
    };
    let gathering = gathering(index, pool);
    match seen.deleting {
        false if gathering.is_some() => put(READY, false, GATHERING, gathering.unwrap_or_default()),
        true => put(READY, false, "Deleting", "it is deleted once every node has returned its addresses".to_owned()),
        false => put(READY, true, "Granting", String::new()),
    }
    // Before the object that says how large the cells are is there, and CiliumNodes were read, nobody is granted anything.
    let begun = |family: &Family| index.nets.get(&(pool.spec.network.clone(), *family)).is_some_and(|net| net.root.is_some() && !net.waits);
    let tallied = || families(pool).filter(begun).map(|family| (tallies.get(&(name.to_owned(), family)), family));
    let short: Vec<String> = tallied().filter_map(|(tally, family)| short(tally, family)).collect();
    let full = tallied().filter_map(|(tally, _)| tally).all(|tally| tally.in_deficit == tally.full && tally.short_addresses.1 == 0);
    match short.is_empty() || seen.deleting {
        true => put(EXHAUSTED, false, "Sufficient", String::new()),
        false if full => put(EXHAUSTED, true, "NodesFull", short.join("; ")),
        false => put(EXHAUSTED, true, "NoFreeBlock", format!("{}: add entries, or wait until a node returns addresses", short.join("; "))),
    }
    let others = others(index, name, pool);
    match others.is_empty() {
        true => put(OVERLAP, false, "Alone", String::new()),
        false => put(OVERLAP, true, "SharedAddresses", format!("each is assigned only once: {}", others.join("; "))),
    }
    let family = |family: Family| {
        let capacity = count(&pool.all_usable(), family).to_string();
        let granted = granted.get(&(name, family)).copied().unwrap_or_default();
        families(pool).any(|f| f == family).then(|| IpPoolUse { capacity, granted, in_use: in_use(index, name, pool, family) })
    };
    let (ipv4, ipv6) = (family(Family::V4), family(Family::V6));
    IpPoolStatus { observed_generation: seen.generation, ipv4, ipv6, conditions }
}

/// Whether the pool's network waits for nodes that have not told what they hold, and for which.
fn gathering(index: &Index<'_>, pool: &Pool) -> Option<String> {
    let closed = |family| index.nets.get(&(pool.spec.network.clone(), family)).is_some_and(Net::is_gathering);
    let lost = families(pool).any(closed);
    lost.then(|| {
        let network = &pool.spec.network;
        let (silent, departed) = (recover::silent(index, network), recover::departed(index, network));
        let until = "none of its addresses are granted until every node has reported what it has";
        let mut said = vec![format!("the ledger of network {network:?} was lost, and {until}")];
        if !silent.is_empty() {
            let next = "start their agents, delete the Nodes that are gone, or run `netloom ipam reclaim NODE` for machines that are \
                gone for good";
            said.push(format!("{} not: {}: {next}", number(silent.len(), "node has", "nodes have"), named(&silent)));
        }
        if !departed.is_empty() {
            let grace = if recover::is_manual(index.world, network) { "" } else { "wait for the operator's --grace, or " };
            let next = "run `netloom ipam reclaim NODE` for machines that are gone for good";
            said.push(format!(
                "{} may still run: {}: {grace}{next}",
                number(departed.len(), "Node was deleted, but its pods", "Nodes were deleted, but their pods"),
                named(&departed)
            ));
        }
        said.join("; ")
    })
}

/// A number with the words for one, or for any other number.
fn number(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// The first of them.
fn named(nodes: &[&str]) -> String {
    let more = if nodes.len() > NAMED { ", ..." } else { "" };
    format!("{}{more}", nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", "))
}

fn short(tally: Option<&Tally>, family: Family) -> Option<String> {
    let tally = tally?;
    let of_full = || {
        let next = "make blocks larger (blockPrefix), or give nodes fewer pools (nodeSelector)";
        format!("{} the maximum number of {family} blocks in the NodeIPPool: {next}", number(tally.full, "node has", "nodes have"))
    };
    let asked = || {
        if tally.asked > 0 {
            format!(", {} asked to return unused blocks", number(tally.asked, "other is", "others are"))
        } else {
            String::new()
        }
    };
    let of_nodes = || {
        let lacking = tally.needed - tally.served;
        format!("{} {lacking} more {family} blocks than there are{}", number(tally.in_deficit, "node needs", "nodes need"), asked())
    };
    let (nodes, addresses) = tally.short_addresses;
    let of_cilium =
        || format!("{} {addresses} more {family} addresses than there are", number(nodes, "CiliumNode needs", "CiliumNodes need"));
    let lacking = tally.needed > tally.served && tally.in_deficit > tally.full;
    let all = [(tally.full > 0).then(of_full), lacking.then(of_nodes), (addresses > 0).then(of_cilium)];
    Some(all.into_iter().flatten().collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
}

/// As the nodes said last.
fn in_use(index: &Index<'_>, name: &str, pool: &Pool, family: Family) -> u64 {
    let demands = index.world.node_pools.values().flat_map(|seen| &seen.status.demand).filter(|d| d.pool == name);
    let of_nodes = demands.map(|d| d.in_use(family == Family::V4)).fold(0, u64::saturating_add);
    let cilium = &index.world.cilium;
    let used = cilium.nodes.values().filter(|_| cilium.pool == name).flat_map(|seen| &seen.used);
    let of_pool = |address: &&IpAddr| !crate::runs::within(&pool.runs, &Run::single(**address)).is_empty();
    of_nodes.saturating_add(used.filter(|a| Family::of(**a) == family).filter(of_pool).count() as u64)
}

/// Which pools of the network have some of the same addresses, and the first of them.
fn others(index: &Index<'_>, name: &str, pool: &Pool) -> Vec<String> {
    let pools = index.pools.iter().filter(|(other, _)| **other != name).filter_map(|(other, p)| Some((other, p.as_ref().ok()?)));
    let same = pools.filter(|(_, other)| other.spec.network == pool.spec.network);
    let common = same.filter_map(|(other, p)| {
        let first = p.runs.iter().find_map(|run| pool.runs.iter().find_map(|own| own.common(run)))?;
        Some(format!("{first} is in pool {other} as well"))
    });
    common.collect()
}
