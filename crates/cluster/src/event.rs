//! An event (`events.k8s.io/v1`): what whoever looks at an object is to see. Nothing depends on one.

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::PostParams;
use kube::core::{Request, request};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::timeout;

use crate::call::ANSWER;

/// As whom agents write events (`reportingController`).
pub const AGENT_CONTROLLER: &str = "netloom.io/agent";
/// As whom the operator writes them.
pub const OPERATOR_CONTROLLER: &str = "netloom.io/operator";

/// The longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;
/// The longest part of an object's name that goes into an event's, in bytes.
const MAX_STEM: usize = 230;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// For information.
    Normal,
    /// Something that should be mended.
    Warning,
}

/// An event that is to be told.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Who tells: `netloom.io/agent`.
    pub controller: &'static str,
    /// Which one of them.
    pub instance: &'a str,
    /// What it was about to do, in one word.
    pub action: &'static str,
    /// How bad it is.
    pub kind: EventKind,
    /// One word in camel case, as in `kubectl get events`.
    pub reason: &'a str,
    /// What a person reads; cut after 1,024 bytes.
    pub message: &'a str,
    /// Of what it is told.
    pub regarding: About<'a>,
}

/// An object, as an event names it.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct About<'a> {
    /// `apiVersion`
    pub api_version: &'a str,
    /// `kind`
    pub kind: &'a str,
    /// `metadata.namespace`; empty: it is in none, and its events are in `default`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: &'a str,
    /// `metadata.name`
    pub name: &'a str,
    /// `metadata.uid`
    pub uid: &'a str,
}

// === impl EventKind ===

impl EventKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        }
    }
}

// === impl Event ===

impl Event<'_> {
    /// Writes it once. One that is not written is not written: its teller has told it in some other way as well.
    pub async fn tell(&self, client: &Client) {
        if let Ok(request) = self.request(&self.new_name()) {
            drop(timeout(ANSWER, client.request::<IgnoredAny>(request)).await);
        }
    }

    /// As the names of others' events: of what, and when.
    pub(crate) fn new_name(&self) -> String {
        format!("{}.{:x}", stem(self.regarding.name), Timestamp::now().as_nanosecond())
    }

    pub(crate) fn request(&self, name: &str) -> Result<http::Request<Vec<u8>>, request::Error> {
        let namespace = namespace(self.regarding.namespace);
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": now(),
            "reportingController": self.controller,
            "reportingInstance": self.instance,
            "action": self.action,
            "reason": self.reason,
            "type": self.kind.word(),
            "note": note(self.message),
            "regarding": self.regarding,
        });
        Request::new(path(namespace)).create(&PostParams::default(), event.to_string().into_bytes())
    }
}

/// Where events of objects are that are in none.
fn namespace(of: &str) -> &str {
    if of.is_empty() { "default" } else { of }
}

/// Where a namespace's events are.
pub(crate) fn path(namespace: &str) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events")
}

/// The beginning of an event's name: with the rest it may have 253 bytes, and no dot may follow a dot or a dash.
fn stem(name: &str) -> &str {
    name.get(..MAX_STEM).unwrap_or(name).trim_end_matches(['.', '-'])
}

/// Now, as the API server wants it: microseconds, all six digits.
pub(crate) fn now() -> String {
    format!("{:.6}", Timestamp::now())
}

/// As much of a message as an event takes, in whole characters.
pub fn note(message: &str) -> &str {
    let mut end = message.len().min(MAX_NOTE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}
