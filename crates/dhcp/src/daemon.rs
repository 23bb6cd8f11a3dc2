//! The daemon: its socket, and a thread for each caller.
//!
//! ```text
//!   /run/cni (0700)/dhcp.sock (0600) --peer is root? Call--> Table --Answer--> the plugin
//! ```

use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, ContainerId, IfName, Version};
use linux::file::Lock;
use linux::{Netns, local};
use wire::{Answer, Call, ToAgent, ToShim, WireError};

use crate::exchange::Patience;
use crate::flags::Settings;
use crate::link::internal;
use crate::log;
use crate::store::Store;
use crate::table::{AddRequest, Table};
use crate::wanted::Wanted;

/// How long a caller may take to say what it wants, and to hear the answer.
const HELLO: Duration = Duration::from_secs(5);
/// How many callers may be there at a time, as far as there are descriptors for them.
const CALLERS: u64 = 1024;
/// How many descriptors a caller's thread has at the most, and the rest of the daemon.
const DESCRIPTORS: (u64, u64) = (8, 128);
/// What a caller's thread may have.
const STACK: usize = 512 << 10;
/// How long another one may still work on the files when this one starts.
const PREDECESSOR: Duration = Duration::from_secs(20);

/// Why the daemon does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// A step at its start failed.
    #[error("{step} {}: {reason}", path.display())]
    Start {
        /// What was attempted.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// systemd has passed more than one socket.
    #[error("Too many ({0}) FDs passed through socket activation: one socket is expected (ListenStream=)")]
    Sockets(u32),
    /// Another daemon keeps these leases.
    #[error("another daemon manages the leases beside {}: stop it first", path.display())]
    Running {
        /// The socket.
        path: PathBuf,
    },
    /// Anything about the leases that were left.
    #[error("{0}")]
    Leases(CniError),
}

/// Runs until a signal ends it: SIGTERM and SIGINT end the process with success, and keep the leases. To be called while the process has
/// one thread.
///
/// # Errors
/// [`DaemonError`] if it cannot start.
pub fn run(settings: &Settings) -> Result<std::convert::Infallible, DaemonError> {
    let path = settings.on_host(&settings.socketpath);
    let start = |step: &'static str, path: &Path, reason: &dyn std::fmt::Display| DaemonError::Start {
        step,
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let inherited = local::inherited_socket().map_err(DaemonError::Sockets)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    linux::file::make_own_dir(dir).map_err(|e| start("make the directory", dir, &e))?;
    let store = Store::beside(&path).map_err(DaemonError::Leases)?.below(&settings.hostprefix);
    store.make().map_err(DaemonError::Leases)?;
    // Until it has the lock it is nobody: socket and pidfile are another one's.
    let lock = locked(&store, &path)?;
    let bound = Arc::new(OnceLock::new());
    let gone = (path.clone(), settings.pidfile.clone(), Arc::clone(&bound));
    linux::on_interrupt(move || {
        // systemd's socket stays systemd's, and that of one that came after us is its own.
        if gone.2.get().is_some_and(|own| node(&gone.0).as_ref() == Some(own)) {
            let _ = std::fs::remove_file(&gone.0);
        }
        gone.1.iter().for_each(|pidfile| drop(std::fs::remove_file(pidfile)));
        log::daemon("stopping; the leases are kept for the next daemon");
        std::process::exit(0);
    })
    .map_err(|e| start("wait for signals beside", &path, &e))?;
    if let Some(pidfile) = &settings.pidfile {
        std::fs::write(pidfile, std::process::id().to_string()).map_err(|e| start("Error writing pidfile", pidfile, &e))?;
    }
    let most = callers().map_err(|e| start("raise the limit of open files for", &path, &e))?;
    let patience = Patience {
        timeout: settings.timeout,
        resend_max: settings.resendmax,
        resend_timeout: settings.resendtimeout,
        broadcast: settings.broadcast,
    };
    let table = Table::new(store, patience).map_err(DaemonError::Leases)?;
    table.work().map_err(|e| start("start workers for", &path, &e))?;
    let listener = match inherited {
        Some(fd) => UnixListener::from(fd),
        None => {
            let listener = listen(&path).map_err(|(step, e)| start(step, &path, &e))?;
            if let Some(own) = node(&path) {
                let _ = bound.set(own);
            }
            listener
        }
    };
    let count = table.count();
    log::daemon(format_args!("listening at {}, with {count} {}", path.display(), if count == 1 { "lease" } else { "leases" }));
    let daemon = Arc::new(Daemon { table, settings: settings.clone(), callers: AtomicU64::new(0), most });
    let _keeps = lock;
    loop {
        daemon.next(&listener);
    }
}

/// The lock of the leases, when who has it has ended.
fn locked(store: &Store, path: &Path) -> Result<Lock, DaemonError> {
    if let Some(lock) = store.lock(Duration::ZERO).map_err(DaemonError::Leases)? {
        return Ok(lock);
    }
    let seconds = PREDECESSOR.as_secs();
    log::daemon(format_args!("another daemon manages the leases beside {}: waiting {seconds} s for it to stop", path.display()));
    let lock = store.lock(PREDECESSOR).map_err(DaemonError::Leases)?;
    lock.ok_or_else(|| DaemonError::Running { path: path.to_owned() })
}

/// How many callers may be there at a time: as many as get all the descriptors that they need.
fn callers() -> Result<u64, linux::Errno> {
    let limit = linux::local::raise_limit()?;
    Ok((limit.saturating_sub(DESCRIPTORS.1) / DESCRIPTORS.0).clamp(1, CALLERS))
}

/// Which file is at a path.
fn node(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Listens at a path that only root reaches. It is bound there, and not moved there afterwards: `ss` shows the name that it was
/// bound to.
fn listen(path: &Path) -> Result<UnixListener, (&'static str, std::io::Error)> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(|e| ("listen at", e))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(|e| ("close to others", e))?;
    Ok(listener)
}

struct Daemon {
    table: Arc<Table>,
    settings: Settings,
    callers: AtomicU64,
    /// How many there may be.
    most: u64,
}

// === impl Daemon ===

impl Daemon {
    fn next(self: &Arc<Self>, listener: &UnixListener) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) => {
                log::daemon(format_args!("accept: {e}"));
                // Out of descriptors, say: it may pass.
                return std::thread::sleep(Duration::from_millis(100));
            }
        };
        match local::peer(&stream) {
            Ok(peer) if peer.uid == 0 => {}
            Ok(peer) => return log::daemon(format_args!("refused process {} of user {}: only root may call", peer.pid, peer.uid)),
            Err(e) => return log::daemon(format_args!("refused a caller: {e}")),
        }
        if self.callers.fetch_add(1, Ordering::SeqCst) >= self.most {
            self.callers.fetch_sub(1, Ordering::SeqCst);
            return self.refuse(&stream);
        }
        let own = Arc::clone(self);
        let work = move || {
            own.serve(&stream);
            let _ = stream.shutdown(Shutdown::Both);
            drop(stream);
            own.callers.fetch_sub(1, Ordering::SeqCst);
        };
        if let Err(e) = std::thread::Builder::new().name("call".to_owned()).stack_size(STACK).spawn(work) {
            self.callers.fetch_sub(1, Ordering::SeqCst);
            log::daemon(format_args!("no thread for a caller: {e}"));
        }
    }

    /// Who comes when there are too many hears so at once: it was not asked yet what it wants.
    fn refuse(&self, mut stream: &UnixStream) {
        let most = self.most;
        let of = format!("{CALLERS}, or an eighth of its limit of open files (LimitNOFILE)");
        let why = format!("the DHCP daemon has reached its maximum of {most} callers: {of}");
        log::daemon(format_args!("refused a caller: the maximum of {most} callers is reached"));
        let stdout = CniError::new(Code::TRY_AGAIN_LATER, why).print(Version::LATEST).into_bytes();
        let _ = stream.set_nonblocking(true);
        let _ = wire::send(&mut stream, &ToShim::Answer(Answer { exit: 1, stdout, ..Answer::default() }));
    }

    fn serve(&self, stream: &UnixStream) {
        let call = match heard(stream) {
            Ok(Some(call)) => call,
            Ok(None) => return,
            Err(why) => return log::daemon(format_args!("refused {why}")),
        };
        let answer = match self.answer(&call, stream) {
            Ok(stdout) => Answer { exit: 0, stdout, ..Answer::default() },
            Err(e) => Answer { exit: 1, stdout: e.print(Version::LATEST).into_bytes(), ..Answer::default() },
        };
        // Who hears nothing has to assume the worst, and releases what it may have.
        let _ = wire::send(&mut &*stream, &ToShim::Answer(answer));
    }

    fn answer(&self, call: &Call, stream: &UnixStream) -> Result<Vec<u8>, CniError> {
        if call.verb == "STATUS" {
            return Ok(Vec::new());
        }
        let (config, prev) = Config::parse(&call.config)?;
        if call.verb == "GC" {
            let valid = AttachmentId::valid_of(config.raw(), &config.network)?;
            return self.table.gc(&config.network, &valid).map(|()| Vec::new());
        }
        let id = AttachmentId {
            network: config.network.clone(),
            container: ContainerId::parse(&call.container_id)?,
            ifname: IfName::parse(&call.ifname)?,
        };
        match call.verb.as_str() {
            "ADD" => Ok(self.add(&id, &config, call, stream)?.print(Version::LATEST)?.into_bytes()),
            "CHECK" => self.table.check(&id, prev.as_ref()).map(|()| Vec::new()),
            "DEL" => self.table.del(&id).map(|()| Vec::new()),
            other => Err(CniError::new(Code::INVALID_ENVIRONMENT, format!("the DHCP daemon does not support the verb {other:?}"))),
        }
    }

    fn add(&self, id: &AttachmentId, config: &Config, call: &Call, stream: &UnixStream) -> Result<AddResult, CniError> {
        let wanted = Wanted::read(config, &CniArgs::read(&call.args))?;
        let path = self.settings.on_host(Path::new(&call.netns));
        let netns = Netns::open(&path).map_err(|e| CniError::new(Code::INVALID_NETNS, e.to_string()))?.ok_or_else(|| {
            let hint = "check that the daemon sees the host's files (flag -hostprefix)";
            CniError::new(Code::INVALID_NETNS, format!("failed to open netns {}: there is no such file; {hint}", path.display()))
        })?;
        if netns.is_here().map_err(internal)? {
            return Err(CniError::new(Code::INVALID_NETNS, format!("{} is the daemon's own namespace", path.display())));
        }
        let time = if call.millis == 0 { self.settings.resendtimeout } else { Duration::from_millis(call.millis.min(86_400_000)) };
        let gone = || local::hung_up(stream).unwrap_or(true);
        self.table.add(&AddRequest { id, netns: &netns, wanted: &wanted, by: Instant::now() + time, gone: &gone })
    }
}

/// What a caller wants; `None` if it says nothing, and who it is otherwise.
fn heard(stream: &UnixStream) -> Result<Option<Call>, String> {
    let limits = stream.set_read_timeout(Some(HELLO)).and_then(|()| stream.set_write_timeout(Some(HELLO)));
    limits.map_err(|e| format!("a caller: {e}"))?;
    match wire::receive(&mut &*stream) {
        Ok(Some(ToAgent::Call(call))) => Ok(Some(call)),
        Ok(None) => Ok(None),
        Ok(Some(_)) => Err("a caller: it did not begin with a request".to_owned()),
        Err(e @ (WireError::Connection { .. } | WireError::Cut { .. })) => Err(format!("a caller: {e}")),
        Err(e) => Err(format!("a caller that is not Netloom's plugin (if it is the reference plugin, install Netloom's instead): {e}")),
    }
}
