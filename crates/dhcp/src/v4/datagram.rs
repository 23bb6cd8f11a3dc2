//! IPv4 and UDP around a message, and ARP: what a kernel does for who has an address.

use std::net::Ipv4Addr;

use dhcproto::Decoder;
use linux::packet::EtherAddr;

/// The client's port (RFC 2131 4.1).
pub(crate) const CLIENT: u16 = 68;
const SERVER: u16 = 67;
const UDP: u8 = 17;

/// A datagram from the client's port to the server's.
pub(crate) fn print(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let length = |more: usize| u16::try_from(payload.len() + more).unwrap_or(u16::MAX).to_be_bytes();
    let mut udp = Vec::with_capacity(payload.len() + 8);
    udp.extend(CLIENT.to_be_bytes());
    udp.extend(SERVER.to_be_bytes());
    udp.extend(length(8));
    udp.extend([0, 0]);
    udp.extend_from_slice(payload);
    let [high, low] = length(8);
    let pseudo = [from.octets(), to.octets(), [0, UDP, high, low]].concat();
    let sum = match checksum(&[&pseudo, &udp]) {
        // 0 would mean that there is none.
        0 => 0xffff,
        sum => sum,
    };
    set(&mut udp, 6, sum);

    let mut packet = vec![0x45, 0x10];
    packet.extend(length(28));
    packet.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = checksum(&[&packet]);
    set(&mut packet, 10, sum);
    packet.extend(udp);
    packet
}

/// Who sent a datagram to the client's port, and what is in it.
///
/// UDP's checksum is not looked at: what comes from the same machine over a veth has none yet, as the kernel leaves it to the
/// network card that it never meets.
pub(crate) fn parse(packet: &[u8]) -> Option<(Ipv4Addr, &[u8])> {
    let mut b = Decoder::new(packet);
    let first = b.read_u8().ok()?;
    let header = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || header < 20 {
        return None;
    }
    b.read_u8().ok()?;
    let total = usize::from(b.read_u16().ok()?);
    b.read_slice(5).ok()?;
    if b.read_u8().ok()? != UDP {
        return None;
    }
    b.read_slice(2).ok()?;
    let from: Ipv4Addr = b.read::<4>().ok()?.into();
    // What Ethernet padded is not its own.
    let mut udp = Decoder::new(packet.get(..total)?.get(header..)?);
    udp.read_slice(2).ok()?;
    if udp.read_u16().ok()? != CLIENT {
        return None;
    }
    let length = usize::from(udp.read_u16().ok()?);
    udp.read_slice(2).ok()?;
    let payload = udp.read_slice(length.checked_sub(8)?).ok()?;
    Some((from, payload))
}

/// The Internet checksum of the parts one after the other (RFC 1071); all but the last have an even length.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2)).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum = words.fold(0_u64, |sum, word| sum + u64::from(word));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// Writes a number at a place that there is.
pub(crate) fn set(bytes: &mut [u8], at: usize, number: u16) {
    bytes.iter_mut().skip(at).zip(number.to_be_bytes()).for_each(|(to, from)| *to = from);
}

/// An ARP probe: who has this address? Asked without one (RFC 5227 2.1.1).
pub(crate) fn arp_probe(own: EtherAddr, address: Ipv4Addr) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    [&head[..], &own, &[0; 4], &[0; 6], &address.octets()].concat()
}

/// Whose packet says that the address is taken: who answers for it, or probes for it as well (RFC 5227 2.1.1).
pub(crate) fn arp_conflict(packet: &[u8], own: EtherAddr, address: Ipv4Addr) -> Option<EtherAddr> {
    let mut b = Decoder::new(packet);
    if b.read::<6>().ok()? != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let request = b.read_u16().ok()? == 1;
    let (sender, sender_ip): (EtherAddr, Ipv4Addr) = (b.read().ok()?, b.read::<4>().ok()?.into());
    b.read_slice(6).ok()?;
    let target: Ipv4Addr = b.read::<4>().ok()?.into();
    let probes_too = request && sender_ip.is_unspecified() && target == address;
    (sender != own && (sender_ip == address || probes_too)).then_some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_has_right_checksums() {
        let (from, to) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
        let packet = print(from, to, b"odd");
        assert_eq!(checksum(&[&packet[..20]]), 0);
        let pseudo = [from.octets(), to.octets(), [0, 17, 0, 11]].concat();
        assert_eq!(checksum(&[&pseudo, &packet[20..]]), 0);
        // As a server sends it.
        let mut answer = packet;
        answer[22..24].copy_from_slice(&CLIENT.to_be_bytes());
        answer.extend([0; 20]);
        assert_eq!(parse(&answer), Some((from, &b"odd"[..])));
        for end in 0..31 {
            assert_eq!(parse(&answer[..end]), None, "{end}");
        }
    }

    #[test]
    fn conflicts() {
        let (own, other, address) = ([2; 6], [4; 6], Ipv4Addr::new(10, 0, 0, 9));
        let probe = arp_probe(other, address);
        assert_eq!(arp_conflict(&probe, own, address), Some(other), "two probe at once");
        assert_eq!(arp_conflict(&probe, other, address), None, "our own");
        let answer = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &other, &address.octets(), &own, &[0; 4]].concat();
        assert_eq!(arp_conflict(&answer, own, address), Some(other));
        assert_eq!(arp_conflict(&answer, own, Ipv4Addr::new(10, 0, 0, 8)), None);
    }
}
