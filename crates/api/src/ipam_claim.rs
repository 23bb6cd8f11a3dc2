//! `IPAMClaim`, group `k8s.cni.cncf.io`, version `v1alpha1`: addresses of an interface, kept as long as this object is there. The
//! multi-network standard's (S56 to S60); namespaced.

use serde::{Deserialize, Serialize};

use crate::Condition;

/// The group and version of an IPAMClaim.
pub const CLAIM_VERSION: &str = "k8s.cni.cncf.io/v1alpha1";

/// What is wanted. Whoever owns the workload writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IpamClaimSpec {
    /// The network that the addresses are of.
    pub network: String,
    /// The interface that has them.
    pub interface: String,
    /// Addresses that are wanted, with prefix length, at most one of each family.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_requests: Vec<String>,
}

/// What is so. The operator writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IpamClaimStatus {
    /// The addresses, with prefix length.
    pub ips: Vec<String>,
    /// The pod whose node may hand them out now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_pod: Option<OwnerPod>,
    /// `IPsAllocated`, `Delegated`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A pod of the claim's namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnerPod {
    /// Its name.
    pub name: String,
}
