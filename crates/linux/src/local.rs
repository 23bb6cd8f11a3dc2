//! Stream sockets of this machine: reaching one, and who is at its other end.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
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
