//! What is the node's own, and nobody's who may only write a definition or an annotation: its uplink, the bridge of its default
//! network, its addresses and those of Services, and the ports on which its programs listen.

use std::fmt;
use std::net::IpAddr;

use json::Object;
use npwg::{DefinitionRef, Protocol, Selection};

use super::ranges::AddressRun;
use super::routed;
use super::uses::{DEFAULT_ROUTE, Use, Uses, address};
use super::{Case, Forbidden, Policy};

/// What becomes of a network that takes what is the node's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// It is attached.
    Off,
    /// It is attached, and the pod's owner is told.
    Warn,
    /// The pod fails.
    #[default]
    On,
}

/// What is known of the node. Each is asked for only where a network could take it.
pub trait NodeOwn: fmt::Debug {
    /// The interface over which the node reaches others, if `device` is that one, or one that it stands on: its name, alternative name,
    /// hardware address, PCI address, or its directory below `/sys`.
    fn uplink(&self, device: &str) -> Option<String>;

    /// The interface over which the node reaches others.
    fn default_route(&self) -> Option<String>;

    /// Whether a bridge is that of the node's default network.
    fn is_default_bridge(&self, bridge: &str) -> bool;

    /// Whose an address is, in words, if it is the node's or the cluster's.
    fn address(&self, address: IpAddr) -> Option<String>;

    /// The same of the cluster's alone, those of Services and the API server's: a gateway of pods becomes an address of the node.
    fn of_cluster(&self, address: IpAddr) -> Option<String>;

    /// Whose traffic a route of the host to these addresses would take, in words: that of the cluster, of the uplink's networks and of
    /// the default network's, unless the route leads to that one's own `bridge`.
    fn traffic(&self, run: AddressRun, bridge: Option<&str>) -> Option<String>;

    /// Who listens on a port of the host, in words. `ip`: on this address of the host only.
    fn port(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String>;
}

// === impl Protection ===

impl Protection {
    pub(super) fn of(word: &str) -> Option<Self> {
        match word {
            "off" => Some(Protection::Off),
            "warn" => Some(Protection::Warn),
            "on" => Some(Protection::On),
            _ => None,
        }
    }
}

// === impl Policy ===

impl Policy {
    /// How a definition's network is held against what is the node's own: by the strictest of the rules that concern it and say so.
    pub fn protection(&self, case: &Case) -> Protection {
        let rules = self.rules.iter().filter(|rule| rule.concerns(case));
        rules.filter_map(|rule| rule.protect).max().unwrap_or_default()
    }

    /// What a network, with what the pod's selection asks for, takes of the node's own.
    pub fn taken(&self, case: &Case, selection: Option<&Selection>, own: &dyn NodeOwn) -> Vec<Forbidden> {
        let mut all = Vec::new();
        // What stands in the node's configuration is its owner's.
        if !case.is_on_disk {
            let mut uses = Uses::of(case.list, case.builtins);
            if let Some(device) = case.device {
                let is_taken = uses.plugins.iter().any(|plugin| plugin.what == "host-device");
                uses.taken.extend(is_taken.then(|| Use { what: device.to_owned(), place: "deviceID".to_owned() }));
            }
            all.extend(by_configuration(case.definition, &uses, own));
            all.extend(routed::by_configuration(case.definition, &uses, own));
            all.extend(selection.into_iter().flat_map(|selection| routed::by_selection(selection, &uses, own)));
        }
        all.extend(selection.into_iter().flat_map(|selection| by_selection(selection, own)));
        all.truncate(Self::MAX_FORBIDDEN);
        all.into_iter().map(|what| protected(case.definition, what)).collect()
    }
}

/// What is the node's own, with the rule that would allow to take it.
pub fn protected(definition: &DefinitionRef, what: String) -> Forbidden {
    let mut rule = Object::new();
    rule.set("name", "own");
    rule.set("definitionNamespaces", vec![definition.namespace.clone()]);
    rule.set("protect", "off");
    Forbidden::Own { what, rule: json::compact(&rule) }
}

fn by_configuration(definition: &DefinitionRef, uses: &Uses, own: &dyn NodeOwn) -> Vec<String> {
    let uplink = |device: &str| if device == DEFAULT_ROUTE { own.default_route() } else { own.uplink(device) };
    let mut all = Vec::new();
    for one in &uses.taken {
        let taken = |link| format!("definition {definition} takes {link}, the node's uplink, away from it ({})", one.place);
        all.extend(uplink(&one.what).map(taken));
    }
    for one in &uses.readdressed {
        let what = |of: &str| format!("definition {definition} replaces the address of {}, {of} ({}, forceAddress)", one.what, one.place);
        if own.is_default_bridge(&one.what) {
            all.push(what("the bridge of the node's default network"));
        } else if uplink(&one.what).is_some() {
            all.push(what("the node's uplink"));
        }
    }
    for one in &uses.gateways {
        let what =
            |link| format!("definition {definition} gives {link}, the node's uplink, a gateway's address ({}, isGateway)", one.place);
        all.extend(uplink(&one.what).map(what));
    }
    for one in &uses.addresses {
        let whose = address(&one.what).and_then(|address| own.address(address));
        all.extend(whose.map(|whose| format!("definition {definition} names the address {one}, {whose}")));
    }
    for one in &uses.ways {
        let whose = address(&one.what).and_then(|address| own.of_cluster(address));
        all.extend(whose.map(|whose| format!("definition {definition} names the gateway {one}, {whose}")));
    }
    for one in &uses.ports {
        let (port, protocol) = one.what.split_once('/').unwrap_or((&one.what, ""));
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|own| word(*own) == protocol).unwrap_or_default();
        let whose = port.parse().ok().and_then(|port| own.port(port, protocol, None));
        all.extend(whose.map(|whose| format!("definition {definition} publishes the node's port {one}, {whose}")));
    }
    all
}

fn by_selection(selection: &Selection, own: &dyn NodeOwn) -> Vec<String> {
    let ips = selection.ips.iter().filter_map(|ip| Some(format!("the pod asks for the address {}, {}", ip.text, own.address(ip.address)?)));
    let ports = selection.port_mappings.iter().filter_map(|mapping| {
        let whose = own.port(mapping.host_port, mapping.protocol, mapping.host_ip)?;
        Some(format!("the pod's annotation publishes the node's port {}/{}, {whose}", mapping.host_port, word(mapping.protocol)))
    });
    ips.chain(ports).collect()
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}
