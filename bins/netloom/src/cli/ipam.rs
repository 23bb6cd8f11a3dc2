//! Addresses of pools: commands and flags.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use super::Structured;
use crate::complete;

/// Which pools: those of this host.
#[derive(Debug, Args)]
pub(crate) struct IpamArgs {
    #[command(flatten)]
    pub(crate) of: Store,
    #[command(subcommand)]
    pub(crate) command: IpamCommand,
}

/// Where the journal is without `--dir`.
const JOURNAL: &str = "/var/lib/netloom/ipam";

/// Where a host's pools are.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The directory of the journal: the networks' `ipam.dataDir`
    #[arg(long, global = true, value_name = "DIR", default_value = JOURNAL)]
    pub(crate) dir: PathBuf,
    /// The directory of the pool files: the networks' `ipam.pools`
    #[arg(long, global = true, value_name = "DIR", default_value = "/etc/netloom/pools")]
    pub(crate) pools: PathBuf,
}

impl Store {
    /// That a directory which was named is there. The usual one is not before the first ADD.
    pub(crate) fn is_there(&self) -> anyhow::Result<()> {
        let there = self.dir == Path::new(JOURNAL) || self.dir.try_exists().with_context(|| format!("look at {}", self.dir.display()))?;
        anyhow::ensure!(
            there,
            "{} does not exist: set --dir to the directory of the journal, the networks' `ipam.dataDir`",
            self.dir.display()
        );
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum IpamCommand {
    /// Show how many addresses of each pool are in use and free
    Status(IpamStatusArgs),
    /// Show each pool's blocks, excluded addresses, gateways and cooldown
    Pools(IpamPoolsArgs),
    /// Show which pod has an address, which had it, and since when
    Trace(IpamTraceArgs),
    /// Compare the journal with what runs on this host: leaked, duplicate and unrecorded addresses
    Check(IpamCheckArgs),
    /// Import the allocations of another address manager, so that running pods keep their addresses
    Import(IpamImportArgs),
    /// Export the addresses of running pods to another address manager
    Export(IpamExportArgs),
    /// Draw which addresses of a pool are in use
    Map(IpamMapArgs),
    /// Show the address blocks and needs of the cluster's nodes
    Nodes(IpamNodesArgs),
    /// Release every address of a node that is gone for good
    Reclaim(IpamReclaimArgs),
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct InCluster {
    /// The cluster's kubeconfig [default: $KUBECONFIG, else ~/.kube/config, else the service account of this pod]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl InCluster {
    /// The kubeconfig that is meant; none in a pod, which has a service account.
    pub(crate) fn file(&self) -> anyhow::Result<Option<PathBuf>> {
        let of_environment = || {
            let paths = std::env::var_os("KUBECONFIG")?;
            std::env::split_paths(&paths).find(|path| !path.as_os_str().is_empty())
        };
        let of_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube/config")).filter(|path| path.exists());
        let file = self.kubeconfig.clone().or_else(of_environment).or_else(of_home);
        // As who connects from within a pod looks for it.
        let of_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        anyhow::ensure!(
            file.is_some() || of_pod,
            "no cluster is configured: set --kubeconfig or $KUBECONFIG; there is no ~/.kube/config, and this does not run in a pod"
        );
        Ok(file)
    }
}

#[derive(Debug, Args)]
pub(crate) struct IpamNodesArgs {
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// Show only this node, including pools from which it has no addresses
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Output format; json and yaml are the objects of the API server
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct IpamReclaimArgs {
    /// The node to release
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Show what would be done and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct IpamStatusArgs {
    /// Show only this pool
    #[arg(value_name = "POOL", add = ArgValueCandidates::new(complete::pools))]
    pub(crate) pool: Option<String>,
    /// List every address that is in use, and its pod
    #[arg(long)]
    pub(crate) all_addresses: bool,
    /// Show the cluster's pools, as its operator counts them, instead of this host's
    #[arg(long)]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) of: InCluster,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct IpamPoolsArgs {
    /// Show only this pool
    #[arg(value_name = "POOL", add = ArgValueCandidates::new(complete::pools))]
    pub(crate) pool: Option<String>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct IpamTraceArgs {
    /// The address
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: IpAddr,
    /// Show which node of the cluster may assign it, and to which pod, instead of this host's journal
    #[arg(long)]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) of: InCluster,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct IpamCheckArgs {
    /// Compare what all nodes of the cluster have with its ledger and with each other, instead of this host's journal
    #[arg(long, conflicts_with_all = ["repair", "rebuild"])]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) of: InCluster,
    /// Free the addresses whose attachments are gone
    #[arg(long)]
    pub(crate) repair: bool,
    /// Rebuild a damaged journal from what runs on this host; the damaged one is kept beside it
    #[arg(long, conflicts_with = "repair")]
    pub(crate) rebuild: bool,
    /// Leave out this pool when rebuilding, because nothing has an address of it any more
    #[arg(long, value_name = "POOL", requires = "rebuild")]
    pub(crate) without: Vec<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// A directory of attachment records [default: those of the agent and of the netloom plugin]
    #[arg(long, value_name = "DIR")]
    pub(crate) records: Vec<PathBuf>,
    /// A directory of cached results
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cni")]
    pub(crate) cache_dir: Vec<PathBuf>,
    /// Report an address without an attachment only if it was assigned at least this many seconds ago; longer than an ADD takes
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) older_than: u64,
    /// Seconds between the first and the second look
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) apart: u64,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct IpamImportArgs {
    /// The address manager to import from
    #[arg(value_name = "FROM")]
    pub(crate) from: ImportSource,
    /// Show what would be done and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ImportSource {
    /// IPPools of whereabouts.cni.cncf.io
    Whereabouts,
}

#[derive(Debug, Args)]
pub(crate) struct IpamExportArgs {
    /// The address manager to export to
    #[arg(value_name = "TO")]
    pub(crate) to: ImportSource,
    /// The namespace of its objects
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub(crate) namespace: String,
    /// Show what would be done and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
pub(crate) struct IpamMapArgs {
    /// The pool to draw
    #[arg(value_name = "POOL", add = ArgValueCandidates::new(complete::pools))]
    pub(crate) pool: String,
    /// Write an SVG picture to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
