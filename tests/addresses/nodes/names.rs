//! Two machines of one name: one that is not in the cluster any more, and a copy.

use std::sync::atomic::Ordering;

use serde_json::json;

use netloom_tests::until_seen;

use crate::nodes::cluster::{Machine, Operator, Way, agree, all_go, objects_of, pool, store, uid};

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
    until_seen("the old object gone", || objects_of(&store, "NodeIPPool").len(), |left| *left == 0);
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

/// A host's disk was copied, and both run under one name: the copy gives out nothing, with and without the API server, and the operator
/// says that there are two.
#[test]
fn a_copy_gives_out_nothing_while_the_other_one_lives() {
    let store = store();
    pool(
        &store,
        "a",
        &json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.24.0.0/28"}], "blockPrefix": 28}, "scaling": {"preAllocate": 0},
            "reuse": {"cooldownSeconds": 0}}),
    );
    let _operator = Operator::start(&Way::to(&store), "one");
    let own = Machine::new(&store, "twice");
    own.schedule("one", &[]);
    own.add("one", &[]).unwrap();
    let mut copy = own.copy();
    [&own, &copy].iter().for_each(|machine| machine.schedule("two", &[]));
    // It knows the block as its own, and nobody tells it that there is another one.
    let (code, said) = copy.add("two", &[]).unwrap_err();
    assert!(code == 11 && said.contains("was copied"), "{code}: {said}");
    copy.way.blind.store(false, Ordering::Relaxed);
    let events = || {
        let all = store.objects("events.k8s.io/v1", "Event").unwrap();
        all.iter().filter(|event| event["reason"] == "TwoAgents" && event.to_string().contains("\"twice\"")).count()
    };
    until_seen("that the operator tells", events, |count| *count > 0);
    let stopped = |said: &String| said.contains("another agent serves a node of the same name");
    until_seen("that the copy knows", || copy.add("two", &[]).unwrap_err().1, stopped);
    own.add("two", &[]).unwrap();
    assert_eq!(agree(&store, &[&own]), 2);
    // It makes no difference that it starts again.
    copy.stop();
    copy.start();
    until_seen("that the copy knows", || copy.add("two", &[]).unwrap_err().1, stopped);
    own.schedule("three", &[]);
    own.add("three", &[]).unwrap();
    assert_eq!(agree(&store, &[&own]), 3);
    all_go(&[&own]);
}
