//! A person says that nothing of a node runs any more: what it had is free, and nobody waits for what it would tell.
//!
//! ```text
//!   Node, NodeIPPool, ledger --what_to_reclaim--> which UIDs had that name, and what they have
//!   --reclaim--> an annotation of the IPPools, which the operator follows
//! ```
//!
//! Of a Node that is there nothing is freed: but a network whose ledger was lost does not wait for it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use api::{IpLedgerShardSpec, NodeIpPoolSpec};
use cluster::{ConnectError, Connection, Own};
use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;
use kube::core::DynamicObject;
use ledger::{Had, had};
use serde_json::json;

use crate::carry::{Found, make, read};
use crate::seen::{Kind, RECLAIM, part};

/// So often is a pool that others change at the same time read again.
const TRIES: u32 = 16;

/// What is to be said of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaim {
    /// Its name.
    pub node: String,
    /// The nodes that have had it.
    pub lives: Vec<Life>,
    /// The IPPools that will say so: those that there are.
    pub pools: Vec<String>,
}

/// A node: one that was made anew under its name is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// `metadata.uid` of the Node.
    pub uid: String,
    /// Whether the Node is there.
    pub is_there: bool,
    /// How long ago its agent has written the status of its object, where that is known.
    pub spoke: Option<Duration>,
    /// What it has by the ledger.
    pub has: Vec<Had>,
}

/// Why nothing was said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReclaimError {
    /// No connection could be prepared.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No requests can be sent.
    #[error("cannot start the asynchronous runtime: {0}")]
    Runtime(String),
    /// Something cannot be read. Nothing is guessed.
    #[error("cannot read {what}: {error}")]
    Read {
        /// What.
        what: String,
        /// Why.
        error: String,
    },
    /// Nobody has that name, and nobody had it.
    #[error("there is no Node {node:?}, and the ledger has nothing of one: `netloom ipam nodes` lists those that there are")]
    Unknown {
        /// The name.
        node: String,
    },
    /// There is nothing that could say so.
    #[error("the cluster has no IPPool: nothing was granted to anybody")]
    NoPool,
    /// A pool cannot be written.
    #[error("cannot write IPPool {pool}: {error}; run it again when that is mended, what was written holds")]
    Write {
        /// The pool.
        pool: String,
        /// Why.
        error: String,
    },
}

/// [`what_to_reclaim`], for who has no connection yet.
///
/// # Errors
/// [`ReclaimError`]
pub fn what_to_reclaim_by(kubeconfig: Option<&Path>, node: &str) -> Result<Reclaim, ReclaimError> {
    runtime()?.block_on(async { what_to_reclaim(&cluster::client(kubeconfig).await?, node).await })
}

/// [`reclaim`], for who has no connection yet.
///
/// # Errors
/// [`ReclaimError`]
pub fn reclaim_by(kubeconfig: Option<&Path>, what: &Reclaim) -> Result<(), ReclaimError> {
    runtime()?.block_on(async { reclaim(&cluster::client(kubeconfig).await?, what).await })
}

fn runtime() -> Result<tokio::runtime::Runtime, ReclaimError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| ReclaimError::Runtime(e.to_string()))
}

/// Which nodes have had that name, and what they have.
///
/// # Errors
/// [`ReclaimError`]; nothing was changed.
pub async fn what_to_reclaim(connection: &Connection, node: &str) -> Result<Reclaim, ReclaimError> {
    let client = connection.client();
    let known = found(&client, Kind::Node, node).await?;
    let object = found(&client, Kind::Own(Own::NodeIpPool), node).await?;
    let shards: Vec<IpLedgerShardSpec> =
        list(&client, Own::IpLedgerShard).await?.iter().filter_map(|shard| part(&shard.data, "spec")).collect();
    let mut has = had(&shards, node);
    let there = known.and_then(|node| node.metadata.uid).unwrap_or_default();
    let spec: NodeIpPoolSpec = object.as_ref().and_then(|object| part(&object.data, "spec")).unwrap_or_default();
    let spoke = object.as_ref().and_then(spoke);
    let mut uids: BTreeSet<String> = has.keys().cloned().collect();
    uids.extend([there.clone(), spec.node_uid.clone()].into_iter().filter(|uid| !uid.is_empty()));
    uids.remove("");
    let life = |uid: String| Life {
        is_there: uid == there,
        spoke: spoke.filter(|_| uid == spec.node_uid),
        has: has.remove(&uid).unwrap_or_default(),
        uid,
    };
    let lives: Vec<Life> = uids.into_iter().map(life).collect();
    if lives.is_empty() {
        return Err(ReclaimError::Unknown { node: node.to_owned() });
    }
    let pools: Vec<String> = list(&client, Own::IpPool).await?.into_iter().filter_map(|pool| pool.metadata.name).collect();
    if pools.is_empty() {
        return Err(ReclaimError::NoPool);
    }
    Ok(Reclaim { node: node.to_owned(), lives, pools })
}

/// Says so. What is said already is not said twice.
///
/// # Errors
/// [`ReclaimError::Write`]
pub async fn reclaim(connection: &Connection, what: &Reclaim) -> Result<(), ReclaimError> {
    let client = connection.client();
    for pool in &what.pools {
        let failed = |error: String| ReclaimError::Write { pool: pool.clone(), error };
        let mut tries = TRIES;
        while !annotate(&client, pool, what).await.map_err(failed)? {
            tries = tries.checked_sub(1).ok_or_else(|| failed("others change it all the time".to_owned()))?;
        }
    }
    Ok(())
}

/// Whether it says so now; `false`: it was changed meanwhile.
async fn annotate(client: &Client, pool: &str, what: &Reclaim) -> Result<bool, String> {
    let object = match read(client, Kind::Own(Own::IpPool), pool).await {
        Found::Is(object) => object,
        Found::Absent => return Ok(true),
        Found::Unknown(error) => return Err(error),
    };
    let said = object.metadata.annotations.as_ref().and_then(|all| all.get(RECLAIM)).cloned().unwrap_or_default();
    let mut uids: Vec<&str> = said.split(',').map(str::trim).filter(|uid| !uid.is_empty()).collect();
    let before = uids.len();
    what.lives.iter().map(|life| life.uid.as_str()).for_each(|uid| {
        if !uids.contains(&uid) {
            uids.push(uid);
        }
    });
    if uids.len() == before {
        return Ok(true);
    }
    let version = object.metadata.resource_version.unwrap_or_default();
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": {RECLAIM: uids.join(",")}}});
    let path = format!("{}/{pool}", Own::IpPool.path());
    let request = make(Method::PATCH, path, "application/merge-patch+json", &patch).map_err(|e| e.to_string())?;
    match client.request_text(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}

async fn found(client: &Client, kind: Kind, name: &str) -> Result<Option<DynamicObject>, ReclaimError> {
    match read(client, kind, name).await {
        Found::Is(object) => Ok(Some(*object)),
        Found::Absent => Ok(None),
        Found::Unknown(error) => Err(ReclaimError::Read { what: format!("{} {name}", kind.name()), error }),
    }
}

async fn list(client: &Client, own: Own) -> Result<Vec<DynamicObject>, ReclaimError> {
    let listed = own.api::<DynamicObject>(client.clone()).list(&ListParams::default()).await;
    listed.map(|list| list.items).map_err(|e| ReclaimError::Read { what: own.plural().to_owned(), error: e.to_string() })
}

/// How long ago the status was written, as the API server notes of each writer.
fn spoke(object: &DynamicObject) -> Option<Duration> {
    let fields = object.metadata.managed_fields.iter().flatten().filter(|field| field.subresource.as_deref() == Some("status"));
    let last = fields.filter_map(|field| field.time.as_ref()).map(|time| time.0).max()?;
    Duration::try_from(Timestamp::now().duration_since(last)).ok()
}
