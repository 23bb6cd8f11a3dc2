//! What is asked of this node's agent: commands and flags.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lab::PodRef;

use super::Structured;

/// Where the agent is asked.
#[derive(Debug, Args)]
pub(crate) struct Asked {
    /// The socket on which the agent of this node answers
    #[arg(long, env = "NETLOOM_ADMIN_SOCKET", value_name = "PATH", default_value = wire::ADMIN_SOCKET, hide_env_values = true)]
    pub(crate) socket: PathBuf,
}

/// Structured output, or a table with every column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
    Yaml,
    /// Everything, however wide the terminal is
    Wide,
}

impl Format {
    /// The form for programs, if it is one.
    pub(crate) fn structured(self) -> Option<Structured> {
        match self {
            Format::Json => Some(Structured::Json),
            Format::Yaml => Some(Structured::Yaml),
            Format::Wide => None,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 if the agent is ready, 3 if it answers and is not, 1 if it does not answer.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0, or 3 if a pod has failed, has changed since, or has a record that cannot be read.")]
pub(crate) struct PodsArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Only pods of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// The pod, as [NAMESPACE/]POD; without a namespace `default` is meant
    pub(crate) pod: PodRef,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}
