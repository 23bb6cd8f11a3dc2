//! Pools that come, go and come again, with the definitions of their kinds.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use objects::Store;
use serde_json::json;

use netloom_tests::until_seen;

use crate::nodes::cluster::{API, Machine, Operator, Way, agree, all_go, kinds, objects_of, pool, store, writes};

fn spec() -> serde_json::Value {
    json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.23.0.0/26"}], "blockPrefix": 29},
        "ipv6": {"entries": [{"cidr": "fd00:23::/122"}], "blockPrefix": 125}, "scaling": {"preAllocate": 0}, "reuse": {"cooldownSeconds": 0}})
}

/// A pool that is made when everything runs, of both families, with nothing in advance: the first pod waits for it once, in line.
#[test]
fn the_first_pod_of_a_cold_pool_waits_once() {
    let store = store();
    let _operator = Operator::start_auditing_every(Duration::from_secs(3600), &Way::to(&store), "one");
    let machine = Machine::new(&store, "n1");
    until_seen("the node's object", || objects_of(&store, "NodeIPPool").len(), |there| *there == 1);
    pool(&store, "a", &spec());
    until_seen("the pool at the node", || objects_of(&store, "NodeIPPool")[0]["spec"]["pools"]["a"].is_object(), |there| *there);
    assert_eq!(objects_of(&store, "NodeIPPool")[0]["spec"]["blocks"].as_array().map_or(0, Vec::len), 0, "nothing in advance");
    machine.schedule("web", &[]);
    let (before, begun) = (writes(&store), Instant::now());
    let got = machine.add("web", &[]).unwrap();
    println!("O4: the first pod of a cold pool after {:?}", begun.elapsed());
    assert_eq!(got.iter().map(|ip| ip.is_ipv4()).collect::<Vec<_>>(), [true, false], "{got:?}");
    agree(&store, &[&machine]);
    // Demand, two shards and their projection into the node's object, the pool's status; and some more that tell of them.
    let written = writes(&store) - before;
    println!("O5: {written} writes");
    assert!(written <= 20, "{written} writes for one pod: somebody oscillates");
    all_go(&[&machine]);
}

fn kinds_go(store: &Store) {
    for kind in kinds() {
        let name = kind["metadata"]["name"].as_str().unwrap();
        store.remove("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name).unwrap();
    }
    assert!(store.objects(API, "NodeIPPool").map_or(0, |all| all.len()) == 0);
}

/// Somebody deletes the definitions of our kinds, and with them the ledger. Pods go on, and new ones get what was granted; when all is back,
/// nobody gets what another one has.
#[test]
fn the_kinds_go_and_come_again() {
    let store = store();
    pool(&store, "a", &spec());
    let _operator = Operator::start(&Way::to(&store), "one");
    let machines = ["n1", "n2"].map(|name| Machine::new(&store, name));
    for machine in &machines {
        machine.schedule("before", &[]);
        machine.add("before", &[]).unwrap();
        machine.schedule("meanwhile", &[]);
    }
    kinds_go(&store);
    let of = |machine: &Machine, pod: &str| machine.add(pod, &[]).unwrap_or_else(|e| panic!("{pod} of {}: {e:?}", machine.name));
    machines.iter().for_each(|machine| drop(of(machine, "meanwhile")));
    kinds().iter().for_each(|kind| store.put(kind).unwrap());
    pool(&store, "a", &spec());
    // So many that both need more blocks.
    for n in 0..10 {
        for machine in &machines {
            let pod = format!("after{n}");
            machine.schedule(&pod, &[]);
            of(machine, &pod);
        }
    }
    assert_eq!(agree(&store, &[&machines[0], &machines[1]]), 2 * 12 * 2);
    all_go(&[&machines[0], &machines[1]]);
}

/// The same while one machine is cut off, whose pods run: nobody knows what they have, and nothing is granted before it tells. Meanwhile the
/// pool says for which node that is.
#[test]
fn who_is_cut_off_is_waited_for() {
    let store = store();
    let spec = json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.25.0.0/27"}], "blockPrefix": 29}, "allowFirstIP": true,
        "allowLastIP": true, "scaling": {"preAllocate": 0}, "reuse": {"cooldownSeconds": 0}});
    pool(&store, "a", &spec);
    let _operator = Operator::start(&Way::to(&store), "one");
    let machines = ["n1", "n2"].map(|name| Machine::new(&store, name));
    for machine in &machines {
        machine.schedule("before", &[]);
        machine.add("before", &[]).unwrap();
    }
    let [n1, n2] = &machines;
    (0..8).for_each(|n| n1.schedule(&format!("p{n}"), &[]));
    n2.way.cut.store(true, Ordering::Relaxed);
    store.end_watches();
    kinds_go(&store);
    kinds().iter().for_each(|kind| store.put(kind).unwrap());
    pool(&store, "a", &spec);
    // What it has goes on.
    let add = |n: usize| drop(n1.add(&format!("p{n}"), &[]).unwrap_or_else(|e| panic!("p{n}: {e:?}")));
    (0..7).for_each(add);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| add(7));
        let ready = || {
            let pools = objects_of(&store, "IPPool");
            let all = pools.iter().flat_map(|pool| pool["status"]["conditions"].as_array().cloned().unwrap_or_default());
            all.filter(|condition| condition["type"] == "Ready").map(|c| format!("{} {}", c["reason"], c["message"])).collect::<String>()
        };
        until_seen("that it waits for one", ready, |said| said.contains("Gathering") && said.contains("1 node has not: n2:"));
        let demand = || objects_of(&store, "NodeIPPool").iter().any(|object| object["status"]["demand"][0]["v4"] == 16);
        until_seen("the demand of one more block", demand, |told| *told);
        assert!(!waiting.is_finished(), "it has an address of a block that another one may have");
        n2.way.cut.store(false, Ordering::Relaxed);
        waiting.join().unwrap();
        until_seen("that all is well", ready, |said| said.contains("Granting"));
    });
    assert_eq!(agree(&store, &[n1, n2]), 10);
    all_go(&[n1, n2]);
}
