//! What the tests of `vlan`, `ipvlan` and `dummy` share: a wire to the world, and what each kind must do.

use netloom_tests::{Host, at, attached_once, peers_dir, plugin_dir};
use serde_json::{Value, json};

pub(crate) fn config(kind: &str, keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": kind});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// Addresses of both families, and a route.
pub(crate) fn dual() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24", "rangeStart": "10.5.0.10"}], [{"subnet": "fd00:5::/64", "rangeStart": "fd00:5::10"}]],
        "routes": [{"dst": "10.99.0.0/16"}]})
}

/// One address of one's own choice.
pub(crate) fn fixed(address: &str) -> Value {
    json!({"type": "static", "addresses": [{"address": address}]})
}

/// `wire0` of the machine, whose other end is `wire1` in the container `world`; and two containers.
pub(crate) fn wired() -> Host {
    let host = Host::new();
    ["world", "c1", "c2"].iter().for_each(|container| host.container(container));
    host.sh("", "ip link add wire0 type veth peer name wire1 netns world");
    host.sh("", "ip link set wire0 up");
    host.sh("world", "ip link set wire1 up");
    host
}

/// Gives an interface of the world an address of each family.
pub(crate) fn addressed(host: &Host, name: &str, network: u8) {
    host.sh("world", &format!("ip link set {name} up"));
    host.sh("world", &format!("ip addr add 10.{network}.0.1/24 dev {name}"));
    host.sh("world", &format!("ip addr add fd00:{network}::1/64 dev {name} nodad"));
}

/// Changes one thing in `c1`, attached anew, and expects CHECK to say so.
pub(crate) fn check_finds(host: &Host, config: &Value, changes: &[(&str, &str)]) {
    let kind = config["type"].as_str().unwrap();
    let common = [
        ("ip link set eth0 mtu 1400", "its MTU is 1400, not 1500"),
        ("ip link set eth0 down", "it is down"),
        ("ip addr del 10.5.0.10/24 dev eth0", "it has lost address 10.5.0.10/24"),
        ("ip addr del fd00:5::10/64 dev eth0", "it has lost address fd00:5::10/64"),
        ("ip route del 10.99.0.0/16", "route to 10.99.0.0/16 is gone"),
        ("ip link del eth0", "it is gone from the container"),
    ];
    for (change, says) in common.iter().chain(changes) {
        // The addresses are the first ones each time.
        host.sh("", "rm -rf /var/lib/cni/networks");
        let result = at(host, "c1").add(config);
        assert_eq!(at(host, "c1").check(config, &result).code, 0, "{kind} before {change}");
        change.split(';').for_each(|line| drop(host.sh("c1", line)));
        let check = at(host, "c1").check(config, &result);
        assert!(check.code == 1 && check.message().contains(says), "{kind}: {change}: {check:?}");
        at(host, "c1").del(config, &result);
        // What is there in its place is not ours to delete.
        host.run_ok("c1", &["ip", "link", "del", "eth0"]);
    }
}

/// What is left is told by the oracle once, at the end: in an emulated machine it takes seconds.
fn nothing_left(host: &Host, when: &str) {
    assert!(host.link("c1", "eth0").is_none(), "{when}");
    let leases = host.list("/var/lib/cni/networks/net");
    assert!(!leases.iter().any(|f| f.starts_with("10.") || f.starts_with("fd00")), "{when}: {leases:?}");
}

/// Each way of a DEL: twice, without the result, without the namespace, of what the reference plugin made, after a crash at
/// each step; and another one's link of the same name stays.
pub(crate) fn goes_every_way(host: &Host, config: &Value) {
    let kind = config["type"].as_str().unwrap();
    let before = attached_once(host, config);
    let result = at(host, "c1").add(config);
    at(host, "c1").del(config, &result);
    at(host, "c1").del(config, &result);
    nothing_left(host, "DEL, twice");
    at(host, "c1").add(config);
    at(host, "c1").del(config, &Value::Null);
    nothing_left(host, "DEL without a result");
    let theirs = host.cni(peers_dir()).at("c1", "eth0").add(config);
    at(host, "c1").del(config, &theirs);
    nothing_left(host, "DEL of what the reference plugin made");

    for point in ["single-made:1", "address-set:1", "single-configured:1"] {
        let killed = host.cni(plugin_dir()).at("c1", "eth0").set("NETLOOM_CRASH_AT", point).call("ADD", kind, config.to_string());
        assert!(killed.code != 0 && killed.stdout.is_empty(), "{point}: {killed:?}");
        at(host, "c1").del(config, &Value::Null);
        nothing_left(host, point);
    }

    host.sh("c2", "ip link add eth0 type dummy");
    let taken = at(host, "c2").call("ADD", kind, config.to_string());
    assert!(taken.message().contains("interface name eth0 already exists in the container"), "{taken:?}");
    at(host, "c2").del(config, &Value::Null);
    assert!(host.link("c2", "eth0").is_some());
    host.sh("c2", "ip link del eth0");
    nothing_left(host, "an ADD whose name was taken");

    let result = at(host, "c1").add(config);
    let mut gc = config.clone();
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    assert_eq!(host.cni(plugin_dir()).call("GC", kind, gc.to_string()).code, 0);
    assert_eq!(at(host, "c1").check(config, &result).code, 0);
    host.sh("", "ip netns del c1");
    gc["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(host.cni(plugin_dir()).call("GC", kind, gc.to_string()).code, 0);
    host.container("c1");
    nothing_left(host, "GC of a container that is gone");

    let result = at(host, "c1").add(config);
    host.sh("", "ip netns del c1");
    at(host, "c1").unset("CNI_NETNS").del(config, &result);
    at(host, "c1").del(config, &result);
    host.container("c1");
    host.expect_traces(&before, "DEL without a namespace");
}

/// STATUS of a kind that stands on `wire0`.
pub(crate) fn status_tells_of_the_parent(host: &Host, config: &Value) {
    let kind = config["type"].as_str().unwrap();
    let status = |config: &Value| host.cni(plugin_dir()).call("STATUS", kind, config.to_string());
    assert_eq!(status(config).code, 0);
    let mut missing = config.clone();
    missing["master"] = json!("wire9");
    assert_eq!(status(&missing).error()["code"], 50);
    assert!(status(&missing).message().contains("no interface \"wire9\""));
    host.sh("", "ip link set wire0 down");
    assert_eq!(status(config).error()["code"], 51);
    assert!(status(config).message().contains("ip link set wire0 up"));
    host.sh("", "ip link set wire0 up");
}
