//! This node's own `NodeIPPool`: followed, its status written, and Events about it.

use std::sync::Arc;

use api::{NodeIpPoolSpec, NodeIpPoolStatus};
use kube::api::PostParams;
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::call::ANSWER;
use crate::event::AGENT_CONTROLLER;
use crate::watch::Watched;
use crate::{About, ApiError, Cluster, Event, EventKind, OwnObject, RequestedObject};

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

/// The kind, for a watch.
struct Followed;

/// What is read of an object.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartialObject {
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
    type PartialObject = PartialObject;
    type Stored = Arc<NodeIpPool>;
    const RESOURCE: (&'static str, &'static str) = (GROUP, PLURAL);
    const PATH: &'static str = PATH;
    const PAGE: u32 = 0;

    fn version(seen: &PartialObject) -> Option<&str> {
        Some(&seen.metadata.resource_version)
    }

    fn keep(seen: PartialObject) -> (Box<str>, Arc<NodeIpPool>) {
        let PartialObject { metadata, spec, status } = seen;
        let SeenMeta { name, uid, resource_version, generation } = metadata;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        (format!("/{name}").into(), Arc::new(NodeIpPool { uid, resource_version, generation, spec, status }))
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows this node's own `NodeIPPool` from now on. Must be called within a tokio runtime.
    pub fn follow_node_ip_pool(&self) -> OwnObject<NodeIpPool> {
        OwnObject::follow::<Followed>(self)
    }

    /// Writes the status of this node's `NodeIPPool`, if it is still as it was seen.
    ///
    /// # Errors
    /// [`ApiError`]; with code 409 somebody has changed it meanwhile, and the watch brings what it is now.
    pub async fn write_node_ip_pool_status(&self, seen: &NodeIpPool, status: &NodeIpPoolStatus) -> Result<(), ApiError> {
        let node = self.node();
        let asked = RequestedObject { verb: "update", group: GROUP, resource: "nodeippools/status", of: node.into() };
        let object = json!({
            "apiVersion": api::API_VERSION, "kind": "NodeIPPool",
            "metadata": {"name": node, "uid": seen.uid, "resourceVersion": seen.resource_version},
            "spec": seen.spec, "status": status,
        });
        let request = Request::new(PATH).replace_subresource("status", node, &PostParams::default(), object.to_string().into_bytes());
        self.inner.caller.ask::<IgnoredAny>(&asked, request, ANSWER).await.map(drop)
    }

    /// Tells a warning about this node's `NodeIPPool`, of that UID, each time. `reason` is one word in camel case.
    ///
    /// # Errors
    /// [`ApiError`]; nothing depends on an event, so a caller logs it and goes on.
    pub async fn warn_of_node_ip_pool(&self, uid: &str, reason: &str, message: &str) -> Result<(), ApiError> {
        let (node, kind) = (self.node(), EventKind::Warning);
        let regarding = About { api_version: api::API_VERSION, kind: "NodeIPPool", namespace: "", name: node, uid };
        let event = Event { controller: AGENT_CONTROLLER, instance: node, action: "Assign", kind, reason, message, regarding };
        let asked =
            RequestedObject { verb: "create", group: "events.k8s.io", resource: "events", of: format!("about NodeIPPool {node}").into() };
        self.inner.caller.ask::<IgnoredAny>(&asked, event.request(&event.new_name()), ANSWER).await.map(drop)
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(serde_json::from_slice::<PartialObject>(bytes).map(Followed::keep));
}
