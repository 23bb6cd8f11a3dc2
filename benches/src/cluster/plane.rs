//! The API server's side: a node's pods and a cluster's definitions, and what pods say of their networks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use testbed::ControlPlane;

use super::floor;
use crate::network::{MACVLANS, PARENT};
use crate::ranges::whereabouts;

/// Pods of a full node: the kubelet's default limit.
pub(crate) const PODS: usize = 110;
/// Definitions of a large cluster.
pub(crate) const DEFINITIONS: usize = 1000;
/// The node.
pub(crate) const NODE: &str = "bench";

/// How many requests of which kind.
pub(crate) type Requests = BTreeMap<String, u64>;

/// The kinds of a cluster's addresses.
const ADDRESS_KINDS: [&str; 3] = ["ippools", "nodeippools", "ipledgershards"];

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
    /// One that selects no network.
    plain: Vec<Pod>,
}

// === impl Plane ===

impl Plane {
    /// etcd and the API server, on 127.0.0.1 of the calling thread's network namespace; pods that select three networks,
    /// and definitions, of which those are three.
    pub(crate) fn start(name: &str) -> Result<Self> {
        let plane = ControlPlane::named(&format!("bench-{}-{name}", std::process::id()))?;
        plane.define_networks()?;
        let objects: Vec<String> = (0..DEFINITIONS).map(definition).chain((0..PODS).map(usual)).map(|o| o.to_string()).collect();
        plane.kubectl(&["create", "-f", "-"], &objects.join("\n"))?;
        let mut plane = Plane { plane, pods: Vec::new(), plain: Vec::new() };
        plane.pods = plane.list()?.iter().map(of).collect::<Result<_>>()?;
        plane.plane.namespace("plain")?;
        plane.plane.kubectl(&["create", "-f", "-"], &pod("plain", "plain", "").to_string())?;
        plane.plain = plane.list_of("plain")?.iter().map(of).collect::<Result<_>>()?;
        Ok(plane)
    }

    /// The same without pods and definitions, with the kinds of a cluster's addresses, ours and whereabouts'.
    pub(crate) fn bare() -> Result<Self> {
        let plane = ControlPlane::named(&format!("bench-{}", std::process::id()))?;
        plane.define_networks()?;
        plane.apply(include_str!("../../../deploy/ippools.yaml"))?;
        plane.apply(&whereabouts::kinds().iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n"))?;
        for resource in ADDRESS_KINDS.map(|kind| format!("{kind}.netloom.io")) {
            plane.served(&resource)?;
        }
        plane.served("ippools.whereabouts.cni.cncf.io")?;
        plane.served("overlappingrangeipreservations.whereabouts.cni.cncf.io")?;
        Ok(Plane { plane, pods: Vec::new(), plain: Vec::new() })
    }

    /// Makes a Node.
    pub(crate) fn node(&self, name: &str) -> Result<()> {
        self.plane.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string()).map(drop)
    }

    /// Makes so many small pods of a node that select a network.
    pub(crate) fn pods_of(&self, node: &str, network: &str, number: usize) -> Result<Vec<Pod>> {
        let of_number = |number| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{network}-{node}-{number}"), "annotations": {"k8s.v1.cni.cncf.io/networks": network},
                    "labels": {"of": format!("{network}-{node}")}},
                "spec": {"nodeName": node, "automountServiceAccountToken": false, "containers": [{"name": "web", "image": "web"}]},
            })
        };
        let objects: Vec<String> = (0..number).map(of_number).map(|pod| pod.to_string()).collect();
        self.plane.kubectl(&["create", "-f", "-"], &objects.join("\n"))?;
        self.listed(&["--selector", &format!("of={network}-{node}")])?.iter().map(of).collect()
    }

    /// Deletes pods at once.
    pub(crate) fn forget(&self, pods: &[Vec<Pod>]) -> Result<()> {
        let names = pods.iter().flatten().map(|pod| pod.name.as_str());
        let args: Vec<&str> = ["delete", "pods", "--force", "--grace-period=0", "--wait=false"].into_iter().chain(names).collect();
        self.plane.kubectl(&args, "").map(drop)
    }

    /// Whether a node's object has the terms of a pool.
    pub(crate) fn has_terms(&self, node: &str, pool: &str) -> Result<bool> {
        let output = self.plane.try_kubectl(&["get", "nodeippools.netloom.io", node, "-o", "json"], "")?;
        let object: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(object.pointer("/spec/pools").is_some_and(|pools| pools.get(pool).is_some()))
    }

    /// How many requests for addresses the API server has answered, but watches: by verb, kind and subresource.
    pub(crate) fn address_requests(&self) -> Result<Requests> {
        let metrics = self.plane.kubectl(&["get", "--raw", "/metrics"], "")?;
        let is_one = |line: &&str| {
            let of_ours =
                line.contains("group=\"netloom.io\"") && ADDRESS_KINDS.iter().any(|kind| line.contains(&format!("resource=\"{kind}\"")));
            line.starts_with("apiserver_request_total{") && of_ours && !line.contains("verb=\"WATCH\"")
        };
        let label = |line: &str, name: &str| Some(line.split_once(&format!("{name}=\""))?.1.split('"').next()?.to_owned());
        let mut requests = Requests::new();
        for line in metrics.lines().filter(is_one) {
            let (Some(verb), Some(kind), Some(part)) = (label(line, "verb"), label(line, "resource"), label(line, "subresource")) else {
                continue;
            };
            let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok()).unwrap_or_default();
            let what = if part.is_empty() { format!("{verb} {kind}") } else { format!("{verb} {kind}/{part}") };
            *requests.entry(what).or_default() += count as u64;
        }
        Ok(requests)
    }

    pub(crate) fn url(&self) -> String {
        self.plane.url()
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.plane.ca()
    }

    pub(crate) fn token(&self) -> &'static str {
        self.plane.token()
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

    /// A pod that selects no network.
    pub(crate) fn plain(&self) -> &[Pod] {
        &self.plain
    }

    /// That the first so many pods have a status of all their networks; a call that writes none is fast.
    pub(crate) fn check_statuses(&self, pods: usize) -> Result<()> {
        let listed = self.list()?;
        for pod in self.pods.iter().take(pods) {
            let of_pod = listed.iter().find(|listed| listed.pointer("/metadata/name") == Some(&json!(pod.name)));
            let text = of_pod.and_then(|pod| pod.pointer("/metadata/annotations/k8s.v1.cni.cncf.io~1network-status")?.as_str());
            let status: Value = serde_json::from_str(text.unwrap_or("null")).context("the annotation network-status is no JSON")?;
            // The floor has written one, too.
            let is_ours =
                status.as_array().is_some_and(|all| all.len() == 1 + MACVLANS.len() && all.iter().all(|of| of["mac"] != floor::MAC));
            if !is_ours {
                bail!("pod {} has no status of its networks: {status}", pod.name);
            }
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<Value>> {
        self.list_of("default")
    }

    fn list_of(&self, namespace: &str) -> Result<Vec<Value>> {
        self.listed(&["--namespace", namespace])
    }

    fn listed(&self, which: &[&str]) -> Result<Vec<Value>> {
        let listed = self.plane.kubectl(&[&["get", "pods", "-o", "json"], which].concat(), "")?;
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
