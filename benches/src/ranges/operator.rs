//! The operator as released.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::machine::computed;

/// The operator's process, gone with this.
pub(super) struct Operator {
    process: Child,
    log: PathBuf,
}

// === impl Operator ===

impl Operator {
    /// Starts one with its defaults, alone in its cluster.
    pub(super) fn start(program: &Path, dir: &Path, kubeconfig: &Path) -> Result<Self> {
        let log = dir.join("operator.log");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(["operator", "--no-lease", "--identity", "bench", "--kubeconfig"]);
        command.arg(kubeconfig).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).context("the operator's log")?);
        let process = command.spawn().with_context(|| format!("start {} (`make` builds it)", program.display()))?;
        Ok(Operator { process, log })
    }

    pub(super) fn computed(&self) -> Result<Duration> {
        computed(self.process.id())
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Err(e) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("bench: end the operator: {e}");
        }
    }
}
