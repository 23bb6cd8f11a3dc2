//! `sbr`

use serde_json::{Value, json};

use super::{GONE, WIRE};
use crate::configurations::case::{Case, case};

/// Behind a macvlan, which asks for a route.
fn sbr(name: &'static str, keys: Value) -> Case {
    let ipam = json!({"type": "static", "routes": [{"dst": "10.50.0.0/16", "gw": "10.1.0.9"}],
        "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"address": "fd00:1::5/64", "gateway": "fd00:1::1"}]});
    case("sbr", name, keys).after("macvlan", json!({"master": "wire0", "ipam": ipam})).ifname("net1").prepare(WIRE)
}

pub(crate) fn cases() -> Vec<Case> {
    let bare = json!({"type": "static", "addresses": [{"address": "10.1.0.5/24"}]});
    vec![
        sbr("tables of its own", json!({})),
        sbr("a table by number", json!({"table": 77})),
        sbr("a table that is in use", json!({})).prepare(&["c1: ip route add unreachable 10.99.0.0/16 table 100"]),
        sbr("gateways", json!({"gateways": ["10.1.0.254", "fd00:1::fe"]})),
        sbr("addSourceHints", json!({"addSourceHints": true})),
        case("sbr", "an address without a gateway", json!({})).after("macvlan", json!({"master": "wire0", "ipam": bare})).prepare(WIRE),
        case("sbr", "no address", json!({})).after("macvlan", json!({"master": "wire0"})).prepare(WIRE),
        sbr("version 0.4.0", json!({"cniVersion": "0.4.0"})),
        case("sbr", "no result before it", json!({})),
        sbr("CHECK: a rule is gone", json!({})).spoil(&["c1: ip rule del from 10.1.0.5"]),
        sbr("CHECK: the default route is gone", json!({})).spoil(&["c1: ip route del default table 100"]),
        sbr("DEL after the namespace", json!({})).before_del(GONE),
        sbr("DEL that is told nothing", json!({})).blind_del(),
        sbr("DEL after the interface", json!({})).before_del(&["c1: ip link del net1"]),
    ]
}
