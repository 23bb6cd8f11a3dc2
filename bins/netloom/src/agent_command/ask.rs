//! One question to the agent, and its answer.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use json::{Object, Value};
use wire::{AdminReply, Ask, WireError};

/// How long an answer may take: more than the agent gives itself.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where to look when nobody answers.
const LOOK: &str = "
  run this command on the node, or find the agents:  kubectl -n kube-system get pods -l app=netloom -o wide
  see why an agent does not run:                     kubectl -n kube-system logs PODNAME
  ask the agent of another node:                     kubectl -n kube-system exec PODNAME -- netloom status";

/// The agent's answer to a question with these arguments.
pub(crate) fn ask(socket: &Path, what: &str, args: &[(&str, &str)]) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(socket).map_err(|e| anyhow::anyhow!(unreachable(socket, &e)))?;
    stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE))).context(
        "set a timeout on the \
        agent's socket",
    )?;
    let args: Object = args.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    let told = wire::send(&mut stream, &Ask { what: what.to_owned(), args }).and_then(|()| wire::receive::<AdminReply>(&mut stream));
    match told {
        Ok(Some(AdminReply::Value(value))) => Ok(value),
        Ok(Some(AdminReply::Refused(reason))) => anyhow::bail!("{}", super::answer::clean(&reason)),
        Ok(None) => anyhow::bail!(
            "the agent at {} closed the connection without an answer: it is stopping, or you are not root; see its log",
            socket.display()
        ),
        Err(e) => anyhow::bail!("{}", broken(socket, &e)),
    }
}

fn unreachable(socket: &Path, e: &std::io::Error) -> String {
    let socket = socket.display();
    match e.kind() {
        ErrorKind::NotFound => format!("no agent runs on this node: {socket} does not exist{LOOK}"),
        ErrorKind::ConnectionRefused => format!("no agent runs on this node any more: {socket} exists, but nothing listens on it{LOOK}"),
        ErrorKind::PermissionDenied => format!("permission denied for the agent's socket {socket}: run this command as root, as with sudo"),
        _ => format!("the agent at {socket} cannot be reached: {e}{LOOK}"),
    }
}

fn broken(socket: &Path, e: &WireError) -> String {
    let (socket, own) = (socket.display(), env!("CARGO_PKG_VERSION"));
    match e {
        WireError::Connection { kind: ErrorKind::WouldBlock | ErrorKind::TimedOut, .. } => {
            format!("the agent at {socket} did not answer within {} s: see its log, and whether the node is overloaded", PATIENCE.as_secs())
        }
        WireError::Connection { .. } | WireError::Cut { .. } => format!(
            "the agent at {socket} stopped before it answered: {e}; run the \
            command again"
        ),
        _ => format!("cannot parse the answer of the agent at {socket}: {e}; this is netloom {own}: use the version that the agent has"),
    }
}
