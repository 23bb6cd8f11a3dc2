//! What others have set on a node that drops pods' packets: it is told with commands, and these let the packets pass.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netloom_tests::Node;
use serde_json::json;

use super::paths::{PORT, pod};
use super::scene::{A, B, FAR, Scene};

/// What the agent says is wrong with the network, but not with this node's part of it.
fn problems(node: &Node) -> Vec<String> {
    let status = node.status();
    status["network"]["problems"].as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Waits for a problem with these words in it.
fn told(node: &Node, words: &str) -> String {
    node.until(&format!("it says: {words}"), || problems(node).iter().any(|text| text.contains(words)));
    problems(node).into_iter().find(|text| text.contains(words)).unwrap()
}

/// Does what a problem says: each part of it between backticks is a command.
fn follow(node: &Node, problem: &str) {
    let commands: Vec<&str> = problem.split('`').skip(1).step_by(2).collect();
    assert!(!commands.is_empty(), "{problem}");
    // Quotes are for a shell, and there is none.
    commands.iter().for_each(|command| drop(node.host.sh("", &command.replace('\'', ""))));
}

#[test]
fn a_firewall_that_drops_what_is_forwarded_is_told() {
    let scene = Scene::start("between: direct\nreconcileEvery: 1s", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let ((from, own), (_to, addresses)) = (pod(a, "from"), pod(b, "to"));
    let answers = || a.host.ask_tcp(&from.sandbox(), &addresses[0], PORT, Duration::from_secs(1)).is_ok();
    let whole = format!("to {}", own[0]);
    assert_eq!(a.host.told_over_tcp(&from.sandbox(), &addresses[0], PORT), whole);
    for (drop, words) in [
        // As Docker does.
        ("iptables -P FORWARD DROP", "iptables's chain FORWARD has the policy DROP"),
        (
            "nft add table inet house; add chain inet house passing { type filter hook forward priority 10; policy drop; }",
            "chain passing (table inet house) drops forwarded packets",
        ),
    ] {
        a.host.sh("", drop);
        let problem = told(a, words);
        assert!(!answers(), "{drop} drops nothing, so this test says nothing");
        // The node's pods keep their network, and nobody is told that it has none.
        assert_eq!(scene.condition(&A), Some(("False".to_owned(), "NetloomIsUp".to_owned())));
        let events = || scene.api.must("GET", "/apis/events.k8s.io/v1/namespaces/default/events", &json!(null))["items"].to_string();
        a.until("an Event tells it", || events().contains(words));
        follow(a, &problem);
        a.until("it is over", || problems(a).is_empty());
        assert_eq!(a.host.told_over_tcp(&from.sandbox(), &addresses[0], PORT), whole);
    }
    // Frames that the bridge passes on from pod to pod.
    let (near, of_near) = pod(a, "near");
    a.host.sh("", "nft add table bridge house; add chain bridge house passing { type filter hook forward priority 10; policy drop; }");
    let problem = told(a, "chain passing (table bridge house) drops");
    follow(a, &problem);
    a.until("it is over", || problems(a).is_empty());
    assert_eq!(a.host.told_over_tcp(&from.sandbox(), &of_near[0], PORT), format!("{} {}", near.name, own[0]));
}

/// In a large cluster there is always something new.
#[test]
fn a_firewall_that_drops_is_found_while_nodes_change() {
    let scene = Scene::start("between: direct\nreconcileEvery: 1s", &[A]);
    let a = &scene.nodes[0];
    scene.register(&B, json!(B.ranges));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ranges = B.ranges;
            while !is_over.load(Ordering::Relaxed) {
                ranges.reverse();
                scene.register(&B, json!(ranges[..1]));
                // Sleeps: more often than the agent compares, and seldom enough for a busy machine.
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        a.host.sh("", "iptables -P FORWARD DROP");
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| told(a, "iptables's chain FORWARD has the policy DROP")));
        is_over.store(true, Ordering::Relaxed);
        found.unwrap();
    });
}

/// iptables' own tables, which nftables does not show.
#[test]
fn a_legacy_firewall_that_drops_what_is_forwarded_is_told() {
    let scene = Scene::new("between: direct\nreconcileEvery: 1s", &[A, B]);
    [A, B].iter().for_each(|place| scene.register(place, json!(place.ranges)));
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    a.host.sh("", "mount --bind /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi");
    assert!(a.host.sh("", "iptables -V").contains("legacy"));
    a.host.sh("", "iptables -P FORWARD DROP");
    [a, b].iter().for_each(|node| node.restart());
    let ((from, own), (_to, addresses)) = (pod(a, "from"), pod(b, "to"));
    let problem = told(a, "iptables's chain FORWARD has the policy DROP");
    let asked = a.host.ask_tcp(&from.sandbox(), &addresses[0], PORT, Duration::from_secs(1));
    assert!(asked.is_err(), "nothing is dropped, so this test says nothing");
    follow(a, &problem);
    a.until("it is over", || problems(a).is_empty());
    assert_eq!(a.host.told_over_tcp(&from.sandbox(), &addresses[0], PORT), format!("to {}", own[0]));
}

/// What leaves by one link and comes back by another one, which takes only what it would answer itself.
#[test]
fn a_strict_reverse_path_filter_that_drops_is_told() {
    let scene = Scene::start("between: vxlan\nreconcileEvery: 1s", &[A, FAR]);
    let [a, far] = [&scene.nodes[0], &scene.nodes[1]];
    let ((from, own), (_to, addresses)) = (pod(a, "from"), pod(far, "to"));
    let answers = || a.host.ask_tcp(&from.sandbox(), &addresses[0], PORT, Duration::from_secs(1)).is_ok();
    a.host.sh("", "sysctl -qw net.ipv4.conf.eth0.rp_filter=1");
    // It drops nothing yet.
    let whole = format!("to {}", own[0]);
    assert_eq!(a.host.told_over_tcp(&from.sandbox(), &addresses[0], PORT), whole);
    scene.router.sh("", &format!("ip link add side type veth peer name eth1 netns {}", a.host.pid()));
    for (host, link, address) in [(&scene.router, "side", "203.0.113.1"), (&a.host, "eth1", "203.0.113.11")] {
        host.sh("", &format!("ip link set {link} up"));
        host.sh("", &format!("ip addr add {address}/24 dev {link}"));
    }
    a.host.sh("", "ip route add 198.51.100.0/24 via 203.0.113.1");
    let problem = told(a, "net.ipv4.conf.eth0.rp_filter is strict");
    assert!(problem.contains("by eth0 from 1 sources that the node reaches by another link (198.51.100.13 by eth1)"), "{problem}");
    assert!(!answers(), "nothing is dropped, so this test says nothing");
    follow(a, &problem);
    a.until("it is over", || problems(a).is_empty());
    assert_eq!(a.host.told_over_tcp(&from.sandbox(), &addresses[0], PORT), whole);
}

#[test]
fn a_kernel_whose_bridges_pass_nothing_to_the_firewall_is_told() {
    let scene = Scene::new("between: direct\nreconcileEvery: 1s", &[A]);
    scene.register(&A, json!(A.ranges));
    let a = &scene.nodes[0];
    // As where the module is not loaded: its sysctls are not there.
    a.host.sh("", "mount -t tmpfs none /proc/sys/net/bridge");
    a.restart();
    told(a, "the kernel module br_netfilter is not loaded");
    a.host.sh("", "umount /proc/sys/net/bridge");
    a.until("it is over", || problems(a).is_empty());
}
