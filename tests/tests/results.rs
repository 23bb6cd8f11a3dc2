//! The results' text, byte for byte that of the reference plugins, in every version of the specification.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use netloom_tests::{Host, peers_dir, plugin_dir};
use serde_json::{Value, json};

const VERSIONS: [&str; 6] = ["0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

fn networks() -> Vec<(&'static str, &'static str, Value)> {
    let dual = json!([[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]);
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.1.0.1"}]);
    let dns = json!({"nameservers": ["10.1.0.1"], "domain": "example.org", "search": ["example.org"], "options": ["ndots:5"]});
    let host_local = json!({"type": "host-local", "ranges": dual, "routes": routes});
    // The reference bridge fails where IPAM's default route names no next hop and isDefaultGateway adds its own.
    let beside = json!({"type": "host-local", "ranges": dual, "routes": [routes[1]]});
    let fixed = json!({"type": "static", "addresses": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}], "routes": routes, "dns": dns});
    vec![
        ("eth0", "bridge", json!({"bridge": "br0", "isDefaultGateway": true, "ipam": beside})),
        ("eth0", "bridge", json!({"bridge": "br0", "isGateway": true, "ipam": fixed})),
        (
            "eth0",
            "bridge",
            json!({"bridge": "br0", "runtimeConfig": {"mac": "02:00:00:00:00:09"}, "dns": dns, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}),
        ),
        ("eth0", "macvlan", json!({"master": "wire0", "mtu": 1400, "ipam": host_local})),
        ("lo", "loopback", json!({})),
        ("eth0", "host-local", json!({"ipam": host_local})),
        ("eth0", "static", json!({"ipam": fixed})),
    ]
}

/// What an ADD on a new machine prints, or that it failed.
fn printed(theirs: bool, ifname: &str, plugin: &str, config: &Value) -> Result<String, u64> {
    let host = Host::new();
    host.container("c1");
    host.sh("", "ip link add wire0 type veth peer name wire1");
    host.sh("", "ip link set wire0 up");
    host.sh("", "ip link set wire1 up");
    let dir = if theirs { peers_dir() } else { plugin_dir() };
    let outcome = host.cni(dir).at("c1", ifname).call("ADD", plugin, config.to_string());
    match outcome.code {
        0 => Ok(normal(&outcome.stdout)),
        _ => Err(serde_json::from_str::<Value>(&outcome.stdout).unwrap()["code"].as_u64().unwrap()),
    }
}

/// Without what differs from run to run: hardware addresses that were not asked for, and generated names.
fn normal(text: &str) -> String {
    let line = |line: &str| {
        let key = line.trim().split(':').next().unwrap_or_default();
        match key {
            "\"mac\"" if !line.contains("02:00:00:00:00:09") && !line.contains("00:00:00:00:00:00") => "MAC".to_owned(),
            "\"name\"" if line.contains("\"veth") => "VETH".to_owned(),
            _ => line.to_owned(),
        }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn texts_are_the_reference_plugins() {
    let mut differ = Vec::new();
    for (ifname, plugin, keys) in networks() {
        // The reference `loopback` prints the newest version's result whatever the configuration's version is.
        for version in VERSIONS.into_iter().filter(|v| plugin != "loopback" || *v > "1") {
            let mut config = keys.clone();
            config["cniVersion"] = json!(version);
            config["name"] = json!("net");
            config["type"] = json!(plugin);
            let (ours, theirs) = (printed(false, ifname, plugin, &config), printed(true, ifname, plugin, &config));
            if ours != theirs {
                differ.push(format!("{config}\nours: {}\ntheirs: {}", show(&ours), show(&theirs)));
            }
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n\n"));
}

fn show(printed: &Result<String, u64>) -> String {
    match printed {
        Ok(text) => text.clone(),
        Err(code) => format!("an error of code {code}"),
    }
}
