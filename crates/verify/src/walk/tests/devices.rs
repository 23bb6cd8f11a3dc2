//! What devices do with frames: rules of the family `netdev`, traffic control, what a bridge's port is set to, ARP.

use linux::nft::{ListedBase, ListedTable, Op};

use super::scene::{Mode, ip, link, mac, network, of};
use super::{A, B, BOTH, REPLY, REQUEST, broken, dropping, to_a2, to_b};
use crate::snapshot::{BridgePort, FdbEntry, Neighbour, QueueDiscipline, Snapshot};
use crate::{Fault, Observation, explain};

/// Rules of links that drop everything.
fn of_links(family: &str, hook: u32, devices: &[&str]) -> ListedTable {
    let mut table = dropping(family, hook);
    let base = ListedBase { devices: devices.iter().map(|device| (*device).to_owned()).collect(), ..table.chains[0].base.clone().unwrap() };
    table.chains[0].base = Some(base);
    table
}

#[test]
fn rules_of_a_link_see_what_passes_it_in_their_direction() {
    let rules = |place: &'static str, family: &'static str, hook, device: &'static str| {
        move |s: &mut Snapshot| of(s, place).tables.push(of_links(family, hook, &["other", device]))
    };
    broken(&[Mode::Direct], &to_b(), rules("node/b", "netdev", 0, "eth0"), Fault::ForeignRuleDrops, "node/b eth0", REQUEST);
    broken(&[Mode::Vxlan], &to_b(), rules("node/b", "netdev", 0, "eth0"), Fault::TunnelBlocked, "node/b eth0", REQUEST);
    // What leaves by it, here the answer.
    broken(&[Mode::Direct], &to_b(), rules("node/b", "netdev", 1, "eth*"), Fault::ForeignRuleDrops, "node/b eth0", REPLY);
    // A pod's end and the node's end of a pair, and the bridge itself.
    broken(BOTH, &to_b(), rules("node/a", "netdev", 0, "vetha"), Fault::ForeignRuleDrops, "node/a vetha", REQUEST);
    broken(BOTH, &to_b(), rules("node/a", "inet", 5, "netloom0"), Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
    broken(BOTH, &to_b(), rules(B, "netdev", 0, "eth0"), Fault::ForeignRuleDrops, "pod/default/b eth0", REQUEST);
    // Two pods of one bridge do not pass the bridge's own device, nor its address.
    let bridge = rules("node/a", "netdev", 0, "netloom0");
    broken(BOTH, &to_a2(), bridge, Fault::Unexplained, A, REQUEST);
    // Another link's.
    broken(BOTH, &to_b(), rules("node/b", "netdev", 0, "eth1"), Fault::Unexplained, A, REQUEST);
    // The router's own hook is of no link.
    broken(&[Mode::Direct], &to_b(), rules("node/b", "inet", 0, "eth1"), Fault::ForeignRuleDrops, "node/b eth0", REQUEST);
}

/// What traffic control has dropped before says little; what it drops while the probe is repeated says it all.
#[test]
fn traffic_control_is_named_where_it_counts() {
    let shaped = |kind: &'static str, grown| {
        move |s: &mut Snapshot| {
            link(s, "node/a", 4).qdiscs.push(QueueDiscipline { kind: kind.to_owned(), dropped: 7, grown });
        }
    };
    broken(BOTH, &to_b(), shaped("clsact", Some(2)), Fault::TrafficControlDrops, "node/a vetha", REQUEST);
    broken(BOTH, &to_b(), shaped("clsact", Some(0)), Fault::NotObserved, "node/a vetha", REQUEST);
    broken(BOTH, &to_b(), shaped("ingress", Some(2)), Fault::TrafficControlDrops, "node/a vetha", REQUEST);
    // A shaper sees what leaves by the link, to the pod.
    broken(BOTH, &to_b(), shaped("tbf", Some(2)), Fault::TrafficControlDrops, "node/a vetha", REPLY);
    // What is certain comes before it.
    let and_down = |s: &mut Snapshot| {
        shaped("clsact", Some(2))(s);
        link(s, "node/b", 4).up = false;
    };
    broken(BOTH, &to_b(), and_down, Fault::LinkDown, "node/b vethb", REQUEST);
    // It is not on the way.
    let aside = |s: &mut Snapshot| {
        link(s, "node/a", 5).qdiscs.push(QueueDiscipline { kind: "clsact".to_owned(), dropped: 7, grown: Some(2) });
    };
    broken(BOTH, &to_b(), aside, Fault::Unexplained, A, REQUEST);
    let mut later = network(Mode::Direct);
    shaped("clsact", None)(&mut later);
    let mut earlier = later.clone();
    link(&mut earlier, "node/a", 4).qdiscs[0].dropped = 4;
    let finding = explain(&later.counted_since(&earlier), &to_b(), &Observation::Silent);
    assert!(finding.evidence.contains("has dropped 7 packets, 3 of them while the probe was repeated"), "{finding}");
}

#[test]
fn a_port_keeps_frames_out_by_what_it_is_set_to() {
    let set = |place: &'static str, index: u32, flags: BridgePort| {
        move |s: &mut Snapshot| {
            link(s, place, index).port = Some(BridgePort { state: "forwarding".to_owned(), ..flags.clone() });
        }
    };
    let seen = |s: &mut Snapshot, place: &str, last: u8, port: u32| {
        link(s, place, 3).fdb.push(FdbEntry { mac: mac(last), port: Some(port), endpoint: None });
    };
    let locked = set("node/a", 4, BridgePort { locked: true, ..BridgePort::default() });
    broken(BOTH, &to_b(), &locked, Fault::BridgePortRestricted, "node/a vetha", REQUEST);
    let with_entry = |s: &mut Snapshot| {
        locked(s);
        seen(s, "node/a", 0x21, 4);
    };
    broken(BOTH, &to_b(), with_entry, Fault::Unexplained, A, REQUEST);
    // Towards the pod, what the bridge does not know.
    let no_flood = set("node/b", 4, BridgePort { no_flood: true, ..BridgePort::default() });
    broken(BOTH, &to_b(), &no_flood, Fault::BridgePortRestricted, "node/b vethb", REQUEST);
    let known = |s: &mut Snapshot| {
        no_flood(s);
        seen(s, "node/b", 0x23, 4);
    };
    broken(BOTH, &to_b(), known, Fault::Unexplained, A, REQUEST);
    // And who has its address.
    let no_broadcast = set("node/b", 4, BridgePort { no_broadcast: true, ..BridgePort::default() });
    broken(BOTH, &to_b(), &no_broadcast, Fault::BridgePortRestricted, "node/b vethb", REQUEST);
    let asked = |s: &mut Snapshot| {
        no_broadcast(s);
        link(s, "node/b", 3).neighbours.push(Neighbour { address: ip("10.244.1.2"), mac: Some(mac(0x23)), permanent: false });
    };
    broken(BOTH, &to_b(), asked, Fault::Unexplained, A, REQUEST);
}

#[test]
fn who_does_without_arp_neither_asks_nor_answers() {
    let silent = |s: &mut Snapshot| {
        link(s, "node/b", 2).no_arp = true;
    };
    broken(&[Mode::Direct], &to_b(), silent, Fault::NeighbourSilent, "node/b eth0", REQUEST);
    let mut asks = network(Mode::Direct);
    let eth0 = link(&mut asks, "node/a", 2);
    eth0.no_arp = true;
    eth0.neighbours = vec![Neighbour { address: ip("172.30.0.2"), mac: Some(mac(1)), permanent: false }];
    let finding = explain(&asks, &to_b(), &Observation::Silent);
    assert_eq!((finding.fault, finding.at()), (Fault::WrongNeighbour, "node/a eth0".to_owned()), "{finding}");
    assert!(finding.evidence.ends_with("its setting arp is off: it asks nobody"), "{finding}");
    assert!(finding.next_step.starts_with("ip link set eth0 arp on; "), "{finding:?}");
}

/// A rule that writes bytes of the packet, its hop limit say, is not followed: it is said so where nothing else is wrong.
#[test]
fn what_a_rule_writes_is_said_not_to_be_followed() {
    let writes = |s: &mut Snapshot| {
        let mut table = dropping("inet", 0);
        table.chains[0].rules[0].ops = vec![Op::Other("payload".to_owned())];
        of(s, "node/a").tables.push(table);
    };
    broken(BOTH, &to_b(), writes, Fault::NotObserved, "node/a netloom0", REQUEST);
    let mut snapshot = network(Mode::Direct);
    writes(&mut snapshot);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert!(finding.evidence.contains("the rule with handle 7 of chain guard of table inet other changes the packet"), "{finding}");
}
