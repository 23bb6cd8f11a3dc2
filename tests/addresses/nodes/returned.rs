//! A block that was given back, and needed a moment later.

use serde_json::{Value, json};

use netloom_tests::until_seen;

use crate::nodes::cluster::{Machine, Operator, Way, agree, all_go, objects_of, pool, store};

/// A node has said that it gives a block back, the operator is away, the agent begins again, and pods come: nobody gets an address of that
/// block until it has been granted once more, in another life.
#[test]
fn what_was_given_back_is_not_used_whatever_comes() {
    let store = store();
    let spec = json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.29.0.0/28"}], "blockPrefix": 29}, "allowFirstIP": true,
        "allowLastIP": true, "scaling": {"preAllocate": 0, "releaseDelaySeconds": 0}, "reuse": {"cooldownSeconds": 0}});
    pool(&store, "a", &spec);
    let operator = Operator::start(&Way::to(&store), "one");
    let mut machine = Machine::new(&store, "n1");
    for n in 0..17 {
        machine.schedule(&format!("p{n}"), &[]);
    }
    let add = |machine: &Machine, n: usize| machine.add(&format!("p{n}"), &[]).map(drop).unwrap_or_else(|e| panic!("p{n}: {e:?}"));
    (0..9).for_each(|n| add(&machine, n));
    drop(operator);
    (1..9).for_each(|n| machine.remove(&format!("p{n}")));
    let returning = || objects_of(&store, "NodeIPPool")[0]["status"]["returning"].as_array().cloned().unwrap_or_default();
    until_seen("a block given back", returning, |all: &Vec<Value>| all.len() == 1);
    let epoch = returning()[0]["epoch"].as_u64();
    machine.stop();
    machine.start();
    until_seen("the pods in the cache", || machine.agent().knows("default", &machine.namespace("p16")), |known| *known);
    // Seven more go into the block that it has kept.
    (9..16).for_each(|n| add(&machine, n));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| add(&machine, 16));
        until_seen(
            "the demand of one more",
            || objects_of(&store, "NodeIPPool")[0]["status"]["demand"][0]["v4"].as_u64(),
            |v4| *v4 == Some(16),
        );
        assert!(!waiting.is_finished(), "it has an address that was given back");
        assert_eq!(returning()[0]["epoch"].as_u64(), epoch);
        let _operator = Operator::start(&Way::to(&store), "two");
        waiting.join().unwrap();
        assert_eq!(agree(&store, &[&machine]), 9);
    });
    all_go(&[&machine]);
}
