//! Ledgers that somebody has deleted, or put an old one in their place.

use super::*;

#[test]
fn a_lost_ledger_is_made_again_from_what_nodes_have() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 128);
    settle(&mut world);
    let before = world.shards.clone();
    world.shards.clear();
    ["a", "b"].iter().for_each(|node| told(&mut world, node));
    wants(&mut world, "b", "p", 64);
    settle(&mut world);
    assert_eq!(has(&world, "a"), ["p 10.0.0.0/26 1", "p 10.0.0.64/26 1"]);
    assert_eq!(has(&world, "b"), ["p 10.0.0.128/26 1"]);
    // An old one in its place.
    world.shards = before;
    settle(&mut world);
    assert_eq!(has(&world, "b"), ["p 10.0.0.128/26 1"]);
    assert_eq!(audit(&world), []);
}

#[test]
fn without_ledger_and_specs_nothing_is_granted_until_everybody_has_told() {
    let mut world = world(&[("p", PLAIN)], &["a", "b", "c", "d"]);
    world.ledgers.insert("p.v4".into());
    world.first_epoch = 100;
    settle(&mut world);
    assert!(world.shards["p.v4"].spec.gathering);
    let owner = Owner { claim: "ns/web".into(), ..Owner::default() };
    let all = [("a", vec![holding("10.0.0.0/26", 7)]), ("b", vec![Holding { owner: owner.clone(), ..holding("10.0.0.130/32", 3) }])];
    for (node, held) in all {
        world.node_pools.get_mut(node).unwrap().status.holding = held;
        told(&mut world, node);
        wants(&mut world, node, "p", 128);
        settle(&mut world);
    }
    let ready = |world: &Snapshot| world.pools["p"].status.as_ref().unwrap().conditions[0].clone();
    assert_eq!(
        (ready(&world).reason.as_str(), ready(&world).message.contains("2 nodes have not: c, d:")),
        (GATHERING, true),
        "{:?}",
        ready(&world)
    );
    // What is told is in the ledger and in the spec, whoever is silent yet.
    let ips: Vec<_> = world.node_pools["b"].spec.ips.iter().map(|ip| (ip.ip.as_str(), ip.epoch, &ip.owner)).collect();
    assert_eq!((has(&world, "a"), has(&world, "b"), ips), (vec!["p 10.0.0.0/26 7".to_owned()], vec![], vec![("10.0.0.130", 3, &owner)]));
    // One has never had an agent, and somebody says so; the other one's Node is deleted.
    world.by_hand.insert("uid-c".into());
    assert_eq!(settle(&mut world).tallies[&("p".to_owned(), Family::V4)].served, 0);
    world.nodes.remove("d");
    settle(&mut world);
    assert_eq!((ready(&world).reason.as_str(), world.shards["p.v4"].spec.gathering), ("Granting", false));
    assert_eq!(has(&world, "a"), ["p 10.0.0.0/26 7", "p 10.0.0.192/26 101"]);
    assert_eq!(has(&world, "b"), ["p 10.0.0.64/26 101"]);
}

/// A Node was deleted, and everything was lost, in one quarter of an hour.
#[test]
fn who_was_gone_before_a_ledger_was_lost_is_waited_for_as_its_blocks_were() {
    let mut world = world(&[("p", PLAIN), ("m", r#"{"reclaim": "Manual", "ipv4": {"entries": [{"cidr": "10.1.0.0/24"}]}}"#)], &["a"]);
    world.ledgers.extend(["p.v4".into(), "m.v4".into()]);
    world.departed.insert("uid-x".into(), "x".into());
    settle(&mut world);
    told(&mut world, "a");
    wants(&mut world, "a", "p", 64);
    let waits = settle(&mut world);
    assert_eq!((has(&world, "a"), waits.missing), (vec![], [("x".to_owned(), "uid-x".to_owned())].into()));
    let ready = |world: &Snapshot, pool: &str| world.pools[pool].status.as_ref().unwrap().conditions[0].message.clone();
    let next = "; 1 Node was deleted, but its pods may still run: x: wait for the operator's --grace, or run `netloom ipam reclaim NODE`";
    assert!(ready(&world, "p").contains(next) && !ready(&world, "p").contains("have not"), "{}", ready(&world, "p"));
    assert!(ready(&world, "m").contains("may still run: x: run `netloom ipam reclaim NODE`"), "{}", ready(&world, "m"));
    let gathers = |world: &Snapshot, root: &str| world.shards[root].spec.gathering;
    for (gone, gathering, settled) in [(Gone::Confirmed, true, 0), (Gone::GraceOver, false, 0), (Gone::ByHand, false, 1)] {
        world.gone.insert("uid-x".into(), gone);
        let end = settle(&mut world);
        let by_hand = gone == Gone::ByHand;
        assert_eq!((gathers(&world, "p.v4"), gathers(&world, "m.v4")), (gathering, !by_hand), "{gone:?}");
        // Before both networks are what they were nobody knows that it has nothing.
        assert_eq!(end.settled.len(), settled, "{gone:?}");
    }
    assert_eq!(has(&world, "a"), ["p 10.0.0.0/26 1"]);
}

/// A network is deleted with all that tells of it, and its mark stays: whose blocks were of others is not remembered for ever.
#[test]
fn a_ledger_that_nobody_misses_keeps_no_mark_of_a_node() {
    let mut world = world(&[("p", PLAIN)], &["a"]);
    settle(&mut world);
    world.ledgers.extend(["p.v4".into(), "never.v4".into()]);
    world.departed.insert("uid-x".into(), "x".into());
    world.gone.insert("uid-x".into(), Gone::GraceOver);
    assert!(settle(&mut world).settled.is_empty(), "a node that has not told may have something of it");
    told(&mut world, "a");
    world.node_pools.get_mut("a").unwrap().status.holding = vec![Holding { network: "never".into(), ..holding("10.2.0.0/26", 1) }];
    assert!(settle(&mut world).settled.is_empty(), "a node has something of it");
    world.node_pools.get_mut("a").unwrap().status.holding.clear();
    assert_eq!(settle(&mut world).settled, ["uid-x".to_owned()].into());
    // It comes again: who has what is asked before anything of it is granted, and until then nobody is forgotten.
    world.pools.insert("never".into(), pool(PLAIN));
    assert!(step(&world).settled.is_empty());
    let root = step(&world).writes.into_iter().find_map(|write| match write {
        Write::Shard { name, spec, .. } if name == "never.v4" => Some(spec.gathering),
        _ => None,
    });
    assert_eq!(root, Some(true));
    world.pools.insert("never".into(), PoolSeen { spec: Err("spec: no".into()), ..pool(PLAIN) });
    assert!(step(&world).settled.is_empty(), "what cannot be read may be of it");
}

/// Whom somebody has spoken of when its Node was there is not waited for either.
#[test]
fn nobody_waits_for_who_was_said_to_run_nothing() {
    let mut world = world(&[("p", PLAIN)], &["a"]);
    world.ledgers.insert("p.v4".into());
    world.departed.extend([("uid-x".into(), "x".into()), ("uid-a".into(), "a".into())]);
    settle(&mut world);
    told(&mut world, "a");
    settle(&mut world);
    assert!(world.shards["p.v4"].spec.gathering);
    world.by_hand.insert("uid-x".into());
    let end = settle(&mut world);
    assert!(!world.shards["p.v4"].spec.gathering);
    assert_eq!(end.settled, ["uid-a".to_owned()].into(), "who is there has not gone");
}

#[test]
fn who_goes_and_has_something_is_to_be_remembered_until_it_has_nothing() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "a", "p", 64);
    settle(&mut world);
    ["a", "b"].iter().for_each(|node| drop(world.nodes.remove(*node)));
    let step = step(&world);
    assert_eq!((step.missing.len(), step.departing.clone()), (2, [("uid-a".to_owned(), "a".to_owned())].into()));
    world.departed = step.departing;
    world.gone.extend(["uid-a", "uid-b"].map(|uid| (uid.to_owned(), Gone::Confirmed)));
    assert_eq!(settle(&mut world).settled, BTreeSet::new());
    world.gone.insert("uid-a".into(), Gone::GraceOver);
    let end = settle(&mut world);
    assert_eq!((end.settled, world.shards["p.v4.10.0.0.0"].spec.cells["0"].state), (["uid-a".to_owned()].into(), CellState::Free));
}

#[test]
fn what_somebody_holds_is_nobody_elses_whatever_the_ledger_says() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    assert!(!world.shards["p.v4"].spec.gathering, "the first ledger of all");
    // Blocks were of another size.
    world.node_pools.get_mut("a").unwrap().status.holding = vec![holding("10.0.0.64/27", 9), holding("10.0.0.128/26", 9)];
    told(&mut world, "a");
    wants(&mut world, "b", "p", 256);
    settle(&mut world);
    assert_eq!(
        (has(&world, "a"), has(&world, "b")),
        (vec!["p 10.0.0.128/26 9".into()], vec!["p 10.0.0.0/26 1".into(), "p 10.0.0.192/26 1".into()])
    );
}

#[test]
fn of_two_lives_the_later_one_is_in_a_ledger_that_is_made_again() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    for (node, epoch) in [("a", 1), ("b", 2)] {
        let block = GrantedBlock { cidr: "10.0.0.0/26".into(), network: "p".into(), pool: "p".into(), epoch };
        world.node_pools.get_mut(node).unwrap().spec.blocks = vec![block];
    }
    // What `a` has given back stands in its spec yet.
    let returned = Returning { cidr: "10.0.0.0/26".into(), pool: "p".into(), epoch: 1 };
    world.node_pools.get_mut("a").unwrap().status.returning = vec![returned];
    settle(&mut world);
    assert_eq!((has(&world, "a"), has(&world, "b")), (vec![], vec!["p 10.0.0.0/26 2".to_owned()]));
}

#[test]
fn a_lost_ledger_has_both_nodes_of_an_address_again() {
    let owner = Owner { claim: "ns/vm".into(), ..Owner::default() };
    let (ip, place) = ("10.0.0.70".parse().unwrap(), CellPosition::of("10.0.0.64".parse().unwrap(), 26));
    let mut cell = Cell::default();
    assign(&mut cell, &place, ip, "p", &owner, 0).unwrap();
    // The one that has it for longer comes later in the alphabet.
    delegate_for(&mut cell, &place, ip, ("b", "uid-b"), true).unwrap();
    join(&mut cell, &place, ip, "a", "uid-a").unwrap();
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "b", "p", 64);
    settle(&mut world);
    world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.insert("1".into(), cell.clone());
    settle(&mut world);
    let also = |world: &Snapshot, node: &str| world.node_pools[node].spec.ips.iter().map(|ip| ip.also.clone()).collect::<Vec<_>>();
    assert_eq!((also(&world, "a"), also(&world, "b")), (vec!["b".to_owned()], vec!["a".to_owned()]));
    assert_eq!(audit(&world), []);
    world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.remove("1");
    assert!(!audit(&world).is_empty());
    settle(&mut world);
    assert_eq!(world.shards["p.v4.10.0.0.0"].spec.cells["1"].ips, cell.ips);
    assert_eq!(audit(&world), []);
    // Whose it is not that a claim's pod migrates: two nodes have it, and nobody may.
    world.node_pools.get_mut("a").unwrap().spec.ips[0].owner.claim = "ns/other".into();
    world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.remove("1");
    assert!(step(&world).violations.iter().any(|found| matches!(found, Violation::TwoHolders { .. })));
}

#[test]
fn a_ledger_that_is_lost_with_specs_has_both_nodes_of_an_address_again() {
    // The one that has it for longer comes later in the alphabet.
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    world.ledgers.insert("p.v4".into());
    settle(&mut world);
    let owner = Owner { claim: "ns/vm".into(), migrates: true, ..Owner::default() };
    for (node, single, whole) in [("a", 8, 3), ("b", 7, 4)] {
        let held = vec![Holding { owner: owner.clone(), ..holding("10.0.0.70/32", single) }, holding("10.0.0.128/26", whole)];
        world.node_pools.get_mut(node).unwrap().status.holding = held;
        told(&mut world, node);
    }
    settle_but_for(&mut world, &[]);
    // Two that have the same block are named, whatever is made of it.
    let nodes = ["b".to_owned(), "a".to_owned()];
    assert_eq!(audit(&world), [Violation::HeldElsewhere { network: "p".into(), block: "10.0.0.128/26".into(), nodes }]);
    let ip = &world.shards["p.v4.10.0.0.0"].spec.cells["1"].ips["6"];
    assert_eq!(ip.holds().map(|hold| (hold.node.as_str(), hold.epoch)).collect::<Vec<_>>(), [("b", 7), ("a", 8)]);
    // Of a block the later life counts.
    assert_eq!((has(&world, "a"), has(&world, "b")), (vec![], vec!["p 10.0.0.128/26 4".to_owned()]));
}

fn cilium_node(pool: &[&str], used: &[&str]) -> CiliumNodeSeen {
    let pool = pool.iter().map(|ip| (ip.parse().unwrap(), Pooled { key: (*ip).to_owned(), pinned: false })).collect();
    let (told, used) = (!used.is_empty(), used.iter().map(|ip| ip.parse().unwrap()).collect());
    CiliumNodeSeen { version: "1".into(), uid: "uid".into(), pool, told, used, ..CiliumNodeSeen::default() }
}

/// A node's CiliumNode is there because the pool is for the node: whether its agent has anything of it is another matter, which it tells.
#[test]
fn a_cilium_node_tells_what_its_agent_uses_and_nothing_else() {
    let mut world = world(&[("p", PLAIN), ("q", r#"{"ipv4": {"entries": [{"cidr": "10.1.0.0/24"}]}}"#)], &["a", "b", "c"]);
    world.ledgers.extend(["p.v4".into(), "q.v4".into()]);
    (world.cilium.pool, world.cilium.complete) = ("p".into(), true);
    let unreadable = CiliumNodeSeen { unreadable: true, ..cilium_node(&[], &["10.0.0.67"]) };
    for (name, seen) in [("a", cilium_node(&["10.0.0.65"], &[])), ("b", cilium_node(&["10.0.0.66"], &["10.0.0.66"])), ("c", unreadable)] {
        world.cilium.nodes.insert(name.into(), seen);
    }
    settle_but_for_cilium(&mut world);
    let waits = |world: &Snapshot, pool: &str| world.pools[pool].status.as_ref().unwrap().conditions[0].message.clone();
    assert!(waits(&world, "p").contains("2 nodes have not: a, c:"), "{}", waits(&world, "p"));
    assert!(waits(&world, "q").contains("3 nodes have not: a, b, c:"), "{}", waits(&world, "q"));
    // One has nothing, and its agent says so.
    let status = serde_json::from_str(r#"{"used": {}}"#).unwrap();
    world.cilium.nodes.get_mut("a").unwrap().told = CiliumNodeSeen::read(api::CiliumIpamSpec::default(), status).told;
    settle_but_for_cilium(&mut world);
    assert!(waits(&world, "p").contains("1 node has not: c:"), "{}", waits(&world, "p"));
    // An agent that has its addresses of its CiliumNode has said what it has of all others.
    told(&mut world, "c");
    world.node_pools.get_mut("c").unwrap().status.cilium_node = true;
    settle_but_for_cilium(&mut world);
    assert!(waits(&world, "p").contains("1 node has not: c:"), "{}", waits(&world, "p"));
    assert!(waits(&world, "q").contains("2 nodes have not: a, b:"), "{}", waits(&world, "q"));
    world.node_pools.get_mut("c").unwrap().status.cilium_node = false;
    settle_but_for_cilium(&mut world);
    let gathers = |world: &Snapshot, root: &str| world.shards[root].spec.gathering;
    assert_eq!((gathers(&world, "p.v4"), gathers(&world, "q.v4")), (false, true));
}

/// Somebody else fills them, or the ledger was lost: as long as nobody knows what stands there, nothing of that network is anybody's.
#[test]
fn what_stands_in_cilium_nodes_is_neither_a_block_nor_a_claims() {
    let spec = r#"{"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "gateway": "10.0.0.1"}, "nodeSelector": {"matchLabels": {"a": "b"}}}"#;
    let mut world =
        world(&[("c", spec), ("o", r#"{"network": "c", "ipv4": {"entries": [{"cidr": "10.0.0.0/24"}]}}"#), ("p", PLAIN)], &["a"]);
    world.cilium.pool = "c".into();
    let demand = |pool: &str| Demand { pool: pool.into(), v4: 64, ..Demand::default() };
    settle_but_for_cilium(&mut world);
    world.node_pools.get_mut("a").unwrap().status.demand = vec![demand("o"), demand("p")];
    settle_but_for_cilium(&mut world);
    assert_eq!(has(&world, "a"), ["p 10.0.0.0/26 1"]);
    let reasons =
        |world: &Snapshot| world.pools["o"].status.as_ref().unwrap().conditions.iter().map(|c| c.reason.clone()).collect::<Vec<_>>();
    assert_eq!(reasons(&world), ["Granting", "Sufficient", "SharedAddresses"], "nothing was lost, and nobody knows what is free");
    let wide = CiliumNodeSeen { wide: vec!["10.0.0.64/28".parse().unwrap()], ..cilium_node(&["10.0.0.5"], &[]) };
    world.cilium.nodes.insert("theirs".into(), wide);
    world.cilium.complete = true;
    world.claims.complete = true;
    let source = Source { pools: vec!["o".into()], families: Vec::new() };
    world.claims.definitions.insert("ns/net".into(), DefinitionSeen { network: "net".into(), source: Ok(source) });
    for (name, spec) in [("ns/any", r#"{"network": "net"}"#), ("ns/one", r#"{"network": "net", "ipRequests": ["10.0.0.5/24"]}"#)] {
        let spec = serde_json::from_str(spec).unwrap();
        let claim = ClaimSeen { version: "1".into(), uid: name.into(), finalizer: true, spec, ..ClaimSeen::default() };
        world.claims.claims.insert(name.into(), claim);
    }
    for _ in 0..5 {
        let writes = step(&world).writes;
        apply(&mut world, &writes);
    }
    let told = step(&world).writes.into_iter().find_map(|write| match write {
        Write::ClaimStatus { name, status, .. } if name == "ns/one" => Some(status.conditions[0].reason.clone()),
        _ => None,
    });
    assert_eq!((has(&world, "a"), told.as_deref()), (vec!["o 10.0.0.128/26 1".into(), "p 10.0.0.0/26 1".into()], Some("RequestTaken")));
    // Where the cluster does not have the kind, nobody has one.
    world.cilium = Cilium { pool: "c".into(), unserved: true, ..Cilium::default() };
    world.node_pools.get_mut("a").unwrap().status.demand = vec![Demand { v4: 128, ..demand("o") }, demand("p")];
    settle_but_for(&mut world, &["CiliumNode", "IPAMClaim"]);
    assert_eq!(has(&world, "a").len(), 3);
}

/// A Node was deleted for longer than the grace period while its pods ran on: what they have is another node's by then.
#[test]
fn a_node_that_comes_again_with_what_another_one_has_is_named() {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    settle(&mut world);
    wants(&mut world, "b", "p", 64);
    settle(&mut world);
    let epoch = world.node_pools["b"].spec.blocks[0].epoch;
    assert_eq!(has(&world, "b"), [format!("p 10.0.0.0/26 {epoch}")]);
    // It is told of as long as its pods have it, and no longer.
    told(&mut world, "a");
    world.node_pools.get_mut("a").unwrap().status.holding = vec![holding("10.0.0.0/26", epoch - 1)];
    let found = Violation::HeldElsewhere { network: "p".into(), block: "10.0.0.0/26".into(), nodes: ["b".into(), "a".into()] };
    assert_eq!((audit(&world), step(&world).violations), (vec![found.clone()], vec![found.clone()]));
    assert!(found.to_string().starts_with("pods of node a have addresses of 10.0.0.0/26") && found.node() == Some("a"), "{found}");
    world.node_pools.get_mut("a").unwrap().status.holding.clear();
    assert_eq!((audit(&world), step(&world).violations), (vec![], vec![]));
    // Its own later life of it is no other node's.
    world.node_pools.get_mut("b").unwrap().status.holding = vec![holding("10.0.0.0/26", epoch - 1)];
    assert_eq!(audit(&world), []);
}
