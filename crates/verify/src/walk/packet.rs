//! The packet that is followed, and as much of its bytes as rules may look at.

use std::net::IpAddr;

use cni::Mac;

use crate::case::Protocol;

/// A packet at one moment of its way.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: Protocol,
    /// 0: not known.
    pub(crate) source_port: u16,
    pub(crate) port: u16,
    /// Bytes, with the IP header.
    pub(crate) size: u32,
    /// Hosts that may still forward it, and one more; 0: not known.
    pub(crate) hop_limit: u8,
    /// What the namespace knows of its connection.
    pub(crate) connection: Connection,
    /// The connection's destination was rewritten in this namespace.
    pub(crate) rewritten: bool,
    pub(crate) mark: u32,
    /// Destination and source of the frame that it is in.
    pub(crate) frame: Option<(Mac, Mac)>,
}

/// What tells one conversation from another: addresses and ports, as a packet has them at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) port: u16,
}

/// What a namespace knows of the connection that a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    /// It begins it.
    New,
    /// It answers what came by here.
    Established,
    /// It answers what went another way.
    Unknown,
    /// A rule keeps the packet out of connection tracking.
    Untracked,
}

/// Bytes, as far as they are known.
pub(super) type Bytes = Vec<Option<u8>>;

// === impl Tuple ===

impl Tuple {
    /// That of a packet in the other direction.
    pub(crate) fn reversed(self) -> Self {
        Tuple { source: self.destination, destination: self.source, source_port: self.port, port: self.source_port }
    }
}

// === impl Packet ===

impl Packet {
    pub(crate) fn tuple(&self) -> Tuple {
        Tuple { source: self.source, destination: self.destination, source_port: self.source_port, port: self.port }
    }

    /// The first bytes of its Ethernet header.
    pub(super) fn link_header(&self) -> Bytes {
        let Some((to, from)) = &self.frame else { return vec![None; 14] };
        let kind: [u8; 2] = if self.destination.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
        to.as_bytes().iter().chain(from.as_bytes()).chain(&kind).copied().map(Some).collect()
    }

    /// Its IP header; what a rule seldom looks at is not known.
    pub(super) fn network_header(&self) -> Bytes {
        let number = self.protocol.number();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = u16::try_from(self.size).unwrap_or(u16::MAX).to_be_bytes();
                let mut bytes = vec![Some(0x45), Some(0)];
                bytes.extend(length.map(Some));
                bytes.extend([None; 5]);
                bytes.extend([Some(number), None, None]);
                bytes.extend(source.octets().iter().chain(&destination.octets()).copied().map(Some));
                bytes
            }
            (source, destination) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                let mut bytes = vec![Some(0x60), None, None, None];
                bytes.extend(u16::try_from(self.size.saturating_sub(40)).unwrap_or(u16::MAX).to_be_bytes().map(Some));
                bytes.extend([Some(number), None]);
                bytes.extend(octets(source).into_iter().chain(octets(destination)).map(Some));
                bytes
            }
        }
    }

    /// The ports.
    pub(super) fn transport_header(&self) -> Bytes {
        let port = |number: u16| number.to_be_bytes().map(|byte| (number != 0).then_some(byte));
        let mut bytes = port(self.source_port).to_vec();
        bytes.extend(port(self.port));
        bytes.extend([None; 16]);
        bytes
    }

    /// The same conversation's packet in the other direction.
    pub(crate) fn reply(&self, source: IpAddr, destination: IpAddr) -> Packet {
        Packet {
            source,
            destination,
            source_port: self.port,
            port: self.source_port,
            hop_limit: 0,
            connection: Connection::Established,
            rewritten: false,
            mark: 0,
            frame: None,
            ..self.clone()
        }
    }
}
