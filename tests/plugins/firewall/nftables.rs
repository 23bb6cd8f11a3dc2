//! The backend of our own: elements that mark, and one rule of iptables that accepts what is marked.

use std::net::UdpSocket;
use std::time::Duration;

use netloom_tests::peers_dir;
use serde_json::{Value, json};

use crate::firewall::scene::{Attached, OUTSIDE, Scene, firewall, network};

/// The bit that the documentation names.
const FORWARD_MARK: u32 = 0x1000;

#[test]
fn what_the_policy_drops_passes_for_a_container() {
    let mut scene = Scene::closed();
    scene.settle(&json!({}));
    // Without the plugin: nothing passes.
    let alone = scene.cni("c2").add(&network("br0"));
    let of = |i: usize| alone["ips"][i]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    for i in [0, 1] {
        assert!(scene.is_kept_from("c2", "outside", OUTSIDE[i]), "{}", of(i));
    }
    let attached = scene.add("c1", &json!({}));
    for i in [0, 1] {
        // From the container, and the answers; nothing to it that it has not asked for.
        assert!(scene.connects("c1", "outside", OUTSIDE[i]));
        assert!(scene.host.udp("c1", "outside", OUTSIDE[i]));
        assert!(scene.host.pings("c1", OUTSIDE[i]));
        assert!(scene.is_kept_from("outside", "c1", &attached.addresses[i]));
        assert!(!scene.arrives("outside", OUTSIDE[i], "c1", &attached.addresses[i], false));
        assert!(scene.is_kept_from("c2", "outside", OUTSIDE[i]));
    }
    scene.check(&attached).silent();
    scene.del(&attached);
    scene.cni("c2").del(&network("br0"), &alone);
    scene.expect_nothing();
}

/// What passes for `c1` under a policy that drops: each question, and whether it does.
fn passes(scene: &Scene, addresses: &[String]) -> Vec<(&'static str, bool)> {
    let mut found = Vec::new();
    for i in [0, 1] {
        found.push(("TCP from it", scene.connects("c1", "outside", OUTSIDE[i])));
        found.push(("UDP from it", scene.host.udp("c1", "outside", OUTSIDE[i])));
        found.push(("an echo request from it", scene.host.pings("c1", OUTSIDE[i])));
        found.push(("an error about what it sent", is_refused(scene, OUTSIDE[i])));
        found.push(("TCP to it", !scene.is_kept_from("outside", "c1", &addresses[i])));
        found.push(("UDP to it", scene.arrives("outside", OUTSIDE[i], "c1", &addresses[i], false)));
        found.push(("TCP to it from the host", scene.connects("", "c1", &addresses[i])));
    }
    found
}

/// Whether `c1` learns that nobody listens at a port.
fn is_refused(scene: &Scene, address: &str) -> bool {
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = scene.host.within("c1", || UdpSocket::bind(any).unwrap());
    socket.connect((address, 9)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    (0..60).any(|_| {
        let sent = socket.send(b"hello");
        let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
        sent.is_err_and(refused) || socket.recv(&mut [0; 8]).is_err_and(refused)
    })
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn the_same_packets_pass_as_with_the_reference_plugin() {
    let scene = Scene::closed();
    let result = scene.cni("c1").add(&network("br0"));
    let address = |i: usize| result["ips"][i]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    let addresses = [address(0), address(1)];
    let mut found = Vec::new();
    for (dir, keys) in [
        (peers_dir(), json!({"backend": "iptables"})),
        (netloom_tests::plugin_dir(), json!({"backend": "iptables"})),
        (netloom_tests::plugin_dir(), json!({})),
    ] {
        let mut given = firewall("br0", &keys);
        given["prevResult"] = result.clone();
        let cni = || scene.host.cni(dir).at("c1", "eth0");
        cni().call("ADD", "firewall", given.to_string()).result();
        found.push(passes(&scene, &addresses));
        cni().call("DEL", "firewall", given.to_string()).silent();
    }
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
    assert!(found[0].iter().any(|(_, passes)| *passes) && found[0].iter().any(|(_, passes)| !passes));
}

/// Docker sets the policy when it is started, whenever that is.
#[test]
fn a_policy_that_comes_later() {
    let scene = Scene::open();
    let attached = scene.add("c1", &json!({}));
    scene.policy("DROP");
    assert!(scene.connects("c1", "outside", OUTSIDE[0]) && scene.connects("c1", "outside", OUTSIDE[1]));
    assert!(scene.is_kept_from("outside", "c1", &attached.addresses[0]));
    scene.del(&attached);
}

/// No table overrules what another one drops: that one has to know the mark.
#[test]
fn a_table_of_the_hosts_own_accepts_the_mark() {
    let scene = Scene::open();
    let attached = scene.add("c1", &json!({}));
    let rule = format!("meta mark and {:#x} != 0 accept", FORWARD_MARK);
    for (rules, passes) in [("counter", false), (rule.as_str(), true)] {
        let chain = format!("chain forward {{ type filter hook forward priority filter; policy drop; {rules}; }}");
        scene.host.run("", &["nft", &format!("table inet filter {{ {chain}\n }}")]);
        for i in [0, 1] {
            if passes {
                assert!(scene.connects("c1", "outside", OUTSIDE[i]), "{rules}");
            } else {
                assert!(scene.is_kept_from("c1", "outside", OUTSIDE[i]), "{rules}");
            }
            assert!(scene.is_kept_from("outside", "c1", &attached.addresses[i]));
        }
        scene.host.sh("", "nft delete table inet filter");
    }
    scene.del(&attached);
}

/// Behind the filter nobody sees the mark, and the bits of others are as they were.
#[test]
fn the_mark_is_taken_off() {
    let scene = Scene::closed();
    let attached = scene.add("c1", &json!({}));
    let mark = FORWARD_MARK;
    let table = format!(
        "table inet looks {{
            chain before {{ type filter hook prerouting priority mangle; meta mark set 0xffff{:04x}; }}
            chain after {{ type filter hook postrouting priority mangle;
                oifname wire meta mark 0xffff{:04x} counter name kept; oifname wire meta mark and {mark:#x} != 0 counter name left; }}
            counter kept {{}}
            counter left {{}}
        }}",
        0xffff & !mark,
        0xffff & !mark
    );
    scene.host.run("", &["nft", &table]);
    assert!(scene.connects("c1", "outside", OUTSIDE[0]) && scene.connects("c1", "outside", OUTSIDE[1]));
    let packets = |name: &str| {
        let listed = scene.host.json("", &format!("nft -j list counter inet looks {name}"));
        listed["nftables"].as_array().unwrap().iter().find_map(|o| o["counter"]["packets"].as_u64()).unwrap()
    };
    assert!(packets("kept") > 0);
    assert_eq!(packets("left"), 0);
    scene.del(&attached);
}

/// What an administrator forbids where the reference plugin asks for it stays forbidden.
#[test]
fn the_administrators_rules_are_asked_first() {
    for later in [false, true] {
        let scene = Scene::closed();
        let first = scene.add("c1", &json!({}));
        if later {
            assert!(scene.connects("c1", "outside", OUTSIDE[0]));
        } else {
            scene.del(&first);
            scene.host.sh("", "iptables -F NETLOOM-FORWARD");
        }
        scene.host.sh("", "iptables -N CNI-ADMIN");
        scene.host.sh("", &format!("iptables -A CNI-ADMIN -d {} -j DROP", OUTSIDE[0]));
        if later {
            assert!(scene.check(&first).message().contains("lacks `-j CNI-ADMIN`"));
            scene.del(&first);
        }
        let attached = scene.add("c1", &json!({}));
        assert!(scene.is_kept_from("c1", "outside", OUTSIDE[0]));
        assert!(scene.connects("c1", "outside", OUTSIDE[1]));
        scene.check(&attached).silent();
        let rules = scene.host.sh("", "iptables -S NETLOOM-FORWARD");
        assert_eq!(rules.lines().filter(|line| line.starts_with("-A")).count(), 2, "{rules}");
        scene.host.sh("", "iptables -F CNI-ADMIN");
        assert!(scene.connects("c1", "outside", OUTSIDE[0]));
        scene.check(&attached).silent();
        scene.del(&attached);
    }
}

/// Who marks packets for purposes of his own opens nothing, whichever bits he takes.
#[test]
fn a_mark_of_somebody_elses_lets_nothing_pass() {
    let scene = Scene::closed();
    let attached = scene.add("c1", &json!({}));
    let marks = "chain before { type filter hook prerouting priority mangle; iifname wire meta mark set 0xffffffff; }";
    scene.host.run("", &["nft", &format!("table inet marks {{ {marks}\n }}")]);
    for i in [0, 1] {
        assert!(!scene.arrives("outside", OUTSIDE[i], "c1", &attached.addresses[i], false));
        // The answers are marked so, too.
        assert!(scene.connects("c1", "outside", OUTSIDE[i]));
    }
    scene.del(&attached);
}

#[test]
fn check_finds_what_others_have_changed_and_add_puts_it_back() {
    let scene = Scene::closed();
    let attached = scene.add("c1", &json!({}));
    let [v4, v6] = &attached.addresses;
    let changes = [
        (format!("nft delete element inet netloom forwarded4 {{ {v4} }}"), "the firewall entry for forwarding of 10."),
        (format!("nft delete element inet netloom forwarded6 {{ {v6} }}"), "the firewall entry for forwarding of fd"),
        ("nft flush chain inet netloom forward".to_owned(), "chain inet netloom forward has 0 rules"),
        ("nft flush chain inet netloom forwarded".to_owned(), "chain inet netloom forwarded has 0 rules"),
        ("nft flush chain inet netloom forward-end".to_owned(), "chain inet netloom forward-end has 0 rules"),
        ("iptables -F FORWARD".to_owned(), "FORWARD has no rule"),
        ("iptables -F NETLOOM-FORWARD".to_owned(), "FORWARD has no rule"),
        ("ip6tables -F FORWARD".to_owned(), "FORWARD has no rule"),
        ("nft flush table ip6 filter".to_owned(), "FORWARD has no rule"),
        ("nft flush ruleset".to_owned(), "the firewall entry for forwarding of 10."),
    ];
    for (change, found) in changes {
        scene.check(&attached).silent();
        scene.host.sh("", &change);
        let said = scene.check(&attached).message();
        assert!(said.contains(found), "{change}: {said}");
        scene.call("c1", "ADD", &attached.config, &attached.result).result();
    }
    scene.policy("DROP");
    assert!(scene.connects("c1", "outside", OUTSIDE[0]) && scene.connects("c1", "outside", OUTSIDE[1]));
    scene.del(&attached);
}

#[test]
fn del_and_gc_need_no_result() {
    let mut scene = Scene::closed();
    scene.settle(&json!({}));
    let bare = firewall("br0", &json!({}));
    let mut gc = bare.clone();
    gc["cniVersion"] = json!("1.1.0");
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "c2", "ifname": "eth0"}]);
    let forms: [&dyn Fn(&Attached); 4] = [
        &|_| scene.cni("c1").unset("CNI_NETNS").del(&bare, &Value::Null),
        &|a| scene.cni("c1").del(&firewall("br0", &json!({"backend": "iptables", "ingressPolicy": "isolated"})), &a.result),
        &|a| scene.cni("c1").del(&firewall("br0", &json!({"backend": "no such"})), &a.result),
        &|_| scene.cni("c1").call("GC", "firewall", gc.to_string()).silent(),
    ];
    for (i, form) in forms.iter().enumerate() {
        let attached = scene.add("c1", &json!({"ingressPolicy": "open"}));
        let other = scene.add("c2", &json!({}));
        form(&attached);
        let left = scene.host.sh("", "nft list table inet netloom");
        assert!(!left.contains("net-br0/c1/") && left.contains("net-br0/c2/"), "form {i}: {left}");
        scene.check(&other).silent();
        [&attached, &other].iter().for_each(|a| scene.del(a));
        scene.expect_nothing();
    }
}

/// With iptables' own tables in the kernel, as older distributions have it.
#[test]
fn legacy_iptables() {
    let scene = Scene::open();
    // Both are called by the names of what they do; which of them it is the alternatives of the machine say.
    scene.host.sh("", "mount --bind /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi");
    scene.policy("DROP");
    assert!(scene.host.sh("", "iptables -V").contains("legacy"));
    for keys in [json!({}), json!({"backend": "iptables"})] {
        let attached = scene.add("c1", &keys);
        for i in [0, 1] {
            assert!(scene.connects("c1", "outside", OUTSIDE[i]));
            assert!(scene.is_kept_from("outside", "c1", &attached.addresses[i]));
        }
        scene.check(&attached).silent();
        scene.host.sh("", "iptables -F FORWARD");
        assert!(scene.check(&attached).message().contains("FORWARD"));
        scene.call("c1", "ADD", &attached.config, &attached.result).result();
        scene.check(&attached).silent();
        assert!(scene.connects("c1", "outside", OUTSIDE[0]));
        scene.del(&attached);
    }
    let left = scene.host.sh("", "iptables -S");
    assert!(!left.contains("10.88.0."), "{left}");
}
