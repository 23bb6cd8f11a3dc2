//! Pods wait, and other nodes have what they do not use.

use super::*;

fn tells(world: &mut Snapshot, node: &str, v4: u64, in_use_v4: u64) {
    let demand = Demand { pool: "p".into(), v4, in_use_v4, ..Demand::default() };
    world.node_pools.get_mut(node).unwrap().status.demand = vec![demand];
}

/// Its pods wait for so many blocks; it wants two more in store.
fn waits(world: &mut Snapshot, node: &str, blocks: u64) {
    tells(world, node, (blocks + 2) * 4, 0);
    world.node_pools.get_mut(node).unwrap().status.demand[0].waiting = true;
}

/// How many blocks a node is told to keep.
fn keeps(world: &Snapshot, node: &str) -> Option<u64> {
    world.node_pools[node].spec.pools["p"].ipv4.as_ref().unwrap().keep
}

/// Whatever it has above so many blocks it gives back.
fn gives_back(world: &mut Snapshot, node: &str, kept: usize) {
    let seen = world.node_pools.get_mut(node).unwrap();
    let returning = |b: &GrantedBlock| Returning { cidr: b.cidr.clone(), pool: b.pool.clone(), epoch: b.epoch };
    seen.status.returning = seen.spec.blocks.iter().skip(kept).map(returning).collect();
}

/// Four blocks of four addresses, of which these nodes have so many.
fn scene(scaling: &str, has: &[(&str, u64)]) -> Snapshot {
    let spec = format!(r#"{{"ipv4": {{"entries": [{{"cidr": "10.0.0.0/28"}}], "blockPrefix": 30}}, "scaling": {scaling}}}"#);
    let names: Vec<&str> = has.iter().map(|(name, _)| *name).chain(["w"]).collect();
    let mut world = world(&[("p", &spec)], &names);
    settle(&mut world);
    for (name, blocks) in has {
        tells(&mut world, name, blocks * 4, 0);
        settle(&mut world);
        assert_eq!(world.node_pools[*name].spec.blocks.len() as u64, *blocks);
    }
    world
}

#[test]
fn who_has_more_than_it_wants_is_asked_first_and_for_no_more_than_is_waited_for() {
    let mut world = scene("{}", &[("a", 1), ("b", 3)]);
    tells(&mut world, "b", 4, 1);
    waits(&mut world, "w", 1);
    let step = settle(&mut world);
    // The other one may have to give what it has in store, if this one does not answer.
    assert_eq!((keeps(&world, "b"), keeps(&world, "a"), keeps(&world, "w")), (Some(2), Some(0), None));
    assert_eq!(step.tallies[&("p".to_owned(), Family::V4)].asked, 2);
    let condition = world.pools["p"].status.as_ref().unwrap().conditions.iter().find(|c| c.kind == EXHAUSTED).unwrap();
    assert!(condition.message.contains("1 node needs 3 more IPv4 blocks than there are, 2 others are asked"), "{}", condition.message);
    gives_back(&mut world, "b", 2);
    settle(&mut world);
    assert_eq!((has(&world, "b").len(), has(&world, "w").len()), (2, 1));
    assert_eq!(["a", "b", "w"].map(|node| keeps(&world, node)), [None; 3]);
}

/// Who was asked has one address in use in each of its blocks, as nobody else knows: others are asked besides.
#[test]
fn who_gives_nothing_is_in_nobodys_way() {
    let mut world = scene("{}", &[("a", 2), ("b", 1), ("c", 1)]);
    tells(&mut world, "a", 4, 2);
    waits(&mut world, "w", 1);
    let writes = step(&world).writes;
    apply(&mut world, &writes);
    assert_eq!(["a", "b", "c"].map(|node| keeps(&world, node)), [Some(1), None, None]);
    settle(&mut world);
    assert_eq!(["a", "b", "c"].map(|node| keeps(&world, node)), [Some(1), Some(0), Some(0)]);
    gives_back(&mut world, "c", 0);
    settle(&mut world);
    assert_eq!((has(&world, "w").len(), keeps(&world, "a"), keeps(&world, "b")), (1, None, None));
}

#[test]
fn what_is_on_its_way_back_is_not_asked_for_again() {
    let mut world = scene("{}", &[("a", 2), ("b", 2)]);
    waits(&mut world, "w", 1);
    settle(&mut world);
    assert_eq!((keeps(&world, "a"), keeps(&world, "b")), (Some(1), Some(1)));
    gives_back(&mut world, "a", 1);
    // The cell is returning, and the block in the spec yet.
    let writes = step(&world).writes;
    apply(&mut world, &writes);
    assert_eq!((has(&world, "w").len(), keeps(&world, "b")), (0, None));
    settle(&mut world);
    assert_eq!((has(&world, "a").len(), has(&world, "b").len(), has(&world, "w").len()), (1, 2, 1));
}

#[test]
fn what_is_in_use_and_what_a_node_has_at_least_stays() {
    let mut world = scene("{}", &[("a", 2), ("b", 2)]);
    tells(&mut world, "a", 8, 5);
    tells(&mut world, "b", 8, 4);
    waits(&mut world, "w", 2);
    settle(&mut world);
    assert_eq!((keeps(&world, "a"), keeps(&world, "b")), (None, Some(1)));
    let mut world = scene(r#"{"minAllocate": 5}"#, &[("a", 2), ("b", 2)]);
    waits(&mut world, "w", 1);
    settle(&mut world);
    assert_eq!((keeps(&world, "a"), keeps(&world, "b")), (None, None));
}

/// Two ranges of a network overlap, and a node has a stock of the other one: pods that wait get its addresses as well.
#[test]
fn a_node_with_a_stock_of_an_overlapping_range_is_asked_for_all_of_it() {
    let range = |cidr: &str| {
        let ipv4 = format!(r#"{{"entries": [{{"cidr": "{cidr}"}}], "blockPrefix": 30}}"#);
        format!(r#"{{"network": "net", "ipv4": {ipv4}, "scaling": {{"preAllocate": 0}}}}"#)
    };
    let mut world = world(&[("p", &range("10.0.0.0/28")), ("q", &range("10.0.0.8/30"))], &["a", "b", "w"]);
    settle(&mut world);
    // The third block of four is of both ranges.
    tells(&mut world, "a", 12, 1);
    settle(&mut world);
    tells(&mut world, "b", 4, 0);
    settle(&mut world);
    assert_eq!((has(&world, "a").len(), has(&world, "b").len()), (3, 1));
    waits_of(&mut world, "q");
    settle(&mut world);
    assert_eq!((keeps(&world, "a"), keeps(&world, "b")), (Some(1), None));
    // Who is asked keeps no stock.
    tells(&mut world, "a", 4, 1);
    gives_back(&mut world, "a", 1);
    settle(&mut world);
    assert!(has(&world, "w")[0].starts_with("q 10.0.0.8/30 "), "{:?}", has(&world, "w"));
    assert_eq!(keeps(&world, "a"), None);
}

/// Pods of the node `w` wait for a block of a pool.
fn waits_of(world: &mut Snapshot, pool: &str) {
    let demand = Demand { pool: pool.into(), v4: 4, waiting: true, ..Demand::default() };
    world.node_pools.get_mut("w").unwrap().status.demand = vec![demand];
}

#[test]
fn nobody_is_asked_where_nobody_waits() {
    let mut world = scene("{}", &[("a", 2), ("b", 2)]);
    tells(&mut world, "w", 4, 0);
    settle(&mut world);
    assert_eq!((keeps(&world, "a"), keeps(&world, "b")), (None, None));
    waits(&mut world, "w", 1);
    waits(&mut world, "a", 2);
    settle(&mut world);
    assert_eq!((keeps(&world, "a"), keeps(&world, "b")), (None, Some(1)));
    // It has one by now, and wants more in store: that is nobody's.
    gives_back(&mut world, "b", 1);
    settle(&mut world);
    assert_eq!((has(&world, "w").len(), keeps(&world, "b")), (1, None));
}

/// Pods of more nodes than are asked at a time lie in all of their blocks: the question is not theirs for ever.
#[test]
fn who_tells_that_something_is_in_each_of_its_blocks_keeps_no_question_from_others() {
    let spec = r#"{"ipv4": {"entries": [{"cidr": "10.0.0.0/22"}], "blockPrefix": 30}}"#;
    let names: Vec<String> = (0..70).map(|n| format!("n{n:02}")).collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).chain(["w", "z"]).collect();
    let mut world = world(&[("p", spec)], &nodes);
    settle(&mut world);
    for node in nodes.iter().filter(|node| **node != "w") {
        // Three of each and a last one for all that is left.
        tells(&mut world, node, if *node == "z" { (256 - 70 * 3) * 4 } else { 12 }, 0);
    }
    settle(&mut world);
    settle(&mut world);
    assert_eq!((has(&world, "n69").len(), has(&world, "z").len()), (3, 46));
    let spread = |world: &mut Snapshot, node: &str, blocks: u64| {
        tells(world, node, 12, 3);
        world.node_pools.get_mut(node).unwrap().status.demand[0].blocks_v4 = blocks;
    };
    let asked = |world: &Snapshot| names.iter().filter(|node| keeps(world, node).is_some()).count();
    // They were asked by what they told before, and then tell that they have none to give. The last one has, and more in use.
    names.iter().for_each(|node| spread(&mut world, node, 1));
    tells(&mut world, "z", 46 * 4, 45 * 4);
    waits(&mut world, "w", 64);
    settle(&mut world);
    assert_eq!((asked(&world), keeps(&world, "z")), (64, None));
    names.iter().for_each(|node| spread(&mut world, node, 3));
    settle(&mut world);
    assert_eq!((asked(&world), keeps(&world, "z")), (0, Some(45)));
    gives_back(&mut world, "z", 45);
    settle(&mut world);
    assert_eq!((has(&world, "w").len(), keeps(&world, "z")), (1, None));
}

/// Most of a range is out, and a node lacks more than it gets in one step: what is left of its need is what its pods wait for, not its stock.
#[test]
fn a_large_stock_hides_no_pod_that_waits() {
    let ipv4 = r#"{"entries": [{"range": "10.0.0.1-10.0.0.40"}], "blockPrefix": 32}"#;
    let spec = format!(r#"{{"ipv4": {ipv4}, "scaling": {{"preAllocate": 0, "maxStock": 64}}}}"#);
    let mut world = world(&[("p", &spec)], &["a", "w"]);
    settle(&mut world);
    tells(&mut world, "a", 38, 38);
    settle(&mut world);
    let demand = Demand { pool: "p".into(), v4: 65, stock_v4: 64, waiting: true, ..Demand::default() };
    world.node_pools.get_mut("w").unwrap().status.demand = vec![demand];
    let step = settle(&mut world);
    assert_eq!((has(&world, "w").len(), step.tallies[&("p".to_owned(), Family::V4)].in_deficit), (1, 0));
}

/// What a node gives back lies in two pools: pods that wait for one of them get it before it is stock of the other one.
#[test]
fn pods_that_wait_come_before_the_stock_of_an_overlapping_range() {
    let range = |cidr: &str, scaling: &str| {
        let ipv4 = format!(r#"{{"entries": [{{"cidr": "{cidr}"}}], "blockPrefix": 30}}"#);
        format!(r#"{{"network": "net", "ipv4": {ipv4}, "scaling": {scaling}}}"#)
    };
    // The pool with the stock is the first one.
    let pools = [("a", range("10.0.0.0/29", r#"{"preAllocate": 8}"#)), ("p", range("10.0.0.4/30", r#"{"preAllocate": 0}"#))];
    let mut world = world(&[("a", &pools[0].1), ("p", &pools[1].1)], &["n", "w"]);
    settle(&mut world);
    wants(&mut world, "n", "a", 8);
    settle(&mut world);
    waits_of(&mut world, "p");
    settle(&mut world);
    let terms = |world: &Snapshot| world.node_pools["n"].spec.pools["a"].ipv4.as_ref().unwrap().keep;
    assert_eq!((has(&world, "n").len(), terms(&world)), (2, Some(0)));
    // It has nothing in use, and wants as much as before.
    gives_back(&mut world, "n", 0);
    settle(&mut world);
    assert_eq!(has(&world, "n").len(), 1);
    assert!(has(&world, "w")[0].starts_with("p 10.0.0.4/30 "), "{:?}", has(&world, "w"));
    assert_eq!(terms(&world), None);
}

/// A node whose pods have all gone keeps its blocks for the pool's release delay, and has nothing more to tell of them.
#[test]
fn a_node_that_tells_of_no_demand_is_asked() {
    let mut world = scene("{}", &[("a", 4)]);
    world.node_pools.get_mut("a").unwrap().status.demand.clear();
    waits(&mut world, "w", 1);
    settle(&mut world);
    assert_eq!(keeps(&world, "a"), None, "it has not told yet");
    told(&mut world, "a");
    settle(&mut world);
    assert_eq!(keeps(&world, "a"), Some(3));
    gives_back(&mut world, "a", 3);
    settle(&mut world);
    assert_eq!((has(&world, "w").len(), keeps(&world, "a")), (1, None));
}
