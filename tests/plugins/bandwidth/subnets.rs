//! `unshapedSubnets` and `shapedSubnets`: which packets meet the limit.

use std::time::Duration;

use serde_json::json;

use crate::bandwidth::rates::{Sender, stream};
use crate::bandwidth::{Scene, both};

/// Bits in a second, and at once.
const RATE: u64 = 1_000_000;
const BURST: u64 = 200_000;

/// What is held back takes this long at least for [`SOME`] bytes; what is not is done with [`MORE`] long before.
const SOME: u64 = 250_000;
const MORE: u64 = 8_000_000;

fn is_limited(scene: &Scene, address: &str, sender: Sender) {
    let (took, came) = *stream(&scene.host, address, sender, SOME, Duration::from_secs(60)).last().unwrap();
    // Packets' headers count as well, and slow it down further.
    let least = (came * 8 - BURST) as f64 / RATE as f64;
    assert!(took >= least * 0.95, "{address}, {sender:?} sends: {came} bytes in {took:.2} s, at the limit they take {least:.2} s");
}

fn is_free(scene: &Scene, address: &str, sender: Sender) {
    let (took, came) = *stream(&scene.host, address, sender, MORE, Duration::from_secs(60)).last().unwrap();
    let limited = (MORE * 8) as f64 / RATE as f64;
    assert!(
        came >= MORE && took < limited / 2.0,
        "{address}, {sender:?} sends: {came} bytes in {took:.2} s, at the limit it is {limited:.0} s"
    );
}

/// The host has further addresses, in networks that are named.
fn scene() -> Scene {
    let scene = Scene::new();
    for address in ["10.2.3.1/32", "10.9.0.1/32", "fd00:22:e000::1/128", "fd00:9::1/128"] {
        scene.host.sh("", &format!("ip address add {address} dev br0 nodad"));
    }
    scene
}

const NAMED: [&str; 2] = ["10.2.3.1", "fd00:22:e000::1"];
const OTHERS: [&str; 3] = ["10.1.0.1", "10.9.0.1", "fd00:9::1"];

#[test]
fn what_is_named_is_not_held_back() {
    let scene = scene();
    let before = scene.host.traces();
    let mut keys = both(RATE, BURST);
    keys["unshapedSubnets"] = json!(["10.2.0.0/16", "fd00:22:e000::/35"]);
    let (config, result) = scene.limited(keys);
    for sender in [Sender::Container, Sender::Host] {
        NAMED.iter().for_each(|address| is_free(&scene, address, sender));
        OTHERS.iter().for_each(|address| is_limited(&scene, address, sender));
    }
    checks_and_leaves(&scene, &config, &result, &before);
}

/// The runtime says how fast, the configuration where.
#[test]
fn only_what_is_named_is_held_back() {
    let scene = scene();
    let before = scene.host.traces();
    let keys = json!({"shapedSubnets": ["10.2.0.0/16", "fd00:22:e000::/35"], "runtimeConfig": {"bandwidth": both(RATE, BURST)}});
    let (config, result) = scene.limited(keys);
    for sender in [Sender::Container, Sender::Host] {
        NAMED.iter().for_each(|address| is_limited(&scene, address, sender));
        OTHERS.iter().for_each(|address| is_free(&scene, address, sender));
    }
    checks_and_leaves(&scene, &config, &result, &before);
}

/// CHECK sees a class, a queue or a filter that is gone or changed. DEL takes away what would hold back, though the pair stays.
fn checks_and_leaves(scene: &Scene, config: &serde_json::Value, result: &serde_json::Value, before: &netloom_tests::Traces) {
    let outer = scene.outer();
    assert_eq!(scene.cni().check(config, result).code, 0);
    for (spoil, found) in [
        (
            format!("tc class change dev {outer} parent 1: classid 1:1 htb rate 2mbit burst 25000 cburst 25000 quantum 1514"),
            "Rate doesn't match",
        ),
        (format!("tc qdisc change dev {outer} parent 1:1 bfifo limit 5000"), "Limit doesn't match: 5000 bytes may be queued"),
        (format!("tc qdisc del dev {outer} parent 1:1"), "the queue of its class 1:1 is gone"),
        (format!("tc filter del dev {outer} parent 1: pref 2"), "it has lost the filter"),
        (format!("tc filter del dev {outer} parent ffff: pref 1"), "it has lost the filter"),
    ] {
        scene.host.sh("", &spoil);
        let said = scene.cni().check(config, result).message();
        assert!(said.contains(found), "{spoil}: {said}");
        // It is as it was.
        scene.cni().del(config, result);
        scene.host.run_ok("", &["tc", "qdisc", "del", "dev", &outer, "root"]);
        scene.cni().add(config);
        assert_eq!(scene.cni().check(config, result).code, 0, "{spoil}");
    }
    scene.cni().del(config, result);
    assert_eq!(scene.qdiscs(&outer), Vec::<serde_json::Value>::new());
    scene.host.expect_traces(before, "limits of some networks");
}
