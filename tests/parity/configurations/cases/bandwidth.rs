//! `bandwidth`

use serde_json::{Value, json};

use super::{GONE, addresses};
use crate::configurations::case::{Case, case};

/// Behind a bridge, whose pair it limits.
fn bandwidth(name: &'static str, keys: Value) -> Case {
    case("bandwidth", name, keys).after("bridge", json!({"bridge": "br0", "ipam": addresses(true)}))
}

/// Both directions.
fn both() -> Value {
    json!({"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 16_000_000, "egressBurst": 1_600_000})
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        bandwidth("both directions", both()),
        bandwidth("ingress", json!({"ingressRate": 8_000_000, "ingressBurst": 800_000})),
        bandwidth("egress", json!({"egressRate": 8_000_000, "egressBurst": 800_000})),
        bandwidth("nothing", json!({})),
        bandwidth("zeros", json!({"ingressRate": 0, "ingressBurst": 0, "egressRate": 0, "egressBurst": 0})),
        bandwidth("runtimeConfig", json!({"runtimeConfig": {"bandwidth": both()}})),
        bandwidth(
            "runtimeConfig and own limits",
            json!({"egressRate": 8_000_000, "egressBurst": 800_000, "runtimeConfig": {"bandwidth": both()}}),
        ),
        bandwidth("runtimeConfig and own zeros", json!({"egressRate": 0, "runtimeConfig": {"bandwidth": both()}})),
        bandwidth("keys in another case", json!({"INGRESSRATE": 8_000_000, "ingressburst": 800_000})),
        bandwidth("more than 32 bits", json!({"ingressRate": 80_000_000_000_u64, "ingressBurst": 8_000_000_000_u64})),
        bandwidth("a runtime's burst at a low rate", json!({"egressRate": 1_000_000, "egressBurst": i32::MAX})),
        bandwidth("unshapedSubnets", json!({"egressRate": 8_000_000, "egressBurst": 800_000, "unshapedSubnets": ["10.2.0.0/16"]})),
        bandwidth("shapedSubnets", json!({"egressRate": 8_000_000, "egressBurst": 800_000, "shapedSubnets": ["10.2.0.0/16"]})),
        bandwidth("version 0.4.0", with(both(), "cniVersion", "0.4.0")),
        bandwidth("version 0.3.1", with(both(), "cniVersion", "0.3.1")),
        bandwidth("a rate without a burst", json!({"ingressRate": 8_000_000})),
        bandwidth("a burst without a rate", json!({"egressBurst": 8_000_000})),
        bandwidth("a burst that is too large", json!({"egressRate": 8_000_000, "egressBurst": 40_000_000_000_u64})),
        bandwidth("a burst without a packet", json!({"ingressRate": 8_000_000, "ingressBurst": 8000})),
        bandwidth("a rate below zero", json!({"ingressRate": -1, "ingressBurst": 8000})),
        bandwidth("a text for a rate", json!({"ingressRate": "8M", "ingressBurst": 8000})),
        case("bandwidth", "no result before it", both()),
        case("bandwidth", "nothing at all", json!({})),
        case("bandwidth", "behind a macvlan", both())
            .after("macvlan", json!({"master": "wire0", "ipam": addresses(false)}))
            .prepare(super::WIRE),
        bandwidth("DEL after the namespace", both()).before_del(GONE),
        bandwidth("DEL that is told nothing", both()).blind_del(),
        bandwidth("CHECK: the rate was changed", json!({"ingressRate": 8_000_000, "ingressBurst": 800_000}))
            .spoil(&["tc qdisc change dev $(ip -o link show type veth | cut -d: -f2 | cut -d@ -f1) root handle 1: tbf rate 9mbit burst 100000 limit 125000"]),
        bandwidth("CHECK: the ifb is gone", both()).spoil(&["ip link del $(ip -o link show type ifb | cut -d: -f2)"]),
        bandwidth("CHECK: the filter is gone", both()).spoil(&[
            "tc filter del dev $(ip -o link show type veth | cut -d: -f2 | cut -d@ -f1) parent ffff:",
        ]),
    ]
}

fn with(mut keys: Value, key: &str, value: &str) -> Value {
    keys[key] = json!(value);
    keys
}
