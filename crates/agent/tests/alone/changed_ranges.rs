//! `ipam: crd` where the operator cuts the same addresses anew while pods have some of them.

use objects::Store;
use serde_json::{Value, json};

use crate::api::{Api, definition, pod};
use crate::cilium::{Operator, patient_world, start};
use crate::world::{World, until};

/// A node whose object has these addresses, and takes them in.
fn of_pool(pool: &Value) -> (Store, World, Operator) {
    let store = Store::new();
    store.install_network_attachment_definitions();
    // No ADD is to be refused here.
    let world = patient_world(&store, json!({}), 30);
    let operator = Operator::new(&store);
    operator.create(json!({"ipam": {"pool": pool}}));
    until("ready", || world.agent().waits_for(), Option::is_none);
    (store, world, operator)
}

#[test]
fn a_range_that_grows_and_an_address_that_becomes_a_pods() {
    let (store, world, operator) = of_pool(&json!({"192.168.1.1-192.168.1.3": {}}));
    assert_eq!(start(&store, &world, "a").unwrap(), "192.168.1.3/24");
    operator.spec(json!({"pool": {"192.168.1.1-192.168.1.3": null, "192.168.1.1-192.168.1.5": {}}}));
    // The ADD waits in line for what comes.
    assert_eq!(start(&store, &world, "b").unwrap(), "192.168.1.4/24");
    operator.spec(json!({"pool": {"192.168.1.1": {"resource": "eni-1"}, "192.168.1.5": {"owner": "default/c"}, "192.168.1.7": {}}}));
    until("it is seen", || operator.used()["192.168.1.1"]["resource"].clone(), |resource| *resource == "eni-1");
    assert_eq!(start(&store, &world, "d").unwrap(), "192.168.1.7/24");
    assert_eq!(start(&store, &world, "c").unwrap(), "192.168.1.5/24");
    for name in ["a", "b", "c", "d"] {
        world.ok("DEL", name);
    }
    let own = json!({"192.168.1.1": {"owner": "router", "resource": "eni-1"}, "192.168.1.2": {"owner": "health"}});
    operator.says("nobody has anything", &own);
}

/// What stands in the way of a key goes without a word: it is looked at again.
#[test]
fn an_address_that_a_pool_of_the_host_has_yet() {
    let (store, world, operator) = of_pool(&json!({"192.168.1.1": {}, "192.168.1.2": {}}));
    let pool = |ip: &str| json!({"kind": "IPPool", "spec": {"network": "default", "ipv4": {"entries": [{"ip": ip}]}}});
    let bridge = json!({"cniVersion": "1.0.0", "name": "x", "type": "bridge", "bridge": "br-x", "ipam": {"type": "pool", "pool": "x"}});
    let mut of_host = definition("x", "10.0.0.0/24");
    of_host["spec"]["config"] = json!(bridge.to_string());
    Api::put(&store, &of_host);
    let attach = |name: &str| {
        Api::put(&store, &pod(name, "x"));
        world.sandbox(name);
        start(&store, &world, name)
    };
    world.pool_file("x", &pool("192.168.1.9"));
    operator.spec(json!({"pool": {"192.168.1.3": {}}}));
    assert_eq!(attach("a").unwrap(), "192.168.1.3/24");
    operator.spec(json!({"pool": {"192.168.1.1": {"resource": "eni-1"}, "192.168.1.9": {}}}));
    until("it is seen", || operator.used()["192.168.1.1"]["resource"].clone(), |resource| *resource == "eni-1");
    world.ok("DEL", "a");
    world.pool_file("x", &pool("192.168.1.8"));
    assert_eq!(attach("b").unwrap(), "192.168.1.3/24");
    until("the other one", || start(&store, &world, "c"), |got| got.as_deref() == Ok("192.168.1.9/24"));
    for name in ["b", "c"] {
        world.ok("DEL", name);
    }
}
