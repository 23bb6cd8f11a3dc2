//! `IPLedgerShard`: which node has which block, of 64 blocks beside each other. Cluster-scoped; the operator's alone.
//!
//! An address belongs to one cell of one shard, and the API server lets one writer at a time change a shard: so no address
//! is granted twice, however many operators believe that they are the one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Owner;

/// How many cells a shard has.
pub const CELLS: u32 = 64;

/// Some blocks of one network and family. The one whose `base` is the whole family, and whose name ends with it, has no cells: it
/// says how large those of the network are, and is written first, so that no two shards can ever disagree about that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IpLedgerShardSpec {
    /// Where the addresses are unique.
    pub network: String,
    /// All addresses of this shard: `10.20.0.0/20`.
    pub base: String,
    /// The prefix length of its cells.
    pub cell_prefix: u8,
    /// Epochs of its cells begin above this one: a ledger that was deleted and made anew repeats none.
    pub first_epoch: u64,
    /// The latest version of a `CiliumNode` by which one of its addresses became free.
    #[serde(skip_serializing_if = "crate::is_zero")]
    pub seen_in: u64,
    /// Of the one that has no cells: the ledger was lost, and nothing of the network is granted until every node has told what it holds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gathering: bool,
    /// What of it is not free, by the cell's number from 0. A freed cell keeps its epoch.
    pub cells: BTreeMap<String, Cell>,
}

/// A block, as the ledger has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Cell {
    /// What it is.
    pub state: CellState,
    /// Of its last grant; a later one has a higher epoch.
    pub epoch: u64,
    /// Who has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The `metadata.uid` of that node.
    #[serde(rename = "nodeUID", skip_serializing_if = "String::is_empty")]
    pub node_uid: String,
    /// The pool for which it was granted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Of a shared cell: its addresses that are not free, by their number from 0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ips: BTreeMap<String, SharedIp>,
}

/// What a cell is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CellState {
    /// Nobody's.
    #[default]
    Free,
    /// One node's, all of it.
    Granted,
    /// A node has promised never to use it again; it is free when it has left the node's object.
    Returning,
    /// Single addresses of it are granted.
    Shared,
}

/// An address of a shared cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SharedIp {
    /// Which node may hand it out; none: it is kept for its owner, and no pod of it runs.
    #[serde(flatten)]
    pub hold: Hold,
    /// Another node that may, too, in a later life: the claim's pod migrates there, and both pods say so. When the first one has
    /// returned it, this one is the first. One without a node keeps the epoch of such a node that has returned it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<Hold>,
    /// The pool.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Who gets it; nobody: it is free and keeps its epoch.
    pub owner: Owner,
}

/// That a node may hand out an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hold {
    /// Which life of the address it is; without a node, which was the last.
    pub epoch: u64,
    /// Which node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The `metadata.uid` of that node.
    #[serde(rename = "nodeUID", skip_serializing_if = "String::is_empty")]
    pub node_uid: String,
    /// That node has promised never to use it again in this epoch; it is nobody's when it has left the node's object.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub returning: bool,
    /// No pod of its owner is on that node any more: the node is asked to return it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
    /// Of a `CiliumNode`'s address: what versions of that object up to this one say of it is of an earlier life.
    #[serde(skip_serializing_if = "crate::is_zero")]
    pub seen_in: u64,
}

// === impl SharedIp ===

impl SharedIp {
    /// Of the nodes that may hand it out, the one that has had it for longer first.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        std::iter::once(&self.hold).chain(&self.second).filter(|hold| !hold.node_uid.is_empty())
    }

    /// The same, to be changed.
    pub fn holds_mut(&mut self) -> impl Iterator<Item = &mut Hold> {
        std::iter::once(&mut self.hold).chain(&mut self.second).filter(|hold| !hold.node_uid.is_empty())
    }

    /// Whether any node may hand it out.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds().next().is_some()
    }

    /// The highest epoch that it has had.
    #[must_use]
    pub fn last_epoch(&self) -> u64 {
        self.second.as_ref().map_or(0, |second| second.epoch).max(self.hold.epoch)
    }
}
