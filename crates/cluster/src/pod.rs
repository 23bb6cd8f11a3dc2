//! A pod as the node's agent needs it, and how it is read from what the API server sends: everything else of the
//! object is skipped while it is read.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;

use crate::Labels;
use crate::cache::Limit;

/// The longest texts of a pod that are kept, in bytes. Usual ones have some hundred; an annotation may have 256 KiB.
const MAX_TEXTS: usize = 32 << 10;

/// What the texts of all pods of the node may have together, in bytes: those of 110 as long as may be. Of more the agent knows only that
/// they are there, and asks for each when it is attached.
const MOST: usize = 4 << 20;

/// Which pod: namespace, name and the UID that tells it from an earlier pod of that name. Shown as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodRef {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The UID that the API server gave it.
    pub uid: String,
}

/// A pod, less what nobody asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The UID that the API server gave it. A static pod's is its mirror's: the kubelet calls it by another one.
    pub uid: String,
    /// Whether its texts are here: labels, networks, claims and resources. One that is over or on its node's network has none in the
    /// cache, nor has one whose texts are too long, or of which there are too many: [`Cluster::fetch_pod`](crate::Cluster::fetch_pod)
    /// has them.
    pub is_whole: bool,
    /// Its labels.
    pub labels: Labels,
    /// The annotation [`npwg::NETWORKS`].
    pub networks: Option<String>,
    /// The annotation [`npwg::DEFAULT_NETWORK`].
    pub default_network: Option<String>,
    /// Whether it is a StatefulSet's and has the annotation [`npwg::STICKY`].
    pub sticky: bool,
    /// Whether it has the annotation [`npwg::MIGRATION`].
    pub migrates: bool,
    /// The annotation [`osvif::VIF_ANNOTATION`].
    pub vifs: Option<String>,
    /// What the annotation [`npwg::NETWORK_STATUS`] is now: its digest, as the text is only ever compared.
    pub status: Option<Digest>,
    /// Whether it comes from a file or a URL of its node: then the kubelet's UID for it is not [`uid`](Self::uid).
    pub is_static: bool,
    /// `spec.hostNetwork`: it has its node's network, and a runtime calls no plugin for it.
    pub host_network: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// The resource claims that its devices come from, in the order of the pod's `spec.resourceClaims`, and last the one
    /// that stands for extended resources.
    pub claims: Vec<PodClaim>,
    /// The extended resources (`vendor.example/name`) that its containers ask for: each once, in the order of the
    /// containers.
    pub requested: Vec<String>,
}

/// The digest of a text: two equal texts have equal ones, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(u64);

/// How far a pod is (`status.phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Phase {
    /// Accepted, not all containers run yet.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well, for good.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// Nobody knows, or it was not said.
    #[default]
    Unknown,
}

/// A ResourceClaim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaim {
    /// The ResourceClaim's name, in the pod's namespace.
    pub claim: String,
    /// Which requests of the claim stand for which extended resource: `None` if it is a claim that the pod names itself.
    pub extended: Option<Vec<ExtendedRequest>>,
}

/// An element of `status.extendedResourceClaimStatus.requestMappings`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedRequest {
    /// The extended resource that a container asked for.
    pub resource: String,
    /// The request in the claim that stands for it.
    pub request: String,
}

// === impl PodRef ===

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Digest ===

impl Digest {
    /// The digest of `text`.
    pub fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Digest(hasher.finish())
    }
}

// === impl Pod ===

impl Pod {
    /// How others refer to it.
    pub fn reference(&self) -> PodRef {
        PodRef { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.uid.clone() }
    }

    /// What all pods of a node may have of texts in the cache.
    pub(crate) const LIMIT: Limit<Arc<Pod>> =
        Limit { most: MOST, weight: |pod| pod.texts(), light: |pod| Arc::new(Pod::clone(pod).without_texts()) };

    /// What is kept of it in the cache.
    pub(crate) fn trimmed(self) -> Self {
        let over = matches!(self.phase, Phase::Succeeded | Phase::Failed);
        if over || self.host_network || self.texts() > MAX_TEXTS { self.without_texts() } else { self }
    }

    /// How long they are, in bytes; nothing where they are not here.
    fn texts(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        let requests = self.claims.iter().flat_map(|claim| claim.extended.iter().flatten());
        let requests: usize = requests.map(|request| request.resource.len() + request.request.len()).sum();
        let claims: usize = self.claims.iter().map(|claim| claim.claim.len()).sum();
        let requested: usize = self.requested.iter().map(String::len).sum();
        of(&self.networks) + of(&self.default_network) + of(&self.vifs) + labels + claims + requests + requested
    }

    fn without_texts(self) -> Self {
        let (networks, default_network, vifs) = (None, None, None);
        let (labels, claims, requested) = (Labels::default(), Vec::new(), Vec::new());
        Pod { is_whole: false, labels, networks, default_network, vifs, claims, requested, ..self }
    }

    /// Whether its network status is `text` already.
    pub fn has_status(&self, text: &str) -> bool {
        self.status == Some(Digest::of(text))
    }
}

/// What is read of a pod; the rest is skipped.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SeenPod {
    metadata: SeenMeta,
    #[serde(default)]
    spec: Option<SeenSpec>,
    #[serde(default)]
    status: Option<SeenStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenMeta {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    labels: Option<Labels>,
    annotations: Option<SeenAnnotations>,
    owner_references: Option<Vec<SeenOwner>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenOwner {
    kind: String,
    controller: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenAnnotations {
    #[serde(rename = "k8s.v1.cni.cncf.io/networks")]
    networks: Option<String>,
    #[serde(rename = "v1.multus-cni.io/default-network")]
    default_network: Option<String>,
    #[serde(rename = "k8s.v1.cni.cncf.io/network-status")]
    status: Option<String>,
    #[serde(rename = "kubernetes.io/config.source")]
    source: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<serde::de::IgnoredAny>,
    #[serde(rename = "netloom.io/sticky")]
    sticky: Option<String>,
    #[serde(rename = "netloom.io/migration")]
    migration: Option<String>,
    #[serde(rename = "openstack.org/kuryr-vif")]
    vifs: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenSpec {
    host_network: Option<bool>,
    init_containers: Option<Vec<SeenContainer>>,
    containers: Option<Vec<SeenContainer>>,
    resource_claims: Option<Vec<SeenClaim>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenContainer {
    resources: Option<SeenResources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenResources {
    limits: Option<BTreeMap<String, serde::de::IgnoredAny>>,
}

/// Both `spec.resourceClaims[]` and `status.resourceClaimStatuses[]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenClaim {
    name: String,
    resource_claim_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenStatus {
    phase: Option<String>,
    resource_claim_statuses: Option<Vec<SeenClaim>>,
    extended_resource_claim_status: Option<SeenExtended>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenExtended {
    resource_claim_name: String,
    request_mappings: Option<Vec<SeenMapping>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenMapping {
    resource_name: String,
    request_name: String,
}

// === impl SeenPod ===

impl SeenPod {
    pub(crate) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

impl From<SeenPod> for Pod {
    fn from(seen: SeenPod) -> Pod {
        let (meta, spec, status) = (seen.metadata, seen.spec.unwrap_or_default(), seen.status.unwrap_or_default());
        let notes = meta.annotations.unwrap_or_default();
        let of_set = |owner: &SeenOwner| owner.kind == "StatefulSet" && owner.controller == Some(true);
        let sticky = notes.sticky.as_deref() == Some("true") && meta.owner_references.iter().flatten().any(of_set);
        Pod {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            is_whole: true,
            labels: meta.labels.unwrap_or_default(),
            networks: notes.networks,
            default_network: notes.default_network,
            sticky,
            migrates: notes.migration.as_deref() == Some("true"),
            vifs: notes.vifs,
            status: notes.status.as_deref().map(Digest::of),
            is_static: notes.mirror.is_some() || notes.source.is_some_and(|source| source != "api"),
            host_network: spec.host_network.unwrap_or_default(),
            phase: phase(status.phase.as_deref()),
            deleting: meta.deletion_timestamp.is_some(),
            requested: requested(&spec),
            claims: claims(spec.resource_claims.unwrap_or_default(), status),
        }
    }
}

fn phase(text: Option<&str>) -> Phase {
    match text {
        Some("Pending") => Phase::Pending,
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        _ => Phase::Unknown,
    }
}

/// An extended resource can only be asked for with a limit, so limits say all.
fn requested(spec: &SeenSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().chain(&spec.containers).flatten();
    let names = containers.filter_map(|c| c.resources.as_ref()?.limits.as_ref()).flat_map(|limits| limits.keys());
    let mut found: Vec<String> = Vec::new();
    for name in names.filter(|name| name.contains('/')) {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

/// A claim made from a template has its name only in the status; one that was there before only in the specification.
fn claims(asked: Vec<SeenClaim>, status: SeenStatus) -> Vec<PodClaim> {
    let made = status.resource_claim_statuses.unwrap_or_default();
    let name_of = |claim: SeenClaim| {
        let made = || made.iter().find(|m| m.name == claim.name).and_then(|m| m.resource_claim_name.clone());
        claim.resource_claim_name.clone().or_else(made)
    };
    let own = asked.into_iter().filter_map(name_of).map(|claim| PodClaim { claim, extended: None });
    let mapped = |m: SeenMapping| ExtendedRequest { resource: m.resource_name, request: m.request_name };
    let extended = status.extended_resource_claim_status.map(|e| PodClaim {
        claim: e.resource_claim_name,
        extended: Some(e.request_mappings.unwrap_or_default().into_iter().map(mapped).collect()),
    });
    own.chain(extended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Pod {
        serde_json::from_str::<SeenPod>(text).unwrap().into()
    }

    #[test]
    fn static_pods_are_known_by_their_source() {
        for (annotation, is_static) in [
            (r#""kubernetes.io/config.source": "file""#, true),
            (r#""kubernetes.io/config.source": "http""#, true),
            (r#""kubernetes.io/config.source": "api""#, false),
            (r#""kubernetes.io/config.mirror": "d3b07384""#, true),
            (r#""kubernetes.io/config.hash": "d3b07384""#, false),
        ] {
            assert_eq!(pod(&format!(r#"{{"metadata": {{"annotations": {{{annotation}}}}}}}"#)).is_static, is_static, "{annotation}");
        }
    }

    #[test]
    fn claims_come_in_the_pods_order_and_the_one_for_extended_resources_last() {
        let pod = pod(r#"{"metadata": {"name": "p"},
            "spec": {"hostNetwork": true, "resourceClaims": [{"name": "z", "resourceClaimTemplateName": "t"}, {"name": "a", "resourceClaimName": "own"},
                {"name": "y", "resourceClaimTemplateName": "not yet made"}],
              "initContainers": [{"name": "i", "resources": {"limits": {"a.io/x": "1", "memory": "1Gi"}}}],
              "containers": [{"name": "c"}, {"name": "d", "resources": {"limits": {"b.io/y": 2, "a.io/x": 1}, "requests": null}}]},
            "status": {"phase": "Running", "resourceClaimStatuses": [{"name": "a"}, {"name": "z", "resourceClaimName": "made"}],
              "extendedResourceClaimStatus": {"resourceClaimName": "ext",
                "requestMappings": [{"containerName": "d", "resourceName": "b.io/y", "requestName": "r0"}]}}}"#);
        let plain = |claim: &str| PodClaim { claim: claim.to_owned(), extended: None };
        let request = ExtendedRequest { resource: "b.io/y".to_owned(), request: "r0".to_owned() };
        let extended = PodClaim { claim: "ext".to_owned(), extended: Some(vec![request]) };
        assert_eq!(pod.claims, [plain("made"), plain("own"), extended]);
        assert_eq!(pod.requested, ["a.io/x", "b.io/y"]);
        assert_eq!((pod.phase, pod.host_network, pod.deleting), (Phase::Running, true, false));
    }

    #[test]
    fn texts_that_nobody_needs_or_that_are_too_long_are_not_kept() {
        let of = |phase: &str, host_network: bool, bytes: usize| {
            let text = "x".repeat(bytes);
            let pod = pod(&format!(
                r#"{{"metadata": {{"name": "p", "uid": "u", "labels": {{"app": "web"}},
                    "annotations": {{"k8s.v1.cni.cncf.io/networks": "{text}", "k8s.v1.cni.cncf.io/network-status": "s"}}}},
                "spec": {{"hostNetwork": {host_network}, "containers": [{{"resources": {{"limits": {{"a.io/x": "1"}}}}}}]}},
                "status": {{"phase": "{phase}"}}}}"#
            ));
            pod.trimmed()
        };
        for (phase, host_network, bytes, is_whole) in [
            ("Running", false, 1000, true),
            ("Pending", false, 1000, true),
            ("Running", false, MAX_TEXTS, false),
            ("Failed", false, 10, false),
            ("Succeeded", false, 10, false),
            ("Running", true, 10, false),
        ] {
            let pod = of(phase, host_network, bytes);
            assert_eq!(
                (pod.is_whole, pod.networks.is_some(), pod.labels.len()),
                (is_whole, is_whole, usize::from(is_whole)),
                "{phase} {bytes}"
            );
            assert_eq!(pod.texts() > 0, is_whole);
            assert!(pod.uid == "u" && pod.has_status("s") && pod.host_network == host_network, "what others ask for stays: {pod:?}");
        }
    }

    #[test]
    fn a_pod_without_anything_is_read() {
        let empty = pod(
            r#"{"metadata": {"annotations": null, "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": null, "status": {"phase": "New"}}"#,
        );
        assert_eq!((empty.phase, empty.deleting, empty.networks, empty.status), (Phase::Unknown, true, None, None));
    }
}
