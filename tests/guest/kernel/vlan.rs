//! `vlan`: tagged frames, and whose they are.

use netloom_tests::{at, attached_once};
use serde_json::{Value, json};

use crate::kernel::links::{addressed, check_finds, config, dual, fixed, goes_every_way, status_tells_of_the_parent, wired};

fn vlan(id: u16, ipam: Value) -> Value {
    config("vlan", json!({"master": "wire0", "vlanId": id, "ipam": ipam}))
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn frames_reach_the_same_vlan_and_no_other() {
    let host = wired();
    for id in [5, 6] {
        host.sh("world", &format!("ip link add link wire1 name v{id} type vlan id {id}"));
        addressed(&host, &format!("v{id}"), id);
    }
    let five = vlan(5, dual());
    let before = attached_once(&host, &five);
    let result = at(&host, "c1").add(&five);
    assert!(host.pings("c1", "10.5.0.1") && host.pings("c1", "fd00:5::1"));
    let seen = host.link("c1", "eth0").unwrap().0;
    assert_eq!((&seen["linkinfo"]["info_kind"], &seen["linkinfo"]["info_data"]["id"]), (&json!("vlan"), &json!(5)));
    assert_eq!(seen["address"], host.link("", "wire0").unwrap().0["address"]);
    assert_eq!(result["interfaces"][0]["mtu"], 1500);
    // On another VLAN, with an address of the same network.
    let six = vlan(6, fixed("10.5.0.77/24"));
    at(&host, "c2").add(&six);
    assert!(!host.run_ok("c2", &["ping", "-c1", "-w2", "-n", "10.5.0.1"]));
    assert!(!host.run_ok("c2", &["ping", "-c1", "-w2", "-n", "10.5.0.10"]));
    // A VLAN has one link.
    at(&host, "c2").del(&six, &Value::Null);
    let again = at(&host, "c2").call("ADD", "vlan", five.to_string());
    assert!(again.message().contains("wire0 has a link for this VLAN already"), "{again:?}");
    at(&host, "c1").del(&five, &result);
    host.expect_traces(&before, "a vlan");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_vlan_goes_every_way() {
    let host = wired();
    goes_every_way(&host, &vlan(5, dual()));
}

/// With the parent goes the vlan; its addresses are free for all that.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_vlan_whose_parent_is_gone() {
    let host = wired();
    let config = vlan(5, dual());
    let result = at(&host, "c1").add(&config);
    host.sh("", "ip link del wire0");
    at(&host, "c1").del(&config, &result);
    let leases = host.list("/var/lib/cni/networks/net");
    assert!(!leases.iter().any(|f| f.starts_with("10.") || f.starts_with("fd00")), "{leases:?}");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn check_and_status_of_a_vlan() {
    let host = wired();
    let config = vlan(5, dual());
    check_finds(
        &host,
        &config,
        &[
            ("ip link set eth0 address 02:00:00:00:00:77", "its hardware address is 02:00:00:00:00:77"),
            ("ip link del eth0;ip link add eth0 type dummy", "it is a dummy, not a vlan"),
        ],
    );
    let result = at(&host, "c1").add(&config);
    let check = at(&host, "c1").check(&vlan(7, dual()), &result);
    assert!(check.message().contains("its VLAN is 5, not 7"), "{check:?}");
    host.sh("", "ip link add wire2 type veth peer name wire3");
    let mut other = config.clone();
    other["master"] = json!("wire2");
    assert!(at(&host, "c1").check(&other, &result).message().contains("its parent is not wire2"));
    at(&host, "c1").del(&config, &result);
    status_tells_of_the_parent(&host, &config);
    host.sh("", "ip link set wire0 down");
    let before = host.traces();
    let add = at(&host, "c1").call("ADD", "vlan", config.to_string());
    assert!(add.message().contains("master: wire0 is down"), "{add:?}");
    host.expect_traces(&before, "an ADD on a parent that is down");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn keys_of_a_vlan() {
    let host = wired();
    for (mtu, ok) in [(1400, true), (1501, false)] {
        let config = config("vlan", json!({"master": "wire0", "vlanId": 4094, "mtu": mtu, "ipam": dual()}));
        let add = at(&host, "c1").call("ADD", "vlan", config.to_string());
        assert_eq!(add.code == 0, ok, "{add:?}");
        match ok {
            true => assert_eq!(host.link("c1", "eth0").unwrap().mtu(), 1400),
            false => assert!(add.message().contains("invalid MTU 1501, must be [0, master MTU(1500)]"), "{add:?}"),
        }
        at(&host, "c1").del(&config, &Value::Null);
    }
    host.sh("", "ip link add inner netns c1 type veth peer name outer netns world");
    host.sh("c1", "ip link set inner up");
    host.sh("world", "ip link set outer up");
    host.sh("world", "ip link add link outer name v0 type vlan id 0");
    addressed(&host, "v0", 5);
    let config = config("vlan", json!({"master": "inner", "linkInContainer": true, "ipam": dual()}));
    let before = attached_once(&host, &config);
    let result = at(&host, "c1").add(&config);
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    assert!(host.pings("c1", "10.5.0.1"));
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a vlan on a link of the container");
}
