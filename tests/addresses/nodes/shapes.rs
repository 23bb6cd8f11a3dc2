//! Networks of every size, to their last address.

use netloom_tests::sizes;
use serde_json::json;

use crate::nodes::cluster::{Machine, Operator, Way, agree, all_go, definition, pool, store};

/// As many pods as there are addresses get all of them, and no other. Some networks have the same addresses. Of those that are too large
/// to be used up a pod has one.
#[test]
fn every_address_of_every_size_once() {
    let store = store();
    let own =
        json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.28.0.0/28"}], "blockPrefix": 28}, "reuse": {"cooldownSeconds": 0}});
    pool(&store, "a", &own);
    for (name, spec) in sizes::pools() {
        pool(&store, name, &spec);
        definition(&store, name, name);
    }
    let _operator = Operator::start(&Way::to(&store), "one");
    let machine = Machine::new(&store, "node.with.periods");
    for n in 0..sizes::PODS {
        let (pod, networks) = (format!("p{n}"), sizes::networks(n));
        machine.schedule(&pod, &networks);
        machine.add(&pod, &networks).unwrap_or_else(|e| panic!("{pod}: {e:?}"));
    }
    agree(&store, &[&machine]);
    sizes::complete(&machine.sightings());
    all_go(&[&machine]);
}
