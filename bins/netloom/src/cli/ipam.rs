//! Addresses of pools: commands and flags.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
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

/// Where the journal is without `--dir`.
const JOURNAL: &str = "/var/lib/netloom/ipam";

/// Where a host's pools are.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// Where the journal is: `ipam.dataDir` of the networks
    #[arg(long, global = true, value_name = "DIR", default_value = JOURNAL)]
    pub(crate) dir: PathBuf,
    /// Where the pools' files are: `ipam.pools` of the networks
    #[arg(long, global = true, value_name = "DIR", default_value = "/etc/netloom/pools")]
    pub(crate) pools: PathBuf,
}

impl Store {
    /// That a directory which was named is there. The usual one is not before the first ADD.
    pub(crate) fn is_there(&self) -> anyhow::Result<()> {
        let there = self.dir == Path::new(JOURNAL) || self.dir.try_exists().with_context(|| format!("look at {}", self.dir.display()))?;
        anyhow::ensure!(there, "{} does not exist: --dir is where the journal is, `ipam.dataDir` of the networks", self.dir.display());
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum IpamCommand {
    /// Show how many addresses of each pool are in use, and how many are free
    Status(IpamStatusArgs),
    /// Show what each pool is: its blocks, what is never handed out, gateways, cooldown
    Pools(IpamPoolsArgs),
    /// Tell who has an address, who had it, and since when
    Trace(IpamTraceArgs),
    /// Compare what the journal says with what runs on this host: addresses that nobody has any more, that two have, that
    /// nobody was given
    Check(IpamCheckArgs),
    /// Bring over what another address manager has handed out in a cluster: living pods keep their addresses
    Import(IpamImportArgs),
    /// Draw a pool: which of its addresses are in use
    Map(IpamMapArgs),
    /// Show which node of the cluster has which blocks, and what it needs
    Nodes(IpamNodesArgs),
    /// Say that nothing of a node runs any more: its addresses are free, and nobody waits for what it holds
    Reclaim(IpamReclaimArgs),
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct InCluster {
    /// Of a cluster: its kubeconfig; without it $KUBECONFIG, then ~/.kube/config, then the service account of the pod that this runs in
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
            "which cluster? $KUBECONFIG names no file, there is no ~/.kube/config, and this runs in no pod: name one with --kubeconfig FILE"
        );
        Ok(file)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0, or 3 if a node lacks addresses that it needs, has problems, or its agent says nothing.")]
pub(crate) struct IpamNodesArgs {
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// One node; all without it
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// How to print it; json and yaml are the objects of the API server
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
#[command(after_help = "It asks where the Node is there, or its agent has spoken in the last ten minutes: a machine that runs yet would \
                        use addresses that others get.\n\nExit code: 0; 3 if nothing was done, as nobody has agreed; 1 if something could \
                        not be read or written.")]
pub(crate) struct IpamReclaimArgs {
    /// The node
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Show what would be done, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0, or 3 if a pool has no free address or its file is wrong.")]
pub(crate) struct IpamStatusArgs {
    /// One pool; all without it
    #[arg(value_name = "POOL")]
    pub(crate) pool: Option<String>,
    /// Show every address that is in use, and who has it
    #[arg(long)]
    pub(crate) all_addresses: bool,
    /// The pools of the cluster, as its operator counts them, instead of this host's
    #[arg(long)]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) of: InCluster,
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
    /// Which node of the cluster may hand it out, and to whom, instead of this host's journal
    #[arg(long)]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) of: InCluster,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
#[command(after_help = "Nothing is locked, and nobody waits for it. What is found is looked at twice: what comes and goes meanwhile is \
                        not told.\n\n\
                        Exit code: 0; 3 if something is wrong (and was not put right); 1 if it cannot be told, as the journal is \
                        damaged.")]
pub(crate) struct IpamCheckArgs {
    /// Give back addresses whose attachments are gone
    #[arg(long)]
    pub(crate) repair: bool,
    /// Make a damaged journal anew from what runs on this host; the damaged one is kept beside it
    #[arg(long, conflicts_with = "repair")]
    pub(crate) rebuild: bool,
    /// Make it anew without this pool, which it had: nothing has an address of it any more
    #[arg(long, value_name = "POOL", requires = "rebuild")]
    pub(crate) without: Vec<String>,
    /// Do not ask before something is changed
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// A directory of sandboxes' records; without it those of the agent, and of netloom-cni as the plugin `netloom`
    #[arg(long, value_name = "DIR")]
    pub(crate) records: Vec<PathBuf>,
    /// A directory of runtimes' cached results
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cni")]
    pub(crate) cache_dir: Vec<PathBuf>,
    /// How long ago an address must have been given to an attachment that is not found, in seconds: longer than an ADD takes
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) older_than: u64,
    /// How long after the first look the second one is taken, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) apart: u64,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "It can be run again at any time: what is there is not changed. An address is left out only if its pod is gone, or lives and \
                        has another one on that interface.\n\n\
                        Exit code: 0; 3 if an address needs a look; 1 if something could not be read or written."
)]
pub(crate) struct IpamImportArgs {
    /// From what
    #[arg(value_name = "FROM")]
    pub(crate) from: ImportSource,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) cluster: InCluster,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ImportSource {
    /// IPPools of whereabouts.cni.cncf.io
    Whereabouts,
}

#[derive(Debug, Args)]
#[command(after_help = "A sign stands for as many addresses as the legend says. Exit code: 0.")]
pub(crate) struct IpamMapArgs {
    /// The pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// Write a picture to this file, `-` is standard output: SVG, for browsers and documents
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
