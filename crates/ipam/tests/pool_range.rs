//! All addresses of a range, by many at once: each gets one, all are different, and then there is none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use netloom_ipam::{Pool, PoolStore, PoolStoreError};
use pool::{Ask, Family, Key, Refused, Spec, Want};

/// The range, and how many addresses it has.
const RANGE: (&str, usize) = ("10.80.0.0-10.80.7.255", 2048);

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        // In memory where that is to be had: nobody pulls the plug.
        let place = Some(PathBuf::from("/dev/shm")).filter(|p| p.is_dir()).unwrap_or_else(std::env::temp_dir);
        Dir(place.join(format!("nl-range-{name}-{}", std::process::id())))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

fn pool() -> Pool {
    Pool { spec: Spec::new("a", "net"), runs: vec![RANGE.0.parse().unwrap()], passive: false }
}

fn ask(n: usize) -> Ask {
    let key = Key { network: "net".to_owned(), container: format!("c{n}"), ifname: "eth0".to_owned() };
    Ask { key, pod: None, claim: None, wants: vec![Want { pool: "a".to_owned(), family: Family::V4, address: None }] }
}

fn is_short<T>(done: Result<T, PoolStoreError>) -> bool {
    matches!(done, Err(PoolStoreError::Refused(refused)) if matches!(*refused, Refused::Short { .. }))
}

/// What each of so many gets, `callers` of them at a time.
fn all(callers: usize, one: impl Fn(usize) -> IpAddr + Sync) -> BTreeSet<IpAddr> {
    let share = |caller: usize| (caller..RANGE.1).step_by(callers).map(&one).collect::<Vec<_>>();
    let share = &share;
    thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|caller| scope.spawn(move || share(caller))).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    })
}

#[test]
fn by_the_threads_of_one_process() {
    let dir = Dir::new("threads");
    let store = PoolStore::open(&dir.0, later()).unwrap();
    store.follow(&pool()).unwrap();
    let given = all(64, |n| store.reserve(&ask(n)).unwrap().addresses[0].address);
    assert_eq!(given.len(), RANGE.1);
    assert!(is_short(store.reserve(&ask(RANGE.1))));
    drop(store);
    let again = PoolStore::open(&dir.0, later()).unwrap();
    assert_eq!(given, again.look(|all| all.leases().map(|lease| lease.addresses[0].address).collect()));
}

/// An ADD of `netloom-cni` without an agent. The address, and whether what others have was read for it.
fn alone(dir: &Path, ask: &Ask) -> (Result<IpAddr, PoolStoreError>, bool) {
    let take = |store: &PoolStore| store.follow(&pool()).and_then(|()| store.reserve(ask)).map(|lease| lease.addresses[0].address);
    let part = PoolStore::open_part(dir, later(), &ask.key).unwrap();
    let anew = part.is_none();
    match part.map(|part| take(&part)) {
        Some(Ok(address)) => (Ok(address), false),
        _ => (take(&PoolStore::open_for_call(dir, later(), anew).unwrap()), true),
    }
}

#[test]
fn by_calls_that_open_the_store_each_for_itself() {
    let dir = Dir::new("calls");
    let read = std::sync::atomic::AtomicUsize::new(0);
    let given = all(4, |n| {
        let (address, whole) = alone(&dir.0, &ask(n));
        read.fetch_add(usize::from(whole), std::sync::atomic::Ordering::Relaxed);
        address.unwrap()
    });
    assert_eq!(given.len(), RANGE.1);
    // A few at the beginning, and one for each log.
    let read = read.into_inner();
    assert!((10..64).contains(&read), "all was read {read} times");
    assert!(is_short(alone(&dir.0, &ask(RANGE.1)).0));
    let store = PoolStore::open(&dir.0, later()).unwrap();
    assert_eq!(given, store.look(|all| all.leases().map(|lease| lease.addresses[0].address).collect()));
}
