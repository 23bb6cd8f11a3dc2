//! `netloom`: several networks of a container in one call of one process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use netloom_tests::{Cni, Host, Traces, plugin_dir};
use serde_json::{Value, json};

fn ipam(net: u8) -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": format!("10.{net}.0.0/24")}]]})
}

/// A bridge as the default network, and two macvlans.
fn config() -> Value {
    let macvlan =
        |net: u8| json!({"cniVersion": "1.1.0", "name": format!("wire{net}"), "type": "macvlan", "master": "up0", "ipam": ipam(net)});
    let bridge = json!({
        "cniVersion": "1.1.0", "name": "default", "type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true, "ipam": ipam(1),
    });
    json!({"cniVersion": "1.0.0", "name": "pods", "type": "netloom", "delegates": [bridge, macvlan(2), macvlan(3)]})
}

fn at<'h>(host: &'h Host, container: &str) -> Cni<'h> {
    host.cni(plugin_dir()).at(container, "eth0")
}

/// A machine with a wire and containers `c1` and `c2`, on which one pod has come and gone.
fn used() -> (Host, Traces) {
    let host = Host::new();
    host.sh("", "ip link add up0 up type veth peer name up1");
    host.sh("", "ip link set up1 up");
    host.container("c1");
    host.container("c2");
    let result = at(&host, "c1").add(&config());
    at(&host, "c1").del(&config(), &result);
    let before = host.traces();
    (host, before)
}

#[test]
fn a_pod_is_attached_checked_and_detached_as_one() {
    let (host, before) = used();
    let result = at(&host, "c1").add(&config());
    // The runtime hears of its own network, in its own version.
    assert_eq!((result["cniVersion"].as_str(), &result["interfaces"][2]["name"]), (Some("1.0.0"), &json!("eth0")));
    for (name, net) in [("eth0", 1), ("net1", 2), ("net2", 3)] {
        let addresses = host.addresses("c1", name);
        assert!(addresses.iter().any(|a| a.starts_with(&format!("10.{net}.0."))), "{name}: {addresses:?}");
    }
    assert_eq!(at(&host, "c1").check(&config(), &result).code, 0);
    let again = at(&host, "c1").call("ADD", "netloom", config().to_string());
    assert!(again.message().contains("attached already"), "{again:?}");

    host.run("c1", &["ip", "address", "flush", "dev", "net2"]);
    let changed = at(&host, "c1").check(&config(), &result);
    assert!(changed.message().contains("wire3"), "{changed:?}");
    at(&host, "c1").del(&config(), &result);
    at(&host, "c1").del(&config(), &result);
    host.expect_traces(&before, "DEL");
}

/// The record alone counts: the delegates may be gone from the configuration.
#[test]
fn del_needs_neither_delegates_nor_namespace() {
    let (host, before) = used();
    at(&host, "c1").add(&config());
    at(&host, "c2").add(&config());
    let bare = json!({"cniVersion": "1.0.0", "name": "pods", "type": "netloom"});
    at(&host, "c1").del(&bare, &Value::Null);
    at(&host, "c2").unset("CNI_NETNS").del(&bare, &Value::Null);
    host.expect_traces(&before, "DEL of both");
}

#[test]
fn a_network_that_fails_takes_the_others_along() {
    let (host, before) = used();
    let mut bad = config();
    bad["delegates"][2]["master"] = json!("nowhere");
    let failed = at(&host, "c1").call("ADD", "netloom", bad.to_string());
    assert!(failed.message().contains("wire3") && failed.message().contains("nowhere"), "{failed:?}");
    assert_eq!(failed.error()["code"], 7);
    host.expect_traces(&before, "an ADD whose last network fails");
    for (change, word) in [
        (json!({"delegates": []}), "delegates"),
        (json!({"delegates": [{"name": "x"}]}), "delegates[0]"),
        (json!({"delegates": [bad["delegates"][0], bad["delegates"][0]]}), "delegates[1].name"),
        (json!({"delegates": [bad["delegates"][0]], "clusterNetwork": "x"}), "clusterNetwork"),
    ] {
        let mut config = json!({"cniVersion": "1.0.0", "name": "pods", "type": "netloom"});
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = at(&host, "c1").call("ADD", "netloom", config.to_string());
        assert!(refused.message().contains(word), "{refused:?}");
    }
    host.expect_traces(&before, "bad configurations");
}

/// GC detaches every pod that is not valid any more, wholly, and lets each network free what else is nobody's.
#[test]
fn gc_keeps_what_is_valid() {
    let (host, before) = used();
    let mut config = config();
    config["cniVersion"] = json!("1.1.0");
    let kept = at(&host, "c1").add(&config);
    // The address of an attachment whose record is lost, and of nobody: both are freed.
    at(&host, "c2").add(&config);
    host.run("", &["rm", "/var/lib/cni/netloom/pods/c2.json"]);
    host.run("c2", &["ip", "link", "del", "eth0"]);
    host.run("c2", &["ip", "link", "del", "net1"]);
    host.run("c2", &["ip", "link", "del", "net2"]);
    let gc = |valid: Value| {
        let mut gc = config.clone();
        gc["cni.dev/valid-attachments"] = valid;
        let outcome = host.cni(plugin_dir()).call("GC", "netloom", gc.to_string());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{outcome:?}");
    };
    gc(json!([{"containerID": "c1", "ifname": "eth0"}]));
    assert_eq!(at(&host, "c1").check(&config, &kept).code, 0);
    for network in ["default", "wire2", "wire3"] {
        let held: Vec<String> =
            host.list(&format!("/var/lib/cni/networks/{network}")).into_iter().filter(|n| n.starts_with("10.")).collect();
        assert_eq!(held.len(), 1, "{network}: {held:?}");
    }
    gc(json!([]));
    host.expect_traces(&before, "GC of everything");
}

#[test]
fn status_names_the_network_that_is_not_ready() {
    let (host, _) = used();
    let mut config = config();
    config["cniVersion"] = json!("1.1.0");
    assert_eq!(host.cni(plugin_dir()).call("STATUS", "netloom", config.to_string()).code, 0);
    host.run("", &["ip", "link", "del", "up0"]);
    let status = host.cni(plugin_dir()).call("STATUS", "netloom", config.to_string());
    assert!(status.error()["code"] == 50 && status.message().contains("wire2"), "{status:?}");
}
