//! A link that a definition made, and that looks as if nobody used it, while somebody is about to.

use std::time::Instant;

use linux::{Inside, NetnsLock};
use netloom_tests::{Host, plugin_dir};
use serde_json::json;

/// The parent of a pod's link was removed between the look for it and the link that stands on it.
#[test]
fn nobody_removes_the_parent_of_a_link_that_is_being_made() {
    let host = Host::new();
    host.container("pod");
    host.sh("", "ip link add br0 up type bridge");
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "br0",
        "ipam": {"type": "static", "addresses": [{"address": "10.1.0.2/24"}]}});
    let alone = || host.within("", || NetnsLock::alone(&Inside::here(), Instant::now()).is_some());
    for (point, is_locked) in [("parent-found", true), ("single-made", false)] {
        assert!(alone());
        let at = || host.cni(plugin_dir()).at("pod", "eth0");
        let child = at().set("NETLOOM_CRASH_STOP", point).start("ADD", "macvlan", config.to_string());
        let stat = format!("/proc/{}/stat", child.id());
        // The state comes after the name, which is in parentheses.
        let state = || std::fs::read_to_string(&stat).ok().and_then(|s| s.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()));
        host.until(&format!("it stands at {point}"), || state() == Some('T'));
        assert_eq!(alone(), !is_locked, "{point}");
        host.run("", &["kill", "-CONT", &child.id().to_string()]);
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{point}: {ended:?}");
        at().call("DEL", "macvlan", config.to_string()).silent();
    }
}
