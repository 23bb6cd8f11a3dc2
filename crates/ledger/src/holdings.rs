//! What the nodes of one name have, by the ledger: also those that are no more.

use std::collections::BTreeMap;

use api::{CellState, IpLedgerShardSpec};
use pool::Run;

use crate::index::cells;
use crate::shared;

/// Something that a node has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holding {
    /// Where the addresses are unique.
    pub network: String,
    /// The pool.
    pub pool: String,
    /// The addresses: a block, or one alone.
    pub run: Run,
}

/// What each node of a name has, by the node's UID.
#[must_use]
pub fn holdings_of<'a>(shards: impl IntoIterator<Item = &'a IpLedgerShardSpec>, node: &str) -> BTreeMap<String, Vec<Holding>> {
    let mut found: BTreeMap<String, Vec<Holding>> = BTreeMap::new();
    for shard in shards {
        for (place, cell) in cells(shard) {
            let of = |pool: &str, run: Run| Holding { network: shard.network.clone(), pool: pool.to_owned(), run };
            if cell.node == node && matches!(cell.state, CellState::Granted | CellState::Returning) {
                found.entry(cell.node_uid.clone()).or_default().push(of(&cell.pool, place.run()));
            }
            for (number, ip) in &cell.ips {
                let Some(address) = shared::address(&place, number) else { continue };
                for hold in ip.holds().filter(|hold| hold.node == node) {
                    found.entry(hold.node_uid.clone()).or_default().push(of(&ip.pool, Run::single(address)));
                }
            }
        }
    }
    found.values_mut().for_each(|all| all.sort());
    found
}
