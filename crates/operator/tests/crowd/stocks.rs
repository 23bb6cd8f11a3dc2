//! Nodes that keep stocks of ranges of single addresses: pods come and go in waves, nobody comes for a while, and a range is used up.
//!
//! ```text
//!   pods in waves --> nodes, on one clock --status--> the store --> the operator --specs--> nodes
//!                     `-- read as a whole now and then: no address has two holders, or lies in blocks of two nodes
//! ```
//!
//! The nodes' clock stands still unless a test says that time passes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::time::{Duration, Instant};

use api::Demand;
use cluster::Own;
use futures::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use objects::Store;
use pool::{Family, Key, State};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::node::{Held, Node, Said, pod, write};
use crate::world::{NodePool, POOL, node, options, store, until};

const PATIENCE: Duration = Duration::from_secs(600);
/// A range that has its upper half in common with the pool of all.
const UPPER: &str = "upper";
/// After this time without a pod a stock is halved, where a pool's `releaseDelaySeconds` is short.
const IDLE: Duration = Duration::from_secs(5);
/// A stock of 64 is nothing after so many of these times: 32, 16, 8, 4, 2, 1, 0.
const HALVINGS: u32 = 7;

/// Nodes before an operator of their own.
struct Crowd {
    store: Store,
    client: kube::Client,
    operator: netloom_operator::Running,
    nodes: Vec<Node>,
    numbers: BTreeMap<String, usize>,
    held: Held,
    /// The pods that are there, each with its node's number.
    pods: Vec<(usize, Key)>,
    made: usize,
    /// Addresses that nodes have and no pod.
    idle: usize,
    now: Instant,
    chance: u64,
    events: Pin<Box<dyn Stream<Item = Result<Event<NodePool>, Error>>>>,
    /// The version of each node's object over which its status was written last: what is refused comes again with the next version.
    written: Vec<String>,
    writing: JoinSet<()>,
}

/// A pool of single addresses, from the one of this number to the one of that number.
fn range(first: usize, last: usize) -> Value {
    let range = format!("{}-{}", address(first), address(last));
    json!({"network": "net", "ipv4": {"entries": [{"range": range}], "blockPrefix": 32, "prefixLength": 8},
        "scaling": {"preAllocate": 0, "maxStock": 64, "releaseDelaySeconds": 0}, "reuse": {"cooldownSeconds": 0}})
}

fn address(number: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).unwrap()).into()
}

/// Four pods a node in the mean; in each wave half of them go and as many others come to any nodes. Then nobody comes, and all stocks go back.
pub(crate) async fn waves(nodes: usize) {
    let (most, addresses) = (nodes * 4, nodes * 12);
    let mut crowd = Crowd::new(nodes, addresses);
    for wave in 0..6 {
        crowd.go(crowd.pods.len() / 2);
        crowd.come(POOL, most - crowd.pods.len());
        crowd.serve(&format!("wave {wave}")).await;
    }
    crowd.until("nodes have stocks", |crowd| crowd.idle > nodes).await;
    crowd.go(most / 2);
    for _ in 0..HALVINGS {
        crowd.time_passes(IDLE);
    }
    crowd.until("stocks are given back", |crowd| crowd.idle == 0).await;
    let pods = crowd.pods.len();
    assert_eq!(crowd.read(), (pods, pods), "in use, and on the nodes");
    until("the ledger has what pods have", PATIENCE, || of_nodes(&crowd.store) == pods && cells(&crowd.store) == pods).await;
    println!("{nodes} nodes have {pods} addresses for {pods} pods");
}

/// As many pods as a range has addresses, on nodes that have stocks of it: each gets one. Then pods go, and others come elsewhere.
pub(crate) async fn to_the_last_address(nodes: usize) {
    let addresses = nodes * 3;
    let mut crowd = Crowd::new(nodes, addresses);
    crowd.come(POOL, nodes / 2);
    crowd.serve("the first pods").await;
    crowd.until("nodes have stocks", |crowd| crowd.idle > addresses / 2).await;
    while crowd.pods.len() < addresses {
        crowd.come(POOL, (nodes / 2).min(addresses - crowd.pods.len()));
        crowd.serve("more pods").await;
    }
    let used: BTreeSet<IpAddr> = crowd.held.keys().copied().collect();
    assert_eq!((crowd.idle, used), (0, (1..=addresses).map(address).collect()));
    crowd.go(nodes);
    crowd.come(POOL, nodes);
    crowd.serve("others, elsewhere").await;
    assert_eq!((crowd.held.len(), crowd.idle), (addresses, 0));
}

/// Pods of a range that lies in a larger one, of which nodes have stocks: each address that no pod has is theirs.
pub(crate) async fn to_the_last_address_of_an_inner_range(nodes: usize) {
    let addresses = nodes * 3;
    let mut crowd = Crowd::new(nodes, addresses);
    crowd.come(POOL, nodes / 2);
    crowd.serve("the first pods").await;
    crowd.until("nodes have stocks", |crowd| crowd.idle > addresses / 2).await;
    let inner: BTreeSet<IpAddr> = (addresses / 2 + 1..=addresses).map(address).collect();
    let stocked = crowd.nodes.iter().flat_map(Node::blocks).filter(|(block, _)| inner.contains(&block.run.first())).count();
    let free = inner.iter().filter(|ip| !crowd.held.contains_key(ip)).count();
    assert!(stocked > 0 && free > inner.len() / 2, "{stocked} of {} are on nodes, {free} are free", inner.len());
    crowd.come(UPPER, free);
    crowd.serve("pods of the inner range").await;
    assert!(inner.iter().all(|ip| crowd.held.contains_key(ip)));
}

/// How many addresses nodes' objects have.
fn of_nodes(store: &Store) -> usize {
    let objects = store.objects("netloom.io/v1alpha1", "NodeIPPool").unwrap();
    objects.iter().map(|object| object["spec"]["blocks"].as_array().map_or(0, Vec::len)).sum()
}

/// How many addresses the ledger has as somebody's.
fn cells(store: &Store) -> usize {
    let shards = store.objects("netloom.io/v1alpha1", "IPLedgerShard").unwrap();
    let cells = shards.iter().flat_map(|shard| shard["spec"]["cells"].as_object().into_iter().flat_map(|cells| cells.values()));
    cells.filter(|cell| cell["state"] != "Free").count()
}

/// Whether an agent writes what it has to say: crates/agent/src/addresses/follow.rs.
fn is_news(Said { spec, seen, status, .. }: &Said) -> bool {
    let told = |d: &Demand| {
        let bare = d.waiting.then_some((d.v4 - d.stock_v4, d.v6 - d.stock_v6));
        (d.pool.clone(), d.v4, d.v6, bare, ipam::blocks_in_use(spec, Some(d)))
    };
    let emptied = |d: &Demand| seen.demand.iter().any(|told| told.pool == d.pool && ipam::has_emptied(spec, told, d));
    let differs = !status.demand.iter().map(told).eq(seen.demand.iter().map(told));
    differs || status.returning != seen.returning || status.demand.iter().any(emptied)
}

// === impl Crowd ===

impl Crowd {
    /// Nodes with a pool of so many addresses, and another one that has the upper half of them.
    fn new(nodes: usize, addresses: usize) -> Crowd {
        let store = store(nodes, &range(1, addresses));
        let metadata = json!({"name": UPPER});
        let upper = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": metadata, "spec": range(addresses / 2 + 1, addresses)});
        store.put(&upper).unwrap();
        let client = store.client();
        let events = watcher(Own::NodeIpPool.api::<NodePool>(client.clone()), Config::default()).default_backoff();
        Crowd {
            operator: netloom_operator::start(store.client(), options("stocks", 1_000_000)),
            store,
            client,
            nodes: (0..nodes).map(|number| Node::new(number, &[Family::V4])).collect(),
            numbers: (0..nodes).map(|number| (node(number), number)).collect(),
            held: Held::new(),
            pods: Vec::new(),
            made: 0,
            idle: 0,
            now: Instant::now(),
            chance: 0x9e37_79b9_7f4a_7c15,
            events: events.boxed(),
            written: vec![String::new(); nodes],
            writing: JoinSet::new(),
        }
    }

    /// A number below this one (xorshift64).
    fn below(&mut self, limit: usize) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        usize::try_from(self.chance % limit as u64).unwrap()
    }

    /// So many pods come, each to any node.
    fn come(&mut self, pool: &str, count: usize) {
        for _ in 0..count {
            let (number, pod) = (self.below(self.nodes.len()), pod(pool, self.made.to_string()));
            self.made += 1;
            self.nodes[number].come(pod.clone());
            self.pods.push((number, pod));
            self.look(number);
        }
    }

    /// Any pods go.
    fn go(&mut self, count: usize) {
        for _ in 0..count {
            let any = self.below(self.pods.len());
            let (number, pod) = self.pods.swap_remove(any);
            let before = self.idle_of(number);
            self.nodes[number].go(&pod, &mut self.held);
            self.idle += self.idle_of(number) - before;
            self.look(number);
        }
    }

    fn time_passes(&mut self, time: Duration) {
        self.now += time;
        (0..self.nodes.len()).for_each(|number| self.look(number));
    }

    fn idle_of(&self, number: usize) -> usize {
        self.nodes[number].blocks().count() - self.nodes[number].leased().count()
    }

    /// One look at a node; what follows is written.
    fn look(&mut self, number: usize) {
        let before = self.idle_of(number);
        let said = self.nodes[number].step(self.now, &mut self.held);
        self.idle = self.idle + self.idle_of(number) - before;
        let Some(said) = said.filter(|said| self.written[number] != said.version && is_news(said)) else { return };
        self.written[number].clone_from(&said.version);
        let client = self.client.clone();
        self.writing.spawn(async move { write(&client, number, &said.version, &said.status).await });
    }

    /// Until each pod has an address.
    async fn serve(&mut self, what: &str) {
        let begun = Instant::now();
        self.until(what, |crowd| crowd.held.len() == crowd.pods.len()).await;
        let (used, there) = self.read();
        println!("{what}: {used} pods have addresses after {:.2?}, nodes have {there}", begun.elapsed());
    }

    /// Goes on with what objects say until something holds; all stores are read each time that as much has happened as there are nodes.
    async fn until(&mut self, what: &str, so: impl Fn(&Crowd) -> bool) {
        let end = tokio::time::Instant::now() + PATIENCE;
        let mut looks = 0;
        while !so(self) {
            let event = tokio::select! {
                event = self.events.next() => event,
                Some(_) = self.writing.join_next() => continue,
                // Sleeps: until its patience is over.
                () = tokio::time::sleep_until(end) => {
                    panic!("not in time: {what}: {} of {} pods have addresses, {} are idle", self.held.len(), self.pods.len(), self.idle)
                }
            };
            let Some(Ok(Event::Apply(object) | Event::InitApply(object))) = event else { continue };
            let number = self.numbers[object.metadata.name.as_deref().unwrap()];
            self.nodes[number].saw(object);
            self.look(number);
            looks += 1;
            if looks % self.nodes.len() == 0 {
                self.read();
            }
        }
    }

    /// Reads the stores of all nodes: how many addresses pods have, and how many nodes have. None has two holders, and none that may be
    /// handed out is on two nodes.
    fn read(&self) -> (usize, usize) {
        assert!(self.operator.alive(), "the operator has ended");
        let (mut used, mut there) = (HashMap::new(), HashMap::new());
        for (number, node) in self.nodes.iter().enumerate() {
            for address in node.leased() {
                let other = used.insert(address, number);
                assert_eq!(other, None, "{address} belongs to a pod of node {number} and to another pod");
            }
            for (block, _) in node.blocks().filter(|(_, state)| *state != State::Frozen) {
                let other = there.insert(block.run, number);
                assert_eq!(other, None, "{} is on node {number} and on another node", block.run);
            }
        }
        (used.len(), there.len())
    }
}
