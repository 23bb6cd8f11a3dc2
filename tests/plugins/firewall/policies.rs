//! `ingressPolicy`: whose packets a container gets.

use serde_json::{Value, json};

use crate::firewall::scene::{OUTSIDE, Scene, network};

fn policy(name: &str) -> Value {
    json!({"ingressPolicy": name})
}

#[test]
fn same_bridge() {
    let scene = Scene::open();
    let keys = policy("same-bridge");
    let (c1, c2, c3) = (scene.add("c1", &keys), scene.add("c2", &keys), scene.add_at("br1", "c3", &keys));
    for i in [0, 1] {
        // The own bridge, the outside and the host.
        assert!(scene.connects("c2", "c1", &c1.addresses[i]));
        assert!(scene.connects("outside", "c1", &c1.addresses[i]) && scene.connects("c1", "outside", OUTSIDE[i]));
        assert!(scene.connects("", "c1", &c1.addresses[i]));
        // The other bridge, either way.
        assert!(scene.is_kept_from("c3", "c1", &c1.addresses[i]) && scene.is_kept_from("c1", "c3", &c3.addresses[i]));
        assert!(!scene.arrives("c3", &c3.addresses[i], "c1", &c1.addresses[i], false));
    }
    // As one of the other bridge: where a packet came from, its source does not tell.
    scene.host.sh("c3", &format!("ip addr add {}/32 dev eth0", c2.addresses[0]));
    assert!(!scene.arrives("c3", &c2.addresses[0], "c1", &c1.addresses[0], false));
    [&c1, &c2, &c3].iter().for_each(|a| scene.check(a).silent());
    // Who goes takes nothing with it that another needs.
    scene.del(&c1);
    assert!(scene.is_kept_from("c2", "c3", &c3.addresses[0]));
    scene.del(&c3);
    // A bridge whose containers have asked for no policy.
    let open = scene.add_at("br2", "c3", &json!({}));
    assert!(scene.connects("c2", "c3", &open.addresses[0]) && scene.connects("c3", "c2", &c2.addresses[1]));
    scene.del(&open);
    scene.del(&c2);
}

/// A forged source is judged by where it comes in: a packet that would pass by its source is dropped only by this.
#[test]
fn without_the_policy_a_forged_packet_arrives() {
    let scene = Scene::open();
    let keys = policy("same-bridge");
    let (c1, c2, c3) = (scene.add("c1", &keys), scene.add("c2", &keys), scene.add_at("br1", "c3", &keys));
    scene.host.sh("c3", &format!("ip addr add {}/32 dev eth0", c2.addresses[0]));
    scene.host.sh("", "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.br1.rp_filter=0");
    assert!(!scene.arrives("c3", &c2.addresses[0], "c1", &c1.addresses[0], false));
    scene.host.sh("", "nft delete element inet netloom bridges-with-policy { br1 }");
    assert!(scene.arrives("c3", &c2.addresses[0], "c1", &c1.addresses[0], true));
    [&c1, &c2, &c3].iter().for_each(|a| scene.del(a));
}

#[test]
fn isolated() {
    let scene = Scene::open();
    let keys = policy("isolated");
    let (c1, c2, c3) = (scene.add("c1", &keys), scene.add("c2", &keys), scene.add_at("br1", "c3", &keys));
    for i in [0, 1] {
        assert!(scene.is_kept_from("c2", "c1", &c1.addresses[i]) && scene.is_kept_from("c1", "c2", &c2.addresses[i]));
        assert!(scene.is_kept_from("c3", "c1", &c1.addresses[i]));
        assert!(scene.connects("outside", "c1", &c1.addresses[i]) && scene.connects("c1", "outside", OUTSIDE[i]));
        assert!(scene.connects("", "c1", &c1.addresses[i]));
    }
    // Nor over the gateway, which a container may send to what it likes.
    for (from, to) in [("c2", &c1), ("c1", &c2)] {
        scene.host.sh(from, &format!("ip route add {}/32 via 10.88.0.1", to.addresses[0]));
        scene.host.sh(from, "sysctl -qw net.ipv4.conf.eth0.accept_redirects=0 net.ipv4.conf.all.accept_redirects=0");
        assert!(scene.is_kept_from(from, &to.container, &to.addresses[0]));
    }
    for attached in [&c1, &c2, &c3] {
        scene.check(attached).silent();
        scene.cni(&attached.container).check(&attached.bridge, &attached.result).silent();
    }
    [&c1, &c2, &c3].iter().for_each(|a| scene.del(a));
}

/// The policies are ours whichever firewall lets the containers through.
#[test]
fn whatever_the_backend() {
    let scene = Scene::closed();
    let keys = json!({"ingressPolicy": "same-bridge", "backend": "iptables"});
    let (c1, c2, c3) = (scene.add("c1", &keys), scene.add("c2", &keys), scene.add_at("br1", "c3", &keys));
    assert!(scene.connects("c2", "c1", &c1.addresses[0]) && scene.connects("c1", "outside", OUTSIDE[1]));
    assert!(scene.is_kept_from("c3", "c1", &c1.addresses[0]));
    [&c1, &c2, &c3].iter().for_each(|a| scene.del(a));
}

#[test]
fn what_is_made_goes_and_check_finds_what_has_changed() {
    for name in ["same-bridge", "isolated"] {
        let mut scene = Scene::open();
        scene.settle(&policy(name));
        let attached = scene.add("c1", &policy(name));
        let chain = format!("{name}-br0");
        let mut changes = vec![
            "nft flush map inet netloom policed4".to_owned(),
            "nft flush map inet netloom policed6".to_owned(),
            "nft flush chain inet netloom from-bridges".to_owned(),
            "nft flush set inet netloom bridges-with-policy".to_owned(),
            format!("nft flush chain inet netloom {chain}"),
            "nft flush chain inet netloom ingress".to_owned(),
        ];
        if name == "isolated" {
            let port = attached.result["interfaces"][1]["name"].as_str().unwrap();
            changes.push(format!("bridge link set dev {port} isolated off"));
        }
        for change in changes {
            scene.check(&attached).silent();
            scene.host.sh("", &change);
            assert_ne!(scene.check(&attached).message(), "", "{change}");
            scene.call("c1", "ADD", &attached.config, &attached.result).result();
        }
        scene.check(&attached).silent();
        scene.del(&attached);
        scene.expect_nothing();
    }
}

#[test]
fn who_is_at_no_bridge() {
    let scene = Scene::open();
    let (outcome, attached) = scene.try_add("br0", "c1", &policy("sideways"));
    assert_eq!(outcome.error()["code"], 7, "{}", outcome.message());
    assert!(outcome.message().contains("unknown ingress policy: \"sideways\""), "{}", outcome.message());
    let mut nothing = attached.result.clone();
    nothing["interfaces"] = json!([]);
    for ip in nothing["ips"].as_array_mut().unwrap() {
        ip.as_object_mut().unwrap().remove("interface");
    }
    let config = crate::firewall::scene::firewall("br0", &policy("same-bridge"));
    let said = scene.call("c1", "ADD", &config, &nothing).message();
    assert!(said.contains("interface needs to be set for ingress policy \"same-bridge\""), "{said}");
    let mut unnamed = attached.result.clone();
    unnamed["interfaces"][0]["name"] = json!("");
    let said = scene.call("c1", "ADD", &config, &unnamed).message();
    assert!(said.contains("got empty bridge name"), "{said}");
    // Rules for one of these would stay, and cut off from it whoever has a policy.
    for (name, sandbox, is) in [
        ("wire", "", "wire, the first interface of the previous result, is a veth on the host"),
        ("wire", "/run/netns/c1", "wire, the first interface of the previous result, is the container's own"),
        ("br7", "", "br7, the first interface of the previous result, is not on the host"),
    ] {
        let mut other = attached.result.clone();
        other["interfaces"][0] = json!({"name": name, "sandbox": sandbox});
        let outcome = scene.call("c1", "ADD", &config, &other);
        assert_eq!(outcome.error()["code"], 7);
        assert!(outcome.message().contains(is), "{}", outcome.message());
    }
    let rules = scene.host.sh("", "nft list ruleset");
    assert!(!rules.contains("\"wire\"") && !rules.contains("br7"), "{rules}");
    scene.del(&attached);
}

/// What ADD has made goes, whatever the configuration says by the time of DEL.
#[test]
fn a_policy_that_is_configured_no_more() {
    let mut scene = Scene::open();
    let backends = [json!({"backend": "iptables"}), json!({"backend": "nftables"}), json!({})];
    for backend in &backends {
        let mut keys = backend.clone();
        keys["ingressPolicy"] = json!("same-bridge");
        scene.settle(&keys);
        for later in backends.iter().chain([&policy("isolated")]) {
            let mut attached = scene.add("c1", &keys);
            attached.config = crate::firewall::scene::firewall("br0", later);
            scene.del(&attached);
            scene.expect_nothing();
        }
    }
}

/// The kernel calls 1,024 chains of a hook at most: those of bridges that are gone would use them up for everybody.
#[test]
fn what_is_there_of_a_bridge_goes_with_its_last_container() {
    let scene = Scene::open();
    let keep = scene.add("c1", &policy("isolated"));
    let rules = || scene.host.sh("", "nft list ruleset");
    let hooks = || rules().matches("hook").count();
    let before = (hooks(), rules());
    let (second, third) = (scene.add_at("br1", "c2", &policy("same-bridge")), scene.add_at("br1", "c3", &policy("isolated")));
    assert!(rules().contains("same-bridge-br1"), "{}", rules());
    assert_eq!(hooks(), before.0);
    scene.del(&second);
    assert!(rules().contains("same-bridge-br1") && rules().contains("isolated-br1"), "another container has a policy");
    scene.check(&third).silent();
    scene.del(&third);
    assert!(!rules().contains("br1") && rules().contains("isolated-br0"), "{}", rules());
    // Another program flushes all, and containers with either policy get back what they had.
    let fourth = scene.add("c2", &policy("same-bridge"));
    scene.host.sh("", "nft flush ruleset");
    for attached in [&fourth, &keep] {
        scene.call(&attached.container, "ADD", &attached.config, &attached.result).result();
    }
    scene.check(&keep).silent();
    scene.check(&fourth).silent();
    scene.del(&fourth);
    // A DEL that came as far as the elements is repeated.
    let last = scene.add_at("br1", "c3", &policy("isolated"));
    ["policed4", "policed6"].iter().for_each(|map| drop(scene.host.sh("", &format!("nft flush map inet netloom {map}"))));
    scene.del(&last);
    assert!(!rules().contains("br1"), "{}", rules());
    scene.del(&keep);
}

/// A container in a VLAN sends by the host's interface in it, which the result names last.
#[test]
fn a_vlan_is_a_bridge_of_its_own() {
    let scene = Scene::open();
    let keys = policy("same-bridge");
    let c1 = scene.add("c1", &keys);
    let made_by = network("br1");
    let mut result = scene.cni("c3").add(&made_by);
    let address = result["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    // Not every kernel has VLANs: this one is a bridge by the name of the interface.
    for change in ["ip link set br1 down", "ip link set br1 name br9.100", "ip link set br9.100 up", "ip link add br9 type bridge"] {
        scene.host.sh("", change);
    }
    result["interfaces"][0]["name"] = json!("br9");
    result["interfaces"].as_array_mut().unwrap().push(json!({"name": "br9.100"}));
    let config = crate::firewall::scene::firewall("br1", &keys);
    assert!(scene.connects("c3", "c1", &c1.addresses[0]), "without a policy it passes");
    scene.call("c3", "ADD", &config, &result).result();
    assert!(scene.is_kept_from("c3", "c1", &c1.addresses[0]) && scene.is_kept_from("c1", "c3", &address));
    assert!(!scene.arrives("c3", &address, "c1", &c1.addresses[0], false));
    assert!(scene.connects("", "c3", &address));
    scene.call("c3", "CHECK", &config, &result).silent();
    scene.call("c3", "DEL", &config, &result).silent();
    scene.cni("c3").del(&made_by, &result);
    scene.del(&c1);
}

#[test]
fn rules_are_told_in_words_and_for_programs() {
    let scene = Scene::open();
    let keys = |backend: &str| json!({"ingressPolicy": "isolated", "backend": backend});
    let (c1, c2) = (scene.add("c1", &keys("nftables")), scene.add("c2", &keys("iptables")));
    let rules = |args: &[&str]| {
        let program = netloom_tests::netloom().to_str().unwrap();
        scene.host.run("", &[&[program, "rules", "--socket", "/nowhere"], args].concat())
    };
    let text = rules(&[]);
    for wanted in [
        format!("  forward    {} passes the host's filter in both directions", c1.addresses[0]),
        format!("  forward    {} passes by iptables rules (CNI-FORWARD)", c2.addresses[1]),
        format!("  ingress    {} is closed to every bridge that has a policy, including its own, br0", c1.addresses[1]),
    ] {
        assert!(text.lines().any(|line| line == wanted), "{wanted}\n{text}");
    }
    let told: Value = serde_json::from_str(&rules(&["-o", "json"])).unwrap();
    let of = |kind: &str, by: &str| told.as_array().unwrap().iter().filter(|r| r["kind"] == kind && r["by"] == by).count();
    assert_eq!((of("forward", "nftables"), of("forward", "iptables")), (2, 2), "{told}");
    [&c1, &c2].iter().for_each(|a| scene.del(a));
    assert!(!rules(&[]).contains(&c1.addresses[0]), "what is gone is not told");
}
