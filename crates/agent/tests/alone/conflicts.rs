//! A machine outside has an address of a pool of the cluster: the agent tells whose it is.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::{World, add, grant, granted, known, status, store, until, world};
use crate::api::Api;

const MAC: &str = "02:00:00:00:00:77";

/// A namespace on the node's bridge that has an address, and that nobody knows.
fn outside(world: &World, address: &str) {
    let name = |of: &str| world.netns(of).file_name().unwrap().to_str().unwrap().to_owned();
    let (node, out) = (name("node"), name("out"));
    world.sandbox("out");
    for line in [
        format!("-n {node} link add pods0 up type bridge"),
        format!("-n {node} link add out0 up master pods0 type veth peer name eth0 netns {out} address {MAC}"),
        format!("-n {out} addr add {address} dev eth0"),
        format!("-n {out} link set eth0 up"),
    ] {
        assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "{line}");
    }
}

#[test]
fn a_machine_outside_is_told_of() {
    let store = store();
    let terms = json!({"conflictDetection": "probe", "scaling": {"minAllocate": 0, "preAllocate": 0, "maxAllocate": 0,
        "maxAboveWatermark": 0, "releaseDelaySeconds": 1_000_000}});
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, terms));
    let mut world = world(&store);
    outside(&world, "10.20.0.0/32");
    assert_eq!(add(&store, &world, "web"), ["10.20.0.1/16", "fd00:20::/64"]);
    until(
        "the Event",
        || Api::events(&store, "web"),
        |events| {
            events.iter().any(|(kind, reason, message)| {
                kind == "Warning" && reason == "AddressConflict" && message.contains("10.20.0.0") && message.contains(MAC)
            })
        },
    );
    let problem = json!([{"ip": "10.20.0.0", "pool": "a", "reason": "Conflict"}]);
    until("the problem", || status(&store)["problems"].clone(), |problems| *problems == problem);
    // It holds over a restart, and nobody is told again.
    world.restart_agent(&store);
    known(&store, &world, "second");
    let second = world.ok("ADD", "second");
    assert_eq!(second["ips"][0]["address"], "10.20.0.2/16");
    assert!(world.agent().told(Duration::from_secs(60)));
    assert!(Api::events(&store, "second").is_empty());
    world.ok("DEL", "second");
    world.ok("DEL", "web");
}
