//! The results' text, byte for byte that of the reference plugins, in every version of the specification.

use std::path::Path;

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

/// A machine with a wire.
fn machine() -> Host {
    let host = Host::new();
    host.sh("", "ip link add wire0 type veth peer name wire1");
    host.sh("", "ip link set wire0 up");
    host.sh("", "ip link set wire1 up");
    host
}

/// What an ADD of a new container prints, or the code of its error.
fn printed(host: &Host, dir: &Path, container: &str, ifname: &str, plugin: &str, config: &str) -> Result<String, u64> {
    host.container(container);
    let outcome = host.cni(dir).at(container, ifname).call("ADD", plugin, config);
    match outcome.code {
        0 => Ok(normal(&outcome.stdout)),
        _ => Err(serde_json::from_str::<Value>(&outcome.stdout).unwrap()["code"].as_u64().unwrap()),
    }
}

/// Without what differs from run to run: hardware addresses that were not asked for, and generated names; and without the
/// interface's MTU, which ours tell and the reference plugins do not.
fn normal(text: &str) -> String {
    let line = |line: &str| {
        let key = line.trim().split(':').next().unwrap_or_default();
        match key {
            "\"mac\"" if !line.contains("02:00:00:00:00:09") && !line.contains("00:00:00:00:00:00") => "MAC".to_owned(),
            "\"name\"" if line.contains("\"veth") => "VETH".to_owned(),
            _ => line.to_owned(),
        }
    };
    text.split('\n').filter(|line| !line.trim().starts_with("\"mtu\"")).map(line).collect::<Vec<_>>().join("\n")
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
            let config = config.to_string();
            let one = |dir| printed(&machine(), dir, "c1", ifname, plugin, &config);
            let (ours, theirs) = (one(plugin_dir()), one(peers_dir()));
            if ours != theirs {
                differ.push(format!("{config}\nours: {}\ntheirs: {}", show(&ours), show(&theirs)));
            }
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n\n"));
}

/// A key that is there twice, in whatever case: objects go over each other key by key, anything else is replaced.
#[test]
fn equal_keys_are_read_as_the_reference_plugins_read_them() {
    let (our_host, their_host) = (machine(), machine());
    let mut differ = Vec::new();
    for (i, (plugin, keys)) in [
        ("host-local", r#""ipam": {"type": "host-local"}, "IPAM": {"subnet": "10.1.0.0/24"}"#),
        ("host-local", r#""ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}, "ipam": {"subnet": "10.1.0.0/24"}"#),
        ("static", r#""ipam": {"type": "static", "addresses": [{"address": "10.1.0.2/24"}], "dns": {"domain": "x", "Domain": null}}"#),
        (
            "host-local",
            r#""ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "10.7.0.0/16", "gw": "10.1.0.1"}], "Routes": [{"dst": "10.6.0.0/16"}]}"#,
        ),
        (
            "host-local",
            r#""ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}, "runtimeConfig": {"ips": ["10.1.0.9"]}, "RUNTIMECONFIG": {}"#,
        ),
        (
            "host-local",
            r#""ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]], "RANGES": [[{"subnet": "10.2.0.0/24"}]]}"#,
        ),
        (
            "static",
            r#""ipam": {"type": "static", "addresses": [{"address": "10.1.0.2/24"}], "dns": {"domain": "x"}, "DNS": {"search": ["y"]}}"#,
        ),
        (
            "static",
            r#""ipam": {"type": "static"}, "args": {"cni": {"ips": ["10.1.0.2/24", "10.2.0.2/24"]}}, "ARGS": {"Cni": {"ips": ["10.3.0.2/24"]}}"#,
        ),
        ("static", r#""ipam": {"type": "static"}, "args": {"cni": {"ips": ["10.1.0.2/24"]}}, "ARGS": {"Cni": {}}"#),
        ("bridge", r#""bridge": "br0", "BRIDGE": "br1", "ipam": {"type": "host-local"}, "IPAM": {"subnet": "10.1.0.0/24"}"#),
        ("bridge", r#""ipam": {"type": "nosuch"}, "IPAM": {"type": "static"}, "Ipam": {"addresses": [{"address": "10.1.0.2/24"}]}"#),
        (
            "bridge",
            r#""runtimeConfig": {"mac": "02:00:00:00:00:09"}, "RuntimeConfig": {"x": 1}, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}"#,
        ),
        (
            "macvlan",
            r#""master": "wire0", "ipam": {"type": "host-local"}, "IPAM": {"subnet": "10.1.0.0/24"}, "dns": {"domain": "x"}, "Dns": {"search": ["y"]}"#,
        ),
        ("macvlan", r#""master": "wire0", "ipam": {"type": "host-local"}, "IPAM": 7"#),
    ]
    .into_iter()
    .enumerate()
    {
        let config = format!(r#"{{"cniVersion": "1.0.0", "name": "net{i}", "type": "{plugin}", {keys}}}"#);
        let one = |host: &Host, dir| printed(host, dir, &format!("c{i}"), "eth0", plugin, &config);
        let (ours, theirs) = (one(&our_host, plugin_dir()), one(&their_host, peers_dir()));
        if ours.as_ref().ok() != theirs.as_ref().ok() {
            differ.push(format!("{config}\nours: {}\ntheirs: {}", show(&ours), show(&theirs)));
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
