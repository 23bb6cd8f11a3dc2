//! Duplicate address detection for an address that is not on the interface yet (RFC 4862 5.4): the kernel's own takes a second.

use std::net::Ipv6Addr;

use dhcproto::Decoder;
use linux::packet::EtherAddr;

use crate::v4::datagram::{checksum, set};

const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// Who has this address? Asked by nobody, of those whose address ends like it.
pub(crate) fn solicitation(address: Ipv6Addr) -> (EtherAddr, Vec<u8>) {
    let [.., x, y, z] = address.octets();
    let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, x, y, z]);
    let mut icmp = [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..], &address.octets()].concat();
    let length = [0, 24];
    let pseudo = [&[0; 16][..], &group.octets(), &[0, 0], &length, &[0, 0, 0, ICMPV6]].concat();
    let sum = checksum(&[&pseudo, &icmp]);
    set(&mut icmp, 2, sum);
    let packet = [&[0x60, 0, 0, 0][..], &length, &[ICMPV6, 255], &[0; 16], &group.octets(), &icmp].concat();
    ([0x33, 0x33, 0xff, x, y, z], packet)
}

/// Whether a packet says that somebody has the address.
pub(crate) fn advertises(packet: &[u8], address: Ipv6Addr) -> bool {
    let target = || {
        let mut b = Decoder::new(packet);
        let [.., next, _] = b.read::<8>().ok()?;
        b.read_slice(32).ok()?;
        let kind = b.read_u8().ok()?;
        b.read_slice(7).ok()?;
        let of: Ipv6Addr = b.read::<16>().ok()?.into();
        (next == ICMPV6 && kind == ADVERTISEMENT).then_some(of)
    };
    target() == Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_and_answer() {
        let address: Ipv6Addr = "fd00::12:3456".parse().unwrap();
        let (station, mut packet) = solicitation(address);
        assert_eq!((station, packet.len()), ([0x33, 0x33, 0xff, 0x12, 0x34, 0x56], 64));
        let pseudo = [&packet[8..40], &[0, 0, 0, 24, 0, 0, 0, 58]].concat();
        assert_eq!(checksum(&[&pseudo, &packet[40..]]), 0);
        assert!(!advertises(&packet, address), "a question");
        packet[40] = ADVERTISEMENT;
        assert!(advertises(&packet, address));
        assert!(!advertises(&packet, "fd00::1".parse().unwrap()));
        assert!(!advertises(&packet[..63], address));
    }
}
