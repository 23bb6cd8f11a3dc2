//! Network namespaces: found, entered, made, removed.
//!
//! ```text
//!  path --open--> Netns --enter(closure)--> in the namespace --Inside--> Netlink, Sysctl, nftables
//! ```
//!
//! Whatever works on "the namespace that this thread is in" asks for an [`Inside`]. There are two ways to one:
//! [`Netns::enter`], for as long as its closure runs, and [`Inside::here`]. It cannot leave its thread, nor can another
//! namespace's get into the closure. The thread that enters comes back however the closure ends; a process that cannot
//! come back aborts. So nothing can be left in the wrong one, neither by an early return nor by a panic.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::file::{self, Lock, LockError};
use crate::netlink::{Netlink, OpenError};

mod lock;
mod mount;
mod reachable;

pub use lock::{NetnsFile, NetnsLock};
pub use reachable::reachable;

/// The calling thread's own namespace. Never `/proc/self`: that is the main thread's.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace that is held open: it exists as long as this does.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
    path: PathBuf,
    id: NetnsId,
    /// A routing socket in it, between two uses.
    route: Mutex<Option<Netlink>>,
}

/// Which namespace it is: device and inode of its file in nsfs (`ls -Li /run/netns/NAME`). Written as `4:4026532281`.
///
/// Unique among those that exist. After a namespace is gone the kernel may give its number to another one, and after a
/// reboot it will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsId {
    /// Device number of nsfs.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// Proof that the calling thread is in a certain namespace and stays there. Neither `Send` nor `Sync`.
pub struct Inside {
    bound: PhantomData<*const ()>,
}

/// A namespace could not be opened, made or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// Something is there, but no network namespace.
    #[error("{} is not a network namespace (expected a path like /run/netns/NAME or /proc/PID/ns/net)", path.display())]
    NotANamespace {
        /// What was looked at.
        path: PathBuf,
    },
    /// [`Netns::create`] where there is a namespace, or another file, already.
    #[error("cannot create the network namespace {}: the file exists", path.display())]
    Exists {
        /// The path that is taken.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {step} {}: {errno}", path.display())]
    Failed {
        /// What was attempted.
        step: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// No thread to make the namespace on, or it died.
    #[error(transparent)]
    Thread(#[from] EnterError),
}

/// Work in a namespace could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnterError {
    /// No thread to be had.
    #[error("cannot start a thread: {0} (check the limits of processes and memory)")]
    Thread(Errno),
    /// `setns(2)` failed.
    #[error("cannot enter the network namespace {}: {errno} (needs CAP_SYS_ADMIN)", path.display())]
    Setns {
        /// The namespace.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// The work itself panicked. This is a defect of the program.
    #[error("the work in the network namespace {} panicked: {message}", path.display())]
    Panicked {
        /// The namespace.
        path: PathBuf,
        /// What the panic said.
        message: String,
    },
}

/// A routing socket of a namespace could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The namespace could not be entered, or the work panicked.
    #[error(transparent)]
    Enter(#[from] EnterError),
    /// The socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

// === impl Netns ===

impl Netns {
    fn of(fd: OwnedFd, path: &Path) -> Result<Self, Errno> {
        let status = fstat(&fd)?;
        Ok(Netns { fd, path: path.to_owned(), id: NetnsId { dev: status.st_dev, ino: status.st_ino }, route: Mutex::default() })
    }

    /// Opens the namespace at a path: `/run/netns/NAME`, `/proc/PID/ns/net` or wherever one is mounted. `None`: gone, there
    /// is nothing at that path.
    ///
    /// # Errors
    /// [`NetnsError::NotANamespace`] for anything else that exists, [`NetnsError::Failed`] when it cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>, NetnsError> {
        let failed = |step, errno| NetnsError::Failed { step, path: path.to_owned(), errno };
        // A path comes from outside: a FIFO must not make us wait, nor a terminal become ours.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let open = || File::options().read(true).custom_flags(flags).open(path);
        // EACCES: what the kernel says, too, of a process that went while the path was followed (proc_ns_get_link in fs/proc/namespaces.c).
        // Asked once more, it says that the process is gone.
        let opened = open().or_else(|e| if e.raw_os_error() == Some(libc::EACCES) { open() } else { Err(e) });
        let file = match opened {
            Ok(file) => file,
            // ESRCH: the process went while its directory in /proc was read.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return Ok(None),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENXIO | libc::EISDIR)) => {
                return Err(NetnsError::NotANamespace { path: path.to_owned() });
            }
            Err(e) => return Err(failed("open the network namespace", errno(&e))),
        };
        let fd = OwnedFd::from(file);
        let status = fstatfs(&fd).map_err(|e| failed("look at", e))?;
        // In this order: to a file that is not of nsfs the same ioctl number may mean anything.
        if status.filesystem_type() != NSFS_MAGIC || !is_of_network(fd.as_fd(), path) {
            return Err(NetnsError::NotANamespace { path: path.to_owned() });
        }
        Netns::of(fd, path).map(Some).map_err(|e| failed("look at", e))
    }

    /// Opens the namespace that the calling thread is in. Its [`Netns::path`] holds for this thread only.
    ///
    /// # Errors
    /// [`NetnsError::Failed`] when /proc is not mounted.
    pub fn current() -> Result<Self, NetnsError> {
        let failed = |step, errno| NetnsError::Failed { step, path: OWN.into(), errno };
        let fd = own().map_err(|errno| failed("open (check that /proc is mounted)", errno))?;
        Netns::of(fd, OWN.as_ref()).map_err(|errno| failed("look at", errno))
    }

    /// Makes a namespace and mounts it at a path, as `ip netns add NAME` does at `/run/netns/NAME`: the folder is made
    /// where it is missing, and made a shared mount, so that the namespace is seen (and its removal too) wherever the
    /// machine's other mount namespaces see that folder. `lo` is down.
    ///
    /// A file that an interrupted attempt left behind is taken over.
    ///
    /// # Errors
    /// [`NetnsError::Exists`] when the path is taken; nothing is changed then. [`NetnsError::Failed`] with the step.
    pub fn create(path: &Path) -> Result<Self, NetnsError> {
        mount::create(path)
    }

    /// Makes a namespace that is mounted nowhere: it goes with this, however that ends, and needs no room on a disk. Its
    /// [`Netns::path`] leads nowhere. `lo` is down.
    ///
    /// # Errors
    /// [`NetnsError::Failed`] with the step.
    pub fn unnamed() -> Result<Self, NetnsError> {
        let failed = |step, errno| NetnsError::Failed { step, path: OWN.into(), errno };
        on_thread(Path::new(OWN), || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| failed("create a network namespace (needs CAP_SYS_ADMIN) for", e))?;
            Netns::current()
        })?
    }

    /// Unmounts and deletes what [`Netns::create`] or `ip netns add` made (`ip netns del NAME`). The namespace itself lives
    /// on while something holds it: a process, a socket, a [`Netns`]. No error when it is gone already, wholly or half.
    ///
    /// # Errors
    /// [`NetnsError::NotANamespace`] when something else is at that path, which is left alone; [`NetnsError::Failed`].
    pub fn remove(path: &Path) -> Result<(), NetnsError> {
        mount::remove(path)
    }

    /// Which namespace this is.
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// The number that no other namespace gets before the next boot (`SO_NETNS_COOKIE`, socket(7)); `None` before Linux
    /// 5.14. [`Netns::id`] is to be had without entering.
    ///
    /// # Errors
    /// [`EnterError`]
    pub fn cookie(&self) -> Result<Option<u64>, EnterError> {
        match self.take_route() {
            Some(socket) => {
                let cookie = cookie_of(socket.socket());
                self.keep_route(socket);
                Ok(cookie)
            }
            None => self.enter(|_| cookie()),
        }
    }

    /// Whether the calling thread is in it.
    ///
    /// # Errors
    /// As of [`Netns::current`].
    pub fn is_here(&self) -> Result<bool, NetnsError> {
        let failed = |step, errno| NetnsError::Failed { step, path: OWN.into(), errno };
        let here = HERE.take().map_or_else(Here::look, Ok).map_err(|errno| failed("open (check that /proc is mounted)", errno))?;
        let status = fstat(&here.netns).map_err(|errno| failed("look at", errno))?;
        HERE.set(Some(here));
        Ok(self.id == NetnsId { dev: status.st_dev, ino: status.st_ino })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the namespace itself (`flock(2)` on its file in nsfs), until the lock is dropped: for changes of which each must
    /// see what the one before it did. Nothing is made at its path, by whichever path the others found it.
    ///
    /// # Errors
    /// [`LockError`], at the deadline for one that somebody else holds.
    pub fn lock(&self, deadline: Instant) -> Result<Lock, LockError> {
        // A lock belongs to what was opened, and threads of one process may share this descriptor: each opens its own.
        let own = format!("/proc/thread-self/fd/{}", self.fd.as_raw_fd());
        let file = File::options().read(true).custom_flags(libc::O_CLOEXEC).open(own);
        let file = file.map_err(|e| LockError::Open { path: self.path.clone(), errno: errno(&e) })?;
        file::lock_open(file, &self.path, file::Hold::Alone, Some(deadline))
    }

    /// Runs `f` in this namespace. The calling thread goes there and comes back; where it may not come back (a user
    /// namespace that does not own the namespace it is in), a thread of its own goes instead.
    ///
    /// That `f` must be [`Send`] keeps out every [`Inside`] of where the caller is.
    ///
    /// # Errors
    /// [`EnterError`] when there is no permission, no thread, or `f` panicked (where panics unwind).
    pub fn enter<T: Send>(&self, f: impl FnOnce(&Inside) -> T + Send) -> Result<T, EnterError> {
        let Some(way_back) = WayBack::from_here() else {
            return on_thread(&self.path, || self.visit(f))?;
        };
        let visited = catch_unwind(AssertUnwindSafe(|| self.visit(f)));
        drop(way_back);
        visited.unwrap_or_else(|panic| Err(EnterError::Panicked { path: self.path.clone(), message: message_of(panic.as_ref()) }))
    }

    /// The same, with a routing socket of the namespace. It stays open for the next call, as long as this lives: links, addresses and
    /// routes of several attachments go through one socket.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub fn enter_with<T: Send>(&self, f: impl FnOnce(&Inside, &mut Netlink) -> T + Send) -> Result<T, ConnectError> {
        let work = |inside: &Inside| {
            let mut socket = self.take_route().map_or_else(|| Netlink::open(inside), Ok)?;
            let done = f(inside, &mut socket);
            self.keep_route(socket);
            Ok::<_, OpenError>(done)
        };
        Ok(self.enter(work)??)
    }

    /// Runs `f` with the routing socket of [`Netns::enter_with`], without entering where that is open already.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub fn route<T: Send>(&self, f: impl FnOnce(&mut Netlink) -> T + Send) -> Result<T, ConnectError> {
        let Some(mut socket) = self.take_route() else { return self.enter_with(|_, socket| f(socket)) };
        let done = f(&mut socket);
        self.keep_route(socket);
        Ok(done)
    }

    /// Out of its place while it is in use: who needs one meanwhile opens another.
    fn take_route(&self) -> Option<Netlink> {
        self.spare_route().take()
    }

    fn keep_route(&self, socket: Netlink) {
        *self.spare_route() = Some(socket);
    }

    fn spare_route(&self) -> MutexGuard<'_, Option<Netlink>> {
        self.route.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes there for good.
    fn visit<T>(&self, f: impl FnOnce(&Inside) -> T) -> Result<T, EnterError> {
        setns(&self.fd, CloneFlags::CLONE_NEWNET).map_err(|errno| EnterError::Setns { path: self.path.clone(), errno })?;
        crate::crash_point!("netns-entered");
        let done = f(&Inside::here());
        crate::crash_point!("netns-left");
        Ok(done)
    }
}

/// The namespace that a thread came from. It is back there once this is dropped.
struct WayBack(Option<Here>);

/// The namespace that a thread is in.
struct Here {
    netns: OwnedFd,
    /// Whether the thread has entered it, and so may do it again.
    is_tried: bool,
}

thread_local! {
    /// The namespace that the thread is in, once it was looked at: it is not looked for again. It goes with the thread, which keeps that namespace
    /// alive itself. Only [`Netns::visit`] takes a thread elsewhere, behind a [`WayBack`] or for good, and `exec_in`, whose caller ends.
    static HERE: Cell<Option<Here>> = const { Cell::new(None) };
}

// === impl Here ===

impl Here {
    fn look() -> Result<Self, Errno> {
        own().map(|netns| Here { netns, is_tried: false })
    }
}

// === impl WayBack ===

impl WayBack {
    /// `None` if the thread may leave its namespace, but not enter it again.
    fn from_here() -> Option<Self> {
        let mut here = HERE.take().map_or_else(Here::look, Ok).ok()?;
        if !here.is_tried {
            setns(&here.netns, CloneFlags::CLONE_NEWNET).ok()?;
            here.is_tried = true;
        }
        Some(WayBack(Some(here)))
    }
}

impl Drop for WayBack {
    fn drop(&mut self) {
        let Some(back) = self.0.take() else { return };
        if setns(&back.netns, CloneFlags::CLONE_NEWNET).is_err() {
            // Everything after this would be done to the wrong namespace. What was begun is undone by the next call.
            std::process::abort();
        }
        HERE.set(Some(back));
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The calling thread's namespace. A socket tells the one that it was made in, without a walk through /proc, to whoever
/// may administer it (net/socket.c, `SIOCGSKNS`).
fn own() -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: the socket is open for the call; the request takes no argument, and returns a descriptor or -1.
    let fd = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
    match fd {
        // SAFETY: the kernel has just made it, for nobody else.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => File::open(OWN).map(OwnedFd::from).map_err(|e| errno(&e)),
    }
}

/// linux/sockios.h
const SIOCGSKNS: libc::Ioctl = 0x894C;

/// The cookie of the namespace that the calling thread is in.
fn cookie() -> Option<u64> {
    cookie_of(&socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?)
}

/// The cookie of a socket's namespace.
fn cookie_of(socket: &impl AsRawFd) -> Option<u64> {
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    let to: *mut u64 = &mut cookie;
    // SAFETY: the descriptor is open for the call, which writes at most `length` bytes to `cookie`, and both outlive it.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, to.cast(), &mut length) };
    (done == 0).then_some(cookie)
}

/// Whether a file of nsfs is a network namespace. The kernel tells its kind by number; an emulator of another processor (qemu-user) does
/// not know that question, and passes on the other one: whether a thread can enter it as such.
fn is_of_network(fd: BorrowedFd<'_>, path: &Path) -> bool {
    // SAFETY: the descriptor is open for the call, the request takes no argument and writes nothing.
    match Errno::result(unsafe { libc::ioctl(fd.as_raw_fd(), libc::NS_GET_NSTYPE) }) {
        Ok(kind) => kind == libc::CLONE_NEWNET,
        Err(Errno::ENOSYS | Errno::ENOTTY) => matches!(on_thread(path, || setns(fd, CloneFlags::CLONE_NEWNET)), Ok(Ok(()))),
        Err(_) => false,
    }
}

/// Runs `f` on a thread of its own; its panic is an error.
fn on_thread<T: Send>(path: &Path, f: impl FnOnce() -> T + Send) -> Result<T, EnterError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".into()).spawn_scoped(scope, f).map_err(|e| EnterError::Thread(errno(&e)))?;
        thread.join().map_err(|panic| EnterError::Panicked { path: path.to_owned(), message: message_of(panic.as_ref()) })
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_raw(e.raw_os_error().unwrap_or(0))
}

// === impl Inside ===

impl Inside {
    /// The namespace that the calling thread is in: for most threads the one in which the process was started.
    pub fn here() -> Self {
        Inside { bound: PhantomData }
    }

    /// Opens that namespace.
    ///
    /// # Errors
    /// [`NetnsError::Failed`] when /proc is not mounted.
    pub fn netns(&self) -> Result<Netns, NetnsError> {
        Netns::current()
    }

    /// Which namespace it is, without opening it.
    ///
    /// # Errors
    /// [`NetnsError::Failed`] when /proc is not mounted.
    pub fn id(&self) -> Result<NetnsId, NetnsError> {
        Netns::current().map(|own| own.id)
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inside")
    }
}

// === impl NetnsId ===

/// Text that is no `DEV:INO`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a namespace ID (expected DEVICE:INODE, such as 4:4026532281)")]
pub struct NetnsIdError(String);

impl fmt::Display for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dev, self.ino)
    }
}

impl FromStr for NetnsId {
    type Err = NetnsIdError;

    fn from_str(s: &str) -> Result<Self, NetnsIdError> {
        let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok()).flatten();
        s.split_once(':')
            .and_then(|(dev, ino)| Some(NetnsId { dev: number(dev)?, ino: number(ino)? }))
            .ok_or_else(|| NetnsIdError(s.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_back() {
        let id = NetnsId { dev: 4, ino: 4_026_532_281 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "4", "4:", ":4", "4:x", "4:-1", "+4:1", "4:5:6", " 4:5", "99999999999999999999:1"] {
            assert!(bad.parse::<NetnsId>().is_err(), "{bad}");
        }
    }
}
