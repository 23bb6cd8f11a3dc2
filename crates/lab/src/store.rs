//! What manifests say, as the API server would have it: an embedded store, which agents are asked to work from.

use objects::{PutError, Store};
use serde_json::{Map, Value, json};

use crate::manifest::{DefinitionManifest, Manifests, NodeManifest, PodManifest};

/// A store that holds what the manifests hold. `node` says where a pod is that names no node.
///
/// # Errors
/// [`PutError`] if the store refuses an object that the manifests' rules let pass.
pub fn store(manifests: &Manifests, node: impl Fn(&PodManifest) -> String) -> Result<Store, PutError> {
    let store = Store::new();
    store.install_network_attachment_definitions();
    for object in manifests.nodes.iter().map(of_node).chain(manifests.definitions.iter().map(of_definition)) {
        store.put(&object)?;
    }
    for pod in &manifests.pods {
        store.put(&of_pod(pod, &node(pod)))?;
    }
    Ok(store)
}

fn of_node(node: &NodeManifest) -> Value {
    let addresses: Vec<Value> = node.addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node.name, "annotations": node.annotations},
        "spec": {"podCIDRs": node.pod_cidrs},
        "status": {"addresses": addresses},
    })
}

fn of_definition(manifest: &DefinitionManifest) -> Value {
    let definition = &manifest.definition;
    let mut spec = Map::new();
    if let Some(config) = &definition.config {
        spec.insert("config".to_owned(), Value::from(config.as_str()));
    }
    json!({
        "apiVersion": npwg::crd::API_VERSION, "kind": npwg::crd::KIND,
        "metadata": {"namespace": definition.namespace, "name": definition.name, "annotations": manifest.annotations},
        "spec": spec,
    })
}

fn of_pod(pod: &PodManifest, node: &str) -> Value {
    let ports: Vec<Value> = pod.ports.iter().map(port).collect();
    // A UID that is null is none: the store gives one.
    let metadata =
        json!({"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "labels": pod.labels, "annotations": pod.annotations});
    // No pod is without a container; what runs in it is nobody's business here.
    let container = json!({"name": "pod", "image": "none", "ports": ports});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node, "containers": [container]}})
}

fn port(port: &crate::manifest::ContainerPort) -> Value {
    json!({
        "containerPort": port.container_port, "protocol": port.protocol.to_string(),
        "hostPort": port.host_port, "hostIP": port.host_ip.map(|ip| ip.to_string()),
    })
}
