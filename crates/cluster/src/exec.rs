//! A program in a running container, over the connection that every request uses (WebSocket, `v5.channel.k8s.io`).
//!
//! It needs what `kubectl exec` needs: the rights `get` and `create` on `pods/exec` in the pod's namespace, and a container that has the program.

use std::fmt;
use std::io::ErrorKind;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess};
use kube::client::UpgradeConnectionError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadHalf, SimplexStream, WriteHalf};

use trust::chain;

use crate::Connection;

/// How many bytes of each stream may be ahead of who reads it.
const AHEAD: usize = 64 << 10;
/// The most that a program may print where its whole output is wanted, in bytes.
pub const MAX_OUTPUT: u64 = 256 << 20;
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
    /// It prints more than is read.
    #[error("pod {container}: {program} printed more than {} MiB: use the version of netloom that the pod has", MAX_OUTPUT >> 20)]
    TooLong {
        /// Where.
        container: Container,
        /// Which program.
        program: String,
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

    /// Runs a program in a container to its end, without input, and returns what it printed: at most [`MAX_OUTPUT`] bytes.
    ///
    /// # Errors
    /// [`ExecError`]
    pub async fn output(&self, container: &Container, argv: &[&str]) -> Result<Vec<u8>, ExecError> {
        let Exec { mut stdin, stdout, open } = self.exec(container, argv).await?;
        let program = || argv.first().copied().unwrap_or_default().to_owned();
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::FileTooLarge => ExecError::TooLong { container: container.clone(), program: program() },
            _ => ExecError::Failed { container: container.clone(), why: e.to_string() },
        };
        stdin.shutdown().await.map_err(failed)?;
        let OpenExec { stderr, mut process } = open;
        let (printed, said) = read_both(stdout, stderr, MAX_OUTPUT).await.map_err(failed)?;
        match ended(&mut process, &said).await {
            None => Ok(printed),
            Some(why) => Err(ExecError::Program { container: container.clone(), program: program(), why }),
        }
    }
}

// === impl OpenExec ===

impl OpenExec {
    /// Waits until the program ends: why it has failed, if it has. Its output must be read meanwhile.
    pub async fn end(mut self) -> Option<String> {
        // What cannot be read is missing from the message alone.
        let said = beginning(self.stderr).await.unwrap_or_default();
        ended(&mut self.process, &said).await
    }
}

/// Why the program has failed, if it has; `said`: what it wrote to its standard error.
async fn ended(process: &mut AttachedProcess, said: &[u8]) -> Option<String> {
    let status = match process.take_status() {
        Some(status) => status.await,
        None => None,
    };
    let said = String::from_utf8_lossy(said).trim().to_owned();
    match status {
        Some(status) if status.status.as_deref() == Some("Success") => None,
        Some(status) if said.is_empty() => Some(status.message.unwrap_or_else(|| "it ended with an error".to_owned())),
        None if said.is_empty() => Some("the connection was closed before it ended".to_owned()),
        _ => Some(said),
    }
}

/// All of the one stream, up to `most` bytes (`FileTooLarge`), and the beginning of the other. They are read at the same time: both come over
/// one connection, and who waits for the one while the other is full waits for ever.
async fn read_both(stdout: impl AsyncRead + Unpin, stderr: impl AsyncRead + Unpin, most: u64) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let printed = async {
        let mut printed = Vec::new();
        stdout.take(most.saturating_add(1)).read_to_end(&mut printed).await?;
        if printed.len() as u64 > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(printed) }
    };
    tokio::try_join!(printed, beginning(stderr))
}

/// The first bytes of a stream, which is read to its end: who writes to it does not wait.
async fn beginning(mut stream: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    (&mut stream).take(MAX_SAID).read_to_end(&mut kept).await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::simplex;

    use super::*;

    /// What a program writes to its streams in this order: bytes of standard error, then of standard output.
    async fn written(said: usize, printed: usize, most: u64) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
        let (stdout, mut to_stdout) = simplex(AHEAD);
        let (stderr, mut to_stderr) = simplex(AHEAD);
        let writes = async move {
            let _ = to_stderr.write_all(&vec![b'e'; said]).await;
            let _ = to_stderr.shutdown().await;
            let _ = to_stdout.write_all(&vec![b'o'; printed]).await;
            let _ = to_stdout.shutdown().await;
        };
        let writer = tokio::spawn(writes);
        let read = tokio::time::timeout(Duration::from_secs(60), read_both(stdout, stderr, most)).await;
        writer.abort();
        read.expect("it waits for ever")
    }

    #[tokio::test]
    async fn what_is_said_on_one_stream_does_not_hold_up_the_other() {
        let (printed, said) = written(1 << 20, 1 << 20, 1 << 20).await.unwrap();
        assert_eq!((printed.len(), said.len() as u64), (1 << 20, MAX_SAID));
    }

    #[tokio::test]
    async fn a_program_that_prints_without_end_is_not_read_to_the_end() {
        let read = written(1 << 20, 2 << 20, 1 << 20).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
