//! `ovs-hybrid` and `iface_id`: what Neutron's agent needs to find.

use netloom_tests::{Host, Switch, at, ips, plugin_dir};
use serde_json::{Value, json};

use crate::scene::{config, del_with_little_and_del_again};

const IDS: [&str; 2] = ["d1e40f3e-d1a4-4044-a4f3-90d82f439e1c", "ff49ca14-fac9-48e7-be35-a7669977b345"];

fn network(kind: &str, id: &str, last: u8) -> Value {
    let ipam =
        json!({"type": "static", "addresses": [{"address": format!("10.7.0.{last}/24")}, {"address": format!("fd00:7::{last}/64")}]});
    config(kind, json!({"bridge": "br-int", "iface_id": id, "mtu": 1400, "mac": format!("fa:16:3e:00:00:{last:02}"), "ipam": ipam}))
}

fn machine() -> (Host, Switch) {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|container| host.container(container));
    let switch = Switch::start(&host, &["br-int"]);
    (host, switch)
}

/// A port of the hybrid plug and a plain one reach each other; Neutron's agent finds names and IDs; a VLAN that it sets is not ours to miss.
#[test]
fn a_hybrid_and_a_plain_port() {
    let (host, switch) = machine();
    let configs = [network("ovs-hybrid", IDS[0], 2), network("ovs", IDS[1], 3)];
    let results = [at(&host, "c1").add(&configs[0]), at(&host, "c2").add(&configs[1])];
    for to in ips(&results[1]) {
        assert!(host.pings("c1", &to), "{to}");
        assert!(host.tcp("c1", "c2", &to), "{to}");
    }
    for name in ["qbrd1e40f3e-d1", "qvbd1e40f3e-d1", "qvod1e40f3e-d1", "tapd1e40f3e-d1"] {
        let link = host.link("", name).unwrap();
        assert!(link.has("UP") && link.mtu() == 1400, "{name}");
        let off = host.run("", &["cat", &format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6")]);
        assert_eq!(off.trim(), "1", "{name}: the host has no address on it");
    }
    let id = |port: &str, key: &str| switch.vsctl(&format!("get interface {port} external_ids:{key}")).trim().replace('"', "");
    let told = ["iface-id", "attached-mac", "iface-status"].map(|key| id("qvod1e40f3e-d1", key));
    assert_eq!(told, [IDS[0], "fa:16:3e:00:00:02", "active"]);
    let plain = results[1]["interfaces"][0]["name"].as_str().unwrap();
    assert_eq!(id(plain, "iface-id"), IDS[1]);
    // As Neutron's agent does.
    for port in ["qvod1e40f3e-d1", plain] {
        assert_eq!(switch.vsctl(&format!("get port {port} vlan_mode tag")), "[]\n[]\n", "{port}");
        switch.vsctl(&format!("set port {port} tag=1"));
    }
    for ((container, config), result) in ["c1", "c2"].iter().zip(&configs).zip(&results) {
        let check = at(&host, container).check(config, result);
        assert_eq!(check.code, 0, "{check:?}");
    }
    switch.vsctl(&format!("set interface {plain} external_ids:iface-id=other"));
    let check = at(&host, "c2").check(&configs[1], &results[1]);
    assert!(check.message().contains("its external ID iface-id is other, not ff49ca14"), "{check:?}");
    host.sh("", "ip link set qvbd1e40f3e-d1 nomaster");
    let check = at(&host, "c1").check(&configs[0], &results[0]);
    assert!(check.message().contains("it is not a port of qbrd1e40f3e-d1"), "{check:?}");
    for ((container, config), result) in ["c1", "c2"].iter().zip(&configs).zip(&results) {
        at(&host, container).del(config, result);
    }
    assert_eq!(switch.ports("br-int"), [""; 0]);
    assert!(host.link("", "qbrd1e40f3e-d1").is_none() && host.link("", "tapd1e40f3e-d1").is_none());
    let before = host.traces();
    del_with_little_and_del_again(&host, &before, &configs[0]);
    assert_eq!(switch.ports("br-int"), [""; 0]);
}

/// An attachment without a port in the database, as a kill before it was added leaves it: GC finds its links by the network's mark, and leaves
/// those of other networks, of valid attachments and of other programs.
#[test]
fn gc_finds_hybrid_links_without_a_port() {
    let (host, switch) = machine();
    let lost = network("ovs-hybrid", IDS[0], 2);
    let mut other = network("ovs-hybrid", IDS[1], 3);
    other["name"] = json!("other");
    at(&host, "c1").add(&lost);
    at(&host, "c2").add(&other);
    // As nova makes them for a virtual machine.
    host.sh("", "ip link add qbr0a1b2c3d-4e type bridge");
    host.sh("", "ip link add qvo0a1b2c3d-4e type veth peer name qvb0a1b2c3d-4e");
    switch.vsctl("del-port qvod1e40f3e-d1");
    let gc = |valid: Value| {
        let mut config = lost.clone();
        config["cni.dev/valid-attachments"] = valid;
        let gc = host.cni(plugin_dir()).call("GC", "ovs-hybrid", config.to_string());
        assert_eq!(gc.code, 0, "{gc:?}");
    };
    let all = ["qbrd1e40f3e-d1", "qvbd1e40f3e-d1", "qvod1e40f3e-d1", "tapd1e40f3e-d1"];
    gc(json!([{"containerID": "c1", "ifname": "eth0"}]));
    assert!(all.iter().all(|name| host.link("", name).is_some()), "it is valid");
    gc(json!([]));
    for name in all {
        assert!(host.link("", name).is_none(), "{name} is left");
    }
    for name in ["qbrff49ca14-fa", "qvoff49ca14-fa", "tapff49ca14-fa", "qbr0a1b2c3d-4e", "qvo0a1b2c3d-4e"] {
        assert!(host.link("", name).is_some(), "{name} is not of this network");
    }
    assert_eq!(switch.ports("br-int"), ["qvoff49ca14-fa"]);
}

/// A port that carries nothing is plugged so, until Neutron's agent sets its VLAN.
#[test]
fn an_isolated_port() {
    let (host, switch) = machine();
    for (container, kind, id, last) in [("c1", "ovs", IDS[1], 3), ("c2", "ovs-hybrid", IDS[0], 2)] {
        let mut config = network(kind, id, last);
        config["isolate"] = json!(true);
        let result = at(&host, container).add(&config);
        let name = switch.vsctl(&format!("--bare --columns=name find interface external_ids:iface-id={id}"));
        let name = name.trim();
        assert_eq!(switch.vsctl(&format!("get port {name} tag trunks vlan_mode")), "4095\n[4095]\ntrunk\n", "{kind}");
        assert_eq!(at(&host, container).check(&config, &result).code, 0, "{kind}");
        switch.vsctl(&format!("set port {name} tag=1 -- clear port {name} vlan_mode -- clear port {name} trunks"));
        assert_eq!(at(&host, container).check(&config, &result).code, 0, "{kind}");
    }
    assert!(host.pings("c1", "10.7.0.2"));
    let bad = config("ovs", json!({"bridge": "br-int", "isolate": true}));
    let refused = at(&host, "c1").call("ADD", "ovs", bad.to_string());
    assert!(refused.message().contains("isolate") && refused.message().contains("set iface_id, or vlan"), "{refused:?}");
}

/// One port is plugged once; who comes second changes nothing of the first, and its DEL neither.
#[test]
fn a_hybrid_port_is_plugged_once() {
    let (host, switch) = machine();
    let config = network("ovs-hybrid", IDS[0], 2);
    let result = at(&host, "c1").add(&config);
    let second = at(&host, "c2").call("ADD", "ovs-hybrid", config.to_string());
    assert!(second.message().contains("exists already"), "{second:?}");
    at(&host, "c2").del(&config, &Value::Null);
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    assert_eq!(switch.ports("br-int"), ["qvod1e40f3e-d1"]);
    let mut valid = config.clone();
    valid["cni.dev/valid-attachments"] = json!([]);
    let gc = host.cni(plugin_dir()).call("GC", "ovs-hybrid", valid.to_string());
    assert_eq!(gc.code, 0, "{gc:?}");
    assert_eq!(switch.ports("br-int"), [""; 0]);
    assert!(host.link("", "qbrd1e40f3e-d1").is_none() && host.link("", "tapd1e40f3e-d1").is_none());
}
