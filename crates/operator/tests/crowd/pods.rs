//! Nodes that follow their own object as an agent does, into a store of their own; and pods that all come at once.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Cluster, NodeIpPool, OwnObject};
use ipam::PoolStore;
use ledger::Source;
use objects::Store;
use pool::{Ask, Family, Key, Want};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::world::{POOL, node, options, quiet, store, until, writes};

/// The longest that a pod waits in line; the machine may be slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("netloom-crowd-{name}-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// What attachments ask for: an address of each of these families.
#[derive(Clone, Copy)]
struct Wanted {
    pool: &'static str,
    families: &'static [Family],
}

/// So many pods of each of so many nodes come at once, with so many attachments each, one after the other, and all have addresses of one
/// range of a definition for whereabouts, which is handed out one by one: the time until the last of them has its address.
pub(crate) async fn of_one_range(nodes: usize, pods: usize, networks: usize) -> Duration {
    let scratch = Scratch::new(&format!("range-{pods}"));
    let store = store(nodes, &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/16"}]}, "scaling": {"preAllocate": 0}}));
    let config = json!({"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.9.0.0/20"}});
    let metadata = json!({"namespace": "default", "name": "range"});
    store
        .put(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata,
            "spec": {"config": config.to_string()}}))
        .unwrap();
    let wanted = Wanted { pool: "whereabouts-10.9.0.0-20", families: &[Family::V4] };
    let _operator = netloom_operator::start(store.client(), options("crowd", 200));
    let all: Vec<Node> = (0..nodes).map(|number| Node::start(&store, number, &scratch.0)).collect();
    let known = || all.iter().all(|node| node.store.look(|all| all.spec(wanted.pool).is_some()));
    until("every node knows the range", PATIENCE, known).await;
    quiet(&store).await;
    let before = writes(&store);
    let begun = Instant::now();
    let attached = all.iter().flat_map(|node| (0..pods).map(move |pod| (node, pod))).map(|(node, pod)| {
        let asks: Vec<Ask> = (pod * networks..(pod + 1) * networks).map(|number| ask(&node.name, number, wanted)).collect();
        let store = Arc::clone(&node.store);
        tokio::task::spawn_blocking(move || {
            let source = || Source { pools: vec![wanted.pool.to_owned()], families: Vec::new() };
            let coming = asks.iter().map(|ask| (ask.key.clone(), source()));
            let _foreseen = store.reserve_hint(coming.collect());
            let one = |ask: &Ask| store.reserve_by(ask, Instant::now() + PATIENCE).unwrap().addresses[0].address;
            asks.iter().map(one).collect::<Vec<_>>()
        })
    });
    let mut got = Vec::new();
    for pod in attached.collect::<Vec<_>>() {
        got.extend(pod.await.unwrap());
    }
    let took = begun.elapsed();
    println!("{} addresses of one range, by {nodes} nodes: {took:.2?}, {} writes to the API server", got.len(), writes(&store) - before);
    assert_eq!((got.len(), got.iter().collect::<HashSet<_>>().len()), (nodes * pods * networks, nodes * pods * networks));
    took
}

/// So many pods come to each of so many nodes that have no block yet, and as many again when they have. The time that the first took.
pub(crate) async fn come(nodes: usize, each: usize) -> Duration {
    let scratch = Scratch::new(&format!("pods-{nodes}"));
    let wanted = Wanted { pool: POOL, families: &Family::ALL };
    // Nothing ahead: the first pod of a node finds no block there.
    let spec = json!({
        "ipv4": {"entries": [{"cidr": "10.0.0.0/16"}]}, "ipv6": {"entries": [{"cidr": "fd00::/96"}]}, "scaling": {"preAllocate": 0},
    });
    let store = store(nodes, &spec);
    // A quarter of what it may write by default.
    let operator = netloom_operator::start(store.client(), options("crowd", 50));
    let all: Vec<Node> = (0..nodes).map(|number| Node::start(&store, number, &scratch.0)).collect();
    let pools = || store.objects("netloom.io/v1alpha1", "NodeIPPool").unwrap();
    until("every node has its object", PATIENCE, || pools().len() == nodes).await;
    quiet(&store).await;

    let before = writes(&store);
    let (first, cold) = wave(&all, 0..each, wanted).await;
    quiet(&store).await;
    let (between, pods) = (writes(&store), nodes * each);
    let a_pod = (between - before) as f64 / pods as f64;
    println!("{pods} pods of {nodes} nodes that had no block: {cold:.2?}, {a_pod:.2} writes to the API server a pod");
    let asked = requests(&store);
    let (second, warm) = wave(&all, each..2 * each, wanted).await;
    println!("{pods} more, of the blocks that are there: {warm:.2?}, {} requests", writes(&store) - between);
    assert_eq!(requests(&store), asked, "what is granted already asks nobody");
    check(first.into_iter().chain(second), 2 * pods);
    assert!(operator.alive() && all.iter().all(|node| !node.task.is_finished()), "somebody has ended");
    cold
}

/// What was asked for, but for what only follows: a watch may end and begin again at any time.
fn requests(store: &Store) -> objects::Requests {
    let mut all = store.requests();
    all.retain(|(verb, _), _| !matches!(*verb, "list" | "watch"));
    all
}

/// The pods of these numbers come to every node; what they have got, and the time until the last one had it.
async fn wave(nodes: &[Node], numbers: std::ops::Range<usize>, wanted: Wanted) -> (Vec<IpAddr>, Duration) {
    let begun = Instant::now();
    let pods: Vec<JoinHandle<Vec<IpAddr>>> = nodes
        .iter()
        .flat_map(|node| numbers.clone().map(|number| (Arc::clone(&node.store), ask(&node.name, number, wanted))))
        .map(|(store, ask)| {
            tokio::task::spawn_blocking(move || {
                let lease = store.reserve_by(&ask, Instant::now() + PATIENCE).unwrap();
                lease.addresses.iter().map(|leased| leased.address).collect()
            })
        })
        .collect();
    let mut got = Vec::new();
    for pod in pods {
        got.extend(pod.await.unwrap());
    }
    (got, begun.elapsed())
}

/// One of each family for every pod, of the pool, and none twice.
fn check(got: impl Iterator<Item = IpAddr>, pods: usize) {
    let got: Vec<IpAddr> = got.collect();
    let of_pool = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets()[..2] == [10, 0],
        IpAddr::V6(ip) => ip.segments()[..6] == [0xfd00, 0, 0, 0, 0, 0],
    };
    assert!(got.iter().all(of_pool), "{got:?}");
    assert_eq!(got.iter().filter(|ip| ip.is_ipv4()).count(), pods);
    assert_eq!((got.len(), got.iter().collect::<HashSet<_>>().len()), (2 * pods, 2 * pods));
}

fn ask(node: &str, number: usize, Wanted { pool, families }: Wanted) -> Ask {
    let key = Key { network: pool.to_owned(), container: format!("{node}-{number}"), ifname: "eth0".to_owned() };
    let wants = families.iter().map(|family| Want { pool: pool.to_owned(), family: *family, address: None }).collect();
    Ask { key, pod: None, claim: None, wants }
}

/// A node: its store, and who keeps it as its object says.
struct Node {
    name: String,
    store: Arc<PoolStore>,
    task: JoinHandle<()>,
}

// === impl Node ===

impl Node {
    fn start(of: &Store, number: usize, scratch: &Path) -> Node {
        let name = node(number);
        let store = PoolStore::open(&scratch.join(&name), Instant::now() + PATIENCE).unwrap();
        let (store, changed) = (Arc::new(store), Arc::new(Notify::new()));
        let listener = Arc::clone(&changed);
        store.when_changed(move || listener.notify_one());
        store.expect(true);
        let task = tokio::spawn(follow(Cluster::start(of.client(), &name), Arc::clone(&store), changed));
        Node { name, store, task }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What an agent does with its object, but for what no pod here brings about: nothing is given back, and no other agent is there.
async fn follow(cluster: Cluster, store: Arc<PoolStore>, changed: Arc<Notify>) {
    let mut pools = cluster.follow_node_ip_pool();
    let mut applied = None;
    let mut told = Vec::new();
    loop {
        look(&cluster, &pools, &store, &mut applied, &mut told).await;
        tokio::select! {
            () = pools.changed() => {}
            () = changed.notified() => {}
            // Sleeps: an agent looks at least so often.
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
    }
}

async fn look(
    cluster: &Cluster,
    pools: &OwnObject<NodeIpPool>,
    store: &Arc<PoolStore>,
    applied: &mut Option<api::NodeIpPoolSpec>,
    told: &mut Vec<(u64, u64)>,
) {
    let Some(object) = pools.now() else { return };
    if applied.as_ref() != Some(&object.spec) {
        let (store, taken) = (Arc::clone(store), Arc::clone(&object));
        let granted = tokio::task::spawn_blocking(move || {
            for granted in ipam::node_grants(&taken.spec, &taken.status.returning).pools {
                assert_eq!(store.grant(&granted).unwrap(), []);
            }
        });
        granted.await.unwrap();
        *applied = Some(object.spec.clone());
    }
    let demand = store.look(|all| ipam::node_demand(all, &object.spec, &ipam::Stocks::default()));
    let needs: Vec<(u64, u64)> = demand.iter().map(|d| (d.v4, d.v6)).collect();
    if needs != *told {
        let status = api::NodeIpPoolStatus { observed_generation: object.generation, demand, ..api::NodeIpPoolStatus::default() };
        if cluster.write_node_ip_pool_status(&object, &status).await.is_ok() {
            *told = needs;
        }
    }
}
