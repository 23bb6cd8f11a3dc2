//! Machines outside speak with addresses of the node's, on the bridge of its pods, and nobody asks them: `conflictDetection: passive`.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use ipam::HostPools;
use objects::Store;
use pool::{Key, Unavailable};
use serde_json::{Value, json};

use super::{World, add, grant, granted, known, network, status, store, until};
use crate::api::Api;

const MAC: &str = "02:00:00:00:00:77";

/// Says something by ARP, as often as it is told to, from addresses that go up: request, sender, in this VLAN.
const SAY: &str = r#"
import socket, struct, sys
mac, first, count, sender, vlan = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
own = bytes.fromhex(mac.replace(":", ""))
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
tag = struct.pack("!HH", 0x8100, vlan) if vlan else b""
for n in range(count):
    address = struct.pack("!I", struct.unpack("!I", socket.inet_aton(first))[0] + n)
    said = bytes(4) if sender == "nobody" else address
    arp = b"\x00\x01\x08\x00\x06\x04\x00\x01" + own + said + bytes(6) + address
    s.send(b"\xff" * 6 + own + tag + b"\x08\x06" + arp + bytes(18))
"#;

fn terms(more: &Value) -> Value {
    let mut terms = json!({"conflictDetection": "passive", "exclude": ["10.20.0.0", "fd00:20::"], "scaling": {"minAllocate": 0,
        "preAllocate": 0, "maxAllocate": 0, "maxAboveWatermark": 0, "releaseDelaySeconds": 1_000_000}});
    terms.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    terms
}

fn run(world: &World, netns: &str, words: &[&str]) {
    let output = Command::new("ip").args(["netns", "exec", &world.name_of(netns)]).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

fn sh(world: &World, netns: &str, line: &str) {
    run(world, netns, &["sh", "-c", line]);
}

/// A node whose agent is in its namespace, with this granted, and a machine on the bridge of its pods that has these addresses.
fn scene(store: &Store, object: Option<&Value>, addresses: &[&str]) -> World {
    let mut world = World::with(store, network(), true);
    sh(&world, "node", "ip link add pods0 up type bridge mcast_snooping 0");
    world.sandbox("out");
    sh(&world, "node", &format!("ip link add out0 up master pods0 type veth peer name eth0 netns {} address {MAC}", world.name_of("out")));
    addresses.iter().for_each(|address| sh(&world, "out", &format!("ip addr add {address} dev eth0 nodad")));
    sh(&world, "out", "ip link set eth0 up");
    if let Some(object) = object {
        grant(store, object);
    }
    world.restart_inside(store);
    world
}

/// Sockets that hear packets in the node's namespace.
fn ears(world: &World) -> usize {
    let output = Command::new("ip").args(["netns", "exec", &world.name_of("node"), "cat", "/proc/net/packet"]).output().unwrap();
    // One that is not bound yet hears nothing: it is not running.
    let running = |line: &&str| line.split_whitespace().nth(5) == Some("1");
    String::from_utf8(output.stdout).unwrap().lines().skip(1).filter(running).count()
}

fn listens(world: &World) {
    until("somebody listens", || ears(world), |ears| *ears == 1);
}

/// What the journal knows of an address of the network `a`.
fn taken(world: &World, address: &str) -> Option<Unavailable> {
    HostPools::read(&world.journal()).unwrap().allocator.taken("a", address.parse::<IpAddr>().unwrap()).cloned()
}

fn quarantined_by(world: &World, address: &str) -> Option<String> {
    match taken(world, address) {
        Some(Unavailable::Quarantined { by, .. }) => Some(by),
        _ => None,
    }
}

fn problems(store: &Store) -> Vec<String> {
    let all = status(store)["problems"].as_array().cloned().unwrap_or_default();
    let mut told: Vec<String> =
        all.iter().map(|one| format!("{} {}", one["ip"].as_str().unwrap(), one["reason"].as_str().unwrap())).collect();
    told.sort();
    told
}

fn conflicts(store: &Store, pod: &str) -> Vec<String> {
    Api::events(store, pod).into_iter().filter(|(_, reason, _)| reason == "AddressConflict").map(|(_, _, message)| message).collect()
}

/// The outside machine says that it has an address, as it looks for the gateway.
fn speak(world: &World, address: &str) {
    let gateway = if address.contains(':') { "fd00:20::ffff" } else { "10.20.255.254" };
    sh(world, "out", &format!("ip neigh flush dev eth0; ping -n -c1 -W1 -I {address} {gateway} || true"));
}

#[test]
fn what_nobody_has_is_quarantined_and_what_a_pod_has_is_told() {
    let store = store();
    let object = granted(&["10.20.0.0/30", "10.20.0.4/30", "fd00:20::/126", "fd00:20::4/126"], 1, terms(&json!({})));
    let outside = ["10.20.0.1/16", "10.20.0.2/16", "fd00:20::1/64", "fd00:20::2/64"];
    let mut world = scene(&store, Some(&object), &outside);
    listens(&world);
    assert_eq!(add(&store, &world, "web"), ["10.20.0.1/16", "fd00:20::1/64"]);
    // Of what its own pods say none is told, of the one that has the address that another machine has neither.
    for address in ["10.20.255.254", "fd00:20::ffff"] {
        sh(&world, "web", &format!("ping -n -c1 -W60 {address}"));
    }
    for address in ["10.20.0.2", "fd00:20::2"] {
        assert_eq!(taken(&world, address), None, "nobody has spoken");
        speak(&world, address);
        until("the quarantine", || quarantined_by(&world, address), |by| by.as_deref() == Some(MAC));
    }
    until("the problems", || problems(&store), |problems| *problems == ["10.20.0.2 Conflict", "fd00:20::2 Conflict"]);
    assert!(conflicts(&store, "web").is_empty(), "{:?}", conflicts(&store, "web"));
    // The next one gets none of the two.
    assert_eq!(add(&store, &world, "next"), ["10.20.0.3/16", "fd00:20::3/64"]);
    for (address, events) in [("10.20.0.1", 1), ("fd00:20::1", 2)] {
        speak(&world, address);
        until("the Event", || conflicts(&store, "web"), |told| told.len() == events);
        let told = conflicts(&store, "web");
        assert!(told.iter().any(|told| told.contains(address) && told.contains(MAC)), "{told:?}");
        let by = HostPools::read(&world.journal()).unwrap().heard("a", address.parse().unwrap()).map(|heard| heard.by.clone());
        assert_eq!(by.as_deref(), Some(MAC));
        assert!(matches!(taken(&world, address), Some(Unavailable::Held(_))), "it keeps it");
    }
    let all = ["10.20.0.1 Conflict", "10.20.0.2 Conflict", "fd00:20::1 Conflict", "fd00:20::2 Conflict"];
    until("the problems", || problems(&store), |problems| *problems == all);
    // It is known over a restart, and nobody is told again.
    world.restart_inside(&store);
    listens(&world);
    speak(&world, "10.20.0.1");
    // As long as it would take: the one that is heard after it is in quarantine for longer.
    run(&world, "out", &["python3", "-c", SAY, MAC, "10.20.0.5", "1", "itself", "0"]);
    until("the one behind it", || quarantined_by(&world, "10.20.0.5"), |by| by.as_deref() == Some(MAC));
    assert_eq!(conflicts(&store, "web").len(), 2);
    assert!(problems(&store).contains(&"10.20.0.1 Conflict".to_owned()));
    // Nobody gets what is given back.
    world.ok("DEL", "web");
    for address in ["10.20.0.1", "fd00:20::1"] {
        assert_eq!(quarantined_by(&world, address).as_deref(), Some(MAC), "{address}");
    }
    assert_eq!(add(&store, &world, "last"), ["10.20.0.4/16", "fd00:20::4/64"]);
    assert!(conflicts(&store, "next").is_empty() && conflicts(&store, "last").is_empty());
}

/// A probe is a question; a VLAN's tag is no hindrance.
#[test]
fn what_is_nobodys_business_is_left_alone() {
    let store = store();
    let gateway = json!({"ipv4": {"prefixLength": 16, "blockPrefix": 30, "gateway": "10.20.0.3"}});
    let mut object = granted(&["10.20.0.0/30", "10.20.0.4/30"], 1, terms(&gateway));
    object["spec"]["pools"]["a"].as_object_mut().unwrap().remove("ipv6");
    object["spec"]["ips"] = json!([{"ip": "10.20.0.9", "network": "a", "pool": "a", "epoch": 1, "owner": {"claim": "default/vm"}}]);
    let world = scene(&store, Some(&object), &[]);
    listens(&world);
    assert_eq!(add(&store, &world, "web"), ["10.20.0.1/16"]);
    let say = |first: &str, sender: &str, vlan: &str| run(&world, "out", &["python3", "-c", SAY, MAC, first, "1", sender, vlan]);
    // Excluded, the gateway, a claim's, another node's; asked for by nobody.
    ["10.20.0.0", "10.20.0.3", "10.20.0.9", "10.20.0.77"].iter().for_each(|address| say(address, "itself", "0"));
    ["10.20.0.1", "10.20.0.2"].iter().for_each(|address| say(address, "nobody", "0"));
    // What is heard behind all that.
    say("10.20.0.6", "itself", "0");
    say("10.20.0.7", "itself", "7");
    for address in ["10.20.0.6", "10.20.0.7"] {
        until("what is this node's", || quarantined_by(&world, address), |by| by.as_deref() == Some(MAC));
    }
    until("the problems", || problems(&store), |problems| *problems == ["10.20.0.6 Conflict", "10.20.0.7 Conflict"]);
    assert!(conflicts(&store, "web").is_empty());
}

/// Somebody says it of every address, and again and again.
#[test]
fn who_forges_gets_an_address_a_second() {
    let store = store();
    let mut object = granted(&["10.20.0.0/22"], 1, terms(&json!({})));
    object["spec"]["pools"]["a"].as_object_mut().unwrap().remove("ipv6");
    object["spec"]["pools"]["a"]["ipv4"]["blockPrefix"] = json!(22);
    let world = scene(&store, Some(&object), &[]);
    listens(&world);
    let begun = Instant::now();
    for _ in 0..3 {
        run(&world, "out", &["python3", "-c", SAY, MAC, "10.20.0.1", "1000", "itself", "0"]);
    }
    let count = || HostPools::read(&world.journal()).unwrap().allocator.all_taken("a").count() as u64;
    until("the first one", count, |count| *count > 0);
    // Sleeps: how many are noted in a time is what is asked.
    std::thread::sleep(Duration::from_secs(2));
    let count = count();
    assert!(count <= 3 + begun.elapsed().as_secs() + 1, "{count} after {:?}", begun.elapsed());
}

#[test]
fn it_begins_and_ends_with_the_pool_that_says_so() {
    let store = store();
    let off = |epoch| granted(&["10.20.0.0/30", "fd00:20::/126"], epoch, terms(&json!({"conflictDetection": "off"})));
    let world = scene(&store, Some(&off(1)), &["10.20.0.2/16"]);
    assert_eq!(add(&store, &world, "web").len(), 2);
    assert_eq!(ears(&world), 0);
    speak(&world, "10.20.0.2");
    // Else the node would ask whether it is still there, and hear the answer.
    sh(&world, "node", "ip neigh flush dev pods0");
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, terms(&json!({}))));
    listens(&world);
    assert_eq!(taken(&world, "10.20.0.2"), None);
    speak(&world, "10.20.0.2");
    until("the quarantine", || quarantined_by(&world, "10.20.0.2"), Option::is_some);
    grant(&store, &off(1));
    until("nothing listens on it", || ears(&world), |ears| *ears == 0);
}

#[test]
fn a_pool_in_a_file_is_listened_for_as_its_file_says() {
    let store = store();
    let world = scene(&store, None, &["10.20.0.3/24"]);
    let file = |detection: &str| {
        let spec = json!({"ipv4": {"entries": [{"cidr": "10.20.0.0/24"}], "gateway": "10.20.0.254"}, "conflictDetection": detection,
            "reuse": {"cooldownSeconds": 0, "order": "lowest"}});
        world.pool_file("a", &json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "a"}, "spec": spec}))
    };
    file("passive");
    known(&store, &world, "web");
    assert_eq!(world.ok("ADD", "web")["ips"][0]["address"], "10.20.0.1/24");
    listens(&world);
    sh(&world, "out", "ping -n -c1 -W1 10.20.0.254 || true");
    until("the quarantine", || quarantined_by(&world, "10.20.0.3"), |by| by.as_deref() == Some(MAC));
    let key = Key { network: "pods".to_owned(), container: "c-web".to_owned(), ifname: "eth0".to_owned() };
    assert_eq!(taken(&world, "10.20.0.1"), Some(Unavailable::Held(key)));
    file("off");
    world.ok("DEL", "web");
    until("nothing listens on it", || ears(&world), |ears| *ears == 0);
}
