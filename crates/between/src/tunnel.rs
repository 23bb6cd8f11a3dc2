//! What a tunnel needs that no table of the API server holds: a MAC for its end, and room for its header.

use std::fmt;
use std::net::Ipv6Addr;

use sha2::{Digest, Sha256};

use crate::{Family, Tunnel};

/// The Ethernet address of a VTEP, which is a node's end of the vxlan network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

/// The MAC of a node's VTEP: the first 46 bits of a SHA-256 of the Node's UID, locally administered and unicast.
///
/// flannel writes the device's MAC into an annotation, so that a replaced node is reached only after its peers have read the new one. Here
/// every node computes it. A Node that was created again has another UID, so an entry for the old one never leads to the new one.
/// Two of 5,000 nodes have the same MAC once in five million clusters: [`Problem::SameMac`](crate::Problem::SameMac).
///
/// The two low bits of the first byte are those of IEEE 802: 1 is a group's address, 2 an address that no manufacturer has assigned. The
/// kernel refuses a device whose address is a group's (`is_valid_ether_addr`, include/linux/etherdevice.h).
#[must_use]
pub fn vtep_mac(uid: &str) -> Mac {
    // Another text for another use of the UID: the two hashes have nothing to do with each other.
    let hash = Sha256::new_with_prefix("netloom vtep ").chain_update(uid).finalize();
    let mut mac = [0; 6];
    mac.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    let [first, ..] = &mut mac;
    *first = (*first & 0xfc) | 0x02;
    Mac(mac)
}

/// The link-local address that belongs to an Ethernet address (RFC 4291 appendix A).
pub(crate) fn link_local(Mac([a, b, c, d, e, f]): Mac) -> Ipv6Addr {
    let [one, two, three, four] = [[a ^ 2, b], [c, 0xff], [0xfe, d], [e, f]].map(u16::from_be_bytes);
    Ipv6Addr::new(0xfe80, 0, 0, 0, one, two, three, four)
}

/// How many bytes of an uplink's MTU a tunnel takes from each packet, by the family of the endpoints.
///
/// - vxlan: 50 over IPv4 and 70 over IPv6. Those are the outer IP header (20 or 40), UDP (8), VXLAN (8, RFC 7348 section 5) and the inner
///   Ethernet header (14): `vxlan_headroom` in include/net/vxlan.h. The outer Ethernet header is no part of an MTU. flannel takes 50 from
///   both, which breaks over IPv6.
/// - WireGuard: 60 and 80. Those are the outer IP header (20 or 40), UDP (8), and the data message's header (16) and authentication tag
///   (16): `MESSAGE_MINIMUM_LENGTH` in drivers/net/wireguard/messages.h. The padding to 16 bytes does not exceed the device's MTU
///   (`calculate_skb_padding`, drivers/net/wireguard/send.c).
#[must_use]
pub fn header(tunnel: Tunnel, over: Family) -> u32 {
    let ip = if over == Family::V4 { 20 } else { 40 };
    let udp = 8;
    ip + udp
        + match tunnel {
            Tunnel::Vxlan => 8 + 14,
            Tunnel::WireGuard => 16 + 16,
        }
}

// === impl Mac ===

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mac([a, b, c, d, e, g]) = self;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
