//! `netloom verify`, and the probe that it starts.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ipam::InCluster;
use super::{Structured, Which};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct VerifyArgs {
    #[command(subcommand)]
    pub(crate) command: Option<VerifyCommand>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only cases whose number or words match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub(crate) test: Vec<String>,
    /// List the cases, what each needs and which families have it, and try none
    #[arg(long)]
    pub(crate) list: bool,
    /// The number of probes at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) concurrency: u16,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) timeout: u64,
    /// Verify what `netloom sysdump` has recorded in this file, instead of what is there now
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "short_name", "wanted"])]
    pub(crate) from: Option<PathBuf>,
    /// Repeat the probes until Ctrl-C, and print when a path breaks and when it heals
    #[arg(long, conflicts_with_all = ["from", "list", "pause_on_fail"])]
    pub(crate) watch: bool,
    /// Try also whether bandwidth limits hold, for 3 to 90 seconds each: those of a lab's networks, or that of a pod that is made for it
    #[arg(long, conflicts_with_all = ["watch", "from"])]
    pub(crate) bandwidth: bool,
    /// Wait for Enter after each case that fails
    #[arg(long, conflicts_with = "output")]
    pub(crate) pause_on_fail: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: VerifyFormat,
    #[command(flatten)]
    pub(crate) cluster: VerifyCluster,
}

/// The cluster, and the probes that are created in it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for a cluster")]
pub(crate) struct ProbedCluster {
    /// Verify a cluster instead of a lab: create probe pods and Services in it, and remove them
    #[arg(long = "cluster", conflicts_with_all = ["name", "short_name"])]
    pub(crate) wanted: bool,
    #[command(flatten)]
    pub(crate) of: InCluster,
    /// The namespace to create for the probes, and to remove
    #[arg(long, value_name = "NAMESPACE", default_value = "netloom-verify", requires = "wanted")]
    pub(crate) namespace: String,
    /// The image of the probes [default: that of the agents]
    #[arg(long, value_name = "IMAGE", requires = "wanted")]
    pub(crate) image: Option<String>,
    /// The nodes that take part [default: the first ones that are ready]
    #[arg(long, value_name = "NODE", value_delimiter = ',', requires = "wanted")]
    pub(crate) node: Vec<String>,
    /// The number of nodes that take part
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "wanted", conflicts_with = "node",
        value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) nodes: u16,
    /// The namespace of the agents' pods
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", requires = "wanted")]
    pub(crate) agents: String,
    /// Keep the probes and Services at the end; the next verification removes them
    #[arg(long, requires = "wanted")]
    pub(crate) keep: bool,
}

/// The cluster, and what is outside of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for a cluster")]
pub(crate) struct VerifyCluster {
    #[command(flatten)]
    pub(crate) probed: ProbedCluster,
    /// Write to this file what the nodes had at the end, for `netloom verify --from`
    #[arg(long, value_name = "FILE", requires = "wanted", conflicts_with = "watch")]
    pub(crate) record: Option<PathBuf>,
    /// Attach the probes to these networks as well, as the annotation of a pod names them
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', requires = "wanted")]
    pub(crate) network: Vec<String>,
    /// The address of a host outside on which `netloom probe serve --name outside/internet` runs; can be repeated
    #[arg(long, value_name = "ADDRESS", requires = "wanted")]
    pub(crate) internet: Vec<IpAddr>,
    /// The address of the metadata service, 169.254.169.254 in most clouds
    #[arg(long, value_name = "ADDRESS", requires = "wanted")]
    pub(crate) metadata: Option<IpAddr>,
    /// The command that runs netloom on a host outside, as `ssh bastion netloom`
    #[arg(long, value_name = "COMMAND", requires = "wanted")]
    pub(crate) public: Option<String>,
    /// The load balancer: `cloud`, or ranges of addresses that lead to nodes, of which each Service gets one
    #[arg(long, value_name = "cloud|RANGE", value_delimiter = ',', requires = "wanted")]
    pub(crate) load_balancer: Vec<String>,
    /// The command that runs netloom on a node, where agents are no pods, as `ssh root@{node} netloom`
    #[arg(long, value_name = "COMMAND", requires = "wanted")]
    pub(crate) node_command: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VerifyCommand {
    /// Measure throughput and latency between the pods of a lab or a cluster, by network
    Perf(PerfArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PerfArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only networks whose name matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub(crate) network: Option<String>,
    /// Seconds of sending, for the throughput of each pair
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) duration: u64,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) timeout: u64,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
    #[command(flatten)]
    pub(crate) cluster: PerfCluster,
}

/// The cluster that is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for a cluster")]
pub(crate) struct PerfCluster {
    #[command(flatten)]
    pub(crate) probed: ProbedCluster,
    /// Attach the probes to these networks as well, as the annotation of a pod names them
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', requires = "wanted")]
    pub(crate) attach: Vec<String>,
}

/// How the cases are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyFormat {
    /// A line for each case, then what failed and why
    Table,
    /// Data for a program
    Json,
    /// For a continuous-integration server
    Junit,
    /// A page for a browser
    Html,
}

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    #[command(subcommand)]
    pub(crate) command: ProbeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProbeCommand {
    /// Run a server that answers with its name and the address that it sees
    Serve {
        /// The name that it answers with
        #[arg(long)]
        name: String,
        /// The ports, TCP and UDP
        #[arg(long, default_values_t = [verify::PORT])]
        port: Vec<u16>,
        /// Take bytes on TCP port 26768 as well, as fast as they come
        #[arg(long)]
        sink: bool,
    },
    /// Answer the orders of a verification, a line of JSON each, until the input ends
    Work,
    /// Print who answers, and the address that it sees
    Ask {
        /// Address and port
        to: SocketAddr,
        /// Ask over UDP
        #[arg(long)]
        udp: bool,
        /// Of UDP: bytes of the packet with its IP header, which is not fragmented
        #[arg(long, requires = "udp")]
        size: Option<usize>,
        /// Seconds to wait for an answer
        #[arg(long, default_value_t = 3)]
        timeout: u64,
    },
}
