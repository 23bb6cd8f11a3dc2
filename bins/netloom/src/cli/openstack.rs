//! Ports of Neutron: commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use operator::{OpenStack, OpenStackError};

use super::agent::Format;
use super::ipam::InCluster;

/// Which OpenStack, and which cluster of it.
#[derive(Debug, Args)]
pub(crate) struct OpenStackArgs {
    /// The file that describes OpenStack, this cluster's name in it, and what definitions may name
    #[arg(long, value_name = "FILE")]
    pub(crate) openstack: Option<PathBuf>,
    /// The kuryr.conf that describes OpenStack, in place of the key openstack of the other file
    #[arg(long, value_name = "FILE")]
    pub(crate) kuryr_conf: Option<PathBuf>,
    /// The name of this cluster among all that use this OpenStack [default: the key cluster of the file]
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
}

impl OpenStackArgs {
    /// Whether pods are to have ports of Neutron.
    pub(crate) fn is_given(&self) -> bool {
        self.openstack.is_some() || self.kuryr_conf.is_some()
    }

    /// What the files say.
    pub(crate) fn read(&self) -> Result<OpenStack, OpenStackError> {
        OpenStack::read(self.openstack.as_deref(), self.kuryr_conf.as_deref(), self.cluster.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct OpenstackArgs {
    #[command(subcommand)]
    pub(crate) command: OpenstackCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OpenstackCommand {
    /// Show whether Neutron can be used, and how many ports this cluster has there
    Status(OpenstackLookArgs),
    /// Show which rights of Neutron's policy the credentials have, by creating ports in the subnet of the settings and deleting them
    Rights(OpenstackRightsArgs),
    /// List the Neutron ports of this cluster's pods
    Ports(OpenstackLookArgs),
    /// List the pools of ready Neutron ports, or delete the ports that no pod has
    Pools(OpenstackPoolsArgs),
    /// List, or delete, this cluster's Neutron ports whose pods are gone
    Orphans(OpenstackOrphansArgs),
    /// Take over the KuryrPorts and Neutron ports of a Kuryr-Kubernetes that was stopped
    Adopt(OpenstackAdoptArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OpenstackLookArgs {
    #[command(flatten)]
    pub(crate) openstack: OpenStackArgs,
    #[command(flatten)]
    pub(crate) of: InCluster,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct OpenstackRightsArgs {
    #[command(flatten)]
    pub(crate) openstack: OpenStackArgs,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct OpenstackPoolsArgs {
    #[command(flatten)]
    pub(crate) look: OpenstackLookArgs,
    /// Delete the ready ports that no pod has; refused while an operator works
    #[arg(long)]
    pub(crate) delete: bool,
    /// The namespace of the operator's Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub(crate) namespace: String,
}

#[derive(Debug, Args)]
pub(crate) struct OpenstackOrphansArgs {
    #[command(flatten)]
    pub(crate) look: OpenstackLookArgs,
    /// Delete them
    #[arg(long)]
    pub(crate) delete: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OpenstackAdoptArgs {
    #[command(flatten)]
    pub(crate) look: OpenstackLookArgs,
    /// Show what would be taken over, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
