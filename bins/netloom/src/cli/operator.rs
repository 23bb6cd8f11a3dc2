//! The cluster's operator: flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::OpenStackArgs;

/// How the operator works.
#[derive(Debug, Args)]
pub(crate) struct OperatorArgs {
    /// The kubeconfig of the API server [default: the service account of this pod]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace of the Lease
    #[arg(short, long, env = "POD_NAMESPACE", value_name = "NAMESPACE", default_value = "kube-system", hide_env_values = true)]
    pub(crate) namespace: String,
    /// This operator's name in the Lease, which must be unique [default: the host name and the process ID]
    #[arg(long, env = "POD_NAME", value_name = "NAME", hide_env_values = true)]
    pub(crate) identity: Option<String>,
    /// Work without leader election, even if other operators run
    #[arg(long)]
    pub(crate) no_lease: bool,
    /// Seconds that a Node must be gone, and its agent silent, before its blocks are released
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) grace: u64,
    /// The address to serve /healthz, /readyz and /metrics on
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) health_address: Option<SocketAddr>,
    /// The maximum number of writes per second, of which at most 16 are in flight
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) writes_per_second: u32,
    /// Assign addresses of this IPPool to the CiliumNodes of its nodes. Without this flag, CiliumNodes are neither read nor written
    #[arg(long, value_name = "IPPOOL", num_args = 0..=1, require_equals = true, default_missing_value = "default")]
    pub(crate) cilium_nodes: Option<String>,
    /// Seconds that a CiliumNode must have excess addresses before some are released
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub(crate) excess_ip_release_delay: u64,
    #[command(flatten)]
    pub(crate) openstack: OpenStackArgs,
    /// The least severe level to log
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
