//! The whole plug of a port, veth pair, addresses and routes included: by our plugin, a process each time, and by the code of kuryr-cni's daemon,
//! in a process that is there already.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::namespace::Namespace;
use crate::network::Verb;
use crate::side::{installed, plugin_job};

/// The port, as Kuryr writes it.
const VIF: &str = include_str!("../../../crates/osvif/tests/captured/VIFOpenVSwitch.json");
const SCRIPT: &str = include_str!("kuryr_plug.py");

/// Both sides, on one host with one switch.
pub(super) struct Plug {
    plugins: PathBuf,
    config: Value,
    container: Namespace,
    python: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

// === impl Plug ===

impl Plug {
    /// `dir` has the socket of the database; `libraries` is where Kuryr is installed.
    pub(super) fn start(host: &Namespace, executable: &Path, libraries: &Path, dir: &Path, bridge: &str) -> Result<Self> {
        if !libraries.join("kuryr_kubernetes").is_dir() {
            bail!("{} has no Kuryr: run scripts/setup.sh bench", libraries.display());
        }
        let plugins = installed("ovs", executable, dir)?;
        let ipam = json!({"type": "static", "addresses": [{"address": "192.0.2.146/24", "gateway": "192.0.2.1"}],
            "routes": [{"dst": "198.51.100.0/24", "gw": "192.0.2.254"}, {"dst": "0.0.0.0/0", "gw": "192.0.2.1"}]});
        let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "ovs", "bridge": bridge, "mtu": 1450, "mac": "fa:16:3e:53:39:69",
            "iface_id": "d1e40f3e-d1a4-4044-a4f3-90d82f439e1c", "socket_file": dir.join("db.sock"), "ipam": ipam});
        let mut command = Command::new("python3");
        command.args(["-W", "ignore", "-c", SCRIPT, &VIF.replace("br-int", bridge)]);
        command.env("PYTHONPATH", libraries).env("OVS_RUNDIR", dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut python = host.enter(|| command.spawn().context("run python3"))?;
        let (input, output) = (python.stdin.take().context("its input")?, python.stdout.take().context("its output")?);
        let mut plug = Plug { plugins, config, container: Namespace::make("ovs-pod")?, python, input, output: BufReader::new(output) };
        let ready = plug.line()?;
        if ready != "ready" {
            bail!("Kuryr's code does not start: it says {ready:?}");
        }
        Ok(plug)
    }

    /// How long our plug takes; the port is gone afterwards.
    pub(super) fn ours(&self, host: &Namespace) -> Result<Duration> {
        let run = |verb| host.enter(|| plugin_job(&self.plugins, "ovs", verb, &self.container, "eth0", &self.config).run(verb));
        let took = run(Verb::Add)?;
        run(Verb::Del)?;
        Ok(took)
    }

    /// The same of Kuryr's.
    pub(super) fn kuryr(&mut self) -> Result<Duration> {
        let took = self.ask("add")?;
        self.ask("del")?;
        // The pair goes with the pod there.
        self.container.ip(&["link", "delete", "eth0"])?;
        Ok(took)
    }

    fn ask(&mut self, verb: &str) -> Result<Duration> {
        writeln!(self.input, "{verb} {}", self.container.path().display()).context("ask Kuryr's code")?;
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

impl Drop for Plug {
    fn drop(&mut self) {
        let _ = self.python.kill();
        let _ = self.python.wait();
    }
}
