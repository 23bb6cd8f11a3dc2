//! kube-proxy on a node: Services for who wants them.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Node, PATIENCE};
use crate::ControlPlane;

const KUBECONFIG: &str = "/etc/kubernetes/proxy.kubeconfig";

impl Node {
    /// Starts kube-proxy in a mode, `nftables` or `iptables`; one that runs in another mode is ended, and its rules are removed.
    ///
    /// # Errors
    /// If it does not serve within a minute, or ends: with the end of its log.
    pub fn start_proxy(&mut self, control: &ControlPlane, mode: &str) -> Result<()> {
        if let Some(mut before) = self.proxy.take() {
            before.stop(PATIENCE)?;
            self.run(&[&self.program.display().to_string(), "proxy", "--cleanup"])?;
        }
        let config = std::fs::read_to_string(control.kubeconfig()).context("the administrator's kubeconfig")?;
        self.write(KUBECONFIG, config.replace(&control.ca().display().to_string(), "/etc/kubernetes/ca.crt"))?;
        let mut command = self.den.command(&self.program);
        command.args(["proxy", "--kubeconfig", KUBECONFIG, "--proxy-mode", mode, "--hostname-override", &self.name]);
        // The kernel's own, for the whole machine.
        command.args(["--conntrack-max-per-core=0", "--conntrack-min=0"]);
        command.args(["--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s"]);
        let mut process = self.daemon("proxy", command)?;
        let ready = || self.try_run(&["curl", "-sfo", "/dev/null", "http://127.0.0.1:10256/healthz"]).is_ok_and(|o| o.status.success());
        process.until("it serves /healthz", PATIENCE, Duration::from_millis(100), ready)?;
        self.proxy = Some(process);
        Ok(())
    }
}
