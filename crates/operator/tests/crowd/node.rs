//! A node without a machine: its allocator in memory, its object as it was seen last, and what it writes into that.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Instant;

use api::{NodeIpPoolSpec, NodeIpPoolStatus, Returning};
use cluster::Own;
use http::Request;
use pool::{Allocator, Ask, Block, Family, Key, Moment, State, Want};
use serde_json::{Value, json};

use crate::world::{NodePool, node};

/// The node that holds an address, whatever any object says.
pub(crate) type Held = HashMap<IpAddr, usize>;

/// One node.
pub(crate) struct Node {
    number: usize,
    /// Each pod wants an address of each of these.
    families: &'static [Family],
    all: Allocator,
    stocks: ipam::Stocks,
    /// The object's version, spec and status.
    seen: Option<(String, NodeIpPoolSpec, NodeIpPoolStatus)>,
    /// Pods without addresses; a key's network is the name of the pool.
    waiting: BTreeSet<Key>,
    /// A write is on its way.
    pub(crate) writing: bool,
}

/// What a node says after a look at its object.
pub(crate) struct Said {
    /// The version of the object.
    pub(crate) version: String,
    pub(crate) spec: NodeIpPoolSpec,
    /// The status that the object has.
    pub(crate) seen: NodeIpPoolStatus,
    /// The status that it should have.
    pub(crate) status: NodeIpPoolStatus,
}

/// A pod of a pool.
pub(crate) fn pod(pool: &str, container: String) -> Key {
    Key { network: pool.to_owned(), container, ifname: "eth0".to_owned() }
}

/// Writes a node's status over a version of its object.
pub(crate) async fn write(client: &kube::Client, number: usize, version: &str, status: &NodeIpPoolStatus) {
    let steps = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version}, {"op": "add", "path": "/status", "value": status},
    ]);
    let path = format!("{}/{}/status", Own::NodeIpPool.path(), node(number));
    let request = Request::patch(path).header("content-type", "application/json-patch+json").body(steps.to_string().into_bytes());
    // What was refused is looked at again, when the watch has brought what is there.
    drop(client.request::<Value>(request.unwrap()).await);
}

// === impl Node ===

impl Node {
    pub(crate) fn new(number: usize, families: &'static [Family]) -> Node {
        let (all, stocks) = (Allocator::new(number as u64), ipam::Stocks::default());
        Node { number, families, all, stocks, seen: None, waiting: BTreeSet::new(), writing: false }
    }

    pub(crate) fn saw(&mut self, object: NodePool) {
        let version = object.metadata.resource_version.unwrap();
        self.seen = Some((version, object.spec, object.status.unwrap_or_default()));
    }

    /// A pod comes, and waits for its addresses.
    pub(crate) fn come(&mut self, pod: Key) {
        self.waiting.insert(pod);
    }

    /// A pod goes, with or without addresses.
    pub(crate) fn go(&mut self, pod: &Key, held: &mut Held) {
        if self.waiting.remove(pod) {
            self.all.stop_waiting(pod);
            return;
        }
        for leased in &self.all.lease(pod).unwrap().addresses {
            assert!(held.remove(&leased.address).is_some());
        }
        self.all.release(pod, None, &Moment::default()).unwrap();
    }

    /// The pods that have addresses.
    pub(crate) fn addressed(&self) -> impl Iterator<Item = &Key> {
        self.all.leases().map(|lease| &lease.key)
    }

    /// All addresses that pods have.
    pub(crate) fn leased(&self) -> impl Iterator<Item = IpAddr> {
        self.all.leases().flat_map(|lease| &lease.addresses).map(|leased| leased.address)
    }

    /// Its blocks, also those that it gives back.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (&Block, State)> {
        self.all.every_pool().flat_map(move |pool| Family::ALL.into_iter().flat_map(move |family| self.all.blocks(pool, family)))
    }

    /// Takes in what is granted, gives back what is too much, and gives addresses to all that wait. What it says then.
    pub(crate) fn step(&mut self, now: Instant, held: &mut Held) -> Option<Said> {
        let (version, spec, seen) = self.seen.clone()?;
        for granted in ipam::node_grants(&spec, &seen.returning).pools {
            granted.apply(&mut self.all).unwrap();
        }
        self.all.settle(&Moment::default());
        let asks: Vec<Ask> = self.waiting.iter().map(|pod| ask(pod, self.families)).collect();
        for ask in &asks {
            self.all.wait(ask);
        }
        self.stocks.look(&self.all, &spec, &seen.demand, now);
        for surplus in ipam::surplus(&self.all, &spec, &self.stocks) {
            self.stop(&surplus);
        }
        for ask in &asks {
            if self.all.reserve(ask, &Moment::default()).is_err() {
                continue;
            }
            self.all.stop_waiting(&ask.key);
            self.waiting.remove(&ask.key);
            for leased in &self.all.lease(&ask.key).unwrap().addresses {
                let before = held.insert(leased.address, self.number);
                assert_eq!(before, None, "{} is node {}'s as well", leased.address, self.number);
            }
        }
        let demand = ipam::node_demand(&self.all, &spec, &self.stocks);
        let frozen = self.blocks().filter(|(_, state)| *state == State::Frozen);
        let returning: Vec<Returning> = frozen.map(|(block, _)| ipam::returning(block)).collect();
        let status = NodeIpPoolStatus { demand, returning, ..NodeIpPoolStatus::default() };
        Some(Said { version, spec, seen, status })
    }

    /// The highest first: addresses are taken from the lowest.
    fn stop(&mut self, surplus: &ipam::Surplus) {
        let active = self.all.blocks(&surplus.pool, surplus.family).filter(|(_, state)| *state == State::Active);
        let blocks: Vec<Block> = active.map(|(block, _)| block.clone()).collect();
        let mut left = surplus.addresses;
        for block in blocks.iter().rev() {
            if block.run.count() <= left && self.all.freeze(&surplus.pool, block.run, &Moment::default()).is_ok() {
                left -= block.run.count();
            }
        }
    }
}

fn ask(pod: &Key, families: &[Family]) -> Ask {
    let wants = families.iter().map(|family| Want { pool: pod.network.clone(), family: *family, address: None }).collect();
    Ask { key: pod.clone(), pod: None, claim: None, wants }
}
