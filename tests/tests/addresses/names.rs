//! A machine that is not in the cluster any more, and the one that has its name.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::cluster::{Machine, Operator, Way, agree, all_go, objects_of, pool, store, uid, until};

/// A node's object is deleted and made anew while its machine is cut off and its pods run: where a person is to free what it had, nobody
/// else gets it, however short addresses are.
#[test]
fn what_a_machine_that_is_cut_off_has_is_nobody_elses() {
    let store = store();
    pool(
        &store,
        "a",
        &json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.22.0.0/29"}], "blockPrefix": 30}, "allowFirstIP": true,
        "allowLastIP": true, "reclaim": "Manual", "scaling": {"preAllocate": 0}, "reuse": {"cooldownSeconds": 0}}),
    );
    let _operator = Operator::start(&Way::to(&store), "one");
    let old = Machine::new(&store, "lost");
    for pod in ["one", "two"] {
        old.schedule(pod, &[]);
        old.add(pod, &[]).unwrap();
    }
    old.schedule("late", &[]);
    old.way.cut.store(true, Ordering::Relaxed);
    // What it watches ends too.
    store.end_watches();
    store.remove("v1", "Node", "", "lost").unwrap();
    until("the old object gone", || objects_of(&store, "NodeIPPool").len(), |left| *left == 0);
    let anew = Machine::new(&store, "lost");
    assert_ne!(uid(&store, "lost"), old.uid);
    // It serves its pods from what it has, as it knows of nothing.
    old.add("late", &[]).unwrap();
    for n in 0..4 {
        let pod = format!("new{n}");
        anew.schedule(&pod, &[]);
        anew.add(&pod, &[]).unwrap();
    }
    let mut all: Vec<_> = [&old, &anew].iter().flat_map(|machine| machine.sightings()).map(|one| one.address).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 7, "seven pods, one address each: {all:?}");
    assert_eq!(agree(&store, &[&anew]), 4);
    old.way.cut.store(false, Ordering::Relaxed);
    old.running().iter().for_each(|pod| drop(old.call("CHECK", pod).unwrap_or_else(|e| panic!("{pod} after its machine is back: {e:?}"))));
    all_go(&[&old, &anew]);
}
