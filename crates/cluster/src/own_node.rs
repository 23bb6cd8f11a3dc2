//! This node's own Node: which one it is.

use kube::api::GetParams;
use kube::core::Request;
use serde::Deserialize;

use crate::{ApiError, Cluster, RequestedObject};

const PATH: &str = "/api/v1/nodes";

/// What tells a Node from others of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNode {
    /// `metadata.uid`
    pub uid: String,
    /// `status.nodeInfo.bootID`: the kernel's, as the kubelet has told it last. Empty: it has not yet.
    pub boot_id: String,
}

#[derive(Deserialize)]
struct PartialObject {
    metadata: Meta,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Meta {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    node_info: Info,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    #[serde(rename = "bootID")]
    boot_id: String,
}

// === impl Cluster ===

impl Cluster {
    /// The Node of this node's name, from the API server. `None`: there is none.
    ///
    /// # Errors
    /// [`ApiError`]: then nothing is known of it.
    pub async fn fetch_own_node(&self) -> Result<Option<OwnNode>, ApiError> {
        let asked = RequestedObject { verb: "get", group: "", resource: "nodes", of: self.node().into() };
        let seen: Option<PartialObject> = self.inner.caller.get(&asked, Request::new(PATH).get(self.node(), &GetParams::default())).await?;
        Ok(seen.map(|PartialObject { metadata, status }| OwnNode { uid: metadata.uid, boot_id: status.node_info.boot_id }))
    }
}
