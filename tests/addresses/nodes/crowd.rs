//! Very many at once.

use std::time::{Duration, Instant};

use serde_json::json;

use netloom_tests::until_seen;

use crate::nodes::cluster::{Machine, Operator, Way, agree, all_go, definition, pool, store, writes};

/// Two hundred pods of one node at once, from nothing in advance; then half of them go while as many come.
#[test]
fn two_hundred_pods_of_a_node_at_once() {
    const PODS: usize = 200;
    let store = store();
    pool(
        &store,
        "a",
        &json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.24.0.0/22"}], "blockPrefix": 26},
        "scaling": {"preAllocate": 0}, "reuse": {"cooldownSeconds": 0}}),
    );
    let _operator = Operator::start_auditing_every(Duration::from_secs(3600), &Way::to(&store), "one");
    let machine = Machine::new(&store, "n1");
    let names: Vec<String> = (0..PODS + PODS / 2).map(|n| format!("p{n}")).collect();
    names.iter().for_each(|name| machine.schedule(name, &[]));
    let begun = Instant::now();
    let add = |name: &String| assert_eq!(machine.add(name, &[]).map(|got| got.len()), Ok(1), "{name}");
    std::thread::scope(|scope| names[..PODS].iter().for_each(|name| drop(scope.spawn(move || add(name)))));
    let written = writes(&store);
    println!("O4: {PODS} pods after {:?}; O5: {written} writes", begun.elapsed());
    assert!(written <= PODS as u64 / 4, "{written} writes: they grow with pods, not with blocks");
    assert_eq!(agree(&store, &[&machine]), PODS);
    let machine = &machine;
    std::thread::scope(|scope| {
        names[..PODS / 2].iter().for_each(|name| drop(scope.spawn(move || machine.remove(name))));
        names[PODS..].iter().for_each(|name| drop(scope.spawn(move || add(name))));
    });
    assert_eq!(agree(&store, &[machine]), PODS);
    all_go(&[machine]);
}

/// Eight pods with sixteen networks each, the first of them cold, the others at once: all networks have the same addresses, and no pod is in
/// the way of another one. What a pod needs of all its networks is told together.
#[test]
fn sixteen_networks_of_a_pod() {
    let store = store();
    let networks: Vec<String> = (1..=16).map(|n| format!("lan{n}")).collect();
    for (name, network) in std::iter::once(("a", "pods")).chain(networks.iter().map(|n| (n.as_str(), n.as_str()))) {
        pool(
            &store,
            name,
            &json!({"network": network, "ipv4": {"entries": [{"cidr": "10.25.0.0/27"}], "blockPrefix": 28},
            "scaling": {"preAllocate": 0}, "reuse": {"cooldownSeconds": 0}}),
        );
        definition(&store, network, name);
    }
    let _operator = Operator::start(&Way::to(&store), "one");
    let machine = Machine::new(&store, "n1");
    let all: Vec<&str> = networks.iter().map(String::as_str).collect();
    let names: Vec<String> = (0..8).map(|n| format!("p{n}")).collect();
    names.iter().for_each(|name| machine.schedule(name, &all));
    let told = || -> u64 {
        let all = store.requests();
        all.iter().filter(|((verb, of), _)| *verb == "update" && *of == "nodeippools.netloom.io/status").map(|(_, count)| count).sum()
    };
    until_seen("the node's object", told, |told| *told > 0);
    let (before, begun) = (told(), Instant::now());
    machine.add(&names[0], &all).unwrap();
    println!("O4: a cold pod with 17 networks after {:?}; O5: {} writes of the agent", begun.elapsed(), told() - before);
    // One for all networks; another one where the first has met the object before its terms were there.
    assert!(told() - before <= 8, "{} writes for a pod", told() - before);
    let (begun, own, all) = (Instant::now(), &machine, &all);
    std::thread::scope(|scope| names[1..].iter().for_each(|name| drop(scope.spawn(move || drop(own.add(name, all).unwrap())))));
    println!("O4: 7 pods with 17 networks each after {:?}", begun.elapsed());
    assert_eq!(agree(&store, &[&machine]), 8 * 17);
    all_go(&[&machine]);
}
