//! How many files the agent may have open, and what the programs may that it starts.

use std::process::Child;

use netloom_tests::{Node, SETTINGS, netloom};
use serde_json::json;

/// The agent of a service, to which systemd gives few descriptors and allows more.
struct Limited(Child);

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The agent had as many as its service manager gave it, which many callers at a time use up. An external plugin that the agent executes
/// itself, because no runtime waits for it, gets what the agent was given: one that calls `select` breaks with more.
#[test]
fn the_agent_has_all_that_it_may_have_and_a_plugin_what_is_usual() {
    let node = Node::new(&netloom_tests::Api::shared(), "files", "");
    let script = "#!/bin/sh\n[ $CNI_COMMAND = ADD ] && echo '{\"cniVersion\":\"1.0.0\"}'\n\
        [ $CNI_COMMAND = DEL ] && echo $(ulimit -Sn) $(ulimit -Hn) >>/run/limits\nexit 0\n";
    node.host.write("/run/bin/theirs", script);
    node.host.sh("", "chmod 755 /run/bin/theirs");
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    let bin = format!("binDir: {}\n", node.bin.display());
    assert!(settings.contains(&bin), "{settings}");
    node.host.write(SETTINGS, &settings.replace(&bin, "binDir: /run/bin\n"));
    node.define("theirs", &json!({"cniVersion": "1.0.0", "name": "theirs", "type": "theirs"}).to_string());
    let mut command = node.host.command("", "prlimit");
    command.args(["--nofile=256:4096", "setpriv", "--pdeathsig", "KILL", "--"]).arg(netloom());
    let agent = Limited(command.args(["agent", "run", "--config", SETTINGS]).spawn().unwrap());
    node.until("the agent is ready", || node.status()["ready"] == json!(true));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", agent.0.id())).unwrap();
    let files: Vec<&str> = limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(files[3..5], ["4096", "4096"], "{limits}");
    let pod = node.pod("web", "theirs");
    pod.must("ADD");
    // Nobody asks for a DEL: the agent executes the plugin by itself.
    pod.remove_namespace();
    node.until("its record is gone", || node.host.list("/var/lib/netloom/sandboxes").is_empty());
    assert_eq!(std::fs::read_to_string(node.host.path("/run/limits")).unwrap(), "256 4096\n");
}
