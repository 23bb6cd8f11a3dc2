//! Nodes on one wire, each with a pod.
//!
//! ```text
//!   pod: eth0 10.1.N.7 -- cni0 10.1.N.1 : node N : eth0 192.0.2.N -- wire: br0 -- the other nodes
//! ```

use std::net::IpAddr;

use between::{Device, Family, Mode, NodeSeen, OwnNode, Plan, Settings, Underlay, Vxlan, plan};
use linux::{Monitor, forward};
use netloom_fabric::{Applied, Fabric, Options, device_name};

use crate::oracle;
use crate::space::{Space, drain};

pub(crate) const VXLAN: Vxlan = Vxlan { vni: 1, port: 8472 };

pub(crate) struct Node {
    pub(crate) space: Space,
    pub(crate) pod: Space,
    pub(crate) seen: NodeSeen,
    pub(crate) fabric: Fabric,
    monitor: Monitor,
    number: u8,
}

pub(crate) struct Cluster {
    wire: Space,
    pub(crate) nodes: Vec<Node>,
    pub(crate) settings: Settings,
}

/// The subnets of the wire.
fn subnet(family: Family, host: u8) -> String {
    if family == Family::V4 { format!("192.0.2.{host}/24") } else { format!("2001:db8::{host:x}/64") }
}

/// The address of the pod on node N.
pub(crate) fn pod_address(family: Family, number: u8) -> String {
    if family == Family::V4 { format!("10.1.{number}.7") } else { format!("fd00:1:{number}::7") }
}

pub(crate) fn settings(mode: Mode) -> Settings {
    Settings { mode, vxlan: VXLAN, wireguard_port: 51820, reserved: Vec::new(), within: Vec::new() }
}

/// Node N as the others see it, with endpoints of these families.
pub(crate) fn seen(number: u8, endpoints: Vec<IpAddr>) -> NodeSeen {
    NodeSeen {
        name: format!("n{number}"),
        uid: format!("uid of n{number}"),
        created: "2026-01-01T00:00:00Z".to_owned(),
        ranges: vec![format!("10.1.{number}.0/24").parse().unwrap(), format!("fd00:1:{number}::/64").parse().unwrap()],
        endpoints,
        ..NodeSeen::default()
    }
}

/// The links of the node in a namespace whose uplink is `eth0`.
pub(crate) fn own(space: &Space, name: &str) -> OwnNode {
    let shown = space.json("ip -j addr show dev eth0");
    let addresses = shown[0]["addr_info"].as_array().unwrap().iter();
    let addresses = addresses.map(|info| format!("{}/{}", info["local"].as_str().unwrap(), info["prefixlen"]).parse().unwrap());
    let link = Underlay { index: space.index("eth0"), name: "eth0".to_owned(), mtu: 1500, addresses: addresses.collect() };
    OwnNode { name: name.to_owned(), links: vec![link], ..OwnNode::default() }
}

impl Cluster {
    /// So many nodes, whose endpoints are of these families, and on each the tables of a mode.
    pub(crate) fn new(count: u8, mode: Mode, over: &[Family]) -> Self {
        let wire = Space::new();
        wire.sh("ip link add br0 type bridge");
        wire.sh("ip link set br0 up");
        let nodes = (1..=count).map(|number| Node::new(number, &wire, over)).collect();
        let mut cluster = Cluster { wire, nodes, settings: settings(mode) };
        cluster.apply_all();
        cluster
    }

    pub(crate) fn plan(&self, at: usize) -> Plan {
        let nodes: Vec<NodeSeen> = self.nodes.iter().map(|node| node.seen.clone()).collect();
        let node = &self.nodes[at];
        plan(&self.settings, &own(&node.space, &node.seen.name), &nodes).unwrap()
    }

    /// What a node's agent does: takes notices, then applies its plan.
    pub(crate) fn try_apply(&mut self, at: usize) -> Applied {
        self.nodes[at].noticed();
        self.apply_unnoticed(at)
    }

    /// As [`Cluster::try_apply`], before a notice of what has just happened has come.
    pub(crate) fn apply_unnoticed(&mut self, at: usize) -> Applied {
        let plan = self.plan(at);
        self.nodes[at].apply(&plan)
    }

    /// Makes a node what its plan says; how many changes that took. The kernel must be that then.
    #[track_caller]
    pub(crate) fn apply(&mut self, at: usize) -> usize {
        let applied = self.try_apply(at);
        assert_eq!((&applied.errors[..], applied.skipped), (&[][..], 0));
        oracle::agrees(&self.nodes[at].space, &self.plan(at));
        applied.changes
    }

    #[track_caller]
    pub(crate) fn apply_all(&mut self) {
        for at in 0..self.nodes.len() {
            let plan = self.plan(at);
            assert!(plan.problems.is_empty(), "{:?}", plan.problems);
            self.apply(at);
        }
    }

    /// Whether each pod reaches each other one, and each node the pods of the others, in both families.
    #[track_caller]
    pub(crate) fn reaches(&self) {
        for from in &self.nodes {
            for to in self.nodes.iter().filter(|to| to.number != from.number) {
                for family in [Family::V4, Family::V6] {
                    let address = pod_address(family, to.number);
                    assert!(from.pod.pings(&address), "{address} does not answer the pod of {}", from.seen.name);
                    assert!(from.space.pings(&address), "{address} does not answer {}", from.seen.name);
                }
            }
        }
    }

    /// Gives a node other addresses.
    pub(crate) fn move_to(&mut self, at: usize, host: u8) {
        let node = &mut self.nodes[at];
        let families: Vec<Family> = node.seen.endpoints.iter().map(|endpoint| Family::of(*endpoint)).collect();
        node.space.sh("ip addr flush dev eth0 scope global");
        node.seen.endpoints = node.take_addresses(&families, host);
    }

    /// Puts a node on subnets of its own, behind a router that all nodes have as their default; it routes as long as it is kept.
    pub(crate) fn put_behind_router(&mut self, at: usize) -> Space {
        let router = Space::new();
        self.wire.sh(&format!("ip link add router master br0 up type veth peer name eth0 netns {}", router.path()));
        router.sh("ip link set eth0 up");
        for sysctl in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            router.set_sysctl(sysctl, "1");
        }
        router.set_sysctl("ipv4/conf/all/send_redirects", "0");
        router.set_sysctl("ipv4/conf/eth0/send_redirects", "0");
        let families: Vec<Family> = self.nodes[at].seen.endpoints.iter().map(|endpoint| Family::of(*endpoint)).collect();
        self.nodes[at].space.sh("ip addr flush dev eth0 scope global");
        self.nodes[at].seen.endpoints.clear();
        for family in families {
            let (nodad, subnets) =
                if family == Family::V4 { ("", ["192.0.2.", "198.51.100."]) } else { ("nodad", ["2001:db8::", "2001:db8:9::"]) };
            let length = if family == Family::V4 { 24 } else { 64 };
            for subnet in subnets {
                router.sh(&format!("ip addr add {subnet}99/{length} dev eth0 {nodad}"));
            }
            let [_, away] = subnets;
            self.nodes[at].space.sh(&format!("ip addr add {away}33/{length} dev eth0 {nodad}"));
            self.nodes[at].seen.endpoints.push(format!("{away}33").parse().unwrap());
            for (node, subnet) in self.nodes.iter().enumerate().map(|(other, node)| (node, subnets[usize::from(other == at)])) {
                node.space.sh(&format!("ip route add default via {subnet}99"));
            }
        }
        router
    }

    /// Cuts the wire of a node, or mends it.
    pub(crate) fn set_wire(&self, at: usize, state: &str) {
        self.wire.sh(&format!("ip link set p{} {state}", self.nodes[at].number));
    }
}

impl Node {
    /// Takes what the kernel has reported until now. Whether any of it contradicts what was left.
    pub(crate) fn noticed(&mut self) -> bool {
        drain(&mut self.monitor).iter().filter(|notice| self.fabric.notice(notice)).count() > 0
    }

    /// Applies a plan, whatever the kernel says to that.
    pub(crate) fn apply(&mut self, plan: &Plan) -> Applied {
        let Node { space, fabric, .. } = self;
        space.run(|_, netlink| fabric.apply(netlink, plan)).unwrap()
    }

    fn new(number: u8, wire: &Space, over: &[Family]) -> Self {
        let (space, pod) = (Space::new(), Space::new());
        wire.sh(&format!("ip link add p{number} master br0 up type veth peer name eth0 netns {}", space.path()));
        space.sh("ip link set eth0 up");
        space.sh("ip link add cni0 type bridge");
        space.sh("ip link set cni0 up");
        space.sh(&format!("ip addr add 10.1.{number}.1/24 dev cni0"));
        space.sh(&format!("ip addr add fd00:1:{number}::1/64 dev cni0 nodad"));
        space.sh(&format!("ip link add pod0 master cni0 up type veth peer name eth0 netns {}", pod.path()));
        pod.sh("ip link set eth0 up");
        pod.sh(&format!("ip addr add 10.1.{number}.7/24 dev eth0"));
        pod.sh(&format!("ip addr add fd00:1:{number}::7/64 dev eth0 nodad"));
        pod.sh(&format!("ip route add default via 10.1.{number}.1"));
        pod.sh(&format!("ip -6 route add default via fd00:1:{number}::1"));
        space.run(|inside, netlink| {
            for family in [linux::Family::V4, linux::Family::V6] {
                forward(inside, netlink, family).unwrap();
            }
        });
        let (fabric, monitor) = (Fabric::new(Options::default()), space.monitor());
        let mut node = Node { space, pod, seen: NodeSeen::default(), fabric, monitor, number };
        node.seen = seen(number, node.take_addresses(over, number));
        node
    }

    fn take_addresses(&self, families: &[Family], host: u8) -> Vec<IpAddr> {
        let net = |family: &Family| subnet(*family, host);
        for family in families {
            let nodad = if *family == Family::V6 { "nodad" } else { "" };
            self.space.sh(&format!("ip addr add {} dev eth0 {nodad}", net(family)));
        }
        families.iter().map(|family| net(family).split('/').next().unwrap().parse().unwrap()).collect()
    }
}

/// The name of the vxlan device.
pub(crate) fn vxlan(over: Family) -> String {
    device_name(&Device::Vxlan { over, vni: VXLAN.vni, port: VXLAN.port }).unwrap()
}
