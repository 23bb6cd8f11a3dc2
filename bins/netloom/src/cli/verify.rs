//! `netloom verify`, and the probe that it starts.

use std::net::SocketAddr;

use clap::{Args, Subcommand, ValueEnum};

use super::Which;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only cases whose number or words match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub(crate) test: Vec<String>,
    /// List the cases and what each needs, and try none
    #[arg(long)]
    pub(crate) list: bool,
    /// The number of probes at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) concurrency: u16,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) timeout: u64,
    /// Wait for Enter after each case that fails
    #[arg(long, conflicts_with = "output")]
    pub(crate) pause_on_fail: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: VerifyFormat,
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
    },
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
