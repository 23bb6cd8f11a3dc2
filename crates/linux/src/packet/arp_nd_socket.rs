//! What machines say of their addresses, on all links of a namespace at once. Nothing is ever sent.
//!
//! ```text
//!   every link --kernel's filter: ARP, neighbour solicitation and advertisement, nothing that this host sends--> Ear
//!     --> Speech { address, by }: this station says that it has the address
//! ```
//!
//! The kernel has taken a VLAN's tag off by then: what is said in a VLAN is heard as what is said beside it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt};

use super::{ARP, EtherAddr, IF_EQUAL, IPV6, LOAD_BYTE, RETURN, address, attach, bind, op, station, take};
use crate::Inside;

const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Longer than any of them, also with signatures (RFC 3971): of a longer one the rest is not copied.
const LONGEST: u32 = 1024;
/// What may wait to be read, in bytes as the kernel counts them, each packet with all that it has to know of it: some 80 packets. What
/// comes while it is full is lost.
const QUEUE: usize = 64 << 10;
/// Ethernet (linux/if_arp.h); other links have other addresses, or none.
const ETHERNET: u16 = 1;

/// Hears. It pins its namespace as long as it is open.
#[derive(Debug)]
pub struct ArpNdSocket {
    fd: OwnedFd,
}

/// What has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// Somebody says which address it has.
    Claim(AddressClaim),
    /// A packet that says nothing of that.
    Nothing,
    /// Whoever wanted to hear it has gone.
    Stopped,
}

/// A station says that it has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressClaim {
    /// The address.
    pub address: IpAddr,
    /// Whose it is by that, which need not be the station that has sent it: a switch may answer for others.
    pub by: EtherAddr,
}

// === impl ArpNdSocket ===

impl ArpNdSocket {
    /// Opens one on all links of the namespace, also on those that come later. Nothing that passed before is heard.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENOPROTOOPT` on a kernel before 4.20.
    pub fn open(_: &Inside) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol it receives nothing until it is bound, by when the filter is there.
        let fd = socket(AddressFamily::Packet, SockType::Datagram, flags, None::<SockProtocol>)?;
        attach(&fd, filter())?;
        let on: libc::c_int = 1;
        let (at, size) = ((&raw const on).cast(), size_of::<libc::c_int>() as libc::socklen_t);
        // Without it the kernel would make a copy of each packet that the host sends, for the filter to look at.
        // SAFETY: the kernel reads `size` bytes of `on`, which lives longer than the call.
        Errno::result(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, at, size) })?;
        setsockopt(&fd, sockopt::RcvBuf, &QUEUE)?;
        // Of all protocols, as only that is heard before a bridge or a macvlan's parent takes it for another one.
        bind(&fd, &address(libc::ETH_P_ALL as u16, 0, [0; 6]))?;
        Ok(ArpNdSocket { fd })
    }

    /// Waits until something comes, or the other end of the pipe `until` is closed.
    ///
    /// # Errors
    /// What poll(2) and recvfrom(2) say.
    pub fn next(&self, until: &impl AsFd) -> Result<Observed, Errno> {
        let mut packet = [0; LONGEST as usize];
        loop {
            let mut fds = [PollFd::new(until.as_fd(), PollFlags::POLLIN), PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            if fds.iter().take(1).any(|fd| fd.any().unwrap_or(true)) {
                return Ok(Observed::Stopped);
            }
            match take(&self.fd, &mut packet) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(e) => return Err(e),
                Ok((_, from)) if from.sll_hatype != ETHERNET => return Ok(Observed::Nothing),
                Ok((length, from)) => {
                    let said =
                        AddressClaim::read(u16::from_be(from.sll_protocol), packet.get(..length).unwrap_or_default(), station(&from));
                    return Ok(said.map_or(Observed::Nothing, Observed::Claim));
                }
            }
        }
    }
}

/// The filter, for packets that begin with their network header: `arp or (icmp6 and (ip6[40] == 135 or ip6[40] == 136))` that came in.
fn filter() -> Vec<libc::sock_filter> {
    const LOAD_WORD: u16 = 0x20;
    /// What the kernel knows of a packet stands where no packet has a byte (linux/filter.h).
    const KNOWN: u32 = 0xffff_f000;
    const PROTOCOL: u32 = KNOWN;
    const KIND: u32 = KNOWN + 4;
    const OUTGOING: u32 = 4;
    vec![
        op(LOAD_WORD, 0, 0, PROTOCOL),
        op(IF_EQUAL, 6, 0, ARP.into()),
        op(IF_EQUAL, 0, 8, IPV6.into()),
        op(LOAD_BYTE, 0, 0, 6),
        op(IF_EQUAL, 0, 6, ICMPV6.into()),
        op(LOAD_BYTE, 0, 0, 40),
        op(IF_EQUAL, 1, 0, SOLICITATION.into()),
        op(IF_EQUAL, 0, 3, ADVERTISEMENT.into()),
        op(LOAD_WORD, 0, 0, KIND),
        op(IF_EQUAL, 1, 0, OUTGOING),
        op(RETURN, 0, 0, LONGEST),
        op(RETURN, 0, 0, 0),
    ]
}

// === impl AddressClaim ===

impl AddressClaim {
    /// Reads a packet, which begins with its network header, of a protocol (linux/if_ether.h). `None`: it says of nobody that he has an
    /// address, as who asks for one without having one (ARP probe, duplicate address detection) does not have it yet: somebody may
    /// answer for it, and there are switches that ask so whether a station is there.
    pub(crate) fn read(protocol: u16, packet: &[u8], station: EtherAddr) -> Option<Self> {
        let said = match protocol {
            ARP => arp(packet),
            IPV6 => neighbour(packet, station),
            _ => None,
        }?;
        // What many would have is nobody's.
        let is_station = said.by != [0; 6] && said.by.first().is_some_and(|byte| byte & 1 == 0);
        let is_address = match said.address {
            IpAddr::V4(v4) => !(v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast() || v4.is_loopback()),
            IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_multicast() || v6.is_loopback()),
        };
        (is_station && is_address).then_some(said)
    }
}

/// Request or answer, an announcement too: who has sent it has an address, unless that is 0.0.0.0 (RFC 826, RFC 5227).
fn arp(packet: &[u8]) -> Option<AddressClaim> {
    let (head, rest) = packet.split_first_chunk::<8>()?;
    if !matches!(head, [0, 1, 8, 0, 6, 4, 0, 1 | 2]) {
        return None;
    }
    let (by, rest) = rest.split_first_chunk::<6>()?;
    let (address, rest) = rest.split_first_chunk::<4>()?;
    // Cut off.
    rest.get(..10)?;
    Some(AddressClaim { address: Ipv4Addr::from(*address).into(), by: *by })
}

/// Who asks has the address that the question comes from, who advertises the one that the answer is about (RFC 4861).
fn neighbour(packet: &[u8], station: EtherAddr) -> Option<AddressClaim> {
    let (head, rest) = packet.split_first_chunk::<8>()?;
    let [first, _, _, _, high, low, next, hops] = *head;
    // A router would have made it fewer hops.
    if first >> 4 != 6 || next != ICMPV6 || hops != 255 {
        return None;
    }
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let (_, rest) = rest.split_first_chunk::<16>()?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let rest = rest.get(..length)?;
    let ([kind, code, ..], rest) = rest.split_first_chunk::<8>()?;
    let (target, mut options) = rest.split_first_chunk::<16>()?;
    let (address, wanted) = match (*kind, *code) {
        (SOLICITATION, 0) => (source, 1),
        (ADVERTISEMENT, 0) => (target, 2),
        _ => return None,
    };
    let mut by = station;
    while let Some(([kind, units], _)) = options.split_first_chunk::<2>() {
        // Options of no length are refused by who is asked, too.
        let size = usize::from(*units) * 8;
        let (option, others) = if size == 0 { return None } else { options.split_at_checked(size)? };
        if *kind == wanted
            && let [_, _, a, b, c, d, e, f] = *option
        {
            by = [a, b, c, d, e, f];
        }
        options = others;
    }
    Some(AddressClaim { address: Ipv6Addr::from(*address).into(), by })
}

#[cfg(test)]
#[path = "ear_tests.rs"]
mod tests;
