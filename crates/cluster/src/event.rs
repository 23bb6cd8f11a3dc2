//! Events on a pod: what its owner can mend. The same event is counted up instead of told again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::call::ANSWER;
use crate::{ApiError, Asked, Cluster, Digest, PodRef};

/// For how long an event is the same one.
const SAME: Duration = Duration::from_secs(600);
/// The most events of one pod in that time. More than an owner reads, and one pod cannot fill etcd.
const PER_POD: usize = 16;
/// The most pods of which events are remembered.
const PODS: usize = 512;
/// The longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;
/// The longest part of a pod's name that goes into an event's, in bytes.
const MAX_STEM: usize = 230;
/// Who tells.
const CONTROLLER: &str = "netloom.io/agent";

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// For information.
    Normal,
    /// Something that should be mended.
    Warning,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It is a new object.
    New,
    /// It was told before; its count is higher now.
    Counted,
    /// The pod has too many already: it was dropped.
    Dropped,
}

/// What was told of which pod. By UID; the pod that was told of longest ago is forgotten first.
#[derive(Default)]
pub(crate) struct Told(Mutex<Pods>);

/// Events by their pod's UID, and the UIDs from the oldest on.
#[derive(Default)]
struct Pods {
    events: HashMap<String, Vec<One>>,
    order: VecDeque<String>,
}

/// An event that was told.
struct One {
    what: Digest,
    name: String,
    first: Instant,
    count: u32,
}

/// What to do with an event.
enum Turn {
    Create(String),
    Count(String, u32),
    Drop,
}

// === impl EventKind ===

impl EventKind {
    fn word(self) -> &'static str {
        match self {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        }
    }
}

// === impl Told ===

impl Told {
    fn turn(&self, about: &PodRef, what: Digest, name: impl FnOnce() -> String) -> Turn {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Pods { events: pods, order } = &mut *told;
        if !pods.contains_key(&about.uid) {
            order.push_back(about.uid.clone());
            if order.len() > PODS
                && let Some(oldest) = order.pop_front()
            {
                pods.remove(&oldest);
            }
        }
        let events = pods.entry(about.uid.clone()).or_default();
        events.retain(|one| one.first.elapsed() < SAME);
        if let Some(one) = events.iter_mut().find(|one| one.what == what) {
            one.count += 1;
            return Turn::Count(one.name.clone(), one.count);
        }
        if events.len() >= PER_POD {
            return Turn::Drop;
        }
        let name = name();
        events.push(One { what, name: name.clone(), first: Instant::now(), count: 1 });
        Turn::Create(name)
    }

    /// It was not told after all.
    fn forget(&self, about: &PodRef, what: Digest) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(events) = told.events.get_mut(&about.uid) {
            events.retain(|one| one.what != what);
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// Tells an event about a pod (`events.k8s.io/v1`). The same one within ten minutes is counted up; after sixteen
    /// different ones in that time the pod's others are dropped. `reason` is one word in camel case, as in `kubectl get
    /// events`; `message` is cut after 1,024 bytes.
    ///
    /// # Errors
    /// [`ApiError`]; nothing depends on an event, so a caller logs it and goes on.
    pub async fn event(&self, about: &PodRef, kind: EventKind, reason: &str, message: &str) -> Result<Recorded, ApiError> {
        let what = Digest::of(&format!("{}\n{reason}\n{message}", kind.word()));
        // As the names of others' events: of what, and when.
        let name = || format!("{}.{:x}", stem(&about.name), Timestamp::now().as_nanosecond());
        match self.inner.told.turn(about, what, name) {
            Turn::Drop => Ok(Recorded::Dropped),
            Turn::Create(name) => self.create(about, kind, reason, message, name, what).await,
            Turn::Count(name, count) => match self.count(about, &name, count).await {
                // It has expired, or somebody deleted it.
                Err(ApiError::NotServed { .. }) => self.create(about, kind, reason, message, name, what).await,
                other => other,
            },
        }
    }

    async fn create(
        &self,
        about: &PodRef,
        kind: EventKind,
        reason: &str,
        message: &str,
        name: String,
        what: Digest,
    ) -> Result<Recorded, ApiError> {
        let asked = Asked { verb: "create", group: "events.k8s.io", resource: "events", of: format!("about pod {about}").into() };
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace},
            "eventTime": now(),
            "reportingController": CONTROLLER,
            "reportingInstance": self.inner.node,
            "action": "Attach",
            "reason": reason,
            "type": kind.word(),
            "note": cut(message),
            "regarding": {
                "apiVersion": "v1", "kind": "Pod", "namespace": about.namespace, "name": about.name, "uid": about.uid,
            },
        });
        let data = event.to_string().into_bytes();
        let request = Request::new(path(about)).create(&PostParams::default(), data);
        match self.inner.caller.ask::<IgnoredAny>(&asked, request, ANSWER).await {
            Ok(IgnoredAny) => Ok(Recorded::New),
            Err(e) => {
                self.inner.told.forget(about, what);
                Err(e)
            }
        }
    }

    async fn count(&self, about: &PodRef, name: &str, count: u32) -> Result<Recorded, ApiError> {
        let asked = Asked { verb: "patch", group: "events.k8s.io", resource: "events", of: format!("about pod {about}").into() };
        let change = Patch::Merge(json!({"series": {"count": count, "lastObservedTime": now()}}));
        let request = Request::new(path(about)).patch(name, &PatchParams::default(), &change);
        self.inner.caller.ask::<IgnoredAny>(&asked, request, ANSWER).await.map(|IgnoredAny| Recorded::Counted)
    }
}

fn path(about: &PodRef) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{}/events", about.namespace)
}

/// The beginning of an event's name: with the rest it may have 253 bytes, and no dot may follow a dot or a dash.
fn stem(pod: &str) -> &str {
    pod.get(..MAX_STEM).unwrap_or(pod).trim_end_matches(['.', '-'])
}

/// Now, as the API server wants it: microseconds, all six digits.
fn now() -> Value {
    Value::String(format!("{:.6}", Timestamp::now()))
}

/// What fits into a note, in whole characters.
fn cut(message: &str) -> &str {
    let mut end = message.len().min(MAX_NOTE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}
