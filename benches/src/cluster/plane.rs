//! The API server's side: a node's pods and a cluster's definitions, and what pods say of their networks.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use testbed::ControlPlane;

use crate::network::{MACVLANS, PARENT};

/// Pods of a full node: the kubelet's default limit.
pub(crate) const PODS: usize = 110;
/// Definitions of a large cluster.
pub(crate) const DEFINITIONS: usize = 1000;
/// The node.
pub(crate) const NODE: &str = "bench";

/// A pod that waits for its networks.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A real API server with the objects of a full node.
pub(crate) struct Plane {
    plane: ControlPlane,
    pods: Vec<Pod>,
}

// === impl Plane ===

impl Plane {
    /// etcd and the API server, on 127.0.0.1 of the calling thread's network namespace; pods that select three networks,
    /// and definitions, of which those are three.
    pub(crate) fn start() -> Result<Self> {
        let plane = ControlPlane::named(&format!("bench-{}", std::process::id()))?;
        plane.define_networks()?;
        let objects: Vec<String> = (0..DEFINITIONS).map(definition).chain((0..PODS).map(usual)).map(|o| o.to_string()).collect();
        plane.kubectl(&["create", "-f", "-"], &objects.join("\n"))?;
        let mut plane = Plane { plane, pods: Vec::new() };
        plane.pods = plane.list()?.iter().map(of).collect::<Result<_>>()?;
        Ok(plane)
    }

    /// Adds so many pods of a namespace that select a network, with an annotation of at least so many bytes.
    pub(crate) fn more_pods(&self, namespace: &str, name: &str, number: usize, network: &str, bytes: usize) -> Result<Vec<Pod>> {
        self.plane.namespace(namespace)?;
        let (home, plain) = network.split_once('/').unwrap_or((namespace, network));
        let annotation = json!([{"name": plain, "namespace": home, "cni-args": {"padding": "x".repeat(bytes)}}]).to_string();
        let of_name = |number| pod(namespace, &format!("{name}-{number}"), &annotation).to_string();
        self.plane.kubectl(&["create", "-f", "-"], &(0..number).map(of_name).collect::<Vec<_>>().join("\n"))?;
        let made: Vec<Pod> = self.list_of(namespace)?.iter().map(of).collect::<Result<_>>()?;
        Ok(made.into_iter().filter(|pod| pod.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))).collect())
    }

    /// Makes a definition of one plugin; what selects it.
    pub(crate) fn define(&self, namespace: &str, name: &str, plugin: &Value) -> Result<String> {
        let config = json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]}).to_string();
        let object = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"config": config},
        });
        self.plane.namespace(namespace)?;
        self.plane.kubectl(&["create", "-f", "-"], &object.to_string())?;
        Ok(name.to_owned())
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig()
    }

    pub(crate) fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// That the first so many pods have a status of all their networks; a call that writes none is fast.
    pub(crate) fn check_statuses(&self, pods: usize) -> Result<()> {
        let listed = self.list()?;
        for pod in self.pods.iter().take(pods) {
            let of_pod = listed.iter().find(|listed| listed.pointer("/metadata/name") == Some(&json!(pod.name)));
            let text = of_pod.and_then(|pod| pod.pointer("/metadata/annotations/k8s.v1.cni.cncf.io~1network-status")?.as_str());
            let status: Value = serde_json::from_str(text.unwrap_or("null")).context("the annotation network-status is no JSON")?;
            if status.as_array().map_or(0, Vec::len) != 1 + MACVLANS.len() {
                bail!("pod {} has no status of its networks: {status}", pod.name);
            }
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<Value>> {
        self.list_of("default")
    }

    fn list_of(&self, namespace: &str) -> Result<Vec<Value>> {
        let listed = self.plane.kubectl(&["get", "pods", "--namespace", namespace, "-o", "json"], "")?;
        let mut listed: Value = serde_json::from_str(&listed).context("the list of pods is no JSON")?;
        match listed.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => bail!("the list of pods has no items"),
        }
    }
}

fn of(pod: &Value) -> Result<Pod> {
    let text = |key: &str| pod.pointer(key).and_then(Value::as_str).map(str::to_owned).with_context(|| format!("a pod without {key}"));
    Ok(Pod { namespace: text("/metadata/namespace")?, name: text("/metadata/name")?, uid: text("/metadata/uid")? })
}

/// A pod of the full node.
fn usual(number: usize) -> Value {
    pod("default", &format!("web-{number}"), &MACVLANS.map(|net| format!("bench{net}")).join(","))
}

/// A pod of about 8 KB, as a Deployment's are, that selects these networks.
fn pod(namespace: &str, name: &str, networks: &str) -> Value {
    let env: Vec<Value> = (0..60).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "something that is of some length"})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
        "spec": {"nodeName": NODE, "automountServiceAccountToken": false, "containers": [{"name": "web", "image": "web", "env": env}]},
    })
}

/// The networks of the pods, then some that nobody selects here.
fn definition(number: usize) -> Value {
    let net = number + 1;
    let subnet = format!("10.{}.0.0/16", 77 + net % 100);
    let config = json!({
        "cniVersion": "1.0.0", "name": format!("bench{net}"), "plugins": [
            {"type": "macvlan", "master": PARENT, "mode": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]]}},
        ],
    });
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": format!("bench{net}"), "namespace": "default"}, "spec": {"config": config.to_string()},
    })
}
