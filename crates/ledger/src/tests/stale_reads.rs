//! What is decided where one thing was read earlier than another: watches are of different times, and a write may be lost.

use super::*;
use crate::{ClaimSeen, DefinitionSeen, Source};

const SHARD: &str = "p.v4.10.0.0.0";

/// A node that has the block 10.0.0.0/26, and one that has nothing.
fn granted() -> Snapshot {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 64);
    settle(&mut world);
    assert_eq!(has(&world, "a"), ["p 10.0.0.0/26 1"]);
    world
}

fn first_cell(world: &mut Snapshot) -> &mut Cell {
    world.shards.get_mut(SHARD).unwrap().spec.cells.get_mut("0").unwrap()
}

/// The first cell as a step would have it.
fn decided(world: &Snapshot) -> Cell {
    let writes = step(world).writes;
    let written = writes.iter().find_map(|write| match write {
        Write::Shard { name, spec, .. } if name == SHARD => Some(spec.clone()),
        _ => None,
    });
    written.unwrap_or_else(|| world.shards[SHARD].spec.clone()).cells["0"].clone()
}

fn returned(epoch: u64) -> Vec<Returning> {
    vec![Returning { cidr: "10.0.0.0/26".into(), pool: "p".into(), epoch }]
}

#[test]
fn a_block_is_free_when_its_node_was_read_without_it() {
    let mut world = granted();
    wants(&mut world, "a", "p", 0);
    world.node_pools.get_mut("a").unwrap().status.returning = returned(1);
    assert_eq!(decided(&world).state, CellState::Returning);
    first_cell(&mut world).state = CellState::Returning;
    // However often it is decided: the write that takes it out of the spec may be lost.
    assert!(
        step(&world)
            .writes
            .iter()
            .any(|write| matches!(write, Write::NodePool { name, spec, .. } if name == "a" && spec.blocks.is_empty()))
    );
    assert_eq!(decided(&world).state, CellState::Returning);
    world.node_pools.get_mut("a").unwrap().spec.blocks.clear();
    assert_eq!(decided(&world).state, CellState::Free);
}

#[test]
fn a_promise_is_of_one_life() {
    let mut world = granted();
    world.node_pools.get_mut("a").unwrap().status.returning = returned(1);
    // It came back, and was granted to the same node again; of that node an earlier object was read.
    first_cell(&mut world).epoch = 2;
    assert_eq!((decided(&world).state, decided(&world).epoch), (CellState::Granted, 2));
}

#[test]
fn what_a_spec_mentions_is_granted_to_nobody() {
    let mut world = granted();
    // Free in the ledger: the node has returned it, and its object was read as it was before.
    *first_cell(&mut world) = Cell { epoch: 1, ..Cell::default() };
    wants(&mut world, "b", "p", 256);
    let cell = decided(&world);
    assert_eq!((cell.state, cell.epoch), (CellState::Free, 1));
    // Nor is an address of it kept for a claim.
    let mut world = granted();
    *first_cell(&mut world) = Cell { epoch: 1, ..Cell::default() };
    let source = Ok(Source { pools: vec!["p".into()], families: Vec::new() });
    world.claims.definitions.insert("n/net".into(), DefinitionSeen { network: "net".into(), source });
    let mut claim = ClaimSeen { version: "1".into(), uid: "uid-c".into(), finalizer: true, ..ClaimSeen::default() };
    claim.spec.network = "net".into();
    claim.spec.ip_requests = vec!["10.0.0.9/24".into()];
    world.claims.claims.insert("n/c".into(), claim);
    world.claims.complete = true;
    assert_eq!(decided(&world).state, CellState::Free);
    world.node_pools.get_mut("a").unwrap().spec.blocks.clear();
    world.node_pools.get_mut("a").unwrap().status = api::NodeIpPoolStatus::default();
    assert_eq!(decided(&world).ips["9"].owner.claim, "n/c");
}

#[test]
fn a_node_that_is_no_more_has_its_blocks_as_long_as_its_object_is_there() {
    let mut world = granted();
    world.nodes.remove("a");
    world.gone.insert("uid-a".into(), Gone::GraceOver);
    let writes = step(&world).writes;
    assert!(writes.iter().any(|write| matches!(write, Write::NodePoolGone { name, .. } if name == "a")), "{writes:?}");
    assert_eq!(decided(&world).state, CellState::Granted);
    let object = world.node_pools.remove("a").unwrap();
    assert_eq!(decided(&world).state, CellState::Free);
    // Who says that it is gone may have asked before it was there again.
    world.nodes.insert("a".into(), NodeSeen { uid: "uid-a".into(), labels: BTreeMap::new() });
    world.node_pools.insert("other".into(), NodePoolSeen { spec: api::NodeIpPoolSpec::default(), ..object });
    assert_eq!(decided(&world).state, CellState::Granted);
}
