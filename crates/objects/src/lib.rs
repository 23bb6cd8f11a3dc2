//! An object store that answers a `kube::Client` as the Kubernetes API server does, without a network.
//!
//! ```text
//!   kube::Client -> Service -> Call (verb, resource, parameters) -> read | write | patch | delete | watch
//!                                                                     |
//!                                   State: kinds, one revision, a Table per resource -> Change -> watchers
//! ```
//!
//! The same tests run against the store and against a real API server (`tests/agree`). It differs from it, knowingly, in this:
//!
//! - An object is kept as it was sent. Defaults are not filled in (but for the status of pods, namespaces and definitions), fields are
//!   neither checked nor dropped (but for names, and a pod's containers), and no field but UID, name and the like is immutable.
//! - Server-side apply is a merge that creates. There are no `managedFields`, so an apply removes nothing and meets no conflict.
//! - Nothing runs beside it: no controller deletes what a namespace or an owner held, and a pod is deleted at once, whatever its grace
//!   period. A definition is served as soon as it is created, and gone with its objects as soon as it is deleted.
//! - Who asks is not looked at: everything is permitted.

mod call;
mod definition;
mod delete;
mod event;
mod kind;
mod object;
mod patch;
mod put;
mod read;
mod refusal;
mod selector;
mod serve;
mod service;
mod state;
mod table;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use put::PutError;
pub use service::{Answer, AnswerFailed, Service};
use state::State;

/// How many requests came, by verb (as RBAC names it) and resource (`pods`, `pods/status`, `leases.coordination.k8s.io`).
pub type Requests = BTreeMap<(&'static str, String), u64>;

/// The store. A clone is the same store.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    requests: Mutex<Requests>,
}

// === impl Store ===

impl Store {
    /// A store with the namespaces `default`, `kube-system`, `kube-public` and `kube-node-lease`.
    #[must_use]
    pub fn new() -> Self {
        let store = Self { shared: Arc::new(Shared { state: Mutex::new(State::new()), requests: Mutex::default() }) };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            store.shared.state().add(&format!("/api/v1/namespaces/{name}"), &serde_json::json!({"metadata": {"name": name}}));
        }
        store
    }

    /// A client of the store. It must be made inside a tokio runtime, where it has a task.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// What answers the requests, to be wrapped in layers of one's own.
    #[must_use]
    pub fn service(&self) -> Service {
        Service::new(Arc::clone(&self.shared))
    }

    /// Creates the definition of NetworkAttachmentDefinitions, as an administrator does; nothing happens if it is there.
    pub fn install_network_attachment_definitions(&self) {
        let place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/network-attachment-definitions.k8s.cni.cncf.io";
        self.shared.state().add(place, &definition::network_attachment_definitions());
    }

    /// Is a server that cannot be reached: every request fails, every watch ends.
    pub fn stop(&self) {
        let mut state = self.shared.state();
        state.reachable = false;
        state.tables_mut().for_each(table::Table::end_watches);
    }

    /// Answers again after [`Store::stop`], with everything that it had.
    pub fn start(&self) {
        self.shared.state().reachable = true;
    }

    /// Ends every watch, as a restart or a proxy's timeout does.
    pub fn end_watches(&self) {
        self.shared.state().tables_mut().for_each(table::Table::end_watches);
    }

    /// Forgets what happened so far: a watch from an older resource version, or the rest of a list that was begun, is `410 Gone`.
    pub fn forget_history(&self) {
        let mut state = self.shared.state();
        let revision = state.revision;
        state.tables_mut().for_each(|table| table.forget(revision));
    }

    /// Keeps so many changes of each resource for watches that begin in the past: 1,000 if not told otherwise.
    pub fn keep(&self, changes: usize) {
        self.shared.state().keep = changes;
    }

    /// Sends a bookmark so often to the watches that begin from now on and ask for them: every minute if not told otherwise.
    pub fn bookmark_every(&self, time: Duration) {
        self.shared.state().bookmarks = time;
    }

    /// Lets each request wait before it is looked at.
    pub fn delay(&self, time: Duration) {
        self.shared.state().delay = time;
    }

    /// The requests so far, those that were refused as well; not those that came while the store was stopped.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The resource version of the last write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.state().revision
    }

    /// How many watches are open.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.shared.state().tables_mut().map(|table| table.watches()).sum()
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Shared ===

impl Shared {
    // A panic under the lock leaves the state as the last whole statement left it; tests that look on are not to hang.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, verb: &'static str, resource: String) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry((verb, resource)).or_default() += 1;
    }
}
