//! What is wrong with what was read: by the plugins' own checks, and between networks and pods.
//!
//! ```text
//!   Reading: definitions, pods, nodes, and where their texts are --validate--> findings with their places in the files
//! ```

use std::collections::BTreeMap;

use npwg::DefinitionRef;
use plugin::KnownLinks;
use plugins::BUILTINS;
use validate::{About, Between, Network, Pod, Port, Surroundings};

use super::error::FindingKind;
use super::relations::Reading;
use super::text::Text;
use super::{Finding, Origin, PodManifest, Purpose};
use crate::{node, wire};

/// What the kernel gives a veth pair and a bridge where nobody says which, in bytes: a lab's parents are the ends of such pairs.
const MTU: u32 = 1500;

/// Everything that can be known to be wrong before anything is built.
pub(crate) fn findings(reading: &Reading) -> Vec<Finding> {
    let links = links(reading);
    let around = Surroundings { builtins: BUILTINS, links: &links, is_lab: reading.purpose == Purpose::Lab };
    let references: Vec<DefinitionRef> = reading.definitions.iter().map(|d| d.definition.reference()).collect();
    let texts: Vec<&str> = reading.definitions.iter().map(|d| d.definition.config.as_deref().unwrap_or_default()).collect();
    let with_network = |at: usize| Some((at, reading.definitions.get(at)?.network.as_ref()?));
    let known: Vec<(usize, &cni::NetworkList)> = (0..references.len()).filter_map(with_network).collect();
    let mut found = Vec::new();
    for (at, list) in &known {
        let resource = reading.definitions.get(*at).and_then(|d| d.definition.resource_name.as_deref());
        let text = texts.get(*at).copied().unwrap_or_default();
        let of_network = validate::network(text, list, resource, &around);
        found.extend(of_network.into_iter().filter_map(|finding| placed(reading.configs.get(*at)?.as_ref()?, text, finding)));
    }
    let networks: Vec<Network<'_>> =
        known.iter().filter_map(|(at, list)| Some(Network { reference: references.get(*at)?, list, text: texts.get(*at)? })).collect();
    let (names, nodes, ports) = (names(&reading.pods), places(reading), ports(&reading.pods));
    let pods = reading.pods.iter().zip(&names).zip(&nodes).zip(&ports);
    let pods: Vec<Pod<'_>> = pods
        .map(|(((pod, name), node), ports)| Pod {
            name,
            node: node.as_deref(),
            selections: pod.selections(),
            ports,
            workloads: &pod.workload.names,
            copies: pod.workload.copies,
        })
        .collect();
    let all = validate::between(&networks, &pods, &around).into_iter();
    found.extend(all.filter_map(|Between { about, finding }| match about {
        About::Network(at) => {
            let (at, _) = known.get(at)?;
            placed(reading.configs.get(*at)?.as_ref()?, texts.get(*at)?, finding)
        }
        About::Selections(at) => {
            let annotation = reading.pods.get(at)?.networks.as_ref()?;
            placed(reading.annotations.get(at)?.as_ref()?, &annotation.text, finding)
        }
        About::Ports(at) => at_port(reading.host_ports.get(at)?, finding),
    }));
    found
}

/// The interfaces of a lab's nodes: parents, and the bridges that networks make.
fn links(reading: &Reading) -> KnownLinks {
    if reading.purpose != Purpose::Lab {
        return KnownLinks::default();
    }
    let lists = || reading.definitions.iter().filter_map(|definition| definition.network.as_ref());
    let parents = lists().flat_map(wire::parents).chain([wire::FIRST_PARENT.to_owned()]).map(|name| (name, MTU));
    let bridges = lists().flat_map(wire::bridges).map(|(name, mtu)| (name, mtu.unwrap_or(MTU)));
    let all: BTreeMap<String, u32> = parents.chain(bridges).collect();
    all.into_iter().collect()
}

fn names(pods: &[PodManifest]) -> Vec<String> {
    pods.iter().map(ToString::to_string).collect()
}

/// The node of each pod: in a lab as it will be, in a cluster where the manifest says so.
fn places(reading: &Reading) -> Vec<Option<String>> {
    if reading.purpose == Purpose::Cluster {
        return reading.pods.iter().map(|pod| pod.node.clone()).collect();
    }
    let names = node::names(&[], &reading.nodes, &reading.pods);
    let mut turn = names.iter().cycle();
    reading.pods.iter().map(|pod| node::of(pod, &names, &mut turn)).collect()
}

fn ports(pods: &[PodManifest]) -> Vec<Vec<Port>> {
    let port = |port: &super::ContainerPort| Some(Port { host_port: port.host_port?, protocol: port.protocol, host_ip: port.host_ip });
    pods.iter().map(|pod| pod.ports.iter().filter_map(port).collect()).collect()
}

/// A finding in a text.
fn placed(at: &Text, text: &str, finding: validate::Finding) -> Option<Finding> {
    let (origin, width) = at.find(text, &finding.path, finding.is_key);
    Some(Finding { origin, field: at.path.clone(), width, kind: FindingKind::Checked(finding) })
}

/// A finding at the port that a path such as `[2]` means, among those that are published.
fn at_port(ports: &[(Origin, String)], finding: validate::Finding) -> Option<Finding> {
    let index: usize = finding.path.trim_matches(['[', ']']).parse().ok()?;
    let (origin, field) = ports.get(index)?.clone();
    Some(Finding { origin, field, width: 1, kind: FindingKind::Checked(finding) })
}
