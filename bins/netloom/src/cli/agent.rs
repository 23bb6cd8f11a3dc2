//! The node's agent, and the commands that ask it: flags.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use lab::PodRef;

use super::Structured;
use super::ipam::InCluster;
use crate::complete;

/// Where the agent answers.
#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    /// The socket of this node's agent
    #[arg(long, env = "NETLOOM_ADMIN_SOCKET", value_name = "PATH", default_value = wire::ADMIN_SOCKET, hide_env_values = true)]
    pub(crate) socket: PathBuf,
}

/// Structured output, or a table with every column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
    Yaml,
    /// A table with every column, wider than the terminal if need be
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
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) asked: AgentArguments,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct PodsArgs {
    #[command(flatten)]
    pub(crate) asked: AgentArguments,
    /// List only pods of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    pub(crate) asked: AgentArguments,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) asked: AgentArguments,
    /// The pod, as [NAMESPACE/]POD
    #[arg(add = ArgValueCandidates::new(complete::pods))]
    pub(crate) pod: PodRef,
    /// The pod's namespace, where POD does not name one [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

/// What the agent does, and on which node.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The agent's settings, in YAML or JSON [default: /etc/netloom/agent.yaml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The node's name in the API server [default: the settings' nodeName, else $NODE_NAME, else the host name]
    #[arg(long, global = true, env = "NETLOOM_NODE_NAME", value_name = "NAME", hide_env_values = true)]
    pub(crate) node: Option<String>,
    /// The source of this node's addresses; overrides the settings' ipam
    #[arg(long, global = true, value_name = "SOURCE")]
    pub(crate) ipam: Option<Ipam>,
    /// What to do [default: run]
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
}

/// The source of a node's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ipam {
    /// Pool files of this host, and blocks that the cluster's operator grants
    Pool,
    /// The node's CiliumNode object
    Crd,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Run the agent of this node until SIGTERM
    Run(RunArgs),
    /// Show which definitions and pods of a cluster these settings would refuse
    Preflight(PreflightArgs),
    /// Print what this node's network namespaces have, as `netloom verify` reads it
    #[command(hide = true)]
    Observe,
    /// Rotate the WireGuard keys of all nodes
    RotateKeys(RotateKeysArgs),
    /// Install netloom-cni and the container runtime's configuration
    Install(InstallArgs),
    /// Remove the container runtime's configuration, and netloom-cni once no pod needs it
    Uninstall {
        /// Remove netloom-cni even though pods are attached, which cannot be detached properly afterwards
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RotateKeysArgs {
    #[command(flatten)]
    pub(crate) asked: AgentArguments,
}

#[derive(Debug, Args)]
pub(crate) struct PreflightArgs {
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Run without a cluster, with the pods and definitions of these files or folders of manifests; `-` is standard input.
    /// The network-status and Events that the agent writes are lost when it ends
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) manifests: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The netloom-cni to install [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) from: Option<PathBuf>,
    /// Install the built-in plugins under their own names as well
    #[arg(long)]
    pub(crate) with_plugins: bool,
    /// Install netloom-cni as multus and multus-shim as well, even where no configuration names them
    #[arg(long)]
    pub(crate) multus: bool,
    /// Replace other programs that have these names
    #[arg(long)]
    pub(crate) force: bool,
    /// Install only the programs; the agent writes the runtime's configuration
    #[arg(long)]
    pub(crate) no_configuration: bool,
    /// Write the runtime's configuration before the default network is ready
    #[arg(long, conflicts_with = "no_configuration")]
    pub(crate) early: bool,
    /// Seconds to wait for the default network
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) timeout: u64,
}
