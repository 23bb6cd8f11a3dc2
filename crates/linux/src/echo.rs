//! Echo requests to many addresses at once: who of them answers, and how fast (RFC 792, RFC 4443 section 4).
//!
//! ```text
//!   addresses --a request to each, numbered--> wire --replies, until all are there or the time is over--> Answers
//! ```
//!
//! A raw socket of each family, not the kernel's own for echo: whether a group may have those is a sysctl of the host.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto, socket};
use nix::sys::time::TimeSpec;

use crate::Inside;

/// Who has answered, and how long after the request.
pub type Answers = BTreeMap<IpAddr, Duration>;

/// The type of a request and of a reply, by family.
const V4: (u8, u8) = (8, 0);
const V6: (u8, u8) = (128, 129);
/// Type, code, checksum, identifier, number.
const HEADER: usize = 8;
/// Requests between two looks for replies, so that neither side's buffer overflows.
const AT_ONCE: usize = 64;

/// A socket of one family, and what was asked over it.
struct EchoSocket {
    socket: OwnedFd,
    is_v4: bool,
    identifier: u16,
    /// By the request's number.
    sent: Vec<(IpAddr, Instant)>,
}

/// Sends each address a request, and gathers replies until everybody has answered or the time is over. Of more than 65,536 addresses of a
/// family the first ones are asked. To whom no packet can be sent does not answer.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`, and everything else that socket(2), poll(2) and recv(2) can say. A family that the kernel does not have
/// is no error: nobody answers.
pub fn echo(_: &Inside, addresses: &[IpAddr], patience: Duration) -> Result<Answers, Errno> {
    let mut answers = Answers::new();
    let mut all = Vec::new();
    for is_v4 in [true, false] {
        let of_family: Vec<IpAddr> = addresses.iter().copied().filter(|address| address.is_ipv4() == is_v4).take(1 << 16).collect();
        if of_family.is_empty() {
            continue;
        }
        let Some(mut asked) = EchoSocket::open(is_v4)? else { continue };
        for some in of_family.chunks(AT_ONCE) {
            some.iter().for_each(|address| asked.ask(*address));
            while asked.take(&mut answers)? {}
        }
        all.push(asked);
    }
    let until = Instant::now() + patience;
    let asked = all.iter().map(|asked| asked.sent.len()).sum::<usize>();
    while answers.len() < asked {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let mut fds: Vec<PollFd<'_>> = all.iter().map(|asked| PollFd::new(asked.socket.as_fd(), PollFlags::POLLIN)).collect();
        match ppoll(&mut fds, Some(TimeSpec::from_duration(left)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
        for asked in &mut all {
            while asked.take(&mut answers)? {}
        }
    }
    Ok(answers)
}

// === impl EchoSocket ===

impl EchoSocket {
    /// `None` where the kernel has no such family.
    fn open(is_v4: bool) -> Result<Option<Self>, Errno> {
        let (family, protocol) =
            if is_v4 { (AddressFamily::Inet, SockProtocol::Icmp) } else { (AddressFamily::Inet6, SockProtocol::IcmpV6) };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = match socket(family, SockType::Raw, flags, Some(protocol)) {
            Ok(socket) => socket,
            Err(Errno::EAFNOSUPPORT) => return Ok(None),
            Err(e) => return Err(e),
        };
        // A new RandomState has a new key.
        let identifier = (RandomState::new().hash_one(0_u8) & 0xffff) as u16;
        Ok(Some(EchoSocket { socket, is_v4, identifier, sent: Vec::new() }))
    }

    fn ask(&mut self, address: IpAddr) {
        let Ok(number) = u16::try_from(self.sent.len()) else { return };
        let message = request(self.is_v4, self.identifier, number);
        let to = SockaddrStorage::from(SocketAddr::new(address, 0));
        self.sent.push((address, Instant::now()));
        // No route, or a neighbour that is known not to answer.
        let _ = sendto(self.socket.as_raw_fd(), &message, &to, MsgFlags::MSG_NOSIGNAL);
    }

    /// Takes one datagram; whether there was one.
    fn take(&self, answers: &mut Answers) -> Result<bool, Errno> {
        let mut buffer = [0; 128];
        let got = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
            Ok(got) => got.min(buffer.len()),
            Err(Errno::EAGAIN) => return Ok(false),
            // What a router says of an earlier request.
            Err(Errno::EINTR | Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::ECONNREFUSED) => return Ok(true),
            Err(e) => return Err(e),
        };
        let number = buffer.get(..got).and_then(|datagram| reply(self.is_v4, self.identifier, datagram));
        if let Some((address, sent)) = number.and_then(|number| self.sent.get(usize::from(number))) {
            answers.entry(*address).or_insert_with(|| sent.elapsed());
        }
        Ok(true)
    }
}

/// A request without data. The kernel computes the checksum of ICMPv6, which has addresses in it.
fn request(is_v4: bool, identifier: u16, number: u16) -> [u8; HEADER] {
    let ([id1, id2], [n1, n2]) = (identifier.to_be_bytes(), number.to_be_bytes());
    let kind = if is_v4 { V4.0 } else { V6.0 };
    let mut message = [kind, 0, 0, 0, id1, id2, n1, n2];
    if is_v4 {
        let [.., high, low] = checksum(&message).to_be_bytes();
        message = [kind, 0, high, low, id1, id2, n1, n2];
    }
    message
}

/// The Internet checksum (RFC 1071).
fn checksum(message: &[u8]) -> u16 {
    let word = |pair: &[u8]| pair.iter().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte));
    let sum: u32 = message.chunks(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded + (folded >> 16)) as u16)
}

/// The number of the request that a datagram answers. A raw socket of IPv4 receives the IP header too, and each receives what is for others.
fn reply(is_v4: bool, identifier: u16, datagram: &[u8]) -> Option<u16> {
    let message = if is_v4 {
        let words = usize::from(*datagram.first()? & 0x0f);
        datagram.get(words * 4..)?
    } else {
        datagram
    };
    let [kind, code, _, _, id1, id2, n1, n2] = *message.first_chunk::<HEADER>()?;
    let expected = if is_v4 { V4.1 } else { V6.1 };
    (kind == expected && code == 0 && u16::from_be_bytes([id1, id2]) == identifier).then_some(u16::from_be_bytes([n1, n2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_and_its_checksum_cancel_out() {
        let message = request(true, 0x1234, 7);
        assert_eq!((message[0], checksum(&message)), (8, 0));
        assert_eq!(request(false, 0x1234, 7), [128, 0, 0, 0, 0x12, 0x34, 0, 7]);
    }

    #[test]
    fn a_reply_is_told_from_what_is_for_others() {
        let with_header = |message: [u8; HEADER]| [&[0x45][..], &[0; 19], &message].concat();
        let right = [0, 0, 0, 0, 0x12, 0x34, 0, 7];
        assert_eq!(reply(true, 0x1234, &with_header(right)), Some(7));
        assert_eq!(reply(true, 0x1235, &with_header(right)), None, "another process's");
        assert_eq!(reply(true, 0x1234, &with_header([8, 0, 0, 0, 0x12, 0x34, 0, 7])), None, "the request itself, on lo");
        assert_eq!(reply(true, 0x1234, &[0x45, 0]), None);
        assert_eq!(reply(false, 0x1234, &[129, 0, 0, 0, 0x12, 0x34, 0, 9]), Some(9));
        assert_eq!(reply(false, 0x1234, &[]), None);
    }
}
