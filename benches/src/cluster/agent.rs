//! A node's agent as released, and the runtime's way to it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::machine::computed;

/// How long it may take to start, and afterwards to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The agent's process: in the network namespace of the thread that started it, and gone with it.
pub(crate) struct Agent {
    process: Child,
    dir: PathBuf,
}

/// What it has of memory, in KiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) peak: u64,
    /// What is no file's: the rest is its executable.
    pub(crate) anonymous: u64,
}

// === impl Agent ===

impl Agent {
    /// Starts that of a node with settings that are the defaults, but for directories of its own and the keys of this network.
    pub(crate) fn start(program: &Path, dir: &Path, kubeconfig: &Path, network: &Value, node: &str) -> Result<Self> {
        for name in ["run", "state", "plugins", "bin"] {
            fs::create_dir_all(dir.join(name)).context("the agent's directories")?;
        }
        let mut settings = json!({
            "nodeName": node, "kubeconfig": kubeconfig, "install": "never",
            "socketDir": dir.join("run"), "stateDir": dir.join("state"), "pluginStateDir": dir.join("plugins"), "binDir": dir.join("bin"),
        });
        if let (Some(settings), Some(network)) = (settings.as_object_mut(), network.as_object()) {
            settings.extend(network.clone());
        }
        let file = dir.join("agent.yaml");
        fs::write(&file, settings.to_string()).context("write the agent's settings")?;
        let log = File::create(dir.join("agent.log")).context("the agent's log")?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(["agent", "run", "--config"]).arg(&file);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let process = process.with_context(|| format!("start {} (`make` builds it)", program.display()))?;
        let mut agent = Agent { process, dir: dir.to_owned() };
        agent.until(|agent| agent.socket().exists())?;
        Ok(agent)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("run/agent.sock")
    }

    /// Waits for something of it.
    pub(crate) fn until(&mut self, done: impl Fn(&Self) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            if let Some(status) = self.process.try_wait().context("wait for the agent")? {
                bail!("the agent has ended, {status}: {}", self.log());
            }
            if Instant::now() > end {
                bail!("the agent does not do what it should within {PATIENCE:?}: {}", self.log());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// How many sandboxes it has records of: a DEL is at its very end when there is none.
    pub(crate) fn records(&self) -> usize {
        fn files(dir: &Path) -> usize {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries
                .map(|e| if e.path().is_dir() { files(&e.path()) } else { usize::from(e.path().extension().is_some_and(|x| x == "json")) })
                .sum()
        }
        files(&self.dir.join("state"))
    }

    /// Whether a record of a container is there, by any of its files.
    pub(crate) fn knows(&self, container: &str) -> bool {
        ["json", "del"].iter().any(|ext| self.dir.join(format!("state/sandboxes/{container}.{ext}")).exists())
    }

    /// Its processor time.
    pub(crate) fn computed(&self) -> Result<Duration> {
        computed(self.process.id())
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).context("the agent's memory")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|text| text.split_whitespace().next()?.parse().ok()).with_context(|| format!("no {name} in /proc/PID/status"))
        };
        Ok(Memory { resident: field("VmRSS")?, peak: field("VmHWM")?, anonymous: field("RssAnon")? })
    }

    /// Where the time of its calls went, alone or of many at once, by the medians of its log's lines, in milliseconds.
    pub(crate) fn laps(&self, verb: &str, crowd: bool) -> Vec<(String, f64)> {
        let log = fs::read_to_string(self.dir.join("agent.log")).unwrap_or_default();
        let mut laps: Vec<(String, Vec<f64>)> = Vec::new();
        for line in log.lines().filter(|line| line.contains(&format!("verb={verb} ")) && super::of_crowd(line) == crowd) {
            for (name, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
                let Some(value) = value.strip_suffix("ms").and_then(|v| v.parse().ok()) else { continue };
                match laps.iter_mut().find(|(known, _)| known == name) {
                    Some((_, values)) => values.push(value),
                    None => laps.push((name.to_owned(), vec![value])),
                }
            }
        }
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        laps.into_iter().map(|(name, values)| (name, median(values))).collect()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("agent.log")).unwrap_or_default()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Err(e) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("bench: end the agent: {e}");
        }
    }
}
