//! What a cluster's operator changes while pods run: the pool, and the definitions of its kinds.

use std::collections::BTreeSet;

use netloom_tests::Pod;
use serde_json::{Value, json};

use crate::granted::{Cluster, KINDS, add, ipam, lab, pods};

const OURS: [&str; 3] = ["ippools.netloom.io", "nodeippools.netloom.io", "ipledgershards.netloom.io"];

fn change(cluster: &Cluster, spec: &Value) {
    let patch = json!({"spec": spec}).to_string();
    cluster.api.plane().kubectl(&["patch", "ippools.netloom.io", "lab", "--type=merge", "-p", &patch], "").expect("the pool changes");
}

/// A cold pool of both families, which is extended, from which what pods have is taken away, and which is deleted and made anew: pods keep
/// what they have, and nobody gets what another one has.
#[test]
fn a_pool_grows_shrinks_goes_and_comes_again() {
    let cluster = Cluster::new("changes");
    let node = cluster.node("changes-a");
    let entries = |v4: &[&str], v6: &[&str]| {
        let of = |cidrs: &[&str]| cidrs.iter().map(|cidr| json!({"cidr": cidr})).collect::<Vec<_>>();
        json!({"ipv4": {"entries": of(v4)}, "ipv6": {"entries": of(v6)}})
    };
    let mut spec = entries(&["10.20.0.0/29"], &["fd00:20::/125"]);
    for (family, block, prefix, gateway) in [("ipv4", 29, 24, "10.20.0.1"), ("ipv6", 125, 64, "fd00:20::1")] {
        spec[family]["blockPrefix"] = json!(block);
        spec[family]["prefixLength"] = json!(prefix);
        spec[family]["gateway"] = json!(gateway);
    }
    spec["scaling"] = json!({"preAllocate": 0, "releaseDelaySeconds": 1});
    spec["reuse"] = json!({"cooldownSeconds": 0});
    cluster.pool("lab", &spec);
    let (first, second) = (pods(&node, "first", 5), pods(&node, "second", 4));
    let old = add(&first);
    assert_eq!(old.len(), 10, "{old:?}");
    // Five of eight: the first and the last one are nobody's, and one is the gateway's. Who comes now waits until there is more.
    let new = std::thread::scope(|scope| {
        let adds = scope.spawn(|| add(&second));
        node.until("the pool is short", || {
            let pool = cluster.api.ask("GET", &format!("{KINDS}/ippools/lab"), &Value::Null).1;
            pool["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["type"] == "Exhausted" && c["status"] == "True"))
        });
        change(&cluster, &entries(&["10.20.0.0/29", "10.20.0.64/29"], &["fd00:20::/125", "fd00:20::40/125"]));
        adds.join().unwrap()
    });
    assert!(new.len() == 8 && new.is_disjoint(&old), "{new:?} {old:?}");
    // What the first ones have is no pool's any more: they keep it, also when their agent begins again.
    change(&cluster, &entries(&["10.20.0.64/29"], &["fd00:20::40/125"]));
    node.until("nothing of it is handed out", || {
        let own = cluster.object("changes-a");
        own["spec"]["pools"]["lab"]["exclude"].as_array().is_some_and(|runs| !runs.is_empty())
    });
    node.kill9();
    node.restart();
    first.iter().chain(&second).for_each(|pod| drop(pod.must("CHECK")));
    first[0].must("DEL");
    let third = pods(&node, "third", 2);
    let more = add(&third);
    assert!(more.len() == 4 && more.is_disjoint(&old) && more.is_disjoint(&new), "{more:?}");
    // The pool goes when its last pod does, and comes again.
    cluster.api.plane().kubectl(&["delete", "ippools.netloom.io", "lab", "--wait=false"], "").expect("the pool is deleted");
    third.iter().for_each(|pod| drop(pod.must("CHECK")));
    node.until("it is gone for the node, and told as long as something is left of it", || ipam(&node, &["status"])[0]["origin"] == "gone");
    node.rests("pods have addresses of a pool that is deleted");
    let address = more.iter().find(|ip| ip.contains('.')).unwrap().split('/').next().unwrap();
    let traced = ipam(&node, &["trace", address]);
    assert_eq!((&traced[0]["pool"], &traced[0]["state"]), (&"lab".into(), &"held".into()), "{traced}");
    first[1..].iter().chain(&second).chain(&third).for_each(|pod| drop(pod.must("DEL")));
    node.until("it is gone", || cluster.api.ask("GET", &format!("{KINDS}/ippools/lab"), &Value::Null).0 == 404);
    cluster.pool("lab", &spec);
    let last = pods(&node, "last", 5);
    assert_eq!(add(&last), old);
    last.iter().for_each(|pod| drop(pod.must("DEL")));
    node.until("everything is given back", || cluster.blocks("changes-a").is_empty());
}

/// The definitions of our kinds are deleted, and with them the ledger and all that nodes were granted, and applied again.
#[test]
fn the_kinds_go_and_come_again() {
    let cluster = Cluster::new("kinds");
    cluster.pool("lab", &lab());
    let nodes = ["kinds-a", "kinds-b"].map(|name| cluster.node(name));
    let before: Vec<Vec<Pod<'_>>> = nodes.iter().map(|node| pods(node, "before", 3)).collect();
    let old: BTreeSet<String> = before.iter().flat_map(|pods| add(pods)).collect();
    assert_eq!(old.len(), 12);
    let definitions = OURS.map(|kind| format!("crd/{kind}"));
    let definitions: Vec<&str> = definitions.iter().map(String::as_str).collect();
    // The finalizer of a pool is the operator's, which takes it off when nothing of the pool is left.
    let no_finalizer = json!({"metadata": {"finalizers": null}}).to_string();
    cluster.api.plane().kubectl(&[&["delete", "--wait=false"], &definitions[..]].concat(), "").expect("the kinds are deleted");
    let kinds_are_gone = || {
        drop(cluster.api.plane().try_kubectl(&["patch", "ippools.netloom.io", "lab", "--type=merge", "-p", &no_finalizer], ""));
        cluster.api.ask("GET", &format!("{KINDS}/ippools"), &Value::Null).0 == 404
    };
    nodes[0].until("the kinds are gone", kinds_are_gone);
    before.iter().flatten().for_each(|pod| drop(pod.must("CHECK")));
    cluster.define();
    cluster.pool("lab", &lab());
    let after: Vec<Vec<Pod<'_>>> = nodes.iter().map(|node| pods(node, "after", 10)).collect();
    let mut everything = old.clone();
    for ip in after.iter().flat_map(|pods| add(pods)) {
        assert!(everything.insert(ip.clone()), "{ip} is somebody else's");
    }
    before.iter().chain(&after).flatten().for_each(|pod| drop(pod.must("DEL")));
    for node in &nodes {
        node.until("one block of each family", || cluster.blocks(&node.name).len() == 2);
    }
}

/// Blocks go back, and are needed at once, while the agent is killed in between: what comes is another life of them.
#[test]
fn blocks_that_go_back_and_are_needed_at_once() {
    let cluster = Cluster::new("again");
    cluster.pool("lab", &lab());
    let node = cluster.node("again-a");
    let lives = || -> BTreeSet<(String, u64)> {
        let object = cluster.object("again-a");
        let blocks = object["spec"]["blocks"].as_array().cloned().unwrap_or_default();
        blocks.iter().map(|b| (b["cidr"].as_str().unwrap().to_owned(), b["epoch"].as_u64().unwrap())).collect()
    };
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        let pods = pods(&node, &format!("r{round}p"), 14);
        assert_eq!(add(&pods).len(), 28);
        let now = lives();
        assert!(now.len() >= 3, "{now:?}");
        pods.iter().for_each(|pod| drop(pod.must("DEL")));
        node.until("blocks are on their way back", || lives() != now);
        node.kill9();
        node.restart();
        for (cidr, epoch) in seen.union(&now) {
            let later = now.iter().filter(|(other, _)| other == cidr).all(|(_, other)| other >= epoch);
            assert!(later, "{cidr} has epoch {epoch}, and an earlier one: {now:?}");
        }
        seen.extend(now);
    }
    node.until("one block of each family", || lives().len() == 2);
}
