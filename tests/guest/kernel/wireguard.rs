//! The cluster's network over WireGuard: agents, pods and their packets, judged by `wg`, by sockets and by counters on the wire.
//!
//! The machines are those of `tests/agent/between`.

use std::os::unix::fs::PermissionsExt;

use netloom_tests::{Node, Pod};
use serde_json::{Value, json};

use scene::{A, B, FAR, Place, Scene, node_path, reached};

mod guarded;
mod keys;
mod lab;
mod pools;
mod rotation;

#[allow(dead_code, reason = "the other executable uses all of it")]
#[path = "../../agent/between/scene.rs"]
mod scene;

/// The devices of even rotations, and of odd ones.
const DEVICES: [&str; 2] = ["nlw-ca6c", "nlw-ca6d"];
/// The port at which each pod answers with its name and the address that it sees.
const PORT: u16 = 7000;
const KEYS: &str = "/var/lib/netloom/wireguard-keys.json";

/// A pod that answers, and its addresses.
fn pod<'n>(node: &'n Node, name: &str) -> (Pod<'n>, [String; 2]) {
    let pod = node.pod(name, "");
    let added = pod.must("ADD");
    // The runtime's part.
    node.host.sh(&pod.sandbox(), "ip link set lo up");
    let of = |n: usize| added.result()["ips"][n]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    node.host.answer_at(&pod.sandbox(), name, "::", PORT);
    let addresses = [of(0), of(1)];
    (pod, addresses)
}

fn all_meet(pods: &[(&Node, (Pod<'_>, [String; 2]))]) {
    for (node, (from, own)) in pods {
        for (_, (to, addresses)) in pods {
            for (address, seen_as) in addresses.iter().zip(own) {
                let told = node.host.told_over_tcp(&from.sandbox(), address, PORT);
                assert_eq!(told, format!("{} {seen_as}", to.name), "{} to {address}\n{}", from.name, node.tail());
            }
        }
    }
}

fn wg(node: &Node, line: &str) -> String {
    node.host.sh("", &format!("wg {line}")).trim().to_owned()
}

/// Which WireGuard devices a node has.
fn devices(node: &Node) -> Vec<String> {
    let mut all: Vec<String> = wg(node, "show interfaces").split_whitespace().map(str::to_owned).collect();
    all.sort();
    all
}

/// Key, port and peers of a node's device, without what traffic changes.
fn shown(node: &Node, device: &str) -> String {
    let output = node.host.try_run("", &["wg", "show", device, "dump"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    let own = lines.next().unwrap_or_default().to_owned();
    // Public key, preshared key, endpoint, allowed ranges, and the keepalive at the end.
    let peer = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let mut ranges: Vec<&str> = cells[3].split(',').collect();
        ranges.sort_unstable();
        format!("{} {} {} {} {}", cells[0], cells[1], cells[2], ranges.join(","), cells[7])
    };
    let mut peers: Vec<String> = lines.map(peer).collect();
    peers.sort();
    format!("{own}\n{}", peers.join("\n"))
}

fn announced(scene: &Scene, place: &Place) -> Value {
    let node = scene.api.must("GET", &node_path(place), &Value::Null);
    let text = node["metadata"]["annotations"]["netloom.io/between"].as_str().unwrap_or("null").to_owned();
    serde_json::from_str(&text).unwrap()
}

/// Counts what leaves a machine: WireGuard's packets, what hosts ask their neighbours, and all else.
fn count(scene: &Scene, place: &Place) {
    let rules = format!(
        "add table netdev wire; add counter netdev wire tunnel; add counter netdev wire other; \
        add chain netdev wire in {{ type filter hook ingress device \"to-{}\" priority 0; }}; \
        add rule netdev wire in udp sport 51820 udp dport 51820 counter name tunnel accept; \
        add rule netdev wire in ether type arp accept; \
        add rule netdev wire in meta l4proto ipv6-icmp icmpv6 type {{ 133, 134, 135, 136, 143 }} accept; \
        add rule netdev wire in counter name other",
        place.name
    );
    scene.router.run("", &["nft", &rules]);
}

fn counted(scene: &Scene, name: &str) -> u64 {
    let all = scene.router.json("", "nft -j list counters");
    let found = all["nftables"].as_array().unwrap().iter().find(|o| o["counter"]["name"] == name).unwrap();
    found["counter"]["packets"].as_u64().unwrap()
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn wireguard_carries_pods_and_nothing_else_is_on_the_wire() {
    let scene = Scene::start("between: wireguard\nreconcileEvery: 1s", &[A, B, FAR]);
    let a = &scene.nodes[0];
    count(&scene, &A);
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    all_meet(&pods);
    assert!(counted(&scene, "tunnel") > 10);
    assert_eq!(counted(&scene, "other"), 0, "{}", scene.router.sh("", "nft list ruleset"));
    assert_eq!((a.status()["network"]["mode"].clone(), a.status()["network"]["mtu"].clone()), (json!("wireguard"), json!(1440)));

    // The private key is root's alone, and the device's; the public one is on the Node.
    let private = wg(a, "show nlw-ca6c private-key");
    let file = a.host.path(KEYS);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(std::fs::read_to_string(&file).unwrap().contains(&private));
    let told = a.told(&["nodes"]);
    assert!(
        ![a.log(), a.status().to_string(), told.to_string(), announced(&scene, &A).to_string()].iter().any(|text| text.contains(&private))
    );
    let public = wg(a, "show nlw-ca6c public-key");
    assert_eq!(announced(&scene, &A)["keys"], json!([{"key": public, "port": 51820}]));
    assert_eq!(a.status()["network"]["wireguard"]["keys"], json!([{"publicKey": public, "port": 51820}]));

    // A person sees whether packets pass.
    let way = &told[1]["ways"][0];
    let seen = json!([way["way"], way["link"], way["to"], way["answers"], way["publicKey"]]);
    assert_eq!(seen, json!(["wireguard", "nlw-ca6c", "192.0.2.12:51820", true, announced(&scene, &B)["keys"][0]["key"]]));
    assert!(way["handshakeSeconds"].is_u64() && way["received"].as_u64() > Some(0) && way["sent"].as_u64() > Some(0), "{way}");

    // What somebody changes is put back, though the kernel does not report it.
    let before = shown(a, DEVICES[0]);
    assert!(before.contains("192.0.2.12:51820 10.1.2.0/24,fd00:1:2::/64 off") && before.contains("198.51.100.13:51820"), "{before}");
    let other = announced(&scene, &B)["keys"][0]["key"].as_str().unwrap().to_owned();
    for line in [
        format!("wg set nlw-ca6c peer {other} remove"),
        format!("wg set nlw-ca6c peer {other} allowed-ips 10.1.9.0/24"),
        format!("wg set nlw-ca6c peer {other} persistent-keepalive 7"),
        format!("wg set nlw-ca6c peer {public} allowed-ips 10.1.2.0/24"),
        "wg set nlw-ca6c peer AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE= allowed-ips 10.1.2.0/24".to_owned(),
        "wg set nlw-ca6c listen-port 51999".to_owned(),
        "wg set nlw-ca6c fwmark 7".to_owned(),
        "wg set nlw-ca6c private-key /dev/null".to_owned(),
        "ip link set nlw-ca6c mtu 1300".to_owned(),
        "ip link del nlw-ca6c".to_owned(),
    ] {
        a.host.sh("", &line);
        a.until(&line, || shown(a, DEVICES[0]) == before && a.host.link("", DEVICES[0]).is_some_and(|link| link.0["mtu"] == 1440));
    }
    all_meet(&pods);
    // Another mode leaves nothing of it.
    a.kill9();
    let text = std::fs::read_to_string(a.host.path(netloom_tests::SETTINGS)).unwrap();
    a.host.write(netloom_tests::SETTINGS, &text.replace("between: wireguard", "between: direct"));
    a.launch();
    a.until("the device goes", || devices(a).is_empty());
    let told = || a.status()["network"]["problems"].to_string();
    a.until("a mode that differs is told with both names", || {
        told().contains("node b announces the mode wireguard, and node a has direct")
    });
}
