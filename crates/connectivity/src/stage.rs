//! Creates what the verification needs, waits until it works, and removes it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{ContainerStatus, Namespace, Node as KubeNode, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinSet;

use crate::balancer;
use crate::objects::{self, ALIVE, LABEL, Node, PodSpec, Probe, Role, STARTED, Wanted};
use crate::observe::{AGENT, AGENTS};
use crate::{Balancer, ConnectivityError, Options};

/// How long pods may take until they run: an image is pulled.
const RUNNING: Duration = Duration::from_secs(300);
/// How long a namespace may take to go.
const GOING: Duration = Duration::from_secs(300);
/// How long a cloud may take until its load balancers have addresses.
const BALANCED: Duration = Duration::from_secs(300);
/// How long the API server may take to answer while nobody can interrupt it.
const ANSWERED: Duration = Duration::from_secs(30);
/// How often a run says that it is at work.
const BEAT: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// The same while a name is what is missing: resolvers remember that there was none.
const NAMED: Duration = Duration::from_secs(2);
/// Who has not said so in this number of looks is not: ten seconds of them. A machine that stands still for longer misses one look, however long
/// that lasts: a run on it is not taken for gone by another one there.
const LOOKS: u32 = 40;
/// What a pod waits for that does not come by itself.
const STUCK: [&str; 6] =
    ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CrashLoopBackOff"];

/// What is known of the namespace that is created.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Created {
    /// It was not asked for.
    No,
    /// It was, and the answer is not known.
    Asked,
    /// It has this UID.
    Known(String),
}

/// A namespace that a verification has made.
struct Left {
    uid: String,
    /// Who made it.
    started: String,
    /// What changes as long as that one is at work.
    alive: Option<String>,
    /// It is being removed.
    is_going: bool,
}

/// A namespace of probes.
pub(crate) struct Stage<'a> {
    pub(crate) client: Client,
    pub(crate) options: &'a Options,
    pub(crate) say: &'a (dyn Fn(&str) + Sync),
    /// The image of the probes.
    image: String,
    /// Who this run is, as its namespace says.
    started: String,
    /// Of the namespace.
    created: Mutex<Created>,
    /// Somebody else has removed it.
    lost: Arc<AtomicBool>,
    /// The nodes that take part.
    pub(crate) nodes: Vec<Node>,
    /// The pods.
    pub(crate) probes: Vec<Probe>,
    /// The Services.
    pub(crate) services: Vec<Wanted>,
}

fn refused(what: impl Into<String>) -> impl FnOnce(kube::Error) -> ConnectivityError {
    let what = what.into();
    move |e| ConnectivityError::api(what, &e)
}

fn odd(e: serde_json::Error) -> ConnectivityError {
    ConnectivityError::Api { what: "an object of our own".to_owned(), why: e.to_string(), status: 0 }
}

/// The nodes that can take part: ready, with Linux, in the order of their names; those that are named, or so many.
pub(crate) async fn nodes(client: &Client, options: &Options) -> Result<Vec<Node>, ConnectivityError> {
    let list = Api::<KubeNode>::all(client.clone()).list(&ListParams::default()).await.map_err(refused("list nodes"))?;
    let mut ready: Vec<Node> = list.items.iter().filter(|node| is_ready(node)).filter_map(node).collect();
    ready.sort_by(|a, b| a.name.cmp(&b.name));
    if !options.nodes.is_empty() {
        let find = |name: &String| ready.iter().find(|node| node.name == *name).cloned();
        return options.nodes.iter().map(|name| find(name).ok_or_else(|| ConnectivityError::NoSuchNode(name.clone()))).collect();
    }
    ready.truncate(options.node_count);
    if ready.is_empty() { Err(ConnectivityError::NoNode) } else { Ok(ready) }
}

/// The image of the probes: the one that is named, else that of the agents.
pub(crate) async fn image(client: &Client, options: &Options) -> Result<String, ConnectivityError> {
    if let Some(image) = &options.image {
        return Ok(image.clone());
    }
    let namespace = &options.agents;
    let agents = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default().labels(AGENTS)).await;
    let agents = agents.map_err(refused(format!("list pods of namespace {namespace}")))?;
    let containers = agents.items.iter().filter_map(|pod| pod.spec.as_ref()).flat_map(|spec| &spec.containers);
    let image = containers.filter(|container| container.name == AGENT).find_map(|container| container.image.clone());
    image.ok_or_else(|| ConnectivityError::NoImage(namespace.clone()))
}

fn is_ready(node: &KubeNode) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_linux = node.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/os")).is_none_or(|os| os == "linux");
    is_linux && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn node(node: &KubeNode) -> Option<Node> {
    let of_kind = node.status.iter().flat_map(|status| status.addresses.iter().flatten()).filter(|address| address.type_ == "InternalIP");
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in of_kind.filter_map(|address| address.address.parse::<IpAddr>().ok()) {
        if addresses.iter().all(|other| other.is_ipv4() != address.is_ipv4()) {
            addresses.push(address);
        }
    }
    Some(Node { name: node.metadata.name.clone()?, addresses })
}

// === impl Stage ===

impl<'a> Stage<'a> {
    pub(crate) fn new(client: Client, options: &'a Options, say: &'a (dyn Fn(&str) + Sync), nodes: Vec<Node>, image: String) -> Self {
        let probes = Probe::of(nodes.len(), options.bandwidth);
        // Speed is that of pods, at their own addresses.
        let services = if options.measure { Vec::new() } else { Wanted::of(nodes.len()) };
        Stage {
            client,
            options,
            say,
            image,
            started: started_by(),
            created: Mutex::new(Created::No),
            lost: Arc::default(),
            nodes,
            probes,
            services,
        }
    }

    /// The name by which a probe answers: that of its place.
    pub(crate) fn place(&self, probe: &Probe) -> verify::Place {
        match probe.role {
            Role::Host => verify::Place::Node(self.nodes.get(probe.node).map_or_else(String::new, |node| node.name.clone())),
            Role::Client | Role::Server | Role::Limited => verify::Place::Pod(format!("{}/{}", self.options.namespace, probe.name)),
        }
    }

    /// Whether anything was created that is to be removed.
    pub(crate) fn is_created(&self) -> bool {
        *self.created() != Created::No
    }

    /// Whether somebody else has removed what this run has created, while it was at work.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    fn created(&self) -> MutexGuard<'_, Created> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.options.namespace)
    }

    fn kube_services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.options.namespace)
    }

    /// Removes what an earlier run left.
    pub(crate) async fn clear(&self) -> Result<(), ConnectivityError> {
        let name = self.options.namespace.as_str();
        if let Some(Balancer::Range { text, addresses }) = &self.options.load_balancer {
            let (has, needs) = (addresses.iter().map(Vec::len).min().unwrap_or(0), self.services.len());
            if has < needs {
                return Err(ConnectivityError::FewAddresses { range: text.clone(), has, needs });
            }
        }
        if let Some(left) = self.left().await? {
            self.is_abandoned(&left).await?;
            (self.say)(&format!("removing namespace {name}, which an earlier run left"));
            self.delete(&left.uid).await?;
        }
        Ok(())
    }

    /// Creates the namespace, which is this run's from then on.
    pub(crate) async fn claim(&self) -> Result<(), ConnectivityError> {
        let name = self.options.namespace.as_str();
        let (pods, services) = (self.probes.len(), self.services.len());
        (self.say)(&format!("creating namespace {name}: {pods} pods on {} nodes, {services} Services", self.nodes.len()));
        let own = objects::namespace(name, &self.started).map_err(odd)?;
        // An answer may be lost on the way.
        *self.created() = Created::Asked;
        let (namespaces, new) = (self.namespaces(), PostParams::default());
        let Ok(made) = tokio::time::timeout(ANSWERED, namespaces.create(&new, &own)).await else {
            let why = format!("the API server does not answer within {} s", ANSWERED.as_secs());
            return Err(ConnectivityError::Api { what: format!("create namespace {name}"), why, status: 0 });
        };
        let made = made.map_err(|e| {
            if matches!(e, kube::Error::Api(_)) {
                *self.created() = Created::No;
            }
            match e {
                // Another run was faster by a moment.
                kube::Error::Api(status) if status.code == 409 => in_use(name, "another run, which began at the same time"),
                e => ConnectivityError::api(format!("create namespace {name}"), &e),
            }
        })?;
        let uid = made.metadata.uid.unwrap_or_default();
        *self.created() = Created::Known(uid.clone());
        // Without the right to it, the next run would take this one for gone.
        beat(&self.namespaces(), name, &uid, Some(1)).await.map(drop).map_err(refused(format!("patch namespace {name}")))
    }

    /// That nobody is at work in a namespace that a verification has made: who is says so every two seconds.
    async fn is_abandoned(&self, left: &Left) -> Result<(), ConnectivityError> {
        let name = self.options.namespace.as_str();
        if left.is_going || left.alive.is_none() {
            return Ok(());
        }
        let waits = LOOK * LOOKS;
        (self.say)(&format!("namespace {name} is there, made by {}: waiting {} s for a sign of life", left.started, waits.as_secs()));
        for _ in 0..LOOKS {
            // Sleeps: between two looks.
            tokio::time::sleep(LOOK).await;
            match self.left().await? {
                Some(now) if now.uid == left.uid && !now.is_going => {
                    if now.alive != left.alive {
                        return Err(in_use(name, &left.started));
                    }
                }
                // It ended this moment.
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Says every two seconds that this run is at work, until what is returned is dropped. If the namespace is removed meanwhile, the run is
    /// interrupted: what its probes would say then is about them and not about the network.
    pub(crate) fn stay_alive(&self, interrupted: &Arc<AtomicBool>) -> JoinSet<()> {
        let mut alive = JoinSet::new();
        let Created::Known(uid) = self.created().clone() else { return alive };
        let (api, name) = (self.namespaces(), self.options.namespace.clone());
        let (lost, interrupted) = (Arc::clone(&self.lost), Arc::clone(interrupted));
        alive.spawn(async move {
            for number in 2.. {
                // Sleeps: between two signs of life.
                tokio::time::sleep(BEAT).await;
                let is_gone = match beat(&api, &name, &uid, Some(number)).await {
                    Ok(is_going) => is_going,
                    // Another one has its name, or none.
                    Err(kube::Error::Api(status)) => matches!(status.code, 404 | 409 | 422),
                    // What does not get there, the next one makes up for.
                    Err(_) => false,
                };
                if is_gone {
                    lost.store(true, Ordering::Relaxed);
                    interrupted.store(true, Ordering::Relaxed);
                    break;
                }
            }
        });
        alive
    }

    /// Looks whether somebody else has removed the namespace, where something has failed: its pods end before the next sign of life finds out.
    pub(crate) async fn look_for_loss(&self) {
        let Created::Known(uid) = self.created().clone() else { return };
        let is_gone = match self.left().await {
            Ok(left) => left.is_none_or(|left| left.uid != uid || left.is_going),
            Err(e) => matches!(e, ConnectivityError::NamespaceTaken(_)),
        };
        if is_gone {
            self.lost.store(true, Ordering::Relaxed);
        }
    }

    /// Leaves the namespace to whoever comes next.
    pub(crate) async fn keep(&self) -> Result<(), ConnectivityError> {
        let Created::Known(uid) = self.created().clone() else { return Ok(()) };
        let name = self.options.namespace.as_str();
        beat(&self.namespaces(), name, &uid, None).await.map(drop).map_err(refused(format!("patch namespace {name}")))
    }

    /// Creates everything in the namespace.
    pub(crate) async fn create(&self) -> Result<(), ConnectivityError> {
        let name = self.options.namespace.as_str();
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), name);
        let account = objects::account().map_err(odd)?;
        accounts.create(&PostParams::default(), &account).await.map_err(refused(format!("create service account {name}/probe")))?;
        let spec = PodSpec {
            image: &self.image,
            networks: &self.options.networks,
            services: &self.services,
            has_sinks: self.options.bandwidth || self.options.measure,
            ends_after: self.options.ends_after(),
        };
        let pods = try_join_all(self.probes.iter().map(|probe| self.create_pod(probe, &spec)));
        let balanced = self.options.load_balancer.is_some();
        let services = try_join_all(self.services.iter().map(|wanted| self.create_service(wanted, balanced)));
        futures::future::try_join(pods, services).await?;
        Ok(())
    }

    async fn create_pod(&self, probe: &Probe, spec: &PodSpec<'_>) -> Result<(), ConnectivityError> {
        let Some(node) = self.nodes.get(probe.node) else { return Ok(()) };
        let pod = objects::pod(probe, node, &self.place(probe).to_string(), spec).map_err(odd)?;
        let what = format!("create pod {}/{}", self.options.namespace, probe.name);
        self.pods().create(&PostParams::default(), &pod).await.map(drop).map_err(refused(what))
    }

    async fn create_service(&self, wanted: &Wanted, balanced: bool) -> Result<(), ConnectivityError> {
        let namespace = &self.options.namespace;
        let service = objects::service(wanted, balanced).map_err(odd)?;
        let what = format!("create Service {namespace}/{}", wanted.name);
        self.kube_services().create(&PostParams::default(), &service).await.map_err(refused(what))?;
        if !wanted.is_manual() {
            return Ok(());
        }
        let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), namespace);
        for address in self.nodes.iter().take(1).flat_map(|node| node.addresses.iter().copied()) {
            let slice = objects::endpoints(&wanted.name, address).map_err(odd)?;
            let what = format!("create EndpointSlice {namespace}/{}", wanted.name);
            slices.create(&PostParams::default(), &slice).await.map_err(refused(what))?;
        }
        Ok(())
    }

    /// Waits until every pod runs; returns them by name.
    pub(crate) async fn running(&self) -> Result<BTreeMap<String, Pod>, ConnectivityError> {
        let end = Instant::now() + RUNNING;
        let mut told = usize::MAX;
        loop {
            let list = self.pods().list(&ListParams::default()).await.map_err(refused("list pods"))?;
            let all: BTreeMap<String, Pod> = list.items.into_iter().filter_map(|pod| Some((pod.metadata.name.clone()?, pod))).collect();
            let waiting: Vec<&Probe> = self.probes.iter().filter(|probe| all.get(&probe.name).is_none_or(|pod| !runs(pod))).collect();
            let running = self.probes.len() - waiting.len();
            if running != told {
                (self.say)(&format!("{running} of {} pods run", self.probes.len()));
                told = running;
            }
            let Some(first) = waiting.first() else { return Ok(all) };
            let is_late = Instant::now() >= end;
            let stuck = |probe: &&Probe| Some(((*probe).clone(), all.get(&probe.name).and_then(stuck)?));
            let why = waiting.iter().find_map(stuck).or_else(|| {
                let said = all.get(&first.name).and_then(last_words).unwrap_or_else(|| "nothing is reported".to_owned());
                is_late.then(|| ((*first).clone(), format!("it waits for {} s: {said}", RUNNING.as_secs())))
            });
            if let Some((probe, why)) = why {
                let node = self.nodes.get(probe.node).map_or_else(String::new, |node| node.name.clone());
                let next = format!(
                    "look at it: kubectl -n {} describe pod {} (the namespace is kept with --keep)",
                    self.options.namespace, probe.name
                );
                let pod = format!("{}/{}", self.options.namespace, probe.name);
                return Err(ConnectivityError::NotRunning { pod, node, why: format!("{why}: {next}") });
            }
            // Sleeps: between two looks.
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The Services as the API server has them, with the load balancer's addresses if there is one.
    pub(crate) async fn served(&self) -> Result<BTreeMap<String, Service>, ConnectivityError> {
        if let Some(Balancer::Range { addresses, .. }) = &self.options.load_balancer {
            self.balance(addresses).await?;
        }
        let end = Instant::now() + BALANCED;
        let (mut told, names) = (false, balancer::Names::default());
        loop {
            let list = self.kube_services().list(&ListParams::default()).await.map_err(refused("list Services"))?;
            let mut all: BTreeMap<String, Service> = list.items.into_iter().filter_map(|s| Some((s.metadata.name.clone()?, s))).collect();
            join_all(all.values_mut().map(|service| balancer::resolve(service, &names))).await;
            let is_whole = self.options.load_balancer.is_none() || all.values().all(|service| !balancer::addresses(service).is_empty());
            if is_whole || Instant::now() >= end {
                return Ok(all);
            }
            if !told {
                (self.say)(&format!("waiting up to {} s for the load balancer's addresses", BALANCED.as_secs()));
                told = true;
            }
            // Sleeps: between two looks.
            tokio::time::sleep(if all.values().any(balancer::lacks_a_name) { NAMED } else { LOOK }).await;
        }
    }

    /// Gives each Service an address of each family, as the controller of a cloud does.
    async fn balance(&self, ranges: &[Vec<IpAddr>]) -> Result<(), ConnectivityError> {
        let api = self.kube_services();
        let patched = self.services.iter().enumerate().map(|(at, service)| {
            let ingress: Vec<_> = ranges.iter().filter_map(|range| Some(json!({"ip": range.get(at)?}))).collect();
            let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
            let api = &api;
            async move {
                let done = api.patch_status(&service.name, &PatchParams::default(), &patch).await;
                done.map_err(refused(format!("write the load balancer's addresses into Service {}", service.name)))
            }
        });
        try_join_all(patched).await.map(drop)
    }

    /// The namespace if it is there; it must be one that a verification made.
    async fn left(&self) -> Result<Option<Left>, ConnectivityError> {
        let name = &self.options.namespace;
        let found = self.namespaces().get_opt(name).await.map_err(refused(format!("get namespace {name}")))?;
        let Some(metadata) = found.map(|namespace| namespace.metadata) else { return Ok(None) };
        if !metadata.labels.is_some_and(|labels| labels.contains_key(LABEL)) {
            return Err(ConnectivityError::NamespaceTaken(name.clone()));
        }
        let mut annotations = metadata.annotations.unwrap_or_default();
        Ok(Some(Left {
            uid: metadata.uid.unwrap_or_default(),
            started: annotations.remove(STARTED).unwrap_or_else(|| "an earlier run".to_owned()),
            alive: annotations.remove(ALIVE),
            is_going: metadata.deletion_timestamp.is_some(),
        }))
    }

    /// Removes the namespace that this run has created and all in it, and waits until it is gone. It is no error if it is not there.
    pub(crate) async fn remove(&self) -> Result<(), ConnectivityError> {
        let created = self.created().clone();
        let removed = async {
            match created {
                Created::No => Ok(()),
                Created::Known(uid) => self.delete(&uid).await,
                Created::Asked => match self.left().await? {
                    Some(left) if left.started == self.started => self.delete(&left.uid).await,
                    _ => Ok(()),
                },
            }
        };
        let after = GOING + ANSWERED;
        let stays = |_| ConnectivityError::NamespaceStays { name: self.options.namespace.clone(), after };
        tokio::time::timeout(after, removed).await.map_err(stays)?
    }

    /// Deletes the namespace if it still is the one with this UID, and waits until that is gone.
    async fn delete(&self, uid: &str) -> Result<(), ConnectivityError> {
        let (name, api) = (&self.options.namespace, self.namespaces());
        let end = Instant::now() + GOING;
        let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        match api.delete(name, &DeleteParams { preconditions: Some(only), ..DeleteParams::default() }).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            // It is being removed already, or another one has its name.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(e) => return Err(ConnectivityError::api(format!("delete namespace {name}"), &e)),
        }
        let is_there = |found: Option<Namespace>| found.is_some_and(|found| found.metadata.uid.as_deref() == Some(uid));
        while is_there(api.get_opt(name).await.map_err(refused(format!("get namespace {name}")))?) {
            if Instant::now() >= end {
                return Err(ConnectivityError::NamespaceStays { name: name.clone(), after: GOING });
            }
            // Sleeps: between two looks.
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

/// Says in a namespace that its run is at work, or that it is not any more. With the UID, it is refused if another one has the name by now.
/// Returns whether the namespace is being removed.
async fn beat(api: &Api<Namespace>, name: &str, uid: &str, number: Option<u64>) -> Result<bool, kube::Error> {
    let alive = number.map(|number| number.to_string());
    let patch = Patch::Merge(json!({"metadata": {"uid": uid, "annotations": {ALIVE: alive}}}));
    let now = api.patch_metadata(name, &PatchParams::default(), &patch).await?;
    Ok(now.metadata.deletion_timestamp.is_some())
}

fn in_use(name: &str, by: &str) -> ConnectivityError {
    ConnectivityError::InUse { name: name.to_owned(), by: by.to_owned() }
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten())
}

fn runs(pod: &Pod) -> bool {
    let has_address = pod.status.as_ref().is_some_and(|status| status.pod_ip.as_ref().is_some_and(|ip| !ip.is_empty()));
    has_address && statuses(pod).any(|status| status.ready)
}

/// Why a pod does not come up by itself.
fn stuck(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Failed") {
        let words = [status.reason.clone(), status.message.clone()];
        return Some(words.into_iter().flatten().collect::<Vec<_>>().join(": "));
    }
    let waiting = statuses(pod).find_map(|status| status.state.as_ref()?.waiting.as_ref())?;
    let reason = waiting.reason.as_deref().filter(|reason| STUCK.contains(reason))?;
    let message = waiting.message.as_deref().unwrap_or_default();
    let hint = if reason.contains("Image") { "; name an image that the nodes can pull with --image" } else { "" };
    Some(format!("{reason} {message}{hint}"))
}

/// What is last reported of a pod that waits.
fn last_words(pod: &Pod) -> Option<String> {
    let waiting = statuses(pod).find_map(|status| status.state.as_ref()?.waiting.as_ref());
    let of_container =
        waiting.map(|waiting| [waiting.reason.clone(), waiting.message.clone()].into_iter().flatten().collect::<Vec<_>>().join(": "));
    of_container.filter(|said| !said.is_empty()).or_else(|| pod.status.as_ref()?.phase.clone())
}

/// Who creates this, for a person who finds it. No two runs have the same one.
fn started_by() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("netloom verify, process {} on {} ({:x})", std::process::id(), host.trim(), since.as_nanos())
}
