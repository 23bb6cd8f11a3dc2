//! How long a decision takes in a cluster of 5,000 nodes: it is made for every change, so it may not take long.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Instant;

use api::Demand;
use netloom_ledger::{NodePoolSeen, NodeSeen, PoolSeen, ShardSeen, World, Write, step};

const NODES: usize = 5_000;

fn apply(world: &mut World, writes: Vec<Write>) {
    for write in writes {
        let version = "1".to_owned();
        match write {
            Write::Shard { name, spec, .. } => drop(world.shards.insert(name, ShardSeen { version, spec })),
            Write::NodePool { name, spec, .. } => {
                let demand = Demand { pool: "p".into(), v4: 128, v6: 256, ..Demand::default() };
                let mut seen = world.node_pools.remove(&name).unwrap_or_default();
                seen.status.demand = vec![demand];
                world.node_pools.insert(name, NodePoolSeen { version, spec, ..seen });
            }
            Write::PoolStatus { pool, status, .. } => world.pools.get_mut(&pool).unwrap().status = Some(status),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn five_thousand_nodes_are_served_in_few_writes() {
    let mut world = World::default();
    let spec = r#"{"ipv4": {"entries": [{"cidr": "10.0.0.0/8"}]}, "ipv6": {"entries": [{"cidr": "fd00::/64"}]}}"#;
    let spec = Ok(serde_json::from_str(spec).unwrap());
    let created = "2026-01-01T00:00:00Z".to_owned();
    let seen = PoolSeen { version: "1".into(), generation: 1, created, deleting: false, finalizer: true, spec, status: None };
    world.pools.insert("p".into(), seen);
    for i in 0..NODES {
        world.nodes.insert(format!("node-{i:05}"), NodeSeen { uid: format!("6f7c1b1e-0000-4000-8000-{i:012}"), ..NodeSeen::default() });
    }
    let (mut shards, mut rounds) = (0, 0);
    loop {
        let begun = Instant::now();
        let decided = step(&world);
        println!("{} writes decided in {:?}", decided.writes.len(), begun.elapsed());
        if decided.writes.is_empty() {
            break;
        }
        shards += decided.writes.iter().filter(|write| matches!(write, Write::Shard { .. })).count();
        rounds += 1;
        apply(&mut world, decided.writes);
    }
    // 15,000 blocks, 64 in a shard, and the two objects that say how large blocks are.
    assert_eq!((shards, rounds), (2 + 157 + 79, 3));
    assert!(world.node_pools.values().all(|seen| seen.spec.blocks.len() == 3));
    // One node more needs one write in the ledger.
    let one = world.node_pools.get_mut("node-00000").unwrap();
    one.status.demand[0].v4 = 192;
    let writes = step(&world).writes;
    assert!(matches!(writes.as_slice(), [Write::Shard { .. }]), "{}", writes.len());
}
