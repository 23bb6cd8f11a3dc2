//! Shards with many single addresses: the API server keeps no object without end.

use super::*;

/// What `metadata.managedFields` says of an entry, in bytes.
const MANAGED: usize = 130;
/// What etcd takes.
const ETCD: usize = 1_500_000;

fn addresses(spec: &api::IpLedgerShardSpec) -> usize {
    spec.cells.values().map(|cell| cell.ips.len()).sum()
}

#[test]
fn what_goes_into_no_shard_any_more_goes_into_the_next() {
    let names: Vec<String> = (0..40).map(|i| format!("ip-10-0-12-{i}.eu-west-1.compute.internal")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let spec = r#"{"ipv6": {"entries": [{"cidr": "fd00::/104"}]}, "ipv4": {"entries": [{"cidr": "10.0.0.0/26"}]}}"#;
    let mut world = world(&[("p", spec)], &names);
    (world.cilium.pool, world.cilium.complete) = ("p".into(), true);
    let wants = Scaling { min_allocate: 256, ..Scaling::default() };
    for name in &names {
        let seen = CiliumNodeSeen { version: "7".into(), uid: "uid".into(), wants, ..CiliumNodeSeen::default() };
        world.cilium.nodes.insert((*name).into(), seen);
    }
    settle_but_for_cilium(&mut world);
    let shards: Vec<_> = world.shards.values().map(|seen| &seen.spec).filter(|spec| spec.base.starts_with("fd")).collect();
    assert_eq!(shards.iter().map(|spec| addresses(spec)).sum::<usize>(), 40 * 256);
    let sizes: Vec<usize> = shards.iter().map(|spec| serde_json::to_vec(spec).unwrap().len() + MANAGED * addresses(spec)).collect();
    assert!(sizes.len() == 3 && sizes.iter().all(|size| *size < ETCD), "{sizes:?}");
    assert!(sizes.iter().take(2).all(|size| *size > ETCD * 2 / 3), "what fits goes in: {sizes:?}");
    // Where one goes, another one comes, in the place of the first.
    let full = world.shards.values_mut().find(|seen| seen.spec.base.starts_with("fd00::/")).unwrap();
    let cell = full.spec.cells.get_mut("0").unwrap();
    let place = CellPosition::of("fd00::".parse().unwrap(), 120);
    let (ip, epoch) = ("fd00::7".parse().unwrap(), cell.ips["7"].hold.epoch);
    take_back(cell, &place, ip, epoch).and_then(|()| release(cell, &place, ip)).unwrap();
    settle_but_for_cilium(&mut world);
    let first = world.shards.values().find(|seen| seen.spec.base.starts_with("fd00::/")).unwrap();
    assert!(!first.spec.cells["0"].ips["7"].owner.is_nobody());
}

#[test]
fn a_claim_gets_an_address_beside_a_shard_that_takes_no_more() {
    let mut world = world(&[("p", r#"{"ipv6": {"entries": [{"cidr": "fd00::/108"}]}}"#)], &["a"]);
    settle(&mut world);
    let place = CellPosition::of("fd00::".parse().unwrap(), 120);
    let owner = Owner { claim: "ns/other".into(), claim_uid: "u".repeat(1 << 20), ..Owner::default() };
    let mut cell = Cell::default();
    let owner = Owner { pod: "p".repeat(1 << 18), ..owner };
    assign(&mut cell, &place, "fd00::5".parse().unwrap(), "p", &owner, 0).unwrap();
    let mut shard = world.shards["p.v6"].clone();
    (shard.spec.base, shard.spec.cells) = (place.base().to_string(), [("0".to_owned(), cell)].into());
    world.shards.insert(place.shard_name("p"), shard);
    world.claims.complete = true;
    let source = Source { pools: vec!["p".into()], families: Vec::new() };
    world.claims.definitions.insert("ns/net".into(), DefinitionSeen { network: "net".into(), source: Ok(source) });
    let spec = serde_json::from_str(r#"{"network": "net"}"#).unwrap();
    let claim = ClaimSeen { version: "1".into(), uid: "uid".into(), finalizer: true, spec, ..ClaimSeen::default() };
    world.claims.claims.insert("ns/web".into(), claim);
    for _ in 0..5 {
        let writes = step(&world).writes;
        apply(&mut world, &writes);
    }
    let has = |seen: &ShardSeen| seen.spec.cells.values().any(|cell| cell.ips.values().any(|ip| ip.owner.claim == "ns/web"));
    let found: Vec<&String> = world.shards.iter().filter(|(_, seen)| has(seen)).map(|(name, _)| name).collect();
    assert_eq!(found, ["p.v6.fd00-0-0-0-0-0-0-4000"]);
}
