//! From flannel and from what kubenet left to this network and back, node by node, while the pods of all other nodes go on.
//!
//! ```text
//!   a, b, c: another network's pods, its routes           each pod reaches each other one, at every step
//!   a: the agent comes (and waits), pods go, bridge goes, the agent's pods come;   b;   c
//!   a: the other network's routes go;   b;   c;   its devices go
//!   and back
//! ```
//!
//! Neither runs here. What they leave on a node is made with `ip` and `iptables`, as they make it: devices, entries, routes, rules; and the
//! files of the reference plugin `host-local`.

use netloom_tests::{Host, Node, Pod};
use serde_json::json;

use super::paths::{self, PORT};
use super::scene::{A, B, C, Place, Scene};

const PLACES: [Place; 3] = [A, B, C];

/// The network that a cluster comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Former {
    FlannelVxlan,
    FlannelHostGw,
    /// With routes of the cluster's route controller.
    Kubenet,
}

/// A pod, as others see it: its namespace, its name, its address.
struct Living<'n> {
    node: &'n Node,
    sandbox: String,
    name: String,
    address: String,
    /// Of this network.
    ours: Option<Pod<'n>>,
}

// === impl Place ===

impl Place {
    fn range(&self) -> &'static str {
        self.ranges[0]
    }

    /// An address of the range.
    fn nth(&self, n: u8) -> String {
        self.range().replace(".0/24", &format!(".{n}"))
    }

    /// What flannel calls the VTEP's hardware address.
    fn vtep(&self) -> String {
        format!("4a:00:00:00:00:{}", self.addresses[0].rsplit('.').next().unwrap())
    }
}

// === impl Former ===

impl Former {
    fn bridge(self) -> &'static str {
        if self == Former::Kubenet { "cbr0" } else { "cni0" }
    }

    /// Where `host-local` keeps its addresses: flannel's network is called cbr0.
    fn directory(self) -> &'static str {
        if self == Former::Kubenet { "/var/lib/cni/networks/kubenet" } else { "/var/lib/cni/networks/cbr0" }
    }

    /// What is on a node before there is a pod: the bridge is made with the first one.
    fn starts(self, host: &Host, own: &Place) {
        host.sh("", "sysctl -qw net.ipv4.ip_forward=1");
        let rules: &[&str] = match self {
            Former::Kubenet => &[
                "-N KUBE-MARK-MASQ",
                "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
                "-N KUBE-POSTROUTING",
                "-A KUBE-POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE",
                "-A POSTROUTING -j KUBE-POSTROUTING",
                "-A POSTROUTING -m addrtype ! --dst-type LOCAL ! -d 10.0.0.0/8 -j MASQUERADE",
            ],
            _ => &[
                "-N FLANNEL-POSTRTG",
                "-A FLANNEL-POSTRTG -s 10.1.0.0/16 -d 10.1.0.0/16 -j RETURN",
                "-A FLANNEL-POSTRTG -s 10.1.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE",
                "-A POSTROUTING -j FLANNEL-POSTRTG",
            ],
        };
        rules.iter().for_each(|rule| drop(host.sh("", &format!("iptables -t nat {rule}"))));
        if self == Former::FlannelVxlan {
            self.makes_device(host, own);
        }
        self.routes(host, own);
    }

    fn makes_device(self, host: &Host, own: &Place) {
        let [address, _] = own.addresses;
        let link = format!("ip link add flannel.1 address {} type vxlan id 1 local {address} dev eth0 dstport 8472 nolearning", own.vtep());
        host.sh("", &link);
        each(host, "", &format!("ip addr add {}/32 dev flannel.1 && ip link set flannel.1 up mtu 1450", own.nth(0)));
    }

    /// Its routes to other nodes, in place of whichever lead there.
    fn routes(self, host: &Host, own: &Place) {
        for peer in PLACES.iter().filter(|peer| peer.name != own.name) {
            let ([address, _], range) = (peer.addresses, peer.range());
            if self == Former::FlannelVxlan {
                let (mac, next) = (peer.vtep(), peer.nth(0));
                host.sh("", &format!("ip neigh replace {next} lladdr {mac} dev flannel.1 nud permanent"));
                host.sh("", &format!("bridge fdb replace {mac} dev flannel.1 dst {address} self permanent"));
                host.sh("", &format!("ip route replace {range} via {next} dev flannel.1 onlink"));
            } else {
                host.sh("", &format!("ip route replace {range} via {address} dev eth0"));
            }
        }
    }

    /// Attaches a pod, as the reference plugins do.
    fn attach<'n>(self, node: &'n Node, own: &Place, n: u8) -> Living<'n> {
        let (host, bridge, name) = (&node.host, self.bridge(), format!("old-{}-{n}", own.name));
        if host.link("", bridge).is_none() {
            each(
                host,
                "",
                &format!("ip link add {bridge} type bridge && ip link set {bridge} up && ip addr add {}/24 dev {bridge}", own.nth(1)),
            );
        }
        let (address, port) = (own.nth(n), format!("veth{n}"));
        host.container(&name);
        each(host, "", &format!("ip link add {port} type veth peer name eth0 netns {name} && ip link set {port} up master {bridge}"));
        each(host, &name, &format!("ip link set lo up && ip link set eth0 up && ip addr add {address}/24 dev eth0"));
        host.sh(&name, &format!("ip route add default via {}", own.nth(1)));
        if self == Former::FlannelVxlan {
            [("", port.as_str()), (&name, "eth0")]
                .iter()
                .for_each(|(place, link)| drop(host.sh(place, &format!("ip link set {link} mtu 1450"))));
        }
        host.write(&format!("{}/{address}", self.directory()), &format!("{name}\r\neth0"));
        host.write(&format!("{}/last_reserved_ip.0", self.directory()), &address);
        host.answer_at(&name, &name, "::", PORT);
        Living { node, sandbox: name.clone(), name, address, ours: None }
    }

    /// Detaches all its pods of a node, as draining it does.
    fn drain<'n>(self, pods: &mut Vec<Living<'n>>, node: &Node) {
        for pod in pods.extract_if(.., |pod| pod.node.name == node.name && pod.ours.is_none()) {
            let n = pod.address.rsplit('.').next().unwrap();
            each(
                &node.host,
                "",
                &format!("ip link del veth{n} && ip netns del {} && rm {}/{}", pod.sandbox, self.directory(), pod.address),
            );
        }
    }
}

/// Runs commands that `&&` joins.
fn each(host: &Host, place: &str, commands: &str) {
    commands.split(" && ").for_each(|command| drop(host.sh(place, command)));
}

/// Attaches a pod to this network.
fn attach<'n>(node: &'n Node) -> Living<'n> {
    let (pod, addresses) = paths::pod(node, &format!("new-{}", node.name));
    Living { node, sandbox: pod.sandbox(), name: pod.name.clone(), address: addresses[0].clone(), ours: Some(pod) }
}

/// Each pod reaches each other one, which sees its own address.
fn meet(pods: &[Living<'_>], when: &str) {
    for from in pods {
        for to in pods {
            let told = from.node.host.told_over_tcp(&from.sandbox, &to.address, PORT);
            assert_eq!(told, format!("{} {}", to.name, from.address), "{when}: {} to {}\n{}", from.name, to.address, from.node.tail());
        }
    }
}

fn moves(former: Former) {
    let scene = Scene::new("between: direct\naddWait: 1s\nreconcileEvery: 1s", &PLACES);
    PLACES.iter().for_each(|place| scene.register(place, json!([place.range()])));
    let nodes: Vec<(&Node, &Place)> = scene.nodes.iter().zip(&PLACES).collect();
    let mut pods = Vec::new();
    for (node, place) in &nodes {
        former.starts(&node.host, place);
        pods.extend([former.attach(node, place, 2), former.attach(node, place, 3)]);
    }
    meet(&pods, "before");
    let bridge = former.bridge();
    for (node, place) in &nodes {
        // A node that is not drained is told so: its pods go on, and none gets an address that one of them has.
        node.launch();
        let why = format!("link {bridge} has the address {}/24 of this node's pod range {}", place.nth(1), place.range());
        node.until("it says what it waits for", || node.status()["why"].as_str().is_some_and(|text| text.contains(&why)));
        node.until("the Node says so", || scene.condition(place) == Some(("True".to_owned(), "NetloomIsDown".to_owned())));
        let early = node.pod("early", "").call("ADD");
        assert!(early.error()["code"] == 11 && early.message().contains("drain the node"), "{early:?}");
        assert!(node.host.link("", "netloom0").is_none(), "the node would have two ways to the range");
        meet(&pods, &format!("the agent is on {}", place.name));

        former.drain(&mut pods, node);
        node.host.sh("", &format!("ip link del {bridge}"));
        node.until("the agent is ready", || node.status()["ready"] == json!(true));
        node.until("the Node says so", || scene.condition(place) == Some(("False".to_owned(), "NetloomIsUp".to_owned())));
        pods.push(attach(node));
        meet(&pods, &format!("{} is moved", place.name));
        // The largest packet that a pod sends, over a tunnel that is smaller: its node says so, and the pod sends fragments.
        let [new, other] = [pods.last().unwrap(), &pods[0]];
        let arrives = || node.host.run_ok(&new.sandbox, &["ping", "-c1", "-W5", "-s1472", &other.address]);
        node.until("a packet of 1500 bytes arrives", arrives);
    }
    // The other network's routes have carried everything. Now it is ended everywhere, and what it left is taken away.
    for (node, place) in &nodes {
        let device = if former == Former::FlannelVxlan { "flannel.1" } else { "eth0" };
        node.host.sh("", &format!("ip route flush root 10.1.0.0/16 dev {device} proto boot"));
        node.until("ours come in their place", || node.host.sh("", "ip route show proto 110").lines().count() == 2);
        meet(&pods, &format!("{} has its own routes", place.name));
    }
    if former == Former::FlannelVxlan {
        for (node, place) in &nodes {
            node.host.sh("", "ip link del flannel.1");
            meet(&pods, &format!("{} has no device of flannel's", place.name));
        }
    }
    for (node, _) in &nodes {
        each(&node.host, "", "iptables -t nat -F && iptables -t nat -X");
        node.until("nothing is wrong", || node.status()["network"]["problems"] == json!([]) && super::scene::reached(node) == Some(2));
    }
    meet(&pods, "nothing is left of it");

    back(&scene, former, pods);
}

/// And back: the other network is started on all nodes, then one node after the other is drained.
fn back<'n>(scene: &'n Scene, former: Former, mut pods: Vec<Living<'n>>) {
    let nodes: Vec<(&Node, &Place)> = scene.nodes.iter().zip(&PLACES).collect();
    nodes.iter().for_each(|(node, place)| former.starts(&node.host, place));
    meet(&pods, "it is started again");
    for (node, place) in &nodes {
        for pod in pods.extract_if(.., |pod| pod.node.name == node.name) {
            pod.ours.unwrap().must("DEL");
        }
        node.kill9();
        for line in ["ip link del netloom0", "ip route flush proto 110", "nft delete table inet netloom", "nft delete table bridge netloom"]
        {
            node.host.sh("", line);
        }
        pods.extend([former.attach(node, place, 2), former.attach(node, place, 3)]);
        meet(&pods, &format!("{} is back", place.name));
    }
}

#[test]
fn from_flannel_with_vxlan_and_back() {
    moves(Former::FlannelVxlan);
}

#[test]
fn from_flannel_with_host_gw_and_back() {
    moves(Former::FlannelHostGw);
}

#[test]
fn from_what_kubenet_left_and_back() {
    moves(Former::Kubenet);
}
