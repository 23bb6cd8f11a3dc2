use super::*;

const OTHER: EtherAddr = [2, 0, 0, 0, 0, 0x77];
const STATION: EtherAddr = [2, 0, 0, 0, 0, 0x99];

fn said(protocol: u16, packet: &[u8]) -> Option<(String, EtherAddr)> {
    AddressClaim::read(protocol, packet, STATION).map(|said| (said.address.to_string(), said.by))
}

fn by(address: &str, by: EtherAddr) -> Option<(String, EtherAddr)> {
    Some((address.to_owned(), by))
}

/// ARP as it is on a wire, without what fills the frame up.
fn arp(operation: u8, sender: &str, target: &str) -> Vec<u8> {
    let octets = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    [&[0, 1, 8, 0, 6, 4, 0, operation][..], &OTHER, &octets(sender), &[0; 6], &octets(target)].concat()
}

/// Neighbour discovery from an address, about one, with these options.
fn neighbour(kind: u8, source: &str, target: &str, options: &[u8]) -> Vec<u8> {
    let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    let length = 24 + u8::try_from(options.len()).unwrap();
    let group = octets("ff02::1:ff00:9");
    [&[0x60, 0, 0, 0, 0, length, 58, 255][..], &octets(source), &group, &[kind, 0, 0, 0, 0, 0, 0, 0], &octets(target), options].concat()
}

fn option(kind: u8, address: EtherAddr) -> Vec<u8> {
    [&[kind, 1][..], &address].concat()
}

#[test]
fn who_asks_answers_or_announces_by_arp_has_its_own_address() {
    for (operation, target) in [(1, "10.9.0.3"), (2, "10.9.0.3"), (1, "10.9.0.2"), (2, "10.9.0.2")] {
        let packet = arp(operation, "10.9.0.2", target);
        assert_eq!(said(ARP, &packet), by("10.9.0.2", OTHER), "{operation} {target}");
        // As frames are filled up.
        assert_eq!(said(ARP, &[packet, vec![0; 18]].concat()), by("10.9.0.2", OTHER));
    }
}

#[test]
fn who_asks_for_an_address_without_one_has_none() {
    assert_eq!(said(ARP, &arp(1, "0.0.0.0", "10.9.0.2")), None);
    let solicitation = neighbour(SOLICITATION, "::", "fd00::9", &[]);
    assert_eq!((solicitation.len(), said(IPV6, &solicitation)), (64, None));
    // With a nonce (RFC 7527).
    assert_eq!(said(IPV6, &neighbour(SOLICITATION, "::", "fd00::9", &[14, 1, 1, 2, 3, 4, 5, 6])), None);
}

#[test]
fn who_solicits_has_its_own_address_and_who_advertises_what_it_tells_of() {
    assert_eq!(said(IPV6, &neighbour(SOLICITATION, "fd00::7", "fd00::9", &option(1, OTHER))), by("fd00::7", OTHER));
    assert_eq!(said(IPV6, &neighbour(ADVERTISEMENT, "fe80::1", "fd00::9", &option(2, OTHER))), by("fd00::9", OTHER));
    // Without its address among the options, and with the other one's: the frame tells.
    assert_eq!(said(IPV6, &neighbour(ADVERTISEMENT, "fd00::9", "fd00::9", &[])), by("fd00::9", STATION));
    assert_eq!(said(IPV6, &neighbour(SOLICITATION, "fd00::7", "fd00::9", &option(2, OTHER))), by("fd00::7", STATION));
    let more = [&[14, 1, 1, 2, 3, 4, 5, 6][..], &option(1, OTHER)].concat();
    assert_eq!(said(IPV6, &neighbour(SOLICITATION, "fd00::7", "fd00::9", &more)), by("fd00::7", OTHER));
}

#[test]
fn what_is_no_such_packet_says_nothing() {
    let (arp, advertisement) = (arp(2, "10.9.0.2", "10.9.0.3"), neighbour(ADVERTISEMENT, "fe80::1", "fd00::9", &option(2, OTHER)));
    for (protocol, whole) in [(ARP, &arp), (IPV6, &advertisement)] {
        (0..whole.len()).for_each(|end| assert_eq!(said(protocol, &whole[..end]), None, "{protocol:x} {end}"));
        // Another protocol, a VLAN in a VLAN too: the kernel has taken off one tag.
        for other in [ARP, IPV6, 0x0800, 0x8100, 0x88a8].into_iter().filter(|other| *other != protocol) {
            assert_eq!(said(other, whole), None, "{other:x}");
        }
        assert_eq!(said(0x8100, &[&[0, 7][..], &protocol.to_be_bytes(), whole].concat()), None);
    }
    let changed = |packet: &[u8], at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        packet
    };
    // Not of Ethernet, not of IPv4, of other lengths, RARP; a group or nobody as the sender.
    for (at, byte) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 3), (8, 3), (14, 224), (14, 127)] {
        assert_eq!(said(ARP, &changed(&arp, at, byte)), None, "{at} {byte}");
    }
    assert_eq!(said(ARP, &[&arp[..8], &[0; 6], &arp[14..]].concat()), None);
    // Not IPv6, a fragment, through a router, a length that is none, a router's advertisement, another code, a group.
    for (at, byte) in [(0, 0x40), (6, 44), (7, 254), (5, 23), (40, 134), (41, 1), (48, 0xff)] {
        assert_eq!(said(IPV6, &changed(&advertisement, at, byte)), None, "{at} {byte}");
    }
    // An option without a length, one that is longer than the packet, a group's address in one.
    for (at, byte) in [(65, 0), (65, 2), (66, 1)] {
        assert_eq!(said(IPV6, &changed(&advertisement, at, byte)), None, "{at} {byte}");
    }
}
