//! The code by which kuryr-cni's daemon plugs ports: kuryr-kubernetes 10.0.0 as it was published.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

const SCRIPT: &str = include_str!("kuryr_plug.py");

/// A process that plugs ports, one after the other. It ends when this is dropped.
pub struct Kuryr {
    python: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

// === impl Kuryr ===

impl Kuryr {
    /// Starts it. `enter` is what its program is put behind, for it to be on the node (`nsenter ... --`); `libraries` is where Kuryr is installed,
    /// and `sockets` the directory of Open vSwitch's sockets.
    ///
    /// # Errors
    /// If it is not installed there, or does not start.
    pub fn start(mut enter: Command, libraries: &Path, sockets: &Path) -> Result<Self> {
        if !libraries.join("kuryr_kubernetes").is_dir() {
            bail!("{} has no Kuryr: run scripts/setup.sh neutron", libraries.display());
        }
        enter.args(["python3", "-W", "ignore", "-c", SCRIPT]);
        enter.env("PYTHONPATH", libraries).env("OVS_RUNDIR", sockets);
        let mut python = enter.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("run python3")?;
        let (input, output) = (python.stdin.take().context("its input")?, python.stdout.take().context("its output")?);
        let mut kuryr = Kuryr { python, input, output: BufReader::new(output) };
        let ready = kuryr.line()?;
        if ready != "ready" {
            bail!("Kuryr's code does not start: it says {ready:?}");
        }
        Ok(kuryr)
    }

    /// Plugs a port into a namespace, and says how long that took. `vif` is a `VIFOpenVSwitch` as Kuryr writes it, in JSON; that of the default
    /// network has default routes.
    ///
    /// # Errors
    /// Those of Kuryr's code.
    pub fn plug(&mut self, netns: &Path, ifname: &str, vif: &str, is_default: bool) -> Result<Duration> {
        self.ask(if is_default { "add-default" } else { "add" }, netns, ifname, vif)
    }

    /// Unplugs it. The pair goes with the namespace.
    ///
    /// # Errors
    /// Those of Kuryr's code.
    pub fn unplug(&mut self, netns: &Path, ifname: &str, vif: &str) -> Result<Duration> {
        self.ask("del", netns, ifname, vif)
    }

    fn ask(&mut self, verb: &str, netns: &Path, ifname: &str, vif: &str) -> Result<Duration> {
        let vif = vif.replace('\n', " ");
        writeln!(self.input, "{verb} {} {ifname} {vif}", netns.display()).context("ask Kuryr's code")?;
        let line = self.line()?;
        let seconds: f64 = line.parse().with_context(|| format!("{verb} by Kuryr's code: it says {line:?}"))?;
        Ok(Duration::from_secs_f64(seconds))
    }

    /// The next line of Kuryr's code; its libraries print others among them.
    fn line(&mut self) -> Result<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).context("listen to Kuryr's code")? == 0 {
                bail!("Kuryr's code has ended");
            }
            let line = line.trim();
            if line == "ready" || line.parse::<f64>().is_ok() {
                return Ok(line.to_owned());
            }
        }
    }
}

impl Drop for Kuryr {
    fn drop(&mut self) {
        let _ = self.python.kill();
        let _ = self.python.wait();
    }
}
