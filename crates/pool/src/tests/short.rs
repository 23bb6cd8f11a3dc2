//! Who knows what is told in short of pools that hand out the lowest address gets what all of it would give: ranges that overlap, of one
//! network, beside a pool of another order.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

/// What is done; each of it by a process that reads what there is anew.
#[derive(Debug, Clone)]
enum Step {
    Reserve { who: u32, pools: Vec<usize> },
    Release { who: u32 },
    Pass { millis: u64 },
    Quarantine { pool: usize, address: u128 },
    Shorten { enough: u64 },
}

/// The pools: a name, an order, a cooldown, and the addresses.
const POOLS: [(&str, Order, u64, &str); 4] = [
    ("a", Order::Lowest, 0, "10.0.0.0-10.0.0.15"),
    ("b", Order::Lowest, 5, "10.0.0.8-10.0.0.23"),
    ("c", Order::Fifo, 5, "10.0.0.18-10.0.0.31"),
    ("d", Order::Lowest, 0, "fd00::/124"),
];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..40_u32, proptest::collection::vec(0..POOLS.len(), 1..3)).prop_map(|(who, pools)| Step::Reserve { who, pools }),
        8 => (0..40_u32).prop_map(|who| Step::Release { who }),
        3 => (0..8_u64).prop_map(|millis| Step::Pass { millis }),
        1 => (0..POOLS.len(), 0..16_u128).prop_map(|(pool, address)| Step::Quarantine { pool, address }),
        2 => (0..14_u64).prop_map(|enough| Step::Shorten { enough }),
    ]
}

struct World {
    /// What a snapshot has, and what came since.
    events: Vec<Event>,
    since: Vec<Event>,
    /// The snapshot in short, and the leases that it has.
    short: Vec<Event>,
    leases: Vec<Lease>,
    now: Moment,
}

impl World {
    fn new() -> Self {
        let mut events = Vec::new();
        for (name, order, cooldown, text) in POOLS {
            let mut spec = Spec::new(name, "lab");
            (spec.reuse.order, spec.reuse.cooldown) = (order, cooldown);
            spec.exclude = vec![run("10.0.0.3"), run("10.0.0.12-10.0.0.13")];
            events.extend([Event::Pool(spec), Event::Block(block(name, text, 1), State::Active)]);
        }
        World { events, since: Vec::new(), short: Vec::new(), leases: Vec::new(), now: at(0) }
    }

    fn all(&self) -> Allocator {
        let mut all = Allocator::new(7);
        self.events.iter().chain(&self.since).for_each(|event| all.apply(event));
        all
    }

    /// As who opens a part of the journal finds it; `None`: it cannot be told in short.
    fn part(&self, who: u32) -> Option<Allocator> {
        if self.short.is_empty() || !self.since.iter().all(Event::is_brief) {
            return None;
        }
        let mut part = Allocator::new(7);
        self.short.iter().for_each(|event| part.apply(event));
        assert!(part.learns());
        let given_back = |lease: &&Lease| {
            self.since
                .iter()
                .any(|e| matches!(e, Event::Released { key, generation, .. } if *key == lease.key && *generation == lease.generation))
        };
        self.leases.iter().filter(|lease| lease.key == key(who) || given_back(lease)).for_each(|lease| part.learn(lease));
        self.since.iter().for_each(|event| part.apply(event));
        Some(part)
    }

    /// Whether it was granted by what is told in short.
    fn reserve(&mut self, who: u32, pools: &[usize]) -> bool {
        let want = |pool: &usize| {
            let (name, _, _, text) = POOLS[*pool];
            Want { pool: name.to_owned(), family: run(text).family(), address: None }
        };
        let ask = ask(who, &pools.iter().map(want).collect::<Vec<_>>());
        let granted = self.all().reserve(&ask, &self.now);
        let mut told = false;
        if let Some(mut part) = self.part(who) {
            assert_eq!(part.lease(&key(who)), self.all().lease(&key(who)));
            if let (true, Ok(short)) = (part.answers_in_short(&ask), part.reserve(&ask, &self.now)) {
                told = matches!(short, Granted::New(_));
                // Of a line of free addresses any may come next.
                let certain = |granted: Granted| {
                    let mut lease = granted.lease();
                    lease.addresses.retain(|leased| leased.pool != "c");
                    lease
                };
                assert_eq!(Ok(certain(short)), granted.clone().map(certain), "of {ask:?}");
            }
        }
        if let Ok(Granted::New(lease)) = granted {
            self.since.push(Event::Leased(lease));
        }
        told
    }

    fn step(&mut self, step: &Step) -> bool {
        match *step {
            Step::Reserve { who, ref pools } => return self.reserve(who, pools),
            Step::Release { who } => self.since.extend(self.all().release(&key(who), None, &self.now)),
            Step::Pass { millis } => self.now.millis += millis,
            Step::Quarantine { pool, address } => {
                let (name, _, _, text) = POOLS[pool];
                let address = run(text).family().address(run(text).numbers().0 + address % run(text).count());
                let taken = Unavailable::Quarantined { since: self.now, millis: 9, by: "x".to_owned() };
                self.since.push(Event::Quarantined { pool: name.to_owned(), address, taken });
            }
            Step::Shorten { enough } => {
                let all = self.all();
                (self.events, self.since, self.short) = (all.events(), Vec::new(), all.brief(enough));
                self.leases = all.leases().cloned().collect();
            }
        }
        false
    }
}

#[test]
fn the_lowest_is_the_lowest_of_all() {
    let told = Cell::new(0_u32);
    let cases = ProptestConfig::with_cases(600);
    let done = TestRunner::new(cases).run(&proptest::collection::vec(step(), 1..160), |steps| {
        let mut world = World::new();
        for step in &steps {
            told.set(told.get() + u32::from(world.step(step)));
        }
        Ok(())
    });
    done.unwrap();
    assert!(told.get() > 2000, "told in short {} times", told.get());
}

/// What nobody is told of is not handed out, though it is free.
#[test]
fn where_too_much_rests_nothing_is_told() {
    let mut all = with(|s| (s.reuse.order, s.reuse.cooldown) = (Order::Lowest, 30), &["10.0.0.0/28"]);
    (0..6).for_each(|n| drop(one(&mut all, n, 0)));
    (0..4).for_each(|n| drop(all.release(&key(n), None, &at(1))));
    for (enough, gets) in [(3, None), (4, Some("10.0.0.6"))] {
        let mut part = Allocator::new(1);
        all.brief(enough).iter().for_each(|event| part.apply(event));
        assert_eq!(get(&mut part, &any4(9), 2).ok(), gets.map(|address| vec![address.to_owned()]), "{enough}");
        // Their rest is over.
        assert_eq!(get(&mut part, &any4(10), 40).ok(), gets.map(|_| vec!["10.0.0.0".to_owned()]), "{enough}");
    }
}

/// One that was given back may be higher than others that are free, and not told.
#[test]
fn behind_what_is_told_nothing_is_handed_out() {
    let mut all = with(|s| s.reuse.order = Order::Lowest, &["10.0.0.0/28"]);
    (0..9).for_each(|n| drop(one(&mut all, n, 0)));
    [1, 3, 5].iter().for_each(|n| drop(all.release(&key(*n), None, &at(1))));
    assert_eq!(one(&mut all, 20, 1), "10.0.0.1");
    let mut part = Allocator::new(1);
    all.brief(1).iter().for_each(|event| part.apply(event));
    for n in [2, 7] {
        part.learn(all.lease(&key(n)).unwrap());
        part.apply(&all.release(&key(n), None, &at(2)).unwrap());
    }
    assert_eq!([21, 22].map(|n| one(&mut part, n, 3)), ["10.0.0.2", "10.0.0.3"]);
    assert!(get(&mut part, &any4(23), 3).is_err());
    assert_eq!([21, 22, 23].map(|n| one(&mut all, n, 3)), ["10.0.0.2", "10.0.0.3", "10.0.0.5"]);
}
