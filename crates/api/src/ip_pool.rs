//! `IPPool`: addresses that pods of a network get, and how.

use serde::{Deserialize, Serialize};

use crate::{LabelSelector, Metadata};

/// A pool. Whoever administers the cluster writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpPool {
    /// [`crate::API_VERSION`]
    #[serde(default)]
    pub api_version: String,
    /// `IPPool`
    #[serde(default)]
    pub kind: String,
    /// Its name.
    #[serde(default)]
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: IpPoolSpec,
    /// What is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<IpPoolStatus>,
}

/// What is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct IpPoolSpec {
    /// Where an address is unique: pools of one network share their addresses, pools of two networks may have the same. The
    /// pool's own name where it is empty.
    pub network: String,
    /// IPv4 addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<IpPoolFamily>,
    /// IPv6 addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<IpPoolFamily>,
    /// Never handed out: `10.0.0.0/28`, `10.0.0.10-10.0.0.20`, `10.0.0.7`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Handed out to claims only, which ask for an address by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<String>,
    /// Whether the first address of a `cidr` is handed out.
    #[serde(rename = "allowFirstIP")]
    pub allow_first_ip: bool,
    /// Whether the last one is.
    #[serde(rename = "allowLastIP")]
    pub allow_last_ip: bool,
    /// How much of it a node keeps.
    pub scaling: Scaling,
    /// When an address that was given back is handed out again.
    pub reuse: Reuse,
    /// How a machine outside that has an address of the pool is found out.
    #[serde(skip_serializing_if = "ConflictDetection::is_off")]
    pub conflict_detection: ConflictDetection,
    /// When the addresses of a deleted node are free.
    pub reclaim: Reclaim,
    /// Which pods get addresses of it where their network's configuration names no pool; where it is missing, and
    /// [`IpPoolSpec::namespace_selector`] as well, none. A host that has the pool in a file does not ask, here and in the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Pods of which namespaces get addresses of it so; where both are there, both have to take the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Which nodes may have blocks of it; every one where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
}

/// The addresses of one family.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct IpPoolFamily {
    /// Which.
    pub entries: Vec<Entry>,
    /// The prefix length of a block, the unit in which nodes get them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_prefix: Option<u8>,
    /// The prefix length that an interface gets; that of the first `cidr` where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<u8>,
    /// The network's gateway, which is never handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

/// Some addresses, in one of three ways.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// A network: `10.20.0.0/16`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
    /// From an address to another: `10.30.0.10-10.30.0.99`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// One address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// How much of a pool a node keeps, under the names that Cilium has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Scaling {
    /// At least this many addresses.
    pub min_allocate: u64,
    /// This many that no pod has.
    pub pre_allocate: u64,
    /// At most this many; 0: any number.
    pub max_allocate: u64,
    /// This many more may stay before some are given back.
    pub max_above_watermark: u64,
    /// For how many seconds a block must have been too many before it is given back.
    pub release_delay_seconds: u64,
    /// At most this many that no pod has, as fast as pods come; none where no pod has come for some minutes.
    #[serde(skip_serializing_if = "crate::is_zero")]
    pub max_stock: u64,
}

impl Default for Scaling {
    fn default() -> Self {
        Scaling { min_allocate: 0, pre_allocate: 8, max_allocate: 0, max_above_watermark: 0, release_delay_seconds: 180, max_stock: 0 }
    }
}

/// When an address that was given back is handed out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Reuse {
    /// Not before this many seconds.
    pub cooldown_seconds: u64,
    /// Which comes next.
    pub order: ReuseOrder,
}

impl Default for Reuse {
    fn default() -> Self {
        Reuse { cooldown_seconds: 30, order: ReuseOrder::Fifo }
    }
}

/// Which address comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReuseOrder {
    /// One that nobody had yet, then the one that was given back first.
    #[default]
    Fifo,
    /// The lowest one.
    Lowest,
    /// Any.
    Random,
}

/// How a machine outside that has an address of the pool is found out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConflictDetection {
    /// Not at all: the pool's addresses are nobody else's.
    #[default]
    Off,
    /// The network is asked before an address is set on an interface (RFC 5227, RFC 4862).
    Probe,
    /// Nobody is asked: the node's agent listens, as long as it runs.
    Passive,
}

impl ConflictDetection {
    /// Whether nothing is done.
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == ConflictDetection::Off
    }
}

/// When the addresses of a deleted node are free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reclaim {
    /// After a time in which the node might still be seen.
    #[default]
    AfterGrace,
    /// When a person says so.
    Manual,
}

/// What is so, in a cluster. The operator writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IpPoolStatus {
    /// The `metadata.generation` of which this tells.
    pub observed_generation: i64,
    /// Of IPv4; missing: the pool has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<IpPoolUse>,
    /// Of IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<IpPoolUse>,
    /// `Ready`, `Exhausted`, `Overlap`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How much of a family is used. Numbers beyond 2^64 are as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IpPoolUse {
    /// How many addresses there are to be handed out.
    pub capacity: String,
    /// In blocks of nodes.
    pub granted: u64,
    /// Of them in use, as the nodes said last.
    pub in_use: u64,
}

/// A condition as Kubernetes has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word for programs.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The `metadata.generation` of which it tells.
    pub observed_generation: i64,
    /// Since when, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_transition_time: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_as_it_is_written() {
        let text = r#"{"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "storage-a", "uid": "x"}, "spec": {
            "network": "storage",
            "ipv4": {"entries": [{"cidr": "10.20.0.0/16"}, {"range": "10.30.0.10-10.30.0.99"}, {"ip": "192.0.2.7"}], "gateway": "10.20.0.1"},
            "exclude": ["10.20.0.0/28"], "allowFirstIP": true, "reuse": {"cooldownSeconds": 5, "order": "lowest"}}}"#;
        let pool: IpPool = serde_json::from_str(text).unwrap();
        let v4 = pool.spec.ipv4.as_ref().unwrap();
        assert_eq!((pool.metadata.name.as_str(), v4.entries.len()), ("storage-a", 3));
        assert_eq!(
            (pool.spec.reuse.order, pool.spec.scaling.pre_allocate, pool.spec.reclaim),
            (ReuseOrder::Lowest, 8, Reclaim::AfterGrace)
        );
        let again: IpPool = serde_json::from_str(&serde_json::to_string(&pool).unwrap()).unwrap();
        assert_eq!(again, pool);
    }

    #[test]
    fn a_misspelt_key_is_no_key() {
        let refused = serde_json::from_str::<IpPool>(r#"{"spec": {"exlude": []}}"#).unwrap_err().to_string();
        assert!(refused.contains("unknown field `exlude`"), "{refused}");
    }
}
