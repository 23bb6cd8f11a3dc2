//! Labs that the tests draw.

use crate::topology::{Interface, Link, LinkKind, Node, Pod, PodState, Topology, Wire, WireEnd, WireKind};

fn addresses(list: &[&str]) -> Vec<ipnet::IpNet> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn link(name: &str, kind: LinkKind, list: &[&str]) -> Link {
    Link { name: name.into(), kind, addresses: addresses(list), up: true, attached_to: None, wire: None }
}

fn interface(name: &str, network: &str, to: &str, list: &[&str]) -> Interface {
    let number = list.iter().flat_map(|text| text.bytes()).fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let veth = to.starts_with("br") || to.starts_with("netloom");
    Interface {
        name: name.into(),
        network: network.into(),
        default: name == "eth0",
        kind: if veth { "veth".into() } else { "macvlan".into() },
        addresses: addresses(list),
        mac: format!("02:00:{:02x}:{:02x}:{:02x}:{:02x}", number >> 24, number >> 16 & 255, number >> 8 & 255, number & 255).parse().ok(),
        mtu: Some(1500),
        up: true,
        attached_to: Some(to.into()),
        via: veth.then(|| format!("veth{number:08x}")),
    }
}

fn pod(name: &str, interfaces: Vec<Interface>) -> Pod {
    Pod { namespace: "default".into(), name: name.into(), state: PodState::Ready, interfaces }
}

/// One pod with nothing but the lab's own network.
pub(super) fn one() -> Topology {
    let web = pod("web", vec![interface("eth0", "netloom", "netloom0", &["10.244.0.2/24", "fd00:10:244::2/64"])]);
    let links = vec![link("netloom0", LinkKind::Bridge, &["10.244.0.1/24", "fd00:10:244::1/64"])];
    Topology { lab: "demo".into(), nodes: vec![Node { name: "host".into(), links, pods: vec![web] }], wires: vec![] }
}

/// What the examples make: pods on several networks, one of which failed.
pub(super) fn demo() -> Topology {
    let mut down = interface("net1", "default/storage", "br-storage", &["192.168.50.12/24"]);
    down.up = false;
    let failed = Pod {
        state: PodState::Failed {
            reason: "network default/limited: plugin host-local: no address left in 192.168.60.0/30: every one is held; \
                     free one with `netloom lab down`, or widen the range (CNI code 11)"
                .into(),
        },
        ..pod("late", vec![])
    };
    let client = vec![
        interface("eth0", "netloom", "netloom0", &["10.244.0.2/24", "fd00:10:244::2/64"]),
        interface("net1", "default/storage", "br-storage", &["192.168.50.11/24"]),
        interface("net2", "default/uplink", "eth1", &["10.9.0.21/16"]),
    ];
    let server = vec![interface("eth0", "netloom", "netloom0", &["10.244.0.3/24", "fd00:10:244::3/64"]), down];
    let twice = vec![
        interface("eth0", "netloom", "netloom0", &["10.244.0.4/24", "fd00:10:244::4/64"]),
        interface("net1", "default/uplink", "eth1", &["10.9.0.22/16"]),
        interface("back0", "default/uplink", "eth1", &["10.9.0.23/16"]),
    ];
    let links = vec![
        link("netloom0", LinkKind::Bridge, &["10.244.0.1/24", "fd00:10:244::1/64"]),
        link("br-storage", LinkKind::Bridge, &["192.168.50.1/24"]),
        link("eth1", LinkKind::Parent, &[]),
    ];
    let pods = vec![pod("client", client), pod("server", server), pod("twice", twice), failed];
    Topology { lab: "demo".into(), nodes: vec![Node { name: "host".into(), links, pods }], wires: vec![] }
}

/// Three nodes on two wires and a tunnel, a VLAN, a bridge's uplink, and a parent that is gone.
pub(super) fn cluster() -> Topology {
    let node = |number: usize| {
        let base = link("netloom0", LinkKind::Bridge, &[&format!("10.244.{number}.1/24"), &format!("fd00:10:244:{number}::1/64")]);
        let links = vec![
            base,
            Link {
                wire: Some("fabric".into()),
                addresses: addresses(&[&format!("172.18.0.{number}/24")]),
                ..link("eth0", LinkKind::Parent, &[])
            },
            Link { wire: Some("storage".into()), ..link("eth1", LinkKind::Parent, &[]) },
            Link {
                wire: Some("vxlan 4096".into()),
                ..link("nl4-1000-12b5", LinkKind::Virtual("vxlan".into()), &[&format!("10.244.{number}.0/32")])
            },
            Link { attached_to: Some("eth1".into()), ..link("eth1.100", LinkKind::Virtual("vlan".into()), &[]) },
        ];
        let lab = |host: usize| {
            interface(
                "eth0",
                "netloom",
                "netloom0",
                &[&format!("10.244.{number}.{host}/24"), &format!("fd00:10:244:{number}::{host:x}/64")],
            )
        };
        let vlan = |host: usize| interface("net1", "default/vlan100", "eth1.100", &[&format!("10.100.{number}.{host}/16")]);
        let store = |name: &str, host: usize| interface(name, "infra/storage-backend", "eth1", &[&format!("fd42::{number}:{host:x}/64")]);
        let mut pods = vec![pod("web-1", vec![lab(2), vlan(2)]), pod("web-2", vec![lab(3), vlan(3), store("net2", 3)])];
        pods.push(Pod { namespace: "infra".into(), ..pod("db-0", vec![lab(4), store("net1", 4)]) });
        Node { name: format!("node-{number}"), links, pods }
    };
    let mut topology = Topology { lab: "three nodes".into(), nodes: vec![node(1), node(2), node(3)], wires: vec![] };
    topology.nodes[1].pods.truncate(1);
    topology.nodes[2].pods[1].interfaces.push(interface("net3", "default/gone", "eth9", &["10.66.0.3/24"]));
    topology.nodes[2].pods.remove(0);
    let end = |number: usize| WireEnd { node: format!("node-{number}"), link: "eth0".into() };
    topology.wires.push(Wire { name: "fabric".into(), connects: vec![end(2), end(1)], ..Wire::default() });
    topology.wires.push(Wire { name: "vxlan 4096".into(), kind: WireKind::Tunnel, connects: vec![] });
    topology
}

/// Eight pods on the same four networks.
pub(super) fn eight() -> Topology {
    let networks = [
        ("netloom", "netloom0", "10.244.0"),
        ("default/red", "br-red", "10.1.0"),
        ("default/green", "br-green", "10.2.0"),
        ("default/blue", "eth1", "10.3.0"),
    ];
    let pods = (1..=8).map(|n| {
        let all = networks.iter().enumerate().map(|(i, (network, to, net))| {
            let name = if i == 0 { "eth0".to_owned() } else { format!("net{i}") };
            interface(&name, network, to, &[&format!("{net}.{}/24", n + 1)])
        });
        pod(&format!("worker-{n}"), all.collect())
    });
    let links = networks.iter().map(|(_, to, net)| match *to {
        "eth1" => link(to, LinkKind::Parent, &[]),
        _ => link(to, LinkKind::Bridge, &[&format!("{net}.1/24")]),
    });
    Topology { lab: "eight".into(), nodes: vec![Node { name: "host".into(), links: links.collect(), pods: pods.collect() }], wires: vec![] }
}

/// A hundred pods; every fifth has a second network.
pub(super) fn hundred() -> Topology {
    let pods = (0..100).map(|n| {
        let mut all =
            vec![interface("eth0", "netloom", "netloom0", &[&format!("10.244.0.{}/24", n + 2), &format!("fd00:10:244::{:x}/64", n + 2)])];
        if n % 5 == 0 {
            all.push(interface("net1", "default/storage", "eth1", &[&format!("10.9.0.{}/16", n + 2)]));
        }
        pod(&format!("web-7d9f6c-{n}"), all)
    });
    let links = vec![link("netloom0", LinkKind::Bridge, &["10.244.0.1/24", "fd00:10:244::1/64"]), link("eth1", LinkKind::Parent, &[])];
    Topology { lab: "hundred".into(), nodes: vec![Node { name: "host".into(), links, pods: pods.collect() }], wires: vec![] }
}

/// Names that try to be something else in each of the formats.
pub(super) fn hostile() -> Topology {
    let mut topology = cluster();
    let evil = "a\"];} <script>alert('x')</script> & {b|c} `d` \\ #quot; end\n\x1b[31m%% ]]> --> 漢字 style x:y";
    topology.lab = evil.into();
    topology.nodes.truncate(2);
    topology.wires.clear();
    let node = &mut topology.nodes[0];
    node.name = evil.into();
    node.links[0].name = evil.into();
    node.links[1].wire = Some(evil.into());
    node.links[2].kind = LinkKind::Virtual(evil.into());
    node.links[2].attached_to = Some("nowhere".into());
    let pod = &mut node.pods[0];
    (pod.namespace, pod.name) = (evil.into(), evil.into());
    pod.state = PodState::Failed { reason: evil.into() };
    let interface = &mut pod.interfaces[0];
    (interface.name, interface.network, interface.kind) = (evil.into(), evil.into(), evil.into());
    (interface.attached_to, interface.via) = (Some(evil.into()), Some(evil.into()));
    topology
}

/// All of them, with the names under which their drawings are kept.
pub(super) fn all() -> Vec<(&'static str, Topology)> {
    let (one, demo, cluster, eight) = (one(), demo(), cluster(), eight());
    let empty = Topology { lab: "empty".into(), ..Topology::default() };
    vec![
        ("empty", empty),
        ("one", one),
        ("demo", demo),
        ("cluster", cluster),
        ("eight", eight),
        ("hundred", hundred()),
        ("hostile", hostile()),
    ]
}
