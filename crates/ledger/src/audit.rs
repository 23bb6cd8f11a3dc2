//! What cannot be, if everybody kept to the rules.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use api::{CellState, Demand, Holding, SharedIp};
use pool::{Family, Run};

use crate::Snapshot;
use crate::grid::CellPosition;
use crate::index::{Index, Mention, Net, held};

/// Something that nobody repairs on their own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// Two nodes have it at the same time.
    TwoHolders {
        /// The network.
        network: String,
        /// The block or address.
        block: String,
        /// The nodes.
        nodes: [String; 2],
    },
    /// A node's pods have addresses that the ledger has given to another node since: the Node was deleted for longer than the grace period
    /// while its pods ran, say.
    HeldElsewhere {
        /// The network.
        network: String,
        /// The block or address.
        block: String,
        /// The node that the ledger has it for, and the one whose pods have it.
        nodes: [String; 2],
    },
    /// A node has what the ledger does not know.
    Unknown {
        /// The node.
        node: String,
        /// The network.
        network: String,
        /// The block or address.
        block: String,
    },
    /// A shard that is none, or of a release that knows more: nothing of it is touched, and no cell of it is granted.
    Unreadable {
        /// Its name.
        shard: String,
    },
    /// A node uses more of a pool than it was granted.
    TooMany {
        /// The node.
        node: String,
        /// The pool.
        pool: String,
    },
}

// === impl Violation ===

impl Violation {
    /// The node whose object it is about.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            Violation::TwoHolders { nodes: [_, node], .. }
            | Violation::HeldElsewhere { nodes: [_, node], .. }
            | Violation::Unknown { node, .. }
            | Violation::TooMany { node, .. } => Some(node),
            Violation::Unreadable { .. } => None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::TwoHolders { network, block, nodes: [a, b] } => write!(
                f,
                "{block} of network {network:?} is in the spec of two NodeIPPools, or in one while the ledger assigns it to the other: \
                    {a} and {b}: check both nodes, and drain one"
            ),
            Violation::HeldElsewhere { network, block, nodes: [holder, node] } => write!(
                f,
                "pods of node {node} have addresses of {block} of network {network:?}, which node {holder} was granted since: two pods may have \
                 the same address: delete those pods of {node} (on {node}: netloom ipam status --all-addresses)"
            ),
            Violation::Unknown { node, network, block } => write!(
                f,
                "NodeIPPool {node} has {block} of network {network:?}, which is not in the ledger: it was not written by the operator"
            ),
            Violation::Unreadable { shard } => {
                write!(
                    f,
                    "IPLedgerShard {shard} cannot be read, or does not match its name: another program or a newer release wrote it, so \
                        none of its addresses are granted: run that release again, or restore the object"
                )
            }
            Violation::TooMany { node, pool } => {
                write!(f, "node {node} reports more addresses of pool {pool} in use than it was granted")
            }
        }
    }
}

/// Compares every block and address of every node with the ledger and with each other.
#[must_use]
pub fn audit(world: &Snapshot) -> Vec<Violation> {
    let mut index = Index::of(world);
    let mut found = std::mem::take(&mut index.violations);
    for ((network, run), mentions) in &index.mentions {
        for mention in mentions {
            found.extend(wrong(&index, network, run, mention));
        }
        if let [first, second, ..] = mentions.as_slice()
            && !migrates(&index, network, run, mentions)
        {
            found.push(Violation::TwoHolders {
                network: (*network).to_owned(),
                block: run.to_string(),
                nodes: [first.node.to_owned(), second.node.to_owned()],
            });
        }
    }
    for (node, seen) in &world.node_pools {
        found.extend(held(seen).filter_map(|held| held_elsewhere(&index.nets, node, held)));
    }
    found.extend(too_many(world));
    found.sort();
    found.dedup();
    found
}

/// Whether another node was granted what a node says that its pods have, in a later life of it. A Node that was made anew under its name
/// gets its own again.
pub(crate) fn held_elsewhere(nets: &BTreeMap<(String, Family), Net<'_>>, node: &str, held: &Holding) -> Option<Violation> {
    let run: Run = held.cidr.parse().ok()?;
    let net = nets.get(&(held.network.clone(), run.family()))?;
    let place = CellPosition::of(run.first(), net.prefix);
    let cell = net.cell(&place)?;
    let holder = match cell.state {
        CellState::Granted | CellState::Returning => Some((cell.node.as_str(), cell.epoch)),
        CellState::Shared => {
            let ip = crate::shared::offset_of(&place, &run).and_then(|number| cell.ips.get(&number))?;
            let other = ip.holds().find(|hold| hold.node != node && !hold.node.is_empty());
            // Two nodes have an address while its claim's pod migrates.
            other.filter(|_| !(ip.owner == held.owner && ip.owner.migrates)).map(|hold| (hold.node.as_str(), hold.epoch))
        }
        CellState::Free => None,
    };
    let (holder, _) = holder.filter(|(holder, epoch)| *holder != node && *epoch > held.epoch)?;
    let nodes = [holder.to_owned(), node.to_owned()];
    Some(Violation::HeldElsewhere { network: held.network.clone(), block: held.cidr.clone(), nodes })
}

/// Whether the ledger knows it as that node's. A life that is over is no harm: the node has promised not to use it, or is gone.
fn wrong(index: &Index<'_>, network: &str, run: &Run, it: &Mention<'_>) -> Option<Violation> {
    let block = run.to_string();
    let unknown = || Violation::Unknown { node: it.node.into(), network: network.into(), block: block.clone() };
    let Some(net) = index.nets.get(&(network.to_owned(), run.family())) else { return Some(unknown()) };
    let place = CellPosition::of(run.first(), net.prefix);
    if index.is_barred(network, &place) {
        // What cannot be read is told already.
        return None;
    }
    let Some(cell) = net.cell(&place) else { return Some(unknown()) };
    let (holder, uid, epoch, held) = if place.run() == *run && cell.state != CellState::Shared {
        (cell.node.as_str(), cell.node_uid.as_str(), cell.epoch, cell.state != CellState::Free)
    } else {
        let ip: Option<&SharedIp> = crate::shared::offset_of(&place, run).and_then(|number| cell.ips.get(&number));
        let Some(ip) = ip else { return Some(unknown()) };
        match ip.holds().find(|hold| hold.epoch == it.epoch) {
            Some(hold) => (hold.node.as_str(), hold.node_uid.as_str(), hold.epoch, true),
            None => ("", "", ip.last_epoch(), false),
        }
    };
    if epoch < it.epoch {
        return Some(unknown());
    }
    let other = held && epoch == it.epoch && uid != it.node_uid;
    other.then(|| Violation::TwoHolders { network: network.into(), block, nodes: [holder.to_owned(), it.node.to_owned()] })
}

/// Whether two nodes have an address because its claim's pod migrates from the one to the other, and the ledger says so.
fn migrates(index: &Index<'_>, network: &str, run: &Run, mentions: &[Mention<'_>]) -> bool {
    let Some(net) = index.nets.get(&(network.to_owned(), run.family())) else { return false };
    let place = CellPosition::of(run.first(), net.prefix);
    let number = crate::shared::offset_of(&place, run);
    let ip = net.cell(&place).filter(|cell| cell.state == CellState::Shared).zip(number).and_then(|(cell, n)| cell.ips.get(&n));
    let known = |ip: &SharedIp, it: &Mention<'_>| ip.holds().any(|hold| hold.node_uid == it.node_uid && hold.epoch == it.epoch);
    ip.is_some_and(|ip| ip.holds().count() == 2 && mentions.len() == 2 && mentions.iter().all(|it| known(ip, it)))
}

fn too_many(world: &Snapshot) -> Vec<Violation> {
    let mut found = Vec::new();
    for (node, seen) in &world.node_pools {
        let mut granted: HashMap<(&str, bool), u128> = HashMap::new();
        let blocks = seen.spec.blocks.iter().map(|b| (b.pool.as_str(), b.cidr.as_str()));
        for (pool, text) in blocks.chain(seen.spec.ips.iter().map(|i| (i.pool.as_str(), i.ip.as_str()))) {
            let Ok(run) = text.parse::<Run>() else { continue };
            let sum = granted.entry((pool, run.first().is_ipv4())).or_default();
            *sum = sum.saturating_add(run.count());
        }
        // The agent's numbers are as of an earlier spec where it has not read this one.
        let of = |pool: &str, v4: bool| granted.get(&(pool, v4)).copied().unwrap_or_default();
        let is_over = |d: &Demand, v4: bool| of(&d.pool, v4) > 0 && u128::from(d.in_use(v4)) > of(&d.pool, v4);
        let over = seen.status.demand.iter().filter(|d| is_over(d, true) || is_over(d, false));
        found.extend(over.map(|d| Violation::TooMany { node: node.clone(), pool: d.pool.clone() }));
    }
    found
}
