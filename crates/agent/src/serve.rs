//! The socket that `netloom-cni` calls, and the threads that serve it.
//!
//! ```text
//!   /run/netloom (0700)/agent.sock (0600) --accept--> one of the workers: peer is root? --Call--> a place? --> Agent::answer --Answer-->
//!                                    |                                                             |           `-- Run/Ran: external plugins
//!                                    |                                                             |               are executed by who called
//!                                    `--has not said what it wants: a thread of its own, until it has `--none: in line (shares)
//!
//!   an ADD whose status is still to be written --> a task answers it, and the worker serves the next one
//! ```
//!
//! A worker is a thread with a `Host` of its own, whose sockets stay open from call to call: opening a routing socket costs
//! a link's worth of time, and closing an nftables socket a grace period of the kernel. All workers accept from the same
//! socket; a worker serves one call at a time. As many as there are is the limit of what runs at once; who may be served is
//! decided by its namespace ([`crate::shares`]), and others wait in line. Who connects and says nothing keeps no worker from the others.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cni::{CniError, Code, Config, Version};
use linux::{file, local};
use plugin::{Dirs, Exec, Host};
use tokio::io::AsyncWriteExt as _;
use wire::{Answer, Call, ToAgent, ToShim, WireError};

use crate::call::Served;
use crate::exec::RunByCaller;
use crate::log::Line;
use crate::shares::{CallSlot, Caller, Entered};
use crate::{Agent, lock, shares};

/// How long a caller may take to say what it wants.
const HELLO: Duration = Duration::from_secs(5);
/// How long a worker waits for that: a caller has it ready when it connects.
const READY: Duration = Duration::from_millis(20);
/// How many callers may take longer at a time. Each has a thread.
const SLOW: usize = 256;
/// How many bytes of calls may be here at a time, of all callers: read as JSON they take a multiple of it.
const HEARD: usize = 8 << 20;
/// What a worker's stack may have.
const STACK: usize = 512 << 10;

/// A socket that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step} {}: {reason}", path.display())]
pub struct ServeError {
    step: &'static str,
    path: PathBuf,
    reason: String,
}

/// The calls that are being served, and whether new ones are.
#[derive(Default)]
pub(crate) struct Load {
    busy: AtomicUsize,
    slow: AtomicUsize,
    stand_ins: AtomicUsize,
    heard: Arc<AtomicUsize>,
    stopping: AtomicBool,
}

/// A socket that listens; its file goes with it.
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

// === impl Load ===

impl Load {
    /// How many calls are being served.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Counts what a caller will say.
    fn hears(&self) -> Heard {
        Heard { of_all: Arc::clone(&self.heard), own: 0 }
    }

    /// Whether no new calls are taken.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// No new calls are taken once the socket's queue is empty.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether threads beside the workers have a caller, also one that has not said yet what it wants.
    pub(crate) fn has_others(&self) -> bool {
        self.slow.load(Ordering::Relaxed) + self.stand_ins.load(Ordering::Relaxed) > 0
    }
}

// === impl Socket ===

impl Socket {
    /// Listens at a path that only root can reach. It appears there when it listens, in one rename: who waits for the file
    /// can connect at once. A directory that is made for it is root's alone; one that was there, as `/run`, keeps its mode.
    pub(crate) fn bind(path: &Path) -> Result<Self, ServeError> {
        let fail = |step| move |e: std::io::Error| ServeError { step, path: path.to_owned(), reason: e.to_string() };
        let dir = path.parent().unwrap_or(Path::new("/"));
        file::make_own_dir(dir).map_err(fail("make the directory of"))?;
        let new = dir.join(format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy()));
        match std::fs::remove_file(&new) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(fail("replace")(e)),
            _ => {}
        }
        let listener = UnixListener::bind(&new).map_err(fail("listen at"))?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).map_err(fail("close to others"))?;
        std::fs::rename(&new, path).map_err(fail("put in its place"))?;
        Ok(Socket { listener, path: path.to_owned() })
    }

    /// Nobody finds it any more. Who has connected is still served: the kernel hands out the queue before it says that the
    /// socket is shut down.
    pub(crate) fn close(&self) {
        let _ = std::fs::remove_file(&self.path);
        if let Ok(own) = self.listener.try_clone() {
            let _ = UnixStream::from(OwnedFd::from(own)).shutdown(Shutdown::Both);
        }
    }

    /// The next caller that is root.
    pub(crate) fn next(&self) -> Option<UnixStream> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) => {
                // Shut down, this is how it ends.
                if !matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Interrupted) {
                    Line::error("accept").with("error", e).end();
                    // Out of descriptors, say: it may pass.
                    std::thread::sleep(Duration::from_millis(100));
                }
                return None;
            }
        };
        match local::peer(&stream) {
            Ok(peer) if peer.uid == 0 => Some(stream),
            Ok(peer) => {
                Line::warn("refused").with("uid", peer.uid).with("pid", peer.pid).with("why", "only root may call the agent").end();
                None
            }
            Err(e) => {
                Line::warn("refused").with("why", e).end();
                None
            }
        }
    }
}

/// Starts the workers of the socket of calls.
pub(crate) fn serve(agent: &Arc<Agent>, socket: Arc<Socket>, dirs: &Dirs) -> Result<Vec<std::thread::JoinHandle<()>>, ServeError> {
    let fail = |e: std::io::Error| ServeError { step: "start a worker for", path: socket.path.clone(), reason: e.to_string() };
    let worker = |number: usize| {
        let (agent, socket, dirs) = (Arc::clone(agent), Arc::clone(&socket), dirs.clone());
        let work = move || work(&agent, &socket, dirs, || false);
        std::thread::Builder::new().name(format!("call-{number}")).stack_size(STACK).spawn(work).map_err(fail)
    };
    (0..agent.settings.workers).map(worker).collect()
}

/// Serves one caller after the other, until it is enough.
fn work(agent: &Arc<Agent>, socket: &Socket, dirs: Dirs, is_enough: impl Fn() -> bool) {
    let mut host = Host::here(dirs);
    loop {
        // Before it ends, too: the place that it had may be what somebody waits for.
        serve_line(agent, &mut host);
        if is_enough() {
            return;
        }
        match socket.next() {
            Some(stream) => one(agent, stream, &mut host),
            None if agent.load.is_stopping() => return,
            None => {}
        }
    }
}

/// Serves those in line that may be served.
fn serve_line(agent: &Arc<Agent>, host: &mut Host) {
    while let Some((caller, place)) = agent.shares.next() {
        serve_one(agent, caller, place, host);
    }
}

/// For each call that waits for an address, a lease or a port another thread serves: the DEL that gives one back must not stand behind it, nor
/// must other pods. To be called by the thread of the call, when it begins to wait (`true`) and when it goes on.
pub(crate) fn stand_ins(agent: &Arc<Agent>, socket: &Arc<Socket>, dirs: &Dirs) -> impl Fn(bool) + Send + Sync + 'static {
    let (agent, socket, dirs) = (Arc::downgrade(agent), Arc::clone(socket), dirs.clone());
    move |waits| {
        shares::step_aside(waits);
        if !waits {
            return;
        }
        let Some(agent) = agent.upgrade() else { return };
        let there = &agent.load.stand_ins;
        while there.load(Ordering::Relaxed) < agent.shares.threads_aside() {
            there.fetch_add(1, Ordering::Relaxed);
            let (agent, socket, dirs) = (Arc::clone(&agent), Arc::clone(&socket), dirs.clone());
            let work = move || {
                work(&agent, &socket, dirs, || agent.load.stand_ins.load(Ordering::Relaxed) > agent.shares.threads_aside());
                agent.load.stand_ins.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("stand-in".to_owned()).stack_size(STACK).spawn(work).is_err() {
                there.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// One caller.
fn one(agent: &Arc<Agent>, stream: UnixStream, host: &mut Host) {
    let mut hello = Hello { stream, said: Vec::new(), heard: agent.load.hears() };
    match hello.hear(Instant::now() + READY) {
        Some(heard) => admit(agent, hello, heard, host),
        None => later(agent, hello, host.dirs.clone()),
    }
}

/// Hears a caller out on a thread of its own, and has it served.
fn later(agent: &Arc<Agent>, mut hello: Hello, dirs: Dirs) {
    let refused = |why: &str| Line::warn("refused").with("why", why).end();
    if agent.load.slow.fetch_add(1, Ordering::Relaxed) >= SLOW {
        agent.load.slow.fetch_sub(1, Ordering::Relaxed);
        return refused("too many connections without a request");
    }
    let own = Arc::clone(agent);
    let work = move || {
        match hello.hear(Instant::now() + HELLO) {
            Some(heard) => {
                let mut host = Host::here(dirs);
                admit(&own, hello, heard, &mut host);
                serve_line(&own, &mut host);
            }
            None => refused("a caller sent no request in time"),
        }
        own.load.slow.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("slow".to_owned()).stack_size(STACK).spawn(work).is_err() {
        agent.load.slow.fetch_sub(1, Ordering::Relaxed);
        refused("cannot start a thread for a caller that sent no request");
    }
}

/// Serves a caller when it is its turn: now, or later by whoever has a place for it then.
fn admit(agent: &Arc<Agent>, hello: Hello, said: Result<Option<ToAgent>, WireError>, host: &mut Host) {
    let Hello { stream, heard, .. } = hello;
    let call = match said {
        Ok(Some(ToAgent::Call(call))) => call,
        Ok(None) => return,
        Ok(Some(_)) => return Line::warn("refused").with("why", "a caller did not begin with a request").end(),
        Err(e) => return Line::warn("refused").with("why", e).end(),
    };
    match agent.shares.enter(Caller { stream, call, heard }) {
        Entered::Now(caller, place) => serve_one(agent, caller, place, host),
        Entered::InLine => {}
        Entered::Refused(caller) => {
            let why = "too many calls are queued, of its namespace or of all; the runtime retries";
            Line::warn("refused").with("verb", &caller.call.verb).with("container", &caller.call.container_id).with("why", why).end();
            let version = Config::named(&caller.call.config).map_err(CniError::from).and_then(Config::parse_named);
            let version = version.map_or(Version::LATEST, |(config, _)| config.version);
            let mut stream = caller.stream;
            let stdout = CniError::new(Code::TRY_AGAIN_LATER, why).print(version).into_bytes();
            let _ = stream.set_write_timeout(Some(READY));
            let _ = wire::send(&mut stream, &ToShim::Answer(Answer { exit: 1, stdout, ..Answer::default() }));
        }
    }
}

fn serve_one(agent: &Arc<Agent>, caller: Caller, place: CallSlot, host: &mut Host) {
    let Caller { mut stream, call, heard } = caller;
    let Ok(by_caller) = stream.try_clone() else { return };
    let busy = Busy::begin(agent);
    let by_caller: Arc<dyn Exec> = Arc::new(RunByCaller::new(by_caller).reporting(agent.waits_for_others.get().cloned()));
    let (served, mut place) = place.during(Arc::clone(&by_caller), || agent.serve(&call, host, by_caller));
    let answer = match served {
        Served::Answered(answer) => answer,
        Served::Publishing(publishing) if place.as_mut().is_some_and(CallSlot::hand_over) => {
            let Call { verb, container_id, .. } = call;
            drop(heard);
            let own = Arc::clone(agent);
            agent.runtime.spawn(async move {
                let _until_then = (place, busy);
                let answer = publishing.answer(&own).await;
                unheard(&verb, &container_id, send(stream, &ToShim::Answer(answer)).await);
            });
            return keep_up(agent, 1);
        }
        Served::Publishing(publishing) => agent.runtime.block_on(publishing.answer(agent)),
    };
    drop((place, busy));
    let _ = stream.set_write_timeout(Some(HELLO));
    unheard(&call.verb, &call.container_id, wire::send(&mut stream, &ToShim::Answer(answer)));
    keep_up(agent, 0);
}

/// Takes in the kernel's reports of a call's links, so that the next call does not have to. Does nothing if more than `busy` calls are being served.
fn keep_up(agent: &Agent, busy: usize) {
    if agent.load.busy() <= busy {
        lock(&agent.view).keep_up();
    }
}

/// The same as [`wire::send`], while others are served.
async fn send(stream: UnixStream, message: &ToShim) -> Result<(), WireError> {
    let failed = |kind| WireError::Connection { step: "send a message", kind };
    let bytes = wire::framed(message, wire::MAX_MESSAGE)?;
    let sent = async {
        stream.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(stream)?.write_all(&bytes).await
    };
    tokio::time::timeout(HELLO, sent).await.map_err(|_| failed(ErrorKind::TimedOut))?.map_err(|e| failed(e.kind()))
}

/// What an ADD made stays: the runtime, which heard nothing, deletes the sandbox.
fn unheard(verb: &str, container: &str, sent: Result<(), WireError>) {
    if let Err(e) = sent {
        Line::warn("unheard").with("verb", verb).with("container", container).with("why", e).end();
    }
}

/// A call that is being served, counted until this is dropped.
struct Busy(Arc<Agent>);

impl Busy {
    fn begin(agent: &Arc<Agent>) -> Self {
        agent.load.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(agent))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.load.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What callers have said, in bytes, counted while it is kept.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    of_all: Arc<AtomicUsize>,
    own: usize,
}

impl Heard {
    /// Whether there is room for so many more.
    fn add(&mut self, bytes: usize) -> bool {
        self.own += bytes;
        self.of_all.fetch_add(bytes, Ordering::Relaxed) + bytes <= HEARD
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.of_all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// A caller that is being listened to.
struct Hello {
    stream: UnixStream,
    /// What it has said so far.
    said: Vec<u8>,
    heard: Heard,
}

impl Hello {
    /// Its first message, or why it is none; `None` if it has not come whole by then, and can still come.
    fn hear(&mut self, by: Instant) -> Option<Result<Option<ToAgent>, WireError>> {
        match wire::receive_at_most(&mut Hearing { hello: self, at: 0, by }, wire::MAX_CALL) {
            Err(WireError::Connection { kind: ErrorKind::WouldBlock | ErrorKind::TimedOut, .. }) => None,
            heard => Some(heard),
        }
    }
}

/// Reads what was said from its beginning, then what is said.
struct Hearing<'h> {
    hello: &'h mut Hello,
    at: usize,
    by: Instant,
}

impl Read for Hearing<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let Hello { stream, said, heard } = &mut *self.hello;
        let mut earlier = said.get(self.at..).unwrap_or_default();
        let mut got = earlier.read(into)?;
        if got == 0 {
            let left = self.by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            got = stream.read(into)?;
            said.extend_from_slice(into.get(..got).unwrap_or_default());
            if !heard.add(got) {
                return Err(ErrorKind::OutOfMemory.into());
            }
        }
        self.at += got;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_there_keeps_its_mode() {
        let dir = std::env::temp_dir().join(format!("netloom-serve-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        let (here, below) = (dir.join("agent.sock"), dir.join("netloom/agent.sock"));
        let sockets = [&here, &below].map(|path| Socket::bind(path).unwrap());
        assert_eq!((mode(&dir), mode(&here)), (0o755, 0o600));
        assert_eq!((mode(&dir.join("netloom")), mode(&below)), (0o700, 0o600));
        drop(sockets);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
