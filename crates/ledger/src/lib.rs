//! Which node has which block of a cluster's addresses: what is to be written next, given what was read. No I/O, no clock.
//!
//! ```text
//!   World: nodes, IPPools, NodeIPPools, IPLedgerShards, each with its version
//!     | step
//!     v
//!   Step: writes, each of which the API server refuses if its object is not any more what was read
//!
//!   an address of a network lies in one cell of one shard; a cell:
//!
//!     Free --(1) shard--> Granted --(2) NodeIPPool.spec--> the node hands out its addresses
//!      ^                     |                              | freezes, tells by status.returning
//!      |                     v (3) shard                    v
//!      +----(5) shard--- Returning <--(4) out of NodeIPPool.spec
//! ```
//!
//! What stands in a node's spec follows from the ledger: [`step`] writes there what it has *read* in a shard, never what it means to
//! write into one. So a crash between any two of these writes leaves the ledger with at least what the nodes have, a later step goes on
//! from there, and it makes no difference who takes it. Several operators at once lose races, and nothing else.
//!
//! Where the ledger of a network was lost, nothing of that network is granted until every node has reported what it has.
//!
//! What a node has whose Node is gone is its own as long as its agent says that it lives: it is asked to in its object, which goes when it
//! was silent for long enough, and only then its cells are free.
//!
//! Four things are never done: a cell that is granted is not freed because a node does not mention it; nothing is freed because
//! something was not found; a block does not leave a node's spec unless the ledger was seen to be at least as new; and a cell that
//! any node's spec mentions is granted to nobody.

mod adopt;
mod audit;
mod check;
mod cilium;
mod claims;
mod demand;
mod grid;
mod holdings;
mod index;
mod order;
mod project;
mod rebalance;
mod recover;
mod runs;
mod shared;
mod size_budget;
mod snapshot;
mod status;
mod step;

pub use audit::{Violation, audit};
pub use check::{BLOCK_PREFIXES, InvalidKey, Pool, check, rates};
pub use cilium::{Cilium, CiliumNodeSeen, Pooled, added_addresses};
pub use claims::{ALLOCATED, AutoClaim, ClaimSeen, Claims, DELEGATED, DefinitionSeen, PodSeen, Source, claim_address};
pub use grid::{CellPosition, is_root_name, root_name};
pub use holdings::{Holding, holdings_of};
pub use project::added;
pub use recover::{is_lost, root_of};
pub use runs::pieces;
pub use shared::{SharedError, assign, delegate, delegate_for, join, recall, release, take_back};
pub use size_budget::{MOST_BYTES, MOST_SHARD_BYTES};
pub use snapshot::{FINALIZER, Gone, NodePoolSeen, NodeSeen, PoolSeen, ShardSeen, Snapshot, Write};
pub use status::{EXHAUSTED, GATHERING, OVERLAP, READY};
pub use step::{Step, Tally, step};

#[cfg(test)]
mod tests;
