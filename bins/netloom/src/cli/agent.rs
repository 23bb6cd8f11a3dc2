//! What is asked of this node's agent: commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
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

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) command: AgentCommand,
}

/// Which settings.
#[derive(Debug, Args)]
pub(crate) struct Configured {
    /// The agent's settings; without the flag, and without the file, all have their defaults
    #[arg(long, value_name = "FILE", env = "NETLOOM_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Serve this node's runtime until SIGTERM
    Run {
        #[command(flatten)]
        configured: Configured,
        /// This node, as the API server calls it; the settings' or the host's name without it
        #[arg(long, env = "NODE_NAME", value_name = "NAME", hide_env_values = true)]
        node: Option<String>,
    },
    /// Put netloom-cni and the runtime's configuration on this node
    Install(InstallArgs),
    /// Take them off this node; pods keep what they have
    Uninstall {
        #[command(flatten)]
        configured: Configured,
        /// Remove the executable too while pods are attached: their runtime cannot detach them then
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    pub(crate) configured: Configured,
    /// The netloom-cni to install; the one beside this program without it
    #[arg(long, value_name = "PATH")]
    pub(crate) from: Option<PathBuf>,
    /// Link the built-in plugins too (bridge, host-local, ...)
    #[arg(long)]
    pub(crate) with_plugins: bool,
    /// Link `multus` and `multus-shim` too, also where no configuration names them
    #[arg(long)]
    pub(crate) multus: bool,
    /// Replace other programs of these names
    #[arg(long)]
    pub(crate) force: bool,
    /// Write the runtime's configuration before the default network is there: calls wait for it
    #[arg(long)]
    pub(crate) early: bool,
    /// Leave the runtime's configuration to the agent
    #[arg(long)]
    pub(crate) program_only: bool,
    /// How long to wait for the default network, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
}
