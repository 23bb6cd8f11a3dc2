//! This node's `CiliumNode`, and the kind itself.
//!
//! ```text
//!   list, watch of one object --> OwnObject::now, changed
//!   status <--replace: the object as it was read, with another status; refused if it has changed since
//! ```

use std::sync::Arc;

use api::{CILIUM_VERSION, CiliumNode};
use kube::api::PostParams;
use kube::core::Request;
use kube::core::params::GetParams;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::call::ANSWER;
use crate::watch::Watched;
use crate::{ApiError, Cluster, OwnObject, RequestedObject};

const GROUP: &str = "cilium.io";
const PLURAL: &str = "ciliumnodes";
const PATH: &str = "/apis/cilium.io/v2/ciliumnodes";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The kind, for a watch.
struct Followed;

// === impl Watched ===

impl Watched for Followed {
    type PartialObject = CiliumNode;
    type Stored = Arc<CiliumNode>;
    const RESOURCE: (&'static str, &'static str) = (GROUP, PLURAL);
    const PATH: &'static str = PATH;
    const PAGE: u32 = 0;

    fn version(seen: &CiliumNode) -> Option<&str> {
        Some(seen.meta("resourceVersion"))
    }

    fn keep(seen: CiliumNode) -> (Box<str>, Arc<CiliumNode>) {
        (format!("/{}", seen.meta("name")).into(), Arc::new(seen))
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows this node's `CiliumNode` from now on. Must be called within a tokio runtime.
    pub fn follow_cilium_node(&self) -> OwnObject<CiliumNode> {
        OwnObject::follow::<Followed>(self)
    }

    /// This node's `CiliumNode`, from the API server. `None`: there is none.
    ///
    /// # Errors
    /// [`ApiError`]: then nothing is known of it.
    pub async fn fetch_cilium_node(&self) -> Result<Option<CiliumNode>, ApiError> {
        let asked = self.asked_of_cilium_node("get", PLURAL);
        self.inner.caller.get(&asked, Request::new(PATH).get(self.node(), &GetParams::default())).await
    }

    /// Writes the status of this node's `CiliumNode`, which has to be as it was when it was read: its resource version says so.
    /// The object as it is then.
    ///
    /// # Errors
    /// [`ApiError`]; with code 409 it has changed meanwhile, and nothing was written.
    pub async fn write_cilium_status(&self, node: &CiliumNode) -> Result<CiliumNode, ApiError> {
        let asked = self.asked_of_cilium_node("update", "ciliumnodes/status");
        let body = serde_json::to_vec(node).map_err(|e| self.inner.caller.unreadable(&asked, e.to_string()))?;
        let request = Request::new(PATH).replace_subresource("status", self.node(), &PostParams::default(), body);
        self.inner.caller.ask(&asked, request, ANSWER).await
    }

    /// Makes the API server serve `CiliumNode`, if it does not. Whether it did not.
    ///
    /// # Errors
    /// [`ApiError`]
    pub async fn define_cilium_nodes(&self) -> Result<bool, ApiError> {
        let definition = cilium_node_definition();
        let name = format!("{PLURAL}.{GROUP}");
        let asked =
            |verb| RequestedObject { verb, group: "apiextensions.k8s.io", resource: "customresourcedefinitions", of: name.clone().into() };
        let request = Request::new(DEFINITIONS).get(&name, &GetParams::default());
        let there: Option<IgnoredAny> = self.inner.caller.get(&asked("get"), request).await?;
        if there.is_some() {
            return Ok(false);
        }
        let request = Request::new(DEFINITIONS).create(&PostParams::default(), definition.to_string().into_bytes());
        match self.inner.caller.ask::<IgnoredAny>(&asked("create"), request, ANSWER).await {
            Ok(_) => Ok(true),
            // Another node's agent was quicker.
            Err(e) if e.code() == Some(409) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn asked_of_cilium_node(&self, verb: &'static str, resource: &'static str) -> RequestedObject {
        RequestedObject { verb, group: GROUP, resource, of: self.node().into() }
    }
}

/// The definition of `CiliumNode`, as much of it as address management needs; everything else of an object is kept.
pub fn cilium_node_definition() -> Value {
    let (_, version) = CILIUM_VERSION.split_once('/').unwrap_or_default();
    let count = |about: &str| json!({"type": "integer", "minimum": 0, "description": about});
    let address = json!({
        "type": "object",
        "properties": {
            "owner": {"type": "string", "description": "who has the address, or who alone gets it"},
            "resource": {"type": "string", "description": "what the address hangs on"},
        },
    });
    let of_addresses = |about: &str| json!({"type": "object", "description": about, "additionalProperties": address.clone()});
    let spec = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "pool": of_addresses("the addresses that the node may hand out, by themselves"),
            "min-allocate": count("the node has at least so many addresses"),
            "max-allocate": count("the node has at most so many addresses; 0: any number"),
            "pre-allocate": count("so many addresses that nobody uses"),
            "max-above-watermark": count("this many more may stay before some are taken back"),
            "filled-by": {"type": "string", "description": "netloom, if its operator fills the pool"},
        },
    });
    let words = ["marked-for-release", "ready-for-release", "do-not-release", "released"];
    let status = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "used": of_addresses("who has which address"),
            "release-ips": {
                "type": "object", "description": "how far an address is that is taken back",
                "additionalProperties": {"type": "string", "enum": words},
            },
            "waiting": count("so many pods wait for an address"),
        },
    });
    let part = |about: &str, ipam: Value| json!({"type": "object", "description": about, "x-kubernetes-preserve-unknown-fields": true, "properties": {"ipam": ipam}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": "CiliumNode", "listKind": "CiliumNodeList", "plural": PLURAL, "singular": "ciliumnode",
                "shortNames": ["cn"], "categories": ["cilium"],
            },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
                "schema": {"openAPIV3Schema": {
                    "type": "object", "required": ["metadata", "spec"],
                    "properties": {
                        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                        "spec": part("what the node may hand out", spec),
                        "status": part("what the node has handed out", status),
                    },
                }},
            }],
        },
    })
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(serde_json::from_slice::<CiliumNode>(bytes).map(Followed::keep));
}
