//! Who answers at a port of the machine, and as whom it sees who asks.

use serde_json::json;

use crate::portmap::scene::{GATEWAY4, GATEWAY6, HOST4, HOST6, OUTSIDE4, OUTSIDE6, Scene, tcp, udp};

/// The machine has no way to a container from `::1`: what is for it stays there.
#[test]
fn from_outside_from_the_host_from_others_and_from_itself() {
    let scene = Scene::new();
    let attached = scene.add("c1", &json!([tcp(8080, 80), udp(8080, 80)]));
    scene.answer("c1", 80);
    let expected = [
        ("outside", HOST4, OUTSIDE4),
        ("outside", HOST6, OUTSIDE6),
        ("outside", GATEWAY4, OUTSIDE4),
        ("outside", GATEWAY6, OUTSIDE6),
        ("", HOST4, HOST4),
        ("", HOST6, HOST6),
        ("", "127.0.0.1", GATEWAY4),
        ("", "127.9.9.9", GATEWAY4),
        ("", GATEWAY4, GATEWAY4),
        ("c1", HOST4, GATEWAY4),
        ("c1", HOST6, GATEWAY6),
        ("c1", GATEWAY4, GATEWAY4),
    ];
    for (from, at, seen) in expected {
        assert_eq!(scene.tcp(from, at, 8080), format!("c1 {seen}"), "TCP from {from:?} to {at}");
        assert_eq!(scene.udp(from, at, 8080), format!("c1 {seen}"), "UDP from {from:?} to {at}");
    }
    // Another container of the same network, attached later and without ports of its own.
    let other = scene.add("c2", &json!([]));
    for (at, seen) in [(HOST4, GATEWAY4), (HOST6, GATEWAY6), (GATEWAY4, GATEWAY4), (GATEWAY6, GATEWAY6)] {
        assert_eq!(scene.tcp("c2", at, 8080), format!("c1 {seen}"), "TCP from another to {at}");
        assert_eq!(scene.udp("c2", at, 8080), format!("c1 {seen}"), "UDP from another to {at}");
    }
    scene.answer_at("", "::1", 8080);
    assert_eq!(scene.tcp("", "::1", 8080), "host ::1");
    [&attached, &other].iter().for_each(|a| scene.del(a));
    assert!(!scene.reaches("outside", HOST4, 8080), "after DEL");
    scene.expect_nothing();
}

#[test]
fn with_masq_all_nobody_is_seen_as_who_he_is() {
    let mut scene = Scene::new();
    let everything = json!({"masqAll": true});
    // The chain of those is there from the first one on.
    scene.del(&scene.add_with("c1", &json!([tcp(8080, 80)]), &everything));
    scene.before = scene.host.traces();
    let attached = scene.add_with("c1", &json!([tcp(8080, 80), udp(8080, 80)]), &everything);
    scene.answer("c1", 80);
    for (from, at, seen) in [("outside", HOST4, GATEWAY4), ("outside", HOST6, GATEWAY6), ("", "127.0.0.1", GATEWAY4)] {
        assert_eq!(scene.tcp(from, at, 8080), format!("c1 {seen}"), "{from:?} {at}");
        assert_eq!(scene.udp(from, at, 8080), format!("c1 {seen}"), "{from:?} {at}");
    }
    // Not what comes without a host port.
    let address = attached.result["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    assert_eq!(scene.tcp("outside", &address, 80), format!("c1 {OUTSIDE4}"));
    scene.del(&attached);
    scene.expect_nothing();
}

#[test]
fn without_snat_sources_stay() {
    let scene = Scene::new();
    let keys = json!({"snat": false, "masqAll": true});
    let attached = scene.add_with("c1", &json!([tcp(8080, 80)]), &keys);
    let other = scene.add("c2", &json!([]));
    scene.answer("c1", 80);
    assert_eq!(scene.tcp("outside", HOST4, 8080), format!("c1 {OUTSIDE4}"));
    assert_eq!(scene.tcp("", HOST4, 8080), format!("c1 {HOST4}"));
    assert_eq!(scene.host.run("", &["nft", "list", "map", "inet", "netloom", "snat4"]).matches("c1").count(), 0);
    [&attached, &other].iter().for_each(|a| scene.del(a));
    scene.expect_nothing();
}

/// A port at one address wins over the same container's at all; a `hostIP` that is all addresses is none.
#[test]
fn a_port_at_one_address() {
    let scene = Scene::new();
    let at = |ip: &str, port: u16| json!({"hostPort": port, "containerPort": 80, "protocol": "tcp", "hostIP": ip});
    let mapped = format!("::ffff:{HOST4}");
    let mut ports = vec![at(HOST4, 8080), at("127.0.0.1", 8081), at("::", 8082), at("0.0.0.0", 8083), at(HOST6, 8080)];
    ports.extend([at(&mapped, 8084), tcp(8080, 81)]);
    let attached = scene.add("c1", &json!(ports));
    scene.answer("c1", 80);
    scene.host.answer_at("c1", "all", "::", 81);
    let who = |from: &str, address: &str, port: u16| scene.tcp(from, address, port).split(' ').next().unwrap().to_owned();
    assert_eq!(who("outside", HOST4, 8080), "c1");
    assert_eq!(who("outside", HOST6, 8080), "c1");
    assert_eq!(who("outside", GATEWAY4, 8080), "all");
    assert_eq!(who("outside", GATEWAY6, 8080), "all");
    assert_eq!(who("", HOST4, 8080), "c1");
    assert_eq!(who("", "127.0.0.1", 8080), "all");
    assert_eq!(who("", "127.0.0.1", 8081), "c1");
    assert_eq!(who("outside", HOST6, 8082), "c1");
    assert_eq!(who("outside", HOST4, 8083), "c1");
    assert_eq!(who("outside", HOST4, 8084), "c1");
    // Each at that address and that family alone: refused at once, by the host.
    for (from, address, port) in [("outside", HOST4, 8081), ("", HOST4, 8081), ("outside", HOST4, 8082), ("outside", HOST6, 8083)] {
        assert_eq!(who(from, address, port), "Connection", "{from:?} {address} {port}");
    }
    scene.del(&attached);
    scene.expect_nothing();
}

/// A host port is one of the host: who connects to the same port elsewhere gets there, from outside, from a container and from
/// the host.
#[test]
fn what_passes_through_is_left_alone() {
    let scene = Scene::new();
    let attached = scene.add("c1", &json!([tcp(8080, 80), udp(8080, 80)]));
    scene.answer("c1", 80);
    scene.answer("elsewhere", 8080);
    for from in ["outside", "c1", ""] {
        for address in ["198.51.100.2", "2001:db8:1::2"] {
            assert!(scene.tcp(from, address, 8080).starts_with("elsewhere "), "{from:?} {address}");
            assert!(scene.udp(from, address, 8080).starts_with("elsewhere "), "{from:?} {address}");
        }
    }
    assert!(scene.tcp("outside", HOST4, 8080).starts_with("c1 "));
    scene.del(&attached);
    scene.expect_nothing();
}

/// As the rules of a Service: another program's, at the priority that everybody takes.
#[test]
fn a_service_comes_first() {
    let scene = Scene::new();
    let attached = scene.add("c1", &json!([tcp(8080, 80), tcp(8081, 80)]));
    scene.answer("c1", 80);
    scene.answer("elsewhere", 9090);
    let rules = format!(
        "table inet service {{
            chain in {{ type nat hook prerouting priority dstnat; ip daddr {HOST4} tcp dport 8080 dnat ip to 198.51.100.2:9090; }}
            chain out {{ type nat hook output priority -100; ip daddr {HOST4} tcp dport 8080 dnat ip to 198.51.100.2:9090; }}
            chain back {{ type nat hook postrouting priority srcnat; ct status dnat ip saddr 10.88.0.0/24 masquerade; }}
        }}"
    );
    scene.host.run("", &["nft", &rules]);
    for from in ["outside", "c1", ""] {
        assert!(scene.tcp(from, HOST4, 8080).starts_with("elsewhere "), "{from:?}");
        assert!(scene.tcp(from, HOST4, 8081).starts_with("c1 "), "{from:?}");
    }
    scene.host.sh("", "nft delete table inet service");
    scene.del(&attached);
    scene.expect_nothing();
}

/// With `route_localnet` the kernel would let neighbours speak to 127.0.0.1 (CVE-2020-8558).
#[test]
fn loopback_is_not_reached_from_outside() {
    let scene = Scene::new();
    let loopback = json!({"hostPort": 8081, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"});
    let attached = scene.add("c1", &json!([tcp(8080, 80), loopback]));
    let other = scene.add("c2", &json!([]));
    scene.answer("c1", 80);
    scene.answer_at("", "127.0.0.1", 9090);
    // A container that takes its gateway for its own loopback.
    scene.host.sh("c2", "sysctl -qw net.ipv4.conf.eth0.route_localnet=1");
    scene.host.sh("c2", &format!("ip route add 127.0.0.0/8 via {GATEWAY4}"));
    let ports = [9090, 8080, 8081];
    ports.iter().for_each(|port| assert!(!scene.reaches("c2", "127.0.0.1", *port), "{port}"));
    assert_eq!(scene.tcp("", "127.0.0.1", 9090), "host 127.0.0.1");
    // It is this chain that keeps them away.
    scene.host.sh("", "nft flush chain inet netloom loopback");
    assert!(scene.tcp("c2", "127.0.0.1", 9090).starts_with("host 10.88.0."));
    [&attached, &other].iter().for_each(|a| scene.del(a));
}

/// Ports in rules of iptables need the same setting, and open the same door.
#[test]
fn loopback_is_not_reached_from_outside_with_iptables() {
    let scene = Scene::new();
    scene.host.sh("", "nft delete table inet netloom");
    let attached = scene.add_with("c1", &json!([tcp(8080, 80)]), &json!({"backend": "iptables"}));
    let other = scene.add("c2", &json!([]));
    scene.answer("c1", 80);
    scene.answer_at("", "127.0.0.1", 9090);
    scene.host.sh("c2", "sysctl -qw net.ipv4.conf.eth0.route_localnet=1");
    scene.host.sh("c2", &format!("ip route add 127.0.0.0/8 via {GATEWAY4}"));
    assert!(!scene.reaches("c2", "127.0.0.1", 9090));
    assert_eq!(scene.tcp("", "127.0.0.1", 9090), "host 127.0.0.1");
    assert_eq!(scene.tcp("", "127.0.0.1", 8080), format!("c1 {GATEWAY4}"));
    scene.host.sh("", "nft flush chain inet netloom loopback");
    assert!(scene.tcp("c2", "127.0.0.1", 9090).starts_with("host 10.88.0."));
    scene.del(&attached);
    scene.del(&other);
}
