//! A node, an operator and pods that do anything, in any order, with restarts and writes that are lost; and what must always be so,
//! judged by a model that only keeps lists.

use std::collections::{BTreeMap, BTreeSet};

use api::{CiliumAddress, Release};
use serde_json::Value;

use super::*;

const STEPS: u64 = 10_000;
/// The addresses that there are.
const ALL: u64 = 8;

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
        let promised = |address: &String| matches!(self.object.release.get(address), Some(Release::ReadyForRelease | Release::Released));
        let broken = self.held.values().find(|(_, address)| promised(address));
        assert_eq!(broken, None, "{:?}", self.object.release);
    }

    fn random(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    fn address(&mut self) -> String {
        format!("10.0.0.{}", self.random(ALL))
    }

    fn pod(&mut self) -> String {
        format!("p{}", self.random(4))
    }

    /// The operator does something that it may.
    fn operator(&mut self) {
        self.version += 1;
        let address = self.address();
        let state = self.object.release.get(&address).cloned();
        match (self.random(8), state) {
            (0..=2, None) => {
                let owner = if self.random(4) == 0 { format!("ns/{}", self.pod()) } else { String::new() };
                self.object.pool.insert(address, CiliumAddress { owner, ..CiliumAddress::default() });
            }
            // Whoever holds it, without asking.
            (3, None) => drop(self.object.pool.remove(&address)),
            (4 | 5, None) => drop(self.object.release.insert(address, Release::MarkedForRelease)),
            (6, Some(Release::MarkedForRelease)) | (_, Some(Release::DoNotRelease)) => drop(self.object.release.remove(&address)),
            // It has thought better of it.
            (7, Some(Release::ReadyForRelease)) => drop(self.object.release.remove(&address)),
            (_, Some(Release::ReadyForRelease)) => drop(self.object.release.insert(address, Release::Released)),
            (_, Some(Release::Released)) => drop(self.object.pool.remove(&address)),
            _ => {}
        }
    }

    /// The agent looks at the object, and may come to write what it has to say, or not.
    fn agent(&mut self, write: Write) {
        let offer = Offer::read(&self.object.pool);
        let mut release = self.object.release.clone();
        self.node.follow(&offer, &release);
        // Pods come at the worst moment.
        (0..self.random(4)).for_each(|_| self.add());
        self.node.answer(&offer, &mut release);
        match write {
            Write::Lost => {}
            Write::Late => self.late = self.late.take().or(Some((self.version, release))),
            Write::Done => {
                self.version += 1;
                self.object.release = release;
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
            let leaving = |address: &str| matches!(self.object.release.get(address), Some(Release::ReadyForRelease | Release::Released));
            let mine = |(k, a): &(&String, &CiliumAddress)| a.owner == owner && Some(k.as_str()) != router.as_deref();
            let pinned: Vec<&String> = self.object.pool.iter().filter(mine).map(|(k, _)| k).filter(|k| !leaving(k)).collect();
            let open = self.object.pool.iter().filter(|(_, a)| a.owner.is_empty()).map(|(k, _)| k);
            let mut may: Vec<&String> = if pinned.is_empty() { open.filter(|k| !leaving(k)).collect() } else { pinned };
            may.retain(|address| !busy(address));
            let got = self.node.get(u32::MAX, pod);
            match &got {
                Ok(address) => assert!(may.contains(&address), "{pod}: {address} of {may:?}, {:?}", self.object),
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
