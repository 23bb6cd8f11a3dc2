//! The cluster's operator: flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How the operator works.
#[derive(Debug, Args)]
#[command(
    after_help = "Any number of operators may run: one of them works, and the others wait. That two never grant the same address does not \
                  depend on it."
)]
pub(crate) struct OperatorArgs {
    /// How the API server is reached; without it as the service account of the pod that this runs in
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace of the Lease
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE", default_value = "kube-system", hide_env_values = true)]
    pub(crate) namespace: String,
    /// What this operator is called in the Lease; no other one is called so. Without it the host's name and the process's number
    #[arg(long, env = "POD_NAME", value_name = "NAME", hide_env_values = true)]
    pub(crate) identity: Option<String>,
    /// Work without a Lease, whoever else does
    #[arg(long)]
    pub(crate) no_lease: bool,
    /// For how long a Node must be gone until its blocks are free, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) grace: u64,
    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) health_address: Option<SocketAddr>,
    /// So many writes a second, at most; no more than 16 are on their way at once
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) writes_per_second: u32,
    /// Fill the CiliumNodes of all nodes that this IPPool is for, from its addresses. Without it no such object is read or written
    #[arg(long, value_name = "IPPOOL", num_args = 0..=1, require_equals = true, default_missing_value = "default")]
    pub(crate) cilium_nodes: Option<String>,
    /// For how long a CiliumNode must have had too many addresses until some are taken back, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub(crate) excess_ip_release_delay: u64,
    /// Which lines its log has: these, and those that matter more
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: Level,
}

/// How much it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
}
