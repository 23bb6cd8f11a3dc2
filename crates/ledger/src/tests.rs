//! Steps one by one; `tests/life.rs` is the long run.

use std::collections::{BTreeMap, BTreeSet};

use api::{Cell, CellState, Demand, GrantedBlock, Holding, IpPoolSpec, Owner, Returning};
use pool::{Family, Run, Scaling};

use super::*;

mod full;
mod ledger_loss;
mod orphans;
mod rebalance;
mod stale_reads;

fn pool(spec: &str) -> PoolSeen {
    let spec: IpPoolSpec = serde_json::from_str(spec).unwrap();
    let created = "2026-01-01T00:00:00Z".to_owned();
    PoolSeen { version: "1".into(), generation: 1, created, deleting: false, finalizer: true, spec: Ok(spec), status: None }
}

fn world(pools: &[(&str, &str)], nodes: &[&str]) -> Snapshot {
    let mut world = Snapshot::default();
    for (name, spec) in pools {
        world.pools.insert((*name).into(), pool(spec));
    }
    for name in nodes {
        world.nodes.insert((*name).into(), NodeSeen { uid: format!("uid-{name}"), labels: BTreeMap::new() });
    }
    world
}

/// What an API server does that loses nothing.
fn apply(world: &mut Snapshot, writes: &[Write]) {
    for write in writes {
        match write.clone() {
            Write::Shard { name, version, spec } => {
                assert_eq!(world.shards.get(&name).map(|s| s.version.clone()), version);
                let version = version.map_or(1, |v| v.parse::<u64>().unwrap() + 1).to_string();
                world.shards.insert(name, ShardSeen { version, spec });
            }
            Write::NodePool { name, version, spec } => {
                let mut seen = world.node_pools.remove(&name).unwrap_or_default();
                assert_eq!((!seen.version.is_empty()).then(|| seen.version.clone()), version);
                seen.version = version.map_or(1, |v| v.parse::<u64>().unwrap() + 1).to_string();
                (seen.spec, seen.owned) = (spec, false);
                world.node_pools.insert(name, seen);
            }
            Write::NodePoolGone { name, .. } => drop(world.node_pools.remove(&name)),
            Write::Finalizer { pool, present, .. } => {
                let gone = world.pools.get_mut(&pool).is_some_and(|seen| {
                    seen.finalizer = present;
                    seen.deleting && !present
                });
                if gone {
                    world.pools.remove(&pool);
                }
            }
            Write::CiliumNode { .. } | Write::CiliumPool { .. } | Write::CiliumRelease { .. } | Write::CiliumNodeGone { .. } => {}
            Write::Claim { .. } | Write::ClaimGone { .. } | Write::ClaimFinalizer { .. } | Write::ClaimStatus { .. } => {}
            Write::PoolStatus { pool, status, .. } => world.pools.get_mut(&pool).unwrap().status = Some(status),
        }
    }
}

/// Steps until nothing is to be written.
fn settle(world: &mut Snapshot) -> Step {
    for _ in 0..20 {
        let step = step(world);
        assert_eq!(step.violations, []);
        if step.writes.is_empty() {
            return step;
        }
        apply(world, &step.writes);
    }
    panic!("no end: {:?}", step(world).writes);
}

/// The same where CiliumNodes stay as they are, whatever is written of them.
fn settle_but_for_cilium(world: &mut Snapshot) {
    settle_but_for(world, &["CiliumNode"]);
}

fn settle_but_for(world: &mut Snapshot, kinds: &[&str]) {
    for _ in 0..20 {
        let mut writes = step(world).writes;
        writes.retain(|write| !kinds.contains(&write.object().0));
        if writes.is_empty() {
            return;
        }
        apply(world, &writes);
    }
    panic!("no end: {:?}", step(world).writes);
}

fn wants(world: &mut Snapshot, node: &str, pool: &str, v4: u64) {
    let demand = Demand { pool: pool.into(), v4, ..Demand::default() };
    world.node_pools.get_mut(node).unwrap().status.demand = vec![demand];
}

fn has(world: &Snapshot, node: &str) -> Vec<String> {
    world.node_pools[node].spec.blocks.iter().map(|b| format!("{} {} {}", b.pool, b.cidr, b.epoch)).collect()
}

/// Its agent has told what it holds.
fn told(world: &mut Snapshot, node: &str) {
    let status = &mut world.node_pools.get_mut(node).unwrap().status;
    (status.agent.instance, status.observed_generation) = ("i".into(), 1);
}

fn holding(cidr: &str, epoch: u64) -> Holding {
    Holding { cidr: cidr.into(), network: "p".into(), pool: "p".into(), epoch, ..Holding::default() }
}

const PLAIN: &str = r#"{"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "gateway": "10.0.0.1"}}"#;

#[test]
fn a_block_goes_to_the_ledger_first_and_comes_back_by_it() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    assert_eq!(world.shards["p.v4"].spec.cell_prefix, 26);
    assert_eq!(world.node_pools["a"].spec.pools["p"].ipv4.as_ref().unwrap().block_prefix, 26);
    wants(&mut world, "a", "p", 128);
    let first = step(&world);
    assert!(matches!(first.writes.as_slice(), [Write::Shard { .. }]), "{:?}", first.writes);
    apply(&mut world, &first.writes);
    settle(&mut world);
    assert_eq!(has(&world, "a"), ["p 10.0.0.0/26 1", "p 10.0.0.64/26 1"]);
    assert_eq!(world.node_pools["a"].spec.pools["p"].exclude, ["10.0.0.0"]);
    // Less is not taken away: it is given back.
    wants(&mut world, "a", "p", 64);
    assert_eq!(settle(&mut world).writes, []);
    let returned = Returning { cidr: "10.0.0.0/26".into(), pool: "p".into(), epoch: 1 };
    world.node_pools.get_mut("a").unwrap().status.returning = vec![Returning { epoch: 0, ..returned.clone() }, returned];
    wants(&mut world, "b", "p", 64);
    let marked = step(&world);
    apply(&mut world, &marked.writes);
    assert_eq!(world.shards["p.v4.10.0.0.0"].spec.cells["0"].state, CellState::Returning);
    assert_eq!(has(&world, "a").len(), 2);
    settle(&mut world);
    assert_eq!((has(&world, "a"), has(&world, "b")), (vec!["p 10.0.0.64/26 1".to_owned()], vec!["p 10.0.0.128/26 1".to_owned()]));
    // It comes again in another life.
    wants(&mut world, "b", "p", 128);
    settle(&mut world);
    assert_eq!(has(&world, "b"), ["p 10.0.0.0/26 2", "p 10.0.0.128/26 1"]);
}

#[test]
fn what_is_not_enough_is_shared_and_told() {
    let mut world = world(&[("p", PLAIN)], &["a", "b", "c"]);
    settle(&mut world);
    for (node, v4) in [("a", 64 * 9), ("b", 64), ("c", 64)] {
        wants(&mut world, node, "p", v4);
    }
    let end = settle(&mut world);
    assert_eq!(["a", "b", "c"].map(|n| has(&world, n).len()), [2, 1, 1]);
    let tally = end.tallies[&("p".to_owned(), Family::V4)];
    assert_eq!((tally.needed, tally.served, tally.granted, tally.in_deficit), (7, 0, 4, 1));
    let status = world.pools["p"].status.clone().unwrap();
    assert_eq!((status.ipv4.as_ref().unwrap().capacity.as_str(), status.ipv4.as_ref().unwrap().granted), ("253", 253));
    let told: Vec<_> = status.conditions.iter().map(|c| format!("{} {}", c.kind, c.status)).collect();
    assert_eq!(told, ["Ready True", "Exhausted True", "Overlap False"]);
}

#[test]
fn a_node_that_is_no_more_leaves_its_blocks_after_a_while() {
    let mut world = world(&[("p", PLAIN), ("m", r#"{"reclaim": "Manual", "ipv4": {"entries": [{"cidr": "10.1.0.0/24"}]}}"#)], &["a"]);
    settle(&mut world);
    let demand = |pool: &str| Demand { pool: pool.into(), v4: 64, ..Demand::default() };
    world.node_pools.get_mut("a").unwrap().status.demand = vec![demand("p"), demand("m")];
    settle(&mut world);
    // Made anew under its name.
    world.nodes.get_mut("a").unwrap().uid = "other".into();
    let waits = settle(&mut world);
    assert_eq!(waits.missing.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "uid-a".to_owned())]);
    world.gone.insert("uid-a".into(), Gone::Confirmed);
    settle(&mut world);
    assert_eq!((world.node_pools["a"].spec.node_uid.as_str(), has(&world, "a").len()), ("other", 0));
    let state = |world: &Snapshot, shard: &str| world.shards[shard].spec.cells["0"].state;
    assert_eq!(state(&world, "p.v4.10.0.0.0"), CellState::Granted);
    // The new one's agent has nothing of it.
    told(&mut world, "a");
    world.gone.insert("uid-a".into(), Gone::GraceOver);
    settle(&mut world);
    assert_eq!((state(&world, "p.v4.10.0.0.0"), state(&world, "m.v4.10.1.0.0")), (CellState::Free, CellState::Granted));
    world.gone.insert("uid-a".into(), Gone::ByHand);
    settle(&mut world);
    assert_eq!(state(&world, "m.v4.10.1.0.0"), CellState::Free);
}

/// Its Node was deleted for longer than the grace period, and it is there again: pods of two nodes may have one address.
#[test]
fn what_pods_of_another_node_have_is_not_handed_out() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "b", "p", 64);
    settle(&mut world);
    assert_eq!(has(&world, "b"), ["p 10.0.0.0/26 1"]);
    world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.get_mut("0").unwrap().epoch = 2;
    world.node_pools.get_mut("b").unwrap().spec.blocks[0].epoch = 2;
    told(&mut world, "a");
    world.node_pools.get_mut("a").unwrap().status.holding = vec![holding("10.0.0.0/26", 1)];
    let found = step(&world).violations;
    assert!(found.iter().any(|v| v.node() == Some("a")), "{found:?}");
    settle_but_for(&mut world, &[]);
    assert_eq!(world.node_pools["b"].spec.pools["p"].exclude, ["10.0.0.0/26"]);
    assert_eq!(world.node_pools["a"].spec.pools["p"].exclude, [""; 0]);
    // Its Node is deleted once more, and what it has said stands there.
    let node = world.nodes.remove("a").unwrap();
    settle_but_for(&mut world, &[]);
    assert_eq!(world.node_pools["b"].spec.pools["p"].exclude, ["10.0.0.0/26"]);
    world.nodes.insert("a".into(), node);
    world.node_pools.get_mut("a").unwrap().status.holding.clear();
    settle(&mut world);
    assert_eq!(world.node_pools["b"].spec.pools["p"].exclude, ["10.0.0.0"], "the network's own");
}

#[test]
fn a_pool_goes_when_nobody_has_anything_of_it() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 64);
    settle(&mut world);
    world.pools.get_mut("p").unwrap().deleting = true;
    wants(&mut world, "b", "p", 64);
    settle(&mut world);
    assert!(world.node_pools["a"].spec.pools["p"].ending && world.node_pools["b"].spec.pools.is_empty());
    assert!(world.pools.contains_key("p") && has(&world, "b").is_empty());
    world.node_pools.get_mut("a").unwrap().status.returning = vec![Returning { cidr: "10.0.0.0/26".into(), pool: "p".into(), epoch: 1 }];
    settle(&mut world);
    assert!(world.pools.is_empty() && world.node_pools["a"].spec.pools.is_empty());
}

#[test]
fn a_pool_that_shrinks_keeps_what_is_out() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 128);
    settle(&mut world);
    world.pools.insert("p".into(), pool(r#"{"ipv4": {"entries": [{"cidr": "10.0.0.0/26"}, {"ip": "10.0.0.70"}]}}"#));
    wants(&mut world, "b", "p", 64);
    settle(&mut world);
    assert_eq!((has(&world, "a").len(), has(&world, "b").len()), (2, 0));
    let exclude = &world.node_pools["a"].spec.pools["p"].exclude;
    assert_eq!(exclude.as_slice(), ["10.0.0.0", "10.0.0.63-10.0.0.69", "10.0.0.71-10.0.0.127"]);
}

#[test]
fn pools_of_one_network_share_cells_and_their_size() {
    let small = r#"{"network": "n", "ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 28}}"#;
    let mut world = world(&[("a", r#"{"network": "n", "ipv4": {"entries": [{"cidr": "10.0.0.0/25"}]}}"#), ("b", small)], &["x", "y"]);
    world.pools.get_mut("b").unwrap().created = "2026-02-01T00:00:00Z".into();
    settle(&mut world);
    let ready = &world.pools["b"].status.as_ref().unwrap().conditions[0];
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "BlockPrefix"), "{ready:?}");
    assert!(ready.message.contains("spec.ipv4.blockPrefix: 28, but the blocks of network \"n\" are /26"), "{ready:?}");
    world.pools.insert("b".into(), pool(&small.replace("28", "26")));
    settle(&mut world);
    assert_eq!(
        world.pools["b"].status.as_ref().unwrap().conditions[2].message,
        "each is assigned only once: 10.0.0.0/25 is in pool a as well"
    );
    wants(&mut world, "x", "a", 128);
    wants(&mut world, "y", "b", 256);
    settle(&mut world);
    assert_eq!(has(&world, "x"), ["a 10.0.0.0/26 1", "a 10.0.0.64/26 1"]);
    assert_eq!(has(&world, "y"), ["b 10.0.0.128/26 1", "b 10.0.0.192/26 1"]);
}

#[test]
fn what_is_wrong_keeps_what_was_right() {
    let mut world = world(&[("p", PLAIN)], &["a"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 64);
    settle(&mut world);
    let before = world.node_pools["a"].spec.clone();
    world.pools.insert("p".into(), pool(r#"{"ipv4": {"entries": [{"cidr": "10.0.0.1/24"}]}}"#));
    wants(&mut world, "a", "p", 640);
    settle(&mut world);
    assert_eq!(world.node_pools["a"].spec, before);
    let ready = &world.pools["p"].status.as_ref().unwrap().conditions[0];
    assert!(ready.message.starts_with("spec.ipv4.entries[0]: 10.0.0.1/24 has host bits set"), "{ready:?}");
}

#[test]
fn a_huge_pool_costs_nothing_and_holes_are_jumped() {
    let huge = r#"{"ipv6": {"entries": [{"cidr": "fd00::/48"}], "blockPrefix": 120}, "exclude": ["fd00::/49"], "reserved": ["fd00:0:0:8000::/120"]}"#;
    let mut world = world(&[("p", huge)], &["a"]);
    settle(&mut world);
    let demand = Demand { pool: "p".into(), v6: 256, ..Demand::default() };
    world.node_pools.get_mut("a").unwrap().status.demand = vec![demand];
    settle(&mut world);
    assert_eq!(has(&world, "a"), ["p fd00:0:0:8000::100/120 1"]);
}

#[test]
fn a_block_does_not_leave_a_spec_because_a_shard_was_not_seen() {
    let mut world = world(&[("p", PLAIN)], &["a"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 64);
    settle(&mut world);
    let mut blind = world.clone();
    blind.shards.retain(|name, _| name == "p.v4");
    let writes = step(&blind).writes;
    assert!(!writes.iter().any(|w| matches!(w, Write::NodePool { .. })), "{writes:?}");
    // And nobody else gets it.
    blind.nodes.insert("b".into(), NodeSeen { uid: "uid-b".into(), labels: BTreeMap::new() });
    blind.node_pools.insert("b".into(), NodePoolSeen { version: "1".into(), ..NodePoolSeen::default() });
    blind.node_pools.get_mut("b").unwrap().spec.node_uid = "uid-b".into();
    wants(&mut blind, "b", "p", 256);
    settle(&mut blind);
    assert_eq!((has(&blind, "a"), has(&blind, "b").len()), (vec!["p 10.0.0.0/26 1".to_owned()], 3));
}

#[test]
fn one_address_of_a_cell_and_its_owner() {
    let (owner, other) = (Owner { claim: "ns/web".into(), ..Owner::default() }, Owner { claim: "ns/db".into(), ..Owner::default() });
    let mut cell = Cell { epoch: 7, ..Cell::default() };
    let (ip, place) = ("10.0.0.70".parse().unwrap(), CellPosition::of("10.0.0.64".parse().unwrap(), 26));
    assign(&mut cell, &place, ip, "p", &owner, 0).unwrap();
    assert!(matches!(assign(&mut cell, &place, ip, "p", &other, 0), Err(SharedError::Owned { .. })));
    delegate(&mut cell, &place, ip, "a", "uid-a").unwrap();
    assert_eq!(cell.ips["6"].hold.epoch, 8);
    assert!(matches!(delegate(&mut cell, &place, ip, "b", "uid-b"), Err(SharedError::Delegated { .. })));
    assert!(matches!(release(&mut cell, &place, ip), Err(SharedError::Delegated { .. })));

    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "b", "p", 64);
    settle(&mut world);
    world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.insert("1".into(), cell);
    wants(&mut world, "b", "p", 640);
    settle(&mut world);
    let ips: Vec<_> = world.node_pools["a"].spec.ips.iter().map(|i| (i.ip.as_str(), i.epoch, i.owner.claim.as_str())).collect();
    assert_eq!(ips, [("10.0.0.70", 8, "ns/web")]);
    assert_eq!(has(&world, "b").len(), 3);
    let back = Returning { cidr: "10.0.0.70/32".into(), pool: "p".into(), epoch: 8 };
    world.node_pools.get_mut("a").unwrap().status.returning = vec![back];
    settle(&mut world);
    assert!(world.node_pools["a"].spec.ips.is_empty());
    let cell = world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.get_mut("1").unwrap();
    assert_eq!((cell.ips["6"].hold.node.as_str(), cell.ips["6"].owner.claim.as_str()), ("", "ns/web"));
    release(cell, &place, ip).unwrap();
    assert_eq!((cell.state, cell.epoch), (CellState::Free, 8));
    settle(&mut world);
    assert_eq!(has(&world, "b")[1], "p 10.0.0.64/26 9");
}

#[test]
fn two_nodes_of_an_address_whose_pod_migrates() {
    let owner = Owner { claim: "ns/vm".into(), ..Owner::default() };
    let (ip, place) = ("10.0.0.70".parse().unwrap(), CellPosition::of("10.0.0.64".parse().unwrap(), 26));
    let mut cell = Cell { epoch: 7, ..Cell::default() };
    assign(&mut cell, &place, ip, "p", &owner, 0).unwrap();
    assert!(matches!(join(&mut cell, &place, ip, "b", "uid-b"), Err(SharedError::Nobody { .. })));
    // A life that is for pods that do not migrate is one node's.
    let mut plain = cell.clone();
    delegate(&mut plain, &place, ip, "a", "uid-a").unwrap();
    assert!(matches!(join(&mut plain, &place, ip, "b", "uid-b"), Err(SharedError::Delegated { .. })));
    delegate_for(&mut cell, &place, ip, ("a", "uid-a"), true).unwrap();
    // Who is to return it migrates no more.
    let mut ending = cell.clone();
    recall(&mut ending, &place, ip, "uid-a").unwrap();
    assert!(matches!(join(&mut ending, &place, ip, "b", "uid-b"), Err(SharedError::Delegated { .. })));
    join(&mut cell, &place, ip, "b", "uid-b").unwrap();
    let both = cell.clone();
    join(&mut cell, &place, ip, "b", "uid-b").unwrap();
    delegate(&mut cell, &place, ip, "a", "uid-a").unwrap();
    assert_eq!((cell == both, cell.ips["6"].holds().map(|hold| hold.epoch).collect::<Vec<_>>()), (true, vec![8, 9]));
    assert!(matches!(join(&mut cell, &place, ip, "c", "uid-c"), Err(SharedError::Delegated { .. })));
    assert!(matches!(delegate(&mut cell, &place, ip, "c", "uid-c"), Err(SharedError::Delegated { .. })));
    assert!(matches!(release(&mut cell, &place, ip), Err(SharedError::Delegated { .. })));
    // In whichever order they return it, no life comes twice.
    for (first, second) in [(8, 9), (9, 8)] {
        let mut cell = both.clone();
        take_back(&mut cell, &place, ip, first).unwrap();
        let left: Vec<_> = cell.ips["6"].holds().map(|hold| hold.epoch).collect();
        assert_eq!(left, [second]);
        join(&mut cell, &place, ip, "c", "uid-c").unwrap();
        assert_eq!(cell.ips["6"].last_epoch(), 10);
        take_back(&mut cell, &place, ip, 10).unwrap();
        take_back(&mut cell, &place, ip, second).unwrap();
        assert_eq!((cell.ips["6"].is_held(), cell.ips["6"].last_epoch()), (false, 10));
        release(&mut cell, &place, ip).unwrap();
        assert_eq!((cell.state, cell.epoch), (CellState::Free, 10));
    }
    // It is as the API server keeps it.
    let text = serde_json::to_value(&both).unwrap();
    assert_eq!((&text["ips"]["6"]["node"], &text["ips"]["6"]["second"]["node"]), (&"a".into(), &"b".into()));
    assert_eq!(serde_json::from_value::<Cell>(text).unwrap(), both);
}

#[test]
fn what_pods_wait_for_is_written_first() {
    let mut world = world(&[("p", PLAIN)], &["a", "b", "c"]);
    settle(&mut world);
    for node in ["a", "b", "c"] {
        wants(&mut world, node, "p", 64);
    }
    for node in ["d", "e"] {
        world.nodes.insert(node.into(), NodeSeen { uid: format!("uid-{node}"), labels: BTreeMap::new() });
    }
    world.node_pools.get_mut("c").unwrap().status.demand[0].waiting = true;
    let objects = |writes: &[Write]| writes.iter().map(|w| w.object().1.to_owned()).collect::<Vec<_>>();
    let first = step(&world).writes;
    assert_eq!(objects(&first), ["p.v4.10.0.0.0", "d", "e"]);
    let Write::Shard { spec, .. } = &first[0] else { panic!("{first:?}") };
    assert_eq!(spec.cells["0"].node, "c");
    apply(&mut world, &first[..1]);
    let next = objects(&step(&world).writes);
    assert_eq!(next, ["c", "d", "e", "a", "b", "p"]);
}

#[test]
fn what_somebody_else_writes_is_told() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 64);
    settle(&mut world);
    let stolen = GrantedBlock { cidr: "10.0.0.0/26".into(), network: "p".into(), pool: "p".into(), epoch: 1 };
    world.node_pools.get_mut("b").unwrap().spec.blocks = vec![stolen.clone(), GrantedBlock { cidr: "10.0.0.192/27".into(), ..stolen }];
    let found: Vec<String> = audit(&world).iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().any(|v| v.contains("10.0.0.192/27")), "{found:#?}");
}

#[test]
fn excluded_is_what_is_left() {
    let spec: IpPoolSpec =
        serde_json::from_str(r#"{"ipv4": {"entries": [{"range": "10.0.0.10-10.0.0.20"}]}, "exclude": ["10.0.0.15"]}"#).unwrap();
    let pool = check("p", &spec).unwrap();
    let block: Run = "10.0.0.0/26".parse().unwrap();
    let texts: Vec<String> = pool.excluded(&block).iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.0-10.0.0.9", "10.0.0.15", "10.0.0.21-10.0.0.63"]);
}

/// What was brought over for one attachment has no owner who could come again: it is free when its node has returned it, or is no more.
#[test]
fn an_address_of_an_attachment_is_free_when_its_node_has_returned_it() {
    let place = CellPosition::of("10.0.0.64".parse().unwrap(), 26);
    for returned in [true, false] {
        let mut cell = Cell::default();
        for (ip, name) in [("10.0.0.70", "n/one"), ("10.0.0.71", "n/two")] {
            let holder = api::Holder { container_id: "c1".into(), ifname: "net1".into() };
            let owner = Owner { pod: name.into(), attachment: Some(holder), ..Owner::default() };
            assign(&mut cell, &place, ip.parse().unwrap(), "p", &owner, 0).unwrap();
            delegate(&mut cell, &place, ip.parse().unwrap(), "a", "uid-a").unwrap();
        }
        let mut world = world(&[("p", PLAIN)], &["a", "b"]);
        settle(&mut world);
        wants(&mut world, "b", "p", 64);
        settle(&mut world);
        world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.insert("1".into(), cell);
        wants(&mut world, "b", "p", 128);
        settle(&mut world);
        assert_eq!(has(&world, "b")[1], "p 10.0.0.128/26 1");
        let cell = |world: &Snapshot| world.shards["p.v4.10.0.0.0"].spec.cells["1"].clone();
        if returned {
            for (ip, left) in [("10.0.0.70/32", 1), ("10.0.0.71/32", 0)] {
                let back = Returning { cidr: ip.into(), pool: "p".into(), epoch: 1 };
                world.node_pools.get_mut("a").unwrap().status.returning = vec![back];
                settle(&mut world);
                let owned = cell(&world).ips.values().filter(|ip| ip.owner != Owner::default()).count();
                assert_eq!((world.node_pools["a"].spec.ips.len(), owned), (left, left), "{ip}");
            }
        } else {
            world.nodes.remove("a");
            world.gone.insert("uid-a".into(), Gone::GraceOver);
            settle(&mut world);
        }
        assert_eq!((cell(&world).state, cell(&world).epoch), (CellState::Free, 1), "returned: {returned}");
        wants(&mut world, "b", "p", 192);
        settle(&mut world);
        assert!(has(&world, "b").contains(&"p 10.0.0.64/26 2".to_owned()), "{:?}", has(&world, "b"));
    }
}

#[test]
fn a_node_that_is_made_anew_has_what_its_pods_have() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 128);
    settle(&mut world);
    let owner = Owner { pod: "ns/web".into(), ..Owner::default() };
    let (ip, place, mut cell) = ("10.0.0.130".parse().unwrap(), CellPosition::of("10.0.0.128".parse().unwrap(), 26), Cell::default());
    assign(&mut cell, &place, ip, "p", &owner, 0).unwrap();
    delegate(&mut cell, &place, ip, "a", "uid-a").unwrap();
    world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.insert("2".into(), cell);
    settle(&mut world);
    world.nodes.get_mut("a").unwrap().uid = "other".into();
    world.gone.insert("uid-a".into(), Gone::GraceOver);
    settle(&mut world);
    // Its agent has said nothing yet: whatever is over, nothing is free.
    let states = |world: &Snapshot| {
        let cells = &world.shards["p.v4.10.0.0.0"].spec.cells;
        let node_of = |number: &str| format!("{:?} {}", cells[number].state, cells[number].node_uid);
        (node_of("0"), node_of("1"), cells["2"].ips["2"].hold.node_uid.clone())
    };
    let before = ("Granted uid-a".to_owned(), "Granted uid-a".to_owned(), "uid-a".to_owned());
    assert_eq!((states(&world), has(&world, "a").len()), (before, 0));
    told(&mut world, "a");
    let status = &mut world.node_pools.get_mut("a").unwrap().status;
    status.holding = vec![holding("10.0.0.64/26", 1), Holding { owner, ..holding("10.0.0.130/32", 1) }];
    settle(&mut world);
    assert_eq!(states(&world), ("Free ".to_owned(), "Granted other".to_owned(), "other".to_owned()));
    assert_eq!(has(&world, "a"), ["p 10.0.0.64/26 1"]);
    let ips: Vec<_> = world.node_pools["a"].spec.ips.iter().map(|ip| (ip.ip.as_str(), ip.epoch)).collect();
    assert_eq!(ips, [("10.0.0.130", 1)]);
}

#[test]
fn a_node_that_wants_everything_gets_a_little_at_a_time_and_not_everything() {
    let huge = r#"{"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}]}, "ipv6": {"entries": [{"cidr": "fd00::/48"}], "blockPrefix": 120}}"#;
    let mut world = world(&[("p", huge)], &["a", "b"]);
    settle(&mut world);
    let wants = |v6| vec![Demand { pool: "p".into(), v6, ..Demand::default() }];
    world.node_pools.get_mut("a").unwrap().status.demand = wants(u64::MAX);
    world.node_pools.get_mut("b").unwrap().status.demand = wants(256);
    let first = step(&world);
    assert_eq!(first.tallies[&("p".to_owned(), Family::V6)].served, 65);
    apply(&mut world, &first.writes);
    assert_eq!(step(&world).tallies[&("p".to_owned(), Family::V6)].served, 64);
    let pool = check("p", world.pools["p"].spec.as_ref().unwrap()).unwrap();
    let most = demand::wanted(&wants(u64::MAX)[0], Family::V6, &pool);
    assert_eq!(most, (api::MOST_BLOCKS, None));
}

#[test]
fn nothing_is_granted_where_a_shard_cannot_be_read() {
    let two = r#"{"ipv4": {"entries": [{"cidr": "10.0.0.0/25"}, {"cidr": "10.1.0.0/25"}]}}"#;
    let mut world = world(&[("p", two)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 64);
    settle(&mut world);
    // As it is seen where a cell has a state that this release does not know.
    world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec = api::IpLedgerShardSpec::default();
    // Neither is it granted nor does it stand in the way of others.
    for wanted in [1, 3] {
        wants(&mut world, "b", "p", 64 * wanted);
        for _ in 0..9 {
            let next = step(&world);
            assert_eq!(next.violations, [Violation::Unreadable { shard: "p.v4.10.0.0.0".into() }]);
            apply(&mut world, &next.writes);
        }
        assert_eq!(step(&world).writes, []);
        assert_eq!(has(&world, "b").len(), usize::try_from(wanted.min(2)).unwrap());
    }
    assert_eq!(
        (has(&world, "a"), has(&world, "b")),
        (vec!["p 10.0.0.0/26 1".into()], vec!["p 10.1.0.0/26 1".into(), "p 10.1.0.64/26 1".into()])
    );
    // And where that which says how large cells are cannot be read, it is not made again.
    world.shards.get_mut("p.v4").unwrap().spec.base.clear();
    assert!(!step(&world).writes.iter().any(|write| matches!(write, Write::Shard { .. })), "{:?}", step(&world).writes);
}

#[test]
fn what_one_pool_of_a_network_keeps_back_no_other_one_gives() {
    let one = r#"{"network": "n", "reserved": ["10.0.0.64/28"], "ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "gateway": "10.0.0.129"}}"#;
    let other = r#"{"network": "n", "ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "gateway": "10.0.0.5"}, "allowFirstIP": true, "allowLastIP": true}"#;
    let mut world = world(&[("a", one), ("b", other)], &["x"]);
    settle(&mut world);
    wants(&mut world, "x", "b", 256);
    settle(&mut world);
    assert_eq!(has(&world, "x"), ["b 10.0.0.0/26 1", "b 10.0.0.128/26 1", "b 10.0.0.192/26 1"]);
    assert_eq!(world.node_pools["x"].spec.pools["b"].exclude, ["10.0.0.129"]);
}

/// How a machine outside is found out goes to the nodes.
#[test]
fn conflicts_are_looked_for_where_the_pool_says_so() {
    let of = |value: &str| format!(r#"{{"ipv4": {{"entries": [{{"cidr": "10.0.0.0/24"}}]}}{value}}}"#);
    let spec = |value: &str| serde_json::from_str(&of(value)).unwrap();
    assert!(!check("p", &spec("")).unwrap().spec.probe && !check("p", &spec(r#", "conflictDetection": "off""#)).unwrap().spec.probe);
    assert!(!check("p", &spec(r#", "conflictDetection": "passive""#)).unwrap().spec.probe);
    let (probe, passive) = (r#", "network": "n", "conflictDetection": "probe""#, r#", "network": "m", "conflictDetection": "passive""#);
    let mut world = world(&[("off", &of("")), ("p", &of(probe)), ("q", &of(passive))], &["x"]);
    settle(&mut world);
    let pools = &world.node_pools["x"].spec.pools;
    assert_eq!(pools["p"].conflict_detection, api::ConflictDetection::Probe);
    assert_eq!(pools["q"].conflict_detection, api::ConflictDetection::Passive);
    assert!(!serde_json::to_string(&pools["off"]).unwrap().contains("conflictDetection"), "an object grows by nothing");
}
