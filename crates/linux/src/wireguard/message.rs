//! WireGuard's messages, written and read.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use ipnet::IpNet;

use super::{Device, Key, Peer, PeerChange, PrivateKey, RANGES, ROOM};
use crate::uapi::family;
use crate::uapi::genetlink::*;
use crate::uapi::wireguard::*;
use crate::wire::{Attributes, Message, NLA_F_NESTED, ip, u16_at, u32_at, with_octets};

/// Bytes of a peer without its ranges, at the most.
const OF_PEER: usize = 144;
/// Bytes of an allowed range, at the most.
const OF_RANGE: usize = 40;

/// What one message of an answer has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MessagePart {
    device: Device,
    /// In the order of the message: the first one may go on from the message before.
    peers: Vec<(Key, Peer)>,
}

/// A device from the messages of an answer.
pub(super) fn joined(parts: Vec<MessagePart>) -> Option<Device> {
    let mut parts = parts.into_iter();
    let first = parts.next()?;
    let mut device = first.device;
    for (key, peer) in first.peers.into_iter().chain(parts.flat_map(|part| part.peers)) {
        match device.peers.get_mut(&key) {
            // Only the key is repeated, and further ranges follow.
            Some(begun) => begun.allowed.extend(peer.allowed),
            None => drop(device.peers.insert(key, peer)),
        }
    }
    Some(device)
}

/// Asks for the number of the family.
pub(super) fn family_question() -> Message {
    let mut message = Message::new(GENL_ID_CTRL, 0, &[CTRL_CMD_GETFAMILY, CTRL_VERSION, 0, 0]);
    message.put_str(CTRL_ATTR_FAMILY_NAME, WG_GENL_NAME);
    message
}

/// Asks for a device.
pub(super) fn get(family: u16, index: u32) -> Message {
    of_device(family, WG_CMD_GET_DEVICE, index)
}

/// Sets what a device has besides its peers.
pub(super) fn set_device(family: u16, index: u32, key: Option<&PrivateKey>, port: Option<u16>, mark: Option<u32>) -> Message {
    let mut message = of_device(family, WG_CMD_SET_DEVICE, index);
    if let Some(PrivateKey(key)) = key {
        message.put(WGDEVICE_A_PRIVATE_KEY, key);
    }
    if let Some(port) = port {
        message.put_u16(WGDEVICE_A_LISTEN_PORT, port);
    }
    if let Some(mark) = mark {
        message.put_u32(WGDEVICE_A_FWMARK, mark);
    }
    message
}

/// Changes of peers that fit one message, as far as possible; with the place of the first one.
pub(super) fn packed(changes: &[PeerChange]) -> Vec<(usize, &[PeerChange])> {
    let mut all = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (at, change) in changes.iter().enumerate() {
        let own = OF_PEER + OF_RANGE * change.ranges().count();
        if at > first && bytes + own > ROOM {
            all.extend(changes.get(first..at).map(|some| (first, some)));
            (first, bytes) = (at, 0);
        }
        bytes += own;
    }
    all.extend(changes.get(first..).filter(|rest| !rest.is_empty()).map(|rest| (first, rest)));
    all
}

/// The messages for changes: one, but for a peer with many ranges.
pub(super) fn set_peers(family: u16, index: u32, changes: &[PeerChange]) -> Vec<Message> {
    let message = |fill: &dyn Fn(&mut Message)| {
        let mut message = of_device(family, WG_CMD_SET_DEVICE, index);
        nest(&mut message, WGDEVICE_A_PEERS, fill);
        message
    };
    let mut all = vec![message(&|peers| changes.iter().for_each(|change| change.write(peers)))];
    for change in changes {
        let (PeerChange::Set { key, .. } | PeerChange::Update { key, .. }) = change else { continue };
        let rest: Vec<&IpNet> = change.ranges().skip(RANGES).collect();
        for some in rest.chunks(RANGES) {
            all.push(message(&|peers| {
                nest(peers, 0, |peer| {
                    peer.put(WGPEER_A_PUBLIC_KEY, key);
                    write_ranges(peer, some.iter().copied());
                });
            }));
        }
    }
    all
}

fn of_device(family: u16, command: u8, index: u32) -> Message {
    let mut message = Message::new(family, 0, &[command, WG_GENL_VERSION, 0, 0]);
    message.put_u32(WGDEVICE_A_IFINDEX, index);
    message
}

/// Generic netlink insists on the flag (`NL_VALIDATE_STRICT`), unlike rtnetlink.
fn nest(message: &mut Message, kind: u16, fill: impl FnOnce(&mut Message)) {
    message.nest(kind | NLA_F_NESTED, fill);
}

fn write_ranges<'a>(peer: &mut Message, ranges: impl Iterator<Item = &'a IpNet>) {
    nest(peer, WGPEER_A_ALLOWEDIPS, |all| {
        for range in ranges {
            nest(all, 0, |one| {
                let of_family = if range.addr().is_ipv4() { family::INET } else { family::INET6 };
                one.put_u16(WGALLOWEDIP_A_FAMILY, of_family.into());
                with_octets(range.network(), |octets| one.put(WGALLOWEDIP_A_IPADDR, octets));
                one.put_u8(WGALLOWEDIP_A_CIDR_MASK, range.prefix_len());
            });
        }
    });
}

// === impl PeerChange ===

impl PeerChange {
    fn ranges(&self) -> impl Iterator<Item = &IpNet> {
        let allowed = match self {
            PeerChange::Set { allowed, .. } | PeerChange::Update { added: allowed, .. } => Some(allowed),
            PeerChange::Remove { .. } => None,
        };
        allowed.into_iter().flatten()
    }

    fn write(&self, peers: &mut Message) {
        nest(peers, 0, |peer| match self {
            PeerChange::Set { key, endpoint, keepalive, .. } => {
                peer.put(WGPEER_A_PUBLIC_KEY, key);
                // All zeros: none.
                peer.put(WGPEER_A_PRESHARED_KEY, &[0; 32]);
                peer.put(WGPEER_A_ENDPOINT, &socket_address(*endpoint));
                peer.put_u16(WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL, *keepalive);
                peer.put_u32(WGPEER_A_FLAGS, WGPEER_F_REPLACE_ALLOWEDIPS);
                write_ranges(peer, self.ranges().take(RANGES));
            }
            PeerChange::Update { key, endpoint, keepalive, .. } => {
                peer.put(WGPEER_A_PUBLIC_KEY, key);
                if let Some(endpoint) = endpoint {
                    peer.put(WGPEER_A_ENDPOINT, &socket_address(*endpoint));
                }
                if let Some(keepalive) = keepalive {
                    peer.put_u16(WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL, *keepalive);
                }
                peer.put_u32(WGPEER_A_FLAGS, WGPEER_F_UPDATE_ONLY);
                write_ranges(peer, self.ranges().take(RANGES));
            }
            PeerChange::Remove { key } => {
                peer.put(WGPEER_A_PUBLIC_KEY, key);
                peer.put_u32(WGPEER_A_FLAGS, WGPEER_F_REMOVE_ME);
            }
        });
    }
}

// === impl MessagePart ===

impl MessagePart {
    /// What is not understood is left out.
    pub(super) fn parse(attributes: &[u8]) -> Self {
        let mut part = MessagePart::default();
        for (kind, value) in Attributes(attributes) {
            match kind {
                WGDEVICE_A_IFINDEX => part.device.index = u32_at(value).unwrap_or_default(),
                WGDEVICE_A_PUBLIC_KEY => part.device.key = value.try_into().ok().filter(|key: &Key| *key != [0; 32]),
                WGDEVICE_A_LISTEN_PORT => part.device.port = u16_at(value).unwrap_or_default(),
                WGDEVICE_A_FWMARK => part.device.mark = u32_at(value).unwrap_or_default(),
                WGDEVICE_A_PEERS => part.peers.extend(Attributes(value).filter_map(|(_, peer)| parse_peer(peer))),
                _ => {}
            }
        }
        part
    }
}

fn parse_peer(attributes: &[u8]) -> Option<(Key, Peer)> {
    let (mut key, mut peer) = (None, Peer::default());
    for (kind, value) in Attributes(attributes) {
        match kind {
            WGPEER_A_PUBLIC_KEY => key = value.try_into().ok(),
            WGPEER_A_PRESHARED_KEY => peer.has_preshared = value.iter().any(|byte| *byte != 0),
            WGPEER_A_ENDPOINT => peer.endpoint = parse_socket_address(value),
            WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL => peer.keepalive = u16_at(value).unwrap_or_default(),
            WGPEER_A_LAST_HANDSHAKE_TIME => peer.handshake = parse_time(value),
            WGPEER_A_RX_BYTES => peer.received = u64_at(value).unwrap_or_default(),
            WGPEER_A_TX_BYTES => peer.sent = u64_at(value).unwrap_or_default(),
            WGPEER_A_ALLOWEDIPS => peer.allowed = Attributes(value).filter_map(|(_, range)| parse_range(range)).collect::<BTreeSet<_>>(),
            _ => {}
        }
    }
    Some((key?, peer))
}

fn parse_range(attributes: &[u8]) -> Option<IpNet> {
    let of = |kind: u16| Attributes(attributes).find(|(own, _)| *own == kind).map(|(_, value)| value);
    IpNet::new(ip(of(WGALLOWEDIP_A_IPADDR)?)?, *of(WGALLOWEDIP_A_CIDR_MASK)?.first()?).ok()
}

/// `struct __kernel_timespec`; zeros: never.
fn parse_time(value: &[u8]) -> Option<Duration> {
    let seconds = u64_at(value)?;
    let nanoseconds = value.get(8..).and_then(u64_at).and_then(|nanoseconds| u32::try_from(nanoseconds).ok())?;
    (seconds != 0 || nanoseconds != 0).then(|| Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanoseconds.into())))
}

fn u64_at(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().copied().map(u64::from_ne_bytes)
}

/// `struct sockaddr_in`, `struct sockaddr_in6`.
fn socket_address(address: SocketAddr) -> Vec<u8> {
    let of_family = if address.is_ipv4() { family::INET } else { family::INET6 };
    let mut bytes = u16::from(of_family).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend([0; 4]);
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

fn parse_socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let of_family = u16_at(bytes)?;
    let port = bytes.get(2..)?.first_chunk().copied().map(u16::from_be_bytes)?;
    if of_family == u16::from(family::INET) {
        return Some(SocketAddr::new(ip(bytes.get(4..8)?)?, port));
    }
    let IpAddr::V6(address) = ip(bytes.get(8..24).filter(|_| of_family == u16::from(family::INET6))?)? else { return None };
    let address: Ipv6Addr = address;
    Some(SocketAddrV6::new(address, port, 0, bytes.get(24..).and_then(u32_at)?).into())
}
