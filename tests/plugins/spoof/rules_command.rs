//! `netloom rules`: guards in words and for programs.

use netloom_tests::netloom;
use serde_json::{Value, json};

use crate::spoof::Scene;

#[test]
fn guards_are_told_with_what_they_have_dropped() {
    let scene = Scene::new();
    let one = scene.attach("c1", json!({}));
    let (port, mac) = (one.port(), one.mac());
    let rules = |args: &[&str]| {
        let program = netloom().to_str().unwrap();
        scene.host.run("", &[&[program, "rules", "--socket", "/nowhere"], args].concat())
    };
    let line = format!("  spoofing   {port} sends from {mac} only; 0 frames from others dropped");
    assert!(rules(&[]).lines().any(|l| l == line), "{line}\n{}", rules(&[]));
    scene.host.sh("c1", "ip link set eth0 address 02:00:00:00:be:ef");
    assert!(scene.host.silent("c1", "10.1.0.1"));
    // Until it is looked at there may be one more.
    scene.host.until("all are told that nft tells", || {
        let dropped = scene.dropped(&one);
        let told: Value = serde_json::from_str(&rules(&["-o", "json"])).unwrap();
        let guard = told.as_array().unwrap().iter().find(|r| r["kind"] == "spoofGuard").unwrap().clone();
        assert_eq!((&guard["port"], &guard["mac"], &guard["container"]), (&json!(port), &json!(mac), &json!("c1")), "{told}");
        dropped > 0 && guard["droppedFrames"] == dropped && scene.dropped(&one) == dropped
    });
    scene.detach(&one);
    assert!(!rules(&[]).contains(port));
    scene.expect_nothing();
}

#[test]
fn limits_are_told_with_whose_they_are() {
    let scene = Scene::new();
    let rules = |args: &[&str]| {
        let program = netloom().to_str().unwrap();
        scene.host.run("", &[&[program, "rules", "--socket", "/nowhere"], args].concat())
    };
    assert!(rules(&[]).starts_with("no attachment has firewall entries here"), "{}", rules(&[]));
    let (one, two) = (scene.attach("c1", json!({})), scene.attach("c2", json!({"macspoofchk": false})));
    let limit = |attached: &crate::spoof::Attached, keys: Value| {
        let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "prevResult": attached.result});
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let result = scene.cni(attached.container).add(&config);
        (config, result)
    };
    let both =
        limit(&one, json!({"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 1_500_000_000, "egressBurst": 80_000_000}));
    let partly = limit(
        &two,
        json!({"ingressRate": 100_000, "ingressBurst": 800_000, "egressRate": 64_000, "egressBurst": 800_000,
        "unshapedSubnets": ["10.9.0.0/16"]}),
    );
    let text = rules(&[]);
    let (first, second) = (format!("container c1 eth0 on net\n  spoofing   {}", one.port()), format!("link {}\n", two.port()));
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
    assert!(at(&first) < at(&second), "{text}");
    for (after, line) in [
        (&first, "\n  shaping    receives at most 8 Mbit/s, bursts of 800 kbit\n"),
        (&first, "\n  shaping    sends at most 1.5 Gbit/s, bursts of 80 Mbit\n"),
        (&second, "\n  shaping    receives at most 100 kbit/s, bursts of 800 kbit, not for all networks\n"),
        (&second, "\n  shaping    sends at most 64 kbit/s, bursts of 800 kbit, not for all networks\n"),
    ] {
        assert_eq!(at(line) > at(&second), after == &second, "{line}{text}");
    }
    let told: Value = serde_json::from_str(&rules(&["-o", "json", "c1"])).unwrap();
    let told = told.as_array().unwrap();
    assert!(told.len() == 3 && told.iter().all(|r| r["container"] == "c1"), "{told:?}");
    let sends = told.iter().find(|r| r["direction"] == "egress").unwrap();
    assert_eq!((&sends["rate"], &sends["everything"], &sends["link"]), (&json!(1_500_000_000), &json!(true), &json!(one.port())));
    assert!(rules(&["nobody"]).starts_with("nobody has no firewall entries here"));
    scene.cni("c1").del(&both.0, &both.1);
    scene.cni("c2").del(&partly.0, &partly.1);
    [&one, &two].iter().for_each(|a| scene.detach(a));
    scene.expect_nothing();
}
