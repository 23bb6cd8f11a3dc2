//! Attacks by those who may write definitions and annotations on the network that agents provide: its pods' addresses, its bridge, its nodes'
//! ports. Each of them was possible once, with the one or the other source of addresses.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use netloom_tests::{Node, Pod};
use serde_json::{Value, json};

use super::paths::{PORT, pod};
use super::pools::{dual, start};
use super::scene::{A, B, FAR, Scene};

const SETTINGS: &str = "between: direct\nserviceCIDRs: [10.96.0.0/12]";

fn network(plugins: &[Value]) -> String {
    json!({"cniVersion": "1.0.0", "name": "x", "plugins": plugins}).to_string()
}

/// An address that a definition names, with a gateway.
fn at(address: &str, gateway: &str) -> Value {
    json!({"type": "static", "addresses": [{"address": address, "gateway": gateway}]})
}

fn refused(pod: &Pod<'_>, says: &str) {
    let outcome = pod.add();
    assert!(outcome.error()["code"] == json!(7) && outcome.message().contains(says), "{}: {outcome:?}", pod.name);
    pod.must("DEL");
}

/// The hardware address by which the host knows who has an address on a link of its.
fn known(node: &Node, address: &str, link: &str) -> String {
    let line = node.host.sh("", &format!("ip neigh show {address} dev {link}"));
    line.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap_or_default().to_owned()
}

/// Everything that would take the traffic of a pod with this address on the first node, and of one on the second.
fn pods_keep_their_addresses(a: &Node, victim: &str, peer: &str) {
    let ptp = |address: &str, gateway: &str| vec![json!({"type": "ptp", "ipam": at(address, gateway)})];
    let bridge = |keys: Value, address: &str| {
        let mut plugin = json!({"type": "bridge", "bridge": "x3", "ipam": {"type": "static", "addresses": [{"address": address}]}});
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        plugin
    };
    let (own, others) = (format!("{victim}/32"), format!("{peer}/32"));
    let free = "10.9.8.7/24";
    let range = json!({"type": "host-local", "ranges": [[{"subnet": format!("{victim}/30"), "rangeStart": victim, "rangeEnd": victim}]]});
    let on_bridge = |kind: &str, keys: Value| {
        let mut plugin = json!({"type": kind, "master": "netloom0", "ipam": {"type": "static", "addresses": [{"address": free}]}});
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        vec![plugin]
    };
    let of_pods = "which may be those of other pods";
    let guarded = "netloom0 is the bridge of the node's default network, whose ports are guarded";
    for (name, plugins, says) in [
        ("route", ptp(&own, "172.30.0.1"), "which redirects traffic for"),
        ("route-to-peer", ptp(&others, "172.30.0.1"), "which redirects traffic"),
        ("gateway", ptp("172.30.9.9/32", victim), "which redirects traffic for"),
        ("gateway-of-bridge", vec![bridge(json!({"isGateway": true, "ipam": at(free, victim)}), free)], "which redirects traffic for"),
        ("plain", vec![bridge(json!({}), &own)], of_pods),
        ("plain-peer", vec![bridge(json!({}), &others)], of_pods),
        ("own-bridge", vec![bridge(json!({"bridge": "netloom0"}), &own)], of_pods),
        ("range", vec![bridge(json!({"ipam": range}), &own)], of_pods),
        ("network", vec![bridge(json!({"isGateway": true}), &own)], "which redirects traffic for"),
        ("uplink", vec![json!({"type": "macvlan", "master": "eth0", "ipam": at(&own, "192.0.2.1")})], of_pods),
        ("ipvlan", vec![json!({"type": "ipvlan", "master": "eth0", "ipam": at(&own, "192.0.2.1")})], of_pods),
        ("dummy", vec![json!({"type": "dummy", "ipam": at(&own, "192.0.2.1")})], of_pods),
        ("tap", vec![json!({"type": "tap", "ipam": at(&own, "192.0.2.1")})], of_pods),
        ("masquerade", vec![bridge(json!({"ipMasq": true}), &own)], of_pods),
        ("walls", vec![bridge(json!({}), &others), json!({"type": "firewall"})], of_pods),
        ("macvlan", on_bridge("macvlan", json!({})), guarded),
        ("macvlan-alone", on_bridge("macvlan", json!({"mode": "passthru"})), "takes netloom0, the bridge of the node's default network"),
        ("on-ipvlan", on_bridge("ipvlan", json!({})), guarded),
        ("vlan", on_bridge("vlan", json!({"vlanId": 7})), guarded),
        ("moved", vec![json!({"type": "host-device", "device": "netloom0"})], "takes netloom0, the bridge of the node's default network"),
        (
            "delegated",
            vec![json!({"type": "flannel", "delegate": {"type": "bridge", "bridge": "netloom0", "isGateway": false}})],
            "past the guard",
        ),
        ("readdressed", vec![bridge(json!({"bridge": "netloom0", "isGateway": true}), free)], "a gateway's address"),
        ("learning", vec![bridge(json!({"bridge": "netloom0", "promiscMode": true}), free)], "the promiscuous mode of netloom0"),
    ] {
        a.define(name, &network(&plugins));
        refused(&a.pod(name, name), says);
    }
    let asks = json!({"type": "bridge", "bridge": "x3", "capabilities": {"ips": true, "mac": true}, "ipam": {"type": "static"}});
    a.define("asks", &network(&[asks]));
    refused(&a.pod("asks", &json!([{"name": "asks", "ips": [own]}]).to_string()), of_pods);
    refused(&a.pod("asks-peer", &json!([{"name": "asks", "ips": [others]}]).to_string()), of_pods);
    let mac = known(a, victim, "netloom0");
    // As after five minutes in which the victim was silent.
    a.host.sh("", "ip link set netloom0 type bridge fdb_flush");
    refused(&a.pod("asks-mac", &json!([{"name": "asks", "ips": [free], "mac": mac}]).to_string()), "which another pod has on netloom0");
    let on_uplink = json!({"type": "macvlan", "master": "eth0", "capabilities": {"mac": true}, "ipam": at(free, "10.9.8.1")});
    a.define("asks-uplink", &network(&[on_uplink]));
    a.host.sh("", &format!("ping -c 1 -W 60 {}", B.addresses[0]));
    let mac = known(a, B.addresses[0], "eth0");
    refused(&a.pod("asks-nodes-mac", &json!([{"name": "asks-uplink", "mac": mac}]).to_string()), "which the node b has");
    // As its default network.
    let pod = a.pod_of(json!({"metadata": {"name": "instead", "namespace": a.namespace, "annotations": {"v1.multus-cni.io/default-network": format!("{}/plain", a.namespace)}}}));
    refused(&pod, of_pods);
}

/// A port that a pod gets on the pods' bridge beside its own, which sends as another pod.
fn second_port_is_guarded(a: &Node, victim: &str, gateway: &str) {
    let lenient = r#"{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge","bridge":"netloom0","strictSource":false,"STRICTSOURCE":false,
        "ipam":{"type":"static","addresses":[{"address":"10.9.8.7/24"}]}}]}"#;
    a.define("second", lenient);
    let second = a.pod("second", "second");
    second.must("ADD");
    second.must("CHECK");
    let before = known(a, victim, "netloom0");
    assert!(!before.is_empty());
    for line in [format!("ip addr add {victim}/32 dev net1"), format!("ip route replace {gateway} dev net1 src {victim}")] {
        a.host.sh(&second.sandbox(), &line);
    }
    // It asks who has the gateway, as the victim: who hears that learns where the victim is.
    assert!(!a.host.run_ok(&second.sandbox(), &["ping", "-c", "1", "-W", "1", "-I", victim, gateway]));
    assert_eq!(known(a, victim, "netloom0"), before, "the host took it for the victim");
    a.host.sh(&second.sandbox(), &format!("ip addr del {victim}/32 dev net1"));
    second.must("DEL");
}

/// A plugin that is not Netloom's: it makes the pod a port of the bridge that its configuration names in a key which nobody else knows.
const FOREIGN: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD)
    to=$(sed -n 's/.*"attachTo":"\([^"]*\)".*/\1/p')
    ip link add foreign0 type veth peer name "$CNI_IFNAME" netns "$(basename "$CNI_NETNS")" >&2 || exit 1
    ip link set foreign0 master "$to" up >&2 || exit 1
    echo '{"cniVersion":"1.0.0","interfaces":[{"name":"foreign0"}]}' ;;
DEL) ip link del foreign0 2>/dev/null || true ;;
esac
"#;

/// A port that another plugin makes, of whose keys nobody knows which bridge they mean.
fn foreign_port_is_refused(a: &Node) {
    a.host.write("/run/bin/foreign", FOREIGN);
    a.host.run("", &["chmod", "+x", "/run/bin/foreign"]);
    a.host.sh("", "ip link add free0 type bridge");
    let path = format!("{}:/run/bin", a.bin.display());
    let call = |pod: &Pod<'_>, verb: &str| {
        pod.cni().set("CNI_PATH", &path).call(verb, "netloom", r#"{"cniVersion":"1.0.0","name":"cluster","type":"netloom"}"#)
    };
    for (bridge, refusal) in [("netloom0", Some("net1, by foreign0 of the node: ")), ("free0", None)] {
        a.define("foreign", &network(&[json!({"type": "foreign", "attachTo": bridge})]));
        let pod = a.pod(&format!("foreign-{bridge}"), "foreign");
        // The agent follows definitions: it may not have seen this one yet.
        a.until("the port is judged by its bridge", || {
            let added = call(&pod, "ADD");
            let is_so = refusal
                .map_or(added.code == 0, |says| added.code != 0 && added.error()["code"] == json!(7) && added.message().contains(says));
            assert_eq!(a.host.link("", "foreign0").is_some(), added.code == 0, "what was refused is undone: {added:?}");
            if !is_so {
                assert_eq!(call(&pod, "DEL").code, 0);
            }
            is_so
        });
        assert_eq!(call(&pod, "DEL").code, 0);
    }
    a.host.sh("", "ip link del free0");
}

/// What an agent would refuse for the sake of another node's pods, or of the node itself, is told before one serves.
fn preflight_tells(a: &Node, peer: &str) {
    a.define("before-peer", &network(&[json!({"type": "ptp", "ipam": at(&format!("{peer}/32"), "172.30.0.1")})]));
    a.define(
        "before-node",
        &network(&[json!({"type": "macvlan", "master": "eth0", "ipam": at(&format!("{}/24", B.addresses[0]), "172.30.0.1")})]),
    );
    let all = a.told(&["agent", "preflight", "--config", netloom_tests::SETTINGS]);
    let told = |definition: &str| {
        let of = |finding: &&Value| finding["message"].as_str().unwrap().contains(definition);
        all.as_array().unwrap().iter().filter(of).map(|finding| finding["message"].to_string()).collect::<String>()
    };
    assert!(told("before-peer").contains("addresses of the cluster's pods"), "{all}");
    assert!(told("before-node").contains("the address of the node b"), "{all}");
}

fn hold(scene: &Scene, gateway: &str) {
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let ((_victim, of_victim), (_peer, of_peer)) = (pod(a, "victim"), pod(b, "peer"));
    let meets = || a.host.told_over_tcp("", &of_victim[0], PORT);
    assert!(meets().starts_with("victim "));
    pods_keep_their_addresses(a, &of_victim[0], &of_peer[0]);
    second_port_is_guarded(a, &of_victim[0], gateway);
    foreign_port_is_refused(a);
    preflight_tells(a, &of_peer[0]);
    assert!(meets().starts_with("victim "), "{}", a.tail());
}

#[test]
fn on_blocks_of_pools() {
    let (scene, _operator) = start(SETTINGS, &dual(), &[A, B]);
    hold(&scene, "10.1.0.1");
    // No node has it yet: the host's route would take it from the pod that gets it.
    let a = &scene.nodes[0];
    a.define("ahead", &network(&[json!({"type": "ptp", "ipam": at("10.1.200.5/32", "172.30.0.1")})]));
    refused(&a.pod("ahead", "ahead"), "which redirects traffic for 10.1.0.0/16, addresses of the cluster's pods");
    // What a pool gives is nobody else's: also over a pair, with a route of the host.
    a.define("leased", &network(&[json!({"type": "ptp", "ipam": {"type": "pool", "pool": "default", "hostPrefix": true}})]));
    let leased = a.pod("leased", "leased");
    leased.must("ADD");
    leased.must("DEL");
}

#[test]
fn on_ranges_of_nodes() {
    hold(&Scene::start(SETTINGS, &[A, B]), "10.1.1.1");
}

/// What a tunnel encloses goes to a node's own address, which the host reaches over its default route only.
#[test]
fn addresses_of_other_nodes() {
    let scene = Scene::start("between: vxlan\nserviceCIDRs: [10.96.0.0/12]", &[A, FAR]);
    let a = &scene.nodes[0];
    let far = format!("{}/32", FAR.addresses[0]);
    a.define("route", &network(&[json!({"type": "ptp", "ipam": at(&far, "172.30.0.1")})]));
    a.define("uplink", &network(&[json!({"type": "macvlan", "master": "eth0", "ipam": at(&far, "192.0.2.1")})]));
    a.define("gateway", &network(&[json!({"type": "ptp", "ipam": at("172.30.9.9/32", FAR.addresses[0])})]));
    a.define("free", &network(&[json!({"type": "ptp", "ipam": at("172.30.9.9/32", "172.30.0.1")})]));
    refused(&a.pod("route", "route"), "which is the address of the node far");
    refused(&a.pod("uplink", "uplink"), "which is the address of the node far");
    refused(&a.pod("gateway", "gateway"), "which redirects traffic for the node far (198.51.100.13)");
    let free = a.pod("free", "free");
    free.must("ADD");
    free.must("DEL");
}

/// A packet of the tunnel's, as a node sends it, with a datagram from one pod to another one inside.
fn enclosed(to: [u8; 6], source: Ipv4Addr, destination: Ipv4Addr, text: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x08, 0, 0, 0, 0x00, 0x10, 0x00, 0];
    packet.extend(to);
    packet.extend([0x02, 0, 0, 0, 0, 0x99, 0x08, 0x00]);
    let udp = 8 + u16::try_from(text.len()).unwrap();
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ip.extend(source.octets());
    ip.extend(destination.octets());
    let mut sum: u32 = ip.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    ip[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    packet.extend(ip);
    // Without a checksum, as IPv4 allows it.
    packet.extend([7001_u16, 7001, udp, 0].map(u16::to_be_bytes).as_flattened());
    packet.extend(text);
    packet
}

/// A pod on a bridge of its own, and a socket there that sends with this address of another node, as raw packets may have it; the host's
/// `rp_filter` is off.
fn forger<'n>(node: &'n Node, other: &str) -> (Pod<'n>, UdpSocket) {
    node.host.sh("", "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0");
    node.define("raw", &network(&[json!({"type": "bridge", "bridge": "raw0", "isGateway": true, "ipam": at("10.9.9.9/24", "10.9.9.1")})]));
    let pod = node.pod("raw", "raw");
    pod.must("ADD");
    node.host.sh(&pod.sandbox(), &format!("ip addr add {other}/32 dev net1"));
    node.host.sh(&pod.sandbox(), &format!("ip route replace {} via 10.9.9.1 dev net1", A.addresses[0]));
    let socket = node.host.within(&pod.sandbox(), || UdpSocket::bind((other, 0)).unwrap());
    (pod, socket)
}

/// Who reaches the tunnel's port sends as any pod of any node: from a machine beside the nodes, from a pod to its own node, and from a pod to another
/// node, which sees the first node's address.
#[test]
fn vxlan_packets_that_come_from_no_node() {
    let scene = Scene::start("between: vxlan", &[A, FAR]);
    let [a, far] = [&scene.nodes[0], &scene.nodes[1]];
    let ((victim, of_victim), (evil, _)) = (pod(a, "victim"), pod(far, "evil"));
    let (here, _) = pod(a, "here");
    let device = a.host.json("", "ip -j link show type vxlan")[0]["address"].as_str().unwrap().to_owned();
    let mac: Vec<u8> = device.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let victim_at: Ipv4Addr = of_victim[0].parse().unwrap();
    let receiver = a.host.within(&victim.sandbox(), || {
        let socket = UdpSocket::bind((victim_at, 7001)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    });
    // As a pod that the other node may have.
    let forged = enclosed(mac.try_into().unwrap(), "10.1.3.77".parse().unwrap(), victim_at, b"forged");
    let arrives = |from: &UdpSocket| {
        let mut bytes = [0; 16];
        (0..3).any(|_| {
            from.send_to(&forged, (A.addresses[0], 4789)).unwrap();
            receiver.recv_from(&mut bytes).is_ok_and(|(_, source)| source.ip().to_string() == "10.1.3.77")
        })
    };
    let any = || UdpSocket::bind("0.0.0.0:0").unwrap();
    let (outside, of_node) = (scene.router.within("", any), far.host.within("", any));
    let (of_pod, of_far_pod) = (a.host.within(&here.sandbox(), any), far.host.within(&evil.sandbox(), any));
    let (_raw, forger) = forger(a, FAR.addresses[0]);
    // What the far node sends is what it may send: the packet is right.
    assert!(arrives(&of_node), "{}", a.host.sh("", "nft list ruleset"));
    let attackers = [
        ("a machine that is no node", &outside),
        ("a pod of the same node", &of_pod),
        ("a pod of another node", &of_far_pod),
        ("a pod with another node's address", &forger),
    ];
    let dropped = |node: &Node| {
        // A pod that sends with an address that is not behind its link is stopped before.
        let chains = ["vxlan-senders", "vxlan-strays", "reverse-path"];
        let chains = chains.map(|chain| node.host.run("", &["sh", "-c", &format!("nft list chain inet netloom {chain} || true")]));
        let words: Vec<&str> = chains.iter().flat_map(|chain| chain.split_whitespace()).collect();
        words.windows(2).filter(|pair| pair[0] == "packets").map(|pair| pair[1].parse::<u64>().unwrap()).sum::<u64>()
    };
    for ((who, socket), at) in attackers.iter().zip([a, a, far, a]) {
        let before = dropped(at);
        assert!(!arrives(socket), "{who}: {}", a.host.sh("", "nft list ruleset"));
        assert!(dropped(at) > before, "{who} is counted");
    }
    // Without the guard each of them arrives, so each was stopped by it. Agents that end leave it, and put it back when they start.
    for node in [a, far] {
        node.terminate();
        node.ended();
        for chain in ["vxlan-arrivals", "vxlan-forward", "reverse-input"] {
            node.host.run("", &["sh", "-c", &format!("nft flush chain inet netloom {chain} || true")]);
        }
    }
    for (who, socket) in attackers {
        assert!(arrives(socket), "{who} does not even arrive without the guard");
    }
    [a, far].iter().for_each(|node| node.launch());
    let is_whole = |node: &Node| node.host.sh("", "nft list table inet netloom").matches("jump vxlan-").count() == 10;
    a.until("the guard is back", || is_whole(a) && is_whole(far));
    assert!(attackers.iter().all(|(_, socket)| !arrives(socket)));
}

/// Without any other attack before it.
#[test]
fn a_second_port_is_guarded() {
    let scene = Scene::start(SETTINGS, &[A]);
    let (_victim, addresses) = pod(&scene.nodes[0], "victim");
    scene.nodes[0].host.told_over_tcp("", &addresses[0], PORT);
    second_port_is_guarded(&scene.nodes[0], &addresses[0], "10.1.1.1");
}

/// A Service that is reached at a node's own address has its ports there, and no others. The pods of K3s' load balancer have these ports.
#[test]
fn ports_of_a_service_at_the_nodes_address() {
    let scene = Scene::new(SETTINGS, &[A]);
    scene.register(&A, json!(A.ranges));
    scene.api.namespace("default");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "externalIPs": [A.addresses[0]], "ports": [{"port": 8443, "protocol": "TCP"}]}});
    scene.api.must("POST", "/api/v1/namespaces/default/services", &service);
    let a = &scene.nodes[0];
    a.launch();
    a.until("the agent is ready", || a.status()["ready"] == json!(true));
    let bridge = json!({"type": "bridge", "bridge": "x2", "ipam": {"type": "host-local", "subnet": "10.9.9.0/24"}});
    a.define("ports", &network(&[bridge, json!({"type": "portmap", "capabilities": {"portMappings": true}})]));
    let select = |ip: &str, port: u16, protocol: &str| {
        let mut mapping = json!({"hostPort": port, "containerPort": 80, "protocol": protocol});
        if !ip.is_empty() {
            mapping["hostIP"] = json!(ip);
        }
        json!([{"name": "ports", "portMappings": [mapping]}]).to_string()
    };
    let says = "192.0.2.11, where a Service has this port: choose another one";
    refused(&a.pod("anywhere", &select("", 8443, "tcp")), says);
    refused(&a.pod("named", &select(A.addresses[0], 8443, "tcp")), says);
    for (name, ip, port, protocol) in
        [("free", A.addresses[0], 8444, "tcp"), ("other", "", 8443, "udp"), ("local", "127.0.0.1", 8443, "tcp")]
    {
        let pod = a.pod(name, &select(ip, port, protocol));
        pod.must("ADD");
        pod.must("DEL");
    }
    let balancer = a.pod("balancer", "");
    let ports = json!({"portMappings": [{"hostPort": 8443, "containerPort": PORT, "protocol": "tcp"}]});
    let added = balancer.call_with("ADD", &json!({"capabilities": {"portMappings": true}, "runtimeConfig": ports}));
    assert_eq!(added.code, 0, "{added:?}");
    a.host.answer_at(&balancer.sandbox(), "balancer", "::", PORT);
    assert!(scene.router.told_over_tcp("", A.addresses[0], 8443).starts_with("balancer "));
    balancer.must("DEL");
}
