//! The project's own Kubernetes objects, as plain types: what a manifest says, as it says it. Nothing is checked here but the
//! shape; who uses an object checks what it means.
//!
//! Group `netloom.io`, version `v1alpha1`. In what people write (`IPPool`) an unknown key is an error: a word that is misspelt must
//! not be a rule that is not kept. In what operator and agents tell each other unknown keys are skipped: either may be older.
//!
//! ```text
//!   IPPool          what exists                     a person writes it
//!   IPLedgerShard   which node has which block      the operator's, changed by compare-and-swap
//!   NodeIPPool      spec: what a node was granted   the operator's
//!                   status: what it needs           the node's agent's
//! ```
//!
//! Beside them stand Cilium's [`CiliumNode`], which says the same of a node in another way, and the multi-network standard's
//! `IPAMClaim` ([`IpamClaimSpec`]), which keeps addresses from one pod to the next.

mod cilium_node;
mod ip_ledger_shard;
mod ip_pool;
mod ipam_claim;
mod label_selector;
mod node_ip_pool;

pub use cilium_node::{
    CILIUM_VERSION, CiliumAddress, CiliumIpamSpec, CiliumIpamStatus, CiliumNode, CiliumNodeSpec, CiliumNodeStatus, FILLED_BY, Release,
};
pub use ip_ledger_shard::{CELLS, Cell, CellState, Hold, IpLedgerShardSpec, SharedIp};
pub use ip_pool::{
    Condition, ConflictDetection, Entry, IpPool, IpPoolFamily, IpPoolSpec, IpPoolStatus, IpPoolUse, Reclaim, Reuse, ReuseOrder, Scaling,
};
pub use ipam_claim::{CLAIM_VERSION, IpamClaimSpec, IpamClaimStatus, OwnerPod};
pub use label_selector::{LabelRequirement, LabelSelector};
pub use node_ip_pool::{
    AddressUser, AgentIdentity, Demand, GrantedBlock, GrantedFamily, GrantedIp, GrantedPool, Holder, Holding, MOST_BLOCKS, NodeIpPoolSpec,
    NodeIpPoolStatus, Owner, Problem, Returning,
};

use serde::{Deserialize, Serialize};

/// Whether a number need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The group and version of all of them.
pub const API_VERSION: &str = "netloom.io/v1alpha1";

/// The network of those pools that the cluster's own network assigns addresses of (`spec.network`). The pool of this name belongs to it
/// without saying so, as a pool's network has the pool's name by default.
pub const CLUSTER_NETWORK: &str = "default";

/// What every object has; the rest of it is the API server's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Its name.
    pub name: String,
}
