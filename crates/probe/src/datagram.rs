//! A datagram's answer comes from the address that was asked: a host has several, and its kernel would choose by the route back.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;

use linux::Errno;
use nix::libc::{in_pktinfo, in6_pktinfo};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt};

/// Who has sent a datagram, and to which of the host's addresses.
pub(crate) struct Envelope {
    pub(crate) length: usize,
    from: SockaddrStorage,
    at: Option<ControlMessageOwned>,
}

/// Lets a socket tell the address that a datagram was sent to.
pub(crate) fn tell_destination(socket: &UdpSocket, is_ipv6: bool) -> Result<(), Errno> {
    if is_ipv6 { setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true) } else { setsockopt(socket, sockopt::Ipv4PacketInfo, &true) }
}

/// Receives one datagram.
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Result<Envelope, Errno> {
    let mut space = nix::cmsg_space!(in6_pktinfo, in_pktinfo);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::empty())?;
    let at = message.cmsgs()?.find(|told| matches!(told, ControlMessageOwned::Ipv4PacketInfo(_) | ControlMessageOwned::Ipv6PacketInfo(_)));
    Ok(Envelope { length: message.bytes, from: message.address.ok_or(Errno::EDESTADDRREQ)?, at })
}

/// Answers one, from the address that it was sent to.
pub(crate) fn answer(socket: &UdpSocket, envelope: &Envelope, text: &[u8]) -> Result<(), Errno> {
    let slices = [IoSlice::new(text)];
    let send = |told: &[ControlMessage<'_>]| sendmsg(socket.as_raw_fd(), &slices, told, MsgFlags::empty(), Some(&envelope.from)).map(drop);
    // By which link, the route decides.
    match envelope.at {
        Some(ControlMessageOwned::Ipv4PacketInfo(at)) => {
            send(&[ControlMessage::Ipv4PacketInfo(&in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: at.ipi_addr, ..at })])
        }
        Some(ControlMessageOwned::Ipv6PacketInfo(at)) => send(&[ControlMessage::Ipv6PacketInfo(&in6_pktinfo { ipi6_ifindex: 0, ..at })]),
        _ => send(&[]),
    }
}

// === impl Envelope ===

impl Envelope {
    /// Who has sent it.
    pub(crate) fn sender(&self) -> Option<IpAddr> {
        let of_ipv4 = self.from.as_sockaddr_in().map(|from| IpAddr::from(from.ip()));
        of_ipv4.or_else(|| self.from.as_sockaddr_in6().map(|from| from.ip().to_canonical()))
    }
}
