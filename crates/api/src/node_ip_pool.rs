//! `NodeIPPool`: what one node was granted of all pools, and what it needs. Its name is the node's; cluster-scoped.
//!
//! ```text
//!   spec     the operator's alone: which blocks and addresses the node may hand out, and on what terms
//!   status   the agent's alone: how much it needs, and what it gives back
//! ```
//!
//! Each field has one writer. What is here has been entered in the ledger ([`crate::IpLedgerShard`]) before.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ConflictDetection, LabelSelector, Reuse, Scaling};

/// The most blocks of one family of a pool that a node gets: it could not tell of more of them that it gives them back.
pub const MOST_BLOCKS: u64 = 4096;

/// What a node was granted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeIpPoolSpec {
    /// The `metadata.uid` of the node: one that was made anew under the same name is another one.
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// Whole blocks.
    pub blocks: Vec<GrantedBlock>,
    /// Single addresses, of claims and of pods that bring theirs.
    pub ips: Vec<GrantedIp>,
    /// The terms of each pool that this node may use, by name: also of those of which it has nothing yet.
    pub pools: BTreeMap<String, GrantedPool>,
    /// The Node was deleted: the agent assigns nothing, and what is here is free when the agent has written no status for this many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_after_seconds: Option<u64>,
}

/// Addresses that a node may hand out.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrantedBlock {
    /// The addresses: `10.20.0.192/26`.
    pub cidr: String,
    /// Where they are unique.
    pub network: String,
    /// The pool.
    pub pool: String,
    /// Which life of this block it is. A block that was given back comes again with a higher one only.
    pub epoch: u64,
}

/// One address that a node may hand out, to its owner alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrantedIp {
    /// The address: `10.20.1.5`.
    pub ip: String,
    /// Where it is unique.
    pub network: String,
    /// The pool.
    pub pool: String,
    /// As [`GrantedBlock::epoch`].
    pub epoch: u64,
    /// Who gets it.
    pub owner: Owner,
    /// The operator wants it back: the node returns it as soon as nobody has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
    /// The name of another node that has it as well, while the claim's pod migrates from one to the other.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub also: String,
}

/// Who gets an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    /// An IPAMClaim, `namespace/name`: whichever pod names it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// The claim's `metadata.uid`.
    #[serde(rename = "claimUID", skip_serializing_if = "String::is_empty")]
    pub claim_uid: String,
    /// Of the pods that name the claim those alone that say that they migrate: then two nodes may have the address at the same time.
    /// Without it those alone that do not say so. It stays as it is for the whole life of the address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub migrates: bool,
    /// A pod, `namespace/name`, where there is no claim.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// A node, by the name of its `CiliumNode`, in which the address stands for any of its pods; never in a `NodeIPPool`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cilium_node: String,
    /// The attachment that has it already, of a pod that lived when its addresses were brought here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Holder>,
}

/// An attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Holder {
    /// The container's ID: `CNI_CONTAINERID`.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface: `CNI_IFNAME`.
    pub ifname: String,
}

/// A pool's terms, as far as a node needs them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrantedPool {
    /// Where an address is unique.
    pub network: String,
    /// What an IPv4 address comes with; missing: the pool has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<GrantedFamily>,
    /// The same for IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<GrantedFamily>,
    /// Never handed out: what of this node's blocks the pool excludes, has no entry for, or does not let out at the edges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Handed out to claims only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<String>,
    /// How much a node keeps.
    pub scaling: Scaling,
    /// When an address that was given back is handed out again.
    pub reuse: Reuse,
    /// How a machine outside that has an address is found out.
    #[serde(skip_serializing_if = "ConflictDetection::is_off")]
    pub conflict_detection: ConflictDetection,
    /// Which pods get addresses of it where their network's configuration names no pool, by their labels; with neither of the two it is
    /// for nobody who does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// The same by the labels of the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// The pool is being deleted: nothing is handed out, who has an address keeps it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
}

/// What an address of a family comes with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrantedFamily {
    /// The prefix length that an interface gets.
    pub prefix_length: u8,
    /// The network's gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The prefix length of a block: demand is counted in whole ones.
    pub block_prefix: u8,
    /// So many blocks at the most, as pods of other nodes wait and nothing is left: what nobody uses above them goes back at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<u64>,
}

/// What a node needs and gives back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeIpPoolStatus {
    /// The `metadata.generation` of the object whose spec the agent has on its disk.
    pub observed_generation: i64,
    /// Which agent says this.
    pub agent: AgentIdentity,
    /// The node has one pool of its CiliumNode, and says there what it has of that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cilium_node: bool,
    /// How many addresses the node needs, of each pool. Written when a number of whole blocks changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub demand: Vec<Demand>,
    /// Blocks of which nobody has anything and that this node will never use again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub returning: Vec<Returning>,
    /// Blocks of which somebody has something here yet, and that the spec does not name: a Node that was deleted and made anew while
    /// its pods lived on gets them again, and so does one whose object was lost with the ledger. Only once an agent has said what it holds
    /// is the rest free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holding: Vec<Holding>,
    /// Addresses that another machine answers for, or was heard with; at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// When the agent said last that something is in use here while its Node is gone (RFC 3339), by its own clock. It is compared with
    /// nobody else's: that it changes is what counts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alive_at: String,
}

/// Which agent it is. Two that call themselves by one node's name differ in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentIdentity {
    /// Of its journal: another one knows nothing of what was handed out.
    #[serde(rename = "storeID")]
    pub store_id: String,
    /// Of the machine.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Of the machine's start.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// Of the process.
    pub instance: String,
}

/// How much of a pool a node needs. A function of what is in use, and of nothing else.
///
/// It is counted in whole blocks, as the ledger has them. What nobody can get of the node's blocks (exclusions, gateways, edges, what
/// the pool has no entry for) counts as in use here, or a node whose block has one address of the pool would never get a second one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Demand {
    /// The pool.
    pub pool: String,
    /// So many IPv4 addresses, in whole blocks; no more than [`MOST_BLOCKS`] of them.
    pub v4: u64,
    /// So many IPv6 addresses.
    pub v6: u64,
    /// Of them in use when this was written.
    pub in_use_v4: u64,
    /// The same of IPv6.
    pub in_use_v6: u64,
    /// In so many blocks attachments had something when this was written: none of these can be given back.
    #[serde(skip_serializing_if = "crate::is_zero")]
    pub blocks_v4: u64,
    /// The same of IPv6.
    #[serde(skip_serializing_if = "crate::is_zero")]
    pub blocks_v6: u64,
    /// Of the IPv4 addresses so many are for pods to come: they are granted last, and none where little is left.
    #[serde(skip_serializing_if = "crate::is_zero")]
    pub stock_v4: u64,
    /// The same of IPv6.
    #[serde(skip_serializing_if = "crate::is_zero")]
    pub stock_v6: u64,
    /// Pods waited for addresses of it when this was written: the node comes before others that have some in store.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waiting: bool,
}

/// A block that a node gives back.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Returning {
    /// The addresses; one alone as `10.20.1.5/32`.
    pub cidr: String,
    /// The pool.
    pub pool: String,
    /// Of which life.
    pub epoch: u64,
}

/// A block of which a node has something yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Holding {
    /// The addresses; one alone as `10.20.1.5/32`.
    pub cidr: String,
    /// Where they are unique. The pool may be another one's by now, or not there.
    pub network: String,
    /// The pool.
    pub pool: String,
    /// Of which life.
    pub epoch: u64,
    /// Whose a single address is.
    #[serde(skip_serializing_if = "Owner::is_nobody")]
    pub owner: Owner,
    /// Who has which address of it; at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<AddressUser>,
}

/// An address that a pod has.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddressUser {
    /// The address.
    pub ip: String,
    /// The pod, `namespace/name`; of an attachment without one, its container's ID.
    pub pod: String,
}

/// An address that cannot be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Problem {
    /// Which.
    pub ip: String,
    /// The pool.
    pub pool: String,
    /// `Conflict`: another machine answers for it, or was heard with it.
    pub reason: String,
}

// === impl GrantedPool ===

impl GrantedPool {
    /// What an address of a family comes with, IPv4 or IPv6; `None`: the pool has none.
    #[must_use]
    pub fn family(&self, is_ipv4: bool) -> Option<&GrantedFamily> {
        if is_ipv4 { self.ipv4.as_ref() } else { self.ipv6.as_ref() }
    }
}

// === impl Demand ===

impl Demand {
    /// How many addresses of a family the node needs, IPv4 or IPv6.
    #[must_use]
    pub fn needed(&self, is_ipv4: bool) -> u64 {
        if is_ipv4 { self.v4 } else { self.v6 }
    }

    /// How many of them are in use.
    #[must_use]
    pub fn in_use(&self, is_ipv4: bool) -> u64 {
        if is_ipv4 { self.in_use_v4 } else { self.in_use_v6 }
    }

    /// How many of them are for pods to come.
    #[must_use]
    pub fn stock(&self, is_ipv4: bool) -> u64 {
        if is_ipv4 { self.stock_v4 } else { self.stock_v6 }
    }

    /// In how many blocks they lie.
    #[must_use]
    pub fn blocks(&self, is_ipv4: bool) -> u64 {
        if is_ipv4 { self.blocks_v4 } else { self.blocks_v6 }
    }
}

// === impl NodeIpPoolStatus ===

impl NodeIpPoolStatus {
    /// Whether an agent has told of all that it has. One that waits whether there is another one has told its name alone.
    #[must_use]
    pub fn is_told(&self) -> bool {
        !self.agent.instance.is_empty() && self.observed_generation > 0
    }
}

// === impl Owner ===

impl Owner {
    /// Whether it is nobody.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        *self == Owner::default()
    }
}
