//! What a node knows of its cluster, from caches that follow the API server, and the few questions that go to it at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kube::core::Request;
use kube::core::params::GetParams;
use kube::core::request;
use npwg::{Definition, DefinitionRef, crd};
use serde::de::IgnoredAny;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;

use crate::cache::{Cache, Change, Listed};
use crate::call::{ANSWER, Caller};
use crate::definition::{CachedDefinition, SeenDefinition};
use crate::event_dedup::EventDedup;
use crate::pod::SeenPod;
use crate::watch::{Watch, Watched};
use crate::{ApiError, Connection, Pod, RequestedObject, TooLarge};

/// Path of all definitions.
const DEFINITIONS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";

/// What one node knows of its cluster. A clone is the same; when the last one is dropped, the watches end.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) caller: Caller,
    pub(crate) node: String,
    pub(crate) told: EventDedup,
    pods: Arc<Cache<Arc<Pod>>>,
    definitions: Arc<Cache<CachedDefinition>>,
    watches: Vec<AbortHandle>,
}

/// Whether the caches can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Synced {
    /// The pods of this node.
    pub pods: Listed,
    /// The definitions of all namespaces.
    pub definitions: Listed,
}

/// What happened to a pod of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodChange {
    /// It is new, or something that [`Pod`] holds is different.
    Changed(Arc<Pod>),
    /// It is gone; this is what it was.
    Gone(Arc<Pod>),
    /// There were more changes than could be kept: compare with [`Cluster::pods`].
    Missed,
}

/// Changes of this node's pods, in order.
pub struct PodChanges {
    changes: broadcast::Receiver<Change<Arc<Pod>>>,
}

/// Pods of one node.
pub(crate) struct Pods;

/// Definitions of all namespaces.
pub(crate) struct Definitions;

// === impl Watched ===

impl Watched for Pods {
    type PartialObject = SeenPod;
    type Stored = Arc<Pod>;
    const RESOURCE: (&'static str, &'static str) = ("", "pods");
    const PATH: &'static str = "/api/v1/pods";
    // Only a list that is not paged comes from the server's own cache, where pods are indexed by node: a page would make etcd read
    // the whole cluster's. It is taken pod by pod, so that its length does not matter.
    const PAGE: u32 = 0;

    fn version(seen: &SeenPod) -> Option<&str> {
        seen.version()
    }

    fn keep(seen: SeenPod) -> (Box<str>, Arc<Pod>) {
        let pod = Pod::from(seen).trimmed();
        (format!("{}/{}", pod.namespace, pod.name).into(), Arc::new(pod))
    }
}

impl Watched for Definitions {
    type PartialObject = SeenDefinition;
    type Stored = CachedDefinition;
    const RESOURCE: (&'static str, &'static str) = (crd::GROUP, crd::PLURAL);
    const PATH: &'static str = DEFINITIONS;
    // Of each up to MAX_CONFIG bytes are kept: this bounds what is in memory at once.
    const PAGE: u32 = 50;

    fn version(seen: &SeenDefinition) -> Option<&str> {
        seen.version()
    }

    fn keep(seen: SeenDefinition) -> (Box<str>, Self::Stored) {
        match seen.checked() {
            Ok(definition) => (definition.reference().to_string().into(), CachedDefinition::Whole(Arc::new(definition))),
            Err(large) => (large.definition.to_string().into(), CachedDefinition::TooLarge(large)),
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// Starts to follow the API server for the node of that name (as `spec.nodeName` has it), and returns at once: the
    /// caches are empty until [`synced`](Self::synced) says otherwise. Must be called within a tokio runtime.
    pub fn start(connection: impl Into<Connection>, node: &str) -> Cluster {
        let caller = Caller::new(connection.into());
        let (pods, definitions) = (Arc::new(Cache::limited(Some(Pod::LIMIT))), Arc::new(Cache::limited(Some(CachedDefinition::LIMIT))));
        let fields = Some(format!("spec.nodeName={node}"));
        let of_pods = Watch::<Pods> { caller: caller.clone(), cache: Arc::clone(&pods), selector: fields };
        let of_definitions = Watch::<Definitions> { caller: caller.clone(), cache: Arc::clone(&definitions), selector: None };
        let watches = vec![tokio::spawn(of_pods.run()).abort_handle(), tokio::spawn(of_definitions.run()).abort_handle()];
        let told = EventDedup::default();
        Cluster { inner: Arc::new(Inner { caller, node: node.to_owned(), told, pods, definitions, watches }) }
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.inner.node
    }

    /// The API server's address, where its URL names no host.
    pub fn server_ip(&self) -> Option<IpAddr> {
        self.inner.caller.ip()
    }

    /// Whether the next request would have to open a connection, as far as is known: `true` for the first who asks, who is to open one.
    pub fn take_cold(&self) -> bool {
        self.inner.caller.take_cold()
    }

    /// Opens a connection for a request that will come soon, by a small one of its own.
    pub async fn warm(&self) {
        self.inner.caller.warm().await;
    }

    /// A pod of this node, from the cache: never waits. It may lack its texts ([`Pod::is_whole`]).
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.inner.pods.get(namespace, name)
    }

    /// All pods of this node, from the cache, in no order.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.inner.pods.all()
    }

    /// A definition, from the cache: never waits. `None` if it is not known (yet), or is one of too many to be kept.
    ///
    /// # Errors
    /// [`TooLarge`] if it is there, but cannot be used.
    pub fn definition(&self, wanted: &DefinitionRef) -> Result<Option<Arc<Definition>>, TooLarge> {
        match self.inner.definitions.get(&wanted.namespace, &wanted.name) {
            Some(CachedDefinition::Whole(definition)) => Ok(Some(definition)),
            Some(CachedDefinition::There) | None => Ok(None),
            Some(CachedDefinition::TooLarge(large)) => Err(large),
        }
    }

    /// A pod of any node, from the API server. `None`: there is none.
    ///
    /// # Errors
    /// [`ApiError`]: then nothing is known of the pod.
    pub async fn fetch_pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ApiError> {
        let asked = RequestedObject { verb: "get", group: "", resource: "pods", of: format!("{namespace}/{name}").into() };
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods")).get(name, &GetParams::default());
        Ok(self.inner.caller.get::<SeenPod>(&asked, request).await?.map(Pod::from))
    }

    /// A definition, from the API server. `None`: there is none.
    ///
    /// # Errors
    /// [`ApiError`]: then nothing is known of it, but with [`ApiError::TooLarge`].
    pub async fn fetch_definition(&self, wanted: &DefinitionRef) -> Result<Option<Arc<Definition>>, ApiError> {
        let noted = self.inner.definitions.found(&wanted.namespace, &wanted.name).filter(|(known, _)| *known == CachedDefinition::There);
        let asked = RequestedObject { verb: "get", group: crd::GROUP, resource: crd::PLURAL, of: wanted.to_string().into() };
        let path = format!("/apis/{}/namespaces/{}/{}", crd::API_VERSION, wanted.namespace, crd::PLURAL);
        let request = Request::new(path).get(&wanted.name, &GetParams::default());
        let found = self.inner.caller.get::<SeenDefinition>(&asked, request).await?;
        let found = found.map(SeenDefinition::checked).transpose()?.map(Arc::new);
        // It is used: the next pod finds it here.
        if let (Some((_, came)), Some(definition)) = (noted, &found) {
            self.inner.definitions.put_back(&wanted.namespace, &wanted.name, came, CachedDefinition::Whole(Arc::clone(definition)));
        }
        Ok(found)
    }

    /// Whether the caches can be trusted, for a readiness probe.
    pub fn synced(&self) -> Synced {
        Synced { pods: self.inner.pods.listed(), definitions: self.inner.definitions.listed() }
    }

    /// How often the API server was asked what, by verb and resource.
    pub fn requests(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.inner.caller.requests()
    }

    /// Whether the API server answers at all, whatever it says: asked for its version.
    ///
    /// # Errors
    /// [`ApiError`] if it cannot be reached.
    pub async fn answers(&self) -> Result<(), ApiError> {
        let asked = RequestedObject { verb: "get", group: "", resource: "version", of: "".into() };
        let request = http::Request::get("/version").body(Vec::new());
        match self.inner.caller.ask::<IgnoredAny>(&asked, request.map_err(request::Error::BuildRequest), ANSWER).await {
            Ok(_) | Err(ApiError::NotServed { .. } | ApiError::Forbidden { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Changes of this node's pods from now on. Subscribe first, then look at [`pods`](Self::pods).
    pub fn pod_changes(&self) -> PodChanges {
        PodChanges { changes: self.inner.pods.subscribe() }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watches.iter().for_each(AbortHandle::abort);
    }
}

// === impl Synced ===

impl Synced {
    /// Whether both lists came, at some time: from then on the caches answer, if with an earlier state.
    pub fn complete(&self) -> bool {
        self.pods.complete && self.definitions.complete
    }

    /// Whether nothing new comes at present.
    pub fn is_away(&self) -> bool {
        self.pods.failing.is_some() || self.definitions.failing.is_some() || self.missing().is_some()
    }

    /// What was never listed, and why, if anything was not.
    pub fn missing(&self) -> Option<String> {
        let lists = [("the pods of this node", &self.pods), ("the definitions", &self.definitions)];
        let (what, listed) = lists.into_iter().find(|(_, listed)| !listed.complete)?;
        let why = listed.failing.as_ref().map_or_else(|| "the API server has not answered yet".to_owned(), |f| f.error.to_string());
        Some(format!("{what} are not known yet: {why}"))
    }
}

impl std::fmt::Display for Synced {
    /// For a person: `following`, or what is wrong.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(missing) = self.missing() {
            return f.write_str(&missing);
        }
        match self.pods.failing.as_ref().or(self.definitions.failing.as_ref()) {
            None => f.write_str("following"),
            Some(failing) => {
                let since = failing.since.elapsed().unwrap_or_default().as_secs();
                write!(f, "unreachable for {since} s, using what was received before: {}", failing.error)
            }
        }
    }
}

// === impl PodChanges ===

impl PodChanges {
    /// Waits for the next change; `None` when the cluster is not followed any more. May be dropped while it waits.
    pub async fn next(&mut self) -> Option<PodChange> {
        match self.changes.recv().await {
            Ok(Change::Is(pod)) => Some(PodChange::Changed(pod)),
            Ok(Change::Gone(pod)) => Some(PodChange::Gone(pod)),
            Err(RecvError::Lagged(_)) => Some(PodChange::Missed),
            Err(RecvError::Closed) => None,
        }
    }
}
