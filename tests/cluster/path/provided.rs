//! The cluster's own network on a real Kubernetes: kubelet, containerd and kube-proxy know nothing of it.

use std::time::Duration;

use serde_json::{Value, json};
use testbed::{BUSYBOX, DefaultNetwork, Families, Options};

use super::scene::{Pod, Scene, until};

/// Two pods that answer with their names over HTTP, one on each node, at host port 8081 too.
fn servers(name: &str) -> Value {
    let serve = "mkdir -p /www && hostname >/www/index.html && exec httpd -f -p 8080 -h /www";
    let container = json!({"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", serve],
        "ports": [{"containerPort": 8080, "hostPort": 8081}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "containers": [container]}}}})
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": "NodePort", "selector": {"app": name},
        "ipFamilyPolicy": "PreferDualStack",
        "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}]}})
}

/// Who answers a pod at an address and port.
fn told(scene: &Scene, from: &Pod, address: &str, port: u16) -> String {
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let url = format!("http://{address}:{port}/");
    let output = scene.within(from, &["curl", "-s", "--noproxy", "*", "--max-time", "5", &url]);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Pods, the Service, its node port and the host ports, from every pod, over every family.
fn all_answer(scene: &Scene, cluster_ips: &[String]) {
    let pods = scene.pods("web");
    for from in &pods {
        for (to, ip) in pods.iter().flat_map(|to| to.ips().into_iter().map(move |ip| (to, ip))) {
            until(&format!("{} answers {} at {ip}", to.name, from.name), || told(scene, from, &ip, 8080), |name| *name == to.name);
        }
        let known = |name: &String| pods.iter().any(|pod| pod.name == *name);
        for ip in cluster_ips {
            until(&format!("the Service answers at {ip}"), || told(scene, from, ip, 80), known);
        }
        for (node, address) in scene.cluster.nodes().iter().flat_map(|node| node.addresses().iter().map(move |address| (node, address))) {
            until(&format!("the node port answers at {address}"), || told(scene, from, address, 30080), known);
            let here = pods.iter().find(|pod| pod.node == node.name()).unwrap();
            until(&format!("the host port answers at {address}"), || told(scene, from, address, 8081), |name| *name == here.name);
        }
    }
}

fn condition(scene: &Scene, node: &str) -> String {
    let path = r#"jsonpath={.status.conditions[?(@.type=="NetworkUnavailable")].status}"#;
    scene.kubectl(&["get", "node", node, "-o", path])
}

fn works(name: &str, families: Families, settings: &'static str, modes: [&str; 2]) {
    let provided = |options: Options| options.nodes(2).network(DefaultNetwork::Provided(settings)).families(families);
    holds(&mut Scene::of(name, provided), families, modes);
}

/// Pods, Services and ports of a cluster, while everything but the kernel is killed.
fn holds(scene: &mut Scene, families: Families, modes: [&str; 2]) {
    for node in ["node-1", "node-2"] {
        until("the Node says that it has a network", || condition(scene, node), |status| status == "False");
    }
    scene.apply(&servers("web"));
    scene.apply(&service("web"));
    scene.rolled("web");
    let cluster_ips = scene.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[*]}"]);
    let cluster_ips: Vec<String> = cluster_ips.split_whitespace().map(str::to_owned).collect();
    let count = if families == Families::Dual { 2 } else { 1 };
    assert!(cluster_ips.len() == count && scene.pods("web").iter().all(|pod| pod.ips().len() == count), "{cluster_ips:?}");
    for mode in modes {
        scene.start_proxies(mode);
        scene.said(mode);
        all_answer(scene, &cluster_ips);
        scene.said("answers");
    }
    let nodes = scene.cluster.nodes()[0].netloom(&["nodes"]).unwrap();
    println!("{}\n{nodes}", scene.cluster.nodes()[0].netloom(&["status"]).unwrap());
    assert!(!nodes.contains(" no\n"), "packets pass: {nodes}");

    // Nobody's end takes a packet: five pings a second, from before to after.
    let pods = scene.pods("web");
    let pinging = scene.begin(&pods[0], &["ping", "-i", "0.2", "-c", "100", "-W", "5", &pods[1].ip]);
    for node in scene.cluster.nodes_mut() {
        node.kill_agent().unwrap();
        node.kill_kubelet().unwrap();
        node.kill_containerd().unwrap();
        // Sleeps: packets go on without any of them.
        std::thread::sleep(Duration::from_secs(1));
        node.start_containerd().unwrap();
        node.start_kubelet().unwrap();
        node.start_agent().unwrap();
    }
    let lost = pinging.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&lost.stdout).into_owned();
    assert!(said.contains(" 0% packet loss"), "{said}");
    scene.delete("web");
    scene.no_failure_of_ours();
}

#[test]
fn direct_routes_and_services() {
    works("direct", Families::V4, "between: direct", ["nftables", "iptables"]);
}

#[test]
fn vxlan_and_services() {
    works("vxlan", Families::V4, "between: vxlan", ["iptables", "nftables"]);
}

#[test]
fn both_families_and_services() {
    works("dual", Families::Dual, "", ["nftables", "iptables"]);
}

#[test]
fn ipv6_alone_and_services() {
    works("six", Families::V6, "between: vxlan", ["nftables", "iptables"]);
}

/// As the manual says: no Node has a range, and the operator is a pod of the host's network, which needs no address to grant the first ones.
#[test]
fn blocks_of_pools_and_services() {
    let settings = "between: vxlan\nipam: pool";
    let mut scene = Scene::of("pools", |options| options.nodes(2).network(DefaultNetwork::Provided(settings)).late_ranges());
    for node in ["node-1", "node-2"] {
        until("the Node says that it has no network", || condition(&scene, node), |status| status == "True");
    }
    scene.cluster.import_netloom().unwrap();
    // The operator reaches the API server by its Service.
    scene.start_proxies("nftables");
    for file in ["ippools.yaml", "operator.yaml"] {
        scene.kubectl(&["apply", "-f", &format!("{}/../deploy/{file}", env!("CARGO_MANIFEST_DIR"))]);
    }
    scene.cluster.control().served("ippools.netloom.io").unwrap();
    let spec = json!({"ipv4": {"entries": [{"cidr": "10.245.0.0/16"}], "gateway": "10.245.0.1"}});
    scene.apply(&json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "default"}, "spec": spec}));
    scene.cluster.until_ready().unwrap();
    holds(&mut scene, Families::V4, ["nftables", "iptables"]);
    // What a Node is given later is nobody's.
    scene.cluster.give_ranges().unwrap();
    scene.apply(&servers("late"));
    scene.rolled("late");
    let addresses: Vec<String> = scene.pods("late").iter().map(|pod| pod.ip.clone()).collect();
    assert!(addresses.iter().all(|address| address.starts_with("10.245.")), "{addresses:?}");
}

#[test]
fn ranges_that_come_late() {
    let mut scene = Scene::of("late", |options| options.nodes(2).network(DefaultNetwork::Provided("between: direct")).late_ranges());
    scene.apply(&servers("web"));
    for node in ["node-1", "node-2"] {
        until("the Node says that it has no network", || condition(&scene, node), |status| status == "True");
    }
    // No pod is where it would wait for its network.
    let placed = || scene.pods("web").iter().filter(|pod| !pod.node.is_empty()).count();
    assert_eq!(placed(), 0, "{}", scene.why());
    scene.cluster.give_ranges().unwrap();
    scene.cluster.until_ready().unwrap();
    scene.rolled("web");
    let pods = scene.pods("web");
    until("the pods meet", || told(&scene, &pods[0], &pods[1].ip, 8080), |name| *name == pods[1].name);
}
