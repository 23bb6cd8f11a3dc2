//! Packets of one protocol on one link, below the kernel's own IP (packet(7)): for who has no address yet.
//!
//! ```text
//!   link --kernel's filter: this protocol only--> PacketSocket --receive--> packet from its network header on, sender's MAC
//! ```
//!
//! The kernel puts the Ethernet header before what is sent, and takes it off what comes.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::sys::time::TimeSpec;

use crate::Inside;

mod arp_nd_socket;

pub use arp_nd_socket::{AddressClaim, ArpNdSocket, Observed};

/// An Ethernet address.
pub type EtherAddr = [u8; 6];

/// Every station of the link.
pub const BROADCAST: EtherAddr = [0xff; 6];

/// What the thread that closes a socket may have as its stack.
const CLOSING: usize = 32 << 10;

/// Protocols, by their numbers in an Ethernet header (linux/if_ether.h).
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// What the kernel's filters are made of (linux/bpf_common.h).
const LOAD_BYTE: u16 = 0x30;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

fn op(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// What a socket receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packets {
    /// IPv4 datagrams of UDP to a port, unless they are fragments.
    UdpV4To(u16),
    /// ARP over IPv4.
    Arp,
    /// IPv6 neighbour advertisements without extension headers (RFC 4861).
    NeighbourAdvertisements,
}

/// A socket on one link. It pins its namespace as long as it is open.
///
/// To close one costs an RCU grace period, 12 to 16 ms on two processors, which is more than an exchange with a server takes. So
/// that nobody waits for it, a thread of its own closes it.
#[derive(Debug)]
pub struct PacketSocket {
    fd: ManuallyDrop<OwnedFd>,
    index: u32,
    protocol: u16,
}

// === impl Packets ===

impl Packets {
    /// Its number in an Ethernet header (linux/if_ether.h).
    fn protocol(self) -> u16 {
        match self {
            Packets::UdpV4To(_) => 0x0800,
            Packets::Arp => ARP,
            Packets::NeighbourAdvertisements => IPV6,
        }
    }

    /// The filter that the kernel runs over each packet, which begins with its network header. As `tcpdump -d -y RAW` has it.
    fn filter(self) -> Vec<libc::sock_filter> {
        const LOAD_HALF: u16 = 0x28;
        const LOAD_HALF_AT_X: u16 = 0x48;
        const X_IS_HEADER_LENGTH: u16 = 0xb1;
        const IF_ANY_BIT: u16 = 0x45;
        let (take, drop) = (op(RETURN, 0, 0, u32::MAX), op(RETURN, 0, 0, 0));
        match self {
            Packets::UdpV4To(port) => vec![
                op(LOAD_BYTE, 0, 0, 9),
                op(IF_EQUAL, 0, 6, 17),
                op(LOAD_HALF, 0, 0, 6),
                op(IF_ANY_BIT, 4, 0, 0x1fff),
                op(X_IS_HEADER_LENGTH, 0, 0, 0),
                op(LOAD_HALF_AT_X, 0, 0, 2),
                op(IF_EQUAL, 0, 1, u32::from(port)),
                take,
                drop,
            ],
            Packets::Arp => vec![take],
            Packets::NeighbourAdvertisements => {
                vec![op(LOAD_BYTE, 0, 0, 6), op(IF_EQUAL, 0, 3, 58), op(LOAD_BYTE, 0, 0, 40), op(IF_EQUAL, 0, 1, 136), take, drop]
            }
        }
    }
}

// === impl PacketSocket ===

impl PacketSocket {
    /// Opens one on the link with this index. Nothing that passed before is received.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` if there is no such link.
    pub fn open(_: &Inside, index: u32, packets: Packets) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol it receives nothing until it is bound, by when the filter is there.
        let fd = socket(AddressFamily::Packet, SockType::Datagram, flags, None::<SockProtocol>)?;
        attach(&fd, packets.filter())?;
        let socket = PacketSocket { fd: ManuallyDrop::new(fd), index, protocol: packets.protocol() };
        bind(&socket.fd, &socket.address([0; 6]))?;
        Ok(socket)
    }

    fn address(&self, to: EtherAddr) -> libc::sockaddr_ll {
        address(self.protocol, self.index, to)
    }

    /// Sends a packet, which begins with its network header, to a station of the link.
    ///
    /// # Errors
    /// `ENETDOWN` where the link is down, `ENXIO` where it is gone, `EMSGSIZE` for more than its MTU.
    pub fn send(&self, to: EtherAddr, packet: &[u8]) -> Result<(), Errno> {
        let address = self.address(to);
        let (at, size) = ((&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t);
        // SAFETY: packet and address live longer than the call, which reads as many bytes of each as it is told.
        let sent = unsafe { libc::sendto(self.fd.as_raw_fd(), packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL, at, size) };
        Errno::result(sent).map(drop)
    }

    /// Waits for a packet until a moment: how many of its bytes are in `into` (what does not fit is lost), and who sent it.
    /// `None` if the time is over.
    ///
    /// # Errors
    /// `ENETDOWN` where the link went down, and everything else that poll(2) and recvfrom(2) can say.
    pub fn receive(&self, into: &mut [u8], by: Instant) -> Result<Option<(usize, EtherAddr)>, Errno> {
        loop {
            match self.take(into) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                taken => return taken.map(Some),
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            wait(&self.fd, left)?;
        }
    }

    fn take(&self, into: &mut [u8]) -> Result<(usize, EtherAddr), Errno> {
        let (got, from) = take(&self.fd, into)?;
        Ok((got, station(&from)))
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes it, and nobody sees the field afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        // Where no thread can be had it is closed here, with the closure.
        let _ = std::thread::Builder::new().name("close".to_owned()).stack_size(CLOSING).spawn(move || drop(fd));
    }
}

/// Waits until something can be read, at most that long.
fn wait(fd: &OwnedFd, left: Duration) -> Result<(), Errno> {
    match ppoll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], Some(TimeSpec::from_duration(left)), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e),
    }
}

/// A link, index 0 for all of them, and one of its stations.
fn address(protocol: u16, index: u32, station: EtherAddr) -> libc::sockaddr_ll {
    let mut sll_addr = [0; 8];
    sll_addr.iter_mut().zip(station).for_each(|(a, b)| *a = b);
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: i32::try_from(index).unwrap_or(i32::MAX),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr,
    }
}

fn station(of: &libc::sockaddr_ll) -> EtherAddr {
    let mut station = [0; 6];
    station.iter_mut().zip(of.sll_addr).for_each(|(a, b)| *a = b);
    station
}

/// From now on a socket receives what this program takes.
fn attach(fd: &OwnedFd, mut filter: Vec<libc::sock_filter>) -> Result<(), Errno> {
    let len = libc::c_ushort::try_from(filter.len()).map_err(|_| Errno::EINVAL)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    let (at, size) = ((&raw const program).cast(), size_of::<libc::sock_fprog>() as libc::socklen_t);
    // SAFETY: the kernel reads `program` and the `len` instructions it points to, which live longer than the call.
    Errno::result(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, size) }).map(drop)
}

fn bind(fd: &OwnedFd, to: &libc::sockaddr_ll) -> Result<(), Errno> {
    let (at, size) = ((&raw const *to).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t);
    // SAFETY: `to` is a whole sockaddr_ll, of which the kernel reads `size` bytes during the call.
    Errno::result(unsafe { libc::bind(fd.as_raw_fd(), at, size) }).map(drop)
}

/// A packet that is there: how many of its bytes are in `into`, and what is told of it.
fn take(fd: &OwnedFd, into: &mut [u8]) -> Result<(usize, libc::sockaddr_ll), Errno> {
    let mut from = address(0, 0, [0; 6]);
    let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `into.len()` and `size` bytes, to memory that is ours during the call.
    let got = unsafe {
        let at = (&raw mut from).cast();
        libc::recvfrom(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT, at, &raw mut size)
    };
    Ok((usize::try_from(Errno::result(got)?).unwrap_or(0), from))
}
