//! The side that answers.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use linux::{Errno, Family, Inside};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use crate::{datagram, sctp};

/// How long it takes at most until the server sees that it is to end.
const LOOK: u16 = 100;
/// The longest datagram.
const LONGEST: usize = 65_535;

/// A protocol that a probe speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP, which some kernels lack ([`sctp::has_sctp`]).
    Sctp,
}

/// A socket that is answered on, in one namespace.
#[derive(Debug)]
pub struct Listener {
    name: String,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    /// TCP or SCTP: who connects is answered.
    Stream(TcpListener),
    Udp(UdpSocket),
}

/// A port could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: cannot listen on {transport:?} port {port}: {why} (stop what listens there)")]
pub struct ListenError {
    /// As which name it was to answer.
    pub name: String,
    /// Of which protocol.
    pub transport: Transport,
    /// The port.
    pub port: u16,
    /// What the kernel said.
    pub why: String,
}

/// The number of a question. An answer has another form: two probes never answer each other, whatever sender a datagram names.
fn number_of(asked: &[u8]) -> Option<&[u8]> {
    let digits = asked.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = asked.split_at_checked(digits)?;
    (digits > 0 && rest.iter().all(|byte| b" .\n".contains(byte))).then_some(number)
}

// === impl Listener ===

impl Listener {
    /// Opens a port of the namespace where the caller is, at all addresses of both families, to answer with a name, which has no spaces.
    ///
    /// # Errors
    /// [`ListenError`]
    pub fn open(_: &Inside, name: &str, transport: Transport, port: u16) -> Result<Self, ListenError> {
        let any = |address: IpAddr| SocketAddr::new(address, port);
        let stream = |listener: TcpListener| listener.set_nonblocking(true).map(|()| Socket::Stream(listener));
        let open = |at: SocketAddr| -> std::io::Result<Socket> {
            match transport {
                Transport::Tcp => TcpListener::bind(at).and_then(stream),
                Transport::Sctp => sctp::listener(at).and_then(stream),
                Transport::Udp => {
                    let socket = UdpSocket::bind(at)?;
                    socket.set_nonblocking(true)?;
                    datagram::tell_destination(&socket, at.is_ipv6())?;
                    let whole =
                        |family| linux::send_whole(&socket, family).or_else(|e| if e == Errno::ENOPROTOOPT { Ok(()) } else { Err(e) });
                    whole(Family::V4)?;
                    if at.is_ipv6() {
                        whole(Family::V6)?;
                    }
                    Ok(Socket::Udp(socket))
                }
            }
        };
        // A kernel without IPv6 has no such addresses.
        let opened = open(any(Ipv6Addr::UNSPECIFIED.into())).or_else(|e| match e.raw_os_error() {
            Some(errno) if Errno::from_raw(errno) == Errno::EAFNOSUPPORT => open(any(Ipv4Addr::UNSPECIFIED.into())),
            _ => Err(e),
        });
        let failed = |e: std::io::Error| ListenError { name: name.to_owned(), transport, port, why: e.to_string() };
        opened.map(|socket| Listener { name: name.to_owned(), socket }).map_err(failed)
    }

    /// Answers whoever has asked.
    fn answer(&self, buffer: &mut [u8]) {
        match &self.socket {
            Socket::Stream(listener) => {
                while let Ok((mut connection, from)) = listener.accept() {
                    // It is short enough for any socket's buffer.
                    let _ = writeln!(connection, "{} {}", self.name, from.ip().to_canonical());
                }
            }
            Socket::Udp(socket) => loop {
                match datagram::receive(socket, buffer) {
                    Ok(envelope) => {
                        let (length, Some(sender)) = (envelope.length, envelope.sender()) else { continue };
                        let asked = buffer.get(..length).unwrap_or_default();
                        let Some(number) = number_of(asked) else { continue };
                        let mut answer = [number, format!(" {} {sender} ", self.name).as_bytes()].concat();
                        answer.resize(answer.len().max(length), b'.');
                        let _ = datagram::answer(socket, &envelope, &answer);
                    }
                    Err(Errno::EAGAIN) => break,
                    // What a router or a host says of an earlier answer.
                    Err(_) => {}
                }
            },
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Stream(listener) => listener.as_fd(),
            Socket::Udp(socket) => socket.as_fd(),
        }
    }
}

/// Answers on all of them until it is to end.
pub fn serve(listeners: &[Listener], end: &AtomicBool) {
    let mut buffer = vec![0; LONGEST];
    while !end.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd<'_>> = listeners.iter().map(|listener| PollFd::new(listener.fd(), PollFlags::POLLIN)).collect();
        if poll(&mut fds, PollTimeout::from(LOOK)).is_err() {
            continue;
        }
        let ready = fds.iter().zip(listeners).filter(|(fd, _)| fd.any().unwrap_or(false));
        ready.for_each(|(_, listener)| listener.answer(&mut buffer));
    }
}
