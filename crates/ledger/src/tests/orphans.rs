//! Nodes that were deleted while their agents and pods live.

use super::*;

/// A node that has two blocks, and one that has none. The first one's Node is deleted, and somebody has asked.
fn orphan() -> Snapshot {
    let mut world = world(&[("p", PLAIN)], &["a", "b"]);
    world.grace = Some(900);
    settle(&mut world);
    wants(&mut world, "a", "p", 128);
    settle(&mut world);
    told(&mut world, "a");
    world.nodes.remove("a");
    // As long as nobody has asked nothing follows.
    settle(&mut world);
    assert_eq!(asked(&world, "a"), None);
    world.gone.insert("uid-a".into(), Gone::Confirmed);
    settle(&mut world);
    world
}

fn asked(world: &Snapshot, node: &str) -> Option<u64> {
    world.node_pools[node].spec.reclaim_after_seconds
}

fn goes(world: &Snapshot, node: &str) -> bool {
    step(world).writes.iter().any(|write| matches!(write, Write::NodePoolGone { name, .. } if name == node))
}

#[test]
fn a_node_without_its_node_has_its_blocks_until_its_agent_was_silent() {
    let mut world = orphan();
    assert_eq!((asked(&world, "a"), has(&world, "a").len()), (Some(900), 2));
    // Nobody gets them, however long that takes.
    wants(&mut world, "b", "p", 256);
    settle(&mut world);
    assert_eq!(has(&world, "b"), ["p 10.0.0.128/26 1", "p 10.0.0.192/26 1"]);
    // Another value of the option.
    world.grace = Some(60);
    settle(&mut world);
    assert_eq!(asked(&world, "a"), Some(60));
    world.gone.insert("uid-a".into(), Gone::GraceOver);
    settle(&mut world);
    assert!(!world.node_pools.contains_key("a"));
    assert_eq!(has(&world, "b").len(), 4);
}

#[test]
fn who_was_not_asked_whether_it_lives_was_not_silent() {
    let mut world = orphan();
    world.gone.insert("uid-a".into(), Gone::GraceOver);
    // An operator that was behind has taken the Node for there.
    world.node_pools.get_mut("a").unwrap().spec.reclaim_after_seconds = None;
    let writes = step(&world).writes;
    assert!(!goes(&world, "a") && writes.iter().any(|write| matches!(write, Write::NodePool { name, .. } if name == "a")), "{writes:?}");
    apply(&mut world, &writes);
    assert!(goes(&world, "a"));
    // Where the API server does not keep the question, nobody is asked.
    world.grace = None;
    world.node_pools.get_mut("a").unwrap().spec.reclaim_after_seconds = None;
    assert!(goes(&world, "a"));
    world.grace = Some(900);
    world.gone.insert("uid-a".into(), Gone::ByHand);
    assert!(goes(&world, "a"), "a person knows better");
}

#[test]
fn a_node_that_is_there_again_is_not_asked_any_more() {
    let mut world = orphan();
    let made = |uid: &str| NodeSeen { uid: uid.into(), labels: BTreeMap::new() };
    // It was only taken for gone.
    world.nodes.insert("a".into(), made("uid-a"));
    settle(&mut world);
    assert_eq!((asked(&world, "a"), has(&world, "a").len()), (None, 2));
    // Made anew: its own object comes after that of the one before.
    world.nodes.insert("a".into(), made("anew"));
    assert!(goes(&world, "a"));
    settle(&mut world);
    assert_eq!((world.node_pools["a"].spec.node_uid.as_str(), asked(&world, "a")), ("anew", None));
}

/// It gives back what nobody uses any more, and what a claim needs elsewhere.
#[test]
fn a_node_without_its_node_takes_part_in_what_is_given_back() {
    let owner = Owner { claim: "ns/db".into(), claim_uid: "c".into(), ..Owner::default() };
    let (ip, place, mut cell) = ("10.0.0.130".parse().unwrap(), CellPosition::of("10.0.0.128".parse().unwrap(), 26), Cell::default());
    assign(&mut cell, &place, ip, "p", &owner, 0).unwrap();
    delegate(&mut cell, &place, ip, "a", "uid-a").unwrap();
    let mut world = orphan();
    let shard = |world: &Snapshot| world.shards["p.v4.10.0.0.0"].spec.cells.clone();
    world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.insert("2".into(), cell);
    settle(&mut world);
    assert_eq!(world.node_pools["a"].spec.ips.len(), 1);
    // The claim's pod is on another node by now.
    let claims = &mut world.claims;
    let source = Source { pools: vec!["p".into()], families: Vec::new() };
    claims.definitions.insert("ns/net".into(), DefinitionSeen { network: "net".into(), source: Ok(source) });
    let mut claim = ClaimSeen { version: "1".into(), uid: "c".into(), finalizer: true, ..ClaimSeen::default() };
    claim.spec.network = "net".into();
    claims.claims.insert("ns/db".into(), claim);
    let pod = PodSeen { created: "1".into(), node: "b".into(), claims: vec!["ns/db".into()], ..PodSeen::default() };
    claims.pods.insert("ns/db-0".into(), pod);
    claims.complete = true;
    settle_but_for(&mut world, &["IPAMClaim"]);
    assert!(world.node_pools["a"].spec.ips[0].ending, "{:?}", world.node_pools["a"].spec.ips);
    let back = |cidr: &str, epoch: u64| Returning { cidr: cidr.into(), pool: "p".into(), epoch };
    world.node_pools.get_mut("a").unwrap().status.returning = vec![back("10.0.0.130/32", 1), back("10.0.0.64/26", 1)];
    settle_but_for(&mut world, &["IPAMClaim"]);
    let spec = |node: &str| &world.node_pools[node].spec;
    assert_eq!((has(&world, "a"), spec("a").ips.len()), (vec!["p 10.0.0.0/26 1".to_owned()], 0));
    assert_eq!(spec("b").ips.iter().map(|ip| (ip.ip.as_str(), ip.epoch)).collect::<Vec<_>>(), [("10.0.0.130", 2)]);
    assert_eq!(shard(&world)["1"].state, CellState::Free);
}

/// Its labels went with its Node.
#[test]
fn a_pool_is_for_the_nodes_that_it_was_for_when_they_were_there() {
    let of = |label: &str| {
        format!(r#"{{"ipv4": {{"entries": [{{"cidr": "10.0.0.0/24"}}]}}, "nodeSelector": {{"matchLabels": {{"a": "{label}"}}}}}}"#)
    };
    let mut world = world(&[("p", &of("b"))], &["a"]);
    world.grace = Some(900);
    world.nodes.get_mut("a").unwrap().labels = [("a".to_owned(), "b".to_owned())].into();
    settle(&mut world);
    wants(&mut world, "a", "p", 64);
    settle(&mut world);
    world.nodes.remove("a");
    world.gone.insert("uid-a".into(), Gone::Confirmed);
    // Whatever it says now, and another one is for nobody who is gone.
    world.pools.insert("p".into(), pool(&of("c")));
    world.pools.insert("q".into(), pool(r#"{"ipv4": {"entries": [{"cidr": "10.1.0.0/24"}]}}"#));
    settle(&mut world);
    let pools = &world.node_pools["a"].spec.pools;
    assert_eq!(pools.iter().map(|(name, terms)| (name.as_str(), terms.ending)).collect::<Vec<_>>(), [("p", false)]);
    world.pools.get_mut("p").unwrap().deleting = true;
    settle(&mut world);
    assert!(world.node_pools["a"].spec.pools["p"].ending);
}

#[test]
fn the_object_of_a_node_that_has_nothing_goes_at_once() {
    let mut world = orphan();
    world.nodes.remove("b");
    world.gone.insert("uid-b".into(), Gone::Confirmed);
    assert!(goes(&world, "b") && !goes(&world, "a"));
    // It may hold something of a ledger that was lost, and has not told.
    let mut lost = world.clone();
    lost.ledgers.insert("p.v4".into());
    lost.shards.clear();
    assert!(!goes(&lost, "b"));
    // One of its name was there before, and its pods may live.
    let before = world.shards.get_mut("p.v4.10.0.0.0").unwrap().spec.cells.get_mut("1").unwrap();
    (before.node, before.node_uid) = ("b".into(), "uid-before".into());
    assert!(!goes(&world, "b"));
}

/// As long as it lives it is never silent for long enough: a lost ledger goes on by what it tells.
#[test]
fn a_lost_ledger_does_not_wait_for_who_tells_without_its_node() {
    let mut world = orphan();
    world.ledgers.insert("p.v4".into());
    world.departed.insert("uid-a".into(), "a".into());
    world.shards.clear();
    world.first_epoch = 100;
    let object = world.node_pools.get_mut("a").unwrap();
    object.spec.blocks.clear();
    object.status = api::NodeIpPoolStatus::default();
    told(&mut world, "b");
    wants(&mut world, "b", "p", 128);
    settle(&mut world);
    assert!(world.shards["p.v4"].spec.gathering && has(&world, "b").is_empty());
    let message = &world.pools["p"].status.as_ref().unwrap().conditions[0].message;
    assert!(message.contains("1 Node was deleted, but its pods may still run: a:"), "{message}");
    world.node_pools.get_mut("a").unwrap().status.holding = vec![holding("10.0.0.0/26", 7)];
    told(&mut world, "a");
    settle(&mut world);
    assert_eq!((world.shards["p.v4"].spec.gathering, has(&world, "a")), (false, vec!["p 10.0.0.0/26 7".to_owned()]));
    assert_eq!(has(&world, "b"), ["p 10.0.0.64/26 101", "p 10.0.0.128/26 101"]);
    assert_eq!(asked(&world, "a"), Some(900));
}

/// As earlier releases have made it: the API server would delete it with its Node.
#[test]
fn no_node_owns_an_object_for_long() {
    let mut world = world(&[("p", PLAIN)], &["a"]);
    settle(&mut world);
    world.node_pools.get_mut("a").unwrap().owned = true;
    let writes = step(&world).writes;
    assert!(matches!(&writes[..], [Write::NodePool { name, version: Some(_), .. }] if name == "a"), "{writes:?}");
    settle(&mut world);
    assert!(!world.node_pools["a"].owned);
}
