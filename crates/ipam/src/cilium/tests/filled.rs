//! Our operator and our agents, with each other: two nodes, few addresses, pods that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use api::CiliumNode;

use super::*;

const STEPS: u64 = 3_000;
const ADDRESSES: u8 = 24;

struct Side {
    node: Node,
    object: CiliumNode,
    pods: Vec<u32>,
}

struct World {
    sides: [Side; 2],
    next: u32,
    chance: u64,
}

impl Side {
    fn new(name: &str) -> Self {
        let mut object = CiliumNode::named(name);
        object.spec.ipam.pre_allocate = 3;
        object.spec.ipam.max_above_watermark = 1;
        object.spec.ipam.pool = Some(BTreeMap::new());
        Side { node: Node::new(), object, pods: Vec::new() }
    }

    fn offer(&self) -> Offer {
        Offer::read(self.object.spec.ipam.pool.as_ref().unwrap())
    }

    /// The agent looks, and writes.
    fn agent(&mut self) {
        let (offer, status) = (self.offer(), self.object.status.ipam.clone());
        self.node.follow(&offer, &status.release_ips);
        let mut release = status.release_ips.clone();
        self.node.answer(&offer, &mut release);
        self.object.status.ipam.release_ips = release;
        self.object.status.ipam.used = self.node.look(|all| used(&offer, &status.used, all));
    }

    /// What nobody else may have: in the pool, on its way out, or used.
    fn has(&self) -> BTreeSet<String> {
        let ipam = &self.object.status.ipam;
        let of = self.object.spec.ipam.pool.as_ref().unwrap().keys().chain(ipam.release_ips.keys()).chain(ipam.used.keys());
        let held = self.node.look(|all| used(&Offer::default(), &BTreeMap::new(), all));
        of.cloned().chain(held.into_keys()).collect()
    }
}

impl World {
    fn random(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    /// What no node has, as far as the objects say: an operator sees nothing else.
    fn free(&self) -> Vec<IpAddr> {
        let told = |side: &Side| {
            let ipam = &side.object.status.ipam;
            let pool = side.object.spec.ipam.pool.as_ref().unwrap().keys();
            pool.chain(ipam.release_ips.keys()).chain(ipam.used.keys()).cloned().collect::<Vec<_>>()
        };
        let told: BTreeSet<String> = self.sides.iter().flat_map(told).collect();
        let all = (1..=ADDRESSES).map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)));
        all.filter(|address| !told.contains(&address.to_string())).collect()
    }

    fn operator(&mut self, at: usize, settled: bool) -> bool {
        let free = self.free();
        let object = &mut self.sides[at].object;
        match step(object, Family::V4, settled, free.into_iter()) {
            Step::Pool(pool) => object.spec.ipam.pool = Some(pool),
            Step::Release(release) => object.status.ipam.release_ips = release,
            Step::Rest { .. } => return false,
        }
        true
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

    /// Until nobody has anything to do.
    fn settle(&mut self) {
        for _ in 0..200 {
            let moved = [0, 1].map(|at| {
                let before = self.sides[at].object.clone();
                self.sides[at].agent();
                self.operator(at, true) || before != self.sides[at].object
            });
            if moved == [false, false] {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", self.sides.each_ref().map(|side| &side.object));
    }
}

#[test]
fn an_operator_gives_what_is_needed_and_takes_back_what_is_not() {
    let mut world = World { sides: [Side::new("a"), Side::new("b")], next: 0, chance: 7 };
    for n in 0..STEPS {
        let at = world.random(2) as usize;
        match world.random(8) {
            0 | 1 => drop(world.operator(at, n % 4 == 0)),
            2 | 3 => world.sides[at].agent(),
            _ => world.pods(at),
        }
        let [a, b] = &world.sides;
        let both: Vec<String> = a.has().intersection(&b.has()).cloned().collect();
        assert_eq!(both, [""; 0], "step {n}: of both nodes");
        if n % 200 == 199 {
            world.settle();
            // So many as are used, three more, and one that is too many may stay; fewer where there are no more.
            let left = world.free().len();
            for side in &world.sides {
                let ipam = &side.object.spec.ipam;
                let (has, used) = (ipam.pool.as_ref().unwrap().len(), side.object.status.ipam.used.len());
                assert!(has <= used + 4 && (has >= used + 3 || left == 0), "{has} for {used}, {left} left");
                assert!(side.object.status.ipam.release_ips.is_empty(), "{:?}", side.object.status.ipam.release_ips);
                assert_eq!(used, side.pods.len() + 1, "with the router");
            }
        }
    }
}
