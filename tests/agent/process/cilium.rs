//! `ipam: crd` with a real API server and a real kernel: the node's `CiliumNode` is filled by the test.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Instant;

use netloom_tests::{Api, Node, SETTINGS};
use serde_json::{Value, json};

const KIND: &str = "/apis/cilium.io/v2/ciliumnodes";

/// A node that has its addresses of its object.
fn node(name: &str) -> Node {
    node_before(&Api::shared(), name)
}

fn node_before(api: &Arc<Api>, name: &str) -> Node {
    let node = Node::new(api, name, "");
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "netloom0", "isGateway": true,
        "isDefaultGateway": true, "ipam": {"type": "pool", "addWait": 60}}]});
    let settings = format!(
        "nodeName: {name}\nkubeconfig: /run/kubeconfig\nbinDir: {}\ninstall: never\nipam: crd\nciliumNodeUpdateRate: 500ms\nreconcileEvery: 2s\n\
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
    let times = |words: &str| node.log().matches(words).count();
    // Who looks at the end of the log sees what is waited for.
    let absent = "Waiting for CiliumNode custom resource to become available...";
    node.until("it is waited for, and said again", || times(absent) >= 2);
    let object = json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": "cilium"},
        "spec": {"ipam": {"pool": pool(&["192.168.7.1"])}}});
    node.until("the kind is served", || node.api.ask("POST", KIND, &object).0 == 201);
    logged("Waiting for initial IP to become available in 'cilium' custom resource");
    logged("Waiting for IPs to become available in CRD-backed allocation pool");
    assert!(node.log().contains("required=2 available=1"), "{}", node.tail());
    let few = "Waiting for IPs to become available in CRD-backed allocation pool";
    node.until("it is waited for, and said again", || times(few) >= 3 && times("Waiting for initial IP") >= 3);
    // And not more often, whoever changes the object.
    let (before, begun) = (times(few), Instant::now());
    for n in 0..20 {
        node.api.must("PATCH", &format!("{KIND}/cilium"), &json!({"metadata": {"annotations": {"n": n.to_string()}}}));
    }
    let more = usize::try_from(begun.elapsed().as_secs()).unwrap() / 5 + 2;
    assert!(times(few) <= before + more, "more than {more} in {:?}:\n{}", begun.elapsed(), node.tail());
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
    // Somebody takes the router's address away.
    node.host.sh("", "ip address del 192.168.7.1/24 dev netloom0");
    node.until("it is there again", || there() == ["192.168.7.1/24", "fd00:7::1/64", "fd00:7::2/128"]);
    logged("missing addresses of the node were restored");
    let before = node.before();

    let (a, b) = (node.pod("a", ""), node.pod("b", ""));
    let result = a.must("ADD").result();
    assert_eq!(result["ips"][0]["address"], "192.168.7.3/24", "{result:#}");
    assert_eq!((&result["ips"][0]["gateway"], &result["ips"][1]["gateway"]), (&json!("192.168.7.1"), &json!("fd00:7::1")));
    b.must("ADD");
    for other in ["192.168.7.1", "192.168.7.2", "192.168.7.4", "fd00:7::1", "fd00:7::2", "fd00:7::4"] {
        assert!(node.host.pings(&a.sandbox(), other), "{other}");
    }
    for probe in ["192.168.7.2", "[fd00:7::2]"] {
        let hello = || node.host.command(&a.sandbox(), "curl").args(["-sf", "-m", "10", &format!("http://{probe}:4240/hello")]).status();
        node.until("an answer to a probe", || hello().unwrap().success());
    }
    let mut all = own.clone();
    for (address, pod) in [("192.168.7.3", "a"), ("192.168.7.4", "b"), ("fd00:7::3", "a"), ("fd00:7::4", "b")] {
        all[address] = json!(format!("cilium/{pod}"));
    }
    node.until("all are used", || used(&node) == all);
    let told = all_addresses(&node);
    assert!(told.starts_with("IPAM:   IPv4: 4/4 allocated, IPv6: 4/4 allocated\n"), "{told}");
    assert!(told.contains("\n  192.168.7.1 (router)\n  192.168.7.2 (health)\n  192.168.7.3 (cilium/a)\n"), "{told}");

    if node.api.is_kubernetes() {
        let table = node.api.plane().kubectl(&["get", "cn"], "").unwrap();
        assert!(table.contains("cilium"), "{table}");
    }

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

/// What the command line says holds, whatever the settings say.
#[test]
fn the_flag_is_enough() {
    let node = node("flag");
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    node.host.write(SETTINGS, &settings.replace("ipam: crd\n", "ipam: pool\n"));
    let mut agent = Running(node.command().arg("--ipam=crd").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let waits = || node.status()["why"].as_str().unwrap_or_default().contains("waiting for the CiliumNode of flag");
    node.until("it waits for its object", || agent.0.try_wait().unwrap().is_none() && waits());
}

/// A program that ends with the test: `netloom operator` with its own token, say.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What the operator needs, and a kubeconfig with its token.
fn with_operator(node: &Node) -> PathBuf {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy");
    let plane = node.api.plane();
    for file in ["ippools.yaml", "operator.yaml", "cilium-crd/ciliumnodes.yaml", "cilium-crd/operator.yaml"] {
        plane.kubectl(&["apply", "-f", deploy.join(file).to_str().unwrap()], "").unwrap();
    }
    for kind in ["ippools.netloom.io", "nodeippools.netloom.io", "ipledgershards.netloom.io", "ciliumnodes.cilium.io"] {
        plane.served(kind).unwrap();
    }
    let token = plane.kubectl(&["create", "token", "netloom-operator", "-n", "kube-system"], "").unwrap();
    plane.write_kubeconfig("operator", token.trim()).unwrap()
}

/// One that dies at a place, if one is given.
fn operator(config: &Path, identity: &str, dies_at: Option<&str>) -> Running {
    let mut command = Command::new(netloom_tests::netloom());
    command.args(["operator", "--no-lease", "--cilium-nodes=filled", "--excess-ip-release-delay", "0", "--identity", identity]);
    command.arg("--kubeconfig").arg(config).envs(dies_at.map(|at| ("NETLOOM_CRASH_AT", at)));
    Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// The addresses in the object's pool.
fn pooled(node: &Node) -> BTreeSet<String> {
    let (_, object) = node.api.ask("GET", &format!("{KIND}/{}", node.name), &Value::Null);
    object["spec"]["ipam"]["pool"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

/// The addresses that the ledger has as the node's, in IPv4 blocks of 16.
fn in_ledger(node: &Node) -> BTreeSet<String> {
    let shards = node.api.must("GET", "/apis/netloom.io/v1alpha1/ipledgershards", &Value::Null);
    let mut found = BTreeSet::new();
    for shard in shards["items"].as_array().unwrap() {
        let Ok(base) = shard["spec"]["base"].as_str().unwrap().split('/').next().unwrap().parse::<Ipv4Addr>() else { continue };
        for (cell, what) in shard["spec"]["cells"].as_object().into_iter().flatten() {
            for (number, ip) in what["ips"].as_object().into_iter().flatten().filter(|(_, ip)| ip["node"] == node.name) {
                assert_eq!(ip["owner"]["ciliumNode"], node.name, "{ip}");
                let at = u32::from(base) + 16 * cell.parse::<u32>().unwrap() + number.parse::<u32>().unwrap();
                found.insert(Ipv4Addr::from(at).to_string());
            }
        }
    }
    found
}

/// The ledger has at least what the object has, whenever somebody looks.
fn ledger_has_all(node: &Node) {
    let pooled = pooled(node);
    let lacking: Vec<String> = pooled.difference(&in_ledger(node)).cloned().collect();
    assert_eq!(lacking, [""; 0]);
}

/// Pods that wait are demand: our operator hears of them at once, however seldom the status is written otherwise.
#[test]
fn a_burst_of_pods_is_filled_at_once() {
    let api = Api::own();
    let node = node_before(&api, "burst");
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    node.host.write(SETTINGS, &settings.replace("ciliumNodeUpdateRate: 500ms", "ciliumNodeUpdateRate: 1h"));
    ["ippools.yaml", "cilium-crd/ciliumnodes.yaml"].iter().for_each(|file| api.define(file));
    api.must("POST", "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "burst"}}));
    let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "filled"}, "spec": {
        "ipv4": {"entries": [{"cidr": "192.168.8.0/24"}], "blockPrefix": 28}}});
    api.must("POST", "/apis/netloom.io/v1alpha1/ippools", &pool);
    let config = node.host.path("/run/operator.kubeconfig");
    std::fs::write(&config, api.kubeconfig("admin")).unwrap();
    node.launch();
    let _operator = operator(&config, "only", None);
    node.until("the agent is ready", || node.status()["ready"] == json!(true));
    let pods: Vec<_> = (0..40).map(|n| node.pod(&format!("p{n}"), "")).collect();
    let calls: Vec<_> = pods.iter().map(|pod| pod.begin("ADD")).collect();
    for (pod, call) in pods.iter().zip(calls) {
        let output = call.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", pod.name, node.tail());
    }
    let object = api.must("GET", &format!("{KIND}/burst"), &Value::Null);
    assert_eq!(object["spec"]["ipam"]["filled-by"], "netloom", "{object:#}");
    assert!(pooled(&node).len() >= 42, "router, health and 40 pods: {object:#}");
    pods.iter().for_each(|pod| drop(pod.must("DEL")));
}

/// Our operator, which fills the object of our agent, killed at each of its writes, and two of them at once.
#[test]
#[ignore = "needs Kubernetes: roles and tokens"]
fn our_operator_fills_the_object() {
    // An operator is for all nodes that the API server knows.
    let node = node_before(&Api::own(), "filled");
    let config = with_operator(&node);
    node.api.must("POST", "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "filled"}}));
    let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "filled"}, "spec": {
        "ipv4": {"entries": [{"cidr": "192.168.9.0/26"}], "blockPrefix": 28}, "scaling": {"preAllocate": 3}}});
    node.api.must("POST", "/apis/netloom.io/v1alpha1/ippools", &pool);
    node.launch();
    // Each of them dies behind a write, and the next one goes on.
    for (i, at) in ["pool:1", "ledger:1", "cilium:1", "ledger:1", "cilium:1"].iter().enumerate() {
        let mut dying = operator(&config, &format!("dying-{i}"), Some(&format!("operator-{at}")));
        node.until(at, || dying.0.try_wait().unwrap().is_some());
        ledger_has_all(&node);
    }
    let two = ["one", "two"].map(|name| operator(&config, name, None));
    node.until("the agent is ready", || node.status()["ready"] == json!(true));
    node.until("router, health, and three more", || pooled(&node).len() == 5 && used(&node).as_object().unwrap().len() == 2);
    ledger_has_all(&node);
    let before = node.before();

    let pods: Vec<_> = (0..8).map(|n| node.pod(&format!("p{n}"), "")).collect();
    for pod in &pods {
        let answer = pod.must("ADD").result();
        assert!(answer["ips"][0]["address"].as_str().unwrap().starts_with("192.168.9."), "{answer}");
        ledger_has_all(&node);
    }
    assert!(node.host.pings(&pods[0].sandbox(), "192.168.9.1"));
    node.until("ten that are used, and three more", || pooled(&node).len() == 13 && used(&node).as_object().unwrap().len() == 10);
    drop(two);
    pods.iter().for_each(|pod| drop(pod.must("DEL")));
    node.until("nobody uses anything", || used(&node).as_object().unwrap().len() == 2);
    // Marked, released, entered as returning, out of the object, free.
    for (i, at) in ["cilium:1", "cilium:1", "ledger:1", "cilium:1", "ledger:1"].iter().enumerate() {
        let mut dying = operator(&config, &format!("later-{i}"), Some(&format!("operator-{at}")));
        node.until(at, || dying.0.try_wait().unwrap().is_some());
        ledger_has_all(&node);
    }
    let _last = operator(&config, "last", None);
    node.until("what nobody needs is free", || pooled(&node).len() == 5 && in_ledger(&node).len() == 5);
    assert_eq!(pooled(&node), in_ledger(&node));
    drop(pods);
    node.expect(&before, "pods with addresses that our operator gave");
}
