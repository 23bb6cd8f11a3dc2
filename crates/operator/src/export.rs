//! The way back: writes whereabouts' objects, so that it knows the address of each pod.
//!
//! ```text
//!   whereabouts' objects, pods, definitions --list--> ipam::plan_export --> IPPools and reservations made, changed and deleted
//! ```
//!
//! It can be run again at any time, and again after a part of it has failed: what is as it should be is not written.

use std::collections::BTreeMap;
use std::path::Path;

use cluster::Connection;
use http::{Method, Request};
use ipam::{ExportPlan, plan_export};
use kube::Client;
use serde_json::{Value, json};

use crate::apply_write::make;
use crate::import::{ImportError, inventory, list};

const API: &str = "whereabouts.cni.cncf.io/v1alpha1";

/// What was done, or would be.
#[derive(Debug, Clone, Default)]
pub struct Exported {
    /// What whereabouts is to know.
    pub plan: ExportPlan,
    /// The number of objects that are created or changed.
    pub written: usize,
    /// The number of objects that are deleted.
    pub deleted: usize,
}

/// A kind of whereabouts.
struct Kind {
    kind: &'static str,
    plural: &'static str,
}

const POOL: Kind = Kind { kind: "IPPool", plural: "ippools" };
const RESERVATION: Kind = Kind { kind: "OverlappingRangeIPReservation", plural: "overlappingrangeipreservations" };

/// [`export`], for who has no connection yet: by a kubeconfig, or as a pod.
///
/// # Errors
/// [`ImportError`]
pub fn export_by(kubeconfig: Option<&Path>, namespace: &str, dry: bool) -> Result<Exported, ImportError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| ImportError::Runtime(e.to_string()))?;
    runtime.block_on(async { export(&cluster::client(kubeconfig).await?, namespace, dry).await })
}

/// What pods have becomes whereabouts' again. `namespace`: where its objects are; `dry`: it is only told.
///
/// # Errors
/// [`ImportError`]
pub async fn export(connection: &Connection, namespace: &str, dry: bool) -> Result<Exported, ImportError> {
    let client = connection.client();
    let plan = plan_export(&inventory(&client).await?);
    let mut done = Exported::default();
    let pools = plan.pools.iter().map(|pool| (pool.name.clone(), json!(pool))).collect();
    let reservations = plan.reservations.iter().map(|one| (one.name.clone(), json!(one))).collect();
    let target = |kind| Target { client: &client, kind, namespace, dry };
    let (of_pools, of_reservations) = (target(&POOL), target(&RESERVATION));
    let (pools_there, reservations_there) = (of_pools.list().await?, of_reservations.list().await?);
    // A reservation keeps an address from all other ranges: it is created before the pools are written, and deleted after them.
    done.written += of_reservations.put(&reservations_there, &reservations).await?;
    done.written += of_pools.put(&pools_there, &pools).await?;
    done.deleted += of_reservations.delete(&reservations_there, &reservations).await?;
    Ok(Exported { plan, ..done })
}

/// The objects of a kind in a namespace.
struct Target<'a> {
    client: &'a Client,
    kind: &'a Kind,
    namespace: &'a str,
    /// Nothing is written.
    dry: bool,
}

// === impl Target ===

impl Target<'_> {
    fn path(&self) -> String {
        format!("/apis/{API}/namespaces/{}/{}", self.namespace, self.kind.plural)
    }

    /// All of them, by name.
    async fn list(&self) -> Result<BTreeMap<String, Value>, ImportError> {
        let objects = list::<Value>(self.client, self.kind.kind, &self.path()).await?;
        Ok(objects.into_iter().map(|object| (name(&object), object)).collect())
    }

    /// Creates and changes what is to have another spec. Returns the number of objects that differ.
    async fn put(&self, there: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>) -> Result<usize, ImportError> {
        let mut written = 0;
        for (name, spec) in wanted {
            let request = match there.get(name) {
                Some(object) if object.get("spec") == Some(spec) => continue,
                Some(object) => {
                    let steps = json!([
                        {"op": "replace", "path": "/metadata/resourceVersion", "value": version(object)},
                        {"op": "add", "path": "/spec", "value": spec},
                    ]);
                    make(Method::PATCH, format!("{}/{name}", self.path()), "application/json-patch+json", &steps)
                }
                None => {
                    let metadata = json!({"name": name, "namespace": self.namespace});
                    let object = json!({"apiVersion": API, "kind": self.kind.kind, "metadata": metadata, "spec": spec});
                    make(Method::POST, self.path(), "application/json", &object)
                }
            };
            self.send(name, request).await?;
            written += 1;
        }
        Ok(written)
    }

    /// Deletes what is not wanted. Returns the number of objects.
    async fn delete(&self, there: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>) -> Result<usize, ImportError> {
        let mut deleted = 0;
        for (name, object) in there.iter().filter(|(name, _)| !wanted.contains_key(*name)) {
            let body = json!({"preconditions": {"resourceVersion": version(object)}});
            self.send(name, make(Method::DELETE, format!("{}/{name}", self.path()), "application/json", &body)).await?;
            deleted += 1;
        }
        Ok(deleted)
    }

    /// Sends a write, unless nothing is to be written.
    async fn send(&self, name: &str, request: Result<Request<Vec<u8>>, http::Error>) -> Result<(), ImportError> {
        if self.dry {
            return Ok(());
        }
        let failed = |error: String| ImportError::Write { kind: self.kind.kind, name: name.to_owned(), error };
        let request = request.map_err(|e| failed(e.to_string()))?;
        self.client.request_text(request).await.map(drop).map_err(|e| failed(e.to_string()))
    }
}

fn name(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn version(object: &Value) -> &str {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}
