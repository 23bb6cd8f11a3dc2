//! What a caller could see differ from the reference plugins, each point with both beside each other.

use netloom_tests::{Cni, Host, netloom, peers_dir, plugin_dir};
use serde_json::{Value, json};

/// Who is called, for messages, and how.
fn both(host: &Host) -> [(&'static str, Cni<'_>); 2] {
    [("reference", peers_dir()), ("ours", plugin_dir())].map(|(who, dir)| (who, host.cni(dir).at("c1", "eth0")))
}

/// What is wrong with the configuration is told before the namespace is looked for.
#[test]
fn dummy_asks_for_ipam_before_it_asks_for_the_namespace() {
    let host = Host::new();
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "dummy"});
    for (who, cni) in both(&host) {
        for verb in ["ADD", "CHECK"] {
            let outcome = cni.call(verb, "dummy", config.to_string());
            assert!(outcome.stdout.contains("\"dummy interface requires an IPAM configuration"), "{who} {verb}: {outcome:?}");
        }
    }
    host.write("/etc/cni/net.d/net.conf", &config.to_string());
    let mut command = host.command("", netloom());
    let output = command.args(["cni", "add", "net", "/run/netns/none"]).env_remove("CNI_PATH").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("dummy interface requires an IPAM configuration"), "{output:?}");
}
