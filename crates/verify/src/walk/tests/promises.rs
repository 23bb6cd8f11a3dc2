//! What a network promises: isolation that is not mere silence, and an MTU that is not the link's of the moment.

use super::scene::{Mode, address, link, local, mac, network, of, route};
use super::{A, A2, B, BOTH, check, to_a2};
use crate::case::{Quality, Target};
use crate::plan::{Check, Expected, ExpectedSource, Planned, plan};
use crate::snapshot::{End, Snapshot};
use crate::{Attachment, CASES, Fault, Observation, Protocol, Publication, Reach, Site, SiteNode, SitePod, explain, explain_silence};

fn apart() -> Check {
    let case = CASES.iter().find(|case| case.to == Target::Network(Quality::Isolation)).unwrap();
    Check { case, expected: Expected::Silence, ..to_a2() }
}

fn isolated(mode: Mode) -> Snapshot {
    let mut snapshot = network(mode);
    [4, 5].into_iter().for_each(|index| link(&mut snapshot, "node/a", index).port.as_mut().unwrap().isolated = true);
    snapshot
}

#[test]
fn silence_is_isolation_only_where_something_keeps_them_apart() {
    for mode in BOTH {
        assert_eq!(explain_silence(&isolated(*mode), &apart()), None);
        let open = explain_silence(&network(*mode), &apart()).unwrap();
        assert_eq!(open.fault, Fault::NotIsolated);
        let mut broken = isolated(*mode);
        link(&mut broken, "node/a", 5).up = false;
        let finding = explain_silence(&broken, &apart()).unwrap();
        assert_eq!((finding.fault, finding.at()), (Fault::LinkDown, "node/a vetha2".to_owned()));
    }
    let proofs = apart().proofs();
    assert_eq!((proofs.len(), proofs[0].from.to_string(), proofs[0].address), (1, A2.to_owned(), apart().address));
    assert!(to_a2().proofs().is_empty());
}

/// Macvlans of two pods on one link of their node.
fn macvlans(change: impl Fn(&mut crate::Link)) -> Snapshot {
    let mut snapshot = network(Mode::Direct);
    for (place, last) in [(A, 0x61), (A2, 0x62)] {
        let eth0 = link(&mut snapshot, place, 2);
        (eth0.kind, eth0.mac) = ("macvlan".to_owned(), Some(mac(last)));
        eth0.other = Some(End { place: "node/a".parse().unwrap(), index: 2 });
        change(eth0);
    }
    of(&mut snapshot, "node/a").links.retain(|link| ![4, 5].contains(&link.index));
    snapshot
}

#[test]
fn macvlans_are_kept_apart_by_their_mode() {
    let silent = |snapshot: &Snapshot| explain(snapshot, &to_a2(), &Observation::Silent).fault;
    assert_eq!(silent(&macvlans(|_| {})), Fault::Unexplained);
    assert_eq!(silent(&macvlans(|link| link.private = true)), Fault::PortsIsolated);
    assert_eq!(silent(&macvlans(|link| link.vepa = true)), Fault::PortsIsolated);
    assert_eq!(explain_silence(&macvlans(|link| link.private = true), &apart()), None);
    // A macvlan is no port of a bridge, and one of the two in this mode is enough.
    let mut one = macvlans(|_| {});
    link(&mut one, A, 2).private = true;
    let finding = explain(&one, &to_a2(), &Observation::Silent);
    assert_eq!((finding.fault, finding.at()), (Fault::PortsIsolated, "pod/default/a eth0".to_owned()));
    assert!(finding.evidence.ends_with("in mode private: pod/default/a eth0"), "{finding}");
    assert!(finding.next_step.starts_with("set the mode bridge"), "{finding:?}");
}

/// Vlans have the hardware addresses of the links that they stand on: of two pods of two nodes, neither is a duplicate.
#[test]
fn vlans_share_the_address_of_their_link() {
    let mut snapshot = network(Mode::Direct);
    for (place, node, last) in [(A, "node/a", 1), (B, "node/b", 2)] {
        let below = link(&mut snapshot, node, 2).mac.clone();
        of(&mut snapshot, place).routes = vec![route("10.30.0.0/24", None, 2), local(&format!("10.30.0.{last}"), 2)];
        let eth0 = link(&mut snapshot, place, 2);
        (eth0.kind, eth0.mac, eth0.vlan) = ("vlan".to_owned(), below, Some(30));
        eth0.other = Some(End { place: node.parse().unwrap(), index: 2 });
        eth0.addresses = vec![address(&format!("10.30.0.{last}/24"))];
    }
    let case = CASES.iter().find(|case| case.id == "network-2").unwrap();
    let expected = Expected::Answer(ExpectedSource::As(vec![[10, 30, 0, 1].into()]));
    let asked = Check { case, network: Some("far".to_owned()), expected, ..check(B, "10.30.0.2") };
    let finding = explain(&snapshot, &asked, &Observation::Silent);
    assert_eq!(finding.fault, Fault::Unexplained, "{finding}");
}

#[test]
fn a_link_that_takes_longer_packets_than_the_network() {
    let sent = Check { expected: Expected::TooLong, size: Some(1451), ..to_a2() };
    let finding = explain(&network(Mode::Direct), &sent, &Observation::Silent);
    assert_eq!((finding.fault, finding.at()), (Fault::MtuDiffers, format!("{A} eth0")));
    assert_eq!(finding.evidence, "its MTU is 1500; the network was made for 1450");
}

fn site(at: Option<&str>, reach: Reach) -> Site {
    let pod = |name: &str, node: &str, last: u8| SitePod {
        name: format!("default/{name}"),
        node: node.to_owned(),
        attachments: vec![Attachment {
            network: "netloom".to_owned(),
            is_default: true,
            addresses: vec![[10, 244, 0, last].into()],
            mtu: Some(1450),
            reach,
            zone: None,
        }],
        ports: Vec::new(),
    };
    let publication = Publication { protocol: Protocol::Tcp, at: at.map(|at| at.parse().unwrap()), host_port: 8080, pod_port: 80 };
    let node = |name: &str, last: u8| SiteNode {
        name: name.to_owned(),
        addresses: vec![[172, 30, 0, last].into()],
        sources: vec![[172, 30, 0, last].into()],
        tunnels: Vec::new(),
    };
    let publishes = SitePod { ports: vec![publication], ..pod("a", "left", 2) };
    Site {
        nodes: vec![node("left", 1), node("right", 2)],
        pods: vec![publishes, pod("a2", "left", 3), pod("b", "right", 4)],
        ..Site::default()
    }
}

fn checks(site: &Site, id: &str) -> Vec<String> {
    let of_case = plan(site).into_iter().filter(|planned| planned.case().id == id);
    let check = |planned| match planned {
        Planned::Check(check) => Some(format!("{} > {} {}:{}", check.from, check.whom(), check.address, check.port)),
        Planned::Skipped { .. } => None,
    };
    of_case.filter_map(check).collect()
}

/// A port that is published at 0.0.0.0 is one of the node's addresses.
#[test]
fn a_port_that_is_published_at_every_address() {
    for at in [None, Some("0.0.0.0"), Some("172.30.0.1")] {
        assert_eq!(checks(&site(at, Reach::Everywhere), "13"), ["node/right > pod/default/a 172.30.0.1:8080"], "{at:?}");
    }
    assert!(checks(&site(Some("127.0.0.1"), Reach::Everywhere), "13").is_empty());
}

/// A published port over a protocol for which the kernel has no sockets: the case says so, once, and the other ports are tried.
#[test]
fn a_port_over_a_protocol_that_the_kernel_lacks() {
    let mut site = site(None, Reach::Everywhere);
    let over_sctp = |port| Publication { protocol: Protocol::Sctp, at: None, host_port: port, pod_port: 80 };
    site.pods[0].ports.extend([over_sctp(9000), over_sctp(9001)]);
    assert_eq!(checks(&site, "13").len(), 3);
    site.unsupported = vec![Protocol::Sctp];
    assert_eq!(checks(&site, "13"), ["node/right > pod/default/a 172.30.0.1:8080"]);
    let why = |site: &Site| {
        let of_case = plan(site).into_iter().filter(|planned| planned.case().id == "13");
        let reason = |planned| if let Planned::Skipped { is_ipv4, why, .. } = planned { Some((is_ipv4, why)) } else { None };
        of_case.filter_map(reason).collect::<Vec<_>>()
    };
    let lacks = [(Some(true), "published ports over SCTP: this kernel has no such sockets".to_owned())];
    assert_eq!(why(&site), lacks);
    site.pods[0].ports.remove(0);
    assert_eq!((checks(&site, "13").len(), why(&site)), (0, lacks.to_vec()), "nothing else is to blame");
}

#[test]
fn whom_a_network_reaches() {
    assert!(CASES.iter().any(|case| case.id == "network-3"));
    let pairs = |reach| checks(&site(None, reach), "network-3").len();
    assert_eq!([Reach::Everywhere, Reach::SameNode, Reach::OtherNode, Reach::Unknown].map(pairs), [3, 1, 2, 0]);
    let mut gone = site(None, Reach::Everywhere);
    gone.pods[0].attachments[0].mtu = None;
    assert_eq!(checks(&gone, "network-3").len(), 2, "no MTU is known of one pod, which is asked all the same");
    assert_eq!(checks(&gone, "1").len(), 4);
    // Nodes of two zones: each zone has a link of its own.
    for (reach, expected) in [(Reach::Everywhere, 1), (Reach::SameNode, 1), (Reach::OtherNode, 0)] {
        let mut zones = site(None, reach);
        for pod in &mut zones.pods {
            pod.attachments[0].zone = Some(pod.node.clone());
        }
        assert_eq!(checks(&zones, "network-3").len(), expected, "{reach:?}");
    }
}
