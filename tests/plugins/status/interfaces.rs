//! STATUS says what ADD would meet: a parent that is missing or down, a kernel that lacks the kind.

use netloom_tests::{Host, at, plugin_dir};
use serde_json::json;

use crate::scene::{config, dual, wired};

/// What `ip` needs to make one, and what loads its module.
const KINDS: [(&str, &str, &str); 4] = [
    ("macvlan", "link wire0 name probe0 type macvlan", "modprobe macvlan"),
    ("ipvlan", "link wire0 name probe0 type ipvlan", "modprobe ipvlan"),
    ("vlan", "link wire0 name probe0 type vlan id 7", "modprobe 8021q"),
    ("dummy", "name probe0 type dummy", "modprobe dummy"),
];

fn known(host: &Host, add: &str) -> bool {
    let argv: Vec<&str> = ["ip", "link", "add"].into_iter().chain(add.split(' ')).collect();
    let made = host.run_ok("", &argv);
    if made {
        host.sh("", "ip link del probe0");
    }
    made
}

#[test]
fn a_kind_that_the_kernel_lacks_is_told_by_status_and_add() {
    for (kind, add, module) in KINDS {
        let host = wired();
        let there = known(&host, add);
        let config = config(kind, json!({"master": "wire0", "vlanId": 7, "ipam": dual()}));
        let before = host.traces();
        let status = host.cni(plugin_dir()).call("STATUS", kind, config.to_string());
        host.expect_traces(&before, "STATUS");
        let add = at(&host, "c1").call("ADD", kind, config.to_string());
        assert_eq!((status.code == 0, add.code == 0), (there, there), "{kind}: {status:?} {add:?}");
        if !there {
            for outcome in [&status, &add] {
                assert_eq!(outcome.error()["code"], 50, "{outcome:?}");
                assert!(outcome.message().contains(module), "{outcome:?}");
            }
        }
        at(&host, "c1").del(&config, &serde_json::Value::Null);
    }
}

/// `vrf` needs an interface that another plugin made.
#[test]
fn a_kernel_without_vrf() {
    let host = wired();
    let there = known(&host, "name probe0 type vrf table 7");
    let made = at(&host, "c1").add(&config("macvlan", json!({"master": "wire0", "ipam": dual()})));
    let config = config("vrf", json!({"vrfname": "red", "prevResult": made}));
    for verb in ["STATUS", "ADD"] {
        let outcome = at(&host, "c1").call(verb, "vrf", config.to_string());
        assert_eq!(outcome.code == 0, there, "{verb}: {outcome:?}");
        if !there {
            assert!(outcome.error()["code"] == 50 && outcome.message().contains("modprobe vrf"), "{verb}: {outcome:?}");
        }
    }
}

#[test]
fn a_vlan_on_a_parent_that_is_down() {
    let host = wired();
    host.sh("", "ip link set wire0 down");
    let config = config("vlan", json!({"master": "wire0", "vlanId": 7, "ipam": dual()}));
    let outcome = at(&host, "c1").call("ADD", "vlan", config.to_string());
    assert!(outcome.error()["code"] == 51 && outcome.message().contains("ip link set wire0 up"), "{outcome:?}");
}

#[test]
fn more_than_the_parent_carries() {
    let host = wired();
    let config = config("macvlan", json!({"master": "wire0", "mtu": 9000}));
    for (verb, code) in [("STATUS", 50), ("ADD", 7)] {
        let outcome = at(&host, "c1").call(verb, "macvlan", config.to_string());
        assert!(outcome.error()["code"] == code && outcome.message().contains("invalid MTU 9000"), "{verb}: {outcome:?}");
    }
}

#[test]
fn a_configuration_that_add_refuses() {
    let host = wired();
    for (kind, keys, says) in [
        ("macvlan", json!({"master": "wire0", "mode": "source"}), "unknown macvlan mode"),
        ("ipvlan", json!({"master": "wire0", "mode": "l4", "ipam": dual()}), "unknown ipvlan mode: \"l4\""),
        ("vlan", json!({"vlanId": 5, "ipam": dual()}), "\"master\" field is required"),
        ("vlan", json!({"master": "wire0", "vlanId": 4095, "ipam": dual()}), "invalid VLAN ID 4095 (must be between 0 and 4094): vlanId"),
        ("vlan", json!({"master": "wire0", "vlanId": -1, "ipam": dual()}), "invalid VLAN ID -1"),
        ("vlan", json!({"master": "wire0", "vlanId": 5}), "vlan interface requires an IPAM configuration"),
        ("vlan", json!({"master": "a/b", "vlanId": 5, "ipam": dual()}), "master: "),
        ("dummy", json!({}), "dummy interface requires an IPAM configuration"),
    ] {
        let config = config(kind, keys);
        for verb in ["STATUS", "ADD"] {
            let outcome = at(&host, "c1").call(verb, kind, config.to_string());
            assert!(outcome.error()["code"] == 7 && outcome.message().contains(says), "{verb} {config}: {outcome:?}");
        }
    }
    let ipvlan = config("ipvlan", json!({"master": "wire0"}));
    let add = at(&host, "c1").call("ADD", "ipvlan", ipvlan.to_string());
    assert!(add.error()["code"] == 7 && add.message().contains("ipvlan interface requires an IPAM configuration"), "{add:?}");
}

#[test]
fn ipam_is_asked_as_well() {
    let host = wired();
    let ipam = json!({"type": "host-local", "subnet": "10.5.0.0/31"});
    let status = host.cni(plugin_dir()).call("STATUS", "macvlan", config("macvlan", json!({"master": "wire0", "ipam": ipam})).to_string());
    assert_eq!(status.code, 1, "{status:?}");
}
