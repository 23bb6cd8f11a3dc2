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

use crate::carry::make;
use crate::import::{ImportError, inventory, list};

const API: &str = "whereabouts.cni.cncf.io/v1alpha1";

/// What was done, or would be.
#[derive(Debug, Clone, Default)]
pub struct Exported {
    /// What whereabouts is to know.
    pub plan: ExportPlan,
    /// So many objects are made or changed.
    pub written: usize,
    /// So many objects are deleted.
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
    // A reservation keeps an address from all others: it is there before, and goes after the pools.
    done.bring(&client, &RESERVATION, namespace, &reservations, Write::Put, dry).await?;
    done.bring(&client, &POOL, namespace, &pools, Write::Put, dry).await?;
    done.bring(&client, &RESERVATION, namespace, &reservations, Write::Delete, dry).await?;
    Ok(Exported { plan, ..done })
}

/// Which of the differences are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    /// What is missing or other.
    Put,
    /// What is not wanted.
    Delete,
}

// === impl Exported ===

impl Exported {
    /// Brings a kind's objects of a namespace to what is wanted, by name and spec.
    async fn bring(
        &mut self,
        client: &Client,
        kind: &Kind,
        namespace: &str,
        wanted: &BTreeMap<String, Value>,
        write: Write,
        dry: bool,
    ) -> Result<(), ImportError> {
        let path = format!("/apis/{API}/namespaces/{namespace}/{}", kind.plural);
        let there: BTreeMap<String, Value> = list::<Value>(client, kind.kind, &path).await?.into_iter().map(|o| (name(&o), o)).collect();
        if write == Write::Delete {
            for (name, object) in there.iter().filter(|(name, _)| !wanted.contains_key(*name)) {
                self.deleted += 1;
                let body = json!({"preconditions": {"resourceVersion": version(object)}});
                send(client, (kind, name), make(Method::DELETE, format!("{path}/{name}"), "application/json", &body), dry).await?;
            }
            return Ok(());
        }
        for (name, spec) in wanted {
            match there.get(name) {
                Some(object) if object.get("spec") == Some(spec) => continue,
                Some(object) => {
                    let steps = json!([
                        {"op": "replace", "path": "/metadata/resourceVersion", "value": version(object)},
                        {"op": "add", "path": "/spec", "value": spec},
                    ]);
                    let request = make(Method::PATCH, format!("{path}/{name}"), "application/json-patch+json", &steps);
                    send(client, (kind, name), request, dry).await?;
                }
                None => {
                    let metadata = json!({"name": name, "namespace": namespace});
                    let object = json!({"apiVersion": API, "kind": kind.kind, "metadata": metadata, "spec": spec});
                    send(client, (kind, name), make(Method::POST, path.clone(), "application/json", &object), dry).await?;
                }
            }
            self.written += 1;
        }
        Ok(())
    }
}

fn name(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn version(object: &Value) -> &str {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

/// Sends a write, unless it is only told.
async fn send(
    client: &Client,
    (kind, name): (&Kind, &str),
    request: Result<Request<Vec<u8>>, http::Error>,
    dry: bool,
) -> Result<(), ImportError> {
    if dry {
        return Ok(());
    }
    let failed = |error: String| ImportError::Write { kind: kind.kind, name: name.to_owned(), error };
    let request = request.map_err(|e| failed(e.to_string()))?;
    client.request_text(request).await.map(drop).map_err(|e| failed(e.to_string()))
}
