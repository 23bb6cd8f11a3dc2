//! Pods that a definition connects to Open vSwitch, with the agent and the real switch.

use netloom_tests::{Node, Switch, netloom};
use serde_json::json;

fn ovs(keys: serde_json::Value) -> String {
    let mut config = json!({"cniVersion": "1.0.0", "name": "tenant", "type": "ovs", "bridge": "br7", "vlan": 7,
        "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}});
    keys.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
    config.to_string()
}

/// Two pods reach each other beside their default network; what was set for it is shown; a DEL without the database fails, and the record
/// stays.
#[test]
fn pods_of_a_definition() {
    let node = Node::start("switched", "");
    let mut switch = Switch::start(&node.host, &["br7"]);
    node.define("tenant", &ovs(json!({})));
    let pods = ["one", "two"].map(|name| node.pod(name, "tenant"));
    pods.iter().for_each(|pod| drop(pod.must("ADD")));
    let address = node.host.addresses(&pods[1].sandbox(), "net1")[0].trim_end_matches("/24").to_owned();
    assert!(node.host.pings(&pods[0].sandbox(), &address));
    assert!(node.host.tcp(&pods[0].sandbox(), &pods[1].sandbox(), &address));
    assert_eq!(pods[0].check().code, 0);
    let explained = || {
        let output = node.host.command("", netloom()).args(["explain", "switched/one", "--color", "never"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(explained().contains("ovs (built in)") && explained().contains("transmit checksums off"), "{}", explained());
    switch.stop_database();
    let del = pods[0].call("DEL");
    assert!(del.code != 0 && del.message().contains("cannot connect to ovsdb-server at "), "{del:?}");
    assert!(explained().contains("net1"), "{}", explained());
    switch.start_database();
    pods.iter().for_each(|pod| drop(pod.must("DEL")));
    node.until("the ports are gone", || switch.ports("br7").is_empty());
}

/// A definition names no other socket than the usual ones, and no bridge is made for it.
#[test]
fn what_a_definition_may_not() {
    let node = Node::start("switch-policy", "");
    let switch = Switch::start(&node.host, &["br7"]);
    node.define("elsewhere", &ovs(json!({"socket_file": "unix:/run/other.sock"})));
    node.define("no-bridge", &ovs(json!({"bridge": "br8"})));
    for (definition, says) in [("elsewhere", r#"names the host's path "/run/other.sock""#), ("no-bridge", r#"has no bridge "br8""#)] {
        let add = node.pod(definition, definition).call("ADD");
        assert!(add.message().contains(says), "{definition}: {add:?}");
    }
    assert_eq!(switch.vsctl("list-br"), "br7\n");
}
