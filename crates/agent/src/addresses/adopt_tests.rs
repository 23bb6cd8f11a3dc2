#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ipam::{Clock, Granted};
use pool::{Block, Moment, Spec, State};

use super::*;

/// A store, and the hours that have passed.
struct World(PathBuf, PoolStore, Arc<AtomicU64>);

impl World {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("nl-adopt-{name}-{}", std::process::id()));
        let hours = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&hours);
        let clock = Clock::new(move || Moment { boot: [7; 16], millis: told.load(Ordering::Relaxed) * 3_600_000 });
        let store = PoolStore::open_by(clock, &dir, Instant::now() + Duration::from_secs(60)).unwrap();
        World(dir, store, hours)
    }

    fn grant(&self, pool: &str, run: &str) {
        let block = Block { pool: pool.to_owned(), run: run.parse().unwrap(), epoch: 1, claim: None };
        self.1.grant(&Granted { spec: Spec::new(pool, pool), blocks: vec![(block, State::Active)] }).unwrap();
    }

    fn in_quarantine(&self, network: &str) -> Vec<String> {
        let is_so = |taken: &Unavailable| matches!(taken, Unavailable::Quarantined { .. }) && taken.frees_in(0, &self.1.now()) != Some(0);
        self.1.look(|all| all.all_taken(network).filter(|(_, taken)| is_so(taken)).map(|(ip, _)| ip.to_string()).collect())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(container: &str) -> Key {
    Key { network: "net".to_owned(), container: container.to_owned(), ifname: "eth0".to_owned() }
}

#[test]
fn an_attachment_of_two_pools_gets_both_addresses_again_or_neither() {
    let world = World::new("two");
    let addresses = vec![("x".to_owned(), ip("198.18.77.1")), ("y".to_owned(), ip("198.18.77.1"))];
    let pod = Some(Pod { namespace: "d".into(), name: "a".into(), uid: String::new() });
    let known = AttachmentEvidence::Record(ContainerId::parse("c").unwrap());
    let orphan = Orphan { key: key("c"), pod, addresses, file: None, known };
    world.grant("x", "198.18.77.0/30");
    let left = adopt(&world.1, vec![orphan]);
    assert_eq!((left.len(), world.1.lease(&key("c"))), (1, None));
    quarantine_unexplained(&world.1, &left).unwrap();
    assert_eq!(world.in_quarantine("x"), ["198.18.77.1"], "nobody gets it meanwhile");
    world.grant("y", "198.18.77.0/30");
    assert!(adopt(&world.1, left).is_empty());
    let held: Vec<String> = world.1.lease(&key("c")).unwrap().addresses.iter().map(|l| format!("{} {}", l.pool, l.address)).collect();
    assert_eq!(held, ["x 198.18.77.1", "y 198.18.77.1"]);
}

#[test]
fn what_is_in_use_stays_in_quarantine() {
    let world = World::new("day");
    world.grant("x", "198.18.78.0/30");
    for address in ["198.18.78.1", "198.18.78.2"] {
        assert!(world.1.quarantine("x", ip(address), UNEXPLAINED, "/proc/5/ns/net").unwrap());
    }
    let there = |complete: bool| InUse { addresses: [(ip("198.18.78.1"), vec![PathBuf::from("/proc/5/ns/net")])].into(), complete };
    let renew = |complete| renew_quarantines(&world.1, || there(complete)).unwrap();
    world.2.store(20, Ordering::Relaxed);
    renew(true);
    world.2.store(30, Ordering::Relaxed);
    assert_eq!(world.in_quarantine("x"), ["198.18.78.1"]);
    // One that cannot be looked for may be there.
    world.2.store(40, Ordering::Relaxed);
    renew_quarantines(&world.1, InUse::default).unwrap();
    world.2.store(50, Ordering::Relaxed);
    assert!(world.in_quarantine("x").contains(&"198.18.78.1".to_owned()));
    renew_quarantines(&world.1, || InUse { complete: true, ..InUse::default() }).unwrap();
    world.2.store(80, Ordering::Relaxed);
    assert_eq!(world.in_quarantine("x"), [""; 0]);
}

/// A runtime has called a plugin without us: what it keeps of that says whose the address of a range is, which is no pool before its next ADD.
#[test]
fn what_a_runtime_has_cached_gets_its_address_of_a_range_again() {
    let world = World::new("cached");
    let dir = world.0.with_extension("cni");
    let dirs = Dirs::below(&dir);
    let ipam = serde_json::json!({"type": "whereabouts", "range": "198.18.79.0/24", "gateway": "198.18.79.1"});
    let list = serde_json::json!({"cniVersion": "1.1.0", "name": "wb", "plugins": [{"type": "bridge", "ipam": ipam}]}).to_string();
    let result = cni::AddResult {
        ips: vec![cni::IpConfig { interface: None, address: "198.18.79.2/24".parse().unwrap(), gateway: None }],
        ..cni::AddResult::default()
    };
    let id = AttachmentId {
        network: NetworkName::parse("wb").unwrap(),
        container: ContainerId::parse("c").unwrap(),
        ifname: IfName::parse("eth0").unwrap(),
    };
    let cache = Cache::new(&dir);
    cache.prepare().unwrap();
    let runtime = chain::Runtime {
        container: id.container.clone(),
        ifname: id.ifname.clone(),
        netns: None,
        args: cni::CniArgs::default(),
        capability_args: Object::new(),
    };
    cache.write(&id, &cni::NetworkList::parse(list.as_bytes(), None).unwrap(), &runtime, &result, &chain::MadeBy::default()).unwrap();
    let found = orphans(&Records::new(dir.join("records")), &[cache], &dirs);
    assert_eq!(found.len(), 1);
    let left = adopt(&world.1, found);
    assert_eq!(left.len(), 1, "the range is no pool yet");
    let ranges =
        Whereabouts::of_plugin(json::parse(&serde_json::to_vec(&serde_json::json!({"ipam": ipam})).unwrap()).unwrap().as_object().unwrap());
    world.1.follow(&ranges.unwrap().ranges[0].to_pool().unwrap()).unwrap();
    assert!(adopt(&world.1, left).is_empty());
    let key = Key { network: "wb".to_owned(), ..key("c") };
    assert_eq!(world.1.lease(&key).unwrap().addresses[0].address, ip("198.18.79.2"));
    std::fs::remove_dir_all(dir).unwrap();
}
