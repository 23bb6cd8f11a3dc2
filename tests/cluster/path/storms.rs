//! What runs on the nodes is replaced, killed and rebooted under the pods.

use std::time::Duration;

use testbed::{DefaultNetwork, Node};

use super::scene::{Pod, Scene, leases, until, workload};

/// Does something to a node while pods come or go on it.
fn while_scaled(scene: &mut Scene, replicas: usize, what: &str, to_node: impl Fn(&mut Node)) {
    scene.scale("web", replicas);
    // The first sandboxes are being made, or removed.
    // Sleeps: the storm comes while the first sandboxes are made, or removed.
    std::thread::sleep(Duration::from_millis(400));
    scene.cluster.nodes_mut().iter_mut().for_each(to_node);
    scene.rolled("web");
    scene.networks_hold("web", replicas);
    scene.said(what);
}

/// The kubelets know their pods again after a restart.
fn kubelets_know(scene: &Scene) {
    for node in ["node-1", "node-2"] {
        let wanted = scene.pods("web").iter().filter(|pod| pod.node == node).count();
        until("the kubelet knows its pods", || scene.cluster.known_pods(node).unwrap_or_default(), |pods| pods.len() == wanted);
    }
}

/// Makes what a containerd leaves that is killed while it makes a pod's sandbox: attachments in a namespace that has no
/// process and gets no DEL. It goes when the pod does; that of the pod, older and in use, does not go before.
fn forgotten_sandbox(scene: &Scene) {
    let pod = &scene.pods("web")[0];
    let node = scene.cluster.node(&pod.node).unwrap();
    node.run(&["ip", "netns", "add", "forgotten"]).unwrap();
    node.write("/run/forgotten.json", r#"{"cniVersion": "1.0.0", "name": "netloom", "type": "netloom"}"#).unwrap();
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}", pod.name);
    let line = format!(
        "CNI_COMMAND=ADD CNI_CONTAINERID=forgotten CNI_NETNS=/run/netns/forgotten CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin \
         CNI_ARGS='{args}' /opt/cni/bin/netloom </run/forgotten.json"
    );
    node.run(&["sh", "-c", &line]).unwrap();
    let held = leases(node, "pods").len();
    // Two comparisons, the first of which may have begun before.
    let compared = || node.agent_log().unwrap().matches("  reconcile sandboxes=").count();
    let before = compared();
    until("the agent compares what it has three times", compared, |times| *times >= before + 3);
    assert_eq!(leases(node, "pods").len(), held, "a pod that is there keeps all it has");
    let (network, _) = pod.ip.rsplit_once('.').unwrap();
    scene.pings(pod, &[format!("{network}.1")]);
}

#[test]
fn agent_is_replaced_while_pods_come_and_go_and_nobody_notices() {
    let mut scene = Scene::new("upgrade", 2, DefaultNetwork::Agent);
    scene.define();
    scene.apply(&workload("web", 2, "storage, backup", "1"));
    scene.rolled("web");
    for (replicas, what) in [(12, "up"), (4, "down"), (10, "up"), (2, "down")] {
        scene.scale("web", replicas);
        for _ in 0..3 {
            // Sleeps: the agent is ended at some moment of many calls.
            std::thread::sleep(Duration::from_millis(250));
            scene.cluster.nodes_mut().iter_mut().for_each(|node| node.restart_agent().unwrap());
        }
        scene.rolled("web");
        scene.networks_hold("web", replicas);
        scene.said(&format!("three upgrades on each node while scaled {what} to {replicas}"));
    }
    scene.no_failure_of_ours();
    forgotten_sandbox(&scene);
    scene.delete("web");
    scene.nothing_is_left();
    scene.no_failure_of_ours();
    scene.said("deleted");
}

#[test]
fn everything_is_restarted_killed_and_rebooted_under_the_pods() {
    let mut scene = Scene::new("storms", 2, DefaultNetwork::Agent);
    scene.define();
    scene.apply(&workload("web", 4, "storage, backup", "1"));
    scene.rolled("web");
    scene.said("four pods");

    while_scaled(&mut scene, 8, "containerd restarted", |node| node.restart_containerd().unwrap());
    while_scaled(&mut scene, 4, "kubelet restarted", |node| node.restart_kubelet().unwrap());
    kubelets_know(&scene);
    while_scaled(&mut scene, 8, "agent killed", |node| {
        node.kill_agent().unwrap();
        node.start_agent().unwrap();
    });
    while_scaled(&mut scene, 3, "containerd killed", |node| {
        node.kill_containerd().unwrap();
        node.start_containerd().unwrap();
    });
    while_scaled(&mut scene, 8, "all three killed", |node| {
        node.kill_kubelet().unwrap();
        node.kill_agent().unwrap();
        node.kill_containerd().unwrap();
        node.start_agent().unwrap();
        node.start_containerd().unwrap();
        node.start_kubelet().unwrap();
    });
    while_scaled(&mut scene, 4, "DELs without an agent", |node| {
        node.kill_agent().unwrap();
        // Sleeps: the agent is away for so long.
        std::thread::sleep(Duration::from_secs(1));
        node.start_agent().unwrap();
    });

    let before: Vec<String> = scene.pods("web").iter().map(Pod::container).collect();
    scene.cluster.nodes_mut()[0].power_off().unwrap();
    assert!(scene.cluster.nodes()[0].namespaces().is_empty(), "the pods' namespaces are gone");
    scene.cluster.nodes_mut()[0].power_on().unwrap();
    let others = || scene.pods("web").iter().filter(|pod| pod.node == "node-1" && before.contains(&pod.container())).count();
    until("the node's pods have containers of after the reboot", others, |n| *n == 0);
    scene.rolled("web");
    scene.networks_hold("web", 4);
    scene.said("rebooted");

    scene.cluster.alive().unwrap();
    scene.delete("web");
    scene.nothing_is_left();
    scene.said("deleted");
    for failure in scene.failures_of_ours() {
        println!("while killed: {failure}");
    }
}
