//! IPAMClaims and what belongs to them, as they are read and written.

use api::{IpamClaimSpec, IpamClaimStatus};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use ledger::{AutoClaim, ClaimSeen, DefinitionSeen, FINALIZER, PodSeen};
use serde_json::{Value, json};

use crate::store::part;

/// Of a StatefulSet's pods that keep their addresses: `Delete`: a claim goes when the set has no pod of its number any more;
/// anything else: it stays for the pod that comes when the set grows again.
const RETENTION: &str = "netloom.io/sticky-retention";
/// On a claim that was made for a pod: which number the pod has in its set, if the claim goes with the number.
const ORDINAL: &str = "netloom.io/sticky-ordinal";

const GROUP: &str = "k8s.cni.cncf.io";
const PLURAL: &str = "ipamclaims";

/// What a request for all claims asks for.
pub(crate) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1alpha1", "IPAMClaim"), PLURAL)
}

/// The path of a namespace's claims.
pub(crate) fn path(namespace: &str) -> String {
    format!("/apis/{}/namespaces/{namespace}/{PLURAL}", api::CLAIM_VERSION)
}

/// What a claim is made with.
pub(crate) fn metadata(auto: &AutoClaim) -> Value {
    let (set, uid) = &auto.set;
    let (_, name) = auto.name.split_once('/').unwrap_or(("", &auto.name));
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": uid});
    let mut metadata = json!({"name": name, "ownerReferences": [owner], "finalizers": [FINALIZER]});
    if let (Some(ordinal), Some(metadata)) = (auto.shrinks, metadata.as_object_mut()) {
        metadata.insert("annotations".to_owned(), json!({ORDINAL: ordinal.to_string()}));
    }
    metadata
}

pub(crate) fn claim(version: String, object: &DynamicObject) -> ClaimSeen {
    let meta = &object.metadata;
    let sets = || meta.owner_references.iter().flatten().find(|owner| owner.kind == "StatefulSet");
    let ordinal = annotation(object, ORDINAL).and_then(|text| text.parse().ok());
    ClaimSeen {
        version,
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        created: created(object),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta.finalizers.iter().flatten().any(|f| f == FINALIZER),
        shrinks_with: ordinal.and_then(|ordinal| Some((sets()?.uid.clone(), ordinal))),
        spec: part::<IpamClaimSpec>(&object.data, "spec").unwrap_or_default(),
        status: part::<IpamClaimStatus>(&object.data, "status").unwrap_or_default(),
    }
}

/// What a definition says.
pub(crate) fn config(object: &DynamicObject) -> &str {
    object.data.pointer("/spec/config").and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn definition(name: &str, config: &str) -> DefinitionSeen {
    let (network, source) = ipam::source(config);
    let network = if network.is_empty() { name.to_owned() } else { network };
    DefinitionSeen { network, source }
}

/// How many pods a StatefulSet has, and the number of the first.
pub(crate) fn set(object: &DynamicObject) -> (u64, u64) {
    let number = |place: &str| object.data.pointer(place).and_then(Value::as_u64);
    (number("/spec/replicas").unwrap_or(1), number("/spec/ordinals/start").unwrap_or(0))
}

/// What [`set`] needs of one, and who it is.
pub(crate) fn trim_set(object: &mut DynamicObject) {
    let (replicas, start) = set(object);
    let ObjectMeta { name, namespace, uid, resource_version, .. } = std::mem::take(&mut object.metadata);
    object.metadata = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
    object.data = json!({"spec": {"replicas": replicas, "ordinals": {"start": start}}});
}

/// Whether a pod has anything to do with claims.
pub(crate) fn concerns(pod: &DynamicObject) -> bool {
    let names = annotation(pod, npwg::NETWORKS).is_some_and(|text| text.contains("ipam-claim-reference"));
    names || annotation(pod, npwg::STICKY) == Some("true")
}

pub(crate) fn pod(object: &DynamicObject) -> PodSeen {
    let meta = &object.metadata;
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let networks = annotation(object, npwg::NETWORKS).unwrap_or_default();
    // An annotation that is wrong fails the pod, and it claims nothing.
    let mut selections = npwg::parse(networks, namespace).unwrap_or_default();
    let sets = meta.owner_references.iter().flatten().find(|owner| owner.kind == "StatefulSet" && owner.controller == Some(true));
    let set = sets.filter(|_| annotation(object, npwg::STICKY) == Some("true"));
    let mut auto = Vec::new();
    if let Some(set) = set {
        let own: Vec<bool> = selections.iter().map(|s| s.ipam_claim.is_some() || !s.ips.is_empty()).collect();
        npwg::stick(name, &mut selections);
        let shrinks = (annotation(object, RETENTION) == Some("Delete")).then(|| ordinal(name)).flatten();
        for (i, (selection, _)) in selections.iter().zip(own).enumerate().filter(|(_, (_, own))| !own) {
            let interface = selection.interface.as_ref().map_or_else(|| format!("net{}", i + 1), ToString::to_string);
            auto.push(AutoClaim {
                name: format!("{namespace}/{}", selection.ipam_claim.as_deref().unwrap_or_default()),
                definition: selection.definition.to_string(),
                interface,
                set: (set.name.clone(), set.uid.clone()),
                shrinks,
            });
        }
    }
    let text = |place: &str| object.data.pointer(place).and_then(Value::as_str).unwrap_or_default();
    PodSeen {
        created: created(object),
        node: text("/spec/nodeName").to_owned(),
        migrates: annotation(object, npwg::MIGRATION) == Some("true"),
        over: ["Succeeded", "Failed"].contains(&text("/status/phase")),
        claims: selections.into_iter().filter_map(|s| s.ipam_claim).map(|claim| format!("{namespace}/{claim}")).collect(),
        auto,
    }
}

/// The number of a StatefulSet's pod.
fn ordinal(pod: &str) -> Option<u64> {
    pod.rsplit_once('-')?.1.parse().ok()
}

fn annotation<'a>(object: &'a DynamicObject, key: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn created(object: &DynamicObject) -> String {
    object.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default()
}
