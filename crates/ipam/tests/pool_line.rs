//! Waiting in line, and what a cluster grants and gets back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use cni::{CniError, Code};
use netloom_ipam::{Granted, PoolStore, PoolStoreError};
use pool::{Ask, Block, Family, Key, Lease, Pod, Refused, Run, Spec, State, Want};

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("nl-line-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Dir(std::env::temp_dir().join(name))
    }

    fn open(&self) -> PoolStore {
        PoolStore::open(&self.0, later()).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A limit for what is to happen soon.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn key(n: u32) -> Key {
    Key { network: "net".to_owned(), container: format!("c{n}"), ifname: "eth0".to_owned() }
}

fn ask(n: u32, families: &[Family]) -> Ask {
    let wants = families.iter().map(|family| Want { pool: "a".to_owned(), family: *family, address: None }).collect();
    Ask { key: key(n), pod: None, claim: None, wants }
}

fn v4(n: u32) -> Ask {
    ask(n, &[Family::V4])
}

fn run(text: &str) -> Run {
    text.parse().unwrap()
}

/// The pool `a` with these blocks, all of one epoch.
fn granted(cooldown: u64, epoch: u64, blocks: &[&str]) -> Granted {
    let mut spec = Spec::new("a", "net");
    (spec.v4.prefix, spec.v6.prefix, spec.reuse.cooldown) = (24, 64, cooldown);
    let block = |text: &&str| (Block { pool: "a".to_owned(), run: run(text), epoch, claim: None }, State::Active);
    Granted { spec, blocks: blocks.iter().map(block).collect() }
}

fn addresses(lease: &Lease) -> Vec<String> {
    lease.addresses.iter().map(|l| l.address.to_string()).collect()
}

fn refused(e: PoolStoreError) -> Refused {
    match e {
        PoolStoreError::Refused(refused) => *refused,
        other => panic!("{other}"),
    }
}

/// Until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let limit = later();
    while !holds() {
        assert!(Instant::now() < limit, "{what} has not come");
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(2));
    }
}

type Waiting = JoinHandle<Result<Lease, PoolStoreError>>;

/// One that waits, in line when this returns.
fn waits(store: &Arc<PoolStore>, ask: &Ask) -> Waiting {
    let (own, asked, before) = (Arc::clone(store), ask.clone(), store.waiting());
    let waiting = spawn(move || own.reserve_by(&asked, later()));
    until("its place in line", || store.waiting() > before);
    waiting
}

/// Its runtime has given it up: it stands in nobody's way, and its address counts as needed no more.
#[test]
fn who_is_not_waited_for_leaves_the_line() {
    static IS_WAITED_FOR: AtomicBool = AtomicBool::new(true);
    let dir = Dir::new();
    let store = Arc::new(dir.open());
    store.when_waiting(drop, || IS_WAITED_FOR.load(Ordering::Relaxed));
    store.grant(&granted(0, 1, &["10.0.0.0/32"])).unwrap();
    store.reserve(&v4(1)).unwrap();
    let waiting = waits(&store, &v4(2));
    IS_WAITED_FOR.store(false, Ordering::Relaxed);
    assert_eq!(waiting.join().unwrap().unwrap_err(), PoolStoreError::Abandoned);
    assert_eq!((store.waiting(), store.look(|all| all.usage("a", Family::V4)).waiting), (0, 0));
    assert!(!store.wait_past(store.version(), later()), "nor does who waits for a pool");
    assert_eq!(store.waiting(), 0);
    store.release(&key(1), None).unwrap();
    assert_eq!(addresses(&store.reserve(&v4(3)).unwrap()), ["10.0.0.0"]);
}

#[test]
fn the_first_in_line_gets_what_comes() {
    let dir = Dir::new();
    let store = Arc::new(dir.open());
    store.grant(&granted(0, 1, &["10.0.0.0/31"])).unwrap();
    (1..3).for_each(|n| drop(store.reserve(&v4(n)).unwrap()));
    let line: Vec<Waiting> = (3..9).map(|n| waits(&store, &v4(n))).collect();
    until("all demand", || store.look(|all| all.usage("a", Family::V4)).waiting == 6);
    // Who does not wait does not overtake.
    store.release(&key(1), None).unwrap();
    let mut last = 2;
    for (n, waiting) in (3..9).zip(line) {
        assert_eq!(addresses(&waiting.join().unwrap().unwrap()).len(), 1, "{n}");
        assert!((n + 1..9).all(|other| store.lease(&key(other)).is_none()), "{n} was overtaken");
        store.release(&key(last), None).unwrap();
        last = n;
    }
    assert_eq!((store.waiting(), store.look(|all| all.usage("a", Family::V4)).waiting), (0, 0));
}

#[test]
fn nobody_overtakes() {
    let dir = Dir::new();
    let store = Arc::new(dir.open());
    store.grant(&granted(0, 1, &["10.0.0.0/32", "fd00::/127"])).unwrap();
    store.reserve(&v4(1)).unwrap();
    // It wants both, and of one of them two are free: one of these is for who comes next.
    let both = waits(&store, &ask(2, &Family::ALL));
    until("its demand", || store.look(|all| all.usage("a", Family::V6)).waiting == 1);
    assert_eq!(addresses(&store.reserve(&ask(3, &[Family::V6])).unwrap()), ["fd00::"]);
    let short = refused(store.reserve(&ask(5, &[Family::V6])).unwrap_err());
    assert!(matches!(short, Refused::Short { waiting: 1, family: Family::V6, held: 1, kept: 1, .. }), "{short}");
    let said = "pool \"a\" has no IPv6 address left on this node: 1 free but reserved for attachments that have waited longer";
    assert!(short.to_string().starts_with(said), "{short}");
    assert_eq!(CniError::from(PoolStoreError::from(short)).code, Code::TRY_AGAIN_LATER);
    // A certain address is nobody else's business.
    let certain =
        Ask { wants: vec![Want { address: Some("fd00::1".parse().unwrap()), ..ask(4, &[Family::V6]).wants[0].clone() }], ..v4(4) };
    assert_eq!(addresses(&store.reserve(&certain).unwrap()), ["fd00::1"]);
    store.release(&key(1), None).unwrap();
    assert!(
        refused(store.reserve(&v4(6)).unwrap_err()).to_string().contains("1 free but reserved for attachments that have waited longer")
    );
    store.release(&key(3), None).unwrap();
    assert_eq!(addresses(&both.join().unwrap().unwrap()), ["10.0.0.0", "fd00::"]);
}

/// Those that are short of IPv6 have of IPv4 what they want and no more: it is not theirs to wait for.
#[test]
fn who_waits_for_one_family_leaves_the_rest_of_the_other() {
    let dir = Dir::new();
    let store = Arc::new(dir.open());
    store.grant(&granted(0, 1, &["10.0.0.0/29", "fd00::/127"])).unwrap();
    (1..3).for_each(|n| drop(store.reserve(&ask(n, &Family::ALL)).unwrap()));
    let [third, fourth] = [3, 4].map(|n| waits(&store, &ask(n, &Family::ALL)));
    until("all demand", || store.look(|all| all.usage("a", Family::V6)).waiting == 2);
    let got: Vec<String> = (10..14).flat_map(|n| addresses(&store.reserve(&v4(n)).unwrap())).collect();
    assert_eq!(got, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]);
    let short = refused(store.reserve(&v4(14)).unwrap_err());
    assert!(matches!(short, Refused::Short { family: Family::V4, held: 6, kept: 2, waiting: 2, .. }), "{short}");
    store.release(&key(1), None).unwrap();
    assert_eq!(addresses(&third.join().unwrap().unwrap()), ["10.0.0.6", "fd00::"]);
    assert!(!fourth.is_finished() && store.lease(&key(4)).is_none());
    // Where one of those two is free again it is for anybody.
    assert_eq!(addresses(&store.reserve(&v4(15)).unwrap()), ["10.0.0.7"]);
    store.release(&key(2), None).unwrap();
    assert_eq!(addresses(&fourth.join().unwrap().unwrap())[1], "fd00::1");
}

#[test]
fn woken_by_a_new_block_and_by_the_end_of_a_cooldown() {
    let dir = Dir::new();
    let store = Arc::new(dir.open());
    store.grant(&granted(300, 1, &["10.0.0.0/32"])).unwrap();
    let had = store.reserve(&v4(1)).unwrap();
    let since = Instant::now();
    store.release(&had.key, None).unwrap();
    let cooled = store.reserve_by(&v4(2), later()).unwrap();
    assert_eq!(addresses(&cooled), ["10.0.0.0"]);
    // Whole milliseconds are counted.
    assert!(since.elapsed() >= Duration::from_millis(299), "it had not cooled down: {:?}", since.elapsed());
    let waiting = waits(&store, &v4(3));
    store.grant(&granted(300, 1, &["10.0.0.0/32", "10.0.1.0/31"])).unwrap();
    assert_eq!(addresses(&waiting.join().unwrap().unwrap()), ["10.0.1.0"]);
}

#[test]
fn who_is_detached_while_it_waits_gets_nothing() {
    let dir = Dir::new();
    let store = Arc::new(dir.open());
    store.grant(&granted(0, 1, &["10.0.0.0/32"])).unwrap();
    store.reserve(&v4(1)).unwrap();
    let waiting = waits(&store, &v4(2));
    assert_eq!(store.release(&key(2), None).unwrap(), None);
    store.release(&key(1), None).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap_err(), PoolStoreError::Leaving { key: key(2) });
    assert_eq!(store.lease(&key(2)), None);
}

#[test]
fn in_line_until_the_deadline() {
    let dir = Dir::new();
    let store = dir.open();
    let unknown = refused(store.reserve_by(&v4(1), later()).unwrap_err());
    assert!(matches!(unknown, Refused::UnknownPool { .. }), "who expects nothing does not wait for it: {unknown}");
    store.expect(true);
    store.grant(&granted(0, 1, &[])).unwrap();
    let since = Instant::now();
    let short = refused(store.reserve_by(&v4(1), Instant::now() + Duration::from_millis(50)).unwrap_err());
    assert!(since.elapsed() >= Duration::from_millis(50) && matches!(short, Refused::Short { held: 0, .. }), "{short}");
    assert_eq!(store.waiting(), 0);
}

/// What is frozen is for ever, and comes again only with another epoch; what a restart finds is the same.
#[test]
fn frozen_returned_and_granted_again() {
    let dir = Dir::new();
    let store = dir.open();
    store.grant(&granted(0, 7, &["10.0.0.0/31", "10.0.0.2/31"])).unwrap();
    store.reserve(&v4(1)).unwrap();
    let runs = [run("10.0.0.0/31"), run("10.0.0.2/31")];
    assert_eq!(store.freeze("a", &runs).unwrap(), [runs[1]]);
    drop(store);
    let store = dir.open();
    let frozen = || store.frozen().iter().map(|b| (b.run, b.epoch)).collect::<Vec<_>>();
    assert_eq!(frozen(), [(runs[1], 7)]);
    // The cluster has not taken it yet, then it has, then an old word of it comes.
    assert_eq!(store.grant(&granted(0, 7, &["10.0.0.0/31", "10.0.0.2/31"])).unwrap(), []);
    assert_eq!(frozen(), [(runs[1], 7)]);
    store.grant(&granted(0, 7, &["10.0.0.0/31"])).unwrap();
    assert_eq!(frozen(), []);
    let stale = store.grant(&granted(0, 7, &["10.0.0.0/31", "10.0.0.2/31"])).unwrap();
    assert_eq!(stale, [Refused::Returned { run: runs[1], epoch: 7 }]);
    let mut anew = granted(0, 7, &["10.0.0.0/31", "10.0.0.2/31"]);
    anew.blocks[1].0.epoch = 8;
    assert_eq!(store.grant(&anew).unwrap(), []);
    let got: Vec<String> = (2..5).flat_map(|n| addresses(&store.reserve(&v4(n)).unwrap())).collect();
    assert_eq!(got, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
}

/// A block that the cluster takes without having been given it stays with who has addresses of it; another life of it may come.
#[test]
fn a_block_that_vanishes() {
    let dir = Dir::new();
    let store = dir.open();
    store.grant(&granted(0, 1, &["10.0.0.0/31"])).unwrap();
    store.reserve(&v4(1)).unwrap();
    store.grant(&granted(0, 1, &[])).unwrap();
    assert!(store.reserve(&v4(2)).is_err());
    assert_eq!(addresses(&store.reserve(&v4(1)).unwrap()), ["10.0.0.0"]);
    store.grant(&granted(0, 1, &["10.0.0.0/31"])).unwrap();
    assert_eq!(addresses(&store.reserve(&v4(2)).unwrap()), ["10.0.0.1"]);
    store.grant(&granted(0, 1, &[])).unwrap();
    store.grant(&granted(0, 2, &["10.0.0.0/31"])).unwrap();
    assert!(store.reserve(&v4(3)).is_err(), "both are held yet");
    store.release(&key(1), None).unwrap();
    assert_eq!(addresses(&store.reserve(&v4(3)).unwrap()), ["10.0.0.0"]);
    assert_eq!(store.freeze("a", &[run("10.0.0.0/31")]).unwrap(), []);
}

/// A pool that is a file's and a cluster's is told by its name; one whose file is gone makes way.
#[test]
fn of_a_file_and_of_a_cluster() {
    let dir = Dir::new();
    let store = dir.open();
    let mut spec = Spec::new("a", "net");
    spec.v4.prefix = 24;
    let file = netloom_ipam::Pool { spec, runs: vec![run("10.0.0.0/31")], passive: false };
    store.follow(&file).unwrap();
    store.reserve(&v4(1)).unwrap();
    let of_both = PoolStoreError::OfBoth { pool: "a".to_owned() };
    assert_eq!(store.grant(&granted(0, 1, &["10.0.0.0/31"])).unwrap_err(), of_both);
    store.release(&key(1), None).unwrap();
    assert_eq!(store.grant(&granted(0, 1, &["10.0.0.0/31"])).unwrap(), []);
    assert_eq!(addresses(&store.reserve(&v4(2)).unwrap()).len(), 1);
    assert_eq!(store.follow(&file).unwrap_err(), of_both);
    // The cluster's pool is gone: what it left is the cluster's until it is given back.
    store.end("a").unwrap();
    assert!(store.reserve(&v4(3)).is_err());
    assert_eq!(store.follow(&file).unwrap_err(), of_both);
    store.release(&key(2), None).unwrap();
    assert_eq!(store.freeze("a", &[run("10.0.0.0/31")]).unwrap(), [run("10.0.0.0/31")]);
    let frozen = store.frozen();
    store.forget(&frozen[0]).unwrap();
    store.follow(&file).unwrap();
    assert_eq!(addresses(&store.reserve(&v4(4)).unwrap()), ["10.0.0.0"]);
}

/// Freeze and ADD at once: one of them has the block, never both (tens of thousands of times with `NETLOOM_SOAK`).
#[test]
fn frozen_or_in_use() {
    let dir = Dir::new();
    let store = Arc::new(dir.open());
    let rounds = if std::env::var_os("NETLOOM_SOAK").is_some() { 100_000 } else { 500 };
    let (mut froze, mut used) = (0, 0);
    for round in 0..rounds {
        store.grant(&granted(0, round + 1, &["10.0.0.0/32"])).unwrap();
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let adds = {
            let (store, barrier) = (Arc::clone(&store), Arc::clone(&barrier));
            spawn(move || {
                barrier.wait();
                store.reserve(&v4(1)).is_ok()
            })
        };
        barrier.wait();
        let frozen = !store.freeze("a", &[run("10.0.0.0/32")]).unwrap().is_empty();
        let added = adds.join().unwrap();
        assert_ne!(frozen, added, "round {round}");
        if added {
            used += 1;
            store.release(&key(1), None).unwrap();
            store.freeze("a", &[run("10.0.0.0/32")]).unwrap();
        } else {
            froze += 1;
        }
    }
    assert!(rounds < 1000 || froze > 0 && used > 0, "{froze} {used}: they did not race");
}

/// As many threads at once, each with so many attachments of its own; and how many snapshots there are when they have ended.
fn crowd(dir: &Dir, threads: u32, each: u32, attach: impl Fn(&PoolStore, u32, Ask) + Sync) -> usize {
    let store = dir.open();
    store.grant(&granted(0, 1, &["10.0.0.0/16"])).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, attach) = (&store, &attach);
            scope.spawn(move || {
                for n in thread * each..(thread + 1) * each {
                    // A log is as long as a snapshot needs after a few hundred of them.
                    let pod = Pod { namespace: "ns".to_owned(), name: format!("p{n}"), uid: "u".repeat(4000) };
                    attach(store, n, Ask { pod: Some(pod), ..v4(n) });
                }
            });
        }
    });
    drop(store);
    std::fs::read_dir(&dir.0).unwrap().filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "snapshot")).count()
}

/// Who has just been granted something, and who waits for a snapshot to begin, is in nobody's way: there is enough for all.
#[test]
fn where_there_is_enough_nobody_is_refused_while_a_snapshot_is_written() {
    let dir = Dir::new();
    let snapshots = crowd(&dir, 32, 24, |store, n, ask| {
        store.reserve(&ask).unwrap();
        store.release(&key(n), None).unwrap();
        store.reserve(&v4(n)).unwrap();
    });
    assert_eq!(snapshots, 1);
    assert_eq!(dir.open().look(|all| all.leases().count()), 32 * 24);
}

/// A snapshot has all that was decided, and nothing that is being undone: what was given back meanwhile is nobody's after it.
#[test]
fn a_snapshot_is_of_one_moment() {
    let dir = Dir::new();
    let snapshots = crowd(&dir, 16, 60, |store, n, ask| {
        store.reserve_by(&ask, later()).unwrap();
        store.release(&key(n), None).unwrap().unwrap();
    });
    assert!(snapshots > 0);
    assert_eq!(dir.open().look(|all| all.leases().count()), 0);
}

/// A pool that comes back under its name in another network is another one: at once where nobody has anything of the first, else
/// not before, and nothing is written for it over and over.
#[test]
fn a_pool_of_another_network() {
    let dir = Dir::new();
    let store = dir.open();
    let in_network = |network: &str, epoch| {
        let mut granted = granted(0, epoch, &["10.0.0.0/30"]);
        granted.spec.network = network.to_owned();
        granted
    };
    store.grant(&in_network("one", 1)).unwrap();
    store.reserve(&v4(1)).unwrap();
    let version = store.version();
    let refused = store.grant(&in_network("two", 2)).unwrap();
    assert!(matches!(&refused[..], [Refused::OtherNetwork { is, .. }] if is == "one"), "{refused:?}");
    assert_eq!(store.version(), version, "nothing has changed");
    store.release(&key(1), None).unwrap();
    assert_eq!(store.grant(&in_network("two", 2)).unwrap(), []);
    assert_eq!(store.look(|all| all.network("a").map(str::to_owned)).as_deref(), Some("two"));
    assert_eq!(addresses(&store.reserve(&v4(2)).unwrap()).len(), 1);
    // A host's own pool likewise.
    let mut file = netloom_ipam::Pool { spec: Spec::new("b", "one"), runs: vec![run("10.1.0.0/30")], passive: false };
    let asked = Ask { wants: vec![Want { pool: "b".to_owned(), family: Family::V4, address: None }], ..v4(3) };
    store.follow(&file).unwrap();
    store.reserve(&asked).unwrap();
    file.spec.network = "two".to_owned();
    let error = CniError::from(store.follow(&file).unwrap_err());
    assert!(error.code == Code::INVALID_CONFIG && error.msg.contains("in network \"one\""), "{error}");
    store.release(&asked.key, None).unwrap();
    store.would_grant(Some(&file), &asked).unwrap();
    store.follow(&file).unwrap();
    store.reserve(&asked).unwrap();
}

#[test]
fn who_asks_again_is_told() {
    let dir = Dir::new();
    let store = dir.open();
    store.grant(&granted(0, 1, &["10.0.0.0/30"])).unwrap();
    let first = store.take_by(&v4(1), Instant::now()).unwrap();
    let again = store.take_by(&v4(1), Instant::now()).unwrap();
    assert!(matches!((&first, &again), (pool::Granted::New(one), pool::Granted::Again(two)) if one == two), "{first:?} {again:?}");
}

/// What rests for longer than somebody would wait is refused at once, and what is so is told; what comes free in time is waited for.
#[test]
fn a_requested_address_that_rests() {
    let dir = Dir::new();
    let store = Arc::new(dir.open());
    let certain =
        |n, address: &str| Ask { wants: vec![Want { address: Some(address.parse().unwrap()), ..v4(n).wants[0].clone() }], ..v4(n) };
    let at_once = |ask: &Ask| {
        let (since, by) = (Instant::now(), Instant::now() + Duration::from_secs(600));
        let why = refused(store.reserve_by(ask, by).unwrap_err()).to_string();
        assert!(since.elapsed() < Duration::from_secs(300), "it was waited for: {why}");
        why
    };
    store.grant(&granted(3_600_000, 1, &["10.0.0.0/30"])).unwrap();
    let had = store.reserve(&certain(1, "10.0.0.1")).unwrap();
    // Its holder may give it back at any moment. When he has, it rests.
    let waiting = waits(&store, &certain(2, "10.0.0.1"));
    // Sleeps: that it still waits shows in time alone.
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished(), "who has it may give it back");
    store.release(&had.key, None).unwrap();
    let why = refused(waiting.join().unwrap().unwrap_err()).to_string();
    assert!(why.starts_with("10.0.0.1 is not free: it has just been released; free in 3"), "{why}");
    store.reserve(&certain(3, "10.0.0.2")).unwrap();
    store.conflict(&key(3), "10.0.0.2".parse().unwrap(), "02:00:00:00:00:77").unwrap();
    let quarantined = "10.0.0.2 is not free: another machine uses it, 02:00:00:00:00:77; free in 3";
    let why = at_once(&certain(4, "10.0.0.2"));
    assert!(why.starts_with(quarantined), "{why}");
    // Also where it would wait for something else first.
    store.reserve(&certain(5, "10.0.0.3")).unwrap();
    for first in ["10.0.0.3", "10.0.0.0"] {
        let mut both = certain(6, first);
        both.wants.extend(certain(6, "10.0.0.2").wants);
        let why = at_once(&both);
        assert!(why.starts_with(quarantined), "{first}: {why}");
    }
    // A pod that follows itself need not wait for what it had.
    let pod = Some(Pod { namespace: "ns".to_owned(), name: "web-0".to_owned(), uid: String::new() });
    let own = Ask { pod, ..certain(7, "10.0.0.0") };
    store.reserve(&own).unwrap();
    store.release(&own.key, None).unwrap();
    assert_eq!(addresses(&store.reserve(&Ask { key: key(8), ..own }).unwrap()), ["10.0.0.0"]);
    // Its rest is over in time.
    store.grant(&granted(300, 1, &["10.0.0.0/30"])).unwrap();
    let since = Instant::now();
    store.release(&key(5), None).unwrap();
    assert_eq!(addresses(&store.reserve_by(&certain(9, "10.0.0.3"), later()).unwrap()), ["10.0.0.3"]);
    assert!(since.elapsed() >= Duration::from_millis(299), "it had not rested: {:?}", since.elapsed());
}
