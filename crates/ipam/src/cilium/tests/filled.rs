//! Our operators and our agents, with each other: two nodes, few addresses, pods that come and go, operators that are late.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{CiliumAddress, CiliumNode};
use ledger::{CiliumNodeSeen, NodeSeen, PoolSeen, ShardSeen, Write};

use super::*;

const STEPS: u64 = 4_000;
const ADDRESSES: u8 = 24;
/// So many states of the past an operator may be behind.
const BEHIND: usize = 60;

struct Side {
    name: &'static str,
    node: Node,
    object: CiliumNode,
    pods: Vec<u32>,
}

struct World {
    sides: [Side; 2],
    shards: BTreeMap<String, ShardSeen>,
    /// What objects and shards were.
    past: Vec<ledger::Snapshot>,
    /// Writes of operators that have stopped for a while.
    late: Vec<Write>,
    version: u64,
    next: u32,
    chance: u64,
}

impl Side {
    fn new(name: &'static str) -> Self {
        let mut object = CiliumNode::named(name);
        object.spec.ipam.pre_allocate = 3;
        object.spec.ipam.max_above_watermark = 1;
        object.spec.ipam.pool = Some(BTreeMap::new());
        Side { name, node: Node::new(), object, pods: Vec::new() }
    }

    fn version(&self) -> String {
        self.object.meta("resourceVersion").to_owned()
    }

    fn offer(&self) -> Offer {
        Offer::read(self.object.spec.ipam.pool.as_ref().unwrap())
    }

    fn seen(&self) -> CiliumNodeSeen {
        let (spec, status) = (self.object.spec.ipam.clone(), self.object.status.ipam.clone());
        let node_uid = self.object.meta("owner").to_owned();
        CiliumNodeSeen { version: self.version(), uid: self.name.to_owned(), node_uid, ..CiliumNodeSeen::read(spec, status) }
    }

    /// What the ledger has to have as this node's.
    fn has(&self) -> BTreeSet<IpAddr> {
        let held = self.node.look(|all| used(&Offer::default(), &BTreeMap::new(), all));
        let pool = self.object.spec.ipam.pool.as_ref().unwrap().keys().cloned();
        pool.chain(held.into_keys()).map(|text| text.parse().unwrap()).collect()
    }
}

impl World {
    fn new() -> Self {
        let spec = json!({"ipv4": {"entries": [{"range": format!("10.0.0.1-10.0.0.{ADDRESSES}")}], "blockPrefix": 30}});
        let pool = PoolSeen {
            version: "1".to_owned(),
            generation: 1,
            created: String::new(),
            deleting: false,
            finalizer: true,
            spec: Ok(serde_json::from_value(spec).unwrap()),
            status: None,
        };
        let node = |name: &str| (name.to_owned(), NodeSeen { uid: format!("uid-{name}"), labels: BTreeMap::new() });
        let mut first =
            ledger::Snapshot { pools: [("p".to_owned(), pool)].into(), nodes: ["a", "b"].map(node).into(), ..ledger::Snapshot::default() };
        (first.cilium.pool, first.cilium.complete) = ("p".to_owned(), true);
        let sides = [Side::new("a"), Side::new("b")];
        World { sides, shards: BTreeMap::new(), past: vec![first], late: Vec::new(), version: 0, next: 0, chance: 7 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    /// An object is another one.
    fn touch(&mut self, at: usize) {
        self.version += 1;
        self.sides[at].object.metadata.insert("resourceVersion".to_owned(), self.version.to_string().into());
    }

    /// What there is to be seen.
    fn now(&self) -> ledger::Snapshot {
        let mut now = self.past[0].clone();
        now.cilium.nodes = self.sides.iter().map(|side| (side.name.to_owned(), side.seen())).collect();
        now.shards = self.shards.clone();
        now
    }

    /// An operator looks, and writes, or will have written.
    fn operator(&mut self, settled: bool) {
        let mut view = self.now();
        let behind = |world: &mut Self| {
            let n = world.random(BEHIND as u64) as usize;
            world.past.len().saturating_sub(n).checked_sub(1)
        };
        if self.random(3) == 0
            && let Some(at) = behind(self)
        {
            view.cilium.nodes = self.past[at].cilium.nodes.clone();
        }
        let mut old_shards = false;
        if self.random(3) == 0
            && let Some(at) = behind(self)
        {
            view.shards = self.past[at].shards.clone();
            old_shards = true;
        }
        if settled {
            view.cilium.settled = ["a", "b"].map(|name| (name.to_owned(), Family::V4)).into();
        }
        let mut writes = ledger::step(&view).writes;
        // Shards are read again before an address comes into a pool.
        writes.retain(|write| !(old_shards && matches!(write, Write::CiliumPool { pool, .. } if pool.values().any(|there| *there))));
        let dies = self.random(12) as usize;
        for write in writes.into_iter().take(dies) {
            match self.random(4) {
                0 => self.late.push(write),
                _ => self.apply(write),
            }
        }
        self.past.push(self.now());
    }

    /// A write, if its object is as it was read.
    fn apply(&mut self, write: Write) {
        match write {
            Write::Shard { name, version, spec } if self.shards.get(&name).map(|s| &s.version) == version.as_ref() => {
                self.version += 1;
                self.shards.insert(name, ShardSeen { version: self.version.to_string(), spec });
            }
            Write::CiliumPool { name, version, node_uid, pool } => {
                let Some(at) = self.sides.iter().position(|side| side.name == name && side.version() == version) else { return };
                let object = &mut self.sides[at].object;
                if let Some(uid) = node_uid {
                    object.metadata.insert("owner".to_owned(), uid.into());
                }
                let all = object.spec.ipam.pool.as_mut().unwrap();
                for (key, there) in pool {
                    if there { drop(all.insert(key, CiliumAddress::default())) } else { drop(all.remove(&key)) }
                }
                self.touch(at);
            }
            Write::CiliumRelease { name, version, release } => {
                let Some(at) = self.sides.iter().position(|side| side.name == name && side.version() == version) else { return };
                let all = &mut self.sides[at].object.status.ipam.release_ips;
                for (key, said) in release {
                    match said {
                        Some(said) => drop(all.insert(key, said)),
                        None => drop(all.remove(&key)),
                    }
                }
                self.touch(at);
            }
            _ => {}
        }
    }

    /// An agent looks, and writes.
    fn agent(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let (offer, before) = (side.offer(), side.object.status.ipam.clone());
        side.node.follow(&offer, &before.release_ips);
        let mut release = before.release_ips.clone();
        side.node.answer(&offer, &mut release);
        let known = before.used.clone().unwrap_or_default();
        let used = Some(side.node.look(|all| used(&offer, &known, all)));
        let status = &mut side.object.status.ipam;
        (status.release_ips, status.used) = (release, used);
        if *status != before {
            self.touch(at);
        }
        self.past.push(self.now());
    }

    fn pods(&mut self, at: usize) {
        let (n, come) = (self.next, self.random(2) == 0);
        self.next += 1;
        let chosen = self.random(16) as usize;
        let side = &mut self.sides[at];
        if come {
            if side.node.get(n, "p").is_ok() {
                side.pods.push(n);
            }
        } else if !side.pods.is_empty() {
            let gone = side.pods.swap_remove(chosen % side.pods.len());
            assert!(side.node.put_back(gone));
        }
    }

    /// Nothing is at two nodes, and whatever is at one the ledger has as that node's.
    fn check(&self, step: u64) {
        let mut owner: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for cells in self.shards.values().filter(|shard| !shard.spec.base.ends_with("/0")).map(|shard| &shard.spec) {
            let IpAddr::V4(base) = cells.base.split('/').next().unwrap().parse::<IpAddr>().unwrap() else { panic!() };
            for (cell, found) in &cells.cells {
                for (number, ip) in &found.ips {
                    let address = u32::from(base) + 4 * cell.parse::<u32>().unwrap() + number.parse::<u32>().unwrap();
                    owner.insert(IpAddr::V4(address.into()), &ip.owner.cilium_node);
                }
            }
        }
        for side in &self.sides {
            for address in side.has() {
                assert_eq!(owner.get(&address), Some(&side.name), "step {step}: {address}");
            }
        }
    }

    /// Until nobody has anything to do.
    fn settle(&mut self) {
        for write in std::mem::take(&mut self.late) {
            self.apply(write);
        }
        for _ in 0..200 {
            let before = self.version;
            for at in [0, 1] {
                self.agent(at);
            }
            let mut view = self.now();
            view.cilium.settled = ["a", "b"].map(|name| (name.to_owned(), Family::V4)).into();
            ledger::step(&view).writes.into_iter().for_each(|write| self.apply(write));
            self.past.push(self.now());
            if self.version == before {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", self.sides.each_ref().map(|side| &side.object));
    }
}

#[test]
fn an_operator_gives_what_is_needed_and_takes_back_what_is_not() {
    let mut world = World::new();
    let mut taken_back = 0;
    for n in 0..STEPS {
        let at = world.random(2) as usize;
        match world.random(9) {
            0 | 1 => world.operator(n % 4 == 0),
            2 | 3 => world.agent(at),
            4 if !world.late.is_empty() => {
                let chosen = world.random(world.late.len() as u64) as usize;
                let write = world.late.swap_remove(chosen);
                world.apply(write);
            }
            _ => world.pods(at),
        }
        world.check(n);
        taken_back +=
            world.sides.iter().flat_map(|side| side.object.status.ipam.release_ips.values()).filter(|r| **r == Release::Released).count();
        if n % 200 == 199 {
            world.settle();
            world.check(n);
            let held: usize = world.sides.iter().map(|side| side.object.spec.ipam.pool.as_ref().unwrap().len()).sum();
            // So many as are used, three more, and one that is too many may stay; fewer where there are no more.
            for side in &world.sides {
                let ipam = &side.object.spec.ipam;
                let (has, used) = (ipam.pool.as_ref().unwrap().len(), side.object.status.ipam.used.as_ref().map_or(0, BTreeMap::len));
                assert!(has <= used + 4 && (has >= used + 3 || held == usize::from(ADDRESSES)), "{has} for {used}, {held} are given");
                assert!(side.object.status.ipam.release_ips.is_empty(), "{:?}", side.object.status.ipam.release_ips);
                assert_eq!(used, side.pods.len() + 1, "with the router");
            }
        }
        if world.past.len() > 4 * BEHIND {
            world.past.drain(1..2 * BEHIND);
        }
    }
    assert!(taken_back > 50, "{taken_back}");
}
