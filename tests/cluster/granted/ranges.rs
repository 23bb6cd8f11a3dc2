//! Definitions that were made for whereabouts, in a cluster: the operator makes their pools, and pods of all nodes share a range.

use std::collections::BTreeSet;

use netloom_tests::{Node, Outcome, Pod};
use serde_json::{Value, json};

use crate::granted::Cluster;

const POOL: &str = "/apis/netloom.io/v1alpha1/ippools/whereabouts-10.30.0.0-28";

/// A definition of a range of 14 addresses; each node has it under its own name.
fn define(node: &Node) {
    let ipam = json!({"type": "whereabouts", "range": "10.30.0.0/28", "ipRanges": [{"range": "fd00:30::/64"}], "addWait": 60,
        "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}});
    node.define("shared", &json!({"cniVersion": "1.0.0", "name": "shared", "type": "macvlan", "master": "up0", "ipam": ipam}).to_string());
}

/// What a pod has of the definition, as its network status says.
fn secondary(pod: &Pod<'_>, added: &Outcome) -> Vec<String> {
    assert_eq!(crate::granted::ips(added).len(), 1, "the result is the default network's");
    let status = pod.wait_for_status();
    let entry = status.as_array().unwrap().iter().find(|entry| entry["interface"] == "net1").unwrap();
    entry["ips"].as_array().unwrap().iter().map(|ip| ip.as_str().unwrap().to_owned()).collect()
}

#[test]
fn pods_of_two_nodes_share_a_range_of_whereabouts() {
    let cluster = Cluster::new("ranges");
    let nodes = ["range-a", "range-b"].map(|name| {
        cluster.api.must("POST", "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        let node = Node::new(&cluster.api, name, "");
        node.restart();
        define(&node);
        node
    });
    let mut held = Vec::new();
    for n in 0..7 {
        for node in &nodes {
            let pod = node.pod(&format!("p{n}"), "shared");
            let got = secondary(&pod, &pod.must("ADD"));
            pod.must("CHECK");
            held.push((pod, got));
        }
    }
    let all: BTreeSet<&String> = held.iter().flat_map(|(_, got)| got).collect();
    assert_eq!(all.len(), 28, "14 of each family: {all:?}");
    let labels = &cluster.api.must("GET", POOL, &Value::Null)["metadata"]["labels"];
    assert_eq!(labels["netloom.io/definitions"], "whereabouts");
    // The range is full: a pod of the one node waits for an address of the other one.
    let waiting = nodes[0].pod("late", "shared");
    let (gone, was) = held.pop().unwrap();
    let got = std::thread::scope(|scope| {
        let add = scope.spawn(|| waiting.must("ADD"));
        gone.must("DEL");
        secondary(&waiting, &add.join().unwrap())
    });
    assert_eq!(got[0], was[0]);
    held.iter().map(|(pod, _)| pod).chain([&waiting]).for_each(|pod| drop(pod.must("DEL")));
    for node in &nodes {
        node.until("nodes of a small range keep nothing", || !cluster.blocks(&node.name).iter().any(|block| block.starts_with("10.30.0.")));
    }
}
