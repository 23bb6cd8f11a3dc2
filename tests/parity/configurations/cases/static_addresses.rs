//! `static`

use serde_json::{Value, json};

use crate::configurations::case::{Case, case};

fn fixed(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}]}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("static", name, config)
}

fn ipam(name: &'static str, keys: Value) -> Case {
    let mut ipam = keys;
    ipam["type"] = json!("static");
    case("static", name, json!({"ipam": ipam}))
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        ipam("addresses", json!({"addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"address": "fd00:1::5/64"}]})),
        ipam(
            "routes",
            json!({"addresses": [{"address": "10.1.0.5/24"}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"},
            {"dst": "10.5.0.0/16", "gw": "10.1.0.9", "mtu": 1300, "advmss": 1200, "priority": 5, "table": 50, "scope": 253}]}),
        ),
        ipam(
            "dns",
            json!({"addresses": [{"address": "10.1.0.5/24"}],
            "dns": {"nameservers": ["10.0.0.1"], "domain": "a.example", "search": ["b.example"], "options": ["ndots:5"]}}),
        ),
        fixed("IP in CNI_ARGS is added", json!({})).args("IgnoreUnknown=1;IP=10.9.0.7/24,10.1.0.9/24;GATEWAY=10.9.0.1"),
        fixed("args.cni.ips replaces", json!({"args": {"cni": {"ips": ["10.9.0.8/24"]}}})),
        fixed("ips replaces", json!({"runtimeConfig": {"ips": ["10.9.0.9/24", "fd00:9::9/64"]}})),
        fixed("ips and args.cni.ips", json!({"args": {"cni": {"ips": ["10.9.0.8/24"]}}, "runtimeConfig": {"ips": ["10.9.0.9/24"]}})),
        fixed("version 0.2.0", json!({"cniVersion": "0.2.0"})),
        fixed("version 0.4.0", json!({"cniVersion": "0.4.0"})),
        ipam("a route with host bits", json!({"addresses": [{"address": "fd00:1::5/64"}], "routes": [{"dst": "3ffe:ffff:0:01ff::1/64"}]})),
        case("static", "no ipam", json!({})),
        ipam("an address that is none", json!({"addresses": [{"address": "what"}]})),
        ipam("an address without a prefix", json!({"addresses": [{"address": "10.1.0.5"}]})),
        ipam("no address", json!({})),
        fixed("a GATEWAY that is none", json!({})).args("IgnoreUnknown=1;GATEWAY=x"),
        fixed("an IP that is none", json!({})).args("IgnoreUnknown=1;IP=x"),
        fixed("an argument that nobody knows", json!({})).args("WHAT=1"),
        ipam("version 0.2.0 and two addresses", json!({"addresses": [{"address": "10.1.0.5/24"}, {"address": "10.2.0.5/24"}]})),
    ]
}
