//! Doors for the fuzz target, which exist only for it and for tests: whatever a server sends is read to its end, a lease that is
//! kept is read again as it was, and no time is so short that a client would do nothing but renew.

use std::time::Duration;

use cni::AddResult;
use linux::BootId;

use crate::family::Grant;
use crate::lease::Lease;
use crate::{names, v4, v6};

/// What is sure of every lease's times.
fn sane(grant: &impl Grant) {
    let times = grant.times();
    assert!(times.begun < times.renew && times.renew <= times.rebind);
    assert!(times.end.is_none_or(|end| times.rebind <= end && end - times.begun >= Duration::from_secs(4)));
}

/// One packet from its IPv4 header on.
pub fn packet(bytes: &[u8]) {
    let _ = v4::datagram::arp_conflict(bytes, [2; 6], [10, 0, 0, 1].into());
    let _ = v6::neighbour::advertises(bytes, [0xfd; 16].into());
    if let Some((_, payload)) = v4::datagram::parse(bytes) {
        message(payload);
    }
}

/// One message of DHCPv4.
pub fn message(bytes: &[u8]) {
    let Some(ack) = v4::message::parse(bytes) else { return };
    let again = v4::message::parse(&v4::message::print(&ack));
    assert_eq!(again.as_ref(), Some(&ack));
    let grant = v4::client::Grant { ack, station: [2; 6], begun: Duration::from_secs(1) };
    sane(&grant);
    let mut result = AddResult::default();
    if v4::terms::add_to(&mut result, &grant.ack, None).is_ok() {
        assert_eq!(result.ips.len(), 1);
        assert_eq!(v4::client::Grant::from_object(&grant.to_object()), Some(grant));
    }
}

/// One message of DHCPv6.
pub fn message6(bytes: &[u8]) {
    let Some(reply) = v6::message::parse(bytes) else { return };
    assert_eq!(v6::message::parse(&v6::message::print(&reply)).as_ref(), Some(&reply));
    let grant = v6::client::Grant { reply, begun: Duration::from_secs(1) };
    if v6::terms::granted(&grant.reply).is_some() {
        sane(&grant);
        assert_eq!(v6::client::Grant::from_object(&grant.to_object()), Some(grant.clone()));
    }
    v6::terms::add_to(&mut AddResult::default(), &grant.reply);
}

/// A list of names.
pub fn search(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).ok().and_then(names::text);
    let list = dhcproto::Decoder::new(bytes).read_domains(bytes.len()).unwrap_or_default();
    for name in names::list(&list).into_iter().chain(text) {
        assert!(!name.contains(|c: char| c.is_whitespace() || c.is_control()));
    }
}

/// A lease's file.
pub fn file(bytes: &[u8]) {
    let Ok(boot) = "11111111-2222-3333-4444-555555555555".parse::<BootId>() else { return };
    if let Ok(lease) = Lease::parse(bytes, boot) {
        assert_eq!(Lease::parse(lease.print(boot).as_bytes(), boot), Ok(lease));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A lease's file as it stands on a disk.
    const FILE: &str = include_str!("../../../fuzz/seeds/dhcp/file");

    #[test]
    fn the_seed_is_a_lease() {
        let text = FILE.trim_start_matches('f');
        let boot: BootId = "11111111-2222-3333-4444-555555555555".parse().unwrap();
        let lease = Lease::parse(text.as_bytes(), boot).unwrap();
        assert_eq!(lease.result().unwrap().ips.len(), 2);
        for end in 0..text.trim_end().len() {
            assert!(Lease::parse(&text.as_bytes()[..end], boot).is_err(), "half a file: {end}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            packet(&bytes);
            message(&bytes);
            message6(&bytes);
            search(&bytes);
            file(&bytes);
        }

        /// Options after a good beginning.
        #[test]
        fn whatever_options(options in proptest::collection::vec(any::<u8>(), 0..600), kind in 1_u8..10) {
            let mut head = vec![2, 1, 6, 0];
            head.resize(236, 0);
            head.extend([99, 130, 83, 99, 53, 1, kind, 1, 4, 255, 255, 255, 0]);
            message(&[&head[..], &options].concat());
            message6(&[&[kind, 0, 0, 1][..], &options].concat());
            let ia = [&[7, 0, 0, 1, 0, 3, 0, 60, 0, 0, 0, 1][..], &options].concat();
            message6(&ia);
        }
    }
}
