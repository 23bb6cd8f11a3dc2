//! What whoever looks at a pool or a node is to see: Events. One that is not written is not written: the condition says the same.

use http::Request;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

/// An Event about a cluster-scoped object of ours.
pub(crate) struct Told<'a> {
    pub(crate) kind: &'static str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) normal: bool,
    pub(crate) reason: &'a str,
    pub(crate) note: &'a str,
}

/// The longest note that the API server takes.
const LONGEST: usize = 1024;

/// Writes an Event; those of cluster-scoped objects are in the namespace `default`.
pub(crate) async fn tell(client: &Client, identity: &str, it: &Told<'_>) {
    let now = Timestamp::now();
    let mut note = it.note.to_owned();
    while note.len() > LONGEST {
        note.pop();
    }
    let body = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"generateName": format!("{}.", it.name), "namespace": "default"},
        "eventTime": format!("{now:.6}"), "reportingController": "netloom.io/operator", "reportingInstance": identity,
        "type": if it.normal { "Normal" } else { "Warning" }, "reason": it.reason, "action": "Grant", "note": note,
        "regarding": {"apiVersion": "netloom.io/v1alpha1", "kind": it.kind, "name": it.name, "uid": it.uid},
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let request = Request::post(path).header(http::header::CONTENT_TYPE, "application/json").body(body.to_string().into_bytes());
    if let Ok(request) = request {
        drop(client.request::<Value>(request).await);
    }
}
