//! What is to be written next.

use std::collections::{BTreeMap, BTreeSet};

use pool::Family;

pub use crate::demand::Tally;
use crate::index::Index;
use crate::{Gone, Snapshot, Violation, Write, cilium, claims, order, project, recover, status};

/// What follows from a [`Snapshot`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// What pods wait for comes first, the ledger before specs; then new nodes' objects, what nodes want in store, what people read. Each
    /// stands for itself: any of them may be lost, late or refused.
    pub writes: Vec<Write>,
    /// How it stands with each pool and family.
    pub tallies: BTreeMap<(String, Family), Tally>,
    /// Nodes that are mentioned and were not seen, as name and UID: somebody must ask for them, and tell by [`Snapshot::gone`].
    pub missing: BTreeSet<(String, String)>,
    /// Those of them that have something, their names by UID: who finds that one is gone sees to it that it stays in [`Snapshot::departed`]
    /// before telling so.
    pub departing: BTreeMap<String, String>,
    /// Nodes of [`Snapshot::departed`] of which nothing is left, by UID.
    pub settled: BTreeSet<String>,
    /// Claims that have addresses and were not seen, as `namespace/name` and UID: the same, by [`crate::Claims::gone`].
    pub missing_claims: BTreeSet<(String, String)>,
    /// CiliumNodes that have more addresses of a family than they need: when it was so for long, tell by [`crate::Cilium::settled`].
    pub excess: BTreeSet<(String, Family)>,
    /// What nobody repairs on their own.
    pub violations: Vec<Violation>,
}

/// Decides what is to be written.
#[must_use]
pub fn step(world: &Snapshot) -> Step {
    let mut index = Index::of(world);
    index.adopt();
    index.take_returns();
    index.take_over();
    index.free();
    let decided = index.cilium();
    let told = index.claims();
    let mut tallies = index.grant();
    for (family, (nodes, addresses)) in &decided.short {
        let tally = tallies.entry((world.cilium.pool.clone(), *family)).or_default();
        tally.short_addresses = (*nodes, *addresses);
    }
    let mut writes = shards(&index);
    writes.extend(project::node_pools(&index));
    writes.extend(cilium::writes(&index, &decided));
    writes.extend(status::pools(&index, &tallies));
    writes.extend(claims::writes(&index, &told));
    let mut violations = std::mem::take(&mut index.violations);
    violations.sort();
    violations.dedup();
    let writes = order::in_order(world, writes);
    let (missing, departing) = (missing(&index), departing(&index));
    let settled = settled(&index, &departing);
    Step { writes, tallies, missing, departing, settled, missing_claims: claims::missing(&index), excess: decided.excess, violations }
}

fn shards(index: &Index<'_>) -> Vec<Write> {
    let mut writes = Vec::new();
    for ((network, family), net) in &index.nets {
        writes.extend(recover::root(index, network, *family, net));
        // One that cannot be read is not to be made: it is there.
        for draft in net.shards.values().filter(|draft| !index.is_barred_name(&draft.name)) {
            let Some(spec) = draft.new.as_ref().filter(|new| draft.seen != Some(*new)) else { continue };
            writes.push(Write::Shard { name: draft.name.clone(), version: draft.version.map(str::to_owned), spec: spec.clone() });
        }
    }
    writes
}

fn missing(index: &Index<'_>) -> BTreeSet<(String, String)> {
    let world = index.world;
    let specs = world.node_pools.iter().map(|(name, seen)| (name.as_str(), seen.spec.node_uid.as_str()));
    let cilium = world.cilium.nodes.iter().map(|(name, seen)| (name.as_str(), seen.node_uid.as_str()));
    let departed = world.departed.iter().map(|(uid, name)| (name.as_str(), uid.as_str()));
    let all = specs.chain(index.in_cells()).chain(cilium).chain(departed);
    let all = all.filter(|(_, uid)| !uid.is_empty() && !index.there.contains(uid));
    all.map(|(name, uid)| (name.to_owned(), uid.to_owned())).collect()
}

fn departing(index: &Index<'_>) -> BTreeMap<String, String> {
    let world = index.world;
    let having = world.node_pools.iter().filter(|(_, seen)| seen.has_something());
    let specs = having.map(|(name, seen)| (name.as_str(), seen.spec.node_uid.as_str()));
    let all = specs.chain(index.in_cells()).filter(|(name, uid)| !name.is_empty() && !uid.is_empty() && !index.there.contains(uid));
    all.map(|(name, uid)| (uid.to_owned(), name.to_owned())).collect()
}

/// Those that nobody waits for: they are there, or are gone for long and have nothing. As long as a ledger is lost nobody knows that.
fn settled(index: &Index<'_>, departing: &BTreeMap<String, String>) -> BTreeSet<String> {
    let world = index.world;
    if world.departed.is_empty() {
        return BTreeSet::new();
    }
    let whole = world.is_whole();
    let is_long_gone = |uid: &str| world.gone.get(uid).is_some_and(|gone| *gone >= Gone::GraceOver);
    let has_nothing = |uid: &str| whole && is_long_gone(uid) && !departing.contains_key(uid);
    world.departed.keys().filter(|uid| index.there.contains(uid.as_str()) || has_nothing(uid)).cloned().collect()
}
