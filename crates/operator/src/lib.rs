//! The cluster's controller: it grants blocks of IPPools to nodes, and with [`Options::openstack`] gives pods their ports of Neutron (`ports`).
//!
//! ```text
//!   API server --list, watch--> follow: Nodes, IPPools, NodeIPPools, IPLedgerShards --> Seen (a ledger::Snapshot)
//!                                                                                         | ledger::step
//!                                                                                         v
//!   API server <--each with the version that was read-- carry: writes --answers--> Seen, and again until nothing is to be written
//! ```
//!
//! With [`Options::cilium_nodes`] the nodes' CiliumNodes are filled in the same way, each address by itself.
//! Ranges of NetworkAttachmentDefinitions that were made for whereabouts become IPPools first (`definitions`).
//!
//! Nothing is written before all four lists were read, as they were at one moment or later, and taken in. Nothing that matters is kept
//! here: an operator that starts knows as much as the one that was killed. A Lease keeps two of them from doing the same work; that they
//! do no harm to each other is the API server's doing, which lets one writer at a time change an object.

mod agents;
mod apply_write;
mod check;
mod cilium_nodes;
mod claims;
mod configs;
mod confirm;
mod defined;
mod definitions;
mod export;
mod follow;
mod gone;
mod health;
mod import;
mod lease;
mod metrics;
mod options;
mod ports;
mod reclaim;
mod refused;
mod run;
mod store;
mod stored;
mod taken;
mod tombstones;

pub use check::{CheckError, Finding, OfTwo, check, check_by};
use daemon::log;
pub use daemon::log::Level as LogLevel;
pub use export::{Exported, export, export_by};
pub use import::{ImportError, Imported, import, import_by};
pub use options::Options;
pub use ports::{
    Adoption, LookError, NeutronPort, NeutronRule, OpenStack, OpenStackError, Orphan, OwnedPort, PoolSeen, PortsSeen, Right, adopt,
    delete_orphans, delete_ready, look, rights,
};
pub use reclaim::{Life, Reclaim, ReclaimError, Says, reclaim, reclaim_by, what_to_reclaim, what_to_reclaim_by};
pub use run::{RunError, Running, run, start};
