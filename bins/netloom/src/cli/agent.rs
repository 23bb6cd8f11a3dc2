//! The node's agent, and what is asked of it: commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lab::PodRef;

use super::Structured;
use super::ipam::InCluster;

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

/// What the agent does, and on which node.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The agent's settings, YAML or JSON; without it /etc/netloom/agent.yaml, which need not exist
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The node, as the API server calls it; without it the settings' nodeName, then $NODE_NAME, then the host's name
    #[arg(long, global = true, env = "NETLOOM_NODE_NAME", value_name = "NAME", hide_env_values = true)]
    pub(crate) node: Option<String>,
    /// Who says which addresses this node has, over the settings' ipam
    #[arg(long, global = true, value_name = "WHO")]
    pub(crate) ipam: Option<Ipam>,
    /// `run` without it
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
}

/// Who says which addresses a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ipam {
    /// Files of this host, and the cluster's operator
    Pool,
    /// The node's CiliumNode, whoever fills it
    Crd,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Serve this node until SIGTERM
    Run(RunArgs),
    /// Tell what these settings would refuse of a cluster's definitions
    Preflight(PreflightArgs),
    /// Put netloom-cni and the runtime's configuration in place
    Install(InstallArgs),
    /// Take the runtime's configuration away, and netloom-cni where no pod needs it any more
    Uninstall {
        /// Take netloom-cni away also where pods are still attached: they cannot be deleted properly then
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Run it on a node, where its uplink, its addresses and its ports are known.\n\nExit code: 0, or 3 if a pod would fail."
)]
pub(crate) struct PreflightArgs {
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Serve without a cluster: pods and definitions are those of these files or folders of manifests, `-` is standard input.
    /// What the agent writes (network-status, Events) ends with it
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) manifests: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The netloom-cni to copy; the one beside this program without it
    #[arg(long, value_name = "PATH")]
    pub(crate) from: Option<PathBuf>,
    /// Install the built-in plugins under their names, too
    #[arg(long)]
    pub(crate) with_plugins: bool,
    /// Install it as multus and multus-shim, too, also where no configuration names them
    #[arg(long)]
    pub(crate) multus: bool,
    /// Replace other programs of these names
    #[arg(long)]
    pub(crate) force: bool,
    /// Only the programs: the runtime's configuration is written by the agent
    #[arg(long)]
    pub(crate) no_configuration: bool,
    /// Write the runtime's configuration before the default network is ready
    #[arg(long, conflicts_with = "no_configuration")]
    pub(crate) early: bool,
    /// How long the default network is waited for, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) timeout: u64,
}
