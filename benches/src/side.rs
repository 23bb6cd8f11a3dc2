//! One of the two that are compared: a directory of plugins, a namespace that stands for its host, address files.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::namespace::Namespace;

/// What a runtime asks of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Version,
    Add,
    Del,
}

/// A set of plugins with a host of its own.
#[derive(Debug)]
pub(crate) struct Side {
    plugins: PathBuf,
    data: PathBuf,
    host: Namespace,
    config: String,
}

// === impl Verb ===

impl Verb {
    /// In the order of a container's life.
    pub(crate) const ALL: [Verb; 3] = [Verb::Version, Verb::Add, Verb::Del];

    /// The value of `CNI_COMMAND`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Version => "VERSION",
            Verb::Add => "ADD",
            Verb::Del => "DEL",
        }
    }
}

// === impl Side ===

impl Side {
    /// `name` goes into names of a namespace and of a directory below `data_dir`.
    pub(crate) fn new(name: &str, plugins: PathBuf, data_dir: &Path) -> Result<Self> {
        for plugin in ["bridge", "host-local"] {
            let file = plugins.join(plugin);
            if !file.is_file() {
                bail!("{} is missing: `make peers` builds the reference plugins, `make` ours", file.display());
            }
        }
        let data = data_dir.join(name);
        let config = json!({
            "cniVersion": "1.0.0", "name": "bench", "type": "bridge", "bridge": "bench0", "isDefaultGateway": true,
            "ipam": {"type": "host-local", "dataDir": data, "ranges": [[{"subnet": "10.77.0.0/16"}]]},
        })
        .to_string();
        Ok(Side { plugins, data, host: Namespace::make(name)?, config })
    }

    /// Runs `bridge` once for a container, which is named like its namespace, and says how long it took.
    pub(crate) fn time(&self, verb: Verb, container: &Namespace) -> Result<Duration> {
        let mut command = Command::new(self.plugins.join("bridge"));
        command
            .env_clear()
            .envs([("CNI_COMMAND", verb.name()), ("CNI_CONTAINERID", container.name()), ("CNI_IFNAME", "eth0")])
            .envs([("CNI_NETNS", container.path()), ("CNI_PATH", self.plugins.clone())])
            // What a runtime's plugins have: the reference bridge looks for nothing else.
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (time, output) = self.host.enter(|| {
            let start = Instant::now();
            let mut child = command.spawn().with_context(|| format!("run {}", self.plugins.join("bridge").display()))?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(self.config.as_bytes()).context("write the configuration")?;
            }
            let output = child.wait_with_output().context("wait for the plugin")?;
            Ok((start.elapsed(), output))
        })?;
        self.judge(verb, &output).with_context(|| format!("{} by {}", verb.name(), self.plugins.display()))?;
        Ok(time)
    }

    /// A plugin that fails is fast: what it says it did is looked at.
    fn judge(&self, verb: Verb, output: &Output) -> Result<()> {
        if !output.status.success() {
            bail!("{}: {}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        }
        let list = match verb {
            Verb::Version => "supportedVersions",
            Verb::Add => "ips",
            Verb::Del => return Ok(()),
        };
        let printed: Value = serde_json::from_slice(&output.stdout).context("what it printed is no JSON")?;
        match printed.get(list).and_then(Value::as_array) {
            Some(values) if !values.is_empty() => Ok(()),
            _ => bail!("no {list:?} in {printed}"),
        }
    }

    /// Nothing of any container may be left: neither a link nor an address.
    pub(crate) fn check_nothing_left(&self) -> Result<()> {
        let links = self.host.links("veth")?;
        if !links.is_empty() {
            bail!("{} left links behind: {}", self.plugins.display(), links.join(", "));
        }
        let dir = self.data.join("bench");
        for entry in fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))? {
            let name = entry.with_context(|| format!("read {}", dir.display()))?.file_name();
            if name.to_string_lossy().starts_with("10.77.") {
                bail!("{} left {} allocated", self.plugins.display(), name.to_string_lossy());
            }
        }
        Ok(())
    }
}
