//! A ledger that was lost, and with it, perhaps, what stood in nodes' specs: who has something is asked before anything is granted.
//!
//! ```text
//!   no root, and none was there before, and nobody has anything     a new network: its root is made, and grants begin
//!   no root otherwise                                               it is made as `gathering`
//!   gathering: what specs and `status.holding` name is entered, nothing is granted
//!   every node has told, and all that is entered                    `gathering` goes
//! ```
//!
//! A node that does not tell may have anything. Who says that nothing of it runs any more decides. One whose Node is gone tells as well, as
//! long as its object is there. Where it is not, or its agent is silent, its pods may run for a while: it is waited for as its blocks would
//! have waited, for the grace time, or in a network of which a pool says `reclaim: Manual` for a person.

use api::{IpLedgerShardSpec, IpPoolSpec, Reclaim};
use pool::{Family, Run};

use crate::grid::root_name;
use crate::index::{Draft, Index, Net, held};
use crate::{CiliumNodeSeen, Gone, NodePoolSeen, Snapshot, Write};

/// The name of the root of a shard's network: that of a root is its own. `None`: it cannot be read.
#[must_use]
pub fn root_of(shard: &IpLedgerShardSpec) -> Option<String> {
    let base: Run = shard.base.parse().ok()?;
    Some(root_name(&shard.network, base.family()))
}

/// The nodes that have not told what they hold of a network, by name.
pub(crate) fn silent<'a>(index: &Index<'a>, network: &str) -> Vec<&'a str> {
    let world = index.world;
    let filled = world.cilium.complete && index.is_ciliums(network);
    // Every node that the pool is for gets such an object, whatever its agent does. One that says what is used was written by an agent
    // that has its addresses from there, and has none of this pool's blocks.
    let is_its = |seen: &CiliumNodeSeen, uid: &str| seen.node_uid.is_empty() || seen.node_uid == uid;
    let tells = |seen: &CiliumNodeSeen| !seen.unreadable && seen.told;
    let in_cilium = |name: &String, uid: &str| filled && world.cilium.nodes.get(name).is_some_and(|seen| is_its(seen, uid) && tells(seen));
    let told = |name: &String, uid: &str| has_told_of(index, network, name, uid) || in_cilium(name, uid);
    let silent = world.nodes.iter().filter(|(name, node)| !world.by_hand.contains(&node.uid) && !told(name, &node.uid));
    silent.map(|(name, _)| name.as_str()).collect()
}

/// Whether a node's agent has told in its NodeIPPool what it holds of a network. One that has its addresses from its CiliumNode says there
/// what it has of all other networks.
fn has_told_of(index: &Index<'_>, network: &str, name: &str, uid: &str) -> bool {
    let elsewhere = |seen: &NodePoolSeen| index.is_ciliums(network) && seen.status.cilium_node;
    has_told(index.world, name, uid) && !index.world.node_pools.get(name).is_some_and(elsewhere)
}

/// Whether a node's agent has told what it holds.
fn has_told(world: &Snapshot, name: &str, uid: &str) -> bool {
    world.node_pools.get(name).is_some_and(|seen| seen.spec.node_uid == uid && seen.status.is_told())
}

/// The nodes that are no more, by name, and may have something of a network that nobody tells of.
pub(crate) fn departed<'a>(index: &Index<'a>, network: &str) -> Vec<&'a str> {
    let world = index.world;
    let enough = if is_manual(world, network) { Gone::ByHand } else { Gone::GraceOver };
    let is_over = |uid: &String| world.by_hand.contains(uid) || world.gone.get(uid).is_some_and(|gone| *gone >= enough);
    // An agent that lives without its Node tells as any other, and is never silent for long.
    let told = |uid: &str, name: &str| has_told_of(index, network, name, uid);
    let waited = world.departed.iter().filter(|(uid, name)| !index.there.contains(uid.as_str()) && !is_over(uid) && !told(uid, name));
    waited.map(|(_, name)| name.as_str()).collect()
}

/// Whether what a node had of a network, whatever it was, may wait for a person when the node is no more.
pub(crate) fn is_manual(world: &Snapshot, network: &str) -> bool {
    world.pools.iter().any(|(name, seen)| match &seen.spec {
        Ok(spec) => spec.reclaim == Reclaim::Manual && network_of(name, spec) == network,
        // What cannot be read may say so.
        Err(_) => true,
    })
}

/// The network of a pool of that name.
fn network_of<'a>(name: &'a str, spec: &'a IpPoolSpec) -> &'a str {
    if spec.network.is_empty() { name } else { &spec.network }
}

/// What is to be written of the object that says how large the cells of a network are.
pub(crate) fn root(index: &Index<'_>, network: &str, family: Family, net: &Net<'_>) -> Option<Write> {
    let name = root_name(network, family);
    match net.root {
        None if index.is_barred_name(&name) => None,
        None => {
            let base = Run::network(family.address(0), 0).to_string();
            let gathering = is_lost(index.world, network, family);
            let spec =
                IpLedgerShardSpec { network: network.to_owned(), base, cell_prefix: net.prefix, gathering, ..IpLedgerShardSpec::default() };
            Some(Write::Shard { name, version: None, spec })
        }
        Some((version, spec)) if spec.gathering && !net.waits && !is_changing(net) && is_told(index, network) => {
            let spec = IpLedgerShardSpec { gathering: false, ..spec.clone() };
            Some(Write::Shard { name, version: Some(version.to_owned()), spec })
        }
        Some(_) => None,
    }
}

/// Whether nobody has to be waited for.
fn is_told(index: &Index<'_>, network: &str) -> bool {
    silent(index, network).is_empty() && departed(index, network).is_empty()
}

/// Whether a network whose root is not there had one before: by [`Snapshot::ledgers`], and by what nodes have. Who makes its root makes one
/// that gathers.
#[must_use]
pub fn is_lost(world: &Snapshot, network: &str, family: Family) -> bool {
    world.ledgers.contains(&root_name(network, family)) || is_had(world, network, family)
}

/// Whether any node has something of a network.
fn is_had(world: &Snapshot, network: &str, family: Family) -> bool {
    had_by_nodes(world).any(|(of, text)| of == network && text.parse::<Run>().is_ok_and(|run| run.family() == family))
}

/// What nodes have, by what they were granted and what they tell: networks, and addresses of them.
fn had_by_nodes(world: &Snapshot) -> impl Iterator<Item = (&str, &str)> {
    world.node_pools.values().flat_map(|seen| {
        let blocks = seen.spec.blocks.iter().map(|b| (b.network.as_str(), b.cidr.as_str()));
        let ips = seen.spec.ips.iter().map(|ip| (ip.network.as_str(), ip.ip.as_str()));
        blocks.chain(ips).chain(held(seen).map(|held| (held.network.as_str(), held.cidr.as_str())))
    })
}

/// Whether a ledger that was there, and is not, is missed, by the name of its root: a pool is of its network, a node has something of it, or
/// has not told what it has. Of a network that nobody has any more nobody misses it, and it may never come again.
pub(crate) fn is_missed(world: &Snapshot, root: &str) -> bool {
    let is_its = |network: &str| Family::ALL.into_iter().any(|family| root_name(network, family) == root);
    // What cannot be read may be of it.
    let of_pool = world.pools.iter().any(|(name, seen)| seen.spec.as_ref().map_or(true, |spec| is_its(network_of(name, spec))));
    let told = world.nodes.iter().all(|(name, node)| world.by_hand.contains(&node.uid) || has_told(world, name, &node.uid));
    of_pool || !told || had_by_nodes(world).any(|(network, _)| is_its(network))
}

/// Whether something is to be entered yet: it may be refused, or get lost.
fn is_changing(net: &Net<'_>) -> bool {
    net.shards.values().any(|draft: &Draft<'_>| draft.new.is_some() && draft.new.as_ref() != draft.seen)
}
