//! `ipam: crd` with a real API server and a real kernel: the node's `CiliumNode` is filled by the test.

use std::process::Output;

use netloom_tests::{Api, Node, SETTINGS};
use serde_json::{Value, json};

const KIND: &str = "/apis/cilium.io/v2/ciliumnodes";

/// A node that has its addresses of its object.
fn node(name: &str) -> Node {
    let node = Node::new(&Api::shared(), name, "", false);
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "netloom0", "isGateway": true,
        "isDefaultGateway": true, "ipam": {"type": "pool", "addWait": 1}}]});
    let settings = format!(
        "nodeName: {name}\nkubeconfig: /run/kubeconfig\nbinDir: {}\ninstall: never\nipam: crd\nciliumNodeUpdateRate: 500ms\n\
         ipamPrefixIPv4: 24\nipamPrefixIPv6: 64\ndelegates:\n- {network}\n",
        node.bin.display()
    );
    node.host.write(SETTINGS, &settings);
    node
}

fn pool(addresses: &[&str]) -> Value {
    addresses.iter().map(|address| ((*address).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>().into()
}

/// What the object says is used: the owner of each address.
fn used(node: &Node) -> Value {
    let object = node.api.must("GET", &format!("{KIND}/{}", node.name), &Value::Null);
    let used = object["status"]["ipam"]["used"].as_object().cloned().unwrap_or_default();
    used.into_iter().map(|(address, by)| (address, by["owner"].clone())).collect::<serde_json::Map<_, _>>().into()
}

fn addresses(node: &Node, link: &str) -> Vec<String> {
    let links = node.host.json("", &format!("ip -j address show dev {link}"));
    let all = links[0]["addr_info"].as_array().unwrap();
    all.iter().map(|a| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"])).collect()
}

fn all_addresses(node: &Node) -> String {
    let mut netloom = node.host.command("", netloom_tests::netloom());
    let Output { stdout, stderr, .. } = netloom.args(["ipam", "status", "--all-addresses"]).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
}

#[test]
fn a_node_waits_for_its_addresses_and_hands_them_out() {
    let node = node("cilium");
    node.launch();
    let logged = |words: &str| node.until(words, || node.log().contains(words));
    logged("Waiting for CiliumNode custom resource to become available...");
    let object = json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": "cilium"},
        "spec": {"ipam": {"pool": pool(&["192.168.7.1"])}}});
    node.until("the kind is served", || node.api.ask("POST", KIND, &object).0 == 201);
    logged("Waiting for initial IP to become available in 'cilium' custom resource");
    logged("Waiting for IPs to become available in CRD-backed allocation pool");
    assert!(node.log().contains("required=2 available=1"), "{}", node.tail());
    let why = node.status()["why"].clone();
    assert!(why.as_str().unwrap().contains("1 of 2 are in spec.ipam.pool"), "{why}");

    let eight = pool(&["192.168.7.1", "192.168.7.2", "192.168.7.3", "192.168.7.4", "fd00:7::1", "FD00:7::2", "fd00:7:0::3", "fd00:7::4"]);
    node.api.must("PATCH", &format!("{KIND}/cilium"), &json!({"spec": {"ipam": {"pool": eight}}}));
    node.until("the agent is ready", || node.status()["ready"] == json!(true));
    logged("All required IPs are available in CRD-backed allocation pool");
    let own = json!({"192.168.7.1": "router", "192.168.7.2": "health", "fd00:7::1": "router", "fd00:7::2": "health"});
    node.until("router and health", || used(&node) == own);
    let there = || {
        let mut all = addresses(&node, "netloom0");
        all.retain(|address| !address.starts_with("fe80"));
        all.sort();
        all
    };
    node.until("the bridge has them", || there() == ["192.168.7.1/24", "fd00:7::1/64", "fd00:7::2/128"]);
    let before = node.before();

    let (a, b) = (node.pod("a", ""), node.pod("b", ""));
    let result = a.must("ADD").result();
    assert_eq!(result["ips"][0]["address"], "192.168.7.3/24", "{result:#}");
    assert_eq!((&result["ips"][0]["gateway"], &result["ips"][1]["gateway"]), (&json!("192.168.7.1"), &json!("fd00:7::1")));
    b.must("ADD");
    for other in ["192.168.7.1", "192.168.7.2", "192.168.7.4", "fd00:7::1", "fd00:7::2", "fd00:7::4"] {
        assert!(node.host.pings(&a.sandbox(), other), "{other}");
    }
    let mut all = own.clone();
    for (address, pod) in [("192.168.7.3", "a"), ("192.168.7.4", "b"), ("fd00:7::3", "a"), ("fd00:7::4", "b")] {
        all[address] = json!(format!("cilium/{pod}"));
    }
    node.until("all are used", || used(&node) == all);
    let told = all_addresses(&node);
    assert!(told.starts_with("IPAM:   IPv4: 4/4 allocated, IPv6: 4/4 allocated\n"), "{told}");
    assert!(told.contains("\n  192.168.7.1 (router)\n  192.168.7.2 (health)\n  192.168.7.3 (cilium/a)\n"), "{told}");
    let table = node.api.plane().kubectl(&["get", "cn"], "").unwrap();
    assert!(table.contains("cilium"), "{table}");

    // Killed, and an address in use leaves the pool meanwhile.
    node.kill9();
    node.api.must("PATCH", &format!("{KIND}/cilium"), &json!({"spec": {"ipam": {"pool": {"192.168.7.3": null}}}}));
    node.restart();
    a.must("CHECK");
    assert!(node.host.pings(&b.sandbox(), "192.168.7.3"));
    b.must("DEL");
    a.must("DEL");
    node.until("nobody uses anything", || used(&node) == own);
    let told = all_addresses(&node);
    assert!(told.starts_with("IPAM:   IPv4: 2/3 allocated, IPv6: 2/4 allocated\n"), "{told}");
    drop((a, b));
    node.expect(&before, "pods with addresses of a CiliumNode");
}
