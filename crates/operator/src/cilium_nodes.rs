//! CiliumNodes, as they are read and written.

use std::collections::BTreeMap;

use api::{CILIUM_VERSION, CiliumNodeSpec, CiliumNodeStatus, FILLED_BY, Release, Scaling};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use ledger::CiliumNodeSeen;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The path of all of them.
pub(crate) const PATH: &str = "/apis/cilium.io/v2/ciliumnodes";

/// What a request for all of them asks for.
pub(crate) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("cilium.io", "v2", "CiliumNode"), "ciliumnodes")
}

/// What tells one from the NodeIPPool of the same name: no object's name has a slash.
pub(crate) fn key(name: &str) -> String {
    format!("CiliumNode/{name}")
}

pub(crate) fn node(version: String, object: &DynamicObject) -> CiliumNodeSeen {
    let meta = &object.metadata;
    let (uid, node_uid) = (meta.uid.clone().unwrap_or_default(), owner(meta.owner_references.as_deref().unwrap_or_default()));
    // What is not understood is another thing than what is not there.
    let parts = part::<CiliumNodeSpec>(&object.data, "spec").zip(part::<CiliumNodeStatus>(&object.data, "status"));
    let seen = match parts {
        Some((spec, status)) => CiliumNodeSeen::read(spec.ipam, status.ipam),
        None => CiliumNodeSeen { unreadable: true, ..CiliumNodeSeen::default() },
    };
    CiliumNodeSeen { version, uid, node_uid, ..seen }
}

/// The UID of the Node among those that own an object.
fn owner(owners: &[OwnerReference]) -> String {
    owners.iter().find(|owner| owner.kind == "Node").map(|owner| owner.uid.clone()).unwrap_or_default()
}

fn part<T: DeserializeOwned + Default>(data: &Value, key: &str) -> Option<T> {
    match data.get(key) {
        None | Some(Value::Null) => Some(T::default()),
        Some(part) => serde_json::from_value(part.clone()).ok(),
    }
}

fn node_owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid})
}

/// One that has no addresses yet.
pub(crate) fn made(name: &str, node_uid: &str, wants: &Scaling) -> Value {
    let counts = [
        ("min-allocate", wants.min_allocate),
        ("pre-allocate", wants.pre_allocate),
        ("max-allocate", wants.max_allocate),
        ("max-above-watermark", wants.max_above_watermark),
    ];
    let mut ipam: Map<String, Value> = counts.into_iter().filter(|(_, n)| *n > 0).map(|(key, n)| (key.to_owned(), n.into())).collect();
    ipam.insert("pool".to_owned(), json!({}));
    ipam.insert("filled-by".to_owned(), FILLED_BY.into());
    let metadata = json!({"name": name, "ownerReferences": [node_owner(name, node_uid)]});
    json!({"apiVersion": CILIUM_VERSION, "kind": "CiliumNode", "metadata": metadata, "spec": {"ipam": ipam}})
}

/// The change of a pool, as a merge patch that names nothing else; with the Node as one more owner where that is missing.
pub(crate) fn pooled(name: &str, version: &str, node_uid: Option<&str>, owners: &[OwnerReference], pool: &BTreeMap<String, bool>) -> Value {
    let metadata = match node_uid {
        None => json!({"resourceVersion": version}),
        Some(uid) => {
            let all: Vec<Value> = owners.iter().map(|owner| json!(owner)).chain([node_owner(name, uid)]).collect();
            json!({"resourceVersion": version, "ownerReferences": all})
        }
    };
    let pool: Map<String, Value> = pool.iter().map(|(key, there)| (key.clone(), if *there { json!({}) } else { Value::Null })).collect();
    json!({"metadata": metadata, "spec": {"ipam": {"pool": pool, "filled-by": FILLED_BY}}})
}

/// The change of a status, as a merge patch that names nothing else.
pub(crate) fn released(version: &str, release: &BTreeMap<String, Option<Release>>) -> Value {
    json!({"metadata": {"resourceVersion": version}, "status": {"ipam": {"release-ips": release}}})
}
