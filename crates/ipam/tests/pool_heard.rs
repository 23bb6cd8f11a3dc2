//! Machines outside that are heard with addresses of this node's: how long that holds, and of how many of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netloom_ipam::{Clock, Granted, HostPools, ObservedClaim, PoolStore, Was};
use pool::{Ask, Block, Family, Key, Moment, Run, Spec, State, Unavailable, Want};

const MINUTE: u64 = 60_000;
const OTHER: &str = "02:00:00:00:00:77";

struct World {
    dir: PathBuf,
    /// The test's clock begins with the machine's, by which [`HostPools`] reads.
    begin: u64,
    now: Arc<AtomicU64>,
    store: Option<PoolStore>,
}

impl World {
    /// A store with these blocks of the pool `a`; one with a claim's name is that claim's.
    fn new(cooldown: u64, blocks: &[(&str, Option<&str>)]) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let dir = std::env::temp_dir().join(format!("nl-heard-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let begin = Clock::of_the_machine().unwrap().now().millis;
        let mut world = World { dir, begin, now: Arc::new(AtomicU64::new(begin)), store: None };
        world.open();
        let mut spec = Spec::new("a", "net");
        (spec.v4.prefix, spec.v6.prefix, spec.reuse.cooldown) = (16, 64, cooldown);
        (spec.v4.gateway, spec.exclude) = (Some(address("10.0.0.6")), vec!["10.0.0.7".parse().unwrap()]);
        let block = |(text, claim): &(&str, Option<&str>)| {
            let run: Run = text.parse().unwrap();
            (Block { pool: "a".to_owned(), run, epoch: 1, claim: claim.map(str::to_owned) }, State::Active)
        };
        let refused = world.store().grant(&Granted { spec, blocks: blocks.iter().map(block).collect() }).unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        world
    }

    /// The agent begins, or another one after it.
    fn open(&mut self) {
        drop(self.store.take());
        let (now, boot) = (Arc::clone(&self.now), Clock::of_the_machine().unwrap().now().boot);
        let clock = Clock::new(move || Moment { boot, millis: now.load(Ordering::Relaxed) });
        let store = PoolStore::open_by(clock, &self.dir, Instant::now() + Duration::from_secs(60)).unwrap();
        store.recall_heard().unwrap();
        self.store = Some(store);
    }

    fn store(&self) -> &PoolStore {
        self.store.as_ref().unwrap()
    }

    fn pass(&self, millis: u64) {
        self.now.fetch_add(millis, Ordering::Relaxed);
    }

    fn spoken(&self, text: &str) -> Vec<ObservedClaim> {
        self.store().spoken(&BTreeSet::from(["a".to_owned()]), address(text))
    }

    /// Somebody speaks with it; whether that is told, if it is this node's business.
    fn hear(&self, text: &str, by: &str) -> Option<bool> {
        self.spoken(text).first().map(|spoken| self.store().heard(spoken, by).unwrap())
    }

    fn add(&self, n: u32, claim: Option<&str>) -> String {
        let want = Want { pool: "a".to_owned(), family: Family::V4, address: None };
        let ask = Ask { key: key(n), pod: None, claim: claim.map(str::to_owned), wants: vec![want] };
        self.store().reserve(&ask).unwrap().addresses[0].address.to_string()
    }

    fn del(&self, n: u32) {
        self.store().release(&key(n), None).unwrap().unwrap();
    }

    fn taken(&self, text: &str) -> Option<Unavailable> {
        self.store().settle();
        self.store().look(|all| all.taken("net", address(text)).cloned())
    }

    fn is_quarantined(&self, text: &str) -> bool {
        matches!(self.taken(text), Some(Unavailable::Quarantined { by, .. }) if by == OTHER)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.store.take());
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(n: u32) -> Key {
    Key { network: "net".to_owned(), container: format!("c{n}"), ifname: "eth0".to_owned() }
}

#[test]
fn what_nobody_has_is_in_quarantine_for_an_hour_after_it_was_heard() {
    let world = World::new(0, &[("10.0.0.0/29", None)]);
    assert_eq!(world.hear("10.0.0.0", OTHER), Some(true));
    assert_eq!(world.hear("10.0.0.0", OTHER), None, "for long enough");
    assert_eq!(world.add(1, None), "10.0.0.1");
    // It speaks again, and is believed for an hour from then on; nobody is told again.
    world.pass(40 * MINUTE);
    assert_eq!(world.hear("10.0.0.0", OTHER), Some(false));
    world.pass(50 * MINUTE);
    assert!(world.is_quarantined("10.0.0.0"));
    world.pass(10 * MINUTE);
    assert_eq!(world.taken("10.0.0.0"), None);
    let told = world.store().take_conflicts();
    assert_eq!((told.len(), &told[0].was, told[0].by.as_str()), (1, &Was::Free, OTHER));
    assert_eq!(world.store().meters().conflicts.load(Ordering::Relaxed), 1);
}

#[test]
fn what_an_attachment_has_is_told_once_an_hour_and_quarantined_when_it_is_given_back() {
    let mut world = World::new(0, &[("10.0.0.0/29", None)]);
    assert_eq!(world.add(1, None), "10.0.0.0");
    assert_eq!((world.hear("10.0.0.0", OTHER), world.hear("10.0.0.0", OTHER)), (Some(true), Some(false)));
    assert_eq!(world.hear("10.0.0.0", "02:00:00:00:00:78"), Some(true), "another machine");
    assert_eq!(world.hear("10.0.0.0", OTHER), Some(false));
    assert_eq!(world.taken("10.0.0.0"), Some(Unavailable::Held(key(1))), "it keeps it");
    assert!(world.store().take_conflicts().iter().all(|told| told.was == Was::Held(key(1))));
    // Another agent knows it; so does who asks.
    world.open();
    assert_eq!((world.hear("10.0.0.0", OTHER), world.store().heard_addresses().len()), (Some(false), 1));
    let heard = HostPools::read(&world.dir).unwrap().heard("net", address("10.0.0.0")).cloned().unwrap();
    assert_eq!((heard.by.as_str(), heard.pool.as_str(), heard.at().millis), ("02:00:00:00:00:78", "a", world.begin));
    // As long as it is heard, and an hour longer.
    world.pass(50 * MINUTE);
    assert_eq!(world.hear("10.0.0.0", OTHER), Some(false));
    world.pass(11 * MINUTE);
    assert_eq!(world.hear("10.0.0.0", OTHER), Some(true), "an hour later");
    world.pass(59 * MINUTE);
    assert_eq!(world.store().heard_addresses().len(), 1);
    world.del(1);
    assert!(world.is_quarantined("10.0.0.0") && world.store().heard_addresses().is_empty());
    assert_eq!(world.add(2, None), "10.0.0.1");
    world.open();
    assert!(world.is_quarantined("10.0.0.0"));
    // What was heard longer ago is nobody's any more.
    assert_eq!(world.hear("10.0.0.1", OTHER), Some(true));
    world.pass(60 * MINUTE);
    assert!(world.store().heard_addresses().is_empty());
    world.del(2);
    assert_eq!(world.taken("10.0.0.1"), None);
}

#[test]
fn given_back_while_no_agent_was_there() {
    let mut world = World::new(0, &[("10.0.0.0/29", None)]);
    world.add(1, None);
    world.hear("10.0.0.0", OTHER);
    let heard = std::fs::read(world.dir.join("heard")).unwrap();
    world.del(1);
    world.pass(60 * MINUTE);
    assert_eq!(world.taken("10.0.0.0"), None);
    // As if its end had come another way.
    world.now.store(world.begin, Ordering::Relaxed);
    std::fs::write(world.dir.join("heard"), heard).unwrap();
    world.open();
    assert!(world.is_quarantined("10.0.0.0"));
    for broken in ["", "{", "[1]", r#"[{"network": "net", "pool": "b", "address": "10.0.0.1", "by": "x", "boot": "x", "millis": 1}]"#] {
        std::fs::write(world.dir.join("heard"), broken).unwrap();
        world.open();
        assert!(world.store().heard_addresses().is_empty() && world.taken("10.0.0.1").is_none(), "{broken}");
    }
}

#[test]
fn what_is_nobodys_business() {
    let world = World::new(30_000, &[("10.0.0.0/29", None), ("10.0.1.5", Some("ns/vm")), ("10.0.1.6", Some("ns/vm2"))]);
    assert_eq!(world.add(1, Some("ns/vm")), "10.0.1.5");
    let want = Want { pool: "a".to_owned(), family: Family::V4, address: Some(address("10.0.0.4")) };
    let asked = Ask { key: key(3), pod: None, claim: Some("ns/vm".to_owned()), wants: vec![want] };
    assert_eq!(world.store().reserve(&asked).unwrap().addresses[0].address, address("10.0.0.4"));
    let mut other = Spec::new("b", "net");
    (other.v4.prefix, other.v4.gateway) = (16, Some(address("10.0.0.5")));
    world.store().grant(&Granted { spec: other, blocks: Vec::new() }).unwrap();
    // The gateway and that of another pool of the network, what is excluded, a claim's: held, asked for by name, held by nobody; another node's.
    for other in ["10.0.0.6", "10.0.0.5", "10.0.0.7", "10.0.1.5", "10.0.0.4", "10.0.1.6", "10.0.2.1", "fd00::1"] {
        assert_eq!(world.spoken(other), [], "{other}");
    }
    assert_eq!(world.store().spoken(&BTreeSet::from(["b".to_owned()]), address("10.0.0.0")), []);
    // What its holder has said last may still come.
    assert_eq!(world.add(2, None), "10.0.0.0");
    world.del(2);
    world.pass(1_999);
    assert_eq!(world.spoken("10.0.0.0"), []);
    world.pass(1);
    assert_eq!(world.hear("10.0.0.0", OTHER), Some(true));
}

#[test]
fn who_forges_costs_no_more_than_so_much() {
    let world = World::new(0, &[("10.0.0.0/29", None), ("10.1.0.0/20", None)]);
    // So many machines have one address.
    assert_eq!(world.add(1, None), "10.0.0.0");
    let told = (0..20).filter(|n| world.hear("10.0.0.0", &format!("02:00:00:00:01:{n:02x}")) == Some(true)).count();
    assert_eq!(told, 4);
    // So many addresses that attachments have.
    let held: Vec<String> = (2..400).map(|n| world.add(n, None)).collect();
    let told = held.iter().filter(|address| world.hear(address, OTHER) == Some(true)).count();
    assert_eq!((told, world.store().heard_addresses().len()), (255, 256));
    // So many that nobody has.
    let free = (0..16_u8).flat_map(|c| (0..=255_u8).map(move |d| format!("10.1.{c}.{d}"))).filter(|address| !held.contains(address));
    let told = free.filter(|address| world.hear(address, OTHER) == Some(true)).count();
    assert_eq!(told, 1024);
}
