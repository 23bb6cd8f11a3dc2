//! `CiliumNode`, group `cilium.io`, version `v2`: Cilium's object of one node, as far as its CRD-backed address management goes.
//! Its name is the node's; cluster-scoped.
//!
//! ```text
//!   spec.ipam.pool           what the node may hand out                     an operator's, ours or another's
//!   status.ipam.used         what is handed out, and to whom                the node's agent's
//!   status.ipam.release-ips  how an address is taken back, in four words    both write it, by turns
//! ```
//!
//! Cilium's own documentation calls two of them `available` and `inuse`; objects never had these names. What is not named here is
//! kept as it came (`rest`): who writes the status writes the whole object.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The group and version of [`CiliumNode`].
pub const CILIUM_VERSION: &str = "cilium.io/v2";

/// What our operator writes into `spec.ipam.filled-by`.
pub const FILLED_BY: &str = "netloom";

/// A node, as Cilium knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CiliumNode {
    /// All of it is the API server's.
    pub metadata: Map<String, Value>,
    /// The operator's.
    pub spec: CiliumNodeSpec,
    /// The agent's.
    pub status: CiliumNodeStatus,
    /// `apiVersion` and `kind`.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What an operator says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CiliumNodeSpec {
    /// Of addresses.
    #[serde(deserialize_with = "or_default")]
    pub ipam: CiliumIpamSpec,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What a node may hand out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct CiliumIpamSpec {
    /// The addresses, by what they are: `192.168.1.1`. As an extension `192.168.1.0/28` and `192.168.1.10-192.168.1.20`. Missing is
    /// less than empty: nobody has said anything yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<BTreeMap<String, CiliumAddress>>,
    /// The node has at least so many.
    #[serde(skip_serializing_if = "crate::is_zero", deserialize_with = "or_default")]
    pub min_allocate: u64,
    /// The node has at most so many; 0: any number.
    #[serde(skip_serializing_if = "crate::is_zero", deserialize_with = "or_default")]
    pub max_allocate: u64,
    /// So many that nobody uses; 0: the operator's default.
    #[serde(skip_serializing_if = "crate::is_zero", deserialize_with = "or_default")]
    pub pre_allocate: u64,
    /// This many more may stay before some are taken back.
    #[serde(skip_serializing_if = "crate::is_zero", deserialize_with = "or_default")]
    pub max_above_watermark: u64,
    /// Who fills the pool: [`FILLED_BY`], if that is our operator. It is none of Cilium's.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub filled_by: String,
    /// Of Cilium's other modes.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What belongs to an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct CiliumAddress {
    /// In the pool: the only pod that gets it, `namespace/name`. In `used`: who has it, a pod, `router` or `health`.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub owner: String,
    /// What the address hangs on, as the operator calls it: copied into `used`.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub resource: String,
}

/// What an agent says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CiliumNodeStatus {
    /// Of addresses.
    #[serde(deserialize_with = "or_default")]
    pub ipam: CiliumIpamStatus,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What a node has handed out, and what it gives back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct CiliumIpamStatus {
    /// Who has which address. Missing is less than empty: nobody has said anything yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<BTreeMap<String, CiliumAddress>>,
    /// How far each address is that is taken back.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_default")]
    pub release_ips: BTreeMap<String, Release>,
    /// How many pods waited for an address when this was written: they count as if they used one. Told to our operator alone.
    #[serde(skip_serializing_if = "crate::is_zero", deserialize_with = "or_default")]
    pub waiting: u64,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// How far an address is that is taken back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// The operator asks for it.
    MarkedForRelease,
    /// The agent has promised never to hand it out.
    ReadyForRelease,
    /// The agent needs it, or does not know it.
    DoNotRelease,
    /// The operator has taken it.
    Released,
    /// A word of a later version.
    #[serde(untagged)]
    Other(String),
}

/// `null` is what Go writes for what is not there.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

// === impl CiliumNode ===

impl CiliumNode {
    /// One that says nothing yet.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let own = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
        CiliumNode {
            metadata: own(&[("name", name)]),
            rest: own(&[("apiVersion", CILIUM_VERSION), ("kind", "CiliumNode")]),
            ..CiliumNode::default()
        }
    }

    /// A text of its metadata; empty where there is none.
    #[must_use]
    pub fn meta(&self, key: &str) -> &str {
        self.metadata.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_known_survives() {
        let object = json!({
            "apiVersion": "cilium.io/v2", "kind": "CiliumNode",
            "metadata": {"name": "k8s1", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {
                "addresses": [{"ip": "10.0.0.1", "type": "InternalIP"}], "eni": {}, "health": {"ipv4": "10.0.0.2"},
                "ipam": {
                    "pool": {"192.168.1.1": {}, "192.168.1.2": {"owner": "ns/pod", "resource": "eni-1"}},
                    "pre-allocate": 8, "podCIDRs": ["10.0.0.0/24"], "pools": {"requested": []},
                },
            },
            "status": {
                "eni": {"enis": {"x": 1}},
                "ipam": {
                    "used": {"192.168.1.1": {"owner": "router"}}, "operator-status": {"error": "x"},
                    "release-ips": {"192.168.1.2": "marked-for-release", "192.168.1.3": "a-later-word"},
                },
            },
        });
        let node: CiliumNode = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(node.spec.ipam.pool.as_ref().unwrap()["192.168.1.2"].owner, "ns/pod");
        assert_eq!((node.spec.ipam.pre_allocate, node.meta("resourceVersion")), (8, "7"));
        assert_eq!(node.status.ipam.release_ips["192.168.1.2"], Release::MarkedForRelease);
        assert_eq!(serde_json::to_value(&node).unwrap(), object);
    }

    #[test]
    fn nothing_and_null_are_the_same_but_for_the_pool() {
        let read = |ipam: Value| serde_json::from_value::<CiliumNode>(json!({"spec": {"ipam": ipam}})).unwrap().spec.ipam;
        assert_eq!(read(json!(null)), CiliumIpamSpec::default());
        assert_eq!(read(json!({"pool": null, "min-allocate": null})), CiliumIpamSpec::default());
        assert_eq!(read(json!({"pool": {}})).pool, Some(BTreeMap::new()));
        assert_eq!(read(json!({"pool": {"10.0.0.1": {"owner": null}}})).pool.unwrap()["10.0.0.1"], CiliumAddress::default());
    }
}
