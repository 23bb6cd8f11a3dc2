//! How long a decision takes in a cluster of 5,000 nodes: it is made for every change, so it may not take long.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Instant;

use api::Demand;
use netloom_ledger::{EXHAUSTED, MOST_BYTES, NodePoolSeen, NodeSeen, PoolSeen, ShardSeen, Snapshot, Write, step};

const NODES: usize = 5_000;

fn apply(world: &mut Snapshot, writes: Vec<Write>) {
    for write in writes {
        let version = "1".to_owned();
        match write {
            Write::Shard { name, spec, .. } => drop(world.shards.insert(name, ShardSeen { version, spec })),
            Write::NodePool { name, spec, .. } => {
                let mut seen = world.node_pools.remove(&name).unwrap_or_default();
                if seen.status.demand.is_empty() {
                    seen.status.demand = vec![Demand { pool: "p".into(), v4: 128, v6: 256, ..Demand::default() }];
                }
                world.node_pools.insert(name, NodePoolSeen { version, spec, ..seen });
            }
            Write::PoolStatus { pool, status, .. } => world.pools.get_mut(&pool).unwrap().status = Some(status),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn five_thousand_nodes_are_served_in_few_writes() {
    let mut world = Snapshot::default();
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

/// A node of which so many pools are needed, each in so many blocks of either family; until nothing more is written.
fn node_of(pools: usize, blocks: u64) -> Snapshot {
    let mut world = Snapshot::default();
    let mut demand = Vec::new();
    for i in 0..pools {
        let name = format!("pool-of-a-tenant-{i:03}");
        let spec =
            format!(r#"{{"ipv4": {{"entries": [{{"cidr": "10.0.0.0/12"}}]}}, "ipv6": {{"entries": [{{"cidr": "fd00:{i:x}::/64"}}]}}}}"#);
        let spec = Ok(serde_json::from_str(&spec).unwrap());
        let created = "2026-01-01T00:00:00Z".to_owned();
        let seen = PoolSeen { version: "1".into(), generation: 1, created, deleting: false, finalizer: true, spec, status: None };
        world.pools.insert(name.clone(), seen);
        demand.push(Demand { pool: name, v4: blocks * 64, v6: blocks * 256, ..Demand::default() });
    }
    world.nodes.insert("n".into(), NodeSeen { uid: "6f7c1b1e-0000-4000-8000-000000000001".into(), ..NodeSeen::default() });
    for _ in 0..200 {
        let writes = step(&world).writes;
        if writes.is_empty() {
            return world;
        }
        apply(&mut world, writes);
        world.node_pools.iter_mut().for_each(|(_, seen)| seen.status.demand = demand.clone());
    }
    panic!("no end to it");
}

/// etcd takes an object of 1.5 MiB, whatever pools there are. Printed: how large it is.
#[test]
fn a_nodes_object_does_not_grow_without_end() {
    for (blocks, all) in [(1, true), (8, true), (24, true), (32, false)] {
        let world = node_of(100, blocks);
        let spec = &world.node_pools["n"].spec;
        let (size, count) = (serde_json::to_string(spec).unwrap().len(), spec.blocks.len());
        println!("100 pools, {blocks} blocks of each family: {count} blocks, {} KiB", size / 1024);
        assert!(size <= MOST_BYTES, "{size}");
        assert_eq!(count as u64 == 200 * blocks, all, "{count} blocks of {}", 200 * blocks);
        let statuses = world.pools.values().flat_map(|seen| &seen.status.as_ref().unwrap().conditions).filter(|c| c.kind == EXHAUSTED);
        let short: Vec<_> = statuses.filter(|condition| condition.status == "True").collect();
        assert_eq!(short.is_empty(), all);
        assert!(short.iter().all(|c| c.reason == "NodesFull" && c.message.contains("blockPrefix")), "{:?}", short.first());
    }
}
