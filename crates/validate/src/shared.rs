//! What two pods would have at the same time.

use std::collections::{BTreeMap, BTreeSet};

use cni::NetworkList;
use json::{Object, Value};
use npwg::DefinitionRef;
use plugin::{Builtins, Plugin};

use crate::between::{About, Between, Network, Pod, Port};
use crate::finding::{Finding, under};
use crate::network::{entries, is_list};

/// Plugins whose containers share a wire with those of other nodes: the parent's.
const ON_A_PARENT: [&str; 3] = ["macvlan", "ipvlan", "vlan"];

/// Addresses and hardware addresses that two selections of one network ask for.
pub(crate) fn requests(networks: &[Network<'_>], pods: &[Pod<'_>]) -> Vec<Between> {
    let mut seen: BTreeMap<(&DefinitionRef, String), Vec<usize>> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, pod) in pods.iter().enumerate() {
        for (number, selection) in pod.selections.iter().enumerate() {
            let ips = selection.ips.iter().enumerate().map(|(i, ip)| (ip.address.to_string(), format!("ips[{i}]")));
            let mac = selection.mac.iter().map(|mac| (mac.to_string(), "mac".to_owned()));
            for (value, key) in ips.chain(mac) {
                let holders = seen.entry((&selection.definition, value.clone())).or_default();
                let other =
                    holders.iter().filter_map(|other| pods.get(*other)).find(|other| meet(other, pod, &selection.definition, networks));
                if let Some(other) = other {
                    let message =
                        format!("{value} is requested by pod {} as well, on the same network {}", other.name, selection.definition);
                    let finding = Finding::error(format!("[{number}].{key}"), message).help("request another one, or none");
                    found.push(Between { about: About::Selections(at), finding });
                }
                if let Some(copies) = pod.many().filter(|_| other.is_none()) {
                    let message = format!("{value} is requested by each of the {copies} pods of {}", pod.name);
                    let finding = Finding::error(format!("[{number}].{key}"), message).help("let an IPAM plugin assign addresses");
                    found.push(Between { about: About::Selections(at), finding });
                }
                holders.push(at);
            }
        }
    }
    found
}

/// Addresses that a network itself names for every pod that selects it.
pub(crate) fn fixed_addresses(networks: &[Network<'_>], pods: &[Pod<'_>]) -> Vec<Between> {
    let mut holders: BTreeMap<&DefinitionRef, Vec<usize>> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, pod) in pods.iter().enumerate() {
        for (number, selection) in pod.selections.iter().enumerate().filter(|(_, selection)| selection.ips.is_empty()) {
            let Some(network) = networks.iter().find(|network| *network.reference == selection.definition) else { continue };
            let Some(address) = fixed_address(network.list) else { continue };
            let before = holders.entry(&selection.definition).or_default();
            let other = before.iter().filter_map(|other| pods.get(*other)).find(|other| meet(other, pod, &selection.definition, networks));
            if let Some(other) = other {
                let message =
                    format!("{} gives {address} to every pod that selects it: pod {} has it as well", network.reference, other.name);
                let help = "request an address for each pod with \"ips\", or use an IPAM plugin that has more than one";
                found.push(Between { about: About::Selections(at), finding: Finding::error(format!("[{number}]"), message).help(help) });
            }
            if let Some(copies) = pod.many().filter(|_| other.is_none()) {
                let message = format!("{} gives {address} to each of the {copies} pods of {}", network.reference, pod.name);
                let help = "use an IPAM plugin that has more than one address";
                found.push(Between { about: About::Selections(at), finding: Finding::error(format!("[{number}]"), message).help(help) });
            }
            before.push(at);
        }
    }
    found
}

fn fixed_address(list: &NetworkList) -> Option<String> {
    let ipam = list.plugins.iter().filter_map(|plugin| plugin.raw().object("ipam")).find(|ipam| ipam.str("type") == Some("static"))?;
    let first = ipam.get("addresses")?.as_array()?.first()?;
    first.as_object()?.str("address").map(str::to_owned)
}

/// Whether two pods meet on a network: on a wire of several nodes, or on one node's own bridge.
fn meet(one: &Pod<'_>, other: &Pod<'_>, network: &DefinitionRef, networks: &[Network<'_>]) -> bool {
    let list = networks.iter().find(|known| known.reference == network).map(|known| known.list);
    !one.is_same(other) && (list.is_none_or(|list| on_a_parent(list).is_some()) || !one.is_apart(other))
}

/// Where in a list the plugin is whose containers are on a parent's wire.
fn on_a_parent(list: &NetworkList) -> Option<usize> {
    list.plugins.iter().position(|plugin| ON_A_PARENT.contains(&plugin.kind.as_str()))
}

/// Host ports that two pods of one node would publish.
pub(crate) fn host_ports(pods: &[Pod<'_>]) -> Vec<Between> {
    let mut seen: BTreeMap<(u16, &'static str), Vec<(usize, Port)>> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, pod) in pods.iter().enumerate() {
        for (about, path, port) in ports(at, pod) {
            let holders = seen.entry((port.host_port, port.protocol.as_str())).or_default();
            let collides = |(other, theirs): &&(usize, Port)| {
                let same_address = theirs.host_ip.is_none() || port.host_ip.is_none() || theirs.host_ip == port.host_ip;
                same_address && *other != at && pods.get(*other).is_some_and(|other| other.is_beside(pod) && !other.is_same(pod))
            };
            if let Some(other) = holders.iter().find(collides).and_then(|(other, _)| pods.get(*other)) {
                let node = pod.node.unwrap_or_default();
                let message =
                    format!("host port {}/{} of node {node} is published by pod {} as well", port.host_port, port.protocol, other.name);
                found.push(Between { about, finding: Finding::error(path, message).help("choose another host port, or another node") });
            }
            holders.push((at, port));
        }
    }
    found
}

/// The host ports of a pod: of its containers, then of its selections.
fn ports<'a>(at: usize, pod: &'a Pod<'_>) -> impl Iterator<Item = (About, String, Port)> + use<'a> {
    let of_containers = pod.ports.iter().enumerate().map(move |(i, port)| (About::Ports(at), format!("[{i}]"), *port));
    let mappings = pod.selections.iter().enumerate().flat_map(|(number, selection)| {
        selection.port_mappings.iter().enumerate().map(move |(i, mapping)| (format!("[{number}].portMappings[{i}].hostPort"), mapping))
    });
    let of_selections = mappings.map(move |(path, mapping)| {
        let port = Port { host_port: mapping.host_port, protocol: mapping.protocol, host_ip: mapping.host_ip };
        (About::Selections(at), path, port)
    });
    of_containers.chain(of_selections)
}

/// Networks on a wire of several nodes whose addresses each node counts by itself.
pub(crate) fn ranges(networks: &[Network<'_>], pods: &[Pod<'_>], builtins: Builtins) -> Vec<Between> {
    let mut found = Vec::new();
    for (at, network) in networks.iter().enumerate() {
        let is_list = json::parse(network.text.as_bytes()).ok().as_ref().and_then(Value::as_object).is_some_and(is_list);
        let all = entries(network.list, is_list, builtins);
        let Some(entry) = on_a_parent(network.list).and_then(|place| all.get(place)) else { continue };
        let is_counted_here = entry.ipam.map(Plugin::about).is_some_and(|ipam| ipam.name == "host-local");
        let is_inside = |raw: &Object| raw.get("linkInContainer").and_then(Value::as_bool) == Some(true);
        if !is_counted_here || is_inside(entry.entry.raw()) {
            continue;
        }
        let select = pods.iter().filter(|pod| pod.selections.iter().any(|s| s.definition == *network.reference && s.ips.is_empty()));
        let nodes: BTreeSet<&str> = select.filter_map(|pod| pod.node).collect();
        let mut names = nodes.iter();
        if let (Some(first), Some(second)) = (names.next(), names.next()) {
            let message =
                format!("host-local assigns addresses on each node by itself: pods on {first} and {second} get the same ones on one wire");
            let help =
                "use \"pool\" or \"whereabouts\", whose addresses all nodes share, or a definition with a range of its own for each node";
            let path = under(&entry.prefix, "ipam.type");
            found.push(Between { about: About::Network(at), finding: Finding::error(path, message).help(help) });
        }
    }
    found
}
