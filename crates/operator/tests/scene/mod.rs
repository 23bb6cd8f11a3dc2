//! A cluster without machines: an object store, operators, and agents that take, use and return blocks.

pub(crate) mod checker;
pub(crate) mod operators;

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use checker::Span;
use http::{Request, Response};
use kube::client::Body;
use netloom_operator::{LogLevel, Options, Running, start};
use objects::Store;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::ServiceExt;

pub(crate) const API: &str = "netloom.io/v1alpha1";
/// The definitions of our kinds, as they are deployed.
pub(crate) const DEFINITIONS: &str = include_str!("../../../../deploy/ippools.yaml");

/// Runs a test as the operator runs: on one thread. Its clock stands still while somebody has something to do, and goes to the next timer
/// when all wait: a grace time passes at once, and on a slow machine not before its time.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(test);
}

/// The same by the machine's clock: what goes on is to be met in the middle, by rivals and by outages.
pub(crate) fn run_by_the_clock(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "not in time: {what}");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn store() -> Store {
    let store = Store::new();
    for document in DEFINITIONS.split("\n---\n") {
        store.put(&serde_saphyr::from_str::<Value>(document).unwrap()).unwrap();
    }
    store
}

pub(crate) fn options(identity: &str) -> Options {
    let mut options = Options::new(identity);
    options.lease = false;
    options.grace = Duration::from_millis(300);
    options.writes_per_second = 100_000;
    options.audit_every = Duration::from_millis(50);
    options.log_level = LogLevel::Off;
    options
}

pub(crate) fn operator(store: &Store, identity: &str) -> Running {
    start(store.client(), options(identity))
}

// --- objects ---

pub(crate) fn node(store: &Store, name: &str) -> String {
    store
        .put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}))
        .unwrap();
    let nodes = store.objects("v1", "Node").unwrap();
    let made = nodes.iter().find(|n| n["metadata"]["name"] == name).unwrap();
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub(crate) fn pool(store: &Store, name: &str, spec: &Value) {
    store.put(&json!({"apiVersion": API, "kind": "IPPool", "metadata": {"name": name}, "spec": spec})).unwrap();
}

pub(crate) fn named(store: &Store, kind: &str, name: &str) -> Option<Value> {
    store.objects(API, kind).unwrap().into_iter().find(|object| object["metadata"]["name"] == name)
}

pub(crate) fn blocks(store: &Store, node: &str) -> Vec<String> {
    let object = named(store, "NodeIPPool", node).unwrap_or_default();
    let all = object["spec"]["blocks"].as_array().cloned().unwrap_or_default();
    all.iter().map(|b| b["cidr"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn condition(store: &Store, pool: &str, kind: &str) -> String {
    let object = named(store, "IPPool", pool).unwrap_or_default();
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
    format!("{} {}", found["status"].as_str().unwrap_or("-"), found["reason"].as_str().unwrap_or("-"))
}

pub(crate) async fn request(client: &kube::Client, method: &str, path: &str, content: &str, body: &Value) -> kube::Result<Value> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", content).body(body).unwrap();
    client.request(request).await
}

pub(crate) async fn change(store: &Store, kind: &str, name: &str, patch: &Value) {
    let path = format!("/apis/{API}/{}s/{name}", kind.to_lowercase());
    request(&store.client(), "PATCH", &path, "application/merge-patch+json", patch).await.unwrap();
}

pub(crate) async fn delete(store: &Store, path: &str) {
    request(&store.client(), "DELETE", path, "application/json", &Value::Null).await.unwrap();
}

/// What the checker says of the objects as they are now.
pub(crate) fn check(store: &Store) {
    let (node_pools, shards) = (store.objects(API, "NodeIPPool").unwrap(), store.objects(API, "IPLedgerShard").unwrap());
    assert_eq!(checker::wrong(&node_pools, &shards), Vec::<String>::new());
}

// --- agents ---

/// Which node uses which addresses, at this very moment, whatever any object says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth(Arc<Mutex<Vec<(String, Span, String)>>>);

impl Truth {
    pub(crate) fn take(&self, network: &str, cidr: &str, node: &str) {
        let (mut used, span) = (self.0.lock().unwrap(), Span::of(cidr));
        let other = used.iter().find(|(n, s, _)| n == network && s.overlaps(&span));
        assert!(other.is_none(), "{node} uses {cidr}, and so does {other:?}");
        used.push((network.to_owned(), span, node.to_owned()));
    }

    pub(crate) fn leave(&self, network: &str, cidr: &str, node: &str) {
        let span = Span::of(cidr);
        self.0.lock().unwrap().retain(|(n, s, who)| !(n == network && *s == span && who == node));
    }

    /// The same where one other node may use it, too.
    pub(crate) fn share(&self, network: &str, cidr: &str, node: &str) {
        let (mut used, span) = (self.0.lock().unwrap(), Span::of(cidr));
        let others: Vec<_> = used.iter().filter(|(n, s, _)| n == network && s.overlaps(&span)).collect();
        assert!(others.len() < 2 && others.iter().all(|(_, _, who)| who != node), "{node} uses {cidr}, and so do {others:?}");
        used.push((network.to_owned(), span, node.to_owned()));
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// A machine that is switched off uses nothing.
    pub(crate) fn off(&self, node: &str) {
        self.0.lock().unwrap().retain(|(_, _, who)| who != node);
    }
}

/// An agent that uses as many blocks of each pool as it is told to.
pub(crate) struct Agent {
    wants: BTreeMap<String, Arc<AtomicU64>>,
    task: JoinHandle<()>,
}

/// Blocks by network and addresses, with their epoch and pool.
type Blocks = BTreeMap<(String, String), (u64, String)>;

impl Agent {
    pub(crate) fn start(store: &Store, name: &str, uid: &str, pools: &[&str], truth: &Truth) -> Agent {
        let wants: BTreeMap<String, Arc<AtomicU64>> = pools.iter().map(|p| ((*p).to_owned(), Arc::default())).collect();
        let (client, name, uid, truth, all) = (store.client(), name.to_owned(), uid.to_owned(), truth.clone(), wants.clone());
        let task = tokio::spawn(async move {
            let (mut has, mut returned) = (Blocks::new(), Blocks::new());
            let path = format!("/apis/{API}/nodeippools/{name}");
            loop {
                // Sleeps: an agent looks so often.
                tokio::time::sleep(Duration::from_millis(3)).await;
                let Ok(object) = request(&client, "GET", &path, "", &Value::Null).await else { continue };
                if object["spec"]["nodeUID"] != uid.as_str() {
                    continue;
                }
                let status = one_look(&object["spec"], &name, &all, &truth, (&mut has, &mut returned));
                if object["status"] != status {
                    // The status as a whole: a list that is missing is empty.
                    let patch = json!([{"op": "add", "path": "/status", "value": status}]);
                    drop(request(&client, "PATCH", &format!("{path}/status"), "application/json-patch+json", &patch).await);
                }
            }
        });
        Agent { wants, task }
    }

    pub(crate) fn wants(&self, pool: &str, blocks: u64) {
        self.wants[pool].store(blocks, Ordering::Relaxed);
    }

    /// That it has seen nothing that cannot be.
    pub(crate) fn fine(&self) {
        assert!(!self.task.is_finished(), "an agent has ended");
    }

    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A node of each of these names, and its agent.
pub(crate) fn agents<const N: usize>(store: &Store, names: [&str; N], pools: &[&str], truth: &Truth) -> [Agent; N] {
    names.map(|name| Agent::start(store, name, &node(store, name), pools, truth))
}

/// The same of nodes `n0`, `n1` and so on.
pub(crate) fn numbered(store: &Store, numbers: Range<usize>, pools: &[&str], truth: &Truth) -> Vec<Agent> {
    numbers.flat_map(|i| agents(store, [format!("n{i}").as_str()], pools, truth)).collect()
}

/// Takes what is new, gives back what is too much; the status that follows.
fn one_look(
    spec: &Value,
    name: &str,
    wants: &BTreeMap<String, Arc<AtomicU64>>,
    truth: &Truth,
    (has, returned): (&mut Blocks, &mut Blocks),
) -> Value {
    let mut granted = Blocks::new();
    for block in spec["blocks"].as_array().into_iter().flatten() {
        let text = |key: &str| block[key].as_str().unwrap().to_owned();
        granted.insert((text("network"), text("cidr")), (block["epoch"].as_u64().unwrap(), text("pool")));
    }
    for (key, (epoch, pool)) in &granted {
        // What was given back in this life never comes again.
        if returned.get(key).is_some_and(|(last, _)| last >= epoch) || has.contains_key(key) {
            continue;
        }
        truth.take(&key.0, &key.1, name);
        has.insert(key.clone(), (*epoch, pool.clone()));
    }
    for key in has.keys() {
        assert!(granted.contains_key(key), "{name}: {key:?} was taken away");
    }
    let (mut demand, mut returning) = (Vec::new(), Vec::new());
    for (pool, want) in wants {
        let ending = spec["pools"][pool]["ending"] == true;
        let want = if ending { 0 } else { want.load(Ordering::Relaxed) };
        let own: Vec<_> = has.iter().filter(|(_, (_, p))| p == pool).map(|(key, _)| key.clone()).collect();
        for key in own.iter().skip(usize::try_from(want).unwrap()) {
            truth.leave(&key.0, &key.1, name);
            returned.extend(has.remove_entry(key));
        }
        let size = |family: &str, bits: u64| {
            let prefix = spec["pools"][pool][family]["blockPrefix"].as_u64();
            prefix.map_or(0, |prefix| want << (bits - prefix))
        };
        demand.push(json!({"pool": pool, "v4": size("ipv4", 32), "v6": size("ipv6", 128), "inUseV4": 0, "inUseV6": 0}));
    }
    for (key, (epoch, pool)) in returned.iter() {
        if granted.get(key).is_some_and(|(e, _)| e == epoch) {
            returning.push(json!({"cidr": key.1, "pool": pool, "epoch": epoch}));
        }
    }
    json!({"observedGeneration": 1, "agent": {"storeID": name, "bootID": "", "instance": "one"}, "demand": demand, "returning": returning})
}

// --- a way to the store on which things go wrong ---

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    /// It is carried out, and nobody hears of it.
    Unanswered,
    /// It does not get there.
    Lost,
    /// The server has too much to do.
    Refused,
    /// The object cannot be stored.
    TooLarge,
    /// No answer ever comes, and it is not carried out.
    Hangs,
    /// It is carried out, and no answer ever comes.
    HangsBehind,
}

/// A client of the store whose requests meet their fate.
pub(crate) fn way(store: &Store, fate: impl Fn(&str, &str) -> Fate + Send + Sync + 'static) -> kube::Client {
    let (service, fate) = (store.service(), Arc::new(fate));
    let service = tower::service_fn(move |request: Request<Body>| {
        let fate = fate(request.method().as_str(), request.uri().path());
        let service = service.clone();
        async move {
            let lost = || Err::<Response<objects::Answer>, tower::BoxError>("the way is gone".into());
            match fate {
                Fate::Arrives => Ok(service.oneshot(request).await?),
                Fate::Unanswered => service.oneshot(request).await.map_err(Into::into).and_then(|_| lost()),
                Fate::Lost => lost(),
                Fate::Hangs => std::future::pending().await,
                Fate::HangsBehind => {
                    drop(service.oneshot(request).await);
                    std::future::pending().await
                }
                Fate::Refused => said(429, "TooManyRequests", "too many requests"),
                Fate::TooLarge => said(500, "", "etcdserver: request is too large"),
            }
        }
    });
    kube::Client::new(service, "default")
}

fn said(code: u16, reason: &str, message: &str) -> Result<Response<objects::Answer>, tower::BoxError> {
    let said = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": message});
    let body = http_body_util::BodyExt::boxed_unsync(http_body_util::Full::new(bytes::Bytes::from(said.to_string())));
    Ok(Response::builder().status(code).header("content-type", "application/json").body(body)?)
}
