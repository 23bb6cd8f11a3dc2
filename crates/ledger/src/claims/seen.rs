//! What was read of claims, of the pods that name them, and of the definitions that say of which pool they are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{IpamClaimSpec, IpamClaimStatus};
use pool::Family;

use super::Why;

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Whether each kind of it was listed. Until then no claim is looked at.
    pub complete: bool,
    /// Claims, by `namespace/name`.
    pub claims: BTreeMap<String, ClaimSeen>,
    /// UIDs of claims that are known to be no more, of those that [`crate::Step::missing_claims`] has named: somebody asked, and the answer
    /// was no.
    pub gone: BTreeSet<String>,
    /// Pods that name a claim, or keep their addresses without, by `namespace/name`.
    pub pods: BTreeMap<String, PodSeen>,
    /// Definitions, by `namespace/name`.
    pub definitions: BTreeMap<String, DefinitionSeen>,
    /// How many pods a StatefulSet has, and the number of the first, by UID.
    pub sets: BTreeMap<String, (u64, u64)>,
}

/// An IPAMClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimSeen {
    /// `metadata.resourceVersion`
    pub version: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.generation`
    pub generation: i64,
    /// `metadata.creationTimestamp`
    pub created: String,
    /// Whether somebody has deleted it.
    pub deleting: bool,
    /// Whether it has [`crate::FINALIZER`].
    pub finalizer: bool,
    /// The StatefulSet's UID and the pod's number in it, where the claim was made for that pod and goes when the set shrinks.
    pub shrinks_with: Option<(String, u64)>,
    /// What is wanted.
    pub spec: IpamClaimSpec,
    /// What was told last.
    pub status: IpamClaimStatus,
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSeen {
    /// `metadata.creationTimestamp`
    pub created: String,
    /// `spec.nodeName`; empty: it is nowhere yet.
    pub node: String,
    /// Whether all its containers have ended for good.
    pub over: bool,
    /// Whether it says that it may have its claims' addresses at the same time as another pod that says so: one of the two migrates.
    pub migrates: bool,
    /// The claims that it names, `namespace/name`.
    pub claims: Vec<String>,
    /// The claims that are made for it.
    pub auto: Vec<AutoClaim>,
}

/// A claim that is made for a StatefulSet's pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutoClaim {
    /// `namespace/name`
    pub name: String,
    /// The definition, `namespace/name`.
    pub definition: String,
    /// The interface, or its number as `net1`.
    pub interface: String,
    /// The StatefulSet, as name and UID: the claim is deleted with it.
    pub set: (String, String),
    /// The pod's number in it, where the claim goes when the set has no pod of that number any more.
    pub shrinks: Option<u64>,
}

/// A NetworkAttachmentDefinition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionSeen {
    /// Its network's name.
    pub network: String,
    /// Where its addresses come from; or why not from a pool.
    pub source: Result<Source, String>,
}

/// Where a network's addresses come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The pools: one address of each family of each.
    pub pools: Vec<String>,
    /// Only of these families; of all where it is empty.
    pub families: Vec<Family>,
}

// === impl Claims ===

impl Claims {
    /// Where a claim's addresses come from. Its network is a definition's network of its namespace, as whoever makes claims for virtual
    /// machines says it, or a definition, `name` or `namespace/name`.
    pub(crate) fn source(&self, claim: &str, network: &str) -> Result<&Source, Why> {
        let namespace = claim.split_once('/').map_or("", |(namespace, _)| namespace);
        let here = self.definitions.iter().filter(|(name, _)| name.split_once('/').is_some_and(|(n, _)| n == namespace));
        let named = here.map(|(_, seen)| seen).find(|seen| seen.network == network && seen.source.is_ok());
        let full = if network.contains('/') { network.to_owned() } else { format!("{namespace}/{network}") };
        let Some(found) = named.or_else(|| self.definitions.get(&full)) else {
            let text = format!(
                "spec.network: {network:?} is the network of no NetworkAttachmentDefinition of namespace {namespace}, nor the name of one"
            );
            return Err(("NetworkUnknown", text));
        };
        found.source.as_ref().map_err(|why| ("NetworkWithoutPool", format!("spec.network: {network:?}: {why}")))
    }
}

// === impl AutoClaim ===

impl AutoClaim {
    /// What the claim says.
    #[must_use]
    pub fn spec(&self) -> IpamClaimSpec {
        IpamClaimSpec { network: self.definition.clone(), interface: self.interface.clone(), ip_requests: Vec::new() }
    }
}

/// An address that a claim asks for or has: with a prefix length or without, host bits kept.
#[must_use]
pub fn claim_address(text: &str) -> Option<IpAddr> {
    text.split_once('/').map_or(text, |(address, _)| address).parse::<IpAddr>().ok().map(|address| address.to_canonical())
}
