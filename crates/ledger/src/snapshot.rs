//! What was read, and what is to be written.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api::{IpLedgerShardSpec, IpPoolSpec, IpPoolStatus, IpamClaimStatus, NodeIpPoolSpec, NodeIpPoolStatus, Release};

use crate::{AutoClaim, Cilium, Claims, recover};

/// What keeps an IPPool from being gone while somebody has addresses of it.
pub const FINALIZER: &str = "netloom.io/blocks";

/// Everything that decides about blocks, as it was read last. Parts of it may be older than others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Nodes, by name.
    pub nodes: BTreeMap<String, NodeSeen>,
    /// Pools, by name.
    pub pools: BTreeMap<String, PoolSeen>,
    /// What nodes were granted, by the node's name.
    pub node_pools: BTreeMap<String, NodePoolSeen>,
    /// The ledger, by the shard's name.
    pub shards: BTreeMap<String, ShardSeen>,
    /// Nodes that are known to be no more, by UID: somebody asked, and the answer was no.
    pub gone: BTreeMap<String, Gone>,
    /// For how many seconds the agent of such a node may be silent, as it is told. `None`: it is told nothing, as the API server would not
    /// keep it.
    pub grace: Option<u64>,
    /// Ledgers that have been there, by the names of their roots: told by something that does not go with them.
    pub ledgers: BTreeSet<String>,
    /// Nodes that are no more and have had something of the ledger, their names by UID: told by what tells of [`Snapshot::ledgers`]. Where
    /// the ledger was lost, nothing else tells that their pods may run.
    pub departed: BTreeMap<String, String>,
    /// Nodes of which a person says that nothing runs any more, by UID, whether or not they are there.
    pub by_hand: BTreeSet<String>,
    /// What keeps addresses from one pod to the next.
    pub claims: Claims,
    /// The nodes' CiliumNodes, where one of the pools fills them.
    pub cilium: Cilium,
    /// Epochs of shards that are made now begin above this one. A number that grows, as the time does, lets a ledger that was lost
    /// begin above the old one; nothing depends on it while the ledger is there.
    pub first_epoch: u64,
}

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSeen {
    /// `metadata.uid`: a node that was made anew is another one.
    pub uid: String,
    /// `metadata.labels`
    pub labels: BTreeMap<String, String>,
}

/// An IPPool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSeen {
    /// `metadata.resourceVersion`
    pub version: String,
    /// `metadata.generation`
    pub generation: i64,
    /// `metadata.creationTimestamp`: the older of two pools comes first.
    pub created: String,
    /// Whether somebody has deleted it.
    pub deleting: bool,
    /// Whether it has [`FINALIZER`].
    pub finalizer: bool,
    /// What is wanted; or why it is no pool.
    pub spec: Result<IpPoolSpec, String>,
    /// What was told last.
    pub status: Option<IpPoolStatus>,
}

/// A NodeIPPool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePoolSeen {
    /// `metadata.resourceVersion`
    pub version: String,
    /// `metadata.uid`
    pub uid: String,
    /// What the node was granted.
    pub spec: NodeIpPoolSpec,
    /// What it needs.
    pub status: NodeIpPoolStatus,
    /// Whether a Node is among its owners, as earlier releases made it: it would be deleted with the Node, whatever runs there.
    pub owned: bool,
}

/// An IPLedgerShard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardSeen {
    /// `metadata.resourceVersion`
    pub version: String,
    /// What it says.
    pub spec: IpLedgerShardSpec,
}

/// What is known of a node that is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gone {
    /// It is not there. Its pods may run for a while.
    Confirmed,
    /// Nor has its agent written a status for the time that it has for that.
    GraceOver,
    /// A person says that nothing of it runs any more.
    ByHand,
}

/// A change of one object. The API server carries it out if the object has still the version that was read; a missing version
/// says that there must be none of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// A shard is made or replaced.
    Shard {
        /// Its name.
        name: String,
        /// The version that was read.
        version: Option<String>,
        /// All of it.
        spec: IpLedgerShardSpec,
    },
    /// A node's spec is made or replaced. No Node is among its owners afterwards.
    NodePool {
        /// The node's name.
        name: String,
        /// The version that was read.
        version: Option<String>,
        /// All of it.
        spec: NodeIpPoolSpec,
    },
    /// A NodeIPPool of a node that is no more is deleted.
    NodePoolGone {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// The version that was read.
        version: String,
    },
    /// A pool gets its finalizer, or loses it.
    Finalizer {
        /// The pool.
        pool: String,
        /// The version that was read.
        version: String,
        /// Which of the two.
        present: bool,
    },
    /// A claim of a pod that keeps its addresses is made.
    Claim {
        /// `namespace/name`
        name: String,
        /// Whose it is.
        auto: AutoClaim,
    },
    /// A claim of a pod that will not come again is deleted.
    ClaimGone {
        /// `namespace/name`
        name: String,
        /// Its UID.
        uid: String,
        /// The version that was read.
        version: String,
    },
    /// A claim gets its finalizer, or loses it.
    ClaimFinalizer {
        /// `namespace/name`
        name: String,
        /// The version that was read.
        version: String,
        /// Which of the two.
        present: bool,
    },
    /// A claim's status. A condition that has changed has no time yet.
    ClaimStatus {
        /// `namespace/name`
        name: String,
        /// The version that was read.
        version: String,
        /// All of it.
        status: IpamClaimStatus,
    },
    /// A CiliumNode is made, with the Node as its owner and no addresses yet.
    CiliumNode {
        /// The node's name.
        name: String,
        /// The UID of the Node.
        node_uid: String,
        /// How many addresses it should have.
        wants: api::Scaling,
    },
    /// Addresses come into the pool of a CiliumNode, or leave it.
    CiliumPool {
        /// The node's name.
        name: String,
        /// The version that was read.
        version: String,
        /// The UID of the Node that is to own it, where it says none.
        node_uid: Option<String>,
        /// By key: whether it is there afterwards.
        pool: BTreeMap<String, bool>,
    },
    /// How far addresses of a CiliumNode are on their way back.
    CiliumRelease {
        /// The node's name.
        name: String,
        /// The version that was read.
        version: String,
        /// By key; `None`: nothing is said of it any more.
        release: BTreeMap<String, Option<Release>>,
    },
    /// The CiliumNode of a node that is no more is deleted.
    CiliumNodeGone {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// The version that was read.
        version: String,
    },
    /// A pool's status. A condition that has changed has no time yet.
    PoolStatus {
        /// The pool.
        pool: String,
        /// The version that was read.
        version: String,
        /// All of it.
        status: IpPoolStatus,
    },
}

// === impl Snapshot ===

impl Snapshot {
    /// The UIDs of the Nodes that are there.
    pub(crate) fn uids(&self) -> HashSet<&str> {
        self.nodes.values().map(|node| node.uid.as_str()).collect()
    }

    /// Whether no ledger is missed that was there, or has to be told what it was: then it names all that nodes have, also those that
    /// are no more.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_there = |root: &String| self.shards.contains_key(root) || !recover::is_missed(self, root);
        !self.shards.values().any(|seen| seen.spec.gathering) && self.ledgers.iter().all(is_there)
    }
}

// === impl NodePoolSeen ===

impl NodePoolSeen {
    /// Whether the node was granted something, or holds something.
    pub(crate) fn has_something(&self) -> bool {
        !self.spec.blocks.is_empty() || !self.spec.ips.is_empty() || !self.status.holding.is_empty()
    }
}

// === impl Write ===

impl Write {
    /// The kind and the name of its object; with its namespace and `/` in front where it is in one.
    #[must_use]
    pub fn object(&self) -> (&'static str, &str) {
        match self {
            Write::Shard { name, .. } => ("IPLedgerShard", name),
            Write::NodePool { name, .. } | Write::NodePoolGone { name, .. } => ("NodeIPPool", name),
            Write::Finalizer { pool, .. } | Write::PoolStatus { pool, .. } => ("IPPool", pool),
            Write::Claim { name, .. }
            | Write::ClaimGone { name, .. }
            | Write::ClaimFinalizer { name, .. }
            | Write::ClaimStatus { name, .. } => ("IPAMClaim", name),
            Write::CiliumNode { name, .. }
            | Write::CiliumPool { name, .. }
            | Write::CiliumRelease { name, .. }
            | Write::CiliumNodeGone { name, .. } => ("CiliumNode", name),
        }
    }

    /// The verb, as in a role's rule.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Write::Shard { version: None, .. } | Write::NodePool { version: None, .. } | Write::Claim { .. } | Write::CiliumNode { .. } => {
                "create"
            }
            Write::NodePoolGone { .. } | Write::ClaimGone { .. } | Write::CiliumNodeGone { .. } => "delete",
            Write::Finalizer { .. } | Write::ClaimFinalizer { .. } | Write::CiliumPool { .. } | Write::CiliumRelease { .. } => "patch",
            _ => "update",
        }
    }
}
