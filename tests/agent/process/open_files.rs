//! How many files the agent may have open, and what the programs may that it starts.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;

use netloom_tests::{Node, SETTINGS, netloom};
use serde_json::json;

/// The agent of a service, to which systemd gives few descriptors and allows more; and a directory that the machine's first process sees, in
/// whose mounts the agent executes plugins.
struct Scene {
    agent: Option<Child>,
    bin: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        let _ = std::fs::remove_dir_all(&self.bin);
    }
}

/// The agent had as many as its service manager gave it, which many callers at a time use up. An external plugin that the agent executes
/// itself, because no runtime waits for it, gets what the agent was given: one that calls `select` breaks with more.
#[test]
fn the_agent_has_all_that_it_may_have_and_a_plugin_what_is_usual() {
    let node = Node::new(&netloom_tests::Api::shared(), "files", "");
    let bin = std::env::temp_dir().join(format!("netloom-open-files-{}", std::process::id()));
    std::fs::create_dir(&bin).unwrap();
    let mut scene = Scene { agent: None, bin };
    let (plugin, limits) = (scene.bin.join("theirs"), scene.bin.join("limits"));
    let script = "#!/bin/sh\n[ $CNI_COMMAND = ADD ] && echo '{\"cniVersion\":\"1.0.0\"}'\n\
        [ $CNI_COMMAND = DEL ] && echo $(ulimit -Sn) $(ulimit -Hn) >>$(dirname $0)/limits\nexit 0\n";
    std::fs::write(&plugin, script).unwrap();
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    let usual = format!("binDir: {}\n", node.bin.display());
    assert!(settings.contains(&usual), "{settings}");
    node.host.write(SETTINGS, &settings.replace(&usual, &format!("binDir: {}\n", scene.bin.display())));
    node.define("theirs", &json!({"cniVersion": "1.0.0", "name": "theirs", "type": "theirs"}).to_string());
    let mut command = node.host.command("", "prlimit");
    command.args(["--nofile=256:4096", "setpriv", "--pdeathsig", "KILL", "--"]).arg(netloom());
    let agent = scene.agent.insert(command.args(["agent", "run", "--config", SETTINGS]).spawn().unwrap());
    node.until("the agent is ready", || node.status()["ready"] == json!(true));
    let own = std::fs::read_to_string(format!("/proc/{}/limits", agent.id())).unwrap();
    let files: Vec<&str> = own.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(files[3..5], ["4096", "4096"], "{own}");
    let pod = node.pod("web", "theirs");
    pod.must("ADD");
    // Nobody asks for a DEL: the agent executes the plugin by itself.
    pod.remove_namespace();
    node.until("its record is gone", || node.host.list("/var/lib/netloom/sandboxes").is_empty());
    assert_eq!(std::fs::read_to_string(limits).unwrap(), "256 4096\n");
}
