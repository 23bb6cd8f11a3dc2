//! A host: what its agent has in memory and on its disk, and the addresses that its pods have, whatever the agent knows.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{LazyLock, Mutex};

use ipam::Granted as FromCluster;
use netloom_model::canonical;
use pool::{Allocator, Ask, Block, Event, Family, Granted, Key, Moment, Refused, Run, Spec, State, Want};

use crate::operator::run_of;
use crate::words::{Blocks, CELLS, NodePool};

/// So many attachments a host may have.
pub(crate) const PODS: u8 = 1;

const POOL: &str = "p";

/// What an allocator knows: its events, under a number. Two that know the same have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Store(u32);

/// What there is to be seen of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Blocks whose addresses are handed out.
    pub(crate) active: Blocks,
    /// Blocks that are stopped for ever.
    pub(crate) frozen: Blocks,
    /// Blocks whose addresses are handed out no more, and of which somebody has some.
    pub(crate) kept: Blocks,
    /// The attachments have these addresses, by their last byte.
    pub(crate) held: [Option<u8>; PODS as usize],
}

/// What is done to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Deed {
    Add(u8),
    Del(u8),
    /// A block is frozen by its first address.
    Freeze(u8),
    /// The same without a look at who has an address of it.
    FreezeBlindly(u8),
    Follow(NodePool),
    /// What was given back is forgotten.
    Forget,
}

#[derive(Default)]
struct Stores {
    known: HashMap<Vec<Vec<u8>>, u32>,
    all: Vec<(Vec<Event>, Facts)>,
    done: HashMap<(u32, Deed), (Store, Blocks)>,
}

static STORES: LazyLock<Mutex<Stores>> = LazyLock::new(Mutex::default);

fn key(pod: u8) -> Key {
    Key { network: "n".into(), container: format!("c{pod}"), ifname: "net1".into() }
}

fn ask(pod: u8) -> Ask {
    Ask { key: key(pod), pod: None, claim: None, wants: vec![Want { pool: POOL.into(), family: Family::V4, address: None }] }
}

fn small(n: u64) -> u8 {
    u8::try_from(n).unwrap()
}

fn cell_of(run: &Run) -> u8 {
    (0..CELLS).find(|cell| run_of(*cell) == *run).unwrap()
}

fn last_byte(address: IpAddr) -> u8 {
    let IpAddr::V4(address) = address else { unreachable!("a pool of IPv4") };
    address.octets()[3]
}

fn facts(allocator: &Allocator) -> Facts {
    let mut facts = Facts::default();
    for (block, state) in allocator.blocks(POOL, Family::V4) {
        match state {
            State::Active => facts.active.put(cell_of(&block.run), small(block.epoch)),
            State::Frozen => facts.frozen.put(cell_of(&block.run), small(block.epoch)),
            State::Withdrawn if allocator.is_used(block) => facts.kept.put(cell_of(&block.run), small(block.epoch)),
            State::Withdrawn => {}
        }
    }
    for pod in 0..PODS {
        facts.held[usize::from(pod)] = allocator.lease(&key(pod)).map(|lease| last_byte(lease.addresses[0].address));
    }
    facts
}

// === impl Store ===

impl Store {
    fn of(allocator: &Allocator) -> Self {
        let events = canonical(allocator);
        let bytes: Vec<Vec<u8>> = events.iter().map(Event::encode).collect();
        let mut stores = STORES.lock().unwrap();
        let next = u32::try_from(stores.all.len()).unwrap();
        let id = *stores.known.entry(bytes).or_insert(next);
        if id == next {
            stores.all.push((events, facts(allocator)));
        }
        Store(id)
    }

    /// One that knows nothing.
    pub(crate) fn empty() -> Self {
        Store::of(&Allocator::new(0))
    }

    fn allocator(self) -> Allocator {
        let stores = STORES.lock().unwrap();
        let mut allocator = Allocator::new(0);
        stores.all[self.0 as usize].0.iter().for_each(|event| allocator.apply(event));
        allocator
    }

    pub(crate) fn facts(self) -> Facts {
        STORES.lock().unwrap().all[self.0 as usize].1.clone()
    }

    /// Does something, by the allocator itself. Returned are also the blocks that were not taken in, as this node has given
    /// them back in that life.
    pub(crate) fn after(self, deed: Deed) -> (Self, Blocks) {
        if let Some(done) = STORES.lock().unwrap().done.get(&(self.0, deed)) {
            return *done;
        }
        let mut allocator = self.allocator();
        let refused = carry_out(&mut allocator, deed);
        let after = (Store::of(&allocator), refused);
        STORES.lock().unwrap().done.insert((self.0, deed), after);
        after
    }

    /// How many blocks the node needs, while so many attachments wait.
    pub(crate) fn demand(self, waiting: u8) -> u8 {
        let held = self.facts().held.iter().flatten().count();
        let spec = Spec::new(POOL, POOL);
        small(spec.scaling.want(held as u64 + u64::from(waiting.count_ones()), 2) / 2)
    }
}

fn carry_out(allocator: &mut Allocator, deed: Deed) -> Blocks {
    let now = Moment::default();
    match deed {
        Deed::Add(pod) => match allocator.reserve(&ask(pod), &now) {
            Ok(Granted::New(_) | Granted::Again(_)) | Err(Refused::Short { .. } | Refused::UnknownPool { .. }) => {}
            Err(e) => panic!("{e}"),
        },
        Deed::Del(pod) => drop(allocator.release(&key(pod), None, &now)),
        Deed::Freeze(cell) => drop(allocator.freeze(POOL, run_of(cell), &now)),
        Deed::FreezeBlindly(cell) => {
            let block = allocator.blocks(POOL, Family::V4).find(|(block, _)| block.run == run_of(cell)).map(|(block, _)| block.clone());
            if let Some(Block { pool, run, epoch, .. }) = block {
                allocator.apply(&Event::Frozen { pool, run, epoch });
            }
        }
        Deed::Follow(seen) => return follow(allocator, &seen),
        Deed::Forget => {
            let events = allocator.events();
            *allocator = Allocator::new(0);
            events.iter().filter(|event| !matches!(event, Event::BlockGone { .. })).for_each(|event| allocator.apply(event));
        }
    }
    Blocks::default()
}

/// The node's object as it is now, in the store.
fn follow(allocator: &mut Allocator, seen: &NodePool) -> Blocks {
    let block = |(cell, epoch): (u8, u8)| {
        // What this node has promised before it has lost its store.
        let state = if seen.returning.has(cell, epoch) { State::Frozen } else { State::Active };
        (Block { pool: POOL.into(), run: run_of(cell), epoch: epoch.into(), claim: None }, state)
    };
    let granted = FromCluster { spec: Spec::new(POOL, POOL), blocks: seen.blocks.each().map(block).collect() };
    let refused = granted.apply(allocator).unwrap();
    let returned = |refused: &Refused| match refused {
        Refused::Returned { run, .. } => Some(cell_of(run)),
        _ => None,
    };
    let cells: Vec<u8> = refused.iter().filter_map(returned).collect();
    let here = facts(allocator);
    let refused = |(cell, epoch): &(u8, u8)| cells.contains(cell) && !here.active.has(*cell, *epoch) && !here.frozen.has(*cell, *epoch);
    seen.blocks.each().filter(refused).collect()
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts();
        let held: Vec<IpAddr> = facts.held.iter().flatten().map(|last| Ipv4Addr::new(10, 0, 0, *last).into()).collect();
        write!(f, "uses {:?}, frozen {:?}, held {held:?}", facts.active, facts.frozen)
    }
}
