//! What `netloom sysdump` collects of a node, explained where the node is not.

use std::process::Command;

use netloom_tests::{Api, Node, SETTINGS, netloom};
use serde_json::{Value, json};

use super::own_traffic::network;

/// What `netloom verify` says of the node's archive of now.
fn explained(node: &Node, name: &str) -> Value {
    let archive = format!("/run/{name}.tar.gz");
    node.host.run("", &[&netloom().to_string_lossy(), "sysdump", "--config", SETTINGS, "-o", &archive]);
    let out = Command::new(netloom()).args(["verify", "-o", "json", "--from"]).arg(node.host.path(&archive)).output().unwrap();
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
}

/// A case's state, and the causes of its failures.
fn case<'a>(explained: &'a Value, id: &str) -> (&'a str, Vec<String>) {
    let case = explained["cases"].as_array().unwrap().iter().find(|case| case["id"] == id).unwrap();
    let failures = case["failures"].as_array().into_iter().flatten();
    let mut causes: Vec<String> =
        failures.map(|failure| format!("{} at {}", failure["fault"].as_str().unwrap(), failure["place"].as_str().unwrap())).collect();
    causes.dedup();
    (case["state"].as_str().unwrap(), causes)
}

/// Of all networks of its pods is expected what their records promise.
#[test]
fn what_the_records_of_a_nodes_pods_promise_is_expected_from_its_archive() {
    let api = Api::own();
    let node = Node::new(&api, "recorded", "");
    node.restart();
    let side = json!({"type": "bridge", "bridge": "br7", "mtu": 1400, "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}});
    node.define("side", &network(&[side]));
    let pods = ["a", "b"].map(|name| node.pod(name, "side"));
    for pod in &pods {
        pod.must("ADD");
    }
    let whole = explained(&node, "whole");
    assert_eq!(whole["failed"], 0, "{whole:#}");
    // Of a network is known that its pods reach each other, and with which MTU.
    for id in ["1", "network-1", "network-3", "network-4"] {
        assert_eq!(case(&whole, id), ("passed", Vec::new()), "{id}: {whole:#}");
    }
    for port in node.host.json("", "ip -j link show master br7").as_array().unwrap() {
        node.host.sh("", &format!("bridge link set dev {} isolated on", port["ifname"].as_str().unwrap()));
    }
    let apart = explained(&node, "apart");
    assert_eq!(case(&apart, "network-1"), ("failed", vec!["PortsIsolated at node/recorded".to_owned()]), "{apart:#}");
    assert_eq!(case(&apart, "1").0, "passed", "{apart:#}");
    for pod in &pods {
        pod.must("DEL");
    }
}
