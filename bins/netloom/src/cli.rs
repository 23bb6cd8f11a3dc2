//! Every command and flag: help, completion and man pages are made from this.

mod agent;
mod dhcp;
mod ipam;
mod operator;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lab::PodRef;

pub(crate) use dhcp::{DhcpArgs, with_two_dashes};
pub(crate) use ipam::{
    ImportSource, IpamArgs, IpamCheckArgs, IpamCommand, IpamImportArgs, IpamMapArgs, IpamNodesArgs, IpamPoolsArgs, IpamReclaimArgs,
    IpamStatusArgs, IpamTraceArgs, Store,
};

pub(crate) use operator::{Level as OperatorLogLevel, OperatorArgs};

use agent::Asked;
pub(crate) use agent::{AgentArgs, AgentCommand, ExplainArgs, Format, InstallArgs, Ipam, PodsArgs, PreflightArgs, StatusArgs};

/// Attach every pod to any number of networks.
#[derive(Debug, Parser)]
#[command(name = "netloom", version, max_term_width = 100, arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Run the networks of a CNI configuration directory.
#[derive(Debug, Parser)]
#[command(name = "cnitool", version, max_term_width = 100)]
pub(crate) struct Cnitool {
    #[command(flatten)]
    pub(crate) cni: CniArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See how this node's agent is, and what waits
    Status(StatusArgs),
    /// List this node's pods and what they are attached to
    Pods(PodsArgs),
    /// Tell what a pod asked for, what it got and how long that took, or why it failed
    Explain(ExplainArgs),
    /// Run this node's agent, or install what the runtime needs
    Agent(AgentArgs),
    /// Run the cluster's operator, which grants blocks of pools to nodes
    Operator(OperatorArgs),
    /// Try networks on this machine: pods are network namespaces, without Kubernetes
    Lab(LabArgs),
    /// Attach one namespace to one network of a CNI configuration directory
    Cni(CniArgs),
    /// Run the daemon that keeps the leases of the plugin dhcp
    Dhcp(DhcpArgs),
    /// See who has which address of which pool, and whether all is well with them
    Ipam(IpamArgs),
    /// Tell what the firewall has of whom: published ports, who leaves with the host's address, who is guarded or limited
    Rules(RulesArgs),
    /// Put back what this node's attachments have of the firewall, where somebody has flushed it
    Repair(RepairArgs),
    /// List the built-in plugins, or the configuration keys of one
    Plugins(PluginsArgs),
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages
    Man {
        /// The directory to write them to
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "An agent that runs on this node is asked for the pods' names; without one their containers are told.")]
pub(crate) struct RulesArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Only of this pod, as NAMESPACE/NAME or NAME, or of the container whose ID begins so
    #[arg(value_name = "POD")]
    pub(crate) pod: Option<String>,
    /// In this network namespace; without it in the one that netloom is run in
    #[arg(long, value_name = "PATH")]
    pub(crate) netns: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "What is in place is not touched, and nothing that belongs to others. An agent that runs on this node does the same by itself, \
                  for its pods.\n\n\
                  Exit code: 0; 1 if something could not be put back; 3 if attachments were skipped, as nothing tells who made them, or if, \
                  with --dry-run, something is missing."
)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// A directory of sandboxes' records; without it those of the agent, and of netloom-cni as the plugin `netloom`
    #[arg(long, value_name = "DIR")]
    pub(crate) records: Vec<PathBuf>,
    /// A directory of runtimes' cached results, as podman and cnitool have it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cni")]
    pub(crate) cache_dir: Vec<PathBuf>,
    /// Where those runtimes find plugins; without it $CNI_PATH, then /opt/cni/bin and where podman looks. Where a plugin of somebody
    /// else stands there, and nothing tells who made an attachment, it is skipped
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin_dir: Vec<PathBuf>,
    /// Only tell what is missing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How long a sandbox is waited for that is being attached or detached, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) timeout: u64,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct PluginsArgs {
    /// A plugin's name
    pub(crate) name: Option<String>,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// Which lab.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The lab's name; several labs can be up at once
    #[arg(long, short, default_value = "lab", value_name = "LAB")]
    pub(crate) name: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Build a lab from Pod, NetworkAttachmentDefinition, IPPool and Node manifests
    Up(UpArgs),
    /// Take a lab down and leave nothing
    Down(DownArgs),
    /// List the labs that are up
    List {
        /// How to print it
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Structured>,
    },
    /// Run a command in a pod, or in a node as `node/NAME`
    Exec {
        #[command(flatten)]
        which: Which,
        /// The pod, as [NAMESPACE/]POD
        pod: PodRef,
        /// The command with its arguments; a shell without it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
        command: Vec<std::ffi::OsString>,
    },
    /// Show what pods have, and whether it is still so
    Status {
        #[command(flatten)]
        which: Which,
        /// One pod, as [NAMESPACE/]POD; all without it
        pod: Option<PodRef>,
        /// How to print it; for one pod json is its network-status annotation
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Structured>,
    },
    /// Draw a lab: pods, interfaces, bridges and parents
    Graph {
        #[command(flatten)]
        which: Which,
        /// What to draw it as
        #[arg(long, value_enum, default_value = "terminal", value_name = "FORMAT")]
        format: GraphFormat,
    },
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// YAML or JSON files, folders of them, or `-` for standard input. A folder's net.d/ and bin/ are searched for
    /// configurations and plugins too
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The network that every pod gets first: a CNI configuration file, or `none`; the lab's own without it
    #[arg(long, value_name = "FILE|none")]
    pub(crate) default_network: Option<PathBuf>,
    /// Where definitions without a configuration are looked for
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) conf_dir: PathBuf,
    /// Where plugins that are not built in are looked for
    #[arg(long, env = "CNI_PATH", value_name = "DIRS", default_value = "/opt/cni/bin", hide_env_values = true)]
    pub(crate) cni_path: String,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Take down every lab
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// Go on where programs still run in it, where something cannot be detached, or where its description is broken
    #[arg(long)]
    pub(crate) force: bool,
}

/// Structured output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structured {
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// Boxes and lines; colours on a terminal
    Terminal,
    /// A picture for documents and browsers
    Svg,
    /// For Markdown that renders Mermaid
    Mermaid,
    /// For Graphviz
    Dot,
    /// What is drawn, as data
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Environment:
  NETCONFPATH  configuration directory (default /etc/cni/net.d)
  CNI_PATH     directories of plugins; a program there goes before the built-in plugin of its name
  CNI_ARGS     KEY=VALUE;KEY=VALUE for the plugins
  CAP_ARGS     JSON object of runtimeConfig for the plugins
  CNI_IFNAME   interface inside the namespace (default eth0)")]
pub(crate) struct CniArgs {
    #[command(subcommand)]
    pub(crate) command: CniCommand,
    /// Configuration directory
    #[arg(long, global = true, env = "NETCONFPATH", value_name = "DIR", default_value = "/etc/cni/net.d", hide_env = true)]
    pub(crate) conf_dir: PathBuf,
    /// Interface inside the namespace
    #[arg(short, long, global = true, env = "CNI_IFNAME", value_name = "NAME", default_value = "eth0", hide_env = true)]
    pub(crate) ifname: String,
    /// Directory of cached results
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/cni")]
    pub(crate) cache_dir: PathBuf,
    /// When plugins that are still running are killed, in seconds; what a failed `add` then undoes has 30 more
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

/// A network and a namespace.
#[derive(Debug, Args)]
pub(crate) struct Attachment {
    /// The network's name: the `name` inside its configuration file
    pub(crate) network: String,
    /// The namespace's path, as /var/run/netns/NAME
    pub(crate) netns: PathBuf,
}

/// A network, and a namespace that the command does not need.
#[derive(Debug, Args)]
pub(crate) struct Network {
    /// The network's name: the `name` inside its configuration file
    pub(crate) network: String,
    /// Accepted for symmetry, not used
    pub(crate) netns: Option<PathBuf>,
}

/// What a collection keeps. Nothing is deleted on missing information: one of the three must be given.
#[derive(Debug, Args)]
#[command(after_help = "With --keep and --valid, everything else of the network goes: cached attachments by a DEL, and what \
the plugins hold for whatever is not named, whoever attached it. With --all the cached attachments go, and no plugin is \
asked: what other runtimes hold stays.")]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) of: Network,
    /// An attachment that is valid; may be given several times
    #[arg(long, value_name = "CONTAINER/IFNAME")]
    pub(crate) keep: Vec<String>,
    /// Attachments that are valid: a JSON list of {"containerID", "ifname"}, or what a plugin is given for GC; `-` is
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) valid: Option<PathBuf>,
    /// Nothing is valid: delete every attachment of the network that is in the cache
    #[arg(long, conflicts_with_all = ["keep", "valid"])]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CniCommand {
    /// Attach a namespace to a network and print the result
    Add(Attachment),
    /// Detach it
    Del(Attachment),
    /// See whether it is still as it was attached
    Check(Attachment),
    /// Delete what is attached to a network and is not valid any more
    Gc(GcArgs),
    /// See whether a network could be attached to now
    Status(Network),
    /// Show which versions of the specification the network's plugins support
    Version(Network),
}

impl Cnitool {
    /// The reference tool knows no valid attachment: its `gc` means all.
    pub(crate) fn into_args(self) -> CniArgs {
        let mut cni = self.cni;
        if let CniCommand::Gc(gc) = &mut cni.command {
            gc.all = gc.keep.is_empty() && gc.valid.is_none();
        }
        cni
    }
}

impl Color {
    /// Makes it hold for everything that is printed.
    pub(crate) fn write_global(self) {
        match self {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}
