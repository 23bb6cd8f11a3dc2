//! The backend of our own: elements that mark, and one rule of iptables that accepts what is marked.

use serde_json::json;

use crate::scene::{OUTSIDE, Scene};

#[test]
fn what_the_policy_drops_passes_for_a_container() {
    let mut scene = Scene::closed();
    scene.settle(&json!({}));
    // Without the plugin: nothing passes.
    let alone = scene.cni("c2").add(&crate::scene::network("br0"));
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
    scene.cni("c2").del(&crate::scene::network("br0"), &alone);
    scene.expect_nothing();
}
