//! Anything in any order: a model that knows sets only says what must never be.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// What is done.
#[derive(Debug, Clone)]
enum Step {
    Reserve { who: u32, wants: Vec<(bool, Option<u8>)> },
    Release { who: u32 },
    Undo { who: u32 },
    Pass { millis: u64 },
    Freeze { block: u8 },
    Return { block: u8 },
    Grant { block: u8 },
    Withdraw { block: u8 },
    Exclude { first: u8, count: u8 },
    Order { order: u8 },
    Quarantine { address: u8 },
    Boot,
    Shorten { enough: u64 },
}

const COOLDOWN: u64 = 30;

fn step() -> impl Strategy<Value = Step> {
    let wants = proptest::collection::vec((any::<bool>(), proptest::option::weighted(0.2, 0..32_u8)), 1..4);
    prop_oneof![
        8 => (0..24_u32, wants).prop_map(|(who, wants)| Step::Reserve { who, wants }),
        6 => (0..24_u32).prop_map(|who| Step::Release { who }),
        1 => (0..24_u32).prop_map(|who| Step::Undo { who }),
        4 => (0..40_u64).prop_map(|millis| Step::Pass { millis }),
        2 => (0..4_u8).prop_map(|block| Step::Freeze { block }),
        2 => (0..4_u8).prop_map(|block| Step::Return { block }),
        2 => (0..4_u8).prop_map(|block| Step::Grant { block }),
        1 => (0..4_u8).prop_map(|block| Step::Withdraw { block }),
        1 => (0..32_u8, 0..8_u8).prop_map(|(first, count)| Step::Exclude { first, count }),
        1 => (0..3_u8).prop_map(|order| Step::Order { order }),
        1 => (0..32_u8).prop_map(|address| Step::Quarantine { address }),
        1 => Just(Step::Boot),
        2 => (0..12_u64).prop_map(|enough| Step::Shorten { enough }),
    ]
}

/// Four blocks of eight IPv4 addresses, and one of 16 IPv6 addresses.
fn run_of(block: u8) -> Run {
    Run::network(ip(&format!("10.0.0.{}", block * 8)), 29)
}

fn address_of(v4: bool, n: u8) -> IpAddr {
    ip(&if v4 { format!("10.0.0.{n}") } else { format!("fd00::{:x}", n % 16) })
}

struct World {
    all: Allocator,
    events: Vec<Event>,
    spec: Spec,
    now: Moment,
    epoch: u64,
    /// Who has what.
    held: BTreeMap<u32, Vec<IpAddr>>,
    /// When it was given back.
    given_back: BTreeMap<IpAddr, Moment>,
    frozen: BTreeSet<Run>,
    /// The state in short, who held what then, and how many events there were.
    short: (Vec<Event>, Vec<Lease>, usize),
}

impl World {
    fn new() -> Self {
        let mut spec = Spec::new("a", "lab");
        spec.reuse.cooldown = COOLDOWN;
        let all = Allocator::new(7);
        let (held, given_back) = (BTreeMap::new(), BTreeMap::new());
        let mut world = World {
            all,
            events: Vec::new(),
            spec,
            now: at(0),
            epoch: 1,
            held,
            given_back,
            frozen: BTreeSet::new(),
            short: Default::default(),
        };
        world.apply(Event::Pool(world.spec.clone()));
        for text in ["10.0.0.0/29", "10.0.0.8/29", "fd00::/124"] {
            world.apply(Event::Block(block("a", text, 1), State::Active));
        }
        world
    }

    fn apply(&mut self, event: Event) {
        self.all.apply(&event);
        self.events.push(event);
    }

    fn reserve(&mut self, who: u32, wants: &[(bool, Option<u8>)]) {
        let want = |(v4, n): &(bool, Option<u8>)| Want {
            pool: "a".to_owned(),
            family: if *v4 { Family::V4 } else { Family::V6 },
            address: n.map(|n| address_of(*v4, n)),
        };
        let wants: Vec<Want> = wants.iter().map(want).collect();
        let taken = self.all.all_taken("lab").count();
        self.in_short(who, &wants);
        match self.all.reserve(&ask(who, &wants), &self.now) {
            Ok(Granted::Again(lease)) => assert_eq!(self.held.get(&who), Some(&addresses(&lease))),
            Ok(Granted::New(lease)) => {
                self.granted(&lease, &wants);
                assert_eq!(self.held.insert(who, addresses(&lease)), None);
                self.events.push(Event::Leased(lease));
            }
            // What has cooled down meanwhile may be known no more.
            Err(_) => assert!(self.all.all_taken("lab").count() <= taken),
        }
    }

    /// Who knows of one attachment what is told in short grants nothing that all of it would not.
    fn in_short(&self, who: u32, wants: &[Want]) {
        let (brief, held, known) = &self.short;
        let since = self.events.get(*known..).unwrap_or_default();
        if brief.is_empty() || !since.iter().all(Event::is_brief) {
            return;
        }
        let mut short = Allocator::new(7);
        let lease = held.iter().find(|lease| lease.key == key(who)).cloned().map(Event::Leased);
        brief.iter().chain(&lease).chain(since).for_each(|event| short.apply(event));
        assert_eq!(short.lease(&key(who)), self.all.lease(&key(who)));
        let ask = ask(who, wants);
        if let (true, Ok(granted)) = (short.answers_in_short(&ask), short.reserve(&ask, &self.now)) {
            match granted {
                Granted::Again(lease) => assert_eq!(Some(&lease), self.all.lease(&key(who))),
                Granted::New(lease) => {
                    self.granted(&lease, wants);
                    assert!(self.events.iter().all(|e| !matches!(e, Event::Leased(l) if l.generation >= lease.generation)));
                    let pick = |leased: &Leased| Want { address: Some(leased.address), ..want(Family::of(leased.address), None) };
                    let same: Vec<Want> = lease.addresses.iter().map(pick).collect();
                    assert_eq!(self.all.clone().reserve(&self::ask(who, &same), &self.now), Ok(Granted::New(lease)));
                }
            }
        }
    }

    fn granted(&self, lease: &Lease, wants: &[Want]) {
        let others: BTreeSet<&IpAddr> = self.held.values().flatten().collect();
        let mut seen = BTreeSet::new();
        assert_eq!(lease.addresses.len(), wants.len());
        for (leased, want) in lease.addresses.iter().zip(wants) {
            let address = leased.address;
            assert!(!others.contains(&address) && seen.insert(address), "{address} is given twice");
            assert!(want.address.is_none_or(|a| a == address) && Family::of(address) == want.family);
            assert!(!self.spec.exclude.iter().any(|e| e.contains(address)), "{address} is excluded");
            assert!(!self.frozen.iter().any(|f| f.contains(address)), "{address} is frozen");
            let since = self.given_back.get(&address);
            assert!(since.is_none_or(|since| since.elapsed(&self.now) >= COOLDOWN), "{address} is too fresh");
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Reserve { who, ref wants } => self.reserve(who, wants),
            Step::Release { who } => {
                let event = self.all.release(&key(who), None, &self.now);
                let held = self.held.remove(&who);
                assert_eq!(event.is_some(), held.is_some());
                self.events.extend(event);
                // A block that is not there any more is not remembered, nor are its addresses.
                let known = |a: &IpAddr| self.all.taken("lab", *a).is_some();
                self.given_back.extend(held.into_iter().flatten().filter(known).map(|address| (address, self.now)));
            }
            Step::Undo { who } => {
                let Some(lease) = self.all.lease(&key(who)).cloned() else { return };
                self.all.undo(&key(who), lease.generation);
                self.held.remove(&who);
                // It never was: nor is it in the journal.
                self.events.retain(|e| *e != Event::Leased(lease.clone()));
                self.events.push(Event::Generation(lease.generation + 1));
                self.short = Default::default();
            }
            Step::Pass { millis } => self.now.millis += millis,
            Step::Freeze { block } => {
                let run = run_of(block);
                if let Ok(event) = self.all.freeze("a", run, &self.now) {
                    let busy = self.held.values().flatten().any(|a| run.contains(*a));
                    assert!(!busy, "{run} was frozen while in use");
                    self.frozen.insert(run);
                    self.events.push(event);
                }
            }
            Step::Return { block } => {
                let run = run_of(block);
                let epoch =
                    self.all.blocks("a", Family::V4).find(|(b, state)| b.run == run && *state == State::Frozen).map(|(b, _)| b.epoch);
                if let Some(epoch) = epoch {
                    self.apply(Event::BlockGone { pool: "a".to_owned(), run, epoch });
                    self.given_back.retain(|a, _| !run.contains(*a));
                }
            }
            Step::Grant { block: n } => {
                let run = run_of(n);
                self.epoch += 1;
                let new = Block { epoch: self.epoch, run, ..block("a", "10.0.0.0/29", 0) };
                if self.all.admit(&new).is_ok() {
                    self.frozen.remove(&run);
                    self.apply(Event::Block(new, State::Active));
                }
            }
            Step::Withdraw { block } => {
                let run = run_of(block);
                let epoch = self.all.blocks("a", Family::V4).find(|(b, _)| b.run == run).map(|(b, _)| b.epoch);
                if let Some(epoch) = epoch {
                    self.apply(Event::Withdrawn { pool: "a".to_owned(), run, epoch });
                }
            }
            Step::Exclude { first, count } => {
                self.spec.exclude =
                    Run::between(address_of(true, first), address_of(true, first.saturating_add(count))).into_iter().collect();
                self.apply(Event::Pool(self.spec.clone()));
            }
            Step::Order { order } => {
                self.spec.reuse.order = [Order::Fifo, Order::Lowest, Order::Random][usize::from(order)];
                self.apply(Event::Pool(self.spec.clone()));
            }
            Step::Quarantine { address } => {
                let taken = Unavailable::Quarantined { since: self.now, millis: COOLDOWN, by: "x".to_owned() };
                self.apply(Event::Quarantined { pool: "a".to_owned(), address: address_of(true, address), taken });
            }
            Step::Shorten { enough } => {
                self.short = (self.all.brief(enough), self.all.leases().cloned().collect(), self.events.len());
            }
            Step::Boot => {
                self.given_back.retain(|_, since| since.elapsed(&self.now) < COOLDOWN);
                self.now = Moment { boot: [self.now.boot[0] + 1; 16], millis: 0 };
            }
        }
    }

    fn sound(&self) {
        let held: BTreeMap<IpAddr, Key> = self.held.iter().flat_map(|(who, all)| all.iter().map(|a| (*a, key(*who)))).collect();
        let found = self.all.all_taken("lab").filter_map(|(a, t)| if let Unavailable::Held(k) = t { Some((a, k.clone())) } else { None });
        assert_eq!(found.collect::<BTreeMap<_, _>>(), held);
        let count = |v4: bool| held.keys().filter(|a| a.is_ipv4() == v4).count() as u64;
        assert_eq!([true, false].map(count), Family::ALL.map(|f| self.all.usage("a", f).held));
    }

    /// The journal's events, and a snapshot's, make the same holders, and let nothing be used too soon.
    fn comes_back(&self) {
        let (bytes, named) = (|event: &Event| event.encode(), self.all.records(Key::clone));
        assert_eq!(self.all.size(), named.len());
        assert!(self.all.events().iter().map(bytes).eq(named.iter().map(|(_, record)| record.clone())));
        assert_eq!(named.iter().filter(|(name, _)| name.is_some()).count(), self.held.len());
        for events in [self.events.clone(), self.all.events()] {
            let mut again = Allocator::new(7);
            for event in events {
                let bytes = event.encode();
                assert_eq!(Event::decode(&bytes).as_ref(), Ok(&event));
                again.take_in(event);
            }
            let held = |all: &Allocator| all.leases().map(|l| (l.key.clone(), l.clone())).collect::<BTreeMap<_, _>>();
            assert_eq!(held(&again), held(&self.all));
            let blocks = |all: &Allocator| Family::ALL.map(|f| all.blocks("a", f).map(|(b, s)| (b.clone(), s)).collect::<Vec<_>>());
            assert_eq!(blocks(&again), blocks(&self.all));
            // What may not be used yet is known; what may be again need not be.
            for (address, taken) in self.all.all_taken("lab").filter(|(_, t)| t.frees_in(COOLDOWN, &self.now) != Some(0)) {
                assert_eq!(again.taken("lab", address), Some(taken));
            }
        }
    }
}

fn addresses(lease: &Lease) -> Vec<IpAddr> {
    lease.addresses.iter().map(|l| l.address).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_given_twice(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.sound();
        }
        world.comes_back();
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(event) = Event::decode(&bytes) {
            assert_eq!(Event::decode(&event.encode()), Ok(event));
        }
    }
}
