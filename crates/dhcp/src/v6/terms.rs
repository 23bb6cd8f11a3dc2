//! What a server granted, read from its Reply.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use cni::{AddResult, AttachmentId, IpConfig};
use dhcproto::v6::{DhcpOption, DhcpOptions, IAAddr, IANA, Message, OptionCode};
use ipnet::IpNet;

use super::message::association;
use crate::names;
use crate::times::Times;
use crate::v4::message::said;
use crate::v4::terms::{add_new, seconds};

/// The number of the one association that a client has.
pub(crate) const IAID: u32 = 1;

/// Who the client is: the same as long as the attachment is, whatever its hardware address (DUID-UUID, RFC 6355). The UUID is a
/// name's hash (version 8, RFC 9562); it has to differ between clients, not to be hard to guess.
pub(crate) fn duid(id: &AttachmentId) -> Vec<u8> {
    let text = format!("{}/{}/{}", id.container, id.network, id.ifname);
    // FNV-1a of 128 bits.
    let hash = text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    let uuid = hash & !(0xf << 76) & !(0x3 << 62) | 0x8 << 76 | 0x2 << 62;
    [&[0, 4][..], &uuid.to_be_bytes()].concat()
}

/// The address that is granted, unless its life is over; `None` for a Reply that grants none.
pub(crate) fn granted(reply: &Message) -> Option<&IAAddr> {
    let usable = |a: &Ipv6Addr| !a.is_unspecified() && !a.is_multicast() && !a.is_loopback() && !a.is_unicast_link_local();
    association(reply, IAID)?.opts.iter().find_map(|option| match option {
        DhcpOption::IAAddr(a) if a.valid_life > 0 && usable(&a.addr) => Some(a),
        _ => None,
    })
}

/// As a client asks for an address: times are the server's to say.
pub(crate) fn wanted(address: Option<Ipv6Addr>) -> DhcpOption {
    let one = |addr| DhcpOption::IAAddr(IAAddr { addr, preferred_life: 0, valid_life: 0, opts: DhcpOptions::new() });
    DhcpOption::IANA(IANA { id: IAID, t1: 0, t2: 0, opts: address.map(one).into_iter().collect() })
}

/// When it is to be renewed; it was asked for at `begun`.
pub(crate) fn times(reply: &Message, begun: Duration) -> Times {
    let length = granted(reply).map_or(Some(Duration::ZERO), |a| seconds(a.valid_life));
    // 0: the server leaves them to the client.
    let said = |s: u32| seconds(s).filter(|s| !s.is_zero());
    let (t1, t2) = association(reply, IAID).map_or((None, None), |ia| (said(ia.t1), said(ia.t2)));
    Times::new(begun, length, t1, t2)
}

/// Adds address and name servers to a result. The network's prefix and its routers are told by router advertisements.
pub(crate) fn add_to(result: &mut AddResult, reply: &Message) {
    if let Some(granted) = granted(reply) {
        let address = IpNet::from(IpAddr::V6(granted.addr));
        result.ips.push(IpConfig { interface: None, address, gateway: None });
    }
    result.dns.nameservers.extend(said!(reply, DomainNameServers).into_iter().flatten().map(ToString::to_string));
    add_new(&mut result.dns.search, said!(reply, DomainSearchList).map(|names| names::list(names)).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers() {
        let id = |container: &str| AttachmentId {
            network: "net".parse().unwrap(),
            container: container.parse().unwrap(),
            ifname: "eth0".parse().unwrap(),
        };
        let one = duid(&id("c1"));
        assert_eq!(one, duid(&id("c1")));
        assert_ne!(one, duid(&id("c2")));
        assert_eq!((one.len(), one[8] >> 4, one[10] >> 6), (18, 8, 2), "a UUID of version 8");
    }
}
