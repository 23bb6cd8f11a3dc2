//! What comes and goes with an attachment, whatever DEL, CHECK and GC are told.

use netloom_tests::{Host, plugin_dir};
use serde_json::{Value, json};

use crate::portmap::scene::{GATEWAY4, HOST4, HOST6, OUTSIDE4, Scene, bridge, portmap, tcp, udp};

fn both(port: u16) -> Value {
    json!([tcp(port, 80), udp(port, 80), {"hostPort": port, "containerPort": 81, "protocol": "tcp", "hostIP": HOST4}])
}

#[test]
fn without_mappings_nothing_is_made() {
    let scene = Scene::new();
    let attached = scene.add("c1", &json!([]));
    scene.check(&attached).silent();
    let mut null = portmap(&Value::Null, &json!({}));
    null["prevResult"] = attached.result.clone();
    assert_eq!(scene.cni("c1").add(&null), attached.result);
    assert!(!scene.host.sh("", "nft list table inet netloom").contains("c1"));
    scene.del(&attached);
    scene.expect_nothing();
}

#[test]
fn the_first_to_go_takes_only_its_own() {
    let scene = Scene::new();
    let (first, second) = (scene.add("c1", &both(8080)), scene.add("c2", &both(9090)));
    scene.answer("c1", 80);
    scene.answer("c2", 80);
    assert_eq!(scene.tcp("outside", HOST6, 8080), "c1 2001:db8::2");
    scene.del(&first);
    scene.del(&first);
    assert!(!scene.reaches("outside", HOST6, 8080));
    assert_eq!(scene.tcp("outside", HOST6, 9090), "c2 2001:db8::2");
    assert_eq!(scene.udp("outside", HOST4, 9090), format!("c2 {OUTSIDE4}"));
    assert_eq!(scene.tcp("", "127.0.0.1", 9090), format!("c2 {GATEWAY4}"));
    scene.check(&second).silent();
    scene.del(&second);
    scene.expect_nothing();
}

/// No mappings, no result, no namespace: the comments tell what is the attachment's.
#[test]
fn del_needs_nothing_but_the_name() {
    let scene = Scene::new();
    let bare = json!({"cniVersion": "1.1.0", "name": "published", "type": "portmap"});
    let forms: [&dyn Fn(&crate::portmap::scene::Attached); 5] = [
        &|a| scene.cni("c1").del(&bare, &a.result),
        &|a| scene.cni("c1").del(&a.config, &Value::Null),
        &|_| scene.cni("c1").unset("CNI_NETNS").del(&bare, &Value::Null),
        // Other mappings than those of ADD: what they are is found all the same.
        &|a| scene.cni("c1").del(&portmap(&both(1234), &json!({"snat": false})), &a.result),
        // Fewer than those of ADD: that there are more is noticed.
        &|a| scene.cni("c1").del(&portmap(&json!([tcp(8080, 80)]), &json!({})), &a.result),
    ];
    for (i, del) in forms.iter().enumerate() {
        let attached = scene.add("c1", &both(8080));
        let other = scene.add("c2", &both(9090));
        del(&attached);
        let left = scene.host.sh("", "nft list table inet netloom");
        assert!(!left.contains("published/c1/") && left.contains("published/c2/"), "form {i}: {left}");
        del(&attached);
        scene.check(&other).silent();
        [&attached, &other].iter().for_each(|a| scene.del(a));
        scene.expect_nothing();
    }
}

#[test]
fn del_is_told_of_fewer_ports_that_keep_their_sources() {
    let scene = Scene::new();
    let keys = json!({"snat": false});
    let attached = scene.add_with("c1", &both(8080), &keys);
    scene.cni("c1").del(&portmap(&json!([tcp(8080, 80)]), &keys), &attached.result);
    let left = scene.host.sh("", "nft list table inet netloom");
    assert!(!left.contains("published/c1/"), "{left}");
    scene.del(&attached);
    scene.expect_nothing();
}

#[test]
fn check_finds_what_others_have_changed() {
    let scene = Scene::new();
    let attached = scene.add("c1", &both(8080));
    scene.check(&attached).silent();
    let changes = [
        ("delete element inet netloom hostports4 { tcp . 8080 }", "the firewall entry for host port 8080/tcp is missing"),
        ("delete element inet netloom hostports6 { udp . 8080 }", "the firewall entry for host port 8080/udp is missing"),
        (
            "delete element inet netloom hostports4_at { 192.0.2.1 . tcp . 8080 }",
            "the firewall entry for host port 8080/tcp of 192.0.2.1 is missing",
        ),
        ("flush map inet netloom snat4", "to host ports is missing"),
        ("flush chain inet netloom hostports-in", "chain inet netloom hostports-in has 0 rules"),
        ("flush chain inet netloom loopback", "chain inet netloom loopback has 0 rules"),
        ("flush chain inet netloom hairpin-10.88.0.0/24", "chain inet netloom hairpin-10.88.0.0/24 has 0 rules"),
        ("flush ruleset", "the firewall entry for host port 8080/tcp is missing"),
    ];
    let mut again = attached.config.clone();
    again["prevResult"] = attached.result.clone();
    for (change, found) in changes {
        scene.host.run("", &["nft", change]);
        let said = scene.check(&attached).message();
        assert!(said.contains(found), "{change}: {said}");
        scene.cni("c1").add(&again);
        scene.check(&attached).silent();
    }
    let setting = "net.ipv4.conf.cni0.route_localnet";
    scene.host.sh("", &format!("sysctl -qw {setting}=0"));
    let said = scene.check(&attached).message();
    assert!(said.contains("route_localnet of cni0 is 0, not 1"), "{said}");
    scene.host.sh("", &format!("sysctl -qw {setting}=1"));
    scene.del(&attached);
}

#[test]
fn gc_frees_what_gone_attachments_held() {
    let scene = Scene::new();
    let (gone, kept) = (scene.add("c1", &both(8080)), scene.add("c2", &both(9090)));
    let mut config = portmap(&json!([]), &json!({}));
    config["cni.dev/valid-attachments"] = json!([{"containerID": "c2", "ifname": "eth0"}]);
    let outcome = scene.cni("c1").call("GC", "portmap", config.to_string());
    outcome.silent();
    let left = scene.host.sh("", "nft list table inet netloom");
    assert!(!left.contains("published/c1/") && left.contains("published/c2/"), "{left}");
    scene.check(&kept).silent();
    // Another network's GC has nothing to say about it.
    config["name"] = json!("other");
    config["cni.dev/valid-attachments"] = json!([]);
    scene.cni("c1").call("GC", "portmap", config.to_string()).silent();
    scene.check(&kept).silent();
    [&gone, &kept].iter().for_each(|a| scene.del(a));
    scene.expect_nothing();
}

/// A machine where only addresses were masqueraded so far.
#[test]
fn host_ports_join_a_table_that_is_there() {
    let scene = Scene::new();
    scene.host.run("", &["nft", "flush ruleset"]);
    let mut masqueraded = bridge();
    masqueraded["ipMasq"] = json!(true);
    let other = scene.cni("c2").add(&masqueraded);
    let table = scene.host.sh("", "nft list table inet netloom");
    assert!(!table.contains("hostports"), "{table}");
    let attached = scene.add("c1", &both(8080));
    scene.answer("c1", 80);
    assert_eq!(scene.tcp("c2", HOST6, 8080), "c1 fd88::1");
    assert_eq!(scene.tcp("outside", HOST6, 8080), "c1 2001:db8::2");
    scene.cni("c2").check(&masqueraded, &other).silent();
    scene.del(&attached);
    scene.cni("c2").check(&masqueraded, &other).silent();
    scene.cni("c2").del(&masqueraded, &other);
    assert!(!scene.host.sh("", "nft list table inet netloom").contains("published/"));
}

/// The kernel is asked for what the first ADD would install, and nothing of it is there afterwards.
#[test]
fn status_tries_and_leaves_nothing() {
    let host = Host::new();
    host.container("c1");
    let config = portmap(&json!([tcp(8080, 80)]), &json!({}));
    let status = || host.cni(plugin_dir()).call("STATUS", "portmap", config.to_string());
    let nothing = host.traces();
    assert_eq!(status().code, 0, "{:?}", status());
    assert_eq!(host.sh("", "nft list ruleset"), "");
    host.expect_traces(&nothing, "STATUS with no table");
    // Another subject's rules are there.
    let mut masqueraded = bridge();
    masqueraded["ipMasq"] = json!(true);
    let result = host.cni(plugin_dir()).at("c1", "eth0").add(&masqueraded);
    let some = host.sh("", "nft list ruleset");
    assert!(some.contains("masquerade4") && !some.contains("hostports4"), "{some}");
    assert_eq!(status().code, 0, "{:?}", status());
    assert_eq!(host.sh("", "nft list ruleset"), some);
    host.cni(plugin_dir()).at("c1", "eth0").del(&masqueraded, &result);
    // A table of this name that somebody else has made.
    host.sh("", "nft delete table inet netloom");
    host.sh("", "nft add table inet netloom");
    let said = status();
    assert!(said.error()["code"] == 50 && said.message().contains("was made by another program"), "{said:?}");
}
