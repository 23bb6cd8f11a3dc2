//! Rules one by one, and a node and an operator that do anything at all, in any order.

mod changed_ranges;
mod families;
mod filled;
mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use api::{CiliumIpamSpec, CiliumIpamStatus, Release};
use pool::{Allocator, Ask, Family, Key, Moment, Pod, Run, Want};
use serde_json::{Value, json};

use super::*;
use crate::{Clock, PoolStore};

const LOCAL: Local = Local { prefixes: [32, 128], cooldown: 0, health: true };

fn offer(pool: Value) -> Offer {
    Offer::read(&serde_json::from_value(pool).unwrap())
}

fn releases(of: Value) -> BTreeMap<String, Release> {
    serde_json::from_value(of).unwrap()
}

/// A node with its store.
struct Node {
    store: Option<PoolStore>,
    dir: PathBuf,
}

impl Node {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("nl-cilium-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        // What is tested is no disk.
        let dir = Path::new("/dev/shm").join(name);
        Node { store: Some(open(&dir)), dir }
    }

    fn store(&self) -> &PoolStore {
        self.store.as_ref().unwrap()
    }

    /// Another process, with what is on the disk.
    fn restart(&mut self) {
        drop(self.store.take());
        self.store = Some(open(&self.dir));
    }

    /// The object says this.
    fn follow(&self, offer: &Offer, release: &BTreeMap<String, Release>) {
        let status = CiliumIpamStatus { release_ips: release.clone(), ..CiliumIpamStatus::default() };
        let granted = self.look(|all| granted(offer, &status, all, &LOCAL));
        assert_eq!(self.store().grant(&granted).unwrap(), []);
    }

    fn get(&self, n: u32, name: &str) -> Result<String, String> {
        let lease = self.store().reserve(&ask(n, name, Family::V4)).map_err(|e| e.to_string())?;
        Ok(lease.addresses[0].address.to_string())
    }

    fn put_back(&self, n: u32) -> bool {
        self.store().release(&key(n), None).unwrap().is_some()
    }

    fn used(&self, offer: &Offer) -> Value {
        serde_json::to_value(self.store().look(|all| used(offer, &BTreeMap::new(), all))).unwrap()
    }

    /// What the node answers.
    fn say(&self, offer: &Offer, release: &BTreeMap<String, Release>) -> BTreeMap<String, Release> {
        answers(offer, &self.look(routers), release, |run| self.store().freeze(POOL, &[run]).unwrap() == [run])
    }

    /// The same, and what it does when that is written.
    fn answer(&self, offer: &Offer, release: &mut BTreeMap<String, Release>) -> Value {
        *release = self.say(offer, release);
        self.follow(offer, release);
        serde_json::to_value(&*release).unwrap()
    }

    fn look<T>(&self, at: impl FnOnce(&Allocator) -> T) -> T {
        self.store().look(at)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.store.take());
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn open(dir: &Path) -> PoolStore {
    PoolStore::open_by(Clock::new(|| Moment { boot: [1; 16], millis: 0 }), dir, Instant::now() + Duration::from_secs(10)).unwrap()
}

fn key(n: u32) -> Key {
    Key { network: "pods".to_owned(), container: format!("c{n}"), ifname: "eth0".to_owned() }
}

fn pod(name: &str) -> Pod {
    Pod { namespace: "ns".to_owned(), name: name.to_owned(), uid: String::new() }
}

fn ask(n: u32, name: &str, family: Family) -> Ask {
    let wants = vec![Want { pool: POOL.to_owned(), family, address: None }];
    Ask { key: key(n), pod: Some(pod(name)), claim: None, wants }
}

#[test]
fn keys_are_what_they_mean() {
    let offer = offer(json!({
        "FD00::1": {"owner": "ns/a"}, "fd00:0::2": {}, "::ffff:192.0.2.9": {"resource": "eni-1"}, "192.0.2.9": {"owner": "ns/b"},
        "10.0.0.0/29": {"resource": "net"}, "10.0.0.3": {"owner": "ns/c"}, "10.0.1.5-10.0.1.7": {}, "10.0.0.2/29": {}, "eth0": {}, "": {},
    }));
    let entries: Vec<(String, &str)> = offer.entries.iter().map(|e| (e.run.to_string(), e.pin.as_deref().unwrap_or_default())).collect();
    let expected = [
        ("10.0.0.0-10.0.0.2", ""),
        ("10.0.0.3", "pod ns/c"),
        ("10.0.0.4/30", ""),
        ("10.0.1.5-10.0.1.7", ""),
        ("192.0.2.9", "pod ns/b"),
        ("fd00::1", "pod ns/a"),
        ("fd00::2", ""),
    ];
    assert_eq!(entries, expected.map(|(run, pin)| (run.to_owned(), pin)));
    let skipped: Vec<&str> = offer.skipped.iter().map(|s| s.key.as_str()).collect();
    assert_eq!(skipped, ["", "10.0.0.2/29", "eth0", "::ffff:192.0.2.9"]);
    assert!(offer.skipped[1].reason.contains("the network is 10.0.0.0"), "{}", offer.skipped[1].reason);
    assert_eq!(offer.edges, ["10.0.0.0", "10.0.0.7"].map(|edge| edge.parse::<Run>().unwrap()));
    assert_eq!((offer.usable(Family::V4, &BTreeMap::new()), offer.usable(Family::V6, &BTreeMap::new())), (2 + 3 + 3, 1));
    let leaving = releases(json!({"10.0.1.5-10.0.1.7": "marked-for-release", "FD00:0::2": "released", "x": "released"}));
    assert_eq!((offer.usable(Family::V4, &leaving), offer.usable(Family::V6, &leaving)), (2 + 3, 0));
}

#[test]
fn how_many_are_waited_for() {
    let spec = |min_allocate, pre_allocate| CiliumIpamSpec { min_allocate, pre_allocate, ..CiliumIpamSpec::default() };
    for (min, pre, health, expected) in [(0, 0, true, 2), (0, 0, false, 1), (0, 8, true, 8), (5, 8, true, 5), (1, 0, true, 1)] {
        assert_eq!(required(&spec(min, pre), health), expected);
    }
}

#[test]
fn the_router_is_for_good() {
    let mut node = Node::new();
    let none = BTreeMap::new();
    node.follow(&offer(json!({"10.0.0.5": {"owner": "ns/a"}, "fd00::5": {"owner": "ns/a"}})), &none);
    assert!(node.look(routers).is_empty(), "all of them are a pod's");
    let status = CiliumIpamStatus { used: serde_json::from_value(json!({"10.0.0.7": {"owner": "router"}})).unwrap(), ..Default::default() };
    let four = offer(json!({"10.0.0.5": {"owner": "ns/a"}, "10.0.0.6": {}, "10.0.0.7": {}, "fd00::5": {"owner": "ns/a"}}));
    let now = node.look(|all| granted(&four, &status, all, &LOCAL));
    node.store().grant(&now).unwrap();
    assert_eq!(node.look(routers), ["10.0.0.7".parse::<IpAddr>().unwrap()], "the one that it had");
    let status = CiliumIpamStatus { used: serde_json::from_value(json!({"10.0.0.6": {"owner": "ns/b"}})).unwrap(), ..Default::default() };
    assert_eq!(
        Node::new().look(|all| granted(&four, &status, all, &LOCAL)).spec.v4.gateway,
        Some("10.0.0.7".parse().unwrap()),
        "not a pod's"
    );
    node.restart();
    let pinned = offer(json!({"10.0.0.6": {}, "10.0.0.7": {"owner": "ns/a"}}));
    node.follow(&pinned, &none);
    assert_eq!(node.look(routers), ["10.0.0.7".parse::<IpAddr>().unwrap()]);
    assert!(node.get(0, "a").unwrap() == "10.0.0.6", "a pin takes nothing from the router");
    let mut release = releases(json!({"10.0.0.7": "marked-for-release"}));
    assert_eq!(node.answer(&pinned, &mut release), json!({"10.0.0.7": "do-not-release"}));
}

/// The example of Cilium's documentation.
#[test]
fn four_addresses() {
    let node = Node::new();
    let offer = offer(json!({"192.168.1.1": {}, "192.168.1.2": {"resource": "eni-2"}, "192.168.1.3": {}, "192.168.1.4": {}}));
    node.follow(&offer, &BTreeMap::new());
    assert_eq!(node.get(0, "a").unwrap(), "192.168.1.2");
    assert_eq!(node.used(&offer), json!({"192.168.1.1": {"owner": "router"}, "192.168.1.2": {"owner": "ns/a", "resource": "eni-2"}}));
    assert_eq!(node.look(|all| all.spec(POOL).unwrap().v4.gateway.unwrap().to_string()), "192.168.1.1");
    assert!(!node.look(|all| all.spec(POOL).unwrap().has(Family::V6)));
    assert_eq!([1, 2].map(|n| node.get(n, "b").unwrap()), ["192.168.1.3", "192.168.1.4"]);
    assert!(node.get(3, "c").is_err());
}

#[test]
fn what_leaves_the_pool_in_use_stays_with_its_pod_and_goes_to_nobody_else() {
    let mut node = Node::new();
    let none = BTreeMap::new();
    node.follow(&offer(json!({"10.0.0.1": {}, "10.0.0.2": {"resource": "eni-2"}, "10.0.0.3": {}})), &none);
    assert_eq!(node.get(0, "a").unwrap(), "10.0.0.2");
    let told = node.look(|all| used(&offer(json!({"10.0.0.2": {"resource": "eni-2"}})), &BTreeMap::new(), all));
    let less = offer(json!({"10.0.0.1": {}}));
    node.follow(&less, &none);
    node.restart();
    node.follow(&less, &none);
    assert_eq!(node.get(0, "a").unwrap(), "10.0.0.2");
    assert_eq!(node.look(|all| used(&less, &told, all))["10.0.0.2"].resource, "eni-2");
    assert!(node.get(1, "b").is_err());
    assert!(node.put_back(0));
    assert!(node.get(1, "b").is_err(), "it is not the node's any more");
    node.follow(&offer(json!({"10.0.0.1": {}, "10.0.0.2": {}})), &none);
    assert_eq!(node.get(1, "b").unwrap(), "10.0.0.2");
}

#[test]
fn a_pod_has_the_address_that_is_its_own_when_its_last_one_is_gone() {
    let node = Node::new();
    let none = BTreeMap::new();
    node.follow(&offer(json!({"10.0.0.1": {}, "10.0.0.2": {}, "10.0.0.9": {"owner": "ns/db"}})), &none);
    assert_eq!(node.get(0, "db").unwrap(), "10.0.0.9");
    assert!(node.get(1, "db").unwrap_err().starts_with("10.0.0.9 is not free: attachment pods/c0/eth0 has it"));
    assert!(node.put_back(0));
    assert_eq!(node.get(1, "db").unwrap(), "10.0.0.9");
    assert!(!node.put_back(0), "a second DEL of the first one");
    // The pin goes to another pod, and then is none.
    node.follow(&offer(json!({"10.0.0.1": {}, "10.0.0.9": {"owner": "ns/web"}})), &none);
    assert!(node.get(2, "web").unwrap_err().starts_with("10.0.0.9 is not free"));
    assert!(node.put_back(1));
    assert!(node.get(3, "db").is_err());
    assert_eq!(node.get(2, "web").unwrap(), "10.0.0.9");
    assert!(node.put_back(2));
    node.follow(&offer(json!({"10.0.0.1": {}, "10.0.0.9": {}})), &none);
    assert_eq!(node.get(3, "db").unwrap(), "10.0.0.9");
}

#[test]
fn an_address_is_taken_back_in_four_words() {
    let node = Node::new();
    let three = offer(json!({"10.0.0.1": {}, "10.0.0.2": {}, "10.0.0.3": {}}));
    node.follow(&three, &BTreeMap::new());
    assert_eq!(node.get(0, "a").unwrap(), "10.0.0.2");
    let marked = json!({"10.0.0.1": "marked-for-release", "10.0.0.2": "marked-for-release", "10.0.0.3": "marked-for-release",
        "10.0.0.4": "marked-for-release", "x": "marked-for-release", "10.0.0.5": "a-later-word"});
    let mut release = releases(marked);
    let told = node.answer(&three, &mut release);
    let expected = json!({"10.0.0.1": "do-not-release", "10.0.0.2": "do-not-release", "10.0.0.3": "ready-for-release",
        "10.0.0.4": "do-not-release", "x": "do-not-release", "10.0.0.5": "a-later-word"});
    assert_eq!(told, expected);
    assert!(node.get(1, "b").is_err(), "it was promised");
    assert_eq!(node.answer(&three, &mut release), expected, "asked again");
    // The operator has taken it, and takes it out of the pool afterwards.
    let mut release = releases(json!({"10.0.0.3": "released"}));
    assert_eq!(node.answer(&three, &mut release), json!({"10.0.0.3": "released"}));
    assert!(node.get(1, "b").is_err());
    let two = offer(json!({"10.0.0.1": {}, "10.0.0.2": {}}));
    assert_eq!(node.answer(&two, &mut release), json!({}));
    // It comes again.
    node.follow(&three, &release);
    assert_eq!(node.get(1, "b").unwrap(), "10.0.0.3");
}

#[test]
fn an_operator_that_thinks_better_of_it() {
    let node = Node::new();
    let two = offer(json!({"10.0.0.1": {}, "10.0.0.2": {}}));
    node.follow(&two, &BTreeMap::new());
    let mut release = releases(json!({"10.0.0.2": "marked-for-release"}));
    assert_eq!(node.answer(&two, &mut release), json!({"10.0.0.2": "ready-for-release"}));
    // A node that has lost its disk keeps what it promised.
    let anew = Node::new();
    anew.follow(&two, &release);
    assert!(anew.get(0, "a").is_err());
    node.follow(&two, &BTreeMap::new());
    assert_eq!(node.get(0, "a").unwrap(), "10.0.0.2");
}

#[test]
fn an_empty_object_takes_nothing_from_pods_and_forgets_no_family() {
    let node = Node::new();
    let none = BTreeMap::new();
    node.follow(&offer(json!({"10.0.0.1": {}, "10.0.0.2": {}, "10.0.0.3": {}, "fd00::1-fd00::3": {}})), &none);
    assert_eq!(node.get(0, "a").unwrap(), "10.0.0.2");
    let empty = Offer::default();
    node.follow(&empty, &none);
    assert!(node.look(|all| Family::ALL.into_iter().all(|family| all.spec(POOL).unwrap().has(family))));
    assert_eq!(node.used(&empty).as_object().unwrap().len(), 3);
    assert_eq!(answers(&empty, &[], &releases(json!({"10.0.0.2": "marked-for-release"})), |_| true)["10.0.0.2"], Release::DoNotRelease);
}
