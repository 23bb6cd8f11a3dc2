//! The operator at work: a part of this process, or the executable, which has the store on a socket of this machine.
//!
//! ```text
//!   Here     netloom_operator::start -- a kube::Client over the store
//!   Process  netloom operator -- HTTP over loopback -- axum -- the store
//! ```
//!
//! The memory of the second one is the operator's alone.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use objects::Store;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::world::{memory_of, options};

/// As fast as it is answered.
const WRITES_PER_SECOND: u32 = 1_000_000;

/// An operator that is alone. It ends, at whichever write it is, when this is dropped.
pub(crate) enum AtWork {
    Here(netloom_operator::Running),
    Process(Process),
}

/// `netloom operator`.
pub(crate) struct Process {
    child: Child,
    health: SocketAddr,
    server: JoinHandle<()>,
}

// === impl AtWork ===

impl AtWork {
    /// In this process, or as a process of this program.
    pub(crate) fn start(store: &Store, identity: &str, program: Option<&Path>) -> AtWork {
        match program {
            None => AtWork::Here(netloom_operator::start(store.client(), options(identity, WRITES_PER_SECOND))),
            Some(program) => AtWork::Process(Process::start(store, identity, program)),
        }
    }

    pub(crate) fn alive(&mut self) -> bool {
        match self {
            AtWork::Here(running) => running.alive(),
            AtWork::Process(process) => process.child.try_wait().unwrap().is_none(),
        }
    }

    /// What `/metrics` shows; nothing as long as it does not listen.
    pub(crate) fn metrics(&self) -> String {
        match self {
            AtWork::Here(running) => running.metrics(),
            AtWork::Process(process) => process.metrics().unwrap_or_default(),
        }
    }

    /// How much memory it has, and had at most.
    pub(crate) fn memory(&self) -> String {
        let (pid, whose) = match self {
            AtWork::Here(_) => (std::process::id(), "with the API server's double and all nodes"),
            AtWork::Process(process) => (process.child.id(), "the operator's own"),
        };
        format!("{} MiB resident, {} MiB at most so far, {whose}", memory_of(pid, "VmRSS:"), memory_of(pid, "VmHWM:"))
    }
}

// === impl Process ===

impl Process {
    fn start(store: &Store, identity: &str, program: &Path) -> Process {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        // A port that is free; nobody else is given it so soon.
        let health = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
        });
        // It goes with this process, also where that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command.args(["operator", "--no-lease", "--log-level", "error", "--kubeconfig", "/dev/stdin", "--identity", identity]);
        command.args(["--writes-per-second", &WRITES_PER_SECOND.to_string(), "--health-address", &health.to_string()]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("setpriv (util-linux) starts");
        child.stdin.take().unwrap().write_all(kubeconfig.to_string().as_bytes()).unwrap();
        Process { child, health, server: tokio::spawn(answer(listener, store.clone())) }
    }

    fn metrics(&self) -> std::io::Result<String> {
        let (mut stream, mut text) = (TcpStream::connect(self.health)?, String::new());
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.server.abort();
    }
}

/// Answers as the API server does.
async fn answer(listener: TcpListener, store: Store) {
    store.serve(listener).await.unwrap();
}
