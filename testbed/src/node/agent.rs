//! The agent on a node: installed as the manual says, run as a daemon.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use super::{Node, PATIENCE};
use crate::ControlPlane;

/// Where an agent has its settings, and what they name.
const SETTINGS: &str = "/etc/netloom/agent.yaml";
const KUBECONFIG: &str = "/etc/netloom/kubeconfig";
const TOKEN: &str = "/etc/netloom/token";

/// Networks that every node with an agent has on its disk, as macvlans of `eth1`, and where their addresses are.
const NETWORKS: [(&str, &str); 2] = [("storage", "10.245"), ("backup", "10.246")];

impl Node {
    /// Puts what an agent needs on the node: its token, kubeconfig and settings, `netloom-cni` and the runtime's
    /// configuration, by `netloom agent install`. `settings` are lines of YAML, which name the default network. The node's disk gets the networks `storage` and `backup`, for definitions of these names
    /// without a configuration. The API server must allow it: [`ControlPlane::allow_agents`].
    ///
    /// Returns what the installation has said.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn install_agent(&self, control: &ControlPlane, netloom_cni: &Path, settings: &str) -> Result<String> {
        self.write(TOKEN, control.agent_token(&self.name)?)?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "testbed",
            "clusters": [{"name": "testbed", "cluster": {"server": control.url(), "certificate-authority": "/etc/kubernetes/ca.crt"}}],
            "users": [{"name": "agent", "user": {"tokenFile": TOKEN}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "agent"}}],
        });
        self.write(KUBECONFIG, format!("{config:#}"))?;
        let own = format!("kubeconfig: {KUBECONFIG}\nhealthAddress: 127.0.0.1:9180\n");
        self.write(SETTINGS, format!("{own}{settings}"))?;
        for (name, prefix) in NETWORKS {
            self.write(&format!("/etc/cni/multus/net.d/{name}.conflist"), self.macvlan(name, prefix))?;
        }
        self.netloom(&["agent", "install", "--from", &netloom_cni.display().to_string()])
    }

    /// One network for all nodes; each gives addresses of its own, those of `10.245.N.0/24` on the Nth.
    fn macvlan(&self, name: &str, prefix: &str) -> String {
        let (start, end) = (format!("{prefix}.{}.1", self.number), format!("{prefix}.{}.254", self.number));
        let range = json!({"subnet": format!("{prefix}.0.0/16"), "rangeStart": start, "rangeEnd": end});
        let ipam = json!({"type": "host-local", "ranges": [[range]]});
        let plugin = json!({"type": "macvlan", "master": "eth1", "mode": "bridge", "ipam": ipam});
        format!("{:#}\n", json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]}))
    }

    /// Runs `netloom` on the node, with the agent's settings at their place.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn netloom(&self, args: &[&str]) -> Result<String> {
        let program = self.netloom.display().to_string();
        self.run(&[&[program.as_str()], args].concat())
    }

    /// Starts the agent if it does not run, and waits until it answers.
    ///
    /// # Errors
    /// If it does not within a minute, or ends: with the end of its log.
    pub fn start_agent(&mut self) -> Result<()> {
        if self.agent.as_mut().is_some_and(|process| process.alive().is_ok()) {
            return Ok(());
        }
        if !self.netloom.is_file() {
            bail!("{} is missing: run `cargo build -p netloom`", self.netloom.display());
        }
        let mut command = self.command(&self.netloom.display().to_string());
        command.args(["agent", "run"]);
        let mut process = self.daemon("agent", command)?;
        // Exit code 3 is an agent that answers, and waits for something else.
        let answers = || self.try_run(&[&self.netloom.display().to_string(), "status"]).is_ok_and(|o| o.status.code() != Some(1));
        process.until("it answers", PATIENCE, Duration::from_millis(50), answers)?;
        self.agent = Some(process);
        Ok(())
    }

    /// Ends the agent with SIGTERM, if it runs: calls that it serves end, those that come wait for the next one.
    ///
    /// # Errors
    /// If it does not end by itself.
    pub fn stop_agent(&mut self) -> Result<()> {
        let Some(mut process) = self.agent.take() else { return Ok(()) };
        if !process.stop(PATIENCE)? {
            bail!("the agent had to be killed; the end of {}:\n{}", process.log().display(), process.tail());
        }
        Ok(())
    }

    /// Ends the agent with SIGKILL, if it runs.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill_agent(&mut self) -> Result<()> {
        self.agent.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Ends the agent and starts it again.
    ///
    /// # Errors
    /// As [`Node::start_agent`] and [`Node::stop_agent`].
    pub fn restart_agent(&mut self) -> Result<()> {
        self.stop_agent()?;
        self.start_agent()
    }

    /// What every agent of the node has said.
    ///
    /// # Errors
    /// If none ran.
    pub fn agent_log(&self) -> Result<String> {
        self.said("agent")
    }
}
