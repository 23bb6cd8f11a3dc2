//! `netloom agent run`, `install` and `uninstall`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use agent::Settings;
use agent::install::{Options, Report, Step};
use anyhow::Context;

use crate::cli::{AgentArgs, AgentCommand, Configured, InstallArgs};
use crate::output::{FAINT, GOOD, ODD, putln};

/// Where the settings are if nobody says otherwise.
const SETTINGS: &str = "/etc/netloom/agent.yaml";

pub(crate) fn run(args: &AgentArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        AgentCommand::Run { configured, node } => serve(configured, node.as_deref()),
        AgentCommand::Install(args) => install(args),
        AgentCommand::Uninstall { configured, force } => {
            show(&agent::install::uninstall(&settings(configured)?, *force)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn settings(configured: &Configured) -> anyhow::Result<Settings> {
    match &configured.config {
        Some(path) => Ok(Settings::read(path)?),
        None if Path::new(SETTINGS).exists() => Ok(Settings::read(Path::new(SETTINGS))?),
        None => Ok(Settings::parse(b"")?),
    }
}

fn serve(configured: &Configured, node: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut settings = settings(configured)?;
    if let Some(node) = node.filter(|node| !node.is_empty()) {
        node.clone_into(&mut settings.node_name);
    }
    if settings.node_name.is_empty() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("read the host's name; give --node")?;
        // As the kubelet registers a node that nobody named.
        settings.node_name = name.trim().to_lowercase();
    }
    agent::run(settings)?;
    Ok(ExitCode::SUCCESS)
}

fn install(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let source = match &args.from {
        Some(path) => path.clone(),
        None => agent::install::program_beside().context("find netloom-cni beside this program; give --from")?,
    };
    let options = Options {
        source,
        plugins: args.with_plugins,
        multus: args.multus,
        force: args.force,
        configuration: !args.program_only,
        early: args.early,
        timeout: Duration::from_secs(args.timeout),
    };
    let report =
        agent::install::install(&settings(&args.configured)?, &options, &mut |line| anstream::eprintln!("{FAINT}{line}{FAINT:#}"))?;
    show(&report);
    Ok(ExitCode::SUCCESS)
}

fn show(report: &Report) {
    for step in &report.steps {
        let style = match step {
            Step::Put(_) | Step::Removed(_) => GOOD,
            Step::Unchanged(_) => FAINT,
            _ => ODD,
        };
        putln!("{style}{step}{style:#}");
    }
}
