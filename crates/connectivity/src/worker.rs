//! A probe that asks: `netloom probe work`, over the streams of an exec or of a command. Any number of questions are under way at a time.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::{Connection, Container, Exec};
use probe::{Here, Order, Outcome, ProbeTask, Reply};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::ConnectivityError;

/// How long a probe may take to say what is around it.
const LOOK: Duration = Duration::from_secs(30);
/// How much longer than the probe itself its reply is waited for.
const ON_THE_WAY: Duration = Duration::from_secs(30);

/// The longest reply that is read, in bytes: a node has links by the thousand.
const LONGEST: u64 = 4 << 20;

/// The questions that are under way, by number. `None`: the streams have ended.
type Pending = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Outcome>>>>>;

/// A probe that asks. It ends when this is dropped.
pub(crate) struct Worker {
    orders: mpsc::Sender<Vec<u8>>,
    pending: Pending,
    next: AtomicU64,
    /// What holds its streams open.
    open: JoinSet<()>,
    _child: Option<Child>,
}

// === impl Worker ===

impl Worker {
    /// Starts it in a probe's pod.
    pub(crate) async fn in_pod(connection: &Connection, container: &Container) -> Result<Self, ConnectivityError> {
        let Exec { stdin, stdout, open } = connection.exec(container, &["/netloom", "probe", "work"]).await?;
        let mut worker = Worker::over(stdin, stdout, None);
        // What it says of its troubles is read: a full stream would hold up its answers.
        worker.open.spawn(async move { drop(open.end().await) });
        Ok(worker)
    }

    /// Starts it by a command, to which `probe work` is added.
    pub(crate) fn by_command(command: &str) -> Result<Self, ConnectivityError> {
        let failed = |why: String| ConnectivityError::Public { command: command.to_owned(), why };
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command} probe work")]).kill_on_drop(true);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| failed(e.to_string()))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("it has no streams".to_owned()));
        };
        Ok(Worker::over(stdin, stdout, Some(child)))
    }

    fn over(
        mut stdin: impl AsyncWrite + Unpin + Send + 'static,
        stdout: impl AsyncRead + Unpin + Send + 'static,
        child: Option<Child>,
    ) -> Self {
        let (orders, mut lines) = mpsc::channel::<Vec<u8>>(64);
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
                    break;
                }
            }
            let _ = stdin.shutdown().await;
        });
        let replied = Arc::clone(&pending);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout);
            while let Some(line) = line_of(&mut lines).await {
                let Ok(reply) = serde_json::from_slice::<Reply>(&line) else { continue };
                let waiting = replied.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(|all| all.remove(&reply.id));
                if let Some(waiting) = waiting {
                    let _ = waiting.send(reply.result);
                }
            }
            *replied.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        Worker { orders, pending, next: AtomicU64::new(0), open: JoinSet::new(), _child: child }
    }

    /// Asks, and waits for what comes of it; `patience` is what the probe takes at most.
    pub(crate) async fn order(&self, wish: ProbeTask, patience: Duration) -> Outcome {
        let ended = || Outcome::Failed("the probe has ended".to_owned());
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        match self.pending.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(all) => drop(all.insert(id, sender)),
            None => return ended(),
        }
        let mut line = serde_json::to_vec(&Order { id, wish }).unwrap_or_default();
        line.push(b'\n');
        if self.orders.send(line).await.is_err() {
            return ended();
        }
        match tokio::time::timeout(patience + ON_THE_WAY, receiver).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => ended(),
            Err(_) => Outcome::Failed("the probe does not reply".to_owned()),
        }
    }

    /// What is around it.
    pub(crate) async fn look(&self, place: &str, ways: Vec<std::net::IpAddr>) -> Result<Here, ConnectivityError> {
        let failed = |why: String| ConnectivityError::Probe { place: place.to_owned(), why };
        match self.order(ProbeTask::Look(ways), LOOK).await {
            Outcome::Here(here) => Ok(here),
            Outcome::Failed(why) => Err(failed(why)),
            other => Err(failed(format!("it answers {other:?}: is --image of another version?"))),
        }
    }
}

/// The next line; none at the end, and where a line is longer than any reply: what speaks is no probe.
async fn line_of(lines: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    lines.take(LONGEST).read_until(b'\n', &mut line).await.ok()?;
    line.ends_with(b"\n").then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reply_without_end_is_none() {
        let mut lines = BufReader::new(&b"{\"id\":1}\nrest"[..]);
        assert_eq!(line_of(&mut lines).await.as_deref(), Some(&b"{\"id\":1}\n"[..]));
        assert_eq!(line_of(&mut lines).await, None);
        let mut endless = BufReader::new(tokio::io::repeat(b'x'));
        assert_eq!(line_of(&mut endless).await, None);
    }
}
