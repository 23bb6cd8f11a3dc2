//! One write, carried out if its object has still the version that was read.

use std::time::Duration;

use cluster::Own;
use http::{Method, Request};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::core::DynamicObject;
use ledger::Write;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::store::{Inner, Kind};
use crate::{cilium_nodes, claims};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// What came of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was carried out; this is the object now. `None`: it is gone, or going.
    Done(Option<Box<DynamicObject>>),
    /// The object is another one by now. It has to be read again.
    Conflict,
    /// The server refuses this one, and may refuse it for ever: others are another matter.
    Refused(String),
    /// Nobody knows: the server did not answer, or has no time.
    Failed(String),
}

/// What an object is asked for.
pub(crate) enum ReadResult {
    Is(Box<DynamicObject>),
    Absent,
    Unknown(String),
}

/// The kind of a write's object.
pub(crate) fn kind(write: &Write) -> Kind {
    match write {
        Write::Shard { .. } => Kind::Own(Own::IpLedgerShard),
        Write::NodePool { .. } | Write::NodePoolGone { .. } => Kind::Own(Own::NodeIpPool),
        Write::Finalizer { .. } | Write::PoolStatus { .. } => Kind::Own(Own::IpPool),
        Write::Claim { .. } | Write::ClaimGone { .. } | Write::ClaimFinalizer { .. } | Write::ClaimStatus { .. } => Kind::Claim,
        Write::CiliumNode { .. } | Write::CiliumPool { .. } | Write::CiliumRelease { .. } | Write::CiliumNodeGone { .. } => {
            Kind::CiliumNode
        }
    }
}

/// Where the objects of a kind are, and the name of one there.
fn place(kind: Kind, name: &str) -> (String, String) {
    let (namespace, plain) = name.split_once('/').unwrap_or(("", name));
    let path = match kind {
        Kind::Own(own) => own.path(),
        Kind::Claim => claims::path(namespace),
        Kind::Node => "/api/v1/nodes".to_owned(),
        Kind::CiliumNode => cilium_nodes::PATH.to_owned(),
        // Read by watches only.
        Kind::Definition | Kind::Pod | Kind::StatefulSet => String::new(),
    };
    (path, plain.to_owned())
}

/// The request of a write. `None`: what it is about is not there any more.
pub(crate) fn request(write: &Write, seen: &Inner) -> Option<Result<Request<Vec<u8>>, http::Error>> {
    let kind = kind(write);
    let (path, name) = place(kind, write.object().1);
    let new = |metadata: Value, spec: Value| {
        let version = if kind == Kind::Claim { api::CLAIM_VERSION } else { api::API_VERSION };
        let object = json!({"apiVersion": version, "kind": kind.name(), "metadata": metadata, "spec": spec});
        make(Method::POST, path.clone(), "application/json", &object)
    };
    let replace_all = |version: &str, parts: Vec<(&str, Value)>, under: &str| {
        // A version that an object is given must be the one that it has: then another one is a conflict.
        let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version});
        let parts = parts.into_iter().map(|(place, value)| json!({"op": "add", "path": place, "value": value}));
        let steps: Vec<Value> = [version].into_iter().chain(parts).collect();
        make(Method::PATCH, format!("{path}/{name}{under}"), "application/json-patch+json", &json!(steps))
    };
    let replace = |place: &str, version: &str, value: Value, under: &str| replace_all(version, vec![(place, value)], under);
    let merge = |patch: &Value, under: &str| make(Method::PATCH, format!("{path}/{name}{under}"), "application/merge-patch+json", patch);
    let delete = |uid: &str, version: &str| {
        let options = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
        make(Method::DELETE, format!("{path}/{name}"), "application/json", &options)
    };
    let finalizer = |all: &[String], version: &str, present: bool| {
        let others = all.iter().filter(|f| *f != ledger::FINALIZER).cloned();
        let all: Vec<String> = others.chain(present.then(|| ledger::FINALIZER.to_owned())).collect();
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": all}});
        merge(&patch, "")
    };
    Some(match write {
        // Nobody deletes it by mistake, with its kind's definition say, while somebody has a block of it.
        Write::Shard { version: None, spec, .. } => new(json!({"name": name, "finalizers": [ledger::FINALIZER]}), json!(spec)),
        Write::Shard { version: Some(version), spec, .. } => replace("/spec", version, json!(spec), ""),
        // It outlives its Node, as long as the node's agent does: no Node owns it.
        Write::NodePool { version: None, spec, .. } => new(json!({"name": name}), json!(spec)),
        Write::NodePool { version: Some(version), spec, .. } => {
            let owners = seen.owners.get(&name).map(|others| ("/metadata/ownerReferences", json!(others)));
            replace_all(version, [("/spec", json!(spec))].into_iter().chain(owners).collect(), "")
        }
        Write::NodePoolGone { uid, version, .. } | Write::ClaimGone { uid, version, .. } | Write::CiliumNodeGone { uid, version, .. } => {
            delete(uid, version)
        }
        Write::CiliumNode { node_uid, wants, .. } => {
            make(Method::POST, path.clone(), "application/json", &cilium_nodes::made(&name, node_uid, wants))
        }
        Write::CiliumPool { name, version, node_uid, pool } => {
            let owners = seen.cilium.get(name)?;
            merge(&cilium_nodes::pooled(name, version, node_uid.as_deref(), owners, pool), "")
        }
        Write::CiliumRelease { version, release, .. } => merge(&cilium_nodes::released(version, release), "/status"),
        Write::Finalizer { version, present, .. } => finalizer(&seen.pools.get(&name)?.finalizers, version, *present),
        Write::PoolStatus { version, status, .. } => {
            let mut status = status.clone();
            dated(&mut status.conditions);
            replace("/status", version, json!(status), "/status")
        }
        Write::Claim { auto, .. } => new(claims::metadata(auto), json!(auto.spec())),
        Write::ClaimFinalizer { name, version, present } => finalizer(seen.claims.get(name)?, version, *present),
        Write::ClaimStatus { version, status, .. } => {
            let mut status = status.clone();
            dated(&mut status.conditions);
            replace("/status", version, json!(status), "/status")
        }
    })
}

/// A condition that has changed has done so now.
fn dated(conditions: &mut [api::Condition]) {
    for condition in conditions.iter_mut().filter(|c| c.last_transition_time.is_empty()) {
        condition.last_transition_time = format!("{:.0}", Timestamp::now());
    }
}

/// Lets a shard go that somebody has deleted.
pub(crate) async fn let_go(client: &Client, name: &str, version: &str) {
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": null}});
    let request = make(Method::PATCH, format!("{}/{name}", Own::IpLedgerShard.path()), "application/merge-patch+json", &patch);
    if let Ok(request) = request {
        // The watch tells what came of it.
        drop(timeout(ANSWER, client.request_text(request)).await);
    }
}

pub(crate) fn make(method: Method, uri: String, content: &str, body: &Value) -> Result<Request<Vec<u8>>, http::Error> {
    Request::builder().method(method).uri(uri).header(http::header::CONTENT_TYPE, content).body(body.to_string().into_bytes())
}

/// Sends a write.
pub(crate) async fn apply_write(client: &Client, write: &Write, request: Result<Request<Vec<u8>>, http::Error>) -> Outcome {
    // A claim that is deleted stays until its finalizer is off.
    let deletes = matches!(write, Write::NodePoolGone { .. } | Write::CiliumNodeGone { .. });
    sent(client, request, deletes).await
}

/// Sends what is answered with an object.
pub(crate) async fn send(client: &Client, request: Result<Request<Vec<u8>>, http::Error>) -> Outcome {
    sent(client, request, false).await
}

/// Sends a deletion.
pub(crate) async fn delete(client: &Client, request: Result<Request<Vec<u8>>, http::Error>) -> Outcome {
    sent(client, request, true).await
}

async fn sent(client: &Client, request: Result<Request<Vec<u8>>, http::Error>, deletes: bool) -> Outcome {
    let request = match request {
        Ok(request) => request,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let answer = match timeout(ANSWER, client.request_text(request)).await {
        Err(_) => return Outcome::Failed(format!("no answer in {} s", ANSWER.as_secs())),
        Ok(Ok(_)) if deletes => return Outcome::Done(None),
        Ok(answer) => answer,
    };
    match answer {
        Ok(text) => match serde_json::from_str::<DynamicObject>(&text) {
            // The last finalizer is off: the object is not there any more.
            Ok(object) if object.metadata.deletion_timestamp.is_some() && object.metadata.finalizers.iter().flatten().next().is_none() => {
                Outcome::Done(None)
            }
            Ok(object) => Outcome::Done(Some(Box::new(object))),
            Err(e) => Outcome::Failed(format!("the answer is unreadable: {e}")),
        },
        Err(kube::Error::Api(status)) if [404, 409, 410].contains(&status.code) => Outcome::Conflict,
        Err(kube::Error::Api(status)) if ![429, 503, 504].contains(&status.code) => Outcome::Refused(status.to_string()),
        Err(e) => Outcome::Failed(e.to_string()),
    }
}

/// Reads an object as it is now.
pub(crate) async fn read(client: &Client, kind: Kind, name: &str) -> ReadResult {
    let (path, name) = place(kind, name);
    let path = format!("{path}/{name}");
    let request = match Request::get(path).body(Vec::new()) {
        Ok(request) => request,
        Err(e) => return ReadResult::Unknown(e.to_string()),
    };
    match timeout(ANSWER, client.request::<DynamicObject>(request)).await {
        Err(_) => ReadResult::Unknown(format!("no answer in {} s", ANSWER.as_secs())),
        Ok(Ok(object)) => ReadResult::Is(Box::new(object)),
        // A kind that is not served is 404, too, and names no object.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 && status.details.as_ref().is_some_and(|d| d.name == name) => {
            ReadResult::Absent
        }
        Ok(Err(e)) => ReadResult::Unknown(e.to_string()),
    }
}

#[cfg(test)]
#[path = "apply_write_tests.rs"]
mod tests;
