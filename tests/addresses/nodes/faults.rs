//! Everything fails in turn while pods come and go on all nodes.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use netloom_tests::until_seen;

use crate::nodes::cluster::{Machine, Operator, Way, agree, all_go, definition, pool, store, writes};

/// Each node adds so many pods, one a round; two networks with the same addresses, both with both families.
const ROUNDS: usize = 12;
/// A node has so many pods at a time.
const PODS: usize = 4;

/// Four nodes, 48 pods with 192 addresses. Meanwhile: requests get lost, are not answered and are refused; two operators work at once, one
/// is killed, all are away; the API server is away; watches end; an agent ends and begins again.
#[test]
fn pods_come_and_go_while_everything_fails_in_turn() {
    let store = store();
    for (name, network) in [("a", "pods"), ("s", "storage")] {
        pool(
            &store,
            name,
            &json!({"network": network, "ipv4": {"entries": [{"cidr": "10.20.0.0/25"}], "blockPrefix": 29},
            "ipv6": {"entries": [{"cidr": "fd00:20::/121"}], "blockPrefix": 125},
            "scaling": {"preAllocate": 2, "releaseDelaySeconds": 0}, "reuse": {"cooldownSeconds": 0}}),
        );
    }
    definition(&store, "storage", "s");
    let ways = [Way::to(&store), Way::to(&store)];
    ways[0].bad.store(7, Ordering::Relaxed);
    let mut operators = vec![Operator::start(&ways[0], "one"), Operator::start(&ways[1], "two")];
    let mut machines: Vec<Machine> = (0..4).map(|n| Machine::new(&store, &format!("n{n}"))).collect();
    let took = Mutex::new(Vec::new());
    for round in 0..ROUNDS {
        machines.iter().for_each(|machine| machine.schedule(&format!("p{round}"), &["storage"]));
        match round {
            2 => operators.truncate(1),
            3 => operators.insert(0, Operator::start(&ways[1], "three")),
            4 => store.end_watches(),
            5 => operators.clear(),
            6 => operators.push(Operator::start(&ways[0], "four")),
            7 => {
                machines[0].stop();
                machines[0].start();
            }
            8 => machines.iter().for_each(|machine| machine.way.bad.store(9, Ordering::Relaxed)),
            _ => {}
        }
        // While an operator is away a node has what it was granted before: as many pods as go.
        let goes = |machine: &Machine| machine.running().len() >= PODS;
        machines.iter().filter(|machine| goes(machine)).for_each(|machine| machine.remove(&machine.running()[0]));
        let away = round == 9;
        if away {
            // What the next pods need is there, and was told.
            until_seen("enough for one more on each node", || machines.iter().map(Machine::free).min(), |free| free.is_some_and(|n| n > 0));
            store.stop();
        }
        std::thread::scope(|scope| {
            for machine in &machines {
                let took = &took;
                scope.spawn(move || {
                    let begun = Instant::now();
                    let got = machine.add(&format!("p{round}"), &["storage"]);
                    assert_eq!(got.as_ref().map(Vec::len), Ok(2), "{} in round {round}: {got:?}", machine.name);
                    took.lock().unwrap().push(begun.elapsed());
                });
            }
        });
        if away {
            store.start();
        }
        let live = agree(&store, &machines.iter().collect::<Vec<_>>());
        assert_eq!(live, machines.iter().map(|machine| machine.running().len() * 4).sum::<usize>());
    }
    let mut took: Vec<Duration> = took.into_inner().unwrap();
    took.sort();
    let written = writes(&store);
    println!(
        "O4: {} ADDs, the median {:?}, the longest {:?}; O5: {written} writes",
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1]
    );
    assert!(written <= 4 * took.len() as u64, "{written} writes: somebody oscillates");
    all_go(&machines.iter().collect::<Vec<_>>());
}
