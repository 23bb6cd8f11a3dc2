//! Network namespaces of a measurement: named `nlb-PID-...`, made and removed by `ip netns`, gone when dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns};

const PREFIX: &str = "nlb-";
const DIR: &str = "/run/netns";

/// A network namespace that is removed when this is dropped, so also when a round fails or panics.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

// === impl Namespace ===

impl Namespace {
    /// `ip netns add nlb-PID-SUFFIX`.
    pub(crate) fn make(suffix: &str) -> Result<Self> {
        let name = format!("{PREFIX}{}-{suffix}", std::process::id());
        ip(&["netns", "add", &name])?;
        Ok(Namespace { name })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What `CNI_NETNS` says.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new(DIR).join(&self.name)
    }

    /// Runs a closure on a thread in this namespace; the processes that it starts are in it too. Without an `ip netns
    /// exec` in between nothing but the process itself is timed.
    pub(crate) fn enter<T: Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let file = File::open(self.path()).with_context(|| format!("open {}", self.path().display()))?;
        let work = move || {
            setns(file, CloneFlags::CLONE_NEWNET).context("enter a namespace (are you root?)")?;
            f()
        };
        thread::scope(|scope| scope.spawn(work).join()).map_err(|_| anyhow!("a thread in namespace {} panicked", self.name))?
    }

    /// The calling thread is in it from now on, and so is what it starts.
    pub(crate) fn join(&self) -> Result<()> {
        let file = File::open(self.path()).with_context(|| format!("open {}", self.path().display()))?;
        setns(file, CloneFlags::CLONE_NEWNET).context("enter a namespace (are you root?)")
    }

    /// `ip -n NAME ARGS`
    pub(crate) fn ip(&self, args: &[&str]) -> Result<String> {
        ip(&[&["-n", &self.name], args].concat())
    }

    /// The index of a link in it.
    pub(crate) fn index(&self, link: &str) -> Result<u32> {
        let line = self.ip(&["-oneline", "link", "show", link])?;
        line.split(':').next().and_then(|n| n.trim().parse().ok()).with_context(|| format!("no index in {line:?}"))
    }

    /// The names of the links of a kind in it (`ip link show type KIND`).
    pub(crate) fn links(&self, kind: &str) -> Result<Vec<String>> {
        let output = self.ip(&["-brief", "link", "show", "type", kind])?;
        Ok(output.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(e) = ip(&["netns", "del", &self.name]) {
            eprintln!("bench: {e:#}");
        }
    }
}

/// Removes what a measurement left that was killed: namespaces of our prefix whose process is no more.
pub(crate) fn sweep() -> Result<()> {
    let Ok(entries) = std::fs::read_dir(DIR) else { return Ok(()) };
    for entry in entries {
        let name = entry.context(DIR)?.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            ip(&["netns", "del", &name])?;
        }
    }
    Ok(())
}

fn ip(args: &[&str]) -> Result<String> {
    let command = format!("ip {}", args.join(" "));
    let output = Command::new("ip").args(args).output().with_context(|| format!("run `{command}`"))?;
    if !output.status.success() {
        bail!("`{command}`: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
