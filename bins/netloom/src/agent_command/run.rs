//! `netloom agent [run|preflight|rotate-keys|install|uninstall]`, and `observe`, which a verification runs

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use agent::Settings;
use agent::install::{self, Options, Report, Step};
use anyhow::Context;
use lab::manifest::{self, Purpose};

use super::answer::line;
use super::{preflight, rotate_keys};
use crate::cli::{self, AgentArgs, AgentCommand, InstallArgs};
use crate::output::{FAINT, ODD, putln};

/// The settings' file; without it everything has its default.
pub(crate) const FILE: &str = "/etc/netloom/agent.yaml";

pub(crate) fn run(args: &AgentArgs) -> anyhow::Result<ExitCode> {
    // The agent has the settings.
    if let Some(AgentCommand::RotateKeys(wanted)) = &args.command {
        rotate_keys::run(wanted)?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = settings(args)?;
    match &args.command {
        None | Some(AgentCommand::RotateKeys(_)) => agent::run(settings)?,
        Some(AgentCommand::Run(wanted)) if wanted.manifests.is_empty() => agent::run(settings)?,
        Some(AgentCommand::Run(wanted)) => run_alone(settings, &wanted.manifests)?,
        Some(AgentCommand::Observe) => {
            // The one who asks reads no more than this, with room for the last namespace.
            let mut out = BufWriter::new(std::io::stdout().lock());
            agent::observe_node(&settings, &|_| {}, &mut out, cluster::MAX_OUTPUT / 2).context("write to standard output")?;
            out.flush().context("write to standard output")?;
        }
        Some(AgentCommand::Preflight(wanted)) => return preflight::run(&settings, wanted),
        Some(AgentCommand::Install(wanted)) => {
            let options = options(wanted)?;
            let mut told = |what: &str| crate::output::eputln!("{FAINT}{}{FAINT:#}", line(what));
            show(&install::install(&settings, &options, &mut told)?);
        }
        Some(AgentCommand::Uninstall { force }) => show(&install::uninstall(&settings, *force)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Without a cluster. A pod that names no node is on this one.
fn run_alone(mut settings: Settings, files: &[PathBuf]) -> anyhow::Result<()> {
    let mut manifests = manifest::examine(files, &mut std::io::stdin(), Purpose::Host).manifests?;
    for finding in &manifests.findings {
        crate::output::eputln!("{ODD}{}:{ODD:#} {finding}", finding.severity().as_str());
    }
    if let Some(pool) = manifests.pools.first() {
        let name = &pool.pool.metadata.name;
        let why = "without a cluster, a host's pools are files: remove the object and write it to";
        anyhow::bail!("{}: IPPool {name:?} cannot be used here: {why} {}/{name}.json", pool.origin, settings.dirs().pools.display());
    }
    settings.kubelet = false;
    for pod in &mut manifests.pods {
        // The same one when this is started again: its attachments stay.
        pod.uid.get_or_insert_with(|| format!("manifest-{}-{}", pod.namespace, pod.name));
    }
    let store = lab::store(&manifests, |pod| pod.node.clone().unwrap_or_else(|| settings.node_name.clone()))?;
    agent::run_on(settings, || store.client().into())?;
    Ok(())
}

/// The settings in a file, or in the usual one.
pub(crate) fn settings_of(file: Option<&Path>) -> anyhow::Result<Settings> {
    named(file, None)
}

fn named(file: Option<&Path>, node: Option<&str>) -> anyhow::Result<Settings> {
    let usual = Path::new(FILE);
    let mut settings = match file {
        Some(path) => Settings::read(path)?,
        None if usual.try_exists().with_context(|| format!("look for {FILE}"))? => Settings::read(usual)?,
        None => Settings::parse(b"")?,
    };
    if let Some(name) = node_name(node, &settings.node_name)? {
        settings.node_name = name;
    }
    Ok(settings)
}

fn settings(args: &AgentArgs) -> anyhow::Result<Settings> {
    let mut settings = named(args.config.as_deref(), args.node.as_deref())?;
    match args.ipam {
        Some(cli::Ipam::Pool) => settings.ipam = agent::settings::Ipam::Pool,
        Some(cli::Ipam::Crd) => settings.ipam = agent::settings::Ipam::Crd,
        None => {}
    }
    Ok(settings)
}

/// The node's name where it is not the settings' own: the kubelet calls a node by its host, in small letters.
fn node_name(given: Option<&str>, own: &str) -> anyhow::Result<Option<String>> {
    let not_empty = |name: String| Some(name.trim().to_owned()).filter(|name| !name.is_empty());
    if let Some(name) = given.map(str::to_owned).and_then(not_empty) {
        return Ok(Some(name));
    }
    if !own.is_empty() {
        return Ok(None);
    }
    if let Some(name) = std::env::var("NODE_NAME").ok().and_then(not_empty) {
        return Ok(Some(name));
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").context("read the host name; set the node's name with --node")?;
    not_empty(host.to_lowercase()).map(Some).context("the host has no name: set the node's name in the API server with --node")
}

fn options(args: &InstallArgs) -> anyhow::Result<Options> {
    let beside = || install::program_beside().context("find netloom-cni beside this program; set its path with --from");
    Ok(Options {
        source: args.from.clone().map_or_else(beside, Ok)?,
        plugins: args.with_plugins,
        multus: args.multus,
        force: args.force,
        configuration: !args.no_configuration,
        early: args.early,
        timeout: Duration::from_secs(args.timeout),
    })
}

fn show(report: &Report) {
    for step in &report.steps {
        let style = if matches!(step, Step::Kept { .. } | Step::Note(_)) { ODD } else { anstyle::Style::new() };
        putln!("{style}{step}{style:#}");
    }
}
