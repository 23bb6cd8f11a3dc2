//! `netloom rules`: guards in words and for programs.

use netloom_tests::netloom;
use serde_json::{Value, json};

use crate::Scene;

#[test]
fn guards_are_told_with_what_they_have_dropped() {
    let scene = Scene::new();
    let one = scene.attach("c1", json!({}));
    let (port, mac) = (one.port(), one.mac());
    let rules = |args: &[&str]| {
        let program = netloom().to_str().unwrap();
        scene.host.run("", &[&[program, "rules", "--socket", "/nowhere"], args].concat())
    };
    let line = format!("  spoofing   {port} sends from {mac} alone; 0 frames from others dropped");
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
