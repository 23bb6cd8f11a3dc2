//! What the API server has said of pods, definitions and KuryrPorts, as far as ports depend on it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use binding::{CLUSTER_LABEL, Cluster, KURYR_CONFIG, KnownDefinition, ObjectName, Stored};
use futures::StreamExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use npwg::DefinitionRef;
use osvif::{KuryrNetwork, KuryrPort};
use serde_json::Value;
use tokio::sync::Notify;

use super::call::annotation_of;
use super::namespace_network::{MadeNetworks, description};
use super::options::OpenStack;
use crate::log::Line;
use crate::store::is_older;

/// How many objects are asked for at a time: a page is in memory as a whole.
const PAGE: u32 = 50;

/// The kinds that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Followed {
    Pod,
    Definition,
    KuryrPort,
    KuryrNetwork,
}

pub(crate) const FOLLOWED: [Followed; 4] = [Followed::Pod, Followed::Definition, Followed::KuryrPort, Followed::KuryrNetwork];

/// A pod that selects networks and is on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodSeen {
    pub(crate) name: ObjectName,
    pub(crate) node: String,
    /// The node's address, once the kubelet has written it.
    pub(crate) host_ip: String,
    /// What it selects; empty if nothing.
    pub(crate) annotation: String,
    /// Subnets that its default network's port has as well.
    pub(crate) additional_subnets: Option<String>,
    /// Whether its default network is the cluster's.
    pub(crate) has_default: bool,
    /// A digest of its annotation with VIFs, where such are written.
    pub(crate) vifs: Option<u64>,
    /// Its `resourceVersion`, where they are.
    pub(crate) version: String,
    /// Its containers run.
    pub(crate) is_running: bool,
    /// It never runs again.
    pub(crate) is_over: bool,
}

/// The KuryrNetwork of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkSeen {
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) finalizers: Vec<String>,
    /// The cluster whose operator has made it; none: another controller has.
    pub(crate) made_by: Option<String>,
    /// Somebody has deleted it.
    pub(crate) is_going: bool,
    /// What it says, or why it cannot be read.
    pub(crate) read: Result<KuryrNetwork, String>,
}

/// The subnet of pods' default network, where each namespace has its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum NamespaceSubnet<'a> {
    Ready(&'a str),
    /// It is to be made.
    NotYet,
    /// There is none, and none is made.
    Refused(String),
    /// Which networks operators of this cluster have made is not known yet.
    Unknown,
    /// Its network is none of those.
    Unproven(String),
}

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct PortStore {
    matter: Matter,
    inner: Mutex<Inner>,
    changed: Notify,
}

/// What of the API server's objects matters.
#[derive(Debug, Clone, Default)]
struct Matter {
    /// Whether pods that select nothing matter as well.
    all_pods: bool,
    /// Makes digests of annotations with VIFs, where they do: the texts of all pods would take much memory.
    annotations: Option<RandomState>,
    /// Whether each namespace has its own network: KuryrNetworks are waited for, otherwise they are followed where the cluster has the kind, because
    /// former ones must be removed.
    networks: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    matter: Matter,
    /// By UID.
    pub(crate) pods: BTreeMap<String, PodSeen>,
    /// UIDs of pods that were seen and are gone.
    pub(crate) gone: BTreeSet<String>,
    /// Each with its annotation, if it is Neutron's.
    definitions: BTreeMap<ObjectName, Option<String>>,
    /// Counts changes of definitions.
    pub(crate) definitions_revision: u64,
    pub(crate) kuryr_ports: BTreeMap<ObjectName, Stored>,
    /// Those of them that were put since the list that is on its way began: it may lack them.
    put: BTreeSet<ObjectName>,
    /// KuryrNetworks by their namespaces.
    pub(crate) networks: BTreeMap<String, NetworkSeen>,
    listed: BTreeSet<Followed>,
}

// === impl PortStore ===

impl PortStore {
    pub(crate) fn new(options: &OpenStack) -> Self {
        let matter = Matter {
            all_pods: options.default_network,
            annotations: options.vif_annotation.then(RandomState::new),
            networks: options.settings.namespace_subnets.is_some(),
        };
        PortStore { matter: matter.clone(), inner: Mutex::new(Inner { matter, ..Inner::default() }), changed: Notify::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is done before this kind was read.
    fn requires(&self, kind: Followed) -> bool {
        kind != Followed::KuryrNetwork || self.matter.networks
    }

    /// Until something is another thing than when this was called last.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Kinds that were not read yet.
    pub(crate) fn unlisted(&self) -> Vec<&'static str> {
        let inner = self.lock();
        let is_missing = |kind: &Followed| self.requires(*kind) && !inner.listed.contains(kind);
        FOLLOWED.into_iter().filter(is_missing).map(Followed::name).collect()
    }

    /// Takes in a KuryrPort that the server has answered with.
    pub(crate) fn put_kuryr_port(&self, object: DynamicObject) {
        self.lock().put_own(object);
        self.changed.notify_one();
    }

    /// The annotation of a pod was written, which made it this version. Somebody may have changed it since, and the watch may have said so before.
    pub(crate) fn annotated(&self, uid: &str, digest: Option<u64>, version: String) {
        if let Some(pod) = self.lock().pods.get_mut(uid).filter(|pod| is_older(&pod.version, &version)) {
            (pod.vifs, pod.version) = (digest, version);
        }
    }

    /// A KuryrPort is not there any more.
    pub(crate) fn drop_kuryr_port(&self, name: &ObjectName) {
        self.lock().drop_own(name);
        self.changed.notify_one();
    }

    /// Takes in a KuryrNetwork that the server has answered with.
    pub(crate) fn put_network(&self, object: DynamicObject) {
        self.lock().put(Followed::KuryrNetwork, object);
        self.changed.notify_one();
    }

    /// The KuryrNetwork of a namespace is not there any more.
    pub(crate) fn drop_network(&self, namespace: &str) {
        self.lock().networks.remove(namespace);
        self.changed.notify_one();
    }

    /// Follows one kind for ever.
    pub(crate) async fn follow(self: Arc<Self>, client: Client, kind: Followed) {
        let mut events = watcher(kind.api(client), Config::default().page_size(PAGE)).default_backoff().boxed();
        let empty = || Inner { matter: self.matter.clone(), ..Inner::default() };
        let mut list = empty();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    list = empty();
                    self.lock().list_begins(kind);
                }
                Ok(Event::InitApply(object)) => {
                    list.put(kind, object);
                    continue;
                }
                Ok(Event::InitDone) => self.lock().replace(kind, std::mem::take(&mut list)),
                Ok(Event::Apply(object)) => self.lock().put(kind, object),
                Ok(Event::Delete(object)) => self.lock().remove(kind, &object),
                Err(e) if !self.requires(kind) && is_not_offered(&e) => return std::future::pending().await,
                Err(e) => {
                    let now = format!("using what was received before; retrying{}", kind.without());
                    Line::warn("watch").with("kind", kind.name()).with("error", e).with("now", now).end();
                    continue;
                }
            }
            self.changed.notify_one();
        }
    }
}

// === impl Followed ===

impl Followed {
    fn name(self) -> &'static str {
        match self {
            Followed::Pod => "Pod",
            Followed::Definition => npwg::crd::KIND,
            Followed::KuryrPort => osvif::crd::KIND,
            Followed::KuryrNetwork => osvif::network_crd::KIND,
        }
    }

    /// What to do where the cluster does not have the kind.
    fn without(self) -> &'static str {
        match self {
            Followed::Pod => "",
            Followed::Definition => "; if the kind is missing: kubectl apply -f deploy/definition.yaml",
            Followed::KuryrPort => "; if the kind is missing: kubectl apply -f deploy/openstack/kuryrports.yaml",
            Followed::KuryrNetwork => {
                "; if it is missing or forbidden: kubectl apply -f deploy/openstack/kuryrnetworks.yaml -f deploy/openstack/access.yaml"
            }
        }
    }

    pub(crate) fn api(self, client: Client) -> Api<DynamicObject> {
        Api::all_with(client, &self.resource())
    }

    pub(crate) fn api_of(self, client: Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client, namespace, &self.resource())
    }

    pub(crate) fn resource(self) -> ApiResource {
        let resource =
            |group, version, kind, plural| ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        match self {
            Followed::Pod => ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()),
            Followed::Definition => resource(npwg::crd::GROUP, npwg::crd::VERSION, npwg::crd::KIND, npwg::crd::PLURAL),
            Followed::KuryrPort => resource(osvif::crd::GROUP, osvif::crd::VERSION, osvif::crd::KIND, osvif::crd::PLURAL),
            Followed::KuryrNetwork => {
                resource(osvif::crd::GROUP, osvif::crd::VERSION, osvif::network_crd::KIND, osvif::network_crd::PLURAL)
            }
        }
    }
}

// === impl NetworkSeen ===

impl NetworkSeen {
    /// None: it has another name than its namespace, and says nothing.
    pub(crate) fn of(object: DynamicObject) -> Option<Self> {
        let metadata = &object.metadata;
        metadata.name.as_ref().filter(|name| metadata.namespace.as_ref() == Some(*name))?;
        Some(NetworkSeen {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            made_by: metadata.labels.as_ref().and_then(|labels| labels.get(CLUSTER_LABEL)).cloned(),
            is_going: metadata.deletion_timestamp.is_some(),
            read: serde_json::to_value(&object)
                .map_err(|e| e.to_string())
                .and_then(|value| KuryrNetwork::read(value).map_err(|e| e.to_string())),
        })
    }
}

// === impl Matter ===

impl Matter {
    fn digest(&self, annotation: &str) -> Option<u64> {
        self.annotations.as_ref().map(|state| state.hash_one(annotation))
    }
}

// === impl Inner ===

impl Inner {
    /// What is known of a definition.
    pub(crate) fn definition(&self, of: &DefinitionRef) -> KnownDefinition<'_> {
        match self.definitions.get(&ObjectName { namespace: of.namespace.clone(), name: of.name.clone() }) {
            None => KnownDefinition::Absent,
            Some(None) => KnownDefinition::Other,
            Some(Some(text)) => KnownDefinition::Neutron(text),
        }
    }

    /// What the default network of a namespace's pods is; `made` are the networks that the operators of this cluster have made, if they are known.
    pub(crate) fn subnet_of(&self, namespace: &str, cluster: &Cluster, made: Option<&MadeNetworks>) -> NamespaceSubnet<'_> {
        let Some(seen) = self.networks.get(namespace) else { return NamespaceSubnet::NotYet };
        let refused = |why: &str| NamespaceSubnet::Refused(format!("KuryrNetwork {namespace} of its namespace {why}"));
        if seen.made_by != Some(cluster.name.to_string()) {
            return refused("was made by another controller: run netloom openstack adopt when that one is stopped");
        }
        match &seen.read {
            Err(why) => refused(&format!("cannot be read: {why}")),
            Ok(_) if seen.is_going => {
                refused("is being deleted: the namespace gets another network when the last port in this one is gone")
            }
            Ok(known) => match (known.ready(), &known.network, made) {
                (Some(_), _, None) => NamespaceSubnet::Unknown,
                (Some(subnet), Some(network), Some(made)) if made.get(network) == Some(&description(cluster, &seen.uid)) => {
                    NamespaceSubnet::Ready(subnet)
                }
                (Some(_), network, _) => {
                    let network = network.as_deref().unwrap_or_default();
                    NamespaceSubnet::Unproven(format!(
                        "KuryrNetwork {namespace} of its namespace names network {network}, which no operator of this cluster has made for it: run \
                         netloom openstack adopt if Kuryr has made it, else delete the object"
                    ))
                }
                (None, ..) => NamespaceSubnet::NotYet,
            },
        }
    }

    fn put(&mut self, kind: Followed, object: DynamicObject) {
        let Some(name) = name_of(&object) else { return };
        match kind {
            Followed::Pod => {
                let uid = object.metadata.uid.clone().unwrap_or_default();
                match pod(name, &object, &self.matter) {
                    Some(pod) => drop(self.pods.insert(uid, pod)),
                    None => drop(self.pods.remove(&uid)),
                }
            }
            Followed::Definition => {
                let annotation = object.metadata.annotations.unwrap_or_default().remove(KURYR_CONFIG);
                if self.definitions.get(&name) != Some(&annotation) {
                    self.definitions.insert(name, annotation);
                    self.definitions_revision += 1;
                }
            }
            Followed::KuryrPort => {
                let stored = stored(&name, object, &self.matter);
                if self.kuryr_ports.get(&name).is_none_or(|known| !is_older(&stored.version, &known.version)) {
                    self.kuryr_ports.insert(name, stored);
                }
            }
            Followed::KuryrNetwork => {
                let Some(seen) = NetworkSeen::of(object) else { return };
                if self.networks.get(&name.namespace).is_none_or(|known| !is_older(&seen.version, &known.version)) {
                    self.networks.insert(name.namespace, seen);
                }
            }
        }
    }

    fn put_own(&mut self, object: DynamicObject) {
        self.put.extend(name_of(&object));
        self.put(Followed::KuryrPort, object);
    }

    fn drop_own(&mut self, name: &ObjectName) {
        self.put.remove(name);
        self.kuryr_ports.remove(name);
    }

    fn list_begins(&mut self, kind: Followed) {
        if kind == Followed::KuryrPort {
            self.put.clear();
        }
    }

    fn remove(&mut self, kind: Followed, object: &DynamicObject) {
        let Some(name) = name_of(object) else { return };
        match kind {
            Followed::Pod => {
                if let Some(uid) = object.metadata.uid.as_ref().filter(|uid| self.pods.remove(*uid).is_some()) {
                    self.gone.insert(uid.clone());
                }
            }
            Followed::Definition => {
                self.definitions.remove(&name);
                self.definitions_revision += 1;
            }
            Followed::KuryrPort => drop(self.kuryr_ports.remove(&name)),
            Followed::KuryrNetwork => {
                if name.name == name.namespace {
                    self.networks.remove(&name.namespace);
                }
            }
        }
    }

    /// A whole list: what it lacks is gone.
    fn replace(&mut self, kind: Followed, list: Inner) {
        match kind {
            Followed::Pod => {
                let before = std::mem::replace(&mut self.pods, list.pods);
                self.gone.extend(before.into_keys().filter(|uid| !self.pods.contains_key(uid)));
            }
            Followed::Definition => {
                self.definitions = list.definitions;
                self.definitions_revision += 1;
            }
            Followed::KuryrPort => {
                let before = std::mem::replace(&mut self.kuryr_ports, list.kuryr_ports);
                let put = std::mem::take(&mut self.put);
                for (name, stored) in before.into_iter().filter(|(name, _)| put.contains(name)) {
                    if self.kuryr_ports.get(&name).is_none_or(|listed| is_older(&listed.version, &stored.version)) {
                        self.kuryr_ports.insert(name, stored);
                    }
                }
            }
            // One that was made since the list began is found when it is made again.
            Followed::KuryrNetwork => self.networks = list.networks,
        }
        self.listed.insert(kind);
    }
}

/// Whether the cluster does not have a kind, or does not let the operator read it.
fn is_not_offered(e: &kube::runtime::watcher::Error) -> bool {
    use kube::runtime::watcher::Error;
    matches!(e, Error::InitialListFailed(kube::Error::Api(status)) if matches!(status.code, 403 | 404))
}

fn name_of(object: &DynamicObject) -> Option<ObjectName> {
    Some(ObjectName { namespace: object.metadata.namespace.clone()?, name: object.metadata.name.clone()? })
}

/// None: it needs no port, has its node's network, or is on no node yet.
fn pod(name: ObjectName, object: &DynamicObject, matter: &Matter) -> Option<PodSeen> {
    let text = |place: &str| object.data.pointer(place).and_then(Value::as_str).unwrap_or_default();
    let annotation = |key: &str| object.metadata.annotations.as_ref()?.get(key).cloned();
    let (selected, additional_subnets) = (annotation(npwg::NETWORKS), annotation(binding::ADDITIONAL_SUBNETS));
    // As the agent sees it.
    let has_default = matter.all_pods && annotation(npwg::DEFAULT_NETWORK).is_none_or(|text| text.trim().is_empty());
    if selected.is_none() && !has_default {
        return None;
    }
    let vifs = annotation(osvif::VIF_ANNOTATION).and_then(|text| matter.digest(&text));
    let annotation = selected.unwrap_or_default();
    let host_network = object.data.pointer("/spec/hostNetwork").and_then(Value::as_bool).unwrap_or_default();
    let (node, host_ip) = (text("/spec/nodeName").to_owned(), text("/status/hostIP").to_owned());
    // The kubelet has ended all of it, and only finalizers keep the object.
    let is_ended = object.metadata.deletion_timestamp.is_some() && object.metadata.deletion_grace_period_seconds == Some(0);
    let is_running = text("/status/phase") == "Running";
    let is_over = is_ended || matches!(text("/status/phase"), "Succeeded" | "Failed");
    (!node.is_empty() && !host_network).then_some(PodSeen {
        name,
        node,
        host_ip,
        annotation,
        additional_subnets,
        has_default,
        vifs,
        version: matter.annotations.as_ref().and_then(|_| object.metadata.resource_version.clone()).unwrap_or_default(),
        is_running,
        is_over,
    })
}

/// One that cannot be read is not written. Whose it is may be known all the same: the operator's own is released with its pod.
fn stored(name: &ObjectName, mut object: DynamicObject, matter: &Matter) -> Stored {
    object.metadata.managed_fields = None;
    let version = object.metadata.resource_version.clone().unwrap_or_default();
    let value = |object: &DynamicObject| serde_json::to_value(object).unwrap_or_default();
    match KuryrPort::read(value(&object)) {
        Ok(object) => {
            let annotation = matter.annotations.as_ref().and_then(|_| annotation_of(&object)).and_then(|text| matter.digest(&text));
            Stored { object, damage: None, version, annotation }
        }
        Err(error) => {
            let (damage, now) = (error.to_string(), "not writing it");
            Line::warn("kuryrport").with("name", format!("{}/{}", name.namespace, name.name)).with("error", error).with("now", now).end();
            let object = KuryrPort::read_partly(&value(&object)).unwrap_or_default();
            Stored { object, damage: Some(damage), version, annotation: None }
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Our own write is answered after the watch has told what somebody else has written over it.
    #[test]
    fn an_answer_that_is_late_hides_no_forged_annotation() {
        let object = |version: &str, text: &str| {
            let metadata = serde_json::json!({"name": "p", "namespace": "a", "uid": "u", "resourceVersion": version,
                "annotations": {(npwg::NETWORKS): "red", (osvif::VIF_ANNOTATION): text}});
            let value = serde_json::json!({"metadata": metadata, "spec": {"nodeName": "n"}});
            serde_json::from_value::<DynamicObject>(value).unwrap_or_else(|e| panic!("{e}"))
        };
        let matter = Matter { annotations: Some(RandomState::new()), ..Matter::default() };
        let (own, forged) = (matter.digest("own"), matter.digest("forged"));
        let inner = Inner { matter: matter.clone(), ..Inner::default() };
        let store = PortStore { matter, inner: Mutex::new(inner), changed: Notify::new() };
        let seen = |store: &PortStore| store.lock().pods.get("u").and_then(|pod| pod.vifs);
        store.lock().put(Followed::Pod, object("5", "before"));
        store.annotated("u", own, "7".to_owned());
        assert_eq!(seen(&store), own);
        store.lock().put(Followed::Pod, object("9", "forged"));
        store.annotated("u", own, "8".to_owned());
        assert_eq!(seen(&store), forged);
    }

    #[test]
    fn a_list_that_began_before_does_not_take_back_what_was_written() {
        let object = |name: &str, version: &str| {
            let value = serde_json::json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": version}});
            serde_json::from_value::<DynamicObject>(value).unwrap_or_else(|e| panic!("{e}"))
        };
        let mut inner = Inner::default();
        inner.put_own(object("before", "5"));
        inner.list_begins(Followed::KuryrPort);
        let mut list = Inner::default();
        list.put(Followed::KuryrPort, object("changed", "6"));
        ["changed", "new", "dropped"].iter().for_each(|name| inner.put_own(object(name, "9")));
        inner.drop_own(&ObjectName { namespace: "a".to_owned(), name: "dropped".to_owned() });
        inner.replace(Followed::KuryrPort, list);
        let known: Vec<(&str, &str)> =
            inner.kuryr_ports.iter().map(|(name, stored)| (name.name.as_str(), stored.version.as_str())).collect();
        assert_eq!(known, [("changed", "9"), ("new", "9")]);
        inner.replace(Followed::KuryrPort, Inner::default());
        assert!(inner.kuryr_ports.is_empty());
    }
}
