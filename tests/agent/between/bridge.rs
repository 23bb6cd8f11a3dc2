//! The pods' bridge of a node, and what kubenet did at its own: addresses, hairpin, host ports, limits, masquerade.

use netloom_tests::Node;
use serde_json::json;

use super::paths::{PORT, pod};
use super::scene::{A, B, Scene};

fn mac(node: &Node) -> String {
    node.host.json("", "ip -j link show netloom0")[0]["address"].as_str().unwrap().to_owned()
}

#[test]
fn the_bridge_keeps_its_hardware_address_and_what_others_take_comes_back() {
    let scene = Scene::start("between: direct", &[A]);
    let a = &scene.nodes[0];
    assert_eq!(mac(a), "0a:58:0a:01:01:01");
    let (pods, host) = (["one", "two"].map(|name| pod(a, name)), &a.host);
    assert_eq!(mac(a), "0a:58:0a:01:01:01", "whatever its ports have");
    host.sh("", "ip addr del 10.1.1.1/24 dev netloom0");
    a.until("its address is there again", || host.addresses("", "netloom0").contains(&"10.1.1.1/24".to_owned()));
    host.sh("", "ip link set netloom0 down");
    a.until("it is up again, with all of them", || {
        host.addresses("", "netloom0") == ["10.1.1.1/24", "fd00:1:1::1/64"] && host.link("", "netloom0").is_some_and(|link| link.has("UP"))
    });
    host.sh("", "ip addr add 172.31.0.1/24 dev netloom0");
    let [(one, own), (_, other)] = &pods;
    assert_eq!(host.told_over_tcp(&one.sandbox(), &other[0], PORT), format!("two {}", own[0]));
    assert!(host.addresses("", "netloom0").contains(&"172.31.0.1/24".to_owned()), "an address of somebody else's stays");
}

/// A Service with one endpoint, as kube-proxy has it: the pod that asks.
#[test]
fn a_pod_reaches_itself_through_a_service() {
    let scene = Scene::start("between: direct", &[A]);
    let a = &scene.nodes[0];
    let (only, addresses) = pod(a, "only");
    for line in [
        "add table ip svc",
        "add chain ip svc pre { type nat hook prerouting priority dstnat; }",
        "add chain ip svc post { type nat hook postrouting priority 90; }",
        &format!("add rule ip svc pre ip daddr 10.96.0.10 dnat to {}", addresses[0]),
        &format!("add rule ip svc post ct status dnat ip saddr {0} ip daddr {0} masquerade", addresses[0]),
    ] {
        a.host.run("", &["nft", line]);
    }
    assert_eq!(a.host.told_over_tcp(&only.sandbox(), "10.96.0.10", PORT), "only 10.1.1.1");
}

/// As `--hairpin-mode=none` of the kubelet: whoever relies on it sees no packet of a pod's own.
#[test]
fn without_hairpin_a_pod_does_not_reach_itself_through_a_service() {
    let scene = Scene::start("between: direct\nhairpinMode: none", &[A]);
    let a = &scene.nodes[0];
    let (_only, addresses) = pod(a, "only");
    let ports = a.host.json("", "bridge -d -j link show");
    let port = ports.as_array().unwrap().iter().find(|port| port["master"] == json!("netloom0")).unwrap();
    assert_eq!(port["hairpin"], json!(false), "{port}");
    // All else is as with it.
    a.host.told_over_tcp("", &addresses[0], PORT);
}

/// A Service's address, as kube-proxy translates it, for a pod on the same bridge as the one that asks. The answer is bridged, and nobody
/// would put the Service's address back into it.
#[test]
fn a_service_on_the_same_node_answers_whatever_bridges_are_told_to_do() {
    let scene = Scene::new("between: direct", &[A]);
    scene.register(&A, json!(A.ranges));
    let a = &scene.nodes[0];
    for family in ["iptables", "ip6tables"] {
        a.host.sh("", &format!("sysctl -qw net.bridge.bridge-nf-call-{family}=0"));
    }
    a.restart();
    let ((from, own), (_to, addresses)) = (pod(a, "from"), pod(a, "to"));
    for (family, service, to, own) in [("ip", "10.96.0.10", &addresses[0], &own[0]), ("ip6", "fd00:96::a", &addresses[1], &own[1])] {
        let (port, to) = (PORT, if family == "ip" { to.clone() } else { format!("[{to}]") });
        let chain = format!("add table {family} svc; add chain {family} svc pre {{ type nat hook prerouting priority dstnat; }};");
        a.host
            .run("", &["nft", &format!("{chain} add rule {family} svc pre {family} daddr {service} tcp dport {port} dnat to {to}:{port}")]);
        assert_eq!(a.host.told_over_tcp(&from.sandbox(), service, PORT), format!("to {own}"));
    }
    let seen = a.host.json("", "ip -d -j link show netloom0");
    let data = &seen[0]["linkinfo"]["info_data"];
    assert_eq!((&data["nf_call_iptables"], &data["nf_call_ip6tables"]), (&json!(1), &json!(1)), "{seen}");
}

/// As containerd passes on what the pod's object says: its `hostPort` and its annotations `kubernetes.io/ingress-bandwidth` and
/// `kubernetes.io/egress-bandwidth`.
#[test]
fn host_ports_and_limits_come_and_go_with_their_pod() {
    let scene = Scene::start("between: direct", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let served = a.pod("served", "");
    let keys = json!({"runtimeConfig": {
        "portMappings": [{"hostPort": 8080, "containerPort": PORT, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": i32::MAX, "egressRate": 4_000_000, "egressBurst": i32::MAX}}});
    let added = served.call_with("ADD", &keys);
    assert_eq!(added.code, 0, "{added:?}");
    a.host.answer_at(&served.sandbox(), "served", "::", PORT);
    let ((near, of_near), (far, of_far)) = (pod(a, "near"), pod(b, "far"));
    let node = A.addresses[0];
    assert_eq!(b.host.told_over_tcp(&far.sandbox(), node, 8080), format!("served {}", of_far[0]), "{}", of_near[0]);
    assert_eq!(a.host.told_over_tcp(&near.sandbox(), node, 8080), "served 10.1.1.1", "from the pods' own subnet");
    assert_eq!(scene.router.told_over_tcp("", node, 8080), format!("served {}", A.routers[0]));
    let limits = || a.host.sh("", "tc qdisc show");
    assert_eq!(limits().matches("qdisc tbf").count(), 2, "{}", limits());
    assert!(limits().contains("rate 8Mbit") && limits().contains("rate 4Mbit"), "{}", limits());
    // The runtime does not say again what they were.
    served.must("DEL");
    a.until("the limits are gone", || limits().matches("qdisc tbf").count() == 0);
    assert!(b.host.told_over_tcp(&far.sandbox(), node, 8080).contains("refused"));
}

/// `0.0.0.0/0`, as kubenet took it: nobody outside sees the node in place of a pod.
#[test]
fn ranges_that_are_not_masqueraded_replace_the_clusters_own() {
    let scene = Scene::start("between: direct\nnonMasqueradeCIDRs: ['0.0.0.0/0', '::/0']", &[A]);
    let a = &scene.nodes[0];
    scene.router.sh("", &format!("ip route add {} via {}", A.ranges[0], A.addresses[0]));
    scene.router.sh("", &format!("ip -6 route add {} via {}", A.ranges[1], A.addresses[1]));
    let (from, own) = pod(a, "from");
    for (router, own) in A.routers.into_iter().zip(own) {
        scene.router.answer_at("", "router", router, PORT);
        assert_eq!(a.host.told_over_tcp(&from.sandbox(), router, PORT), format!("router {own}"));
    }
}

/// kubenet asked for its rule again with each pod.
#[test]
fn what_leaves_is_masqueraded_again_after_a_flush() {
    let scene = Scene::start("between: direct", &[A]);
    let a = &scene.nodes[0];
    let (from, _) = pod(a, "from");
    let [router, own] = [A.routers[0], A.addresses[0]];
    scene.router.answer_at("", "router", router, PORT);
    let seen = || a.host.ask_tcp(&from.sandbox(), router, PORT, std::time::Duration::from_secs(1)).unwrap_or_default();
    a.until("the node is seen", || seen() == format!("router {own}"));
    a.host.sh("", "nft flush ruleset");
    a.until("the node is seen again", || seen() == format!("router {own}"));
    // Not because it was seen before the rules were gone.
    assert!(a.host.sh("", "nft list chain inet netloom egress").contains("masquerade"));
    // The rules alone masquerade nothing.
    for (set, range) in [("own4", A.ranges[0]), ("inside4", A.ranges[0])] {
        a.host.sh("", &format!("nft flush set inet netloom {set}"));
        a.until("the range is there again", || a.host.sh("", &format!("nft list set inet netloom {set}")).contains(range));
    }
}
