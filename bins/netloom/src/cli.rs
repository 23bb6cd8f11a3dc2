//! Every command and flag. Help, completion and man pages are made from this, and from the pages in `help`.

mod agent;
mod dhcp;
mod ipam;
mod openstack;
mod operator;
mod sysdump;
mod verify;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use lab::PodRef;

pub(crate) use dhcp::{DhcpArgs, with_two_dashes};
pub(crate) use ipam::{
    ImportSource, IpamArgs, IpamCheckArgs, IpamCommand, IpamExportArgs, IpamImportArgs, IpamMapArgs, IpamNodesArgs, IpamPoolsArgs,
    IpamReclaimArgs, IpamStatusArgs, IpamTraceArgs, Store,
};

pub(crate) use sysdump::SysdumpArgs;
pub(crate) use verify::{
    PerfArgs, PerfCluster, ProbeArgs, ProbeCommand, ProbedCluster, VerifyArgs, VerifyCluster, VerifyCommand, VerifyFormat,
};

pub(crate) use openstack::{
    OpenStackArgs, OpenstackAdoptArgs, OpenstackArgs, OpenstackCommand, OpenstackLookArgs, OpenstackOrphansArgs, OpenstackPoolsArgs,
    OpenstackRightsArgs,
};
pub(crate) use operator::{Level as OperatorLogLevel, OperatorArgs};

use crate::complete;
use crate::output::ODD;
use agent::AgentArguments;
pub(crate) use agent::{
    AgentArgs, AgentCommand, ExplainArgs, Format, InstallArgs, Ipam, NodesArgs, PodsArgs, PreflightArgs, RotateKeysArgs, StatusArgs,
};

/// Attach every pod to any number of networks.
#[derive(Debug, Parser)]
#[command(name = "netloom", version, max_term_width = 100, arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    /// When to print colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Attach network namespaces to the networks of a CNI configuration directory.
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
    /// Show agent health and pending work
    Status(StatusArgs),
    /// List this node's pods and their attachments
    #[command(visible_alias = "ps")]
    Pods(PodsArgs),
    /// List the cluster's nodes, how packets get to their pods, and whether they pass
    Nodes(NodesArgs),
    /// Explain what a pod requested, what it got, how long that took, or why it failed
    Explain(ExplainArgs),
    /// Run this node's agent, or install what the container runtime needs
    Agent(AgentArgs),
    /// Run the cluster's operator, which grants address blocks to nodes and makes pods' Neutron ports
    Operator(OperatorArgs),
    /// Show the cluster's Neutron ports, and delete those whose pods are gone
    Openstack(OpenstackArgs),
    /// Check manifests of networks and pods for mistakes, without root and without a cluster
    Validate(ValidateArgs),
    /// Try networks on this machine: pods are network namespaces, without Kubernetes
    Lab(LabArgs),
    /// Verify that the networks of a lab or a cluster work, and show the hop where one does not
    Verify(Box<VerifyArgs>),
    /// Write what a bug report needs from this node or a lab into one archive, without secrets
    Sysdump(SysdumpArgs),
    /// Answer and ask, in a pod that is verified
    #[command(hide = true)]
    Probe(ProbeArgs),
    /// Attach a network namespace to a network of a CNI configuration directory
    Cni(CniArgs),
    /// Run the daemon that renews the leases of the dhcp plugin
    Dhcp(DhcpArgs),
    /// Show, check and import address allocations
    Ipam(IpamArgs),
    /// Show each pod's firewall entries: published ports, masquerading, spoof guards, rate limits
    Rules(RulesArgs),
    /// Restore missing firewall entries, as after a flush of the ruleset
    Repair(RepairArgs),
    /// List the built-in plugins, or the configuration keys of one
    Plugins(PluginsArgs),
    /// Show the version, the commit, the Rust compiler and the kernel's features
    Version(VersionArgs),
    /// Print a completion script for a shell
    Completion {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command
    Man {
        /// The directory to write to
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RulesArgs {
    #[command(flatten)]
    pub(crate) asked: AgentArguments,
    /// Only entries of this pod, as [NAMESPACE/]POD, or of the container whose ID begins with this
    #[arg(value_name = "POD", add = ArgValueCandidates::new(complete::pods))]
    pub(crate) pod: Option<String>,
    /// The network namespace to look in [default: the current one]
    #[arg(long, value_name = "PATH")]
    pub(crate) netns: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) asked: AgentArguments,
    /// A directory of attachment records [default: those of the agent and of the netloom plugin]
    #[arg(long, value_name = "DIR")]
    pub(crate) records: Vec<PathBuf>,
    /// A directory of cached results, as podman and cnitool write it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cni")]
    pub(crate) cache_dir: Vec<PathBuf>,
    /// A directory in which podman, cnitool and other runtimes find plugins [default: $CNI_PATH, else /opt/cni/bin and podman's directories].
    /// An attachment is skipped if another program's plugin is there and may have made it
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin_dir: Vec<PathBuf>,
    /// Show what is missing and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seconds to wait for a pod that is being attached or detached
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) timeout: u64,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// YAML or JSON files, folders of them, or `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Output format [default: as a compiler prints]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Listed>,
}

/// Structured output, or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    Json,
    Yaml,
    Table,
}

#[derive(Debug, Args)]
pub(crate) struct PluginsArgs {
    /// The plugin
    #[arg(value_name = "PLUGIN", add = ArgValueCandidates::new(complete::plugins))]
    pub(crate) name: Option<String>,
    /// Output format
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
    #[arg(long, default_value = "lab", value_name = "LAB", add = ArgValueCandidates::new(complete::labs))]
    name: String,
    /// The lab's name, as in earlier versions
    #[arg(short = 'n', hide = true, value_name = "LAB", conflicts_with = "name")]
    short_name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Build a lab from manifests: Pod, NetworkAttachmentDefinition, IPPool, Node
    Up(UpArgs),
    /// Take down a lab and everything that belongs to it
    Down(DownArgs),
    /// List the labs that are up
    #[command(visible_alias = "ls")]
    List {
        /// Output format
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Structured>,
    },
    /// Run a command in the network of a pod, or of a node as `node/NAME`
    Exec {
        #[command(flatten)]
        which: Which,
        /// The pod, as [NAMESPACE/]POD, or node/NAME
        #[arg(add = ArgValueCandidates::new(complete::lab_pods))]
        pod: PodRef,
        /// The command and its arguments [default: a shell]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
        command: Vec<std::ffi::OsString>,
    },
    /// Show the pods' interfaces and addresses, and whether they are unchanged
    #[command(visible_alias = "ps")]
    Status {
        #[command(flatten)]
        which: Which,
        /// Only this pod, as [NAMESPACE/]POD
        #[arg(add = ArgValueCandidates::new(complete::lab_pods))]
        pod: Option<PodRef>,
        /// Output format; for one pod, json is its network-status annotation
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Structured>,
    },
    /// Draw a lab's pods, interfaces, bridges and parent interfaces
    Graph {
        #[command(flatten)]
        which: Which,
        /// Output format
        #[arg(short = 'o', long = "output", alias = "format", value_enum, default_value = "terminal", value_name = "FORMAT")]
        format: GraphFormat,
    },
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// YAML or JSON files, folders of them, or `-` for standard input. A folder's net.d/ and bin/ are searched for
    /// configurations and plugins as well
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The default network of every pod: a CNI configuration file, or `none` [default: the network that agents provide]
    #[arg(long, value_name = "FILE|none")]
    pub(crate) default_network: Option<PathBuf>,
    /// How the default network's packets get from node to node
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto", conflicts_with = "default_network")]
    pub(crate) between: Between,
    /// The directory with the configurations of definitions that have none of their own
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) conf_dir: PathBuf,
    /// Directories with the plugins that are not built in
    #[arg(long, env = "CNI_PATH", value_name = "DIRS", default_value = "/opt/cni/bin", hide_env_values = true)]
    pub(crate) cni_path: String,
    /// Stay in the foreground until Ctrl-C: the nodes' agents repair the network, and what is added to the files joins the lab
    #[arg(long, conflicts_with_all = ["dry_run", "output"])]
    pub(crate) watch: bool,
    /// Show what would be built, and every mistake in the manifests, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Build the lab although the manifests have mistakes: a pod that cannot be attached is left without networks
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Take down every lab
    #[arg(long, conflicts_with_all = ["name", "short_name"])]
    pub(crate) all: bool,
    /// Continue even if programs run in the lab, an attachment cannot be removed, or the lab's state is damaged
    #[arg(long)]
    pub(crate) force: bool,
}

/// The ways from node to node, as the agent's setting `between` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Between {
    /// Routes where two nodes are on one link, vxlan where not
    Auto,
    /// Routes alone
    Direct,
    /// Vxlan alone
    Vxlan,
    /// WireGuard alone: encrypted
    Wireguard,
    /// Routes where two nodes are on one link, WireGuard where not
    AutoWireguard,
}

/// Structured output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structured {
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// Boxes and lines, coloured on a terminal
    Terminal,
    /// A picture for documents and browsers
    Svg,
    /// A Mermaid diagram for Markdown
    Mermaid,
    /// Input for Graphviz
    Dot,
    /// The drawing's contents as data
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct CniArgs {
    #[command(subcommand)]
    pub(crate) command: CniCommand,
    /// Directory of network configurations
    #[arg(long, global = true, env = "NETCONFPATH", value_name = "DIR", default_value = "/etc/cni/net.d", hide_env = true)]
    pub(crate) conf_dir: PathBuf,
    /// Name of the interface inside the namespace
    #[arg(short, long, global = true, env = "CNI_IFNAME", value_name = "NAME", default_value = "eth0", hide_env = true)]
    pub(crate) ifname: String,
    /// Directory of cached results
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/cni")]
    pub(crate) cache_dir: PathBuf,
    /// Seconds after which running plugins are killed; a failed `add` has 30 more to undo its work
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

/// A network and a namespace.
#[derive(Debug, Args)]
pub(crate) struct Attachment {
    /// The network's name: the `name` inside its configuration file
    #[arg(add = ArgValueCandidates::new(complete::networks))]
    pub(crate) network: String,
    /// The path of the network namespace, such as /var/run/netns/NAME
    pub(crate) netns: PathBuf,
}

/// A network, and a namespace that the command does not need.
#[derive(Debug, Args)]
pub(crate) struct Network {
    /// The network's name: the `name` inside its configuration file
    #[arg(add = ArgValueCandidates::new(complete::networks))]
    pub(crate) network: String,
    /// Accepted for compatibility with cnitool, and ignored
    pub(crate) netns: Option<PathBuf>,
}

/// What a collection keeps. Nothing is deleted on missing information: one of the three must be given.
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) of: Network,
    /// An attachment to keep; may be given several times
    #[arg(long, value_name = "CONTAINER/IFNAME")]
    pub(crate) keep: Vec<String>,
    /// The attachments to keep: a JSON list of {"containerID", "ifname"}, or the configuration that a plugin gets for GC;
    /// `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) valid: Option<PathBuf>,
    /// Keep none: delete every attachment of the network that is in the cache
    #[arg(long, conflicts_with_all = ["keep", "valid"])]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CniCommand {
    /// Attach a namespace to a network, and print the result
    Add(Attachment),
    /// Detach a namespace from a network
    Del(Attachment),
    /// Check that an attachment is unchanged
    Check(Attachment),
    /// Delete a network's attachments that are not valid any more
    Gc(GcArgs),
    /// Check whether a network is ready for new attachments
    Status(Network),
    /// Show the CNI versions that a network's plugins support
    Version(Network),
}

impl Which {
    /// The lab's name.
    pub(crate) fn name(&self) -> &str {
        let Some(name) = &self.short_name else { return &self.name };
        crate::output::eputln!(
            "{ODD}warning:{ODD:#} -n is deprecated for a lab, and will be removed in the next release: use --name {name}"
        );
        name
    }
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
