//! What a lab looks like: nodes, their links, their pods, and the wires that join nodes.
//!
//! ```text
//! records + kernel --(the lab's reader)--> Topology --graph::draw--> terminal, SVG, Mermaid, Graphviz
//!                                              `-----serde---------> JSON
//! ```
//!
//! Plain data: nothing here asks a kernel. [`Topology::sort`] is the one rule, so that the same lab always prints the
//! same text, whatever order the kernel answered in.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

/// A lab as it is at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// Name of the lab.
    pub lab: String,
    /// Its nodes. A lab without Node manifests has one: the machine itself.
    pub nodes: Vec<Node>,
    /// What joins the nodes.
    pub wires: Vec<Wire>,
}

/// A node: a network namespace that stands for one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Name of the Node object.
    pub name: String,
    /// What pods are attached to in this node: bridges and parents; of the pods' own host-side veths those that are on no bridge.
    pub links: Vec<Link>,
    /// The pods that run here.
    pub pods: Vec<Pod>,
}

/// A link of a node that pods are attached to (`ip link`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Name in the node's namespace.
    pub name: String,
    /// What it is.
    pub kind: LinkKind,
    /// Its own addresses; on a bridge these are the gateways of its networks.
    #[serde(serialize_with = "as_text", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
    /// Whether it is set up (`IFF_UP`).
    pub up: bool,
    /// The link of the same node that it stands on or is a port of: a VLAN's parent, an uplink's bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_to: Option<String>,
    /// Name of the [`Wire`] that it is plugged into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
}

/// What a [`Link`] is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LinkKind {
    /// A bridge: pods are ports of it.
    Bridge,
    /// What plays the part of a network card: macvlan and its like stand on it, and it may be plugged into a wire.
    Parent,
    /// Any other kind, by the kernel's name of it (`IFLA_INFO_KIND`): `vlan`, `vxlan`, ...
    Virtual(String),
    /// An interface names it, and the node has no such link: removed under the pod's feet.
    Missing,
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it got what it selected.
    pub state: PodState,
    /// Its interfaces; `lo` is not told.
    pub interfaces: Vec<Interface>,
}

/// Whether a pod has its networks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "phase")]
#[non_exhaustive]
pub enum PodState {
    /// Every attachment stands.
    #[default]
    Ready,
    /// It could not be attached, and what was begun is undone.
    Failed {
        /// The error's whole text.
        reason: String,
    },
}

/// An interface in a pod: one attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its name in the pod: `eth0`, `net1`.
    pub name: String,
    /// Which network: the name of a list (`lab`) or of a definition (`default/storage`).
    pub network: String,
    /// Whether this is the pod's default network.
    pub default: bool,
    /// The kernel's kind of link: `veth`, `macvlan`; empty if not known.
    pub kind: String,
    /// Its addresses with the prefix length of their networks.
    #[serde(serialize_with = "as_text")]
    pub addresses: Vec<IpNet>,
    /// Its hardware address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<cni::Mac>,
    /// Its MTU in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether it is set up (`IFF_UP`).
    pub up: bool,
    /// Name of the node's [`Link`] that it reaches: the bridge behind its veth, that veth if it is on none (`ptp`), or the
    /// parent that it stands on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_to: Option<String>,
    /// Name of its peer in the node, if it is a veth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
}

/// What joins links of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Wire {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: WireKind,
    /// What is plugged into it.
    pub connects: Vec<WireEnd>,
}

/// What a [`Wire`] is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WireKind {
    /// A piece of the lab's physical network: a segment that joins parents.
    #[default]
    Wire,
    /// A tunnel: its packets travel on a wire, in packets of the nodes.
    Tunnel,
}

/// One plug of a [`Wire`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WireEnd {
    /// Name of the [`Node`].
    pub node: String,
    /// Name of its [`Link`].
    pub link: String,
}

// === impl Topology ===

impl Topology {
    /// Puts everything into the order that is printed: names as a person counts (`node-2` before `node-10`); of links
    /// bridges first, then parents; of a pod's interfaces the default network's first. Stable for what is equal.
    pub fn sort(&mut self) {
        self.nodes.sort_by(|a, b| by_number(&a.name, &b.name));
        for node in &mut self.nodes {
            node.links.sort_by(|a, b| a.kind.cmp(&b.kind).then_with(|| by_number(&a.name, &b.name)));
            node.pods.sort_by(|a, b| by_number(&a.namespace, &b.namespace).then_with(|| by_number(&a.name, &b.name)));
            for pod in &mut node.pods {
                pod.interfaces.sort_by(|a, b| b.default.cmp(&a.default).then_with(|| by_number(&a.name, &b.name)));
            }
        }
        self.wires.sort_by(|a, b| by_number(&a.name, &b.name));
        for wire in &mut self.wires {
            wire.connects.sort_by(|a, b| by_number(&a.node, &b.node).then_with(|| by_number(&a.link, &b.link)));
        }
    }

    /// All pods, node by node.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.nodes.iter().flat_map(|node| &node.pods)
    }
}

// === impl Wire ===

impl Wire {
    /// What a drawing calls it: `wire eth0`, `tunnel vxlan 4096`.
    pub fn title(&self) -> String {
        let kind = match self.kind {
            WireKind::Wire => "wire",
            WireKind::Tunnel => "tunnel",
        };
        format!("{kind} {}", self.name)
    }
}

// === impl LinkKind ===

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkKind::Bridge => "bridge",
            LinkKind::Parent => "parent",
            LinkKind::Virtual(kind) => kind,
            LinkKind::Missing => "missing",
        })
    }
}

impl Serialize for LinkKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// === impl Pod ===

impl Pod {
    /// The name by which a person calls it: `NAMESPACE/NAME`, or the bare name in the namespace `default`.
    pub fn title(&self) -> Cow<'_, str> {
        match self.namespace.as_str() {
            "" | "default" => Cow::Borrowed(&self.name),
            namespace => Cow::Owned(format!("{namespace}/{}", self.name)),
        }
    }

    /// Why it has no networks, if so.
    pub fn failure(&self) -> Option<&str> {
        match &self.state {
            PodState::Failed { reason } => Some(reason),
            PodState::Ready => None,
        }
    }
}

fn as_text<S: Serializer>(list: &[IpNet], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(list.iter().map(IpNet::to_string))
}

/// Compares names with runs of digits taken as numbers; equal numbers written differently fall back to the text, so
/// that only equal names are equal.
pub(crate) fn by_number(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        match (left.chars().next(), right.chars().next()) {
            (None, None) => return a.cmp(b),
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let ((number, rest), (other, other_rest)) = (split_number(left), split_number(right));
                // Without leading zeros the longer number is the greater one: no overflow, whatever its length.
                let order = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
                if order != Ordering::Equal {
                    return order;
                }
                (left, right) = (rest, other_rest);
            }
            (Some(x), Some(y)) if x == y => (left, right) = (skip(left, x), skip(right, y)),
            (Some(x), Some(y)) => return x.cmp(&y),
        }
    }
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    (number.trim_start_matches('0'), rest)
}

fn skip(text: &str, first: char) -> &str {
    text.strip_prefix(first).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_a_person_counts() {
        let mut names = ["node-10", "node-2", "node-02", "a", "node-", "node-2a", "node-99999999999999999999999", "ü", ""];
        names.sort_by(|a, b| by_number(a, b));
        assert_eq!(names, ["", "a", "node-", "node-02", "node-2", "node-2a", "node-10", "node-99999999999999999999999", "ü"]);
    }

    #[test]
    fn sorting_puts_bridges_and_default_networks_first() {
        let link = |name: &str, kind| Link { name: name.into(), kind, addresses: vec![], up: true, attached_to: None, wire: None };
        let interface = |name: &str, default| Interface { name: name.into(), default, ..Interface::default() };
        let pod = |namespace: &str, name: &str| Pod {
            namespace: namespace.into(),
            name: name.into(),
            interfaces: vec![interface("net10", false), interface("net2", false), interface("tail", true)],
            ..Pod::default()
        };
        let mut topology = Topology {
            lab: "t".into(),
            nodes: vec![
                Node { name: "n10".into(), ..Node::default() },
                Node {
                    name: "n9".into(),
                    links: vec![
                        link("v", LinkKind::Virtual("vlan".into())),
                        link("eth1", LinkKind::Parent),
                        link("br10", LinkKind::Bridge),
                        link("br9", LinkKind::Bridge),
                    ],
                    pods: vec![pod("b", "a"), pod("a", "z10"), pod("a", "z9")],
                },
            ],
            wires: vec![],
        };
        topology.sort();
        let node = &topology.nodes[0];
        assert_eq!(node.name, "n9");
        assert_eq!(node.links.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["br9", "br10", "eth1", "v"]);
        assert_eq!(node.pods.iter().map(|p| p.title().into_owned()).collect::<Vec<_>>(), ["a/z9", "a/z10", "b/a"]);
        assert_eq!(node.pods[0].interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["tail", "net2", "net10"]);
        let once = topology.clone();
        topology.sort();
        assert_eq!(topology, once);
    }

    #[test]
    fn json_is_plain() {
        let interface = Interface {
            name: "eth0".into(),
            addresses: vec!["10.1.0.2/24".parse().unwrap()],
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            ..Interface::default()
        };
        let pod = Pod {
            name: "web".into(),
            state: PodState::Failed { reason: "no address left".into() },
            interfaces: vec![interface],
            ..Pod::default()
        };
        let json = serde_json::to_value(&pod).unwrap();
        assert_eq!(json["state"], serde_json::json!({"phase": "Failed", "reason": "no address left"}));
        assert_eq!(json["interfaces"][0]["addresses"], serde_json::json!(["10.1.0.2/24"]));
        assert_eq!(json["interfaces"][0]["mac"], "02:00:00:00:00:01");
        assert_eq!(json["interfaces"][0].get("via"), None);
        assert_eq!(serde_json::to_value(LinkKind::Virtual("vlan".into())).unwrap(), "vlan");
    }
}
