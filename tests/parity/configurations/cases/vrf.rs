//! `vrf`: in the guest.

use serde_json::{Value, json};

use super::{GONE, WIRE, addresses};
use crate::configurations::case::{Case, case};

fn vrf(name: &'static str, keys: Value) -> Case {
    case("vrf", name, keys).after("macvlan", json!({"master": "wire0", "ipam": addresses(true)})).prepare(WIRE).in_guest()
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        vrf("vrfname", json!({"vrfname": "red"})),
        vrf("table", json!({"vrfname": "red", "table": 77})),
        vrf("a VRF that is there", json!({"vrfname": "red"})).prepare(&["c1: ip link add red type vrf table 55", "c1: ip link set red up"]),
        vrf("a VRF with another table", json!({"vrfname": "red", "table": 77})).prepare(&["c1: ip link add red type vrf table 55"]),
        vrf("no vrfname", json!({})),
        vrf("CHECK: it was taken out", json!({"vrfname": "red"})).spoil(&["c1: ip link set eth0 nomaster"]),
        vrf("DEL after the namespace", json!({"vrfname": "red"})).before_del(GONE),
    ]
}
