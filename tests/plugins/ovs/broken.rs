//! A switch that is away, or is not as it was.

use netloom_tests::{SandboxScene, Switch, at, ips, plugin_dir};
use serde_json::{Value, json};

use super::{machine, network, nobody, port_of};

#[test]
fn ports_outlive_the_switchs_processes() {
    let (host, mut switch) = machine();
    let config = network(json!({"vlan": 5}));
    let results = ["c1", "c2"].map(|container| at(&host, container).add(&config));
    switch.stop_daemon();
    switch.stop_database();
    switch.start_database();
    switch.start_daemon();
    assert!(host.pings("c1", &ips(&results[1])[0]));
    assert_eq!(at(&host, "c1").check(&config, &results[0]).code, 0);
    // No ADD is without ovs-vswitchd, but every DEL.
    switch.stop_daemon();
    let traces = host.traces();
    let add = at(&host, "c3").call("ADD", "ovs", config.to_string());
    assert_eq!(add.error()["code"], 11, "{add:?}");
    assert!(add.message().contains("check that ovs-vswitchd runs"), "{add:?}");
    host.expect_traces(&traces, "an ADD without ovs-vswitchd");
    assert_eq!(switch.ports("br0").len(), 2);
    for (container, result) in ["c1", "c2"].iter().zip(&results) {
        at(&host, container).del(&config, result);
    }
    assert_eq!(switch.ports("br0"), nobody());
}

/// A link must not go before its port, nor an address before its link: the next DEL does it all.
#[test]
fn del_without_the_database_fails_and_keeps_everything() {
    let (host, mut switch) = machine();
    let config = network(json!({}));
    let result = at(&host, "c1").add(&config);
    let during = host.traces();
    switch.stop_database();
    let mut with = config.clone();
    with["prevResult"] = result.clone();
    for config in [&with, &config] {
        let del = at(&host, "c1").call("DEL", "ovs", config.to_string());
        assert!(del.message().contains("cannot connect to ovsdb-server at /var/run/openvswitch/db.sock"), "{del:?}");
    }
    // What was never made needs no database to be taken away.
    let add = at(&host, "c2").call("ADD", "ovs", config.to_string());
    assert_eq!(add.error()["code"], 11, "{add:?}");
    at(&host, "c2").del(&config, &Value::Null);
    switch.start_database();
    host.expect_traces(&during, "DEL without a database");
    at(&host, "c1").del(&config, &result);
    assert_eq!(switch.ports("br0"), nobody());
    assert!(host.link("", &port_of(&result)).is_none());
}

/// An ADD that was killed may have made a port, and with its container the link is gone: only the database knows.
#[test]
fn del_of_a_container_that_is_gone_needs_the_database() {
    let (host, mut switch) = machine();
    let config = network(json!({}));
    at(&host, "c1").add(&config);
    host.sh("", "ip netns delete c1");
    switch.stop_database();
    let del = at(&host, "c1").call("DEL", "ovs", config.to_string());
    assert!(del.message().contains("cannot connect to ovsdb-server at "), "{del:?}");
    switch.start_database();
    at(&host, "c1").del(&config, &Value::Null);
    assert_eq!(switch.ports("br0"), nobody());
}

/// A pod of three networks, as the agent detaches it, in two halves.
#[test]
fn a_record_stays_until_its_port_is_gone() {
    let scene = SandboxScene::builtin();
    let mut switch = Switch::start(&scene.host, &["br7"]);
    let list = json!({"cniVersion": "1.0.0", "name": "switched", "plugins": [{"type": "ovs", "bridge": "br7"}]});
    scene.host.write("/run/net/3.conflist", &list.to_string());
    let records = || scene.host.list("/run/netloom/sandboxes").iter().filter(|name| name.ends_with(".json")).count();
    scene.must("add");
    assert_eq!((switch.ports("br7").len(), records()), (1, 1));
    switch.stop_database();
    for verb in ["retire", "del"] {
        let outcome = scene.call(verb, 20);
        assert!(outcome.code != 0 && outcome.stderr.contains("cannot connect to ovsdb-server at "), "{verb}: {outcome:?}");
        assert_eq!(records(), 1, "{verb}");
    }
    switch.start_database();
    scene.must("retire");
    assert_eq!((switch.ports("br7"), records()), (nobody().map(str::to_owned).to_vec(), 1));
    scene.must("finish");
    assert_eq!(records(), 0);
    assert!(!scene.host.sh("", "ip -brief link").contains("@if"), "a pair is left");
}

#[test]
fn check_finds_what_was_changed() {
    let (host, switch) = machine();
    let config = network(json!({"vlan": 5}));
    let result = at(&host, "c1").add(&config);
    let port = port_of(&result);
    let check = || at(&host, "c1").check(&config, &result);
    switch.vsctl(&format!("set port {port} tag=6"));
    assert!(check().message().contains("other VLANs"), "{:?}", check());
    switch.vsctl(&format!("set port {port} tag=5"));
    assert_eq!(check().code, 0);
    switch.vsctl(&format!("add-br br1 -- set bridge br1 datapath_type=netdev -- del-port {port} -- add-port br1 {port} tag=5"));
    assert!(check().message().contains("it is not a port of bridge br0"), "{:?}", check());
    switch.vsctl(&format!("del-port {port}"));
    assert!(check().message().contains("it is not a port of Open vSwitch any more"), "{:?}", check());
}

/// A second ADD is refused, and the first one's port stays.
#[test]
fn an_add_of_who_is_attached() {
    let (host, switch) = machine();
    let config = network(json!({"ipam": {"type": "static", "addresses": [{"address": "10.7.0.9/24"}]}}));
    at(&host, "c1").add(&config);
    let during = (host.traces(), switch.vsctl("--bare --columns=_uuid list port"));
    let again = at(&host, "c1").call("ADD", "ovs", config.to_string());
    assert!(again.message().contains("exists already"), "{again:?}");
    host.expect_traces(&during.0, "a second ADD");
    assert_eq!(switch.vsctl("--bare --columns=_uuid list port"), during.1);
}

/// A port of the name of ours that somebody else made is left alone by ADD and DEL.
#[test]
fn somebody_elses_port() {
    let (host, switch) = machine();
    let config = network(json!({"ipam": null}));
    let name = port_of(&at(&host, "c1").add(&config));
    at(&host, "c1").del(&config, &Value::Null);
    switch.vsctl(&format!("--no-wait add-port br0 {name}"));
    let before = host.traces();
    let add = at(&host, "c1").call("ADD", "ovs", config.to_string());
    assert!(add.message().contains(&format!("has a port {name} already, which somebody else made")), "{add:?}");
    host.expect_traces(&before, "an ADD whose port is somebody else's");
    at(&host, "c1").del(&config, &Value::Null);
    assert_eq!(switch.ports("br0"), [name]);
}

#[test]
fn what_is_missing_is_named() {
    let (host, mut switch) = machine();
    let call = |verb: &str, config: &Value| host.cni(plugin_dir()).at("c1", "eth0").call(verb, "ovs", config.to_string());
    let (good, other) = (network(json!({"ipam": null})), network(json!({"bridge": "br9", "ipam": null})));
    assert_eq!(call("STATUS", &good).code, 0);
    let before = host.traces();
    let said = r#"has no bridge "br9": make it first (ovs-vsctl add-br br9)"#;
    let add = call("ADD", &other);
    assert!(add.message().contains(said) && add.error()["code"] == 7, "{add:?}");
    let status = call("STATUS", &other);
    assert!(status.message().contains(said) && status.error()["code"] == 50, "{status:?}");
    host.expect_traces(&before, "an ADD without a bridge");
    switch.stop_daemon();
    switch.vsctl("--no-wait set open_vswitch . next_cfg=1000");
    assert!(call("STATUS", &good).message().contains("check that ovs-vswitchd runs"));
    switch.stop_database();
    assert!(call("STATUS", &good).message().contains("check that ovsdb-server runs"));
}
