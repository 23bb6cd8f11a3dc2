//! `macvlan`

use serde_json::{Value, json};

use super::{GONE, INNER_WIRE, WIRE, addresses};
use crate::configurations::case::{Case, case};

fn macvlan(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"master": "wire0", "ipam": addresses(true)});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("macvlan", name, config).prepare(WIRE)
}

fn layer2(name: &'static str, keys: Value) -> Case {
    case("macvlan", name, keys).prepare(WIRE)
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        macvlan("a parent by name", json!({})),
        layer2("the parent of the default route", json!({"ipam": addresses(false)}))
            .prepare(&["ip addr add 10.8.0.1/24 dev wire0", "ip route add default via 10.8.0.254"]),
        macvlan("mode bridge", json!({"mode": "bridge"})),
        macvlan("mode private", json!({"mode": "private"})),
        macvlan("mode vepa", json!({"mode": "vepa"})),
        macvlan("mode passthru", json!({"mode": "passthru"})),
        macvlan("mtu", json!({"mtu": 1400})),
        macvlan("mtu of the parent", json!({})).prepare(&["ip link set wire0 mtu 1450"]),
        macvlan("mac as a key", json!({"mac": "c2:b0:57:49:47:f1"})),
        macvlan("mac in runtimeConfig", json!({"mac": "c2:b0:57:49:47:f1", "runtimeConfig": {"mac": "c2:b0:57:49:47:f2"}})),
        macvlan("mac in args.cni", json!({"args": {"cni": {"mac": "c2:b0:57:49:47:f3"}}})),
        macvlan("MAC in CNI_ARGS", json!({})).args("IgnoreUnknown=1;MAC=c2:b0:57:49:47:f4"),
        layer2("linkInContainer", json!({"master": "wire0", "linkInContainer": true, "ipam": addresses(true)})).prepare(INNER_WIRE),
        macvlan("macFromIP", json!({"macFromIP": true})),
        macvlan("bcqueuelen", json!({"bcqueuelen": 2000})),
        layer2("layer 2", json!({"master": "wire0"})),
        macvlan("dns", json!({"dns": {"nameservers": ["10.1.0.1"]}})),
        macvlan(
            "dns of the IPAM plugin",
            json!({"ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}],
            "dns": {"nameservers": ["10.1.0.9"]}}}),
        ),
        macvlan(
            "routes",
            json!({"ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.50.0.0/16", "gw": "10.1.0.9", "mtu": 1300, "advmss": 1200, "priority": 7, "table": 50}]}}),
        ),
        macvlan("version 0.2.0", json!({"cniVersion": "0.2.0"})),
        macvlan("version 0.4.0", json!({"cniVersion": "0.4.0"})),
        macvlan("a parent that is missing", json!({"master": "nowhere"})),
        layer2("no parent and no default route", json!({"ipam": addresses(false)})),
        macvlan("a mode that is none", json!({"mode": "source"})),
        macvlan("an mtu above the parent's", json!({"mtu": 1600})),
        macvlan("a negative mtu", json!({"mtu": -1})),
        macvlan("a MAC that is none", json!({"mac": "what"})),
        macvlan("an interface name that is taken", json!({})).prepare(&["c1: ip link add eth0 type veth peer name other"]),
        macvlan("CHECK: the mode was changed", json!({})).spoil(&["c1: ip link set eth0 type macvlan mode vepa"]),
        macvlan("CHECK: the MAC was changed", json!({})).spoil(&["c1: ip link set eth0 address 02:00:00:00:00:01"]),
        macvlan("CHECK: the mtu was changed", json!({"mtu": 1400})).spoil(&["c1: ip link set eth0 mtu 1300"]),
        macvlan("CHECK: an address is gone", json!({})).spoil(&["c1: ip addr flush dev eth0"]),
        macvlan("CHECK: the interface was set down", json!({})).spoil(&["c1: ip link set eth0 down"]),
        macvlan("DEL after the namespace", json!({})).before_del(GONE),
        macvlan("DEL that is told nothing", json!({})).blind_del(),
        macvlan("DEL after the parent", json!({})).before_del(&["ip link del wire0"]),
    ]
}
