//! `netloom lab`: one file for each command.

mod down;
mod exec;
mod graph;
mod list;
mod status;
mod up;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use lab::{LabName, Labs};

use crate::cli::{LabArgs, LabCommand, Which};

pub(crate) use up::shown;

/// The exit code of `up` when the lab is up, but not every pod has its networks.
pub(crate) const SOME_FAILED: u8 = 3;

pub(crate) fn run(args: &LabArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        LabCommand::Up(args) => up::run(args),
        LabCommand::Down(args) => down::run(args),
        LabCommand::List { output } => list::run(*output),
        LabCommand::Exec { which, pod, command } => exec::run(which, pod, command),
        LabCommand::Status { which, pod, output } => status::run(which, pod.as_ref(), *output),
        LabCommand::Graph { which, format } => graph::run(which, *format),
    }
}

fn labs() -> Labs {
    Labs::default()
}

fn name(which: &Which) -> anyhow::Result<LabName> {
    Ok(LabName::parse(which.name())?)
}

pub(crate) fn open(which: &Which) -> anyhow::Result<lab::Lab> {
    Ok(labs().open(&name(which)?)?)
}

/// The lab of this name.
pub(crate) fn open_named(name: &str) -> anyhow::Result<lab::Lab> {
    Ok(labs().open(&LabName::parse(name)?)?)
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn directories(path: &str) -> Vec<PathBuf> {
    std::env::split_paths(path).filter(|p| !p.as_os_str().is_empty()).collect()
}

/// Namespaces belong to root.
pub(crate) fn must_be_root() -> anyhow::Result<()> {
    let uid = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let effective = uid.lines().find_map(|l| l.strip_prefix("Uid:")).and_then(|l| l.split_whitespace().nth(1));
    anyhow::ensure!(effective == Some("0"), "a lab needs root to create network namespaces: run it with sudo");
    Ok(())
}
