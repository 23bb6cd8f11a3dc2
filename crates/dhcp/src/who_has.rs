//! Who on a link has an address? Asked by a station that has none: so nobody learns anything wrong (RFC 5227, RFC 4862 5.4).
//!
//! ```text
//!   IPv4  ARP probe, broadcast                       -> whoever answers for it, or probes for it as well
//!   IPv6  neighbour solicitation from ::, multicast  -> whoever advertises it
//! ```

use std::net::IpAddr;
use std::time::{Duration, Instant};

use linux::packet::{BROADCAST, EtherAddr, PacketSocket, Packets};
use linux::{Errno, Inside};

use crate::v4::datagram;
use crate::v6::neighbour;

/// The question for one address, while it is open: answers are received from its opening on.
#[derive(Debug)]
pub(crate) struct Question {
    socket: PacketSocket,
    own: EtherAddr,
    address: IpAddr,
}

// === impl Question ===

impl Question {
    pub(crate) fn open(inside: &Inside, index: u32, own: EtherAddr, address: IpAddr) -> Result<Self, Errno> {
        let packets = match address {
            IpAddr::V4(_) => Packets::Arp,
            IpAddr::V6(_) => Packets::NeighbourAdvertisements,
        };
        Ok(Question { socket: PacketSocket::open(inside, index, packets)?, own, address })
    }

    pub(crate) fn ask(&self) -> Result<(), Errno> {
        let (station, packet) = match self.address {
            IpAddr::V4(address) => (BROADCAST, datagram::arp_probe(self.own, address)),
            IpAddr::V6(address) => neighbour::solicitation(address),
        };
        self.socket.send(station, &packet)
    }

    /// Who says until then that the address is his.
    pub(crate) fn heard(&self, by: Instant) -> Result<Option<EtherAddr>, Errno> {
        let mut buffer = [0; 256];
        while let Some((length, from)) = self.socket.receive(&mut buffer, by)? {
            let packet = buffer.get(..length).unwrap_or_default();
            let station = match self.address {
                IpAddr::V4(address) => datagram::arp_conflict(packet, self.own, address),
                IpAddr::V6(address) => (from != self.own && neighbour::advertises(packet, address)).then_some(from),
            };
            if station.is_some() {
                return Ok(station);
            }
        }
        Ok(None)
    }
}

/// Asks a link, as the station `own`, so often for each of these addresses, with so long a pause behind each question: an address that
/// another station has, and that station. The link has to be up.
///
/// # Errors
/// Those of a packet socket: `EPERM` without `CAP_NET_RAW`, `ENETDOWN`, `ENODEV`.
pub fn who_has(
    inside: &Inside,
    index: u32,
    own: EtherAddr,
    addresses: &[IpAddr],
    questions: u32,
    pause: Duration,
) -> Result<Option<(IpAddr, EtherAddr)>, Errno> {
    let open: Vec<Question> = addresses.iter().map(|address| Question::open(inside, index, own, *address)).collect::<Result<_, _>>()?;
    for _ in 0..questions {
        open.iter().try_for_each(Question::ask)?;
        let by = Instant::now() + pause;
        for question in &open {
            if let Some(station) = question.heard(by)? {
                return Ok(Some((question.address, station)));
            }
        }
    }
    Ok(None)
}
