//! Conditions in words of nft: who may use a port, and that they are the attachment's own.

use serde_json::{Value, json};

use crate::portmap::scene::{GATEWAY4, GATEWAY6, HOST4, HOST6, OUTSIDE4, OUTSIDE6, Scene, portmap, tcp, udp};

const ELSEWHERE4: &str = "198.51.100.2";
const ELSEWHERE6: &str = "2001:db8:1::2";

fn not_outside() -> Value {
    json!({"conditionsV4": ["ip", "saddr", "!=", OUTSIDE4], "conditionsV6": ["ip6 saddr 2001:db8:1::/64"]})
}

/// A machine where chains for these conditions are.
fn warm(conditions: &[&Value]) -> Scene {
    let mut scene = Scene::new();
    for keys in conditions {
        scene.del(&scene.add_with("c1", &json!([tcp(1, 1)]), keys));
    }
    scene.before = scene.host.traces();
    scene
}

#[test]
fn only_who_matches_is_led_to_the_container() {
    let at_one = json!({"conditionsV4": ["ip", "daddr", HOST4, "iifname", "!=", "far"], "conditionsV6": [""]});
    let scene = warm(&[&not_outside(), &at_one]);
    let first = scene.add_with("c1", &json!([tcp(8080, 80), udp(8080, 80)]), &not_outside());
    let second = scene.add_with("c2", &json!([tcp(9090, 80)]), &at_one);
    scene.answer("c1", 80);
    scene.answer("c2", 80);
    // Where they do not hold the host answers itself.
    scene.answer("", 8080);
    for (from, at, seen) in
        [("elsewhere", HOST4, ELSEWHERE4), ("elsewhere", HOST6, ELSEWHERE6), ("", HOST4, HOST4), ("c1", HOST4, GATEWAY4)]
    {
        assert_eq!(scene.tcp(from, at, 8080), format!("c1 {seen}"), "TCP from {from:?} to {at}");
        assert_eq!(scene.udp(from, at, 8080), format!("c1 {seen}"), "UDP from {from:?} to {at}");
    }
    for (at, seen) in [(HOST4, OUTSIDE4), (HOST6, OUTSIDE6)] {
        assert_eq!(scene.tcp("outside", at, 8080), format!("host {seen}"));
        assert_eq!(scene.udp("outside", at, 8080), format!("host {seen}"));
    }
    // They are each attachment's own: the second one's were added last.
    assert_eq!(scene.tcp("outside", HOST4, 9090), format!("c2 {OUTSIDE4}"));
    assert_eq!(scene.tcp("outside", HOST6, 9090), format!("c2 {OUTSIDE6}"));
    assert!(!scene.reaches("outside", GATEWAY4, 9090) && !scene.reaches("elsewhere", HOST4, 9090));
    assert_eq!(scene.tcp("c1", HOST6, 9090), format!("c2 {GATEWAY6}"), "as the host");
    [&first, &second].iter().for_each(|a| scene.check(a).silent());
    [&first, &second].iter().for_each(|a| scene.del(a));
    scene.expect_nothing();
}

/// A port with conditions is looked up ahead of the others: whoever came later took from another container what they match.
#[test]
fn a_port_with_conditions_is_no_other_containers() {
    let scene = warm(&[&not_outside()]);
    let at_one = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": HOST4}]);
    let (all, none) = (json!([tcp(8080, 80)]), json!({}));
    for ((has, keys), (asks, others)) in
        [((&all, &none), (&all, &not_outside())), ((&at_one, &none), (&all, &not_outside())), ((&all, &not_outside()), (&all, &none))]
    {
        let first = scene.add_with("c1", has, keys);
        let (outcome, second) = scene.try_add("c2", asks, others);
        assert_eq!(outcome.error()["code"], 11, "{outcome:?}");
        assert!(outcome.message().contains("host port 8080/tcp is used by attachment published/c1/eth0"), "{outcome:?}");
        scene.check(&first).silent();
        scene.del(&second);
        scene.del(&first);
    }
    scene.expect_nothing();
}

#[test]
fn they_come_and_go_with_the_attachment() {
    let scene = warm(&[&not_outside()]);
    let bare = portmap(&Value::Null, &json!({}));
    let attached = scene.add_with("c1", &json!([tcp(8080, 80), udp(8080, 80)]), &not_outside());
    // Another container's, with the same port and any conditions.
    let (outcome, refused) = scene.try_add("c2", &json!([tcp(8080, 80)]), &not_outside());
    assert!(outcome.message().contains("host port 8080/tcp is used by attachment published/c1/eth0"), "{outcome:?}");
    scene.del(&refused);
    scene.host.sh("", "nft flush chain inet netloom when-ip/and/saddr-not-192.0.2.2/32");
    assert!(scene.check(&attached).message().contains("when-ip/and/saddr-not-192.0.2.2/32 has 0 rules"));
    let mut again = attached.config.clone();
    again["prevResult"] = attached.result.clone();
    scene.cni("c1").add(&again);
    scene.check(&attached).silent();
    scene.cni("c1").del(&bare, &Value::Null);
    assert!(!scene.host.sh("", "nft list table inet netloom").contains("published/"));
    scene.cni("c1").add(&again);
    let mut gc = portmap(&json!([]), &json!({}));
    gc["cni.dev/valid-attachments"] = json!([]);
    scene.cni("c1").call("GC", "portmap", gc.to_string()).silent();
    assert!(!scene.host.sh("", "nft list table inet netloom").contains("published/"));
    scene.del(&attached);
    scene.expect_nothing();
}
