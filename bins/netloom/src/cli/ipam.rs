//! Addresses of pools: commands and flags.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Structured;

/// Which pools: those of this host.
#[derive(Debug, Args)]
pub(crate) struct IpamArgs {
    #[command(flatten)]
    pub(crate) of: Store,
    #[command(subcommand)]
    pub(crate) command: IpamCommand,
}

/// Where a host's pools are.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// Where the journal is: `ipam.dataDir` of the networks
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/netloom/ipam")]
    pub(crate) dir: PathBuf,
    /// Where the pools' files are: `ipam.pools` of the networks
    #[arg(long, global = true, value_name = "DIR", default_value = "/etc/netloom/pools")]
    pub(crate) pools: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IpamCommand {
    /// Show how many addresses of each pool are in use, and how many are free
    Status(IpamStatusArgs),
    /// Show what each pool is: its blocks, what is never handed out, gateways, cooldown
    Pools(IpamPoolsArgs),
    /// Tell who has an address, who had it, and since when
    Trace(IpamTraceArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0, or 3 if a pool has no free address or its file is wrong.")]
pub(crate) struct IpamStatusArgs {
    /// One pool; all without it
    #[arg(value_name = "POOL")]
    pub(crate) pool: Option<String>,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0, or 3 if a pool's file is wrong.")]
pub(crate) struct IpamPoolsArgs {
    /// One pool; all without it
    #[arg(value_name = "POOL")]
    pub(crate) pool: Option<String>,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
#[command(after_help = "Of the past the journal has what happened since the snapshot before its last one.\n\n\
                        Exit code: 0, or 3 if no pool has the address and nobody had it.")]
pub(crate) struct IpamTraceArgs {
    /// The address
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: IpAddr,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}
