//! `ipam: crd` where the object has few addresses: what is waited for, and what not.

use objects::Store;
use serde_json::{Value, json};

use crate::cilium::{Operator, start, world};
use crate::world::until;

/// What pods get, one after the other, once the node is ready with this object.
fn gets(ipam: &Value, settings: Value, pods: &[&str]) -> Vec<Result<String, String>> {
    let store = Store::new();
    store.install_network_attachment_definitions();
    let world = world(&store, settings);
    let operator = Operator::new(&store);
    operator.create(json!({"ipam": ipam}));
    until("ready", || world.agent().waits_for(), Option::is_none);
    pods.iter().map(|name| start(&store, &world, name)).collect()
}

#[test]
fn as_many_as_the_operator_means_to_give_are_enough() {
    let one = json!({"min-allocate": 1, "pool": {"192.168.1.1": {}}});
    let [Err(full)] = &gets(&one, json!({}), &["a"])[..] else { panic!("the router has the only one") };
    assert!(full.contains("no free IPv4 address"), "{full}");
}

/// Each pod would want one of them, too.
#[test]
fn a_stray_address_of_the_other_family_keeps_nobody_waiting() {
    let ipam = json!({"pool": {"192.168.1.1-192.168.1.4": {}, "fd00::1": {}}});
    assert_eq!(gets(&ipam, json!({}), &["a", "b"]), ["192.168.1.3/24", "192.168.1.4/24"].map(|address| Ok(address.to_owned())));
    assert_eq!(gets(&ipam, json!({"ipamHealth": "disabled"}), &["a"]), [Ok("192.168.1.2/24".to_owned())]);
}
