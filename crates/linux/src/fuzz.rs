//! Doors for the fuzz targets, which exist only where `cfg(fuzzing)` is set: whatever stands in a datagram, it is read
//! to its end, and what is understood can be sent.

use crate::batch::{Reply, Request};
use crate::netlink::{parse, refusal};
use crate::packet::AddressClaim;
use crate::uapi::netlink::NLMSG_ERROR;
use crate::wire::Messages;
use crate::{FdbEntry, Neighbour, Notice, Object, addr, fdb, monitor, neigh, route, rule};

/// One datagram of rtnetlink's.
pub fn rtnetlink(bytes: &[u8]) {
    for message in Messages(bytes) {
        if message.kind == NLMSG_ERROR {
            let _ = refusal(&message);
        }
        match monitor::read(&message) {
            Some(Notice::Present(Object::Neighbour(Neighbour { index, address, mac: Some(mac), .. }))) => {
                well_formed(&neigh::replace(index, address, &mac));
                well_formed(&neigh::delete(index, address));
            }
            Some(Notice::Present(Object::Fdb(FdbEntry { index, mac, endpoint: Some(endpoint), .. }))) => {
                well_formed(&fdb::replace(index, &mac, endpoint));
                well_formed(&fdb::delete(index, &mac));
            }
            _ => {}
        }
        match parse(&message) {
            Some(Reply::Link(link)) => assert!(link.index != 0 && !link.name.is_empty()),
            Some(Reply::Address(address)) => well_formed(&addr::add(address.index, address.net, address.flags)),
            Some(Reply::Route(route)) => {
                well_formed(&route::add(&route));
                well_formed(&route::replace(&route));
                well_formed(&route::delete_of_proto(&route));
            }
            Some(Reply::Rule(rule)) => {
                well_formed(&rule::add(&rule));
                well_formed(&rule::delete(&rule));
            }
            _ => {}
        }
    }
}

/// One datagram of nf_tables'.
pub fn nftables(bytes: &[u8]) {
    crate::nft::fuzz::read(bytes);
}

/// One datagram of connection tracking's.
pub fn tracked(bytes: &[u8]) {
    crate::nft::fuzz::read_tracked(bytes);
}

/// One packet of ARP's or neighbour discovery's, behind two bytes that say whose.
pub fn speech(bytes: &[u8]) {
    let Some((protocol, packet)) = bytes.split_first_chunk() else { return };
    if let Some(AddressClaim { address, by }) = AddressClaim::read(u16::from_be_bytes(*protocol), packet, [2; 6]) {
        assert!(by[0] & 1 == 0 && by != [0; 6] && !address.is_unspecified() && !address.is_multicast());
    }
}

fn well_formed(request: &Request<'_>) {
    assert!(!request.what().is_empty());
    assert_eq!(Messages(&request.message).count(), 1, "{}", request.what());
}
