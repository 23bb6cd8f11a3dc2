//! The cluster's own network on a real Kubernetes: kubelet, containerd and kube-proxy know nothing of it.

use std::time::Duration;

use serde_json::{Value, json};
use testbed::{BUSYBOX, DefaultNetwork};

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
        "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}]}})
}

/// Who answers a pod at an address and port.
fn told(scene: &Scene, from: &Pod, address: &str, port: u16) -> String {
    let url = format!("http://{address}:{port}/");
    let output = scene.within(from, &["curl", "-s", "--noproxy", "*", "--max-time", "5", &url]);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Pods, the Service, its node port and the host ports, from every pod.
fn all_answer(scene: &Scene, cluster_ip: &str) {
    let pods = scene.pods("web");
    for from in &pods {
        for to in &pods {
            until(&format!("{} answers {}", to.name, from.name), || told(scene, from, &to.ip, 8080), |name| *name == to.name);
        }
        let known = |name: &String| pods.iter().any(|pod| pod.name == *name);
        until("the Service answers", || told(scene, from, cluster_ip, 80), known);
        for node in scene.cluster.nodes() {
            until("the node port answers", || told(scene, from, node.address(), 30080), known);
            let here = pods.iter().find(|pod| pod.node == node.name()).unwrap();
            until("the host port answers", || told(scene, from, node.address(), 8081), |name| *name == here.name);
        }
    }
}

fn condition(scene: &Scene, node: &str) -> String {
    let path = r#"jsonpath={.status.conditions[?(@.type=="NetworkUnavailable")].status}"#;
    scene.kubectl(&["get", "node", node, "-o", path])
}

fn works(name: &str, settings: &'static str, modes: [&str; 2]) {
    let mut scene = Scene::new(name, 2, DefaultNetwork::Provided(settings));
    for node in ["node-1", "node-2"] {
        until("the Node says that it has a network", || condition(&scene, node), |status| status == "False");
    }
    scene.apply(&servers("web"));
    scene.apply(&service("web"));
    scene.rolled("web");
    let cluster_ip = scene.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    for mode in modes {
        scene.start_proxies(mode);
        scene.said(mode);
        all_answer(&scene, &cluster_ip);
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
    works("direct", "between: direct", ["nftables", "iptables"]);
}

#[test]
fn vxlan_and_services() {
    works("vxlan", "between: vxlan", ["iptables", "nftables"]);
}
