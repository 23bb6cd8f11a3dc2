//! Machines of a cluster whose network the agents provide.
//!
//! ```text
//!   a: 192.0.2.11, 2001:db8:1::11 ---+
//!   b: 192.0.2.12, 2001:db8:1::12 ---+-- router: 192.0.2.1 | 198.51.100.1 ---- far: 198.51.100.13, 2001:db8:2::13
//!   c: 192.0.2.13, 2001:db8:1::13 ---+
//! ```
//!
//! `a`, `b` and `c` are on one link, a bridge of the router's. The router knows no pod, and drops what comes from one.

use std::sync::Arc;

use netloom_tests::{Api, Host, Node, SETTINGS};
use serde_json::{Value, json};

/// A machine's place: its name, its addresses, the router's ones on that link, its pods' ranges.
pub(super) struct Place {
    pub(super) name: &'static str,
    pub(super) addresses: [&'static str; 2],
    pub(super) routers: [&'static str; 2],
    pub(super) link: &'static str,
    pub(super) ranges: [&'static str; 2],
}

pub(super) const A: Place = Place {
    name: "a",
    addresses: ["192.0.2.11", "2001:db8:1::11"],
    routers: ["192.0.2.1", "2001:db8:1::1"],
    link: "near",
    ranges: ["10.1.1.0/24", "fd00:1:1::/64"],
};
pub(super) const B: Place = Place { name: "b", addresses: ["192.0.2.12", "2001:db8:1::12"], ranges: ["10.1.2.0/24", "fd00:1:2::/64"], ..A };
pub(super) const C: Place = Place { name: "c", addresses: ["192.0.2.13", "2001:db8:1::13"], ranges: ["10.1.4.0/24", "fd00:1:4::/64"], ..A };
pub(super) const FAR: Place = Place {
    name: "far",
    addresses: ["198.51.100.13", "2001:db8:2::13"],
    routers: ["198.51.100.1", "2001:db8:2::1"],
    link: "away",
    ranges: ["10.1.3.0/24", "fd00:1:3::/64"],
};

/// The machines, in the order of their places.
pub(super) struct Scene {
    pub(super) api: Arc<Api>,
    pub(super) router: Host,
    pub(super) nodes: Vec<Node>,
}

// === impl Scene ===

impl Scene {
    /// Machines with agents that are ready, of a cluster with these settings besides.
    pub(super) fn start(settings: &str, places: &[Place]) -> Scene {
        let scene = Scene::new(settings, places);
        places.iter().for_each(|place| scene.register(place, json!(place.ranges)));
        scene.nodes.iter().for_each(Node::launch);
        scene.nodes.iter().for_each(|node| node.until("the agent is ready", || node.status()["ready"] == json!(true)));
        scene.nodes.iter().for_each(|node| node.until("all peers are reached", || reached(node) == Some(places.len() as u64 - 1)));
        scene
    }

    /// The same without Nodes, and before any agent runs.
    pub(super) fn new(settings: &str, places: &[Place]) -> Scene {
        let (api, router) = (Api::own(), Host::new());
        for (link, [v4, v6]) in [(A.link, A.routers), (FAR.link, FAR.routers)] {
            router.sh("", &format!("ip link add {link} type bridge"));
            router.sh("", &format!("ip link set {link} up"));
            router.sh("", &format!("ip addr add {v4}/24 dev {link}"));
            router.sh("", &format!("ip -6 addr add {v6}/64 dev {link} nodad"));
        }
        for line in ["sysctl -qw net.ipv4.ip_forward=1", "sysctl -qw net.ipv6.conf.all.forwarding=1"] {
            router.sh("", line);
        }
        // Only what is routed: with br_netfilter, frames that a bridge passes on come here too.
        let mut filter = "add table inet strict; add chain inet strict forward { type filter hook forward priority 0; };".to_owned();
        for [from, to] in [[A.link, FAR.link], [FAR.link, A.link]] {
            for pods in ["ip saddr 10.1.0.0/16", "ip6 saddr fd00:1::/32"] {
                filter += &format!(" add rule inet strict forward iifname {from} oifname {to} {pods} drop;");
            }
        }
        router.run("", &["nft", &filter]);
        let nodes: Vec<Node> = places.iter().map(|place| machine(&api, &router, place, settings)).collect();
        Scene { api, router, nodes }
    }

    /// Makes a place's Node, or changes it, with these ranges.
    pub(super) fn register(&self, place: &Place, ranges: Value) {
        let addresses: Vec<Value> =
            place.addresses.iter().filter(|a| !a.is_empty()).map(|address| json!({"type": "InternalIP", "address": address})).collect();
        let first = ranges.as_array().and_then(|all| all.first()).cloned().unwrap_or_default();
        let spec = json!({"podCIDRs": ranges, "podCIDR": first});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": place.name}, "spec": spec});
        let (code, said) = self.api.ask("POST", "/api/v1/nodes", &node);
        if code == 409 {
            self.api.must("PATCH", &node_path(place), &json!({"spec": spec}));
        } else {
            assert_eq!(code, 201, "{said:#}");
        }
        let status = json!({"status": {"addresses": addresses}});
        self.api.must("PATCH", &format!("{}/status", node_path(place)), &status);
    }

    /// What a Node's condition says: its status and its reason.
    pub(super) fn condition(&self, place: &Place) -> Option<(String, String)> {
        let node = self.api.must("GET", &node_path(place), &Value::Null);
        let conditions = node["status"]["conditions"].as_array()?.clone();
        let found = conditions.into_iter().find(|condition| condition["type"] == "NetworkUnavailable")?;
        Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
    }
}

/// Where a place's Node is in the API.
pub(super) fn node_path(place: &Place) -> String {
    format!("/api/v1/nodes/{}", place.name)
}

/// How many peers an agent reaches.
pub(super) fn reached(node: &Node) -> Option<u64> {
    node.status()["network"]["peersReached"].as_u64()
}

fn machine(api: &Arc<Api>, router: &Host, place: &Place, settings: &str) -> Node {
    let node = Node::new(api, place.name, "");
    let text = format!(
        "nodeName: {}\nkubeconfig: /run/kubeconfig\nbinDir: {}\ninstall: never\nprovide: netloom\n{settings}\n",
        place.name,
        node.bin.display()
    );
    node.host.write(SETTINGS, &text);
    let port = format!("to-{}", place.name);
    router.sh("", &format!("ip link add {port} type veth peer name eth0 netns {}", node.host.pid()));
    router.sh("", &format!("ip link set {port} up master {}", place.link));
    node.host.sh("", "ip link set eth0 up");
    let ([v4, v6], [router4, router6]) = (place.addresses, place.routers);
    if !v4.is_empty() {
        node.host.sh("", &format!("ip addr add {v4}/24 dev eth0"));
        node.host.sh("", &format!("ip route add default via {router4}"));
    }
    if !v6.is_empty() {
        node.host.sh("", &format!("ip -6 addr add {v6}/64 dev eth0 nodad"));
        node.host.sh("", &format!("ip -6 route add default via {router6}"));
    }
    node
}
