//! `ipam: crd` beside pools of the cluster's operator: the default network has its addresses of the CiliumNode, others of the NodeIPPool.

use ipam::{Whereabouts, WhereaboutsKeys};
use objects::Store;
use serde_json::{Value, json};

use crate::addresses::{install, own_node, status, write};
use crate::api::{Api, definition, pod};
use crate::cilium::{Operator, pool, start, world};
use crate::world::{World, until};

fn range() -> Value {
    json!({"type": "whereabouts", "range": "10.50.0.0/24", "addWait": 5})
}

/// What the operator calls the range.
fn range_name() -> String {
    let keys: WhereaboutsKeys = serde_json::from_value(range()).unwrap();
    Whereabouts::check(&keys).unwrap().ranges[0].pool.clone()
}

/// A network of each kind: `x` of a pool, `y` of a range.
fn networks(store: &Store) {
    for (name, ipam) in [("x", json!({"type": "pool", "pool": "x", "addWait": 5})), ("y", range())] {
        let mut network = definition(name, "10.0.0.0/24");
        let bridge = json!({"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": format!("br-{name}"), "ipam": ipam});
        network["spec"]["config"] = json!(bridge.to_string());
        Api::put(store, &network);
    }
}

/// What the operator grants, also of a pool that is the CiliumNode's here.
fn grant(store: &Store, x: &str) {
    let terms = json!({"ipv4": {"prefixLength": 24, "blockPrefix": 30}, "reuse": {"cooldownSeconds": 0},
        "scaling": {"minAllocate": 0, "preAllocate": 0, "maxAllocate": 0, "maxAboveWatermark": 0, "releaseDelaySeconds": 1_000_000}});
    let range = range_name();
    let block = |cidr: &str, pool: &str| json!({"cidr": cidr, "pool": pool, "epoch": 1});
    let blocks = [block(x, "x"), block("10.50.0.8/30", &range), block("192.168.1.128/30", "default")];
    let spec = json!({"nodeUID": "u", "pools": {"x": terms, range: terms, "default": terms}, "blocks": blocks, "ips": []});
    let object = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "NodeIPPool", "metadata": {"name": "n1"}, "spec": spec});
    write(store, "spec", &object);
}

/// Attaches a pod to both, besides; the addresses that it has there.
fn attach(store: &Store, world: &World, name: &str) -> (String, Vec<String>) {
    Api::put(store, &pod(name, "x,y"));
    world.sandbox(name);
    let own = start(store, world, name).unwrap();
    let told = || {
        let status = Api::pod(store, name)?["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].clone();
        let status: Value = serde_json::from_str(status.as_str()?).ok()?;
        Some(status.as_array()?.iter().skip(1).map(|one| one["ips"][0].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>())
    };
    until("the status", told, Option::is_some);
    (own, told().unwrap())
}

/// A node whose CiliumNode has so many addresses, and to which the operator has granted a pool and a range.
fn scene(addresses: u8) -> (Store, World, Operator) {
    let store = Store::new();
    store.install_network_attachment_definitions();
    install(&store);
    networks(&store);
    let world = world(&store, json!({}));
    let operator = Operator::new(&store);
    let addresses: Vec<String> = (1..=addresses).map(|n| format!("192.168.1.{n}")).collect();
    operator.create(json!({"ipam": {"pool": pool(&addresses.iter().map(String::as_str).collect::<Vec<_>>())}}));
    until("ready", || world.agent().waits_for(), Option::is_none);
    grant(&store, "10.20.0.0/30");
    until("that it is taken in", || status(&store)["agent"]["instance"].is_string(), |there| *there);
    (store, world, operator)
}

#[test]
fn pools_and_ranges_of_the_operator_beside_a_cilium_node() {
    let (store, mut world, operator) = scene(5);
    let got = |own: &str, others: [&str; 2]| (own.to_owned(), others.map(str::to_owned).to_vec());
    assert_eq!(attach(&store, &world, "a"), got("192.168.1.3/24", ["10.20.0.0", "10.50.0.8"]));
    until("what it needs is told", || status(&store)["demand"].clone(), |demand| demand.as_array().is_some_and(|d| d.len() == 2));
    // What the CiliumNode takes back is told there, and nowhere else.
    operator.status(json!({"ipam": {"release-ips": {"192.168.1.5": "marked-for-release"}}}));
    operator.released("the answer", &json!({"192.168.1.5": "ready-for-release"}));
    world.restart(&store);
    grant(&store, "10.20.0.4/30");
    // The pod keeps what it has of the block that is gone, and the CiliumNode's pool is no pool that is gone.
    let told = || (status(&store)["returning"].clone(), status(&store)["holding"].clone());
    let held = json!([{"cidr": "10.20.0.0/30", "network": "x", "pool": "x", "epoch": 1, "owner": {}}]);
    until("what it holds", told, |(_, holding)| holding[0]["cidr"] == held[0]["cidr"] && holding.as_array().unwrap().len() == 1);
    assert!(told().0.as_array().is_none_or(Vec::is_empty), "{:?}", told());
    assert_eq!(attach(&store, &world, "b"), got("192.168.1.4/24", ["10.20.0.4", "10.50.0.9"]));
    assert_eq!(status(&store)["ciliumNode"], true);
    let demanded: Vec<Value> = status(&store)["demand"].as_array().unwrap().iter().map(|demand| demand["pool"].clone()).collect();
    assert_eq!(demanded, [json!(range_name()), json!("x")]);
    for name in ["a", "b"] {
        world.ok("DEL", name);
    }
    let own = json!({"192.168.1.1": {"owner": "router"}, "192.168.1.2": {"owner": "health"}});
    operator.says("nobody has anything", &own);
}

/// A journal that was copied along with its machine: of the operator's pools nobody gets anything before it is granted again, and the
/// CiliumNode is this node's by its name.
#[test]
fn a_copied_journal_has_the_cilium_nodes_addresses_and_no_others() {
    let (store, mut world, _operator) = scene(4);
    attach(&store, &world, "a");
    Api::put(&store, &own_node("u"));
    world.restart_after(&store, |journal| {
        assert!(store.remove("netloom.io/v1alpha1", "NodeIPPool", "", "n1").unwrap());
        std::fs::write(journal.join("place"), "machine another, directory 1").unwrap();
    });
    Api::put(&store, &pod("b", "x"));
    world.sandbox("b");
    let refused = start(&store, &world, "b").unwrap_err();
    assert!(refused.starts_with("11 ") && refused.contains("pool \"x\" is not granted to this node"), "{refused}");
    assert_eq!(start(&store, &world, "c").unwrap(), "192.168.1.4/24");
    ["a", "b", "c"].iter().for_each(|name| drop(world.ok("DEL", name)));
}
