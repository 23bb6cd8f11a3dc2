//! What manifests say, as the API server would have it: an embedded store, which agents are asked to work from.

use objects::{PutError, Store};
use serde_json::{Value, json};

use crate::manifest::{ContainerPort, DefinitionManifest, Manifests, NodeManifest, PodManifest};
use crate::state::Node;

/// A store that holds what the manifests hold. `node` says where a pod is that names no node.
///
/// # Errors
/// [`PutError`] if the store refuses an object that the manifests' rules let pass.
pub fn store(manifests: &Manifests, node: impl Fn(&PodManifest) -> String) -> Result<Store, PutError> {
    let store = empty();
    for object in manifests.nodes.iter().map(of_node).chain(of_others(manifests, node)) {
        store.put(&object)?;
    }
    Ok(store)
}

/// A store that knows the kinds.
pub(crate) fn empty() -> Store {
    let store = Store::new();
    store.install_network_attachment_definitions();
    store
}

/// The objects of a lab: its nodes, each with the addresses and the ranges that it got, and what the manifests say besides.
pub(crate) fn objects(manifests: &Manifests, nodes: &[Node], node: impl Fn(&PodManifest) -> String) -> Vec<Value> {
    nodes.iter().map(|node| of_lab(node, manifests)).chain(of_others(manifests, node)).collect()
}

fn of_others(manifests: &Manifests, node: impl Fn(&PodManifest) -> String) -> impl Iterator<Item = Value> {
    let definitions = manifests.definitions.iter().map(of_definition);
    definitions.chain(manifests.pods.iter().map(move |pod| of_pod(pod, &node(pod))))
}

/// What makes an object that is as `before` what `after` says (RFC 7386): what only others have written is not mentioned.
pub(crate) fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let mut all: serde_json::Map<String, Value> = after
        .iter()
        .map(|(key, value)| (key.clone(), before.get(key).map_or_else(|| value.clone(), |before| difference(before, value))))
        .collect();
    for (key, value) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        all.insert(key.clone(), without(value));
    }
    Value::Object(all)
}

/// What takes a value away, and of an object only what it has.
fn without(value: &Value) -> Value {
    match value {
        Value::Object(keys) => Value::Object(keys.iter().map(|(key, value)| (key.clone(), without(value))).collect()),
        _ => Value::Null,
    }
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

fn of_lab(node: &Node, manifests: &Manifests) -> Value {
    let annotations = manifests.nodes.iter().find(|manifest| manifest.name == node.name).map(|manifest| &manifest.annotations);
    let addresses: Vec<Value> = node.addresses.iter().map(|address| json!({"type": "InternalIP", "address": address.addr()})).collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": given([("name", Some(json!(node.name))), ("annotations", annotations.map(|annotations| json!(annotations)))]),
        "spec": {"podCIDR": node.pod_cidrs.first(), "podCIDRs": node.pod_cidrs},
        "status": {"addresses": addresses},
    })
}

fn of_definition(manifest: &DefinitionManifest) -> Value {
    let definition = &manifest.definition;
    let spec = given([("config", definition.config.as_ref().map(|config| json!(config)))]);
    json!({
        "apiVersion": npwg::crd::API_VERSION, "kind": npwg::crd::KIND,
        "metadata": {"namespace": definition.namespace, "name": definition.name, "annotations": manifest.annotations},
        "spec": spec,
    })
}

fn of_pod(pod: &PodManifest, node: &str) -> Value {
    let ports: Vec<Value> = pod.ports.iter().map(port).collect();
    let metadata = given([
        ("namespace", Some(json!(pod.namespace))),
        ("name", Some(json!(pod.name))),
        ("uid", pod.uid.as_ref().map(|uid| json!(uid))),
        ("labels", Some(json!(pod.labels))),
        ("annotations", Some(json!(pod.annotations))),
    ]);
    // No pod is without a container; what runs in it is nobody's business here.
    let container = json!({"name": "pod", "image": "none", "ports": ports});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node, "containers": [container]}})
}

fn port(port: &ContainerPort) -> Value {
    given([
        ("containerPort", Some(json!(port.container_port))),
        ("protocol", Some(json!(port.protocol.to_string().to_uppercase()))),
        ("hostPort", port.host_port.map(|number| json!(number))),
        ("hostIP", port.host_ip.map(|address| json!(address))),
    ])
}

/// An object of the keys that have a value.
fn given<const N: usize>(keys: [(&str, Option<Value>); N]) -> Value {
    Value::Object(keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    #[test]
    fn a_difference_takes_away_what_a_manifest_no_longer_has_and_nothing_of_others() {
        let store = empty();
        let node =
            |metadata: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"podCIDRs": ["10.1.0.0/24"]}});
        let before = node(json!({"name": "n", "annotations": {"a": "1", "b": "2"}}));
        store.put(&before).unwrap();
        store.merge(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations": {"agents": "own"}}})).unwrap();
        for after in [node(json!({"name": "n", "annotations": {"b": "3"}})), node(json!({"name": "n"}))] {
            store.merge(&difference(&before, &after)).unwrap();
            let there = store.objects("v1", "Node").unwrap().pop().unwrap();
            let annotations = there["metadata"]["annotations"].as_object().unwrap();
            assert_eq!((annotations.get("a"), annotations["agents"].as_str()), (None, Some("own")), "{there}");
            assert_eq!(annotations.get("b").and_then(Value::as_str), after["metadata"]["annotations"]["b"].as_str(), "{there}");
        }
    }

    #[test]
    fn the_store_has_what_the_manifests_have() {
        let text = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 172.30.0.9}]}\n---\n\
            apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: a, namespace: x}\n---\n\
            apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: x, uid: u-1, annotations: {k8s.v1.cni.cncf.io/networks: a}}\n\
            spec: {containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 8080, hostIP: 10.0.0.1}]}]}\n";
        let manifests = manifest::load(&["-".into()], &mut text.as_bytes()).unwrap();
        let store = store(&manifests, |pod| format!("the node of {pod}")).unwrap();
        let one = |api_version, kind| store.objects(api_version, kind).unwrap().pop().unwrap();
        let pod = one("v1", "Pod");
        assert_eq!(pod["metadata"]["uid"], "u-1", "who refers to a pod knows it by that");
        assert_eq!((&pod["spec"]["nodeName"], &pod["metadata"]["annotations"][npwg::NETWORKS]), (&json!("the node of x/p"), &json!("a")));
        let port = json!({"containerPort": 80, "protocol": "TCP", "hostPort": 8080, "hostIP": "10.0.0.1"});
        assert_eq!(pod["spec"]["containers"][0]["ports"][0], port);
        assert_eq!(one("v1", "Node")["status"]["addresses"][0]["address"], "172.30.0.9");
        let definition = one(npwg::crd::API_VERSION, npwg::crd::KIND);
        assert_eq!((&definition["metadata"]["namespace"], &definition["spec"]), (&json!("x"), &json!({})));
    }
}
