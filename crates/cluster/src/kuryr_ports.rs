//! The Neutron ports of this node's pods, followed: what a controller has bound, and which of it is ACTIVE.
//!
//! ```text
//!   KuryrPorts with the label of this node --list, watch--> KuryrPorts::of, changed
//! ```
//!
//! The objects are Kuryr's (`openstack.org/v1`), or of a controller that writes the same.

use std::sync::Arc;

use osvif::{KuryrPort, NODE_LABEL, Problem};
use serde_json::{Map, Value};

use crate::Cluster;
use crate::cache::Listed;
use crate::watch::{Following, Watched};

const PATH: &str = "/apis/openstack.org/v1/kuryrports";

/// The KuryrPorts of one node, followed until the last clone of this is dropped. Each clone waits for changes by itself.
#[derive(Clone)]
pub struct KuryrPorts {
    following: Following<Arc<Result<KuryrPort, Problem>>>,
}

/// The kind, for a watch.
struct OfNode;

// === impl OfNode ===

impl Watched for OfNode {
    type Seen = Value;
    type Kept = Arc<Result<KuryrPort, Problem>>;
    const RESOURCE: (&'static str, &'static str) = ("openstack.org", "kuryrports");
    const PATH: &'static str = PATH;
    const PAGE: u32 = 100;
    const BY_LABELS: bool = true;

    fn version(seen: &Value) -> Option<&str> {
        seen.pointer("/metadata/resourceVersion").and_then(Value::as_str)
    }

    fn keep(seen: Value) -> (Box<str>, Self::Kept) {
        let of = |key: &str| seen.pointer(key).and_then(Value::as_str).unwrap_or_default();
        let key = format!("{}/{}", of("/metadata/namespace"), of("/metadata/name"));
        // Nobody asks for the rest, which changes with every write.
        let read = KuryrPort::read(seen).map(|port| KuryrPort { metadata: Map::new(), rest: Map::new(), ..port });
        (key.into(), Arc::new(read))
    }
}

// === impl KuryrPorts ===

impl KuryrPorts {
    /// That of a pod, as it was seen last: read, or why it cannot be read. `None`: it was never seen, or is gone.
    pub fn of(&self, namespace: &str, pod: &str) -> Option<Arc<Result<KuryrPort, Problem>>> {
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
        let selector = Some(format!("{NODE_LABEL}={}", self.node()));
        KuryrPorts { following: Following::selected::<OfNode>(self.inner.caller.clone(), selector) }
    }
}
