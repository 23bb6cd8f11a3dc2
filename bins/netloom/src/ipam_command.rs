//! `netloom ipam`: a file for each of its commands.
//!
//! ```text
//!   journal, read without its lock --+--> host::Host --> status, ... --> tables, JSON, YAML
//!   the pools' files ----------------+
//!   whereabouts' objects in a cluster --> import --> the cluster's ledger
//!   pods of a cluster --> export --> whereabouts' objects
//!   Node, ledger --> reclaim --> an annotation of the cluster's IPPools
//! ```

mod addresses;
mod check;
mod cluster_check;
mod cluster_pools;
mod evidence;
mod export;
mod host;
mod import;
mod map;
mod nodes;
mod pools;
mod rebuild;
mod reclaim;
mod repair;
mod status;
mod trace;
mod whose;
mod words;

use std::process::ExitCode;

use crate::cli::{IpamArgs, IpamCommand};

/// The exit code where all could be looked at, and not all is well.
const NOT_WELL: u8 = 3;

/// One of them.
pub(crate) fn run(args: &IpamArgs) -> anyhow::Result<ExitCode> {
    let of_cluster = match &args.command {
        IpamCommand::Export(_) | IpamCommand::Import(_) | IpamCommand::Nodes(_) | IpamCommand::Reclaim(_) => true,
        IpamCommand::Status(command) => command.cluster,
        IpamCommand::Trace(command) => command.cluster,
        IpamCommand::Check(command) => command.cluster,
        IpamCommand::Map(_) | IpamCommand::Pools(_) => false,
    };
    if !of_cluster {
        args.of.is_there()?;
    }
    match &args.command {
        IpamCommand::Check(command) if command.cluster => cluster_check::run(command),
        IpamCommand::Check(command) => check::run(&args.of, command),
        IpamCommand::Export(command) => export::run(command),
        IpamCommand::Import(command) => import::run(command),
        IpamCommand::Map(command) => map::run(&args.of, command),
        IpamCommand::Nodes(command) => nodes::run(command),
        IpamCommand::Pools(command) => pools::run(&args.of, command),
        IpamCommand::Reclaim(command) => reclaim::run(command),
        IpamCommand::Status(command) if command.cluster => cluster_pools::run(command),
        IpamCommand::Status(command) => status::run(&args.of, command),
        IpamCommand::Trace(command) if command.cluster => whose::run(command),
        IpamCommand::Trace(command) => trace::run(&args.of, command),
    }
}
