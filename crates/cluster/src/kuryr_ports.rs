//! The Neutron ports of this node's pods, followed: what a controller has bound, and which of it is ACTIVE.
//!
//! ```text
//!   KuryrPorts with the label of this node --list, watch--> KuryrPorts::of, changed
//! ```
//!
//! The objects are Kuryr's (`openstack.org/v1`), or of a controller that writes the same. All together have a limit: of more the agent knows
//! only that they are there, and asks for each when its pod is attached.

use std::sync::Arc;

use kube::api::GetParams;
use kube::core::Request;
use osvif::{KuryrPort, NODE_LABEL, Problem, REASON_ANNOTATION, crd, memory_of, node_label};
use serde_json::{Map, Value};

use crate::cache::{Limit, Listed};
use crate::watch::{Following, Watched};
use crate::{ApiError, Cluster, RequestedObject};

const PATH: &str = "/apis/openstack.org/v1/kuryrports";

/// The KuryrPorts of one node, followed until the last clone of this is dropped. Each clone waits for changes by itself.
#[derive(Clone)]
pub struct KuryrPorts {
    following: Following<Arc<NodePort>>,
}

/// A KuryrPort as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePort {
    /// Read, or why it cannot be read; `None` where it is not kept: [`Cluster::fetch_kuryr_port`] has it.
    pub read: Option<Result<KuryrPort, Problem>>,
    /// Why it has no VIFs, as the controller says.
    pub reason: Option<Box<str>>,
    /// About what it takes of memory, in bytes.
    weight: usize,
}

/// The kind, for a watch.
pub(crate) struct OfNode;

/// What all that a node has may take of memory, in bytes: some two hundred pods with five VIFs each.
const MOST: usize = 8 << 20;

// === impl NodePort ===

impl NodePort {
    const LIMIT: Limit<Arc<NodePort>> =
        Limit { most: MOST, weight: |port| port.weight, light: |_| Arc::new(NodePort { read: None, reason: None, weight: 0 }) };

    fn of(seen: Value) -> Self {
        let weight = memory_of(&seen);
        let annotations = seen.pointer("/metadata/annotations").and_then(Value::as_object);
        let reason = annotations.and_then(|all| all.get(REASON_ANNOTATION)).and_then(Value::as_str).map(Box::from);
        // Nobody asks for the rest, which changes with every write.
        let read = KuryrPort::read(seen).map(|port| KuryrPort { metadata: Map::new(), rest: Map::new(), ..port });
        NodePort { weight: if read.is_ok() { weight } else { 0 }, read: Some(read), reason }
    }
}

// === impl OfNode ===

impl Watched for OfNode {
    type PartialObject = Value;
    type Stored = Arc<NodePort>;
    const RESOURCE: (&'static str, &'static str) = ("openstack.org", "kuryrports");
    const PATH: &'static str = PATH;
    const PAGE: u32 = 100;
    const BY_LABELS: bool = true;

    fn version(seen: &Value) -> Option<&str> {
        seen.pointer("/metadata/resourceVersion").and_then(Value::as_str)
    }

    fn keep(seen: Value) -> (Box<str>, Self::Stored) {
        let of = |key: &str| seen.pointer(key).and_then(Value::as_str).unwrap_or_default();
        let key = format!("{}/{}", of("/metadata/namespace"), of("/metadata/name"));
        (key.into(), Arc::new(NodePort::of(seen)))
    }
}

// === impl KuryrPorts ===

impl KuryrPorts {
    /// That of a pod, as it was seen last. `None`: it was never seen, or is gone.
    pub fn of(&self, namespace: &str, pod: &str) -> Option<Arc<NodePort>> {
        self.following.cache.get(namespace, pod)
    }

    /// Whether that can be trusted.
    pub fn listed(&self) -> Listed {
        self.following.cache.listed()
    }

    /// Waits until something is otherwise than when this was asked last, or the first list is complete. May be dropped while it waits.
    pub async fn changed(&mut self) {
        self.following.changed().await;
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows the KuryrPorts of this node from now on. Must be called within a tokio runtime.
    pub fn follow_kuryr_ports(&self) -> KuryrPorts {
        let selector = Some(format!("{NODE_LABEL}={}", node_label(self.node())));
        KuryrPorts { following: Following::selected::<OfNode>(self.inner.caller.clone(), selector, Some(NodePort::LIMIT)) }
    }

    /// A pod's KuryrPort, from the API server; `None` if there is none. `ports` keeps it from now on, where it was not kept before.
    ///
    /// # Errors
    /// [`ApiError`]
    pub async fn fetch_kuryr_port(&self, ports: &KuryrPorts, namespace: &str, pod: &str) -> Result<Option<Arc<NodePort>>, ApiError> {
        let cache = &ports.following.cache;
        let noted = cache.found(namespace, pod).filter(|(known, _)| known.read.is_none());
        let asked = RequestedObject { verb: "get", group: crd::GROUP, resource: crd::PLURAL, of: format!("{namespace}/{pod}").into() };
        let path = format!("/apis/{}/{}/namespaces/{namespace}/{}", crd::GROUP, crd::VERSION, crd::PLURAL);
        let found = self.inner.caller.get::<Value>(&asked, Request::new(path).get(pod, &GetParams::default())).await?;
        let found = found.map(|seen| Arc::new(NodePort::of(seen)));
        if let (Some((_, came)), Some(port)) = (noted, &found) {
            cache.put_back(namespace, pod, came, Arc::clone(port));
        }
        Ok(found)
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(seen) = serde_json::from_slice::<Value>(bytes) else { return };
    drop(OfNode::version(&seen).map(str::len));
    let (_, port) = OfNode::keep(seen);
    assert!(port.weight <= osvif::MAX_KURYR_PORT && port.read.is_some());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cache::Cache;

    fn port(name: &str, rest: usize) -> Value {
        let rest: Map<String, Value> = (0..rest).map(|n| (format!("k{n}"), json!(n))).collect();
        json!({"metadata": {"namespace": "a", "name": name}, "spec": {"podUid": "u", "podNodeName": "n"}, "status": {"vifs": {}, "x": rest}})
    }

    /// A user who may write KuryrPorts for a node must not fill its agent.
    #[test]
    fn many_large_ones_are_bounded_and_leave_the_small_ones() {
        let cache = Cache::limited(Some(NodePort::LIMIT));
        let apply = |object: Value| {
            let (key, port) = OfNode::keep(object);
            cache.apply(key, port);
        };
        apply(port("small", 1));
        for n in 0..1000 {
            apply(port(&format!("large-{n}"), 2000));
        }
        let held: usize = cache.all().iter().map(|port| port.weight).sum();
        assert!(held <= MOST && held > MOST / 2, "{held}");
        assert!(cache.get("a", "small").unwrap().read.as_ref().unwrap().is_ok());
        assert!(cache.all().iter().any(|port| port.read.is_none()), "of some it is only known that they are there");
        // One that is too large by itself is refused, in words.
        let (_, huge) = OfNode::keep(port("huge", 10_000));
        let why = huge.read.as_ref().unwrap().as_ref().unwrap_err().to_string();
        assert!(why.contains("at most 524288 are read") && huge.weight == 0, "{why}");
    }
}
