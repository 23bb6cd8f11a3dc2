//! An agent comes to a node that has pods already, and goes again.

use netloom_tests::{peers_dir, plugin_dir};
use serde_json::json;
use testbed::DefaultNetwork;

use super::scene::{Scene, leases, left, until, workload};

/// The plugins of the node's own network are the reference's, as its packages bring them.
fn reference_plugins(scene: &Scene) {
    let node = &scene.cluster.nodes()[0];
    node.run(&["sh", "-c", "rm /opt/cni/bin/*"]).unwrap();
    for name in ["bridge", "host-local", "loopback"] {
        let from = peers_dir().join(name).display().to_string();
        node.run(&["cp", &from, "/opt/cni/bin/"]).unwrap();
    }
}

fn programs(scene: &Scene) -> Vec<String> {
    let listed = scene.cluster.nodes()[0].run(&["ls", "/opt/cni/bin"]).unwrap();
    listed.lines().map(str::to_owned).collect()
}

/// Pods of these Deployments reach each other.
fn reach_each_other(scene: &Scene, deployments: &[&str]) {
    let pods: Vec<_> = deployments.iter().flat_map(|name| scene.pods(name)).collect();
    let every: Vec<String> = pods.iter().map(|pod| pod.ip.clone()).collect();
    pods.iter().for_each(|pod| scene.pings(pod, &every));
}

#[test]
fn agent_comes_to_running_pods_and_goes_from_running_pods() {
    let mut scene = Scene::new("dropin", 1, DefaultNetwork::Bridge);
    reference_plugins(&scene);
    scene.define();
    scene.apply(&workload("before", 2, "", "1"));
    scene.apply(&workload("stays", 1, "", "1"));
    ["before", "stays"].iter().for_each(|name| scene.rolled(name));
    let had: Vec<_> = scene.pods("before").iter().map(|pod| scene.interfaces(pod)).collect();
    scene.said("pods of a plain bridge");

    scene.cluster.control().allow_agents().unwrap();
    let control = scene.cluster.control();
    let said = scene.cluster.nodes()[0]
        .install_agent(control, &plugin_dir().join("netloom-cni"), "clusterNetwork: /etc/cni/net.d/10-pods.conflist\nreconcileEvery: 1s\n")
        .unwrap();
    assert!(said.contains("/etc/cni/net.d/00-netloom.conflist"), "{said}");
    assert_eq!(programs(&scene), ["bridge", "host-local", "loopback", "netloom", "netloom-cni"]);
    scene.cluster.nodes_mut()[0].start_agent().unwrap();
    scene.apply(&workload("after", 2, "storage, backup", "1"));
    scene.rolled("after");
    for pod in scene.pods("after") {
        assert_eq!(scene.interfaces(&pod).keys().collect::<Vec<_>>(), ["eth0", "net1", "net2"]);
    }
    // It is told in its own time.
    let told = || scene.pods("after").iter().map(|pod| pod.status().len()).collect::<Vec<_>>();
    until("both statuses", told, |told| *told == [3, 3]);
    let has: Vec<_> = scene.pods("before").iter().map(|pod| scene.interfaces(pod)).collect();
    assert_eq!(has, had, "pods that were there keep their network");
    reach_each_other(&scene, &["before", "stays", "after"]);
    scene.said("the agent beside them");

    scene.delete("before");
    until("their addresses are free", || leases(&scene.cluster.nodes()[0], "pods"), |held| held.len() == 3);
    until("their namespaces are gone", || scene.cluster.nodes()[0].namespaces(), |names| names.len() == 3);
    reach_each_other(&scene, &["stays", "after"]);
    scene.no_failure_of_ours();
    scene.said("those of before deleted");

    let said = scene.cluster.nodes()[0].netloom(&["agent", "uninstall"]).unwrap();
    assert!(said.contains("the runtime now uses /etc/cni/net.d/10-pods.conflist"), "{said}");
    assert!(said.contains("kept") && programs(&scene).contains(&"netloom-cni".to_owned()), "pods still need it: {said}");
    scene.apply(&workload("without", 2, "storage, backup", "1"));
    scene.rolled("without");
    for pod in scene.pods("without") {
        assert_eq!(scene.interfaces(&pod).len(), 1, "the agent has nothing to do with it");
        assert!(pod.status().is_empty());
    }
    reach_each_other(&scene, &["stays", "after", "without"]);
    scene.said("uninstalled, and new pods");

    scene.delete("after");
    until(
        "what only the agent knows is gone",
        || [leases(&scene.cluster.nodes()[0], "storage"), leases(&scene.cluster.nodes()[0], "backup")].concat(),
        Vec::is_empty,
    );
    let said = scene.cluster.nodes()[0].netloom(&["agent", "uninstall"]).unwrap();
    assert_eq!(programs(&scene), ["bridge", "host-local", "loopback"], "{said}");
    ["stays", "without"].iter().for_each(|name| scene.delete(name));
    // The runtime forgets an ADD by the name of the network that it has now: these are files of its own, of no further use.
    let its_own = |what: &String| what.starts_with("file /var/lib/cni/results/netloom-");
    let besides = || left(&scene.cluster.nodes()[0]).into_iter().filter(|what| !its_own(what)).collect::<Vec<_>>();
    until("nothing is left", besides, Vec::is_empty);
    scene.said("all deleted");
    // Those that the agent knows are deleted by it and by the runtime's own plugin, who may find the link gone in the midst of
    // its work; the kubelet repeats it.
    let both = |failure: &String| failure.contains("failed to delete \\\"eth0\\\": no such device");
    let failures: Vec<String> = scene.failures_of_ours().into_iter().filter(|failure| !both(failure)).collect();
    assert!(failures.is_empty(), "{failures:#?}\n{}", scene.why());
}

/// Multus was removed; what it had written for the runtime was not.
#[test]
fn configuration_of_multus_without_multus_is_served() {
    let mut scene = Scene::new("multus", 1, DefaultNetwork::Bridge);
    reference_plugins(&scene);
    scene.define();
    let node = &scene.cluster.nodes()[0];
    let config = json!({"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus",
        "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig", "clusterNetwork": "/etc/cni/net.d/10-pods.conflist",
        "capabilities": {"portMappings": true}, "logLevel": "error", "logFile": "/var/log/multus.log"});
    node.write("/etc/cni/net.d/00-multus.conf", config.to_string()).unwrap();
    scene.cluster.control().allow_agents().unwrap();
    let control = scene.cluster.control();
    let said = node
        .install_agent(control, &plugin_dir().join("netloom-cni"), "clusterNetwork: /etc/cni/net.d/10-pods.conflist\ninstall: never\n")
        .unwrap();
    assert_eq!(programs(&scene), ["bridge", "host-local", "loopback", "multus", "netloom", "netloom-cni"], "{said}");
    scene.cluster.nodes_mut()[0].start_agent().unwrap();
    scene.apply(&workload("web", 2, "storage, backup", "1"));
    scene.rolled("web");
    scene.networks_hold("web", 2);
    scene.delete("web");
    until("nothing is left", || left(&scene.cluster.nodes()[0]), Vec::is_empty);
    let failures = scene.failures_of_ours();
    assert!(failures.is_empty(), "{failures:#?}\n{}", scene.why());
    scene.said("multus");
}
