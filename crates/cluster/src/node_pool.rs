//! This node's own `NodeIPPool`: followed, and its status written.

use std::sync::Arc;

use api::{NodeIpPoolSpec, NodeIpPoolStatus};
use kube::api::PostParams;
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;

use crate::cache::{Cache, Change, Listed};
use crate::call::{ANSWER, Caller};
use crate::watch::{Watch, Watched};
use crate::{ApiError, Asked, Cluster};

const GROUP: &str = "netloom.io";
const PLURAL: &str = "nodeippools";
const PATH: &str = "/apis/netloom.io/v1alpha1/nodeippools";

/// The object of one node, as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIpPool {
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.generation`
    pub generation: i64,
    /// The operator's part.
    pub spec: NodeIpPoolSpec,
    /// The agent's part.
    pub status: NodeIpPoolStatus,
}

/// Follows the object of this node. When it is dropped, the watch ends.
pub struct NodeIpPools {
    caller: Caller,
    node: String,
    cache: Arc<Cache<Arc<NodeIpPool>>>,
    changes: broadcast::Receiver<Change<Arc<NodeIpPool>>>,
    watch: AbortHandle,
}

/// The kind, for a watch.
struct Followed;

/// What is read of an object.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Seen {
    metadata: SeenMeta,
    #[serde(default)]
    spec: Option<NodeIpPoolSpec>,
    #[serde(default)]
    status: Option<NodeIpPoolStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenMeta {
    name: String,
    uid: String,
    resource_version: String,
    generation: i64,
}

// === impl Followed ===

impl Watched for Followed {
    type Seen = Seen;
    type Kept = Arc<NodeIpPool>;
    const RESOURCE: (&'static str, &'static str) = (GROUP, PLURAL);
    const PATH: &'static str = PATH;
    const PAGE: u32 = 0;

    fn version(seen: &Seen) -> Option<&str> {
        Some(&seen.metadata.resource_version)
    }

    fn keep(seen: Seen) -> (Box<str>, Arc<NodeIpPool>) {
        let Seen { metadata, spec, status } = seen;
        let SeenMeta { name, uid, resource_version, generation } = metadata;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        (format!("/{name}").into(), Arc::new(NodeIpPool { uid, resource_version, generation, spec, status }))
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows this node's own `NodeIPPool` from now on. Must be called within a tokio runtime.
    pub fn node_ip_pools(&self) -> NodeIpPools {
        let (caller, node) = (self.inner.caller.clone(), self.node().to_owned());
        let cache = Arc::new(Cache::new());
        let changes = cache.subscribe();
        let fields = Some(format!("metadata.name={node}"));
        let watch = Watch::<Followed> { caller: caller.clone(), cache: Arc::clone(&cache), fields };
        NodeIpPools { caller, node, cache, changes, watch: tokio::spawn(watch.run()).abort_handle() }
    }
}

// === impl NodeIpPools ===

impl NodeIpPools {
    /// The object, as it was seen last. `None`: there is none, or it was never seen.
    pub fn object(&self) -> Option<Arc<NodeIpPool>> {
        self.cache.get("", &self.node)
    }

    /// Whether that can be trusted.
    pub fn listed(&self) -> Listed {
        self.cache.listed()
    }

    /// Whether the cluster does not have this kind of object.
    pub fn is_unserved(&self) -> bool {
        let listed = self.listed();
        !listed.complete && listed.failing.is_some_and(|f| matches!(f.error, ApiError::NotServed { .. }))
    }

    /// Until it is another one. May be dropped while it waits.
    pub async fn changed(&mut self) {
        match self.changes.recv().await {
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Writes the status of the object that was seen, if it is still as it was seen.
    ///
    /// # Errors
    /// [`ApiError`]; with code 409 somebody has changed it meanwhile, and the watch brings what it is now.
    pub async fn write_status(&self, seen: &NodeIpPool, status: &NodeIpPoolStatus) -> Result<(), ApiError> {
        let asked = Asked { verb: "update", group: GROUP, resource: "nodeippools/status", of: self.node.as_str().into() };
        let object = json!({
            "apiVersion": api::API_VERSION, "kind": "NodeIPPool",
            "metadata": {"name": self.node, "uid": seen.uid, "resourceVersion": seen.resource_version},
            "spec": seen.spec, "status": status,
        });
        let request = Request::new(PATH).replace_subresource("status", &self.node, &PostParams::default(), object.to_string().into_bytes());
        self.caller.ask::<IgnoredAny>(&asked, request, ANSWER).await.map(drop)
    }
}

impl Drop for NodeIpPools {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
