//! `ipvlan`: in the guest.

use serde_json::{Value, json};

use super::{INNER_WIRE, WIRE, addresses};
use crate::configurations::case::{Case, case};

fn ipvlan(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"master": "wire0", "ipam": addresses(true)});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("ipvlan", name, config).prepare(WIRE).in_guest()
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        ipvlan("a parent by name", json!({})),
        ipvlan("mode l3", json!({"mode": "l3"})),
        ipvlan("mode l3s", json!({"mode": "l3s"})),
        ipvlan("mtu", json!({"mtu": 1400})),
        ipvlan("linkInContainer", json!({"linkInContainer": true})).prepare(INNER_WIRE),
        case("ipvlan", "the parent of the default route", json!({"ipam": addresses(false)}))
            .prepare(WIRE)
            .prepare(&["ip addr add 10.8.0.1/24 dev wire0", "ip route add default via 10.8.0.254"])
            .in_guest(),
        ipvlan("a mode that is none", json!({"mode": "l4"})),
        ipvlan("an mtu above the parent's", json!({"mtu": 1600})),
        ipvlan("CHECK: an address is gone", json!({})).spoil(&["c1: ip addr del 10.1.0.5/24 dev eth0"]),
    ]
}
