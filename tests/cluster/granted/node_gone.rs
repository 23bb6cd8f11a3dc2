//! A Node that is deleted for longer than the grace time while its agent and its pods live.

use std::time::{Duration, Instant};

use netloom_tests::{Node, Pod};
use serde_json::{Value, json};

use crate::granted::agreement::all_go;
use crate::granted::recreated_node::{GRACE, cluster, delete, notes, out_of};
use crate::granted::{Cluster, add, ips, pods};

/// Until an agent says that it lives without its Node.
fn says_that_it_lives(cluster: &Cluster, node: &Node) {
    node.until("the operator asks", || cluster.object(&node.name)["spec"]["reclaimAfterSeconds"] == GRACE.as_secs());
    node.until("the agent says that it lives", || cluster.object(&node.name)["status"]["aliveAt"].is_string());
}

/// As long as three times the grace time, the node's blocks are its own.
fn keeps_all(cluster: &Cluster, node: &Node, uid: &str, blocks: usize) {
    let begun = Instant::now();
    while begun.elapsed() < 3 * GRACE {
        let found = (out_of(cluster, uid), cluster.blocks(&node.name).len());
        assert_eq!(found, (blocks, blocks), "after {:?}; the agent's log ends:\n{}", begun.elapsed(), node.tail());
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Nothing is reclaimed as long as the agent says that it lives; it assigns nothing meanwhile, and says why. When the Node is there again all
/// is as before. An agent that is killed is silent.
#[test]
fn what_a_node_has_is_its_own_while_its_agent_lives() {
    let cluster = cluster("lives");
    let [lost, other] = ["lives-lost", "lives-other"].map(|node| cluster.node(node));
    // Five of the eight blocks, and the other three.
    let (mut kept, mut others) = (pods(&lost, "old", 20), pods(&other, "other", 12));
    let (old, theirs) = (add(&kept), add(&others));
    assert!(old.len() == 20 && theirs.len() == 12 && old.is_disjoint(&theirs), "{old:?} {theirs:?}");
    let (uid, late) = (cluster.uid(&lost.name), lost.pod("late", ""));
    // The garbage collector would delete it with its Node.
    assert_eq!(cluster.object(&lost.name)["metadata"]["ownerReferences"], Value::Null);

    delete(&cluster, &lost.name);
    says_that_it_lives(&cluster, &lost);
    let why = "Node lives-lost was deleted while its agent runs: restart the kubelet";
    let refused = late.add();
    assert!(refused.error()["code"] == json!(11) && refused.message().contains(why), "{refused:?}");
    let status = lost.status();
    assert!(status["ready"] == json!(false) && status["why"].as_str().unwrap().contains(why), "{status:#}");
    assert!(lost.log().contains(why), "{}", lost.tail());
    lost.until("an Event of its object", || notes(&cluster, &lost.name, "NodeGone").iter().any(|note| note.contains(why)));
    lost.until("an Event of the pod", || late.events().iter().any(|event| event.starts_with("NodeGone") && event.contains(why)));
    // A DEL goes on.
    kept.drain(19..).for_each(|pod| drop(pod.must("DEL")));
    keeps_all(&cluster, &lost, &uid, 5);
    kept.iter().for_each(|pod| drop(pod.must("CHECK")));

    let anew = cluster.join(&lost.name);
    lost.until("the new Node has it all", || out_of(&cluster, &anew) == 5 && out_of(&cluster, &uid) == 0);
    lost.until("the agent assigns again", || lost.status()["ready"] == json!(true));
    late.must("ADD");
    kept.push(late);
    let all: [(&Node, &[Pod<'_>]); 2] = [(&lost, &kept), (&other, &others)];
    assert_eq!(cluster.agree(&all, &["lab"]).len(), 32);

    // The machine is switched off while its Node is gone.
    delete(&cluster, &lost.name);
    says_that_it_lives(&cluster, &lost);
    lost.kill9();
    kept.iter().for_each(Pod::remove_namespace);
    let (silent, waits) = (Instant::now(), other.pod("waits", ""));
    let got = ips(&waits.must("ADD"));
    // It has said that it lives a quarter of the grace time ago, and takes a while to say it.
    assert!(silent.elapsed() >= GRACE / 2 && got.iter().all(|ip| !theirs.contains(ip)), "{got:?} after {:?}", silent.elapsed());
    println!("a grace time of {GRACE:?} was over {:?} after the agent was killed", silent.elapsed());
    others.push(waits);
    let all: [(&Node, &[Pod<'_>]); 1] = [(&other, &others)];
    assert_eq!(cluster.agree(&all, &["lab"]).len(), 13);
    all_go(&all);
}
