//! The path of packets between pods of two nodes, beside one that is made by hand: the same devices with the same offloads, MTUs and queueing
//! disciplines, the same hops, and rules that a packet passes by which a short list names.
//!
//! ```text
//!   a, b: agents, pods          pod - veth - bridge - (vxlan) - eth0 === eth0 - (vxlan) - bridge - veth - pod
//!   x, y: `ip` and `bridge`     the same
//! ```

use std::collections::{BTreeMap, BTreeSet};

use netloom_tests::{Host, Node};
use serde_json::{Value, json};

use super::paths::pod;
use super::scene::{A, B, Place, Scene};

/// The chains that each packet of a connection passes on a node, and how many rules they have, however many pods there are: the guards
/// at the port of the pod that sends. The first of them lets an ordinary packet of IPv4 pass, the second one of IPv6. None is on the way between nodes.
const RULES: [(&str, usize); 1] = [("bridge prerouting", 18)];
/// Over vxlan each packet is asked as well whether it is one of a tunnel: the one inside where it passes on, and the one around it where it leaves
/// and arrives; and each that leaves, whether it comes from the tunnel's port behind masquerade.
const TUNNEL_RULES: [(&str, usize); 4] = [("inet forward", 1), ("inet input", 1), ("inet output", 1), ("inet postrouting", 1)];
const X: Place = Place { name: "x", addresses: ["192.0.2.21", "2001:db8:1::21"], ranges: ["10.1.21.0/24", "fd00:1:21::/64"], ..A };
const Y: Place = Place { name: "y", addresses: ["192.0.2.22", "2001:db8:1::22"], ranges: ["10.1.22.0/24", "fd00:1:22::/64"], ..A };

/// What is compared of a device, by what it is on the path.
type Devices = BTreeMap<&'static str, Value>;

/// Addresses of the pods on a machine: the first that its ranges give.
fn address(place: &Place, family: usize) -> String {
    if family == 0 { place.ranges[0].replace(".0/24", ".2") } else { place.ranges[1].replace("::/64", "::2") }
}

/// A machine's network without an agent: a bridge, a pod, and the way to the other machine's pods.
fn by_hand(host: &Host, own: &Place, peer: &Place, over_vxlan: bool, mtu: u64) {
    let line = |line: String| drop(host.sh("", &line));
    let gateway = |range: &str| if range.contains(':') { range.replace("::/64", "::1") } else { range.replace(".0/24", ".1") };
    line("sysctl -qw net.ipv4.ip_forward=1".to_owned());
    line("sysctl -qw net.ipv6.conf.all.forwarding=1".to_owned());
    line("ip link add hand0 type bridge".to_owned());
    line("ip link set hand0 up".to_owned());
    host.container("pod");
    line(format!(
        "ip link add hand1 mtu {mtu} numtxqueues 1 numrxqueues 1 type veth peer name eth0 mtu {mtu} numtxqueues 1 numrxqueues 1 netns pod"
    ));
    line("ip link set hand1 up master hand0".to_owned());
    host.sh("pod", "ip link set lo up");
    host.sh("pod", "ip link set eth0 up");
    for (family, length) in [(0, 24), (1, 64)] {
        let [here, pod] = [gateway(own.ranges[family]), address(own, family)];
        line(format!("ip addr add {here}/{length} dev hand0{}", if family == 1 { " nodad" } else { "" }));
        host.sh("pod", &format!("ip addr add {pod}/{length} dev eth0{}", if family == 1 { " nodad" } else { "" }));
        host.sh("pod", &format!("ip -{} route add default via {here}", if family == 0 { 4 } else { 6 }));
        if !over_vxlan {
            line(format!("ip route add {} via {} dev eth0", peer.ranges[family], peer.addresses[family]));
        }
    }
    if over_vxlan {
        let mac = |place: &Place| format!("02:00:00:00:00:{}", place.addresses[0].rsplit('.').next().unwrap());
        line(format!(
            "ip link add hand2 address {} mtu {mtu} type vxlan id 4096 dstport 4789 local {} nolearning",
            mac(own),
            own.addresses[0]
        ));
        line("ip link set hand2 up".to_owned());
        line(format!("bridge fdb add {} dev hand2 dst {} self permanent", mac(peer), peer.addresses[0]));
        for range in peer.ranges {
            let via = if range.contains(':') { "fe80::99".to_owned() } else { range.replace(".0/24", ".0") };
            line(format!("ip neigh add {via} lladdr {} dev hand2 nud permanent", mac(peer)));
            line(format!("ip route add {range} via {via} dev hand2 onlink"));
        }
    }
}

/// A link as the comparison sees it: what makes packets slow or drops them, and nothing that has to differ.
fn device(host: &Host, place: &str, name: &str) -> Value {
    let link = host.link(place, name).unwrap_or_else(|| panic!("no {name}")).0;
    let features = &host.json(place, &format!("ethtool --json -k {name}"))[0];
    let on: BTreeSet<&String> =
        features.as_object().unwrap().iter().filter(|(_, feature)| feature["active"] == true).map(|(name, _)| name).collect();
    let limits: BTreeMap<&str, &Value> = ["mtu", "qdisc", "txqlen", "num_tx_queues", "gso_max_size", "gro_max_size", "tso_max_segs", "xdp"]
        .into_iter()
        .map(|key| (key, &link[key]))
        .collect();
    let discs: Vec<Value> =
        host.json(place, &format!("tc -j qdisc show dev {name}")).as_array().unwrap().iter().map(|disc| disc["kind"].clone()).collect();
    let data = &link["linkinfo"]["info_data"];
    // A tunnel's own, which cost each packet.
    let tunnel: BTreeMap<&str, &Value> =
        ["udp_csum", "udp_zero_csum6_tx", "udp_zero_csum6_rx", "learning", "ttl", "proxy", "collect_metadata", "gbp", "df"]
            .into_iter()
            .map(|key| (key, &data[key]))
            .collect();
    json!({"kind": link["linkinfo"]["info_kind"], "limits": limits, "features": on, "qdiscs": discs, "tunnel": tunnel, "master": !link["master"].is_null()})
}

/// The devices of a machine on the path to another one, by their part: those that the kernel itself names as the way.
fn devices(host: &Host, pod: &str, port: &str, bridge: &str, to: &str) -> Devices {
    let way = |place: &str| {
        let route = host.json(place, &format!("ip -j route get {to}"));
        route[0]["dev"].as_str().unwrap().to_owned()
    };
    let (out, uplink) = (way(""), "eth0");
    assert_eq!((way(pod).as_str(), host.link("", port).unwrap().0["master"].as_str()), ("eth0", Some(bridge)));
    let mut all = Devices::from([
        ("pod", device(host, pod, "eth0")),
        ("port", device(host, "", port)),
        ("bridge", device(host, "", bridge)),
        ("uplink", device(host, "", uplink)),
    ]);
    if out != uplink {
        all.insert("tunnel", device(host, "", &out));
    }
    all
}

/// The port of a pod's link on its machine.
fn port_of(node: &Node, pod: &str) -> String {
    let peer = node.host.json(pod, "ip -j link show eth0")[0]["link_index"].as_u64().unwrap();
    let links = node.host.json("", "ip -j link");
    links.as_array().unwrap().iter().find(|link| link["ifindex"] == json!(peer)).unwrap()["ifname"].as_str().unwrap().to_owned()
}

/// The routers between two pods, as the packet's remaining hops tell: each takes one away.
fn hops(host: &Host, from: &str, to: &str) -> u64 {
    let said = host.run(from, &["ping", "-c1", "-w20", "-n", to]);
    let ttl: u64 = said.split("ttl=").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|ttl| ttl.parse().ok()).expect(&said);
    64 - ttl
}

/// What differs, in words.
fn differences(ours: &Devices, theirs: &Devices) -> Vec<String> {
    let parts: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
    let differs = |part: &&str| ours.get(part) != theirs.get(part);
    parts.into_iter().filter(differs).map(|part| format!("{part}: {:?}, by hand {:?}", ours.get(part), theirs.get(part))).collect()
}

/// The rules that each packet of a connection is compared with, by the chain they are in. Chains of the type `nat` see the first one alone.
fn rules(host: &Host) -> BTreeMap<String, usize> {
    let shown = host.json("", "nft -j list ruleset");
    let objects: Vec<&Value> = shown["nftables"].as_array().unwrap().iter().collect();
    let base = objects.iter().map(|object| &object["chain"]).filter(|chain| chain["hook"].is_string() && chain["type"] != "nat");
    let of = |chain: &Value, rule: &Value| ["family", "table"].iter().all(|key| chain[key] == rule[key]) && chain["name"] == rule["chain"];
    let count = |chain: &Value| objects.iter().map(|object| &object["rule"]).filter(|rule| of(chain, rule)).count();
    base.map(|chain| (format!("{} {}", chain["family"].as_str().unwrap(), chain["hook"].as_str().unwrap()), count(chain))).collect()
}

fn compared(mode: &str) {
    let scene = Scene::start(&format!("between: {mode}"), &[A, B]);
    let hand = Scene::new("between: direct", &[X, Y]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let [x, y] = [&hand.nodes[0].host, &hand.nodes[1].host];
    let mtu = a.status()["network"]["mtu"].as_u64().unwrap();
    by_hand(x, &X, &Y, mode == "vxlan", mtu);
    by_hand(y, &Y, &X, mode == "vxlan", mtu);
    let ((from, own), (to, addresses)) = (pod(a, "from"), pod(b, "to"));
    let port = port_of(a, &from.sandbox());
    let both = |family: usize| {
        let ours = devices(&a.host, &from.sandbox(), &port, "netloom0", &addresses[family]);
        (ours, devices(x, "pod", "hand1", "hand0", &address(&Y, family)))
    };
    for family in [0, 1] {
        let by_hand = address(&Y, family);
        assert!(a.host.pings(&from.sandbox(), &addresses[family]) && x.pings("pod", &by_hand), "{mode}, to {}", addresses[family]);
        let (ours, theirs) = both(family);
        assert_eq!(differences(&ours, &theirs), [""; 0], "{mode}, to {}", addresses[family]);
        assert_eq!(ours.contains_key("tunnel"), mode == "vxlan");
        let of_ours = [hops(&a.host, &from.sandbox(), &addresses[family]), hops(&b.host, &to.sandbox(), &own[family])];
        assert_eq!(of_ours, [hops(x, "pod", &by_hand), hops(y, "pod", &address(&X, family))], "{mode}");
    }
    let of_tunnel = TUNNEL_RULES.iter().filter(|_| mode == "vxlan");
    let few: BTreeMap<String, usize> = RULES.iter().chain(of_tunnel).map(|(chain, count)| ((*chain).to_owned(), *count)).collect();
    assert_eq!((rules(&a.host), rules(x)), (few.clone(), BTreeMap::new()), "{}", a.host.sh("", "nft list ruleset"));
    let _more = pod(a, "more");
    assert_eq!(rules(&a.host), few, "with more pods");
    // What the comparison is for: this alone costs vxlan three quarters of its throughput.
    let spoilt = if mode == "vxlan" { "nl4-1000-12b5" } else { port.as_str() };
    a.host.run("", &["ethtool", "-K", spoilt, "tx", "off"]);
    let (ours, theirs) = both(0);
    let told = differences(&ours, &theirs);
    assert!(told.len() == 1 && told[0].contains("tx-checksum"), "{told:?}");
}

#[test]
fn a_direct_path_is_what_one_made_by_hand_is() {
    compared("direct");
}

#[test]
fn a_path_over_vxlan_is_what_one_made_by_hand_is() {
    compared("vxlan");
}
