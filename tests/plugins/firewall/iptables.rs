//! The backend of iptables: the reference plugin's rules, which either implementation takes away.

use netloom_tests::peers_dir;
use serde_json::{Value, json};

use crate::firewall::scene::{Attached, OUTSIDE, Scene};

fn iptables() -> Value {
    json!({"backend": "iptables"})
}

/// The rules of a chain, as `iptables -S` prints them.
fn rules(scene: &Scene, program: &str, chain: &str) -> Vec<String> {
    let printed = scene.host.sh("", &format!("{program} -S {chain}"));
    printed.lines().filter(|l| l.starts_with("-A")).map(str::to_owned).collect()
}

#[test]
fn an_address_has_two_rules() {
    let mut scene = Scene::closed();
    scene.settle(&iptables());
    let attached = scene.add("c1", &iptables());
    let [v4, v6] = &attached.addresses;
    for (program, address) in [("iptables", format!("{v4}/32")), ("ip6tables", format!("{v6}/128"))] {
        let enter = "-A FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-FORWARD";
        assert_eq!(rules(&scene, program, "FORWARD"), [enter]);
        let wanted = [
            "-A CNI-FORWARD -m comment --comment \"CNI firewall plugin admin overrides\" -j CNI-ADMIN".to_owned(),
            format!("-A CNI-FORWARD -d {address} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
            format!("-A CNI-FORWARD -s {address} -j ACCEPT"),
        ];
        assert_eq!(rules(&scene, program, "CNI-FORWARD"), wanted);
    }
    for i in [0, 1] {
        assert!(scene.connects("c1", "outside", OUTSIDE[i]) && scene.host.udp("c1", "outside", OUTSIDE[i]));
        assert!(scene.is_kept_from("outside", "c1", &attached.addresses[i]));
    }
    scene.check(&attached).silent();
    scene.del(&attached);
    scene.del(&attached);
    scene.expect_nothing();
}

/// The administrator's chain has the first word, also while another network's containers pass by their mark.
#[test]
fn the_administrators_chain_comes_first() {
    let scene = Scene::closed();
    let marked = scene.add_at("br1", "c3", &json!({"backend": "nftables"}));
    // Asked for by the name of the chain alone.
    let attached = scene.add("c1", &json!({"iptablesAdminChainName": "SITE"}));
    assert!(scene.connects("c1", "outside", OUTSIDE[0]) && scene.connects("c3", "outside", OUTSIDE[0]));
    scene.host.sh("", &format!("iptables -A SITE -s {} -d {} -j DROP", attached.addresses[0], OUTSIDE[0]));
    assert!(scene.is_kept_from("c1", "outside", OUTSIDE[0]));
    assert!(scene.connects("c1", "outside", OUTSIDE[1]) && scene.connects("c3", "outside", OUTSIDE[0]));
    [&marked, &attached].iter().for_each(|a| scene.del(a));
    assert_eq!(rules(&scene, "iptables", "SITE").len(), 1, "what the administrator wrote stays");
}

#[test]
fn check_finds_what_others_have_changed() {
    let scene = Scene::closed();
    let attached = scene.add("c1", &iptables());
    let [v4, v6] = &attached.addresses;
    let changes = [
        format!("iptables -D CNI-FORWARD -s {v4}/32 -j ACCEPT"),
        format!("ip6tables -D CNI-FORWARD -d {v6}/128 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
        "iptables -F FORWARD".to_owned(),
        "ip6tables -F CNI-FORWARD".to_owned(),
        "nft flush ruleset".to_owned(),
    ];
    for change in changes {
        scene.host.sh("", &change);
        let said = scene.check(&attached).message();
        assert!(said.contains("not found") || said.contains("the firewall entry for"), "{change}: {said}");
        scene.call("c1", "ADD", &attached.config, &attached.result).result();
        scene.check(&attached).silent();
    }
    scene.del(&attached);
}

/// No configuration, no result: the note in our table tells what was told to iptables.
#[test]
fn del_and_gc_need_no_result() {
    let mut scene = Scene::closed();
    scene.settle(&iptables());
    let bare = json!({"cniVersion": "1.1.0", "name": "net-br0", "type": "firewall"});
    let gc = json!({"cniVersion": "1.1.0", "name": "net-br0", "type": "firewall", "cni.dev/valid-attachments": []});
    let forms: [&dyn Fn(&Attached); 4] = [
        &|_| scene.cni("c1").unset("CNI_NETNS").del(&bare, &Value::Null),
        &|a| scene.cni("c1").del(&a.config, &Value::Null),
        &|a| scene.cni("c1").del(&bare, &a.result),
        &|_| scene.cni("c1").call("GC", "firewall", gc.to_string()).silent(),
    ];
    for (i, form) in forms.iter().enumerate() {
        let attached = scene.add("c1", &iptables());
        form(&attached);
        assert_eq!(rules(&scene, "iptables", "CNI-FORWARD").len(), 1, "form {i}");
        assert_eq!(rules(&scene, "ip6tables", "CNI-FORWARD").len(), 1, "form {i}");
        scene.del(&attached);
        scene.expect_nothing();
    }
}

/// A cluster that changes over has attachments of the other implementation.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn either_implementation_takes_away_what_the_other_made() {
    let mut scene = Scene::closed();
    scene.settle(&iptables());
    let theirs = peers_dir();
    for keys in [json!({}), iptables()] {
        let bridge = crate::firewall::scene::network("br0");
        let result = scene.cni("c1").add(&bridge);
        let config = crate::firewall::scene::firewall("br0", &keys);
        let mut given = config.clone();
        given["prevResult"] = result.clone();
        let reference = || scene.host.cni(theirs).at("c1", "eth0");
        reference().call("ADD", "firewall", given.to_string()).result();
        assert_eq!(rules(&scene, "iptables", "CNI-FORWARD").len(), 3);
        scene.cni("c1").del(&config, &result);
        assert_eq!(rules(&scene, "iptables", "CNI-FORWARD").len(), 1, "ours, after theirs: {keys}");
        if keys != json!({}) {
            scene.call("c1", "ADD", &config, &result).result();
            scene
                .check(&Attached {
                    container: "c1".into(),
                    addresses: Default::default(),
                    result: result.clone(),
                    bridge: bridge.clone(),
                    config: config.clone(),
                })
                .silent();
            reference().call("CHECK", "firewall", given.to_string()).silent();
            reference().call("DEL", "firewall", given.to_string()).silent();
            assert_eq!(rules(&scene, "iptables", "CNI-FORWARD").len(), 1, "theirs, after ours");
            // Only the note is left, and goes with ours.
            scene.cni("c1").del(&config, &result);
        }
        scene.cni("c1").del(&bridge, &result);
        scene.expect_nothing();
    }
}

/// A DEL that comes again when the address has been given to another container.
#[test]
fn a_late_del_takes_nothing_of_another() {
    let scene = Scene::closed();
    let attached = scene.add("c2", &iptables());
    scene.cni("c1").del(&attached.config, &attached.result);
    assert_eq!(rules(&scene, "iptables", "CNI-FORWARD").len(), 3);
    scene.check(&attached).silent();
    scene.del(&attached);
}
