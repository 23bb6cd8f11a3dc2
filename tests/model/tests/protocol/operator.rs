//! An operator: what it has read, which may be old, and what it writes by it: `ledger::step` itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex};

use api::{CellState as State, Demand, GrantedBlock, GrantedPool, Holding, IpLedgerShardSpec, Returning};
use ledger::{Gone, NodePoolSeen, NodeSeen, PoolSeen, ShardSeen, Snapshot, Write};
use pool::Run;

use crate::words::{A, Blocks, CELLS, Cell, CellState, NAMES, NodePool, Root, Shard};

const POOL: &str = "p";
const ROOT: &str = "p.v4";
const SHARD: &str = "p.v4.10.0.0.0";

/// An object as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seen<T> {
    pub(crate) is: T,
    /// The object has this `resourceVersion` still: a write of it is carried out.
    pub(crate) newest: bool,
}

/// All that an operator has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct View {
    pub(crate) shard: Seen<Option<Shard>>,
    pub(crate) root: Seen<Root>,
    pub(crate) node_pools: [Seen<Option<NodePool>>; 2],
    /// The nodes' UIDs; 0: there is none of that name.
    pub(crate) nodes: [u8; 2],
}

/// A write of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrote {
    Shard(Shard),
    Root(Root),
    /// The UID and the blocks of a node's spec, and whether its Node is gone.
    Spec(u8, u8, Blocks, bool),
    /// A node's object is deleted.
    NoSpec(u8),
}

/// What is not an operator's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Known {
    /// What is known of the first `a`, if it is no more.
    pub(crate) gone: Option<Gone>,
    /// [`Snapshot::first_epoch`]
    pub(crate) first_epoch: u8,
    /// So many cells the pool has: 1 or 2.
    pub(crate) cells: u8,
}

type Steps = HashMap<(View, Known), Vec<Wrote>>;

/// What follows from a view: a function of it, so each is worked out once.
static STEPS: LazyLock<Mutex<Steps>> = LazyLock::new(Mutex::default);
/// The root of the ledger and the pool's terms for a node, as the operator writes them first.
static TERMS: LazyLock<(IpLedgerShardSpec, BTreeMap<String, GrantedPool>)> = LazyLock::new(terms);

/// What an operator that has read this writes, in this order.
pub(crate) fn step(view: &View, known: Known) -> Vec<Wrote> {
    // Whether it is the newest is nothing that it knows.
    let mut view = *view;
    view.shard.newest = false;
    view.root.newest = false;
    view.node_pools.iter_mut().for_each(|seen| seen.newest = false);
    if let Some(found) = STEPS.lock().unwrap().get(&(view, known)) {
        return found.clone();
    }
    let world = world_of(&view, known);
    let writes: Vec<Wrote> = ledger::step(&world).writes.iter().filter_map(wrote).collect();
    STEPS.lock().unwrap().insert((view, known), writes.clone());
    writes
}

fn plain_world(cells: u8) -> Snapshot {
    let cidr = if cells == 1 { "10.0.0.0/31" } else { "10.0.0.0/30" };
    let spec =
        r#"{"ipv4": {"entries": [{"cidr": "CIDR"}], "blockPrefix": 31, "prefixLength": 30}, "allowFirstIP": true, "allowLastIP": true}"#;
    let spec = spec.replace("CIDR", cidr);
    let pool = PoolSeen {
        version: "1".into(),
        generation: 1,
        created: String::new(),
        deleting: false,
        finalizer: true,
        spec: Ok(serde_json::from_str(&spec).unwrap()),
        status: None,
    };
    Snapshot { pools: BTreeMap::from([(POOL.to_owned(), pool)]), grace: Some(1), ..Snapshot::default() }
}

fn terms() -> (IpLedgerShardSpec, BTreeMap<String, GrantedPool>) {
    let mut world = plain_world(CELLS);
    world.nodes.insert(NAMES[0].to_owned(), NodeSeen { uid: "1".into(), ..NodeSeen::default() });
    let writes = ledger::step(&world).writes;
    let root = writes.iter().find_map(|w| if let Write::Shard { spec, .. } = w { Some(spec.clone()) } else { None });
    let pools = writes.iter().find_map(|w| if let Write::NodePool { spec, .. } = w { Some(spec.pools.clone()) } else { None });
    (root.unwrap(), pools.unwrap())
}

fn cidr(cell: u8) -> String {
    format!("10.0.0.{}/31", 2 * cell)
}

fn cell_of(cidr: &str) -> u8 {
    (0..CELLS).find(|cell| self::cidr(*cell) == cidr).unwrap()
}

/// The addresses of a cell.
pub(crate) fn run_of(cell: u8) -> Run {
    cidr(cell).parse().unwrap()
}

fn text(uid: u8) -> String {
    if uid == 0 { String::new() } else { uid.to_string() }
}

fn world_of(view: &View, known: Known) -> Snapshot {
    let mut world = plain_world(known.cells);
    let version = || "1".to_owned();
    let (root, pools) = &*TERMS;
    world.first_epoch = known.first_epoch.into();
    world.gone.extend(known.gone.map(|gone| (text(A), gone)));
    // A ledger was there: that is told by what does not go with it.
    world.ledgers.insert(ROOT.to_owned());
    if view.root.is != Root::Missing {
        let spec = IpLedgerShardSpec { gathering: view.root.is == Root::Gathering, ..root.clone() };
        world.shards.insert(ROOT.to_owned(), ShardSeen { version: version(), spec });
    }
    for (name, uid) in NAMES.iter().zip(view.nodes).filter(|(_, uid)| *uid > 0) {
        world.nodes.insert((*name).to_owned(), NodeSeen { uid: text(uid), ..NodeSeen::default() });
    }
    if let Some(shard) = view.shard.is {
        let cells = shard.cells.iter().zip(0..).filter(|(cell, _)| cell.epoch > 0).map(|(cell, number)| {
            let (state, free) = match cell.state {
                CellState::Free => (State::Free, true),
                CellState::Granted => (State::Granted, false),
                CellState::Returning => (State::Returning, false),
            };
            let node = if free { "" } else { name_of(cell.uid) };
            let pool = if free { "" } else { POOL };
            let (node, pool, node_uid) = (node.to_owned(), pool.to_owned(), text(cell.uid));
            (u8::to_string(&number), api::Cell { state, epoch: cell.epoch.into(), node, node_uid, pool, ips: BTreeMap::new() })
        });
        let spec = IpLedgerShardSpec {
            network: POOL.to_owned(),
            base: "10.0.0.0/25".to_owned(),
            cell_prefix: 31,
            first_epoch: shard.first_epoch.into(),
            cells: cells.collect(),
            ..IpLedgerShardSpec::default()
        };
        world.shards.insert(SHARD.to_owned(), ShardSeen { version: version(), spec });
    }
    for (name, seen) in NAMES.iter().zip(view.node_pools) {
        let Some(node_pool) = seen.is else { continue };
        let block = |(cell, epoch): (u8, u8)| GrantedBlock {
            cidr: cidr(cell),
            network: POOL.to_owned(),
            pool: POOL.to_owned(),
            epoch: epoch.into(),
        };
        let back = |(cell, epoch): (u8, u8)| Returning { cidr: cidr(cell), pool: POOL.to_owned(), epoch: epoch.into() };
        let held = |(cell, epoch): (u8, u8)| Holding {
            cidr: cidr(cell),
            network: POOL.to_owned(),
            pool: POOL.to_owned(),
            epoch: epoch.into(),
            ..Holding::default()
        };
        let mut seen = NodePoolSeen { version: version(), uid: text(node_pool.uid), ..NodePoolSeen::default() };
        seen.spec.node_uid = text(node_pool.uid);
        seen.spec.blocks = node_pool.blocks.each().map(block).collect();
        seen.spec.pools = pools.clone();
        seen.spec.reclaim_after_seconds = node_pool.orphan.then_some(1);
        seen.status.returning = node_pool.returning.each().map(back).collect();
        seen.status.holding = node_pool.holding.each().map(held).collect();
        seen.status.agent.instance = if node_pool.told { "1".to_owned() } else { String::new() };
        seen.status.observed_generation = i64::from(node_pool.told);
        seen.status.demand = vec![Demand { pool: POOL.to_owned(), v4: u64::from(node_pool.demand) * 2, ..Demand::default() }];
        world.node_pools.insert((*name).to_owned(), seen);
    }
    world
}

fn name_of(uid: u8) -> &'static str {
    NAMES[usize::from(uid == crate::words::B)]
}

/// What is excluded, as pods of another node have it, decides about no block.
fn but_for_excluded(pools: &BTreeMap<String, GrantedPool>) -> BTreeMap<String, GrantedPool> {
    let without = |pool: &GrantedPool| GrantedPool { exclude: Vec::new(), ..pool.clone() };
    pools.iter().map(|(name, pool)| (name.clone(), without(pool))).collect()
}

/// What a write says; `None` for what no address depends on.
fn wrote(write: &Write) -> Option<Wrote> {
    let number = |name: &str| u8::try_from(NAMES.iter().position(|n| *n == name).unwrap()).unwrap();
    let small = |epoch: u64| u8::try_from(epoch).unwrap();
    match write {
        Write::Shard { name, spec, .. } if name == ROOT => Some(Wrote::Root(if spec.gathering { Root::Gathering } else { Root::Open })),
        Write::Shard { name, spec, .. } => {
            assert_eq!(name, SHARD);
            let mut shard = Shard { first_epoch: small(spec.first_epoch), ..Shard::default() };
            for (number, cell) in &spec.cells {
                let state = match cell.state {
                    State::Free => CellState::Free,
                    State::Granted => CellState::Granted,
                    State::Returning => CellState::Returning,
                    State::Shared => unreachable!("nobody has a claim"),
                };
                let uid = cell.node_uid.parse().unwrap_or(0);
                shard.cells[number.parse::<usize>().unwrap()] = Cell { state, epoch: small(cell.epoch), uid };
            }
            Some(Wrote::Shard(shard))
        }
        Write::NodePool { name, spec, .. } => {
            assert_eq!(but_for_excluded(&spec.pools), TERMS.1);
            let blocks = spec.blocks.iter().map(|block| (cell_of(&block.cidr), small(block.epoch)));
            Some(Wrote::Spec(number(name), spec.node_uid.parse().unwrap(), blocks.collect(), spec.reclaim_after_seconds.is_some()))
        }
        Write::NodePoolGone { name, .. } => Some(Wrote::NoSpec(number(name))),
        _ => None,
    }
}
