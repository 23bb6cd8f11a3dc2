//! A pool's whole life, by chance: who comes, goes and is collected, pools that change, processes that are killed in the middle
//! of a write, machines that start anew. An oracle that knows sets and one clock says what must never be.
//!
//! `NETLOOM_SEED=N` repeats a run; `NETLOOM_SOAK` makes it a million steps (`make simulate`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use netloom_ipam::{Clock, Pool, PoolStore, PoolStoreError};
use pool::{Ask, Family, Key, Moment, Order, Refused, Run, Spec, Want};

const PODS: u64 = 40;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// The world's time, and when the machine was last started.
#[derive(Default)]
struct Time {
    now: AtomicU64,
    start: AtomicU64,
    boots: AtomicU64,
}

impl Time {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn uptime(&self) -> u64 {
        self.now() - self.start.load(Ordering::Relaxed)
    }

    fn moment(&self) -> Moment {
        Moment { boot: [u8::try_from(self.boots.load(Ordering::Relaxed) % 251).unwrap(); 16], millis: self.uptime() }
    }
}

struct World {
    chance: Chance,
    dir: PathBuf,
    time: Arc<Time>,
    store: Option<PoolStore>,
    /// Each call opens the store for itself, as `netloom-cni` without an agent does.
    alone: bool,
    pool: Pool,
    // --- the oracle: what has been answered ---
    allowed: BTreeSet<IpAddr>,
    cooldown: u64,
    held: BTreeMap<Key, Vec<IpAddr>>,
    /// When it was given back, by the world's time.
    given_back: BTreeMap<IpAddr, u64>,
    /// They have rested as long as the pool said at some moment: a cooldown that becomes longer is for those to come.
    rested: BTreeSet<IpAddr>,
    /// How often something happened that a run must have seen.
    seen: BTreeMap<&'static str, u64>,
}

fn key(n: u64) -> Key {
    Key { network: format!("net{}", n % 2), container: format!("pod{n}"), ifname: "eth0".to_owned() }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn v4(n: u64) -> IpAddr {
    format!("10.0.0.{n}").parse().unwrap()
}

fn v6(n: u64) -> IpAddr {
    format!("fd00::{n:x}").parse().unwrap()
}

impl World {
    fn new(seed: u64, order: Order, dir: PathBuf) -> Self {
        let mut spec = Spec::new("lab", "lab");
        (spec.reuse.cooldown, spec.reuse.order) = (30, order);
        let pool = Pool { spec, runs: Vec::new(), passive: false };
        let (allowed, held, given_back, rested, seen) = Default::default();
        let mut world = World {
            chance: Chance(seed),
            dir,
            time: Arc::default(),
            store: None,
            alone: false,
            pool,
            allowed,
            cooldown: 30,
            held,
            given_back,
            rested,
            seen,
        };
        world.change();
        world.open();
        world
    }

    fn store(&mut self) -> &PoolStore {
        if self.store.is_none() {
            self.open_whole(false);
        }
        self.store.as_ref().unwrap()
    }

    fn clock(&self) -> Clock {
        let time = Arc::clone(&self.time);
        Clock::new(move || time.moment())
    }

    fn open_whole(&mut self, anew: bool) {
        let (dir, clock) = (&self.dir, self.clock());
        let store = if self.alone { PoolStore::open_for_call_by(clock, dir, soon(), anew) } else { PoolStore::open_by(clock, dir, soon()) };
        let store = store.unwrap();
        store.follow(&self.pool).unwrap();
        self.store = Some(store);
    }

    /// A call about one attachment: in the store that is open, or in one that is opened for it, of which a part may do.
    fn call<T>(&mut self, key: &Key, call: impl Fn(&PoolStore) -> Result<T, PoolStoreError>) -> Result<T, PoolStoreError> {
        if !self.alone {
            return call(self.store());
        }
        self.store = None;
        let part = PoolStore::open_part_by(self.clock(), &self.dir, soon(), key).unwrap();
        let anew = part.is_none();
        if let Some(done) = part.and_then(|part| part.follow(&self.pool).and_then(|()| call(&part)).ok()) {
            self.saw("told in short");
            return Ok(done);
        }
        self.open_whole(anew);
        call(self.store())
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn open(&mut self) {
        self.store = None;
        self.alone = self.chance.below(6) == 0;
        self.open_whole(false);
    }

    /// Another file: two runs of IPv4 and one of IPv6, exclusions, a cooldown.
    fn change(&mut self) {
        let first = 1 + self.chance.below(8);
        let second = 20 + self.chance.below(8);
        let ranges = [(v4(first), v4(first + self.chance.below(10))), (v4(second), v4(second + self.chance.below(12)))];
        let six = 1 + self.chance.below(8);
        let mut runs: Vec<Run> = ranges.iter().map(|(a, b)| Run::between(*a, *b).unwrap()).collect();
        runs.push(Run::between(v6(six), v6(six + self.chance.below(24))).unwrap());
        let out = 1 + self.chance.below(40);
        let exclude = Run::between(v4(out), v4(out + self.chance.below(4))).unwrap();
        self.cooldown = [0, 5, 30][usize::try_from(self.chance.below(3)).unwrap()];
        self.allowed =
            (1..64).flat_map(|n| [v4(n), v6(n)]).filter(|a| runs.iter().any(|r| r.contains(*a)) && !exclude.contains(*a)).collect();
        self.pool.runs = runs;
        self.pool.spec.exclude = vec![exclude];
        self.pool.spec.reuse.cooldown = self.cooldown;
    }

    /// Free, whoever looks at the clock.
    fn is_free(&self, address: IpAddr) -> bool {
        let rested = |since: &u64| {
            let in_this_boot = *since >= self.time.start.load(Ordering::Relaxed);
            self.time.now() - since >= self.cooldown && (in_this_boot || self.time.uptime() >= self.cooldown)
        };
        self.allowed.contains(&address)
            && self.given_back.get(&address).is_none_or(rested)
            && !self.held.values().flatten().any(|a| *a == address)
    }

    fn has_free(&self, family: Family) -> bool {
        self.allowed.iter().any(|a| Family::of(*a) == family && self.is_free(*a))
    }

    /// Where the lowest address comes next, none that is free is lower than one that nobody has asked for by name.
    fn is_lowest(&self, wants: &[Want], addresses: &[IpAddr]) {
        for (want, address) in wants.iter().zip(addresses).filter(|(want, _)| want.address.is_none()) {
            let lower = self.allowed.range(..*address).find(|a| Family::of(**a) == want.family && self.is_free(**a));
            assert!(self.pool.spec.reuse.order != Order::Lowest || lower.is_none(), "{address} is given, and {lower:?} is free");
        }
    }

    /// What was granted must have been free.
    fn granted(&mut self, key: &Key, addresses: Vec<IpAddr>) {
        for address in &addresses {
            let other = self.held.iter().find(|(k, all)| *k != key && all.contains(address));
            assert!(other.is_none(), "{address} of {key} is held by {other:?}");
            assert!(self.allowed.contains(address), "{address} of {key} is not of the pool");
            let fresh = self.given_back.remove(address).is_some() && !self.rested.remove(address);
            assert!(!fresh, "{address} of {key} is too fresh");
        }
        self.held.insert(key.clone(), addresses);
    }

    fn freed(&mut self, key: &Key) {
        let now = self.time.now();
        self.given_back.extend(self.held.remove(key).into_iter().flatten().map(|a| (a, now)));
        self.rest();
    }

    fn rest(&mut self) {
        let (now, cooldown) = (self.time.now(), self.cooldown);
        self.rested.extend(self.given_back.iter().filter(|(_, since)| now - *since >= cooldown).map(|(a, _)| *a));
    }

    fn ask(&mut self, key: &Key) -> Ask {
        let families = match self.chance.below(4) {
            0 => vec![Family::V4],
            1 => vec![Family::V6],
            _ => vec![Family::V4, Family::V6],
        };
        let mut want = |family| {
            let n = 1 + self.chance.below(45);
            let address = (self.chance.below(5) == 0).then(|| if family == Family::V4 { v4(n) } else { v6(n) });
            Want { pool: "lab".to_owned(), family, address }
        };
        let wants = families.into_iter().map(&mut want).collect();
        Ask { key: key.clone(), pod: None, claim: None, wants }
    }

    fn add(&mut self, n: u64) {
        let key = key(n);
        let ask = self.ask(&key);
        match self.call(&key, |store| store.reserve(&ask)) {
            Ok(lease) => {
                let addresses: Vec<IpAddr> = lease.addresses.iter().map(|l| l.address).collect();
                match self.held.get(&key) {
                    Some(before) => assert_eq!(*before, addresses, "{key} got something else the second time"),
                    None => {
                        self.is_lowest(&ask.wants, &addresses);
                        self.granted(&key, addresses);
                    }
                }
                self.saw("granted");
            }
            Err(PoolStoreError::Refused(refused)) => match *refused {
                Refused::Short { family, .. } => {
                    assert!(!self.has_free(family) || ask.wants.iter().any(|w| w.address.is_some()), "{key}: {refused}, and one is free");
                    self.saw("short");
                }
                Refused::HoldsOther(_) => assert!(self.held.contains_key(&key)),
                Refused::Taken { address, .. } => assert!(!self.is_free(address), "{key}: {refused}, and it is free"),
                Refused::NotOfThisNode { address, .. } | Refused::Excluded { address, .. } => {
                    assert!(!self.allowed.contains(&address), "{refused}")
                }
                other => panic!("{key}: {other}"),
            },
            Err(e) => panic!("{key}: {e}"),
        }
    }

    fn del(&mut self, n: u64) {
        let key = key(n);
        let lease = self.call(&key, |store| store.release(&key, None)).unwrap();
        assert_eq!(lease.is_some(), self.held.contains_key(&key), "{key}");
        self.freed(&key);
    }

    fn collect(&mut self) {
        let valid: HashSet<Key> = (0..PODS).filter(|_| self.chance.below(3) > 0).map(key).collect();
        self.store().release_others("net0", &valid).unwrap();
        let gone: Vec<Key> = self.held.keys().filter(|k| k.network == "net0" && !valid.contains(k)).cloned().collect();
        gone.iter().for_each(|k| self.freed(k));
    }

    fn start_again(&mut self) {
        self.store = None;
        self.time.boots.fetch_add(1, Ordering::Relaxed);
        self.time.start.store(self.time.now(), Ordering::Relaxed);
        let all: Vec<Key> = self.held.keys().cloned().collect();
        all.iter().for_each(|k| self.freed(k));
        self.open();
        self.saw("boot");
    }

    /// An operation of which nobody hears: what it wrote is on the disk in part.
    fn die(&mut self) {
        let key = key(self.chance.below(PODS));
        let before = last_log(&self.dir);
        let adds = !self.held.contains_key(&key);
        if adds {
            let ask = self.ask(&key);
            drop(self.call(&key, |store| store.reserve(&ask)));
        } else {
            self.call(&key, |store| store.release(&key, None)).unwrap();
        }
        self.store = None;
        self.tear(&before);
        self.open();
        let lease = self.store().lease(&key);
        match (adds, lease) {
            (true, Some(lease)) => self.granted(&key, lease.addresses.iter().map(|l| l.address).collect()),
            (true, None) => {}
            (false, Some(lease)) => assert!(lease.addresses.iter().map(|l| l.address).eq(self.held[&key].iter().copied())),
            (false, None) => self.freed(&key),
        }
        self.saw("killed");
    }

    /// What was written last is there up to a byte, or with pieces missing.
    fn tear(&mut self, (path, before): &(PathBuf, Vec<u8>)) {
        let Ok(mut bytes) = std::fs::read(path) else { return };
        // By pages first: the logs are long, and what was written is short.
        let same = |n: &usize| before.chunks(4096).nth(*n) == bytes.chunks(4096).nth(*n);
        let pages = bytes.len().div_ceil(4096);
        let first = (0..pages).find(|n| !same(n)).unwrap_or(pages) * 4096;
        let changed = |n: &usize| before.get(*n) != bytes.get(*n);
        let Some(first) = (first..bytes.len()).find(changed) else { return };
        let end = bytes.len().min(first + (64 << 10));
        let last = (first..end).rev().find(changed).unwrap() + 1;
        let at = first + usize::try_from(self.chance.below((last - first + 1) as u64)).unwrap();
        match self.chance.below(3) {
            0 => bytes[at..last].fill(0),
            1 => bytes[first..at].fill(0),
            // Room is made before anything is written there: of any length, and with nothing in it.
            _ => {
                bytes[first..last].fill(0);
                let more = bytes.len().saturating_sub(before.len()) as u64;
                bytes.truncate(bytes.len() - usize::try_from(self.chance.below(more + 1)).unwrap());
            }
        }
        std::fs::write(path, bytes).unwrap();
        self.saw("torn");
    }

    fn step(&mut self) {
        match self.chance.below(1000) {
            0..=449 => {
                let n = self.chance.below(PODS);
                self.add(n);
            }
            450..=799 => {
                let n = self.chance.below(PODS);
                self.del(n);
            }
            800..=949 => {
                self.time.now.fetch_add(self.chance.below(12), Ordering::Relaxed);
                self.rest();
            }
            950..=969 => self.collect(),
            970..=984 => {
                self.change();
                let pool = self.pool.clone();
                self.store().follow(&pool).unwrap();
                self.rest();
            }
            985..=986 => self.die(),
            987 => self.open(),
            988 => self.start_again(),
            _ => self.sound(),
        }
    }

    /// What is held is what was answered, and nothing else.
    fn sound(&mut self) {
        let held = self.store().look(|all| {
            let of = |l: &pool::Lease| (l.key.clone(), l.addresses.iter().map(|a| a.address).collect());
            all.leases().map(of).collect::<BTreeMap<Key, Vec<IpAddr>>>()
        });
        assert_eq!(held, self.held);
    }
}

/// The log that is written to, and what it has.
fn last_log(dir: &Path) -> (PathBuf, Vec<u8>) {
    let paths = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let path = paths.filter(|p| p.extension().is_some_and(|e| e == "log")).max().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    (path, bytes)
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn nothing_is_given_twice_and_nothing_is_lost() {
    live(Order::Fifo);
}

#[test]
fn the_lowest_address_is_given_and_none_twice() {
    live(Order::Lowest);
}

fn live(order: Order) {
    let by_clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("NETLOOM_SEED").ok().map_or_else(by_clock, |s| s.parse().expect("NETLOOM_SEED is a number"));
    let steps = if std::env::var("NETLOOM_SOAK").is_ok_and(|n| n != "0") { 1_000_000 } else { 50_000 };
    println!("NETLOOM_SEED={seed} repeats this run");
    // In memory where that is to be had: what a power cut leaves is made by hand.
    let place = Some(PathBuf::from("/dev/shm")).filter(|p| p.is_dir()).unwrap_or_else(std::env::temp_dir);
    let scratch = Scratch(place.join(format!("nl-pool-life-{order:?}-{}", std::process::id())));
    let mut world = World::new(seed, order, scratch.0.clone());
    for _ in 0..steps {
        world.step();
    }
    world.sound();
    for what in ["granted", "short", "boot", "killed", "torn", "told in short"] {
        assert!(world.seen.get(what).is_some_and(|n| *n > 20), "{what}: {:?}", world.seen);
    }
    println!("{:?}", world.seen);
}
