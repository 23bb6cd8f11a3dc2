//! A cluster in one process: nodes with agents, operators, and an object store between them on which things go wrong.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use agent::{Embedded, Settings};
use http::{Request, Response};
use kube::client::Body;
use linux::Netns;
use netloom_tests::addresses::{Sighting, free, seen, wrong};
use netloom_tests::leases::{Held, held};
use netloom_tests::{netloom, until_seen};
use objects::Store;
use operator::Options;
use plugin::{Dirs, Here, Host};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::ServiceExt;
use wire::Call;

pub(crate) const API: &str = "netloom.io/v1alpha1";

/// A store with the kinds that the operator and the networks need.
pub(crate) fn store() -> Store {
    let store = Store::new();
    store.install_network_attachment_definitions();
    kinds().iter().for_each(|kind| store.put(kind).unwrap());
    store
}

/// The definitions of our kinds, as they are deployed.
pub(crate) fn kinds() -> Vec<Value> {
    let parts = include_str!("../../../deploy/ippools.yaml").split("\n---\n");
    let objects = parts.map(|part| serde_saphyr::from_str::<Value>(part).unwrap());
    objects.filter(|object| object["kind"] == "CustomResourceDefinition").collect()
}

pub(crate) fn pool(store: &Store, name: &str, spec: &Value) {
    store.put(&json!({"apiVersion": API, "kind": "IPPool", "metadata": {"name": name}, "spec": spec})).unwrap();
}

/// A definition of a network whose pods have addresses of a pool.
pub(crate) fn definition(store: &Store, name: &str, pool: &str) {
    let config = network(name, pool).to_string();
    store
        .put(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"config": config}}))
        .unwrap();
}

fn network(name: &str, pool: &str) -> Value {
    json!({"cniVersion": "1.1.0", "name": name, "type": "bridge", "bridge": format!("br-{name}"), "ipam": {"type": "pool", "pool": pool, "addWait": 60}})
}

pub(crate) fn objects_of(store: &Store, kind: &str) -> Vec<Value> {
    store.objects(API, kind).unwrap_or_default()
}

pub(crate) fn uid(store: &Store, node: &str) -> String {
    let nodes = store.objects("v1", "Node").unwrap();
    let found = nodes.iter().find(|object| object["metadata"]["name"] == node);
    found.map(|object| object["metadata"]["uid"].as_str().unwrap().to_owned()).unwrap_or_default()
}

// --- operators ---

/// An operator on a thread of its own. It is gone when it is dropped, in the middle of whatever it does.
pub(crate) struct Operator {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Operator {
    /// It has no Lease: whoever is there works. It audits five times a second.
    pub(crate) fn start(way: &Way, identity: &str) -> Operator {
        Self::start_auditing_every(Duration::from_millis(200), way, identity)
    }

    /// The same where writes are counted: what audits write grows with the time that a test takes.
    pub(crate) fn start_auditing_every(audit_every: Duration, way: &Way, identity: &str) -> Operator {
        let mut options = Options::new(identity);
        options.lease = false;
        options.grace = Duration::from_millis(500);
        options.writes_per_second = 100_000;
        options.audit_every = audit_every;
        options.log_level = operator::LogLevel::Off;
        let (stop, stopped) = oneshot::channel();
        let way = way.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let running = operator::start(way.client(), options);
                drop(stopped.await);
                drop(running);
            });
        };
        Operator { stop: Some(stop), thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "an operator has panicked");
        }
    }
}

// --- a way to the store ---

/// A way to the store on which requests get lost. Its clones are the same way.
#[derive(Clone)]
pub(crate) struct Way {
    store: Store,
    /// Nothing gets through.
    pub(crate) cut: Arc<AtomicBool>,
    /// Nothing of what nodes are granted gets through.
    pub(crate) blind: Arc<AtomicBool>,
    /// Of so many requests one does not arrive, one is not answered and one is refused with 429; 0: none.
    pub(crate) bad: Arc<AtomicUsize>,
    count: Arc<AtomicUsize>,
}

impl Way {
    pub(crate) fn to(store: &Store) -> Way {
        Way { store: store.clone(), cut: Arc::default(), blind: Arc::default(), bad: Arc::default(), count: Arc::default() }
    }

    /// Made inside of an asynchronous runtime.
    pub(crate) fn client(&self) -> kube::Client {
        let (service, way) = (self.store.service(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (service, way) = (service.clone(), way.clone());
            async move {
                let lost = || Err::<Response<objects::Answer>, tower::BoxError>("the way is gone".into());
                let blind = way.blind.load(Ordering::Relaxed) && request.uri().path().contains("/nodeippools");
                if blind || way.cut.load(Ordering::Relaxed) {
                    return lost();
                }
                let every = way.bad.load(Ordering::Relaxed);
                let number = if every == 0 { usize::MAX } else { way.count.fetch_add(1, Ordering::Relaxed) % every };
                match number {
                    0 => lost(),
                    1 => service.oneshot(request).await.map_err(Into::into).and_then(|_| lost()),
                    2 => Ok(refused()),
                    _ => Ok(service.oneshot(request).await?),
                }
            }
        });
        kube::Client::new(service, "default")
    }
}

fn refused() -> Response<objects::Answer> {
    let said = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "message": "too many requests"});
    let body = http_body_util::BodyExt::boxed_unsync(http_body_util::Full::new(bytes::Bytes::from(said.to_string())));
    Response::builder().status(429).header("content-type", "application/json").body(body).unwrap()
}

// --- nodes ---

/// A node: a namespace that stands for the machine, an agent, and pods that are namespaces.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) uid: String,
    store: Store,
    pub(crate) way: Way,
    dir: PathBuf,
    netns: String,
    settings: Settings,
    agent: Option<Embedded>,
    /// Pods that are attached, with the networks of their interfaces.
    pods: Mutex<Vec<(String, Vec<String>)>>,
}

/// What an ADD said: addresses without their prefix lengths, or code and message.
pub(crate) type Said = Result<Vec<IpAddr>, (u64, String)>;

impl Machine {
    /// A node with an object; its default network is the pool `a`.
    pub(crate) fn new(store: &Store, name: &str) -> Machine {
        Machine::prepared(store, name, |_| ())
    }

    /// The same; something is done before its agent starts.
    fn prepared(store: &Store, name: &str, prepare: impl FnOnce(&Machine)) -> Machine {
        if uid(store, name).is_empty() {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
            store.put(&node).unwrap();
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let netns = format!("nladdr-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(&netns);
        std::fs::create_dir_all(&dir).unwrap();
        let settings = json!({"nodeName": name, "install": "never", "teardown": "wait", "logLevel": "error", "stateDir": dir,
            "pluginStateDir": dir, "delegates": [network("pods", "a")]});
        let mut settings = Settings::parse(settings.to_string().as_bytes()).unwrap();
        settings.pools = true;
        Netns::create(&path(&format!("{netns}-node"))).unwrap();
        let (uid, way) = (uid(store, name), Way::to(store));
        let mut machine =
            Machine { name: name.to_owned(), uid, store: store.clone(), way, dir, netns, settings, agent: None, pods: Mutex::default() };
        prepare(&machine);
        machine.start();
        machine
    }

    /// Another host of the same name, with a copy of this one's journal; it does not see what the node was granted.
    pub(crate) fn copy(&self) -> Machine {
        Machine::prepared(&self.store, &self.name, |copy| {
            copy.way.blind.store(true, Ordering::Relaxed);
            let to = copy.journal();
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            assert!(Command::new("cp").arg("-a").args([self.journal(), to]).status().unwrap().success());
        })
    }

    pub(crate) fn stop(&mut self) {
        drop(self.agent.take());
    }

    pub(crate) fn start(&mut self) {
        let way = self.way.clone();
        self.agent = Some(Embedded::start(self.settings.clone(), move || way.client().into()).unwrap());
    }

    pub(crate) fn agent(&self) -> &Embedded {
        self.agent.as_ref().unwrap()
    }

    pub(crate) fn journal(&self) -> PathBuf {
        Dirs::below(&self.dir).journal
    }

    /// A pod that the agent knows, with these networks besides the default one, and its namespace.
    pub(crate) fn schedule(&self, pod: &str, networks: &[&str]) {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.namespace(pod), "namespace": "default",
                "annotations": {"k8s.v1.cni.cncf.io/networks": networks.join(",")}},
            "spec": {"nodeName": self.name, "containers": [{"name": "c", "image": "none"}]}});
        self.store.put(&object).unwrap();
        Netns::create(&path(&self.namespace(pod))).unwrap();
        until_seen("the pod in the agent's cache", || self.agent().knows("default", &self.namespace(pod)), |known| *known);
    }

    pub(crate) fn namespace(&self, pod: &str) -> String {
        format!("{}-{pod}", self.netns)
    }

    pub(crate) fn add(&self, pod: &str, networks: &[&str]) -> Said {
        let result = self.call("ADD", pod)?;
        let all = std::iter::once("pods").chain(networks.iter().copied()).map(str::to_owned).collect();
        self.pods().push((pod.to_owned(), all));
        Ok(result["ips"].as_array().unwrap().iter().map(|ip| address(ip["address"].as_str().unwrap())).collect())
    }

    /// The pod goes, with its namespace and its object.
    pub(crate) fn remove(&self, pod: &str) {
        self.call("DEL", pod).unwrap_or_else(|e| panic!("DEL {pod}: {e:?}"));
        self.pods().retain(|(name, _)| name != pod);
        Netns::remove(&path(&self.namespace(pod))).unwrap();
        drop(self.store.remove("v1", "Pod", "default", &self.namespace(pod)));
    }

    pub(crate) fn running(&self) -> Vec<String> {
        self.pods().iter().map(|(name, _)| name.clone()).collect()
    }

    fn pods(&self) -> std::sync::MutexGuard<'_, Vec<(String, Vec<String>)>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn call(&self, verb: &str, pod: &str) -> Result<Value, (u64, String)> {
        let call = Call {
            protocol: wire::PROTOCOL,
            program: "netloom".into(),
            verb: verb.into(),
            container_id: format!("c-{pod}"),
            netns: path(&self.namespace(pod)).display().to_string(),
            ifname: "eth0".into(),
            args: format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}", self.namespace(pod)),
            path: String::new(),
            netns_override: false,
            config: br#"{"cniVersion":"1.1.0","name":"cluster","type":"netloom"}"#.to_vec(),
            ..Call::default()
        };
        let node = Netns::open(&path(&format!("{}-node", self.netns))).unwrap().unwrap();
        let answer = node.enter(|_| self.agent().call(&call, &mut Host::here(Dirs::below(&self.dir)), Arc::new(Here))).unwrap();
        let said: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        match answer.exit {
            0 => Ok(said),
            _ => Err((said["code"].as_u64().unwrap_or_default(), said["msg"].as_str().unwrap_or_default().to_owned())),
        }
    }

    /// What `ip` says that the pods have; `eth0` is of the default network, `net1` and so on of the others in their order.
    pub(crate) fn sightings(&self) -> Vec<Sighting> {
        let mut found = Vec::new();
        for (pod, networks) in self.pods().iter() {
            let namespace = self.namespace(pod);
            for (ifname, address) in seen(&namespace) {
                let number = ifname.strip_prefix("net").map_or(0, |n| n.parse::<usize>().unwrap());
                let (network, namespace) = (networks[number].clone(), namespace.clone());
                found.push(Sighting { network, address, namespace, node: self.name.clone(), uid: self.uid.clone() });
            }
        }
        found
    }

    /// The least that any pool has free, as `netloom ipam` tells.
    pub(crate) fn free(&self) -> u64 {
        free(netloom(), &self.journal())
    }

    /// What the journal's files say.
    pub(crate) fn held(&self) -> Vec<Held> {
        held(&self.journal())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
        for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("{}-", self.netns)) {
                let _ = Netns::remove(&entry.path());
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What an address of a result is, without its prefix length.
fn address(text: &str) -> IpAddr {
    text.split('/').next().unwrap().parse().unwrap()
}

fn path(netns: &str) -> PathBuf {
    Path::new("/run/netns").join(netns)
}

/// O1 and O2, while nothing is being attached: everything that pods have is as objects and ledger say, and as leases say it too.
pub(crate) fn agree(store: &Store, machines: &[&Machine]) -> usize {
    let live: Vec<Sighting> = machines.iter().flat_map(|machine| machine.sightings()).collect();
    assert_eq!(wrong(&live, &objects_of(store, "NodeIPPool"), &objects_of(store, "IPLedgerShard")), Vec::<String>::new());
    for machine in machines {
        let before = machine.namespace("");
        let own = live.iter().filter_map(|one| Some((format!("c-{}", one.namespace.strip_prefix(&before)?), one.address)));
        let leased = machine.held().into_iter().flat_map(|held| held.addresses.into_iter().map(move |ip| (held.container.clone(), ip)));
        let (own, leased): (Vec<_>, Vec<_>) = (sorted(own), sorted(leased));
        assert_eq!(leased, own, "{}: what the journal says, and what namespaces have", machine.name);
    }
    live.len()
}

fn sorted(all: impl Iterator<Item = (String, IpAddr)>) -> Vec<(String, IpAddr)> {
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

/// O3: everything goes, and nobody holds anything.
pub(crate) fn all_go(machines: &[&Machine]) {
    for machine in machines {
        machine.running().iter().for_each(|pod| machine.remove(pod));
        assert_eq!(machine.held(), [], "{} has leases of nobody", machine.name);
        let node = format!("{}-node", machine.netns);
        let out = Command::new("ip").args(["-n", &node, "-j", "link"]).output().unwrap();
        let links: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
        assert!(links.iter().all(|link| link["ifname"] == "lo" || link["ifname"].as_str().unwrap().starts_with("br-")), "{links:?}");
    }
}

/// O5: how often something of ours was written.
pub(crate) fn writes(store: &Store) -> u64 {
    let ours = ["ippools", "nodeippools", "ipledgershards"];
    let all = store.requests();
    let counted =
        all.iter().filter(|((verb, resource), _)| !["get", "list", "watch"].contains(verb) && ours.iter().any(|o| resource.starts_with(o)));
    counted.map(|(_, count)| count).sum()
}
