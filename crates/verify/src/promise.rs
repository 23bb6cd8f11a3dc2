//! What a network's configuration promises to its pods.

use cni::{NetworkList, PluginEntry};
use json::{Object, Value};

use crate::site::{Limits, Reach};

/// The keys of a limit, in a configuration of `bandwidth` and in the capability of that name.
const LIMITS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];
/// The keys of networks with which traffic alone is limited, or is not.
const SHAPED: [&str; 2] = ["shapedSubnets", "unshapedSubnets"];

/// Whom a network's pods reach. `is_routed`: it is the one that agents provide, whose bridges are routed between nodes.
pub fn reach(list: &NetworkList, is_routed: bool) -> Reach {
    let Some(first) = list.plugins.first() else { return Reach::Unknown };
    // Probes choose neither a VRF nor a source address.
    if list.plugins.iter().any(|plugin| matches!(plugin.kind.as_str(), "vrf" | "sbr")) {
        return Reach::Unknown;
    }
    let raw = first.raw();
    let is_set = |key: &str| raw.get(key).and_then(Value::as_bool) == Some(true);
    // A firewall isolates the bridge's ports as `portIsolation` does. Its policy same-bridge leaves pods of one network alone.
    let isolates = |plugin: &PluginEntry| plugin.kind.as_str() == "firewall" && plugin.raw().str("ingressPolicy") == Some("isolated");
    match (first.kind.as_str(), raw.str("mode")) {
        ("bridge", _) if is_set("portIsolation") || list.plugins.iter().any(isolates) => Reach::Nobody,
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
        Some(Value::Number(number)) => number.as_u64().and_then(|mtu| u32::try_from(mtu).ok()),
        _ => None,
    };
    list.plugins.iter().rev().find_map(mtu).filter(|mtu| *mtu > 0)
}

/// How fast a network lets a pod be: as its `bandwidth` is configured, or else as `runtimeConfig` of the pod says. A limit that does not hold for
/// all traffic promises nothing.
pub fn limits(list: &NetworkList, runtime_config: &Object) -> Limits {
    let Some(plugin) = list.plugins.iter().find(|plugin| plugin.kind.as_str() == "bandwidth") else { return Limits::default() };
    let (own, of_pod) = (plugin.raw(), runtime_config.object("bandwidth"));
    let has = |keys: &[&str], object: &Object| keys.iter().any(|key| object.get(key).is_some());
    if std::iter::once(own).chain(of_pod).any(|object| has(&SHAPED, object)) {
        return Limits::default();
    }
    let from = if has(&LIMITS, own) { Some(own) } else { of_pod };
    let rate = |key: &str| match from?.get(key)? {
        Value::Number(number) => number.as_u64().filter(|bits| *bits > 0),
        _ => None,
    };
    Limits { receives: rate("ingressRate"), sends: rate("egressRate") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach_of(plugins: &str) -> Reach {
        let list = format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{plugins}]}}"#);
        reach(&NetworkList::parse(list.as_bytes(), None).unwrap(), false)
    }

    /// A firewall behind the bridge isolates its pods: they were expected to reach each other, because only the first plugin was read.
    #[test]
    fn a_firewall_may_isolate_the_pods_of_a_bridge() {
        let behind = |first: &str, policy: &str| {
            reach_of(&format!(r#"{{"type":"{first}"}},{{"type":"tuning"}},{{"type":"firewall","ingressPolicy":"{policy}"}}"#))
        };
        assert_eq!(behind("bridge", "isolated"), Reach::Nobody);
        for policy in ["", "open", "same-bridge"] {
            assert_eq!(behind("bridge", policy), Reach::SameNode, "{policy}");
        }
        assert_eq!(reach_of(r#"{"type":"bridge","portIsolation":true}"#), Reach::Nobody);
        assert_eq!(reach_of(r#"{"type":"bridge"},{"type":"firewall"}"#), Reach::SameNode);
    }
}
