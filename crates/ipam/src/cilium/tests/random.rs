//! A node, an operator and pods that do anything, in any order, with restarts and writes that are lost; and what must always be so,
//! judged by a model that only keeps lists. The operator cuts the same addresses now so and now so, whoever has some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use api::{CiliumAddress, Release};
use serde_json::Value;

use super::*;

const STEPS: u64 = 10_000;
/// The addresses that there are.
const ALL: u64 = 8;
/// Other cuts of them than one by one.
const CUTS: [&str; 8] = [
    "10.0.0.0/29",
    "10.0.0.0/30",
    "10.0.0.4/30",
    "10.0.0.2/31",
    "10.0.0.0-10.0.0.7",
    "10.0.0.1-10.0.0.4",
    "10.0.0.2-10.0.0.6",
    "10.0.0.5-10.0.0.6",
];

/// What everybody can see: the object.
#[derive(Debug, Clone, Default)]
struct Object {
    pool: BTreeMap<String, CiliumAddress>,
    release: BTreeMap<String, Release>,
}

struct World {
    node: Node,
    object: Object,
    /// Counts the object's changes.
    version: u64,
    /// A write whose answer did not come: it may arrive yet, if the object is still as it was.
    late: Option<(u64, BTreeMap<String, Release>)>,
    /// The pods' attachments by number: which pod, which address.
    held: BTreeMap<u32, (String, String)>,
    next: u32,
    chance: u64,
}

/// What becomes of a write.
enum Write {
    Done,
    Lost,
    Late,
}

impl Object {
    /// Whether it was promised, under whatever key.
    fn is_promised(&self, address: &str) -> bool {
        let far = self.release.iter().filter(|(_, release)| matches!(release, Release::ReadyForRelease | Release::Released));
        far.map(|(key, _)| numbers(key)).any(|run| run.contains(numbers(address).start()))
    }

    /// What may be handed out, each with its owner: the smallest key that has an address says whose it is.
    fn offered(&self) -> Vec<(String, &str)> {
        let mut offered = Vec::new();
        for number in 0..ALL {
            let having = self.pool.iter().filter(|(key, _)| numbers(key).contains(&number));
            let smallest = having.min_by_key(|(key, of)| (numbers(key).count(), *numbers(key).start(), of.owner.is_empty()));
            let address = format!("10.0.0.{number}");
            let is_edge = |key: &String| {
                let run = numbers(key);
                key.contains('/') && run.clone().count() > 2 && [run.start(), run.end()].contains(&&number)
            };
            let is_edge = !self.pool.contains_key(&address) && self.pool.keys().any(is_edge);
            if let Some((_, of)) = smallest.filter(|_| !is_edge && !self.is_promised(&address)) {
                offered.push((address, of.owner.as_str()));
            }
        }
        offered
    }
}

/// The last numbers of a key's addresses.
fn numbers(key: &str) -> RangeInclusive<u64> {
    let last = |address: &str| address.rsplit('.').next().unwrap().parse::<u64>().unwrap();
    match (key.split_once('/'), key.split_once('-')) {
        (Some((first, prefix)), _) => last(first)..=last(first) + (1 << (32 - prefix.parse::<u32>().unwrap())) - 1,
        (_, Some((first, end))) => last(first)..=last(end),
        _ => last(key)..=last(key),
    }
}

impl World {
    fn arrive(&mut self) {
        if let Some((version, release)) = self.late.take()
            && version == self.version
        {
            self.version += 1;
            self.object.release = release;
        }
    }

    /// What is promised nobody has.
    fn promises_are_kept(&self) {
        let broken = self.held.values().find(|(_, address)| self.object.is_promised(address));
        assert_eq!(broken, None, "{:?}", self.object.release);
    }

    fn random(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    /// A key of the pool.
    fn key(&mut self) -> String {
        match self.random(3) {
            0 => CUTS[self.random(CUTS.len() as u64) as usize].to_owned(),
            _ => format!("10.0.0.{}", self.random(ALL)),
        }
    }

    fn pod(&mut self) -> String {
        format!("p{}", self.random(4))
    }

    /// The operator does something that it may.
    fn operator(&mut self) {
        self.version += 1;
        let key = self.key();
        let state = self.object.release.get(&key).cloned();
        match (self.random(8), state) {
            (0..=2, None) => {
                let owner = if self.random(4) == 0 { format!("ns/{}", self.pod()) } else { String::new() };
                self.object.pool.insert(key, CiliumAddress { owner, ..CiliumAddress::default() });
            }
            // Whoever holds it, without asking.
            (3, None) => drop(self.object.pool.remove(&key)),
            (4 | 5, None) => drop(self.object.release.insert(key, Release::MarkedForRelease)),
            (6, Some(Release::MarkedForRelease)) | (_, Some(Release::DoNotRelease)) => drop(self.object.release.remove(&key)),
            // It has thought better of it.
            (7, Some(Release::ReadyForRelease)) => drop(self.object.release.remove(&key)),
            (_, Some(Release::ReadyForRelease)) => drop(self.object.release.insert(key, Release::Released)),
            (_, Some(Release::Released)) => drop(self.object.pool.remove(&key)),
            _ => {}
        }
    }

    /// The agent looks at the object, and may come to write what it has to say, or not.
    fn agent(&mut self, write: Write) {
        let offer = Offer::read(&self.object.pool);
        self.node.follow(&offer, &self.object.release);
        // Pods come at the worst moment.
        (0..self.random(4)).for_each(|_| self.add());
        let release = self.node.say(&offer, &self.object.release);
        match write {
            Write::Lost => {}
            Write::Late => self.late = self.late.take().or(Some((self.version, release))),
            Write::Done => {
                self.version += 1;
                self.object.release = release;
                self.node.follow(&offer, &self.object.release);
            }
        }
        self.everything_is_told(&offer);
    }

    fn add(&mut self) {
        let (n, pod) = (self.next, self.pod());
        self.next += 1;
        let Ok(address) = self.node.get(n, &pod) else { return };
        assert!(self.held.values().all(|(_, held)| *held != address), "{address} twice");
        self.held.insert(n, (pod, address));
    }

    fn del(&mut self) {
        let chosen = self.random(self.held.len().max(1) as u64) as usize;
        let Some(n) = self.held.keys().nth(chosen).copied() else { return };
        assert!(self.node.put_back(n));
        self.held.remove(&n);
    }

    /// What is told is what is held.
    fn everything_is_told(&self, offer: &Offer) {
        let Value::Object(told) = self.node.used(offer) else { panic!() };
        let pods: BTreeSet<(String, String)> = self.held.values().map(|(pod, address)| (address.clone(), format!("ns/{pod}"))).collect();
        let told: BTreeSet<(String, String)> =
            told.into_iter().map(|(address, by)| (address, by["owner"].as_str().unwrap().to_owned())).collect();
        let routers = told.iter().filter(|(_, owner)| owner == "router").count();
        assert!(routers <= 1, "{told:?}");
        assert_eq!(told.into_iter().filter(|(_, owner)| owner != "router").collect::<BTreeSet<_>>(), pods);
    }

    /// When everything is done that is to do, an ADD gets exactly what it may.
    fn settled(&mut self) {
        self.agent(Write::Done);
        self.agent(Write::Done);
        let router = self.node.look(|all| router(all, Family::V4)).map(|a| a.to_string());
        for pod in ["p0", "p9"] {
            let owner = format!("ns/{pod}");
            let busy = |address: &str| Some(address) == router.as_deref() || self.held.values().any(|(_, held)| held == address);
            let there = self.object.offered();
            let of = |owner: &str| {
                let own = there.iter().filter(|(address, by)| *by == owner && Some(address.as_str()) != router.as_deref());
                own.map(|(address, _)| address.clone()).collect::<Vec<String>>()
            };
            let mut may = if of(&owner).is_empty() { of("") } else { of(&owner) };
            may.retain(|address| !busy(address));
            let got = self.node.get(u32::MAX, pod);
            match &got {
                Ok(address) => assert!(may.contains(address), "{pod}: {address} of {may:?}, {:?}", self.object),
                Err(e) => assert!(may.is_empty(), "{pod}: {e}: {may:?}, {:?}", self.object),
            }
            self.node.put_back(u32::MAX);
        }
    }
}

#[test]
fn anything_in_any_order() {
    for seed in 0..2 {
        let node = Node::new();
        let mut world = World { node, object: Object::default(), version: 0, late: None, held: BTreeMap::new(), next: 0, chance: seed };
        for step in 0..STEPS / 2 {
            match world.random(12) {
                0..=3 => world.operator(),
                4..=6 => {
                    let write = match world.random(8) {
                        0 | 1 => Write::Lost,
                        2 | 3 => Write::Late,
                        _ => Write::Done,
                    };
                    let again = matches!(write, Write::Late) && world.random(2) == 0;
                    world.agent(write);
                    if again {
                        world.agent(Write::Lost);
                        world.arrive();
                    }
                }
                // The node fills up, and empties.
                what @ 7..=10 if (what == 10) != (step / 32 % 2 == 0) => world.add(),
                7..=10 => world.del(),
                _ if step % 8 == 0 => world.node.restart(),
                _ if step % 8 == 1 => world.arrive(),
                _ => world.settled(),
            }
            if world.random(4) == 0 {
                world.arrive();
            }
            world.promises_are_kept();
        }
    }
}
