//! STATUS: what could not serve an ADD says so, with the code that fits, and ADD agrees.

mod interfaces;

use netloom_tests::{Host, netloom, plugin_dir};
use serde_json::{Value, json};

fn config(kind: &str, keys: Value) -> Value {
    let mut config = keys;
    config["cniVersion"] = json!("1.1.0");
    config["name"] = json!("net");
    config["type"] = json!(kind);
    config
}

fn host_local(keys: Value) -> Value {
    let mut ipam = keys;
    ipam["type"] = json!("host-local");
    config("host-local", json!({"ipam": ipam}))
}

/// STATUS answers with this code (0: ready), and an ADD fails or succeeds as it says.
fn agrees(host: &Host, config: &Value, code: u64, says: &str) {
    let kind = config["type"].as_str().unwrap();
    let before = host.traces();
    let status = host.cni(plugin_dir()).call("STATUS", kind, config.to_string());
    host.expect_traces(&before, "STATUS");
    match code {
        0 => assert_eq!((status.code, status.stdout.as_str()), (0, ""), "{config}: {status:?}"),
        _ => {
            assert_eq!(status.error()["code"], code, "{config}: {status:?}");
            assert!(status.message().contains(says), "{config}: {status:?}");
        }
    }
    let cni = host.cni(plugin_dir()).at("c1", "eth0");
    let add = cni.call("ADD", kind, config.to_string());
    assert_eq!(add.code == 0, code == 0, "{config}: {add:?}");
    cni.del(config, &Value::Null);
}

#[test]
fn addresses() {
    let host = Host::new();
    host.container("c1");
    host.container("other");
    let small = json!({"subnet": "10.1.0.0/30"});
    agrees(&host, &host_local(small.clone()), 0, "");
    host.cni(plugin_dir()).at("other", "eth0").add(&host_local(small.clone()));
    // No address is free, and ADD says so; a runtime that heard it from STATUS would give up the node.
    let full = host_local(small);
    assert_eq!(host.cni(plugin_dir()).call("STATUS", "host-local", full.to_string()).code, 0);
    let add = host.cni(plugin_dir()).at("c1", "eth0").call("ADD", "host-local", full.to_string());
    assert!(add.error()["code"] == 11 && add.message().contains("no IP addresses available"), "{add:?}");
    host.sh("", "mkdir /run/readonly");
    host.sh("", "mount -t tmpfs -o ro none /run/readonly");
    for dir in ["/run/readonly", "/run/readonly/deep/down"] {
        agrees(&host, &host_local(json!({"subnet": "10.1.0.0/24", "dataDir": dir})), 50, "read-only");
    }
    agrees(&host, &host_local(json!({"subnet": "10.1.0.0/24", "dataDir": "/run/not/yet/there"})), 0, "");
}

#[test]
fn a_macvlans_parent() {
    let host = Host::new();
    host.container("c1");
    let macvlan = config("macvlan", json!({"master": "wire0"}));
    agrees(&host, &macvlan, 50, "no interface \"wire0\"");
    host.sh("", "ip link add wire0 type veth peer name wire1");
    host.sh("", "ip link set wire0 up");
    host.sh("", "ip link set wire1 up");
    agrees(&host, &macvlan, 0, "");
    // An ADD would succeed, but what is attached has lost its connection.
    let cni = host.cni(plugin_dir()).at("c1", "eth0");
    cni.add(&macvlan);
    host.sh("", "ip link set wire0 down");
    // The kernel tells the interfaces above in its own time.
    netloom_tests::until("the interface is told", || host.link("c1", "eth0").unwrap().0["operstate"] != "UP");
    let status = cni.call("STATUS", "macvlan", macvlan.to_string());
    assert_eq!(status.error()["code"], 51, "{status:?}");
    assert!(status.message().contains("ip link set wire0 up"), "{status:?}");
}

/// Whoever asks gets the code of the plugin that is not available: a runtime of its plugin, a plugin of its IPAM plugin.
#[test]
fn codes_arrive_unchanged() {
    let host = Host::new();
    host.write(
        "/run/bin/gone",
        "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND = STATUS ] || exit 0\nprintf '{\"code\":%s,\"msg\":\"I am away\"}' $(cat /run/code)\nexit 1\n",
    );
    host.run("", &["chmod", "+x", "/run/bin/gone"]);
    let alone = json!({"cniVersion": "1.1.0", "name": "alone", "plugins": [{"type": "loopback"}, {"type": "gone"}]});
    let ipam = json!({"cniVersion": "1.1.0", "name": "ipam", "plugins": [{"type": "bridge", "ipam": {"type": "gone"}}]});
    let old = json!({"cniVersion": "1.0.0", "name": "old", "plugins": [{"type": "gone"}]});
    for list in [&alone, &ipam, &old] {
        host.write(&format!("/etc/cni/net.d/{}.conflist", list["name"].as_str().unwrap()), &list.to_string());
    }
    let status = |network: &str| {
        let mut command = host.command("", netloom());
        let out = command.args(["cni", "status", network]).env("CNI_PATH", "/run/bin").output().unwrap();
        (out.status.code().unwrap(), serde_json::from_slice::<Value>(&out.stdout).unwrap_or_default())
    };
    for code in [50, 51, 120] {
        host.write("/run/code", &code.to_string());
        for network in ["alone", "ipam"] {
            let (exit, error) = status(network);
            assert_eq!((exit, &error["code"], &error["msg"]), (1, &json!(code), &json!("I am away")), "{network}");
        }
        assert_eq!(status("old"), (0, Value::Null), "versions before 1.1.0 cannot be asked");
    }
}

/// Whether a bridge can keep VLANs apart, where there is none yet: as `ip` finds it by making one.
#[test]
fn a_kernel_without_vlans_of_bridges() {
    let host = Host::new();
    host.container("c1");
    host.container("elsewhere");
    let filters = host.run_ok("elsewhere", &["ip", "link", "add", "x", "type", "bridge", "vlan_filtering", "1"]);
    let code = if filters { 0 } else { 50 };
    agrees(&host, &config("bridge", json!({"vlan": 5})), code, "CONFIG_BRIDGE_VLAN_FILTERING");
    agrees(&host, &config("bridge", json!({"bridge": "other"})), 0, "");
}
