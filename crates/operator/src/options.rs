//! How an operator is to work.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::{LogLevel, OpenStack};

/// How an operator is to work.
#[derive(Debug, Clone)]
pub struct Options {
    /// A kubeconfig; without it the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// Where the Lease is.
    pub namespace: String,
    /// Who this is, in the Lease: no other operator has the same name.
    pub identity: String,
    /// Whether a Lease decides which one of several operators works. Without it each of them does, and they get in each other's way.
    pub lease: bool,
    /// For how long a Node must be gone, and its agent silent, until its blocks are free: its pods may run for a while, and be reached.
    pub grace: Duration,
    /// Where `/healthz`, `/readyz` and `/metrics` are served.
    pub health_address: Option<SocketAddr>,
    /// So many writes a second, at most. No more than 16 are on their way at once, whatever this is: a sixth of the seats that priority
    /// and fairness gives the service accounts of `kube-system` by default (98), so that nobody else is kept waiting. With 50 a second the
    /// objects of 5,000 new nodes alone take 100 s; with 200 they take 25 s.
    pub writes_per_second: u32,
    /// The IPPool of which nodes get addresses in their CiliumNodes; without it no such object is read or written.
    pub cilium_nodes: Option<String>,
    /// For how long a CiliumNode must have had too many addresses until some are taken back.
    pub release_delay: Duration,
    /// How often everything that nodes have is compared with the ledger.
    pub audit_every: Duration,
    /// How pods get ports of Neutron; without it nothing of OpenStack is asked.
    pub openstack: Option<OpenStack>,
    /// What it says of itself, for the whole process.
    pub log_level: LogLevel,
}

// === impl Options ===

impl Options {
    /// The defaults, for an operator of this name.
    #[must_use]
    pub fn new(identity: impl Into<String>) -> Self {
        Options {
            kubeconfig: None,
            namespace: "kube-system".to_owned(),
            identity: identity.into(),
            lease: true,
            grace: Duration::from_secs(15 * 60),
            health_address: None,
            writes_per_second: 200,
            cilium_nodes: None,
            release_delay: Duration::from_secs(180),
            audit_every: Duration::from_secs(60),
            openstack: None,
            log_level: LogLevel::Info,
        }
    }
}
