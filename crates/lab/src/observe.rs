//! A lab as it is in the kernel, for drawing.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use attach::Record;
use between::rotation::SESSION;
use cni::{CniError, Code};
use ipnet::IpNet;
use linux::{Inside, Link, Netlink, Netns};

use crate::state::{Lab, Node, Pod};
use crate::switch;
use crate::topology::{self, LinkKind, PodState, Topology, Wire, WireEnd, WireKind};
use crate::underlay;
use crate::wire::FIRST_PARENT;

/// What the router between zones is called; no Node has such a name.
const ROUTER: &str = "(router)";

/// What a namespace shows: its links, and their addresses by index.
struct NamespaceLinks {
    links: Vec<Link>,
    addresses: HashMap<u32, Vec<IpNet>>,
}

/// Reads the whole lab: nodes, pods and wires.
///
/// # Errors
/// If a namespace cannot be entered or read.
pub fn observe(lab: &Lab) -> Result<Topology, CniError> {
    let mut topology = Topology { lab: lab.name.to_string(), ..Topology::default() };
    for node in &lab.nodes {
        topology.nodes.push(node_of(lab, node)?);
    }
    topology.wires = wires(lab, &topology.nodes);
    topology.nodes.extend(router(lab));
    topology.sort();
    Ok(topology)
}

/// What the nodes' links are plugged into: wires first, then tunnels.
fn wires(lab: &Lab, nodes: &[topology::Node]) -> Vec<Wire> {
    let mut wires: Vec<Wire> = Vec::new();
    for (node, link) in nodes.iter().flat_map(|node| node.links.iter().map(move |link| (node, link))) {
        let Some(name) = &link.wire else { continue };
        let end = WireEnd { node: node.name.clone(), link: link.name.clone() };
        match wires.iter_mut().find(|wire| wire.name == *name) {
            Some(wire) => wire.connects.push(end),
            None => {
                let kind = if matches!(link.kind, LinkKind::Virtual(_)) { WireKind::Tunnel } else { WireKind::Wire };
                wires.push(Wire { name: name.clone(), kind, connects: vec![end] });
            }
        }
    }
    for zone in lab.zones.iter().filter(|_| underlay::has_router(lab)) {
        let end = WireEnd { node: ROUTER.to_owned(), link: zone_of_router(zone) };
        wires.iter_mut().filter(|wire| wire.name == underlay::drawn(lab, zone)).for_each(|wire| wire.connects.push(end.clone()));
    }
    wires
}

/// The router between zones, drawn as a node without pods.
fn router(lab: &Lab) -> Option<topology::Node> {
    let link = |zone: &String| topology::Link {
        name: zone_of_router(zone),
        kind: LinkKind::Parent,
        addresses: underlay::router(lab, zone),
        up: true,
        attached_to: None,
        wire: Some(underlay::drawn(lab, zone)),
    };
    let links = lab.zones.iter().map(link).collect();
    underlay::has_router(lab).then(|| topology::Node { name: ROUTER.to_owned(), links, pods: Vec::new() })
}

fn zone_of_router(zone: &str) -> String {
    if zone.is_empty() { "no zone".to_owned() } else { format!("zone {zone}") }
}

/// The name of the tunnel that a link is an end of: nodes whose devices have the same one are joined.
fn tunnel(link: &Link) -> Option<String> {
    if let Some(port) = fabric::wireguard_port(link) {
        return Some(format!("wireguard {port}"));
    }
    let vxlan = link.vxlan.filter(|_| fabric::is_ours(link))?;
    let over = if vxlan.local.is_some_and(|local| local.is_ipv6()) { " over IPv6" } else { "" };
    Some(format!("vxlan {}{over}", vxlan.vni))
}

/// The WireGuard tunnels of a node, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTunnels {
    /// The node.
    pub node: String,
    /// How many peers it has.
    pub peers: usize,
    /// With how many of them it has a session: a tunnel that nobody uses has none.
    pub in_use: usize,
}

/// The nodes that reach others over WireGuard.
///
/// # Errors
/// If a namespace cannot be entered or read.
pub fn tunnels(lab: &Lab) -> Result<Vec<NodeTunnels>, CniError> {
    let mut all = Vec::new();
    for node in &lab.nodes {
        let internal = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("node {}: {e}", node.name));
        let Some(netns) = Netns::open(&lab.node_netns(&node.name)).map_err(|e| internal(&e))? else { continue };
        let read = |inside: &Inside| {
            let mut netlink = Netlink::open(inside).map_err(|e| internal(&e))?;
            fabric::tunnels(inside, &mut netlink).map_err(|e| internal(&e))
        };
        let found = netns.enter(read).map_err(|e| internal(&e))??;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_in_use = |at: Duration| now.saturating_sub(at) < SESSION;
        let in_use = found.values().filter(|peer| peer.handshake.is_some_and(is_in_use)).count();
        all.push(NodeTunnels { node: node.name.clone(), peers: found.len(), in_use });
    }
    all.retain(|node| node.peers > 0);
    Ok(all)
}

fn node_of(lab: &Lab, node: &Node) -> Result<topology::Node, CniError> {
    let seen = see(&lab.node_netns(&node.name))?;
    let mut shown = topology::Node { name: node.name.clone(), ..topology::Node::default() };
    for pod in lab.pods.iter().filter(|p| p.node == node.name) {
        shown.pods.push(pod_of(lab, pod, &seen)?);
    }
    let interfaces = || shown.pods.iter().flat_map(|p| &p.interfaces);
    let used = |name: &str| interfaces().any(|i| i.attached_to.as_deref() == Some(name));
    let is_end = |name: &str| interfaces().any(|i| i.via.as_deref() == Some(name));
    for link in seen.links.iter().filter(|l| !l.flags.loopback()) {
        let wire = match lab.wires.iter().find(|wire| **wire == link.name && !lab.refused.contains(wire)) {
            Some(first) if first == FIRST_PARENT => Some(underlay::drawn(lab, &node.zone)),
            other => other.cloned().or_else(|| tunnel(link)),
        };
        let is_switched = lab.bridges.contains(&link.name);
        if wire.is_none() && !used(&link.name) && !link.is("bridge") && !is_switched {
            continue;
        }
        let kind = match (link.kind.as_deref(), &wire) {
            (Some("bridge"), _) => LinkKind::Bridge,
            _ if is_switched => LinkKind::Bridge,
            (Some("veth"), None) if is_end(&link.name) => LinkKind::Virtual("veth".to_owned()),
            (None | Some("veth"), _) => LinkKind::Parent,
            (Some(other), _) => LinkKind::Virtual(other.to_owned()),
        };
        let master = || link.master.and_then(|m| seen.by_index(m)).map(|l| l.name.clone());
        let attached_to = switch::bridge_of(lab, &link.name).cloned().or_else(master);
        let addresses = seen.of(link);
        // A switch forwards whether its bridge's own interface is up or not.
        let up = if is_switched { switch::forwards(lab, &node.name) } else { link.flags.up() };
        shown.links.push(topology::Link { name: link.name.clone(), kind, addresses, up, attached_to, wire });
    }
    Ok(shown)
}

fn pod_of(lab: &Lab, pod: &Pod, node: &NamespaceLinks) -> Result<topology::Pod, CniError> {
    let state = match &pod.failure {
        Some(reason) => PodState::Failed { reason: reason.clone() },
        None => PodState::Ready,
    };
    let record = lab.sandbox(pod).ok().and_then(|id| lab.records(&pod.node).read(&id).ok().flatten());
    let seen = see(&lab.pod_netns(pod))?;
    let inner = seen.links.iter().filter(|l| !l.flags.loopback());
    let interfaces = inner.map(|l| interface(l, &seen, node, record.as_ref())).collect();
    Ok(topology::Pod { namespace: pod.namespace.clone(), name: pod.name.clone(), state, interfaces })
}

fn interface(link: &Link, pod: &NamespaceLinks, node: &NamespaceLinks, record: Option<&Record>) -> topology::Interface {
    let step = record.and_then(|r| r.steps.iter().find(|s| s.ifname.as_str() == link.name));
    // A veth's other end, and a macvlan's parent, are indexes of the node's namespace.
    let other = link.parent.and_then(|index| node.by_index(index));
    let (attached_to, via) = match (link.kind.as_deref(), other) {
        // An end that is no port is where the wire ends: with ptp the node itself has the gateway's address on it.
        (Some("veth"), Some(end)) => {
            // The kernel does not know the ports of a switch with the userspace datapath.
            let switched = step.and_then(|s| switch::of(&s.list).next()).filter(|_| end.master.is_none());
            let reached = end.master.and_then(|m| node.by_index(m)).unwrap_or(end);
            (Some(switched.unwrap_or(&reached.name).to_owned()), Some(end.name.clone()))
        }
        (_, other) => (other.map(|l| l.name.clone()), None),
    };
    topology::Interface {
        name: link.name.clone(),
        network: step.map(|s| s.name.clone()).unwrap_or_else(|| "-".to_owned()),
        default: step.is_some_and(|s| s.default),
        kind: link.kind.clone().unwrap_or_default(),
        addresses: pod.of(link),
        mac: link.mac.clone(),
        mtu: Some(link.mtu),
        up: link.flags.up(),
        attached_to,
        via,
    }
}

fn see(path: &std::path::Path) -> Result<NamespaceLinks, CniError> {
    let failed = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("inspect {}: {e}", path.display()));
    let Some(netns) = Netns::open(path).map_err(|e| failed(&e))? else {
        return Ok(NamespaceLinks { links: Vec::new(), addresses: HashMap::new() });
    };
    let look = |inside: &Inside| {
        let mut netlink = Netlink::open(inside).map_err(|e| e.to_string())?;
        let links = netlink.links().map_err(|e| e.to_string())?;
        let mut addresses: HashMap<u32, Vec<IpNet>> = HashMap::new();
        for address in netlink.addresses(None).map_err(|e| e.to_string())? {
            // Every interface has a link-local address of its own; it tells nothing.
            let link_local = matches!(address.net, IpNet::V6(net) if net.addr().is_unicast_link_local());
            if !link_local {
                addresses.entry(address.index).or_default().push(address.net);
            }
        }
        Ok::<_, String>(NamespaceLinks { links, addresses })
    };
    netns.enter(look).map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}

// === impl NamespaceLinks ===

impl NamespaceLinks {
    fn by_index(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|l| l.index == index)
    }

    fn of(&self, link: &Link) -> Vec<IpNet> {
        self.addresses.get(&link.index).cloned().unwrap_or_default()
    }
}
