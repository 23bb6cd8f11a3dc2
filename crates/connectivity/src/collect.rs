//! Collects what a bug report needs of a cluster, with the rights of who asks for it and no other.
//!
//! ```text
//!   each agent's pod  --exec: netloom sysdump -o - --> the node's archive, from which the pod itself has taken the secrets
//!   Netloom's pods, and those that are named --------> logs
//!   the agents' namespace ---------------------------> events
//!   every namespace ---------------------------------> events that Netloom has written, beside the pods that they are about
//! ```

mod events;

use std::path::PathBuf;
use std::time::Duration;

use cluster::{Connection, Container};
use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, LogParams};

use crate::ConnectivityError;
use crate::observe::{AGENT, AGENTS};

/// The labels of Netloom's pods, as deploy/ has them.
const OURS: &str = "app in (netloom,netloom-operator)";
/// Lines of a log, counted from its end.
const LINES: i64 = 50_000;
/// How long a node's archive, one log, or one list may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is collected.
#[derive(Debug, Clone)]
pub struct Collect {
    /// The kubeconfig; none: the service account of this pod.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the agents' pods.
    pub agents: String,
    /// Pods of others whose logs are wanted, with their namespaces.
    pub logs: Vec<(String, String)>,
    /// The most bytes of a log.
    pub most: u64,
}

/// A piece of what was collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A node's archive.
    Node {
        /// The node.
        node: String,
        /// The archive.
        archive: Vec<u8>,
    },
    /// A text, as it came.
    Text {
        /// The name that it has in an archive.
        name: String,
        /// The text.
        text: Vec<u8>,
    },
    /// What could not be had, and why.
    Missing(String),
}

/// Collects a cluster; `piece` is called with each piece. What cannot be had is a piece as well.
///
/// # Errors
/// [`ConnectivityError`] if the API server does not say which pods are Netloom's.
pub fn collect(wanted: &Collect, say: &dyn Fn(&str), piece: &mut dyn FnMut(Piece)) -> Result<(), ConnectivityError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|e| ConnectivityError::Api { what: "start threads".to_owned(), why: e.to_string(), status: 0 })?;
    runtime.block_on(async {
        let connection = cluster::client(wanted.kubeconfig.as_deref()).await?;
        let namespace = wanted.agents.as_str();
        let pods = Api::<Pod>::namespaced(connection.client(), namespace);
        let ours = ListParams::default().labels(OURS);
        let ours = answered(&format!("list pods of namespace {namespace}"), PATIENCE, pods.list(&ours)).await?.items;
        let is_agent = |pod: &&Pod| pod.metadata.labels.as_ref().is_some_and(|all| all.get("app").is_some_and(|app| app == "netloom"));
        if !ours.iter().any(|pod| is_agent(&pod)) {
            piece(Piece::Missing(format!(
                "the nodes: no pod with the label {AGENTS} is in namespace {namespace}: name theirs with --agents"
            )));
        }
        for pod in ours.iter().filter(is_agent) {
            piece(node(&connection, namespace, pod, say).await);
        }
        for pod in &ours {
            logs(&connection, namespace, pod, wanted.most, piece).await;
        }
        for (namespace, name) in &wanted.logs {
            let pods = Api::<Pod>::namespaced(connection.client(), namespace);
            match answered(&format!("get pod {namespace}/{name}"), PATIENCE, pods.get(name)).await {
                Ok(pod) => logs(&connection, namespace, &pod, wanted.most, piece).await,
                Err(e) => piece(Piece::Missing(e.to_string())),
            }
        }
        events::of_namespace(&connection, namespace, piece).await;
        events::of_netloom(&connection, piece).await;
        Ok(())
    })
}

/// What an API server answers, if it does so in time.
async fn answered<T>(what: &str, patience: Duration, answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, ConnectivityError> {
    match tokio::time::timeout(patience, answer).await {
        Ok(answer) => answer.map_err(|e| ConnectivityError::api(what, &e)),
        Err(_) => {
            let why = format!("the API server did not answer within {} s", patience.as_secs());
            Err(ConnectivityError::Api { what: what.to_owned(), why, status: 0 })
        }
    }
}

fn missing(what: &str, error: &kube::Error) -> Piece {
    Piece::Missing(ConnectivityError::api(what, error).to_string())
}

fn late() -> String {
    format!("it was not whole after {} s", PATIENCE.as_secs())
}

/// The archive of the node of an agent's pod.
async fn node(connection: &Connection, namespace: &str, pod: &Pod, say: &dyn Fn(&str)) -> Piece {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    say(&format!("collecting node {node}"));
    let container = Container { namespace: namespace.to_owned(), pod: name, name: AGENT.to_owned() };
    let sysdump = ["/netloom", "sysdump", "--config", "/etc/netloom/agent.yaml", "-o", "-"];
    match tokio::time::timeout(PATIENCE, connection.output(&container, &sysdump)).await {
        Ok(Ok(archive)) => Piece::Node { node, archive },
        Ok(Err(e)) => Piece::Missing(format!("node {node}: {e}")),
        Err(_) => Piece::Missing(format!("node {node}: {}: run netloom sysdump on it", late())),
    }
}

/// What each container of a pod has said, and said before it was started again.
async fn logs(connection: &Connection, namespace: &str, pod: &Pod, most: u64, piece: &mut dyn FnMut(Piece)) {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let statuses =
        || pod.status.iter().flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses).flatten());
    for container in containers.map(|container| container.name.as_str()) {
        let restarted = statuses().any(|status| status.name == container && status.restart_count > 0);
        for previous in [false, true].into_iter().filter(|previous| !previous || restarted) {
            let suffix = if previous { ".previous" } else { "" };
            let wanted = LogParams { container: Some(container.to_owned()), previous, tail_lines: Some(LINES), ..LogParams::default() };
            let what = format!("read the log of pod {namespace}/{name}, container {container}{suffix}");
            let mut text = Vec::new();
            let read = async {
                let stream = Api::<Pod>::namespaced(connection.client(), namespace).log_stream(name, &wanted).await;
                let stream = stream.map_err(|e| missing(&what, &e))?;
                let read = Box::pin(stream).take(most + 1).read_to_end(&mut text).await;
                read.map(drop).map_err(|e| Piece::Missing(format!("{what}: {e}")))
            };
            let failed = match tokio::time::timeout(PATIENCE, read).await {
                Ok(read) => read.err(),
                Err(_) => Some(Piece::Missing(format!("{what}: {}", late()))),
            };
            if let Some(why) = failed {
                piece(why);
                // What came before is kept.
                if text.is_empty() {
                    continue;
                }
            }
            if text.len() as u64 > most {
                text.truncate(usize::try_from(most).unwrap_or(usize::MAX));
                piece(Piece::Missing(format!("{what}: what is behind its first {} MiB", most >> 20)));
            }
            piece(Piece::Text { name: format!("logs/{namespace}_{name}/{container}{suffix}.log"), text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An API server that is connected and silent does not hold a collection up.
    #[tokio::test]
    async fn a_silent_api_server_is_waited_for_so_long() {
        let answer = std::future::pending::<Result<(), kube::Error>>();
        let error = answered("list pods of namespace n", Duration::from_millis(10), answer).await.unwrap_err();
        let said = error.to_string();
        assert!(said.contains("list pods of namespace n") && said.contains("did not answer within 0 s"), "{said}");
    }
}
