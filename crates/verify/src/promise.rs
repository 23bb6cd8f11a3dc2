//! What a network's configuration promises to its pods.

use cni::{NetworkList, PluginEntry};

use crate::site::Reach;

/// Whom a network's pods reach. `is_routed`: it is the one that agents provide, whose bridges are routed between nodes.
pub fn reach(list: &NetworkList, is_routed: bool) -> Reach {
    let Some(first) = list.plugins.first() else { return Reach::Unknown };
    // Probes choose neither a VRF nor a source address.
    if list.plugins.iter().any(|plugin| matches!(plugin.kind.as_str(), "vrf" | "sbr")) {
        return Reach::Unknown;
    }
    let raw = first.raw();
    let is_set = |key: &str| raw.get(key).and_then(json::Value::as_bool) == Some(true);
    match (first.kind.as_str(), raw.str("mode")) {
        ("bridge", _) if is_set("portIsolation") => Reach::Nobody,
        ("bridge", _) if is_routed => Reach::Everywhere,
        // Another bridge is its node's alone.
        ("bridge", _) => Reach::SameNode,
        ("macvlan", Some("private")) => Reach::Nobody,
        ("macvlan", Some("vepa")) => Reach::OtherNode,
        ("ipvlan", Some(mode)) if mode != "l2" => Reach::Unknown,
        ("macvlan" | "ipvlan" | "vlan", _) if !is_set("linkInContainer") => Reach::Everywhere,
        _ => Reach::Unknown,
    }
}

/// The MTU that a network's configuration gives its pods; the last plugin of the chain decides.
pub fn mtu(list: &NetworkList) -> Option<u32> {
    let mtu = |plugin: &PluginEntry| match plugin.raw().get("mtu") {
        Some(json::Value::Number(number)) => number.as_u64().and_then(|mtu| u32::try_from(mtu).ok()),
        _ => None,
    };
    list.plugins.iter().rev().find_map(mtu).filter(|mtu| *mtu > 0)
}
