//! `vlan`, and what a bridge does with VLANs: in the guest.

use serde_json::{Value, json};

use super::{GONE, INNER_WIRE, WIRE, addresses, ranges};
use crate::configurations::case::{Case, case};

fn vlan(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"master": "wire0", "vlanId": 100, "ipam": addresses(true)});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("vlan", name, config).prepare(WIRE).in_guest()
}

fn bridge(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"bridge": "br0", "ipam": ranges()});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("bridge", name, config).in_guest()
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        vlan("a parent by name", json!({})),
        vlan("mtu", json!({"mtu": 1400})),
        vlan("linkInContainer", json!({"linkInContainer": true})).prepare(INNER_WIRE),
        vlan("dns", json!({"dns": {"nameservers": ["10.1.0.1"]}})),
        vlan("a VLAN beyond 4094", json!({"vlanId": 5000})),
        vlan("an mtu above the parent's", json!({"mtu": 1600})),
        vlan("a parent that is missing", json!({"master": "nowhere"})),
        vlan("a VLAN that is in use", json!({})).prepare(&["ip link add link wire0 name other type vlan id 100"]),
        vlan("CHECK: the mtu was changed", json!({"mtu": 1400})).spoil(&["c1: ip link set eth0 mtu 1300"]),
        vlan("DEL after the namespace", json!({})).before_del(GONE),
        vlan("DEL after the parent", json!({})).before_del(&["ip link del wire0"]),
        bridge("vlan", json!({"vlan": 100})),
        bridge("vlan and gateway", json!({"vlan": 100, "isGateway": true})),
        bridge("vlanTrunk", json!({"vlanTrunk": [{"minID": 200, "maxID": 203}, {"id": 210}]})),
        bridge("vlan and vlanTrunk", json!({"vlan": 100, "vlanTrunk": [{"id": 210}]})),
        bridge("preserveDefaultVlan", json!({"vlan": 100, "preserveDefaultVlan": true})),
        bridge("a VLAN beyond 4094", json!({"vlan": 5000})),
        bridge("a trunk the wrong way round", json!({"vlanTrunk": [{"minID": 20, "maxID": 10}]})),
        bridge("CHECK: the VLAN is gone", json!({"vlan": 100})).spoil(&["bridge vlan del vid 100 dev '<peer of eth0>'"]),
    ]
}
