//! The three that are compared, each with a namespace that stands for its host: Netloom, the reference plugins, and the
//! kernel's floor.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::namespace::Namespace;
use crate::network::{self, BRIDGE, MACVLANS, Network, PARENT, Verb};

/// Who does the work.
#[derive(Debug)]
pub(crate) enum Who {
    /// One process for whatever a container gets.
    Netloom {
        /// The directory of its plugins' names.
        plugins: PathBuf,
    },
    /// A process for each interface, which starts one for its addresses.
    Reference {
        /// The directory of the plugins.
        plugins: PathBuf,
    },
    /// The same links, addresses and routes by bare netlink.
    Floor {
        /// The program.
        program: PathBuf,
        /// The index of its bridge.
        bridge: u32,
        /// The index of the macvlans' parent.
        parent: u32,
    },
}

/// One of those that are compared.
#[derive(Debug)]
pub(crate) struct Side {
    who: Who,
    host: Namespace,
    data: PathBuf,
}

/// One process: what a runtime starts, and waits for.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) input: String,
}

// === impl Side ===

impl Side {
    /// Netloom, with its executable under its plugins' names. `name` goes into names of a namespace and of directories.
    pub(crate) fn netloom(name: &str, executable: &Path, scratch: &Path) -> Result<Self> {
        let plugins = installed(name, executable, scratch)?;
        Side::new(name, Who::Netloom { plugins }, scratch)
    }

    pub(crate) fn reference(plugins: &Path, scratch: &Path) -> Result<Self> {
        for plugin in ["bridge", "macvlan", "host-local"] {
            let file = plugins.join(plugin);
            if !file.is_file() {
                bail!("{} is missing: `make peers` builds the reference plugins", file.display());
            }
        }
        Side::new("reference", Who::Reference { plugins: plugins.to_owned() }, scratch)
    }

    pub(crate) fn floor(program: &Path, scratch: &Path) -> Result<Self> {
        let mut side = Side::new("floor", Who::Floor { program: program.to_owned(), bridge: 0, parent: 0 }, scratch)?;
        side.host.ip(&["link", "add", BRIDGE, "up", "type", "bridge"])?;
        side.host.ip(&["address", "add", "10.77.0.1/16", "dev", BRIDGE])?;
        let (bridge, parent) = (side.host.index(BRIDGE)?, side.host.index(PARENT)?);
        side.who = Who::Floor { program: program.to_owned(), bridge, parent };
        Ok(side)
    }

    fn new(name: &str, who: Who, scratch: &Path) -> Result<Self> {
        let host = Namespace::make(name)?;
        network::prepare(&host)?;
        Ok(Side { who, host, data: scratch.join(name) })
    }

    /// The processes that do it, one after the other. `number` tells containers apart.
    pub(crate) fn jobs(&self, network: Network, verb: Verb, container: &Namespace, number: usize) -> Vec<Job> {
        let attachments = network.attachments(&self.data);
        match &self.who {
            Who::Floor { program, bridge, parent } => {
                vec![floor_job(program, *bridge, *parent, network, verb, container, number)]
            }
            Who::Netloom { plugins } if network == Network::Pod => {
                let delegates: Vec<Value> = attachments.into_iter().map(|(_, config)| config).collect();
                let config = json!({
                    "cniVersion": "1.0.0", "name": "pod", "type": "netloom", "cniDir": self.data.join("pods"), "delegates": delegates,
                });
                vec![plugin_job(plugins, "netloom", verb, container, "eth0", &config)]
            }
            Who::Netloom { plugins } | Who::Reference { plugins } => {
                let mut jobs: Vec<Job> =
                    attachments.iter().map(|(ifname, config)| plugin_job(plugins, kind(config), verb, container, ifname, config)).collect();
                if verb == Verb::Del {
                    jobs.reverse();
                }
                jobs
            }
        }
    }

    /// Runs a verb for a container and says how long all its processes took.
    pub(crate) fn time(&self, network: Network, verb: Verb, container: &Namespace, number: usize) -> Result<Duration> {
        let jobs = self.jobs(network, verb, container, number);
        self.host.enter(|| jobs.iter().map(|job| job.run(verb)).sum())
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.who {
            Who::Netloom { .. } => "netloom",
            Who::Reference { .. } => "the reference plugins",
            Who::Floor { .. } => "the floor",
        }
    }

    /// The executables that an ADD of `bridge` + `host-local` takes.
    pub(crate) fn executables(&self) -> Vec<PathBuf> {
        match &self.who {
            Who::Netloom { plugins } => vec![plugins.join("bridge")],
            Who::Reference { plugins } => vec![plugins.join("bridge"), plugins.join("host-local")],
            Who::Floor { program, .. } => vec![program.clone()],
        }
    }

    /// Whether one executable does it all.
    pub(crate) fn is_one_program(&self) -> bool {
        !matches!(self.who, Who::Reference { .. })
    }

    /// The directory of its plugins; the floor has none.
    pub(crate) fn plugins(&self) -> Option<&Path> {
        match &self.who {
            Who::Netloom { plugins } | Who::Reference { plugins } => Some(plugins),
            Who::Floor { .. } => None,
        }
    }

    pub(crate) fn host(&self) -> &Namespace {
        &self.host
    }

    /// Nothing of any container may be left: neither a link nor an address.
    pub(crate) fn check_nothing_left(&self) -> Result<()> {
        let links: Vec<String> = self.host.links("veth")?.into_iter().filter(|l| !l.starts_with("wire")).collect();
        if !links.is_empty() {
            bail!("{} left links behind: {}", self.name(), links.join(", "));
        }
        for entry in fs::read_dir(&self.data).into_iter().flatten().flatten() {
            for file in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                if name.starts_with("10.") || name.ends_with(".json") {
                    bail!("{} left {} behind", self.name(), file.path().display());
                }
            }
        }
        Ok(())
    }
}

/// The directory where `netloom-cni` has installed itself under its plugins' names.
pub(crate) fn installed(name: &str, executable: &Path, scratch: &Path) -> Result<PathBuf> {
    let plugins = scratch.join(format!("plugins-{name}"));
    let output = Command::new(executable).arg("install").arg(&plugins).output();
    let output = output.with_context(|| format!("run {} (`make` builds it)", executable.display()))?;
    if !output.status.success() {
        bail!("{} install: {}", executable.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(plugins)
}

fn kind(config: &Value) -> &str {
    config.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// A plugin called as a runtime calls it.
pub(crate) fn plugin_job(plugins: &Path, plugin: &str, verb: Verb, container: &Namespace, ifname: &str, config: &Value) -> Job {
    let env = [
        ("CNI_COMMAND", verb.name().to_owned()),
        ("CNI_CONTAINERID", container.name().to_owned()),
        ("CNI_IFNAME", ifname.to_owned()),
        ("CNI_NETNS", container.path().display().to_string()),
        ("CNI_PATH", plugins.display().to_string()),
        // What a runtime's plugins have: the reference bridge looks for nothing else.
        ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    Job { program: plugins.join(plugin), args: Vec::new(), env, input: config.to_string() }
}

fn floor_job(program: &Path, bridge: u32, parent: u32, network: Network, verb: Verb, container: &Namespace, number: usize) -> Job {
    let netns = container.path().display().to_string();
    let args = match verb {
        Verb::Version => vec!["nothing".to_owned()],
        Verb::Del => vec!["del".to_owned(), netns],
        Verb::Add => {
            // Two from the gateway's, as the others have it.
            let host = u16::try_from(number % 60_000).unwrap_or(0) + 2;
            let [high, low] = host.to_be_bytes();
            let eth0 = format!("bridge,{bridge},floor{number},eth0,10.77.{high}.{low}/16,10.77.0.1");
            let mut args = vec!["add".to_owned(), netns, eth0];
            if network == Network::Pod {
                args.extend(MACVLANS.map(|net| format!("macvlan,{parent},net{net},10.{}.{high}.{low}/16", 77 + net)));
            }
            args
        }
    };
    Job { program: program.to_owned(), args, env: Vec::new(), input: String::new() }
}

// === impl Job ===

impl Job {
    /// Telling the points that it comes by.
    pub(crate) fn traced(mut self, file: &Path) -> Job {
        self.env.push(("NETLOOM_CRASH_TRACE".to_owned(), file.display().to_string()));
        self
    }

    /// With another value of a variable that it has.
    pub(crate) fn with(&self, name: &str, value: &str) -> Job {
        let mut job = self.clone();
        job.env.iter_mut().filter(|(n, _)| n == name).for_each(|(_, v)| value.clone_into(v));
        job
    }

    /// The process, not started yet, with no other environment than its own.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().envs(self.env.iter().cloned());
        command
    }

    /// Starts it in the namespace of the calling thread; what is timed is what a runtime waits for: from before the fork
    /// until the process is gone and its output read.
    pub(crate) fn run(&self, verb: Verb) -> Result<Duration> {
        let command = self.command();
        let start = Instant::now();
        let output = output_of(command, &self.input).with_context(|| format!("run {}", self.program.display()))?;
        let time = start.elapsed();
        judge(verb, self.env.is_empty(), &output).with_context(|| format!("{} by {}", verb.name(), self.program.display()))?;
        Ok(time)
    }
}

/// Starts a command, hands it its input, waits for its end.
pub(crate) fn output_of(mut command: Command, input: &str) -> Result<Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            // VERSION reads nothing.
            Err(e) if e.kind() != ErrorKind::BrokenPipe => return Err(e).context("write the configuration"),
            _ => {}
        }
    }
    child.wait_with_output().context("wait for it")
}

/// A plugin that fails is fast: what it says it did is looked at. The floor says nothing.
fn judge(verb: Verb, silent: bool, output: &Output) -> Result<()> {
    if !output.status.success() {
        bail!("{}: {}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    let list = match verb {
        Verb::Version => "supportedVersions",
        Verb::Add => "ips",
        Verb::Del => return Ok(()),
    };
    if silent {
        return Ok(());
    }
    let printed: Value = serde_json::from_slice(&output.stdout).context("what it printed is no JSON")?;
    match printed.get(list).and_then(Value::as_array) {
        Some(values) if !values.is_empty() => Ok(()),
        _ => bail!("no {list:?} in {printed}"),
    }
}
