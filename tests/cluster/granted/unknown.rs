//! Nobody can say what runs, or what was granted: nothing is handed out and nothing is freed before somebody can. What is of no node goes.

use std::collections::BTreeSet;
use std::time::Duration;

use netloom_tests::{Node, Pod, Running};
use serde_json::{Value, json};

use crate::granted::agreement::all_go;
use crate::granted::{Cluster, KINDS, add, configure, ips, lab, pods};

/// The journal is deleted while pods run, and the next agent starts while the API server does not answer, then with what it is told late:
/// nothing is handed out, told or given back before it knows again who has what.
#[test]
fn a_journal_is_lost_and_the_server_is_late() {
    let cluster = Cluster::new("late");
    cluster.pool("lab", &lab());
    let node = cluster.node("late-a");
    let mut all = pods(&node, "old", 10);
    let old = add(&all);
    let had = cluster.object("late-a");
    all.extend(pods(&node, "new", 3));
    node.kill9();
    node.host.sh("", "rm -r /var/lib/netloom/ipam");
    cluster.api.plane().pause_api().unwrap();
    node.serve();
    let new: BTreeSet<String> = std::thread::scope(|scope| {
        let begin = |pod| {
            scope.spawn(move || {
                let mut outcome = Pod::add(pod);
                while outcome.code != 0 {
                    outcome = Pod::add(pod);
                }
                ips(&outcome)
            })
        };
        let adds: Vec<_> = all[10..].iter().map(begin).collect();
        node.until("all of them wait", || {
            node.status()["calls"].as_u64().unwrap_or(0) + node.status()["callsWaiting"].as_u64().unwrap_or(0) >= 3
        });
        // Sleeps: that they still wait shows in time alone.
        std::thread::sleep(Duration::from_secs(1));
        let done = adds.iter().any(|add| add.is_finished());
        cluster.api.plane().resume_api().unwrap();
        assert!(!done, "something was handed out while nobody knew who has what");
        adds.into_iter().flat_map(|add| add.join().unwrap()).collect()
    });
    assert!(new.len() == 6 && new.is_disjoint(&old), "{new:?} {old:?}");
    all.iter().for_each(|pod| drop(pod.must("CHECK")));
    let is_kept = |block: &&Value| cluster.object("late-a")["spec"]["blocks"].as_array().unwrap().contains(block);
    assert!(had["spec"]["blocks"].as_array().unwrap().iter().all(|block| is_kept(&block)), "{had:#} {:#}", cluster.object("late-a"));
    assert_eq!(cluster.object("late-a")["status"]["returning"].as_array().map_or(0, Vec::len), 0);
    let nodes: [(&Node, &[Pod<'_>]); 1] = [(&node, &all)];
    assert_eq!(cluster.agree(&nodes, &["lab"]).len(), 26);
    all_go(&nodes);
}

/// The API server knows no pod of the node any more, then does not let anybody list Nodes: nothing is freed, on the node and in the ledger,
/// however often agent and operator begin again.
#[test]
fn nothing_is_freed_because_nobody_is_listed() {
    let mut cluster = Cluster::without_operator("nobody", &["--grace", "1"]);
    cluster.deploy_operator();
    cluster.operate();
    cluster.pool("lab", &lab());
    let node = cluster.node("nobody-a");
    configure(&node, "lab", "reconcileEvery: 500ms");
    node.restart();
    let all = pods(&node, "old", 10);
    let old = add(&all);
    let had = cluster.object("nobody-a")["spec"]["blocks"].clone();
    // An empty list; somebody runs in each sandbox.
    let _live: Vec<Running> = all.iter().map(|pod| Running::start(node.host.command(&pod.sandbox(), "sleep").arg("600"))).collect();
    for pod in &all {
        cluster.api.must("DELETE", &format!("{}?gracePeriodSeconds=0", pod.path()), &Value::Null);
    }
    // It takes what it finds in two comparisons in a row for true; the first of these may have begun before.
    let compares = || {
        let compared = || node.log().matches("  reconcile sandboxes=").count();
        let before = compared();
        node.until("the agent compares what it has four times", || compared() >= before + 4);
    };
    compares();
    node.restart();
    compares();
    let nodes: [(&Node, &[Pod<'_>]); 1] = [(&node, &all)];
    assert_eq!(cluster.agree(&nodes, &["lab"]).len(), 20);

    // The operator may not read Nodes any more: neither one that has read them before, nor one that has not.
    let role =
        ["clusterrole", "netloom-operator", "--type=json", "-p", r#"[{"op": "replace", "path": "/rules/0/verbs", "value": ["create"]}]"#];
    cluster.api.plane().kubectl(&[&["patch"], &role[..]].concat(), "").unwrap();
    for knows in [true, false] {
        if !knows {
            cluster.stop_operator();
            cluster.operate();
        }
        // Sleeps: that nothing is given back shows in time alone.
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(cluster.object("nobody-a")["spec"]["blocks"], had);
        assert_eq!(cluster.agree(&nodes, &["lab"]).len(), 20);
    }
    all.iter().for_each(|pod| drop(pod.must("CHECK")));
    // It can be read again: who comes gets something.
    cluster.deploy_operator();
    let new = pods(&node, "new", 10);
    let more = add(&new);
    assert!(more.len() == 20 && more.is_disjoint(&old), "{more:?} {old:?}");
    new.iter().for_each(|pod| drop(pod.must("DEL")));
    all_go(&nodes);
}

/// Objects of nodes that are no more, some with names that begin as a living node's does: they go, and nothing else.
#[test]
fn what_belongs_to_no_node_goes() {
    const LEFT: usize = 500;
    let cluster = Cluster::new("left");
    cluster.pool("lab", &lab());
    let node = cluster.node("left.example.com");
    let all = pods(&node, "pod", 3);
    let got = add(&all);
    let had = cluster.object(&node.name);
    let left = |n: usize| match n {
        0 => "left".to_owned(),
        1 => "left.example".to_owned(),
        2 => "left-example-com".to_owned(),
        n => format!("left-{n}.example.com"),
    };
    let object = |n: usize| {
        let spec = json!({"nodeUID": format!("gone-{n}"), "blocks": [], "ips": [], "pools": {}});
        let object = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "NodeIPPool", "metadata": {"name": left(n)}, "spec": spec});
        ("POST", format!("{KINDS}/nodeippools"), object)
    };
    let made = cluster.api.every(&(0..LEFT).map(object).collect::<Vec<_>>());
    assert!(made.iter().all(|code| *code == 201), "{made:?}");
    cluster.until("they are gone", || cluster.list("nodeippools").len() == 1);
    let there = cluster.object(&node.name);
    assert_eq!((&there["metadata"]["uid"], &there["spec"]), (&had["metadata"]["uid"], &had["spec"]));
    all.iter().for_each(|pod| drop(pod.must("CHECK")));
    let nodes: [(&Node, &[Pod<'_>]); 1] = [(&node, &all)];
    assert_eq!(cluster.agree(&nodes, &["lab"]).len(), got.len());
    all_go(&nodes);
}
