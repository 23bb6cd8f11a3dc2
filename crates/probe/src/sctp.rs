//! Sockets for one SCTP association at a time. They are accepted, read and written as TCP's are.

use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use linux::{Errno, Inside};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, listen, socket};

/// Whether the kernel has such sockets. Where its module may be loaded, the kernel loads it.
pub fn has_sctp(_: &Inside) -> bool {
    !matches!(open(AddressFamily::Inet), Err(Errno::EPROTONOSUPPORT | Errno::ESOCKTNOSUPPORT))
}

/// Listens at an address of the namespace where the caller is.
pub(crate) fn listener(at: SocketAddr) -> Result<TcpListener> {
    let socket = open(family(at))?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(at))?;
    listen(&socket, Backlog::MAXCONN)?;
    Ok(TcpListener::from(socket))
}

/// Begins an association from the namespace where the caller is, in so much time.
pub(crate) fn connected(to: SocketAddr, patience: Duration) -> Result<TcpStream> {
    let stream = TcpStream::from(open(family(to))?);
    // The kernel waits for an association as long as a send may take.
    stream.set_write_timeout(Some(patience))?;
    match connect(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) => Ok(stream),
        Err(Errno::EINPROGRESS) => Err(ErrorKind::TimedOut.into()),
        Err(e) => Err(Error::from(e)),
    }
}

fn family(of: SocketAddr) -> AddressFamily {
    if of.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn open(family: AddressFamily) -> std::result::Result<OwnedFd, Errno> {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp)
}
