//! Events on a pod: what it got, and what its owner can mend. The same event is counted up instead of told again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::call::ANSWER;
use crate::event::{AGENT_CONTROLLER, now, path};
use crate::{About, ApiError, Cluster, Digest, Event, EventKind, PodRef, RequestedObject};

/// For how long an event is the same one.
const SAME: Duration = Duration::from_secs(600);
/// The most events of one pod in that time. More than an owner reads, and one pod cannot fill etcd.
const PER_POD: usize = 16;
/// After this time a count that grew is written, even if it has not doubled.
const COUNTED: Duration = Duration::from_secs(60);
/// The most pods of which events are remembered.
const PODS: usize = 512;
/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It is a new object.
    New,
    /// It was told before; its count is higher now.
    Counted,
    /// It was told before, and its count was written a moment ago: the next one that is written has this one in it.
    Kept,
    /// The pod has too many already: it was dropped.
    Dropped,
}

/// What was told of which pod. By UID; the pod that was told of longest ago is forgotten first.
#[derive(Default)]
pub(crate) struct EventDedup(Mutex<Pods>);

/// Events by their pod's UID, and the UIDs from the oldest on.
#[derive(Default)]
struct Pods {
    events: HashMap<String, Vec<DedupEntry>>,
    order: VecDeque<String>,
}

/// An event that was told.
struct DedupEntry {
    what: Digest,
    name: String,
    first: Instant,
    count: u32,
    /// The count that the API server has, and since when.
    written: (u32, Instant),
}

/// What to do with an event.
enum EventWrite {
    Create(String),
    Count(String, u32),
    Keep,
    Drop,
}

// === impl EventDedup ===

impl EventDedup {
    fn turn(&self, about: &PodRef, what: Digest, times: u32, name: impl FnOnce() -> String) -> EventWrite {
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
            one.count = one.count.saturating_add(times);
            let (written, at) = one.written;
            // Who is refused a thousand times a second is written of ten times, not a thousand.
            if one.count / 2 < written && at.elapsed() < COUNTED {
                return EventWrite::Keep;
            }
            one.written = (one.count, Instant::now());
            return EventWrite::Count(one.name.clone(), one.count);
        }
        if events.len() >= PER_POD {
            return EventWrite::Drop;
        }
        let name = name();
        let now = Instant::now();
        events.push(DedupEntry { what, name: name.clone(), first: now, count: times, written: (1, now) });
        EventWrite::Create(name)
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
    /// Tells an event about a pod (`events.k8s.io/v1`), which happened so many `times` since it was told last. The same one
    /// within ten minutes is counted up, and the count is written when it has doubled, or after a minute; after sixteen
    /// different ones in that time the pod's others are dropped. `reason` is one word in camel case, as in `kubectl get
    /// events`; `message` is cut after 1,024 bytes.
    ///
    /// # Errors
    /// [`ApiError`]; nothing depends on an event, so a caller logs it and goes on.
    pub async fn event(&self, about: &PodRef, kind: EventKind, reason: &str, message: &str, times: u32) -> Result<Recorded, ApiError> {
        let what = Digest::of(&format!("{}\n{reason}\n{message}", kind.word()));
        let PodRef { namespace, name, uid } = about;
        let regarding = About { api_version: "v1", kind: "Pod", namespace, name, uid };
        let (controller, instance, action) = (AGENT_CONTROLLER, self.inner.node.as_str(), "Attach");
        let event = Event { controller, instance, action, kind, reason, message, regarding };
        match self.inner.told.turn(about, what, times, || event.new_name()) {
            EventWrite::Drop => Ok(Recorded::Dropped),
            EventWrite::Keep => Ok(Recorded::Kept),
            EventWrite::Create(name) => self.create(about, &event, &name, what).await,
            EventWrite::Count(name, count) => match self.count(about, &name, count).await {
                // It has expired, or somebody deleted it.
                Err(ApiError::NotServed { .. }) => self.create(about, &event, &name, what).await,
                other => other,
            },
        }
    }

    async fn create(&self, about: &PodRef, event: &Event<'_>, name: &str, what: Digest) -> Result<Recorded, ApiError> {
        let asked = RequestedObject { verb: "create", group: "events.k8s.io", resource: "events", of: format!("about pod {about}").into() };
        match self.inner.caller.ask::<IgnoredAny>(&asked, event.request(name), ANSWER).await {
            Ok(IgnoredAny) => Ok(Recorded::New),
            Err(e) => {
                self.inner.told.forget(about, what);
                Err(e)
            }
        }
    }

    async fn count(&self, about: &PodRef, name: &str, count: u32) -> Result<Recorded, ApiError> {
        let asked = RequestedObject { verb: "patch", group: "events.k8s.io", resource: "events", of: format!("about pod {about}").into() };
        let change = Patch::Merge(json!({"series": {"count": count, "lastObservedTime": now()}}));
        let request = Request::new(path(&about.namespace)).patch(name, &PatchParams::default(), &change);
        self.inner.caller.ask::<IgnoredAny>(&asked, request, ANSWER).await.map(|IgnoredAny| Recorded::Counted)
    }
}
