//! Kuryr's controller: the handlers, drivers and clients of kuryr-kubernetes 10.0.0 as it was published, before a real Neutron and an API server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

const SCRIPT: &str = include_str!("kuryr_controller.py");

/// A process that gives pods their ports, one after the other. It ends when this is dropped.
#[derive(Debug)]
pub struct KuryrController {
    python: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    log: PathBuf,
}

// === impl KuryrController ===

impl KuryrController {
    /// Starts it with a kuryr.conf, beside which its log is written. `libraries` is where Kuryr is installed.
    ///
    /// # Errors
    /// If it is not installed there, or does not start: with the end of its log.
    pub fn start(libraries: &Path, kuryr_conf: &Path) -> Result<Self> {
        if !libraries.join("kuryr_kubernetes").is_dir() {
            bail!("{} has no Kuryr: run scripts/setup.sh neutron", libraries.display());
        }
        let log = kuryr_conf.with_extension("log");
        let mut python = Command::new("python3");
        python.args(["-W", "ignore", "-c", SCRIPT]).arg(kuryr_conf).env("PYTHONPATH", libraries);
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log).context("its log")?);
        let mut python = python.spawn().context("run python3")?;
        let (input, output) = (python.stdin.take().context("its input")?, python.stdout.take().context("its output")?);
        let mut controller = KuryrController { python, input, output: BufReader::new(output), log };
        controller.done()?;
        Ok(controller)
    }

    /// Handles a new pod, until its KuryrPort has VIFs.
    ///
    /// # Errors
    /// Those of Kuryr's code: with the end of its log.
    pub fn up(&mut self, namespace: &str, name: &str) -> Result<()> {
        self.ask(&format!("up {namespace} {name}")).map(drop)
    }

    /// Goes on until all VIFs of the pod are active.
    ///
    /// # Errors
    /// Those of Kuryr's code: with the end of its log.
    pub fn active(&mut self, namespace: &str, name: &str) -> Result<()> {
        self.ask(&format!("active {namespace} {name}")).map(drop)
    }

    /// Deletes the pod, and releases what it had.
    ///
    /// # Errors
    /// Those of Kuryr's code: with the end of its log.
    pub fn down(&mut self, namespace: &str, name: &str) -> Result<()> {
        self.ask(&format!("down {namespace} {name}")).map(drop)
    }

    /// The VIFs of a KuryrPort by their interfaces, as Kuryr writes them after it has read them.
    ///
    /// # Errors
    /// Those of Kuryr's code: with the end of its log.
    pub fn read(&mut self, kuryr_port: &Value) -> Result<Value> {
        self.ask(&format!("read {kuryr_port}"))
    }

    fn ask(&mut self, line: &str) -> Result<Value> {
        writeln!(self.input, "{line}").context("ask Kuryr's code")?;
        self.done().with_context(|| line.chars().take(60).collect::<String>())
    }

    /// What it says when it is done; its libraries print other lines among those.
    fn done(&mut self) -> Result<Value> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).context("listen to Kuryr's code")? == 0 {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                bail!("Kuryr's code has ended: {}", lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n"));
            }
            if let Some(said) = line.strip_prefix("done ") {
                return serde_json::from_str(said).context("what Kuryr's code says");
            }
        }
    }
}

impl Drop for KuryrController {
    fn drop(&mut self) {
        let _ = self.python.kill();
        let _ = self.python.wait();
    }
}
