//! A program in a running container, over the connection that every request uses (WebSocket, `v5.channel.k8s.io`).
//!
//! It needs what `kubectl exec` needs: the rights `get` and `create` on `pods/exec` in the pod's namespace, and a container that has the program.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess};
use kube::client::UpgradeConnectionError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, SimplexStream, WriteHalf};

use trust::chain;

use crate::Connection;

/// How many bytes of each stream may be ahead of who reads it.
const AHEAD: usize = 64 << 10;
/// The most that a program may print where its whole output is wanted, in bytes.
const MAX_OUTPUT: u64 = 256 << 20;
/// The most of its standard error that is kept, in bytes.
const MAX_SAID: u64 = 16 << 10;

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container's name.
    pub name: String,
}

/// A program that runs in a container.
pub struct Exec {
    /// Its standard input.
    pub stdin: WriteHalf<SimplexStream>,
    /// Its standard output.
    pub stdout: ReadHalf<SimplexStream>,
    /// What holds the connection.
    pub open: OpenExec,
}

/// The connection to a program in a container. It is closed when this is dropped.
pub struct OpenExec {
    stderr: ReadHalf<SimplexStream>,
    process: AttachedProcess,
}

/// A program could not be run in a container, or failed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The API server refuses it.
    #[error("pod {container}: exec is refused ({status}): {}", next_step(*.status))]
    Refused {
        /// Where.
        container: Container,
        /// The HTTP status.
        status: u16,
    },
    /// The connection failed.
    #[error("pod {container}: exec failed: {why}: check that the API server reaches the kubelet of the pod's node")]
    Failed {
        /// Where.
        container: Container,
        /// Why.
        why: String,
    },
    /// The program ended with an error.
    #[error("pod {container}: {program} failed: {why}")]
    Program {
        /// Where.
        container: Container,
        /// Which one.
        program: String,
        /// What it, or the runtime, said.
        why: String,
    },
}

fn next_step(status: u16) -> &'static str {
    match status {
        401 => "log in again, or check the token of the kubeconfig",
        403 => "allow the user of the kubeconfig the verbs get and create on pods/exec in this namespace",
        404 => "the pod is gone",
        _ => "look at the log of the API server",
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.pod)
    }
}

// === impl Connection ===

impl Connection {
    /// Starts a program in a container.
    ///
    /// # Errors
    /// [`ExecError`], but for what the program does itself.
    pub async fn exec(&self, container: &Container, argv: &[&str]) -> Result<Exec, ExecError> {
        let failed = |why: String| ExecError::Failed { container: container.clone(), why };
        let wanted = AttachParams {
            container: Some(container.name.clone()),
            stdin: true,
            stdout: true,
            stderr: true,
            tty: false,
            max_stdin_buf_size: Some(AHEAD),
            max_stdout_buf_size: Some(AHEAD),
            max_stderr_buf_size: Some(AHEAD),
        };
        let pods: Api<Pod> = Api::namespaced(self.client(), &container.namespace);
        let mut process = pods.exec(&container.pod, argv.iter().copied(), &wanted).await.map_err(|e| match e {
            kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => {
                ExecError::Refused { container: container.clone(), status: status.as_u16() }
            }
            e => failed(chain(&e)),
        })?;
        let streams = (process.stdin(), process.stdout(), process.stderr());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else { return Err(failed("a stream is missing".to_owned())) };
        Ok(Exec { stdin, stdout, open: OpenExec { stderr, process } })
    }

    /// Runs a program in a container to its end, without input, and returns what it printed.
    ///
    /// # Errors
    /// [`ExecError`]
    pub async fn output(&self, container: &Container, argv: &[&str]) -> Result<Vec<u8>, ExecError> {
        let mut exec = self.exec(container, argv).await?;
        let failed = |e: std::io::Error| ExecError::Failed { container: container.clone(), why: e.to_string() };
        exec.stdin.shutdown().await.map_err(failed)?;
        let mut printed = Vec::new();
        (&mut exec.stdout).take(MAX_OUTPUT).read_to_end(&mut printed).await.map_err(failed)?;
        match exec.open.end().await {
            None => Ok(printed),
            Some(why) => {
                let program = argv.first().copied().unwrap_or_default().to_owned();
                Err(ExecError::Program { container: container.clone(), program, why })
            }
        }
    }
}

// === impl OpenExec ===

impl OpenExec {
    /// Waits until the program ends: why it has failed, if it has. Its output must have been read.
    pub async fn end(mut self) -> Option<String> {
        let mut said = Vec::new();
        // What cannot be read is missing from the message alone.
        let _ = self.stderr.take(MAX_SAID).read_to_end(&mut said).await;
        let status = match self.process.take_status() {
            Some(status) => status.await,
            None => None,
        };
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        match status {
            Some(status) if status.status.as_deref() == Some("Success") => None,
            Some(status) if said.is_empty() => Some(status.message.unwrap_or_else(|| "it ended with an error".to_owned())),
            None if said.is_empty() => Some("the connection was closed before it ended".to_owned()),
            _ => Some(said),
        }
    }
}
