//! An operator: what it has read, which may be old, and what it writes by it: `ledger::step` itself.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex};

use api::{Cell, GrantedIp, GrantedPool, Hold, IpLedgerShardSpec, NodeIpPoolSpec, Owner, Returning, SharedIp};
use ledger::{CellPosition, ClaimSeen, DefinitionSeen, NodePoolSeen, NodeSeen, PodSeen, PoolSeen, ShardSeen, Source, Write};

use crate::known::{Known, once};

pub(crate) const NODES: [&str; 2] = ["a", "b"];
/// The nodes of the pods that name the claim: one on each, and a third one.
pub(crate) const PODS: [usize; 3] = [0, 1, 1];
pub(crate) const POOL: &str = "p";
pub(crate) const CLAIM: &str = "ns/c";
const ROOT: &str = "p.v4";
const SHARD: &str = "p.v4.10.0.0.0";
/// The number of the address's cell, which has no other one.
const CELL: &str = "1";

/// What an operator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) cell: Known<Cell>,
    pub(crate) node_pools: [NodePool; 2],
    /// Which of the [`PODS`] are there.
    pub(crate) pods: [bool; 3],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodePool {
    pub(crate) ips: Known<Vec<GrantedIp>>,
    pub(crate) returning: Known<Vec<Returning>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrote {
    Cell(Known<Cell>),
    Ips(usize, Known<Vec<GrantedIp>>),
}

type Steps = HashMap<(View, [bool; 3]), Vec<Wrote>>;

static STEPS: LazyLock<Mutex<Steps>> = LazyLock::new(Mutex::default);
/// The root of the ledger and the pool's terms for a node, as the operator writes them.
static TERMS: LazyLock<(IpLedgerShardSpec, BTreeMap<String, GrantedPool>)> = LazyLock::new(terms);

fn address() -> IpAddr {
    "10.0.0.1".parse().unwrap()
}

fn plain_world() -> ledger::Snapshot {
    let spec = r#"{"ipv4": {"entries": [{"range": "10.0.0.1-10.0.0.1"}], "blockPrefix": 32, "prefixLength": 24}}"#;
    let (version, spec) = ("1".to_owned(), Ok(serde_json::from_str(spec).unwrap()));
    let pool = PoolSeen { version, generation: 1, created: String::new(), deleting: false, finalizer: true, spec, status: None };
    let mut world = ledger::Snapshot { pools: [(POOL.to_owned(), pool)].into(), ..ledger::Snapshot::default() };
    let node = |name: &str| (name.to_owned(), NodeSeen { uid: name.to_owned(), ..NodeSeen::default() });
    world.nodes.extend(NODES.map(node));
    world
}

fn terms() -> (IpLedgerShardSpec, BTreeMap<String, GrantedPool>) {
    let writes = ledger::step(&plain_world()).writes;
    let root = writes.iter().find_map(|w| if let Write::Shard { spec, .. } = w { Some(spec.clone()) } else { None });
    let pools = writes.iter().find_map(|w| if let Write::NodePool { spec, .. } = w { Some(spec.pools.clone()) } else { None });
    (root.unwrap(), pools.unwrap())
}

/// The address is the claim's, and no node's.
pub(crate) fn assigned() -> Cell {
    let (mut cell, place) = (Cell::default(), CellPosition::of(address(), 32));
    let owner = Owner { claim: CLAIM.to_owned(), claim_uid: "uid".to_owned(), ..Owner::default() };
    ledger::assign(&mut cell, &place, address(), POOL, &owner, 0).unwrap();
    cell
}

pub(crate) fn spec(node: usize, ips: &[GrantedIp]) -> NodeIpPoolSpec {
    NodeIpPoolSpec { node_uid: NODES[node].to_owned(), ips: ips.to_vec(), pools: TERMS.1.clone(), ..NodeIpPoolSpec::default() }
}

/// What an operator that has read this writes, if those pods say that they migrate. A function of it, so each is worked out once.
pub(crate) fn step(view: View, migrate: [bool; 3]) -> Vec<Wrote> {
    once(&STEPS, (view, migrate), |_| work_out(view, migrate))
}

fn work_out(view: View, migrate: [bool; 3]) -> Vec<Wrote> {
    let mut world = plain_world();
    let version = || "1".to_owned();
    world.shards.insert(ROOT.to_owned(), ShardSeen { version: version(), spec: TERMS.0.clone() });
    let (base, cells) = ("10.0.0.0/26".to_owned(), [(CELL.to_owned(), (*view.cell).clone())].into());
    let shard = IpLedgerShardSpec { base, cells, ..TERMS.0.clone() };
    world.shards.insert(SHARD.to_owned(), ShardSeen { version: version(), spec: shard });
    world.claims.complete = true;
    let source = Source { pools: vec![POOL.to_owned()], families: Vec::new() };
    world.claims.definitions.insert("ns/net".to_owned(), DefinitionSeen { network: "net".to_owned(), source: Ok(source) });
    let claim = ClaimSeen { version: version(), uid: "uid".to_owned(), finalizer: true, ..ClaimSeen::default() };
    world.claims.claims.insert(CLAIM.to_owned(), claim);
    world.claims.claims.get_mut(CLAIM).unwrap().spec.network = "net".to_owned();
    for (n, name) in NODES.iter().enumerate() {
        let mut seen = NodePoolSeen { version: version(), spec: spec(n, &view.node_pools[n].ips), ..NodePoolSeen::default() };
        seen.status.returning.clone_from(&*view.node_pools[n].returning);
        world.node_pools.insert((*name).to_owned(), seen);
    }
    for (n, node) in PODS.into_iter().enumerate().filter(|(n, _)| view.pods[*n]) {
        let (node, claims) = (NODES[node].to_owned(), vec![CLAIM.to_owned()]);
        world.claims.pods.insert(format!("ns/{n}"), PodSeen { node, migrates: migrate[n], claims, ..PodSeen::default() });
    }
    ledger::step(&world).writes.iter().filter_map(wrote).collect()
}

fn wrote(write: &Write) -> Option<Wrote> {
    match write {
        Write::Shard { name, spec, .. } => {
            assert_eq!((name.as_str(), spec.cells.len()), (SHARD, 1));
            Some(Wrote::Cell(Known::new(spec.cells[CELL].clone())))
        }
        Write::NodePool { name, spec, .. } => {
            assert_eq!((&spec.pools, spec.blocks.len()), (&TERMS.1, 0));
            Some(Wrote::Ips(NODES.iter().position(|node| node == name).unwrap(), Known::new(spec.ips.clone())))
        }
        // What no address depends on.
        _ => None,
    }
}

pub(crate) fn holds(cell: &Cell) -> impl Iterator<Item = &Hold> {
    cell.ips.values().flat_map(SharedIp::holds)
}

pub(crate) fn last_epoch(cell: &Cell) -> u64 {
    cell.ips.values().map(SharedIp::last_epoch).max().unwrap_or_default()
}
