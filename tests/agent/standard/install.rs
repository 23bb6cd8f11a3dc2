//! When the runtime gets its configuration: with the default network, or early, into a directory of its own.

use std::time::Duration;

use serde_json::{Value, json};

use crate::standard::scene::{Node, bridge, until};

const FILE: &str = "/etc/cni/net.d/00-netloom.conflist";

fn list() -> Value {
    json!({"cniVersion": "1.0.0", "name": "main", "plugins": [bridge("main", 1)]})
}

/// Not before the default network is there, so that the runtime keeps pods away until then.
#[test]
fn s47_the_configuration_comes_with_the_default_network() {
    let mut node = Node::asleep("ready", json!({"install": "ready"}));
    node.host.write("/etc/cni/net.d/.keep", "");
    node.start();
    // Sleeps: that nothing is written shows in time alone.
    std::thread::sleep(Duration::from_millis(700));
    assert!(!node.host.path(FILE).exists());
    node.host.write("/etc/cni/net.d/10-main.conflist", &list().to_string());
    let text = until("the runtime's configuration", || std::fs::read_to_string(node.host.path(FILE)).ok());
    let config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["plugins"][0]["type"], "netloom");
    // With it as it is a pod comes up.
    let mut single = config["plugins"][0].clone();
    single["cniVersion"] = config["cniVersion"].clone();
    single["name"] = config["name"].clone();
    let pod = node.pod_with("web", &json!({})).by("netloom", single);
    pod.add();
    assert_eq!(pod.entry("eth0")["name"], "main");
    // The agent's end takes nothing away.
    node.kill();
    assert!(node.host.path(FILE).exists());
}

/// The runtime reads a directory that only we write to; the default network's stands in the usual one.
#[test]
fn s48_the_runtime_may_have_a_directory_of_its_own() {
    let mut node =
        Node::asleep("dedicated", json!({"install": "ready", "cniConfigDir": "/etc/cni/runtime", "clusterNetwork": "/etc/cni/net.d"}));
    node.start();
    // Sleeps: that nothing is written shows in time alone.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(node.host.list("/etc/cni/runtime").into_iter().filter(|name| name.ends_with("list")).count(), 0);
    node.host.write("/etc/cni/net.d/10-main.conflist", &list().to_string());
    until("the runtime's configuration", || node.host.path("/etc/cni/runtime/00-netloom.conflist").exists().then_some(()));
    assert_eq!(node.host.list("/etc/cni/net.d"), ["10-main.conflist"]);
    let pod = node.pod_with("web", &json!({}));
    pod.add();
    pod.del();
}

/// At once, and then calls wait until the default network is ready.
#[test]
fn s49_an_early_configuration_makes_calls_wait() {
    let mut node = Node::asleep("early", json!({"install": "early", "addWait": "60s"}));
    node.host.write("/etc/cni/net.d/.keep", "");
    node.start();
    until("the runtime's configuration", || node.host.path(FILE).exists().then_some(()));
    let pod = node.pod_with("web", &json!({}));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pod.call("ADD"));
        // Sleeps: that it still waits shows in time alone.
        std::thread::sleep(Duration::from_millis(1200));
        assert!(!waiting.is_finished() && pod.links() == ["lo"]);
        node.host.write("/etc/cni/net.d/10-main.conflist", &list().to_string());
        assert_eq!(waiting.join().unwrap().code, 0);
    });
    assert_eq!(pod.links(), ["eth0", "lo"]);
    pod.del();
}
