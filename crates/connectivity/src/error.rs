//! Why a cluster cannot be verified.

use std::time::Duration;

use cluster::{ConnectError, ExecError};

/// A verification could not begin, or not go on. What was created is removed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectivityError {
    /// There is no way to the API server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The API server does not do what it is asked for.
    #[error("{what}: {why}{}", next_step(*.status))]
    Api {
        /// What was asked, as `create pod netloom-verify/client-1`.
        what: String,
        /// What the server said.
        why: String,
        /// The HTTP status; 0: there was none.
        status: u16,
    },
    /// The namespace is somebody else's.
    #[error("namespace {0} exists, and no verification made it: choose another name with --namespace")]
    NamespaceTaken(String),
    /// Another verification is at work in it.
    #[error("namespace {name} is in use by {by}: wait until that has ended: until then, its probes use the nodes' ports")]
    InUse {
        /// Its name.
        name: String,
        /// Who made it.
        by: String,
    },
    /// Somebody else has removed the namespace.
    #[error(
        "namespace {0} was removed while it was in use: answers after that are not about the network; verify again, or find who removes it"
    )]
    NamespaceLost(String),
    /// The namespace does not go.
    #[error("namespace {name} is not removed after {} s: look at its conditions: kubectl get namespace {name} -o yaml", .after.as_secs())]
    NamespaceStays {
        /// Its name.
        name: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// No node can run a probe.
    #[error("no node is ready: look at the nodes: kubectl get nodes")]
    NoNode,
    /// There is no image for the probes.
    #[error("no pod with the label app=netloom is in namespace {0}, whose image the probes would have: name one with --image")]
    NoImage(String),
    /// A node that was named is not there, or not ready.
    #[error("node {0} is not there or not ready: look at the nodes: kubectl get nodes")]
    NoSuchNode(String),
    /// A probe's pod does not run.
    #[error("pod {pod} on node {node} does not run: {why}")]
    NotRunning {
        /// The pod.
        pod: String,
        /// Its node.
        node: String,
        /// Why, and the next step.
        why: String,
    },
    /// A probe could not be started by exec.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A probe does not say what is around it.
    #[error("{place}: {why}")]
    Probe {
        /// Where it is.
        place: String,
        /// Why.
        why: String,
    },
    /// The command of the client outside cannot be started.
    #[error("--public {command:?} cannot be started: {why}")]
    Public {
        /// The command.
        command: String,
        /// Why.
        why: String,
    },
    /// `--load-balancer` has too few addresses.
    #[error("--load-balancer {range}: {has} addresses, and each of the {needs} Services needs one: name a larger range")]
    FewAddresses {
        /// The range.
        range: String,
        /// How many it has.
        has: usize,
        /// How many are needed.
        needs: usize,
    },
    /// There is no path to be watched, or there are too many.
    #[error("{0} paths match, and 1 to {most} can be watched: choose cases with --test", most = probe::MOST_WATCHED)]
    Paths(usize),
    /// Somebody has pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

fn next_step(status: u16) -> &'static str {
    match status {
        401 => ": log in again, or check the token of the kubeconfig",
        403 => ": the rights that a verification needs are in docs/operate/verify.md",
        _ => "",
    }
}

// === impl ConnectivityError ===

impl ConnectivityError {
    /// From what a request has said.
    pub(crate) fn api(what: impl Into<String>, error: &kube::Error) -> Self {
        let (why, status) = match error {
            kube::Error::Api(status) => (status.message.clone(), status.code),
            other => (trust::chain(other), 0),
        };
        ConnectivityError::Api { what: what.into(), why, status }
    }
}
