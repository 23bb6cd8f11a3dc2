//! What is said to be done about a fault suits it.

use linux::nft::ListedTable;

use super::scene::{Mode, address, ip, link, local, network, of, route};
use super::{A, B, check, dropping, masquerading, to_b};
use crate::snapshot::Snapshot;
use crate::{Check, Expected, ExpectedSource, Fault, Finding, Observation, explain};

fn finding(mode: Mode, check: &Check, observation: &Observation, change: impl Fn(&mut Snapshot)) -> Finding {
    let mut snapshot = network(mode);
    change(&mut snapshot);
    explain(&snapshot, check, observation)
}

fn seen_as(source: &str) -> Observation {
    Observation::Answered { by: B.to_owned(), seen: ip(source), took: std::time::Duration::ZERO }
}

/// Netloom restores its own rules, and its own are no firewall.
#[test]
fn rules_of_netloom_are_restored() {
    let own = |table: ListedTable| ListedTable { name: "netloom".to_owned(), family: "inet".to_owned(), ..table };
    let blocked = finding(Mode::Vxlan, &to_b(), &Observation::Silent, |s| of(s, "node/b").tables.push(own(dropping("inet", 1))));
    assert_eq!((blocked.fault, blocked.at()), (Fault::OwnRuleDrops, "node/b eth0".to_owned()), "{blocked}");
    assert!(blocked.next_step.starts_with("restore Netloom's rules: netloom repair"), "{blocked:?}");
    let rewritten = finding(Mode::Direct, &to_b(), &seen_as("172.30.0.1"), |s| of(s, "node/a").tables.push(own(masquerading())));
    assert_eq!((rewritten.fault, rewritten.next_step.as_str()), (Fault::MasqueradeTooWide, "restore Netloom's rules: netloom repair"));
}

#[test]
fn the_mtu_is_a_number() {
    let longer = Check { size: Some(1401), expected: Expected::TooLong, ..to_b() };
    let finding = finding(Mode::Direct, &longer, &Observation::Silent, |_| {});
    assert_eq!((finding.fault, finding.next_step.as_str()), (Fault::MtuDiffers, "set it back: ip link set eth0 mtu 1400"));
}

/// It was said to set the loose mode, which was set.
#[test]
fn no_mode_of_the_reverse_path_filter_takes_packets_from_the_host_itself() {
    let itself = |s: &mut Snapshot| {
        link(s, "node/b", 2).rp_filter = 2;
        of(s, "node/b").routes.push(local("10.244.0.2", 3));
        link(s, "node/b", 3).addresses.push(address("10.244.0.2/32"));
    };
    let finding = finding(Mode::Direct, &to_b(), &Observation::Silent, itself);
    assert_eq!(finding.fault, Fault::ReversePathFilter, "{finding}");
    assert_eq!(finding.next_step, "find who else sends from 10.244.0.2, or how the packet came back: ip route get 10.244.0.2");
}

/// A pod that sends from a second address was said to lack masquerade.
#[test]
fn a_pod_that_sends_from_another_of_its_addresses() {
    let second = |s: &mut Snapshot| link(s, A, 2).addresses.push(address("10.244.0.77/24"));
    let seen = finding(Mode::Direct, &to_b(), &seen_as("10.244.0.77"), second);
    assert_eq!((seen.fault, seen.at()), (Fault::WrongSource, "pod/default/a eth0".to_owned()), "{seen}");
    let by_route = |s: &mut Snapshot| {
        second(s);
        let pod = of(s, A);
        pod.routes.retain(|route| route.to.prefix_len() != 0);
        pod.routes.push(crate::Route { source: Some(ip("10.244.0.77")), ..route("0.0.0.0/0", Some("10.244.0.1"), 2) });
    };
    let silent = finding(Mode::Direct, &to_b(), &Observation::Silent, by_route);
    assert_eq!(silent.fault, Fault::WrongSource, "{silent}");
    // No route leads back to an address of another link, whoever may be seen.
    let elsewhere = |s: &mut Snapshot| {
        let lo = crate::Link { index: 1, name: "lo".to_owned(), other: None, ..link(s, A, 2).clone() };
        of(s, A).links.push(crate::Link { addresses: vec![address("192.168.77.2/24")], ..lo });
        of(s, A).routes.retain(|route| route.to.prefix_len() != 0);
        of(s, A).routes.push(crate::Route { source: Some(ip("192.168.77.2")), ..route("0.0.0.0/0", Some("10.244.0.1"), 2) });
    };
    let anyhow = Check { expected: Expected::Answer(ExpectedSource::Anyhow), ..to_b() };
    let lost = finding(Mode::Direct, &anyhow, &Observation::Silent, elsewhere);
    assert_eq!((lost.fault, lost.at()), (Fault::WrongSource, "pod/default/a lo".to_owned()), "{lost}");
    // Where the node must have rewritten it, the node has not.
    let expected = Expected::Answer(ExpectedSource::As(vec![ip("172.30.0.1")]));
    let to_node = Check { expected, ..check("node/b", "172.30.0.2") };
    let by = Observation::Answered { by: "node/b".to_owned(), seen: ip("10.244.0.2"), took: std::time::Duration::ZERO };
    assert_eq!(finding(Mode::Vxlan, &to_node, &by, |_| {}).fault, Fault::MasqueradeMissing);
    // Each host has 127.0.0.1, and nobody is seen as that.
    let sources = ["127.0.0.1", "172.30.0.1"].map(ip).to_vec();
    let to_node = Check { expected: Expected::Answer(ExpectedSource::As(sources)), ..to_node };
    let loopback = |s: &mut Snapshot| link(s, A, 2).addresses.push(address("127.0.0.1/8"));
    assert_eq!(finding(Mode::Vxlan, &to_node, &by, loopback).fault, Fault::MasqueradeMissing);
}

/// A pod that lost its address sends from that of another network: it was said to lack masquerade.
#[test]
fn a_pod_without_the_address_by_which_it_is_known() {
    let lost = |s: &mut Snapshot| {
        link(s, A, 2).addresses = vec![address("192.168.9.2/24")];
        of(s, A).routes.retain(|route| route.table != 255);
        of(s, A).routes.push(local("192.168.9.2", 2));
        of(s, "node/b").routes.push(route("192.168.9.0/24", Some("172.30.0.1"), 2));
        of(s, "node/a").routes.push(route("192.168.9.0/24", None, 3));
    };
    let seen = finding(Mode::Direct, &to_b(), &seen_as("192.168.9.2"), lost);
    assert_eq!((seen.fault, seen.at()), (Fault::AddressMissing, A.to_owned()), "{seen}");
}

/// No packet is too long for a way that is not there.
#[test]
fn a_long_packet_without_a_way() {
    let longer = Check { size: Some(1401), expected: Expected::TooLong, ..to_b() };
    let finding = finding(Mode::Direct, &longer, &Observation::Silent, |s| of(s, A).routes.clear());
    assert_eq!(finding.fault, Fault::NoDefaultRoute, "{finding}");
}

/// A host answers for its addresses by any of its links, unless `arp_ignore` is set, and what the sender knows of it shows that.
#[test]
fn a_host_that_answered_by_another_link() {
    let moved = |s: &mut Snapshot, is_known: bool| {
        let other = link(s, "node/b", 2).clone();
        link(s, "node/b", 2).addresses.clear();
        let lo = crate::Link { index: 77, name: "dummy0".to_owned(), kind: "dummy".to_owned(), other: None, mac: None, ..other };
        of(s, "node/b").links.push(lo);
        if is_known {
            let mac = link(s, "node/b", 2).mac.clone();
            link(s, "node/a", 2).neighbours.push(crate::Neighbour { address: ip("172.30.0.2"), mac, permanent: false });
        }
    };
    let found = |is_known| finding(Mode::Direct, &to_b(), &Observation::Silent, |s| moved(s, is_known)).fault;
    assert_eq!((found(true), found(false)), (Fault::Unexplained, Fault::WrongNetwork));
}
