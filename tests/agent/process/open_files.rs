//! How many files the agent may have open, and what the programs may that it starts.

use std::process::Child;

use netloom_tests::{Node, SETTINGS, netloom};
use serde_json::{Value, json};

/// The agent of a service, to which systemd gives few descriptors and allows more.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The agent had as many as its service manager gave it, which many callers at a time use up. A program that it starts gets what the agent
/// was given: one that calls `select` breaks with more. Here it is what says the API server's token (`crates/linux/src/local.rs` has plugins).
#[test]
fn the_agent_has_all_that_it_may_have_and_a_program_what_is_usual() {
    let node = Node::new(&netloom_tests::Api::shared(), "files", "");
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "admin"}});
    let script = format!("#!/bin/sh\necho $(ulimit -Sn) $(ulimit -Hn) >>/run/limits\necho '{credential}'\n");
    node.host.write("/run/credentials", &script);
    node.host.sh("", "chmod 755 /run/credentials");
    let mut kubeconfig: Value = serde_json::from_str(&node.api.kubeconfig("admin")).unwrap();
    kubeconfig["users"][0]["user"] =
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/run/credentials", "interactiveMode": "Never"}});
    node.host.write("/run/kubeconfig", &kubeconfig.to_string());
    let mut command = node.host.command("", "prlimit");
    command.args(["--nofile=256:4096", "setpriv", "--pdeathsig", "KILL", "--"]).arg(netloom());
    let agent = Service(command.args(["agent", "run", "--config", SETTINGS]).spawn().unwrap());
    node.until("the agent is ready", || node.status()["ready"] == json!(true));
    let own = std::fs::read_to_string(format!("/proc/{}/limits", agent.0.id())).unwrap();
    let files: Vec<&str> = own.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(files[3..5], ["4096", "4096"], "{own}");
    let limits = std::fs::read_to_string(node.host.path("/run/limits")).unwrap();
    assert!(!limits.is_empty() && limits.lines().all(|line| line == "256 4096"), "{limits}");
}
