//! Observes the nodes: what each node's agent sees of its own namespace and of those of its pods.
//!
//! `netloom agent observe` runs in the agent's pod by exec, with the rights of who verifies. Where agents are no pods, a command that the user
//! names runs it on the node. Nothing listens for it.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Connection, Container, MAX_OUTPUT};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use verify::{Place, Snapshot, Unobserved};

use crate::Options;

/// The label of the agents' pods, as deploy/agent.yaml has it.
pub(crate) const AGENTS: &str = "app=netloom";
/// Their container.
pub(crate) const AGENT: &str = "agent";
/// The most of a program's standard error that is reported, in bytes.
const SAID: u64 = 500;
/// How much longer than an answer an observation is waited for.
const OBSERVED: Duration = Duration::from_secs(30);

/// How long a node is not asked again that did not answer in time: each case that fails would wait for it.
const LEFT_OUT: Duration = Duration::from_secs(300);

/// Who observes, and which nodes.
pub(crate) struct Observer<'a> {
    connection: &'a Connection,
    options: &'a Options,
    nodes: Vec<String>,
    /// How long a node is waited for.
    patience: Duration,
    late: LateNodes,
}

/// The nodes that did not answer in time, and when that was.
#[derive(Default)]
struct LateNodes(Mutex<HashMap<String, Instant>>);

// === impl Observer ===

impl<'a> Observer<'a> {
    pub(crate) fn new(connection: &'a Connection, options: &'a Options, nodes: Vec<String>, timeout: Duration) -> Self {
        Observer { connection, options, nodes, patience: timeout + OBSERVED, late: LateNodes::default() }
    }

    /// What is there now. A node that cannot be observed is named, with why.
    pub(crate) async fn observe(&self) -> Snapshot {
        let mut all = Snapshot::default();
        let seen = join_all(self.nodes.iter().map(|node| async move { (node, self.node(node).await) })).await;
        for (node, seen) in seen {
            match seen {
                Ok(seen) => {
                    all.taken = seen.taken;
                    all.namespaces.extend(seen.namespaces);
                    all.unobserved.extend(seen.unobserved);
                }
                Err(why) => all.unobserved.push(Unobserved { place: Place::Node(node.clone()), why }),
            }
        }
        all
    }

    async fn node(&self, node: &str) -> Result<Snapshot, String> {
        let printed = async {
            match &self.options.node_command {
                Some(command) => by_command(&command.replace("{node}", node), node).await,
                None => self.by_exec(node).await,
            }
        };
        let printed = self.late.wait(node, self.patience, printed).await?;
        Snapshot::read(&printed).map_err(|e| e.to_string())
    }

    async fn by_exec(&self, node: &str) -> Result<Vec<u8>, String> {
        let namespace = &self.options.agents;
        let pods: Api<Pod> = Api::namespaced(self.connection.client(), namespace);
        let on_node = ListParams::default().labels(AGENTS).fields(&format!("spec.nodeName={node}"));
        let agents = pods.list(&on_node).await.map_err(|e| format!("list pods of namespace {namespace}: {e}"))?;
        let agent = agents.items.into_iter().find_map(|pod| pod.metadata.name);
        let pod = agent.ok_or_else(|| {
            format!("no pod with the label {AGENTS} is on it in namespace {namespace}: name theirs with --agents, or a --node-command")
        })?;
        let container = Container { namespace: namespace.clone(), pod, name: AGENT.to_owned() };
        self.connection.output(&container, &["/netloom", "agent", "observe", "--node", node]).await.map_err(|e| e.to_string())
    }
}

// === impl LateNodes ===

impl LateNodes {
    /// What a node answers, if it does so in time, and was not late a short while ago.
    async fn wait<T>(&self, node: &str, patience: Duration, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let nodes = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let why = format!("it did not answer within {} s: look at its load, and at the log of its agent", patience.as_secs());
        if nodes().get(node).is_some_and(|since| since.elapsed() < LEFT_OUT) {
            return Err(format!("{why}; it is asked again after {} min", LEFT_OUT.as_secs() / 60));
        }
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                nodes().insert(node.to_owned(), Instant::now());
                Err(why)
            }
        }
    }
}

async fn by_command(command: &str, node: &str) -> Result<Vec<u8>, String> {
    let failed = |why: String| format!("--node-command {command:?}: {why}");
    let mut shell = Command::new("sh");
    // The node's name is an argument, whatever is in it.
    shell.args(["-c", &format!("exec {command} agent observe --node \"$1\""), "sh", node]).kill_on_drop(true);
    let spawned = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|e| failed(e.to_string()))?;
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(failed("it has no streams".to_owned()));
    };
    let mut said = Vec::new();
    // Who prints too much finds nobody who reads, and ends.
    let read = async move {
        let mut printed = Vec::new();
        stdout.take(MAX_OUTPUT + 1).read_to_end(&mut printed).await.map(|_| printed)
    };
    let beginning = async {
        (&mut stderr).take(SAID).read_to_end(&mut said).await?;
        tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await
    };
    let (printed, status) = tokio::try_join!(read, async { tokio::try_join!(beginning, child.wait()).map(|(_, status)| status) })
        .map_err(|e| failed(e.to_string()))?;
    if printed.len() as u64 > MAX_OUTPUT {
        return Err(failed(format!("it printed more than {} MiB", MAX_OUTPUT >> 20)));
    }
    if !status.success() {
        return Err(failed(format!("{status}: {}", String::from_utf8_lossy(&said).trim())));
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    /// A node that hangs is waited for once, and not by each case that fails; others are asked all the same.
    #[tokio::test]
    async fn a_late_node_is_not_asked_again_at_once() {
        let late = LateNodes::default();
        let first = late.wait("n1", Duration::from_millis(10), pending::<Result<(), String>>()).await.unwrap_err();
        assert!(first.starts_with("it did not answer within 0 s"), "{first}");
        let again = late.wait("n1", Duration::from_secs(600), pending::<Result<(), String>>()).await.unwrap_err();
        assert!(again.ends_with("it is asked again after 5 min"), "{again}");
        assert_eq!(late.wait("n2", Duration::from_secs(600), ready(Ok(7))).await, Ok(7));
    }
}
