//! The API server and the operator are away, and the machine starts anew.

use std::time::Duration;

use serde_json::json;

use netloom_tests::until_seen;

use crate::nodes::cluster::{Machine, Operator, Way, agree, all_go, objects_of, pool, store};

/// Without an API server: pods go and come, the agent ends and begins again, and what is not granted is not given out. When it is back,
/// the other node, which has asked meanwhile, gets nothing that is in use.
#[test]
fn a_node_alone_gives_out_what_it_has_and_no_more() {
    let store = store();
    // Two blocks of four for each node, not more.
    pool(
        &store,
        "a",
        &json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.26.0.0/28"}], "blockPrefix": 30}, "allowFirstIP": true,
        "allowLastIP": true, "scaling": {"preAllocate": 2, "maxAllocate": 4}, "reuse": {"cooldownSeconds": 0}}),
    );
    let operator = Operator::start(&Way::to(&store), "one");
    let mut machines = ["n1", "n2"].map(|name| Machine::new(&store, name));
    for machine in &machines {
        machine.schedule("one", &[]);
        machine.add("one", &[]).unwrap();
        (2..8).for_each(|n| machine.schedule(&format!("p{n}"), &[]));
    }
    until_seen("a block for each", || blocks(&store), |all| *all == [1, 1]);
    drop(operator);
    store.stop();
    for machine in &mut machines {
        machine.remove("one");
        for n in 2..6 {
            machine.add(&format!("p{n}"), &[]).unwrap();
        }
        // All that it has is in use: the next one waits for a pod to go, and gets what that one had.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| machine.add("p6", &[]).unwrap());
            let had: Vec<_> = machine.sightings().into_iter().filter(|one| one.namespace.ends_with("-p2")).map(|one| one.address).collect();
            assert!(!waiting.is_finished());
            machine.remove("p2");
            assert_eq!(waiting.join().unwrap(), had);
        });
        machine.stop();
        machine.start();
        // It knows its pods from nobody now.
        let refused = machine.call("ADD", "p7").unwrap_err();
        assert!(refused.0 == 11, "{refused:?}");
    }
    store.start();
    let _operator = Operator::start(&Way::to(&store), "two");
    for machine in &machines {
        assert!(machine.agent().synced(Duration::from_secs(60)));
    }
    assert_eq!(agree(&store, &[&machines[0], &machines[1]]), 8);
    all_go(&[&machines[0], &machines[1]]);
}

fn blocks(store: &objects::Store) -> Vec<usize> {
    objects_of(store, "NodeIPPool").iter().map(|node| node["spec"]["blocks"].as_array().map_or(0, Vec::len)).collect()
}
