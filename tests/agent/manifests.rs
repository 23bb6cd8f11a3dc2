//! `netloom agent run --manifests`: an agent without a cluster, whose pods stand in files.

use std::process::Command;

use netloom_tests::{Host, Outcome, Running, SETTINGS, SOCKET, ips, netloom, plugin_dir};
use serde_json::json;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: x}]}\n";
const POOL: &str = r#"{"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "lab"},
    "spec": {"ipv4": {"entries": [{"cidr": "10.9.0.0/24"}], "gateway": "10.9.0.1"}, "reuse": {"cooldownSeconds": 0}}}"#;

/// The pod's agent, on these manifests besides its own.
fn agent(host: &Host, more: &[&str]) -> Command {
    let mut command = host.command("", netloom());
    command.args(["agent", "run", "--config", SETTINGS, "--manifests", "/run/pods.yaml"]).args(more);
    command
}

fn call(host: &Host, verb: &str) -> Outcome {
    let config = r#"{"cniVersion":"1.0.0","name":"cluster","type":"netloom","agentWait":"60s"}"#;
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web";
    host.cni(plugin_dir()).at("c1", "eth0").set("CNI_ARGS", args).call(verb, "netloom", config)
}

/// The host's own pools are files; an IPPool among the manifests is refused by the name of its file.
#[test]
fn pools_are_the_hosts_files() {
    let host = Host::new();
    host.container("c1");
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {"type": "pool", "pool": "lab", "pools": "/var/lib/pools", "addWait": 0}});
    let bin = plugin_dir().display();
    host.write(SETTINGS, &format!("nodeName: here\nbinDir: {bin}\ninstall: never\ndelegates:\n- {network}\n"));
    host.write("/run/pods.yaml", POD);
    host.write("/run/pool.yaml", POOL);
    let refused = agent(&host, &["--manifests", "/run/pool.yaml"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("IPPool \"lab\" cannot be used here"), "{refused:?}");
    assert!(said.contains("write it to /etc/netloom/pools/lab.json"), "{said}");
    host.write("/var/lib/pools/lab.json", POOL);
    let running = Running::start(&mut agent(&host, &[]));
    host.until("the agent serves", || host.path(SOCKET).exists());
    let added = call(&host, "ADD");
    assert_eq!(added.code, 0, "{added:?}");
    assert_eq!(ips(&added.result()), ["10.9.0.2"]);
    assert!(host.pings("c1", "10.9.0.1"));
    let deleted = call(&host, "DEL");
    assert_eq!(deleted.code, 0, "{deleted:?}");
    drop(running);
}

/// An agent that is started again on the same manifests has the same pods.
#[test]
fn what_is_attached_stays() {
    let host = Host::new();
    host.container("c1");
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}});
    let bin = plugin_dir().display();
    host.write(SETTINGS, &format!("nodeName: here\nbinDir: {bin}\ninstall: never\ndelegates:\n- {network}\n"));
    host.write("/run/pods.yaml", POD);
    let begun = |log: &str| {
        let file = std::fs::File::create(host.path(log)).unwrap();
        let running = Running::with_log(&mut agent(&host, &[]), file);
        host.until("the agent has compared", || std::fs::read_to_string(host.path(log)).unwrap().contains("reconcile sandboxes="));
        running
    };
    let running = begun("/run/first.log");
    let added = call(&host, "ADD");
    assert_eq!(added.code, 0, "{added:?}");
    drop(running);
    let running = begun("/run/second.log");
    let log = std::fs::read_to_string(host.path("/run/second.log")).unwrap();
    assert!(log.contains("reconcile sandboxes=1 detached=0"), "{log}");
    assert!(host.pings("c1", "10.9.0.1"));
    let deleted = call(&host, "DEL");
    assert_eq!(deleted.code, 0, "{deleted:?}");
    drop(running);
}
