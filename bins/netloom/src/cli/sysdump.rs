//! `netloom sysdump`

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;

use super::ipam::InCluster;
use crate::complete;

#[derive(Debug, Args)]
pub(crate) struct SysdumpArgs {
    /// The lab, instead of this node
    #[arg(long, value_name = "LAB", add = ArgValueCandidates::new(complete::labs))]
    pub(crate) lab: Option<String>,
    /// Collect every node of a cluster by its agent's pod, with the logs of Netloom's pods
    #[arg(long, conflicts_with_all = ["lab", "config"])]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) of: InCluster,
    /// The namespace of the agents' pods
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", conflicts_with = "lab")]
    pub(crate) agents: String,
    /// Add the logs of this pod, too; can be repeated
    #[arg(long, value_name = "NAMESPACE/POD", requires = "cluster")]
    pub(crate) logs: Vec<String>,
    /// The archive to write; `-` is standard output [default: netloom-sysdump-NAME-TIME.tar.gz, in this directory]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The agent's settings, in YAML or JSON [default: /etc/netloom/agent.yaml, if it exists]
    #[arg(long, value_name = "FILE", conflicts_with = "lab")]
    pub(crate) config: Option<PathBuf>,
    /// Add this file, or what is in this directory, such as a log; can be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) add: Vec<PathBuf>,
}
