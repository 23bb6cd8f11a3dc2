//! Stream sockets of this machine: reaching one, waiting for one to appear, and who is at its other end.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

/// The process at the other end of a connection, as it was when it connected or began to listen (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number, as it is seen from here; 0 for a process that is not.
    pub pid: i32,
    /// Whose it is.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Who is at the other end.
///
/// # Errors
/// `ENOTSOCK` and the like: the descriptor is no such connection.
pub fn peer(stream: &impl AsFd) -> Result<Peer, Errno> {
    let credentials = socket::getsockopt(&stream.as_fd(), sockopt::PeerCredentials)?;
    Ok(Peer { pid: credentials.pid(), uid: credentials.uid(), gid: credentials.gid() })
}

/// Whether the other end has closed the connection, or its process is gone.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn hung_up(stream: &impl AsFd) -> Result<bool, Errno> {
    match socket::recv(stream.as_fd().as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
        Ok(0) | Err(Errno::ECONNRESET) => Ok(true),
        Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Connects to a socket. Unlike the standard library's way it does not wait for ever for one whose owner accepts nobody
/// while its queue is full. The time is also the limit of each write afterwards.
///
/// # Errors
/// `ENOENT` and `ECONNREFUSED`: nobody is there. `EAGAIN`: somebody is, but accepts nobody. `ENAMETOOLONG`: the path has
/// more than 107 bytes.
pub fn connect(path: &Path, time: Duration) -> Result<UnixStream, Errno> {
    let address = UnixAddr::new(path)?;
    let fd: OwnedFd = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // Zero would mean without a limit.
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX).max(1);
    socket::setsockopt(&fd, sockopt::SendTimeout, &TimeVal::microseconds(micros))?;
    socket::connect(fd.as_raw_fd(), &address)?;
    Ok(UnixStream::from(fd))
}

/// Tells when something appears at a path, or where a directory on the way to it is missing.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    name: OsString,
}

// === impl Watch ===

impl Watch {
    /// Watches the last directory on the way to `path` that is there. What appears from now on is told; so the watch is made
    /// first, then one looks whether it is there already.
    ///
    /// # Errors
    /// `EMFILE` and `ENOSPC` where there are too many watches already; `ENOTDIR`.
    pub fn on(path: &Path) -> Result<Self, Errno> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let what = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_ONLYDIR;
        let mut name = path.file_name().unwrap_or_default();
        for dir in path.ancestors().skip(1) {
            match inotify.add_watch(if dir == Path::new("") { Path::new(".") } else { dir }, what) {
                Ok(_) => return Ok(Watch { inotify, name: name.to_owned() }),
                Err(Errno::ENOENT) => name = dir.file_name().unwrap_or(OsStr::new("")),
                Err(e) => return Err(e),
            }
        }
        Err(Errno::ENOENT)
    }

    /// Waits until it appears: whether it did, or the time was over.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self, time: Duration) -> Result<bool, Errno> {
        let by = Instant::now() + time;
        loop {
            let left = by.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            let timeout = PollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX));
            match poll(&mut [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
            let events = match self.inotify.read_events() {
                Err(Errno::EAGAIN) => Vec::new(),
                read => read?,
            };
            // Without a name: the directory itself is gone, or events were lost.
            if events.iter().any(|event| event.name.as_ref().is_none_or(|name| *name == self.name)) {
                return Ok(true);
            }
            if Instant::now() >= by {
                return Ok(false);
            }
        }
    }
}
