//! What every format draws from: the topology in its order, with nothing dangling and a colour for each network.

use crate::topology::{Interface, Link, LinkKind, Node, Topology, Wire, WireEnd, by_number};

use super::palette::{HUES, Hue};

/// A topology made ready: every link that an interface, a link or a wire names is among its node's links
/// ([`LinkKind::Missing`] if it was not), and every wire that a link names is among the wires.
pub(super) struct Scene {
    topology: Topology,
    networks: Vec<String>,
}

// === impl Scene ===

impl Scene {
    pub(super) fn new(topology: &Topology) -> Self {
        let mut topology = topology.clone();
        topology.nodes.iter_mut().for_each(name_missing_links);
        join_wires(&mut topology);
        topology.sort();
        let networks = networks(&topology);
        Scene { topology, networks }
    }

    /// The lab's name.
    pub(super) fn lab(&self) -> &str {
        &self.topology.lab
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.topology.nodes
    }

    pub(super) fn wires(&self) -> &[Wire] {
        &self.topology.wires
    }

    /// How many networks have a colour.
    pub(super) fn networks(&self) -> &[String] {
        &self.networks
    }

    /// The number of a network, by which it is coloured.
    pub(super) fn number(&self, network: &str) -> usize {
        self.networks.iter().position(|known| known == network).unwrap_or(0)
    }

    /// The colour of a network.
    pub(super) fn hue(&self, network: &str) -> Option<&'static Hue> {
        HUES.get(self.number(network) % HUES.len())
    }

    /// The network of the first interface that reaches a link.
    pub(super) fn network_of<'a>(&self, node: &'a Node, link: &Link) -> Option<&'a str> {
        let mut interfaces = node.pods.iter().flat_map(|pod| &pod.interfaces);
        interfaces.find(|interface| interface.attached_to.as_deref() == Some(&link.name)).map(|interface| interface.network.as_str())
    }

    /// `2 nodes, 5 pods, 9 interfaces, 1 failed`.
    pub(super) fn summary(&self) -> String {
        let pods = self.topology.pods().count();
        let interfaces = self.topology.pods().map(|pod| pod.interfaces.len()).sum();
        let failed = self.topology.pods().filter(|pod| pod.failure().is_some()).count();
        let mut parts = vec![count(self.nodes().len(), "node"), count(pods, "pod"), count(interfaces, "interface")];
        parts.push(count(self.networks.len(), "network"));
        if failed > 0 {
            parts.push(format!("{failed} failed"));
        }
        parts.join(", ")
    }
}

/// What an interface is on the host's side: its veth there, or its kind.
pub(super) fn line_label(interface: &Interface) -> &str {
    interface.via.as_deref().unwrap_or(&interface.kind)
}

/// The lines below a link's name: what it is, what it stands on, its addresses.
pub(super) fn link_lines(link: &Link) -> Vec<String> {
    let mut first = link.kind.to_string();
    if !link.up && link.kind != LinkKind::Missing {
        first.push_str(", down");
    }
    let below = link.attached_to.as_ref().map(|other| format!("on {other}"));
    [first].into_iter().chain(below).chain(link.addresses.iter().map(ToString::to_string)).collect()
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn name_missing_links(node: &mut Node) {
    let interfaces = node.pods.iter().flat_map(|pod| &pod.interfaces).filter_map(|interface| interface.attached_to.clone());
    let named: Vec<String> = interfaces.chain(node.links.iter().filter_map(|link| link.attached_to.clone())).collect();
    for name in named {
        ensure_link(node, &name);
    }
}

fn ensure_link(node: &mut Node, name: &str) {
    if node.links.iter().all(|link| link.name != name) {
        let kind = LinkKind::Missing;
        node.links.push(Link { name: name.to_owned(), kind, addresses: Vec::new(), up: false, attached_to: None, wire: None });
    }
}

/// Brings what links say of wires and what wires say of links together.
fn join_wires(topology: &mut Topology) {
    let mut plugs: Vec<(String, WireEnd)> = Vec::new();
    for node in &topology.nodes {
        let plugged = node.links.iter().filter_map(|link| Some((link.wire.clone()?, &link.name)));
        plugs.extend(plugged.map(|(wire, link)| (wire, WireEnd { node: node.name.clone(), link: link.clone() })));
    }
    for (name, end) in plugs {
        match topology.wires.iter_mut().find(|wire| wire.name == name) {
            Some(wire) if wire.connects.contains(&end) => {}
            Some(wire) => wire.connects.push(end),
            None => topology.wires.push(Wire { name, connects: vec![end], ..Wire::default() }),
        }
    }
    let Topology { nodes, wires, .. } = topology;
    for wire in wires {
        wire.connects.retain(|end| nodes.iter().any(|node| node.name == end.node));
        for end in &wire.connects {
            if let Some(node) = nodes.iter_mut().find(|node| node.name == end.node) {
                ensure_link(node, &end.link);
            }
        }
    }
}

/// The networks, those that are someone's default first: a lab's own network keeps its colour whatever joins.
fn networks(topology: &Topology) -> Vec<String> {
    let interfaces = || topology.pods().flat_map(|pod| &pod.interfaces);
    let mut networks: Vec<&str> = interfaces().map(|interface| interface.network.as_str()).collect();
    networks.sort_by(|a, b| by_number(a, b));
    networks.dedup();
    networks.sort_by_key(|network| !interfaces().any(|interface| interface.default && interface.network == *network));
    networks.into_iter().map(str::to_owned).collect()
}
