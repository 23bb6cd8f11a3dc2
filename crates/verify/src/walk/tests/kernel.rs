//! What kernels do that is easily missed: chains after a doubt, translation inside a hook, marks, several ways, connections, VLANs.

use linux::nft::{ListedRule, ListedVerdict, Op};

use super::scene::{Mode, link, network, of, put, route};
use super::{A, B, BOTH, REPLY, REQUEST, broken, check, dropping, found, masquerading, to_a2, to_b};
use crate::snapshot::{PortVlan, Route, RouteKind, Rule, Snapshot};
use crate::{Fault, Observation, explain};

fn rule(priority: u32, table: u32) -> Rule {
    super::scene::rule(priority, Some(table))
}

/// A rule that may let the packet pass makes what drops it afterwards unsure: what is certain elsewhere is named first.
#[test]
fn a_drop_after_an_unsure_accept_is_unsure() {
    let guarded = |verdict: ListedVerdict| {
        let mut table = dropping("inet", 2);
        let mut unsure = table.chains[0].rules[0].clone();
        unsure.ops = vec![Op::Other("match statistic".to_owned()), Op::Verdict(verdict)];
        table.chains[0].rules.insert(0, unsure);
        table
    };
    for verdict in [ListedVerdict::Accept, ListedVerdict::Return] {
        let mut snapshot = network(Mode::Direct);
        of(&mut snapshot, "node/a").tables.push(guarded(verdict));
        // Alone it is what is left.
        assert_eq!(found(&snapshot, &to_b()).0, Fault::ForeignRuleDrops);
        of(&mut snapshot, "node/b").routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
        assert_eq!(found(&snapshot, &to_b()), (Fault::NoRoute, "node/b".to_owned(), String::new(), REPLY));
    }
    // Another chain's drop is as certain as before.
    let mut snapshot = network(Mode::Direct);
    of(&mut snapshot, "node/a").tables.push(guarded(ListedVerdict::Accept));
    of(&mut snapshot, "node/a").tables.push(dropping("ip", 2));
    of(&mut snapshot, "node/b").routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
    assert_eq!(found(&snapshot, &to_b()).0, Fault::ForeignRuleDrops);
}

/// A link that is down takes its routes with it.
#[test]
fn routes_that_went_with_their_link() {
    let without = |place: &'static str, index: u32| {
        move |s: &mut Snapshot| {
            link(s, place, index).up = false;
            link(s, place, index).carrier = false;
            of(s, place).routes.retain(|route| !route.ways.iter().any(|(_, link)| *link == Some(index)));
        }
    };
    broken(BOTH, &to_b(), without("node/b", 3), Fault::LinkDown, "node/b netloom0", REQUEST);
    broken(BOTH, &to_b(), without(A, 2), Fault::LinkDown, "pod/default/a eth0", REQUEST);
    broken(BOTH, &to_b(), without("node/a", 2), Fault::LinkDown, "node/a eth0", REQUEST);
    broken(&[Mode::Vxlan], &to_b(), without("node/a", 6), Fault::LinkDown, "node/a nl4", REQUEST);
}

/// Marks that rules give, and that routing asks for.
#[test]
fn marks() {
    let aside = |value: u32| {
        move |s: &mut Snapshot| {
            let node = of(s, "node/a");
            let mut table = dropping("inet", 0);
            table.chains[0].rules[0].ops = vec![Op::Load { into: 8, value: value.to_ne_bytes().to_vec() }, Op::SetMark { from: 8 }];
            node.tables.push(table);
            node.rules.insert(0, Rule { mark: Some((0x40, 0xff)), ..rule(5, 100) });
            let nowhere = Route { kind: RouteKind::Blackhole, ways: Vec::new(), table: 100, ..route("0.0.0.0/0", None, 2) };
            node.routes.push(nowhere);
        }
    };
    broken(BOTH, &to_b(), aside(0x140), Fault::RouteRefuses, "node/a", REQUEST);
    broken(BOTH, &to_b(), aside(0x141), Fault::Unexplained, A, REQUEST);
}

#[test]
fn a_rule_may_suppress_the_default_route_of_a_table() {
    let vpn = |s: &mut Snapshot| {
        let node = of(s, "node/a");
        node.routes.push(route("0.0.0.0/0", Some("172.30.0.77"), 2));
        node.routes.retain(|route| route.to.to_string() != "10.244.1.0/24");
        node.rules = vec![rule(0, 255), Rule { suppress: Some(0), ..rule(10, 254) }];
    };
    broken(BOTH, &to_b(), vpn, Fault::NoRoute, "node/a", REQUEST);
}

/// A VPN's rule for all but its own packets was passed over.
#[test]
fn a_rule_with_not_is_for_what_its_conditions_do_not_hold_of() {
    let vpn = |mark: u32| {
        move |s: &mut Snapshot| {
            let node = of(s, "node/a");
            node.rules.insert(0, Rule { mark: Some((mark, u32::MAX)), negated: true, has_more: true, ..rule(5, 51820) });
            let nowhere = Route { kind: RouteKind::Blackhole, ways: Vec::new(), table: 51820, ..route("0.0.0.0/0", None, 2) };
            node.routes.push(nowhere);
        }
    };
    broken(BOTH, &to_b(), vpn(51820), Fault::RouteRefuses, "node/a", REQUEST);
    broken(BOTH, &to_b(), vpn(0), Fault::Unexplained, A, REQUEST);
}

/// The table and the rule that leads to it are named, and only routes that a packet may take.
#[test]
fn rules_and_tables_are_named() {
    let finding = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = network(Mode::Direct);
        change(&mut snapshot);
        explain(&snapshot, &to_b(), &Observation::Silent)
    };
    let aside = finding(&|s| {
        let node = of(s, "node/a");
        node.rules.insert(0, Rule { from: Some("10.244.0.2/32".parse().unwrap()), ..rule(32765, 100) });
        node.routes.push(Route { table: 100, ..route("0.0.0.0/0", Some("172.30.77.77"), 2) });
    });
    assert_eq!(aside.fault, Fault::GatewayMissing, "{aside}");
    let way = "0.0.0.0/0 via 172.30.77.77 dev eth0 table 100 (rule 32765: from 10.244.0.2/32 lookup 100)";
    assert!(aside.evidence.contains(way), "{aside}");
    let unasked = finding(&|s| of(s, "node/a").rules.retain(|rule| rule.table != Some(254)));
    assert_eq!((unasked.fault, unasked.place.to_string().as_str()), (Fault::NoRoute, "node/a"), "{unasked}");
    assert_eq!(unasked.next_step, "restore the rule: ip rule add lookup main priority 32766");
    let thrown = finding(&|s| {
        let node = of(s, "node/a");
        node.routes.retain(|route| route.to.to_string() != "10.244.1.0/24");
        node.routes.push(Route { kind: RouteKind::Other, ways: Vec::new(), ..route("10.244.1.0/25", None, 2) });
        node.routes.push(Route { table: 100, ..route("10.9.0.0/16", None, 2) });
    });
    assert_eq!(thrown.evidence, "no route leads to 10.244.1.2; it has routes to 172.30.0.0/16, 10.244.0.0/24");
}

/// A rule for the source that the kernel has chosen was not met.
#[test]
fn a_rule_for_the_own_source_is_met() {
    let refuse = |s: &mut Snapshot| {
        let from = Some("10.244.0.2/32".parse().unwrap());
        of(s, A).rules.insert(0, Rule { from, table: None, ..rule(5, 0) });
    };
    broken(BOTH, &to_b(), refuse, Fault::RouteRefuses, A, REQUEST);
    let mut snapshot = network(Mode::Direct);
    refuse(&mut snapshot);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert_eq!(finding.evidence, "the rule of policy routing 5: from 10.244.0.2/32 refuses packets to 10.244.1.2");
}

/// What was not understood or not read is said where nothing else is wrong, and only then.
#[test]
fn parts_that_are_not_observed() {
    let unread = |s: &mut Snapshot| of(s, "node/b").unread.push("nftables: permission denied".to_owned());
    broken(BOTH, &to_b(), unread, Fault::NotObserved, "node/b", REQUEST);
    let odd = |s: &mut Snapshot| of(s, "node/a").rules.insert(0, Rule { has_more: true, ..rule(5, 100) });
    broken(BOTH, &to_b(), odd, Fault::NotObserved, "node/a", REQUEST);
    let both = |s: &mut Snapshot| {
        odd(s);
        of(s, "node/b").routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
    };
    broken(BOTH, &to_b(), both, Fault::NoRoute, "node/b", REPLY);
}

/// What is missing may be in the part that was not read, and so may the rule that lets a packet pass.
#[test]
fn what_was_not_read_may_have_what_is_missing() {
    let no_route = |s: &mut Snapshot| {
        let node = of(s, "node/b");
        node.routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
        node.unread.push("routes: 7 KiB are left out".to_owned());
    };
    broken(BOTH, &to_b(), no_route, Fault::NotObserved, "node/b", REPLY);
    let policy = |s: &mut Snapshot| {
        let mut table = dropping("inet", 2);
        table.chains[0].rules.clear();
        table.chains[0].base.as_mut().unwrap().drops = true;
        of(s, "node/a").tables.push(table);
    };
    broken(BOTH, &to_b(), policy, Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
    let partly = |s: &mut Snapshot| {
        policy(s);
        of(s, "node/a").unread.push("nftables: 7 KiB are left out".to_owned());
    };
    broken(BOTH, &to_b(), partly, Fault::NotObserved, "node/a", REQUEST);
    // A rule that was read drops whatever else is there.
    let rule = |s: &mut Snapshot| {
        let node = of(s, "node/a");
        node.tables.push(dropping("inet", 2));
        node.unread.push("nftables: 7 KiB are left out".to_owned());
    };
    broken(BOTH, &to_b(), rule, Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
}

/// Only what a finding rests on puts it in doubt: what was not read of something else does not.
#[test]
fn what_was_not_read_of_something_else_is_no_doubt() {
    let no_route = |note: &'static str| {
        move |s: &mut Snapshot| {
            let node = of(s, "node/b");
            node.routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
            node.unread.push(note.to_owned());
        }
    };
    for note in [
        "nftables: permission denied",
        "settings: permission denied",
        "neighbours of eth7: EIO",
        "legacy iptables: the rules of its tables",
    ] {
        broken(BOTH, &to_b(), no_route(note), Fault::NoRoute, "node/b", REPLY);
    }
    for note in ["rules of policy routing: EIO", "links, neighbours, addresses or routes: 7 KiB are left out", "netlink: EIO"] {
        broken(BOTH, &to_b(), no_route(note), Fault::NotObserved, "node/b", REPLY);
    }
    // What is missing of one device may be in what was not read of that one.
    let no_entry = |note: &'static str| {
        move |s: &mut Snapshot| {
            link(s, "node/a", 6).fdb.clear();
            of(s, "node/a").unread.push(note.to_owned());
        }
    };
    broken(&[Mode::Vxlan], &to_b(), no_entry("entries of br7: EIO"), Fault::TunnelEntryMissing, "node/a nl4", REQUEST);
    broken(&[Mode::Vxlan], &to_b(), no_entry("entries of nl4: EIO"), Fault::NotObserved, "node/a", REQUEST);
    // A policy drops whatever rules another kind of iptables has, and a rule of nftables may let it pass before.
    let policy = |note: &'static str| {
        move |s: &mut Snapshot| {
            let mut table = dropping("inet", 2);
            table.chains[0].rules.clear();
            table.chains[0].base.as_mut().unwrap().drops = true;
            let node = of(s, "node/a");
            node.tables.push(table);
            node.unread.push(note.to_owned());
        }
    };
    broken(BOTH, &to_b(), policy("legacy iptables: the rules"), Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
    broken(BOTH, &to_b(), policy("routes: EIO"), Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
}

/// Where nothing else is wrong, the rules that nobody has read are named, and those of the packet's family alone.
#[test]
fn rules_of_legacy_iptables_are_named() {
    let legacy = |s: &mut Snapshot| of(s, "node/b").unread.push("legacy iptables: the rules of its tables filter".to_owned());
    broken(BOTH, &to_b(), legacy, Fault::NotObserved, "node/b", REQUEST);
    let mut snapshot = network(Mode::Direct);
    legacy(&mut snapshot);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert_eq!(finding.evidence, "not read: legacy iptables: the rules of its tables filter");
    let six = |s: &mut Snapshot| of(s, "node/b").unread.push("legacy ip6tables: the rules of its tables filter".to_owned());
    broken(&[Mode::Direct], &to_b(), six, Fault::Unexplained, A, REQUEST);
}

/// A chain that was not read may let a packet pass: what drops it after that is not certain.
#[test]
fn a_jump_to_a_chain_that_is_not_there_is_in_doubt() {
    let mut snapshot = network(Mode::Direct);
    let mut table = dropping("inet", 2);
    let jump = Op::Verdict(ListedVerdict::Jump("unread".to_owned()));
    table.chains[0].rules.insert(0, ListedRule { handle: 6, ops: vec![jump], ..ListedRule::default() });
    of(&mut snapshot, "node/a").tables.push(table);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert!(finding.evidence.contains("may drop"), "{finding}");
}

/// Each of several ways must pass, not only the first one.
#[test]
fn several_ways() {
    let two = |second: &'static str| {
        move |s: &mut Snapshot| {
            let mut both = route("10.244.1.0/24", Some("172.30.0.2"), 2);
            both.ways.extend(route("10.244.1.0/24", Some(second), 2).ways);
            put(s, "node/a", "10.244.1.0/24", both);
        }
    };
    broken(&[Mode::Direct], &to_b(), two("172.30.0.77"), Fault::GatewayMissing, "node/a eth0", REQUEST);
    broken(&[Mode::Direct], &to_b(), two("172.30.0.2"), Fault::Unexplained, A, REQUEST);
    // A way by a link that is down is none.
    let by_down = |s: &mut Snapshot| {
        two("172.30.0.2")(s);
        let mut spare = link(s, "node/a", 2).clone();
        (spare.index, spare.name, spare.up, spare.other) = (12, "eth1".to_owned(), false, None);
        spare.addresses.clear();
        of(s, "node/a").links.push(spare);
        of(s, "node/a").routes.last_mut().unwrap().ways[1].1 = Some(12);
    };
    broken(&[Mode::Direct], &to_b(), by_down, Fault::Unexplained, A, REQUEST);
}

/// A route for packets from other sources does not count.
#[test]
fn a_route_of_a_source() {
    let from = |net: &'static str| {
        move |s: &mut Snapshot| {
            let aside =
                Route { kind: RouteKind::Blackhole, ways: Vec::new(), from: Some(net.parse().unwrap()), ..route("10.244.1.2/32", None, 2) };
            of(s, "node/a").routes.push(aside);
        }
    };
    broken(BOTH, &to_b(), from("10.244.0.0/24"), Fault::RouteRefuses, "node/a", REQUEST);
    broken(BOTH, &to_b(), from("10.9.0.0/24"), Fault::Unexplained, A, REQUEST);
}

/// A reply by a node that has not seen the request belongs to no connection there.
#[test]
fn connections() {
    // accept what is established, drop the rest of what is not new
    let strict = |place: &'static str| {
        move |s: &mut Snapshot| {
            let mut table = dropping("inet", 2);
            let invalid = vec![
                Op::Ct { key: 0, into: 8 },
                Op::Mask { from: 8, into: 8, mask: 1_u32.to_ne_bytes().to_vec(), xor: vec![0; 4] },
                Op::Compare { at: 8, how: 1, value: vec![0; 4] },
                Op::Verdict(ListedVerdict::Drop),
            ];
            table.chains[0].rules[0].ops = invalid;
            of(s, place).tables.push(table);
        }
    };
    broken(BOTH, &to_b(), strict("node/a"), Fault::Unexplained, A, REQUEST);
    // The request goes past the router of the rule, the reply through it.
    let asymmetric = |s: &mut Snapshot| {
        let mut router = of(s, "node/a").clone();
        router.place = "outside/router".parse().unwrap();
        router.links.retain(|link| link.index == 2);
        let eth0 = &mut router.links[0];
        eth0.addresses = vec![super::scene::address("172.30.0.9/16")];
        (eth0.mac, eth0.other) = (Some(super::scene::mac(0x77)), Some(crate::End { place: crate::Place::Underlay, index: 12 }));
        router.routes = vec![route("172.30.0.0/16", None, 2), route("10.244.0.0/24", Some("172.30.0.1"), 2)];
        router.tables.clear();
        let mut port = link(s, "underlay", 10).clone();
        (port.index, port.name, port.mac) = (12, "w1-3".to_owned(), Some(super::scene::mac(0x53)));
        port.other = Some(crate::End { place: router.place.clone(), index: 2 });
        of(s, "underlay").links.push(port);
        s.namespaces.push(router);
        put(s, "node/b", "10.244.0.0/24", route("10.244.0.0/24", Some("172.30.0.9"), 2));
        strict("outside/router")(s);
    };
    broken(&[Mode::Direct], &to_b(), asymmetric, Fault::ForeignRuleDrops, "outside/router eth0", REPLY);
    let mut over_udp = to_b();
    over_udp.protocol = crate::Protocol::Udp;
    broken(&[Mode::Direct], &over_udp, asymmetric, Fault::Unexplained, A, REQUEST);
}

/// A packet that begins a connection was sent where it goes; of an answer it is not known where the first packet was sent.
#[test]
fn where_a_connection_was_sent() {
    let sent_to = |last: u8| {
        move |s: &mut Snapshot| {
            let mut table = dropping("inet", 2);
            table.chains[0].rules[0].ops = vec![
                Op::CtTuple { key: 20, of_reply: false, into: 8 },
                Op::Compare { at: 8, how: 0, value: vec![10, 244, 1, last] },
                Op::Verdict(ListedVerdict::Drop),
            ];
            of(s, "node/a").tables.push(table);
        }
    };
    broken(BOTH, &to_b(), sent_to(2), Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
    let mut snapshot = network(Mode::Direct);
    sent_to(3)(&mut snapshot);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert!(finding.direction == REPLY && finding.evidence.contains("may drop"), "{finding}");
}

/// As the guard of a vxlan tunnel asks of what comes by a pod's link.
#[test]
fn where_the_way_back_leads() {
    let dropped = |leads_there: u32| {
        move |s: &mut Snapshot| {
            let mut table = dropping("inet", 2);
            table.chains[0].rules[0].ops = vec![
                Op::ReversePath { into: 8 },
                Op::Compare { at: 8, how: 0, value: leads_there.to_ne_bytes().to_vec() },
                Op::Verdict(ListedVerdict::Drop),
            ];
            of(s, "node/a").tables.push(table);
        }
    };
    broken(BOTH, &to_b(), dropped(1), Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
    let mut snapshot = network(Mode::Direct);
    dropped(0)(&mut snapshot);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert!(finding.fault == Fault::Unexplained && !finding.evidence.contains("may drop"), "{finding}");
}

/// What a chain rewrites, the later chains of the same hook see.
#[test]
fn translation_inside_a_hook() {
    let rewritten = |s: &mut Snapshot| {
        // A node's own packets to 172.30.0.50 go to pod b; after that, packets to pod b are dropped at output.
        let mut nat = dropping("ip", 3);
        nat.chains[0].base.as_mut().unwrap().kind = "nat".to_owned();
        nat.chains[0].base.as_mut().unwrap().priority = -100;
        nat.chains[0].rules[0].ops = vec![
            Op::Payload { header: linux::nft::ListedHeader::Network, offset: 16, len: 4, into: 8 },
            Op::Compare { at: 8, how: 0, value: vec![172, 30, 0, 50] },
            Op::Load { into: 8, value: vec![10, 244, 1, 2] },
            Op::Dnat { address: Some(8), port: None },
        ];
        let mut guard = dropping("inet", 3);
        guard.chains[0].rules[0].ops.splice(
            0..0,
            [
                Op::Payload { header: linux::nft::ListedHeader::Network, offset: 16, len: 4, into: 8 },
                Op::Compare { at: 8, how: 0, value: vec![10, 244, 1, 2] },
            ],
        );
        of(s, "node/a").tables.extend([guard, nat]);
    };
    let mut from_node = check(B, "172.30.0.50");
    from_node.from = "node/a".parse().unwrap();
    broken(&[Mode::Direct], &from_node, rewritten, Fault::NodeFirewall, "node/a eth0", REQUEST);
}

/// Bridges that filter VLANs.
#[test]
fn vlans() {
    let row = |vlan: u16, native: bool| PortVlan { first: vlan, last: vlan, pvid: native, untagged: native };
    let filtering = |of_a2: Vec<PortVlan>| {
        move |s: &mut Snapshot| {
            link(s, "node/a", 3).filters_vlans = true;
            link(s, "node/a", 3).vlans = vec![row(1, true)];
            link(s, "node/a", 4).vlans = vec![row(1, true)];
            link(s, "node/a", 5).vlans.clone_from(&of_a2);
        }
    };
    broken(BOTH, &to_a2(), filtering(vec![row(1, true)]), Fault::Unexplained, A, REQUEST);
    broken(BOTH, &to_a2(), filtering(vec![row(20, true)]), Fault::VlanFiltered, "node/a vetha2", REQUEST);
    broken(BOTH, &to_a2(), filtering(Vec::new()), Fault::VlanFiltered, "node/a vetha2", REQUEST);
    // It gets them, with a tag that it does not want.
    broken(BOTH, &to_a2(), filtering(vec![row(1, false)]), Fault::VlanFiltered, "pod/default/a2 eth0", REQUEST);
    let other_gateway = |s: &mut Snapshot| {
        filtering(vec![row(1, true)])(s);
        link(s, "node/a", 4).vlans = vec![row(30, true)];
    };
    broken(BOTH, &to_b(), other_gateway, Fault::VlanFiltered, "node/a netloom0", REQUEST);
}

/// An address that no table has as local is not the host's own, and one that it has is.
#[test]
fn what_is_local_says_the_table() {
    let mut snapshot = network(Mode::Direct);
    let node = of(&mut snapshot, "node/b");
    assert!(node.is_local("172.30.0.2".parse().unwrap()));
    node.routes.retain(|route| route.to.to_string() != "172.30.0.2/32");
    assert!(!node.is_local("172.30.0.2".parse().unwrap()));
    node.routes.push(Route { table: 255, kind: RouteKind::Local, ..route("10.99.0.0/24", None, 2) });
    assert!(node.is_local("10.99.0.7".parse().unwrap()));
}

/// Who has been answered or refused has been reached, whatever seems to be in the way now.
#[test]
fn what_was_observed_is_certain() {
    let mut snapshot = network(Mode::Direct);
    link(&mut snapshot, "node/b", 2).up = false;
    let refused = explain(&snapshot, &to_b(), &Observation::Refused);
    assert_eq!((refused.fault, refused.place.to_string()), (Fault::NothingListens, B.to_owned()));
    let seen = "10.244.0.1".parse().unwrap();
    let answered = |by: &str| Observation::Answered { by: by.to_owned(), seen, took: std::time::Duration::ZERO };
    assert_eq!(explain(&snapshot, &to_b(), &answered("pod/default/a2")).fault, Fault::WrongHostAnswers);
    assert_ne!(explain(&snapshot, &to_b(), &answered(B)).fault, Fault::LinkDown);
    // A rule that rejects says so to the sender, and is the reason.
    let mut rejecting = network(Mode::Direct);
    let mut table = dropping("inet", 2);
    table.chains[0].rules[0].ops = vec![Op::Reject];
    of(&mut rejecting, "node/b").tables.push(table);
    assert_eq!(explain(&rejecting, &to_b(), &Observation::Refused).fault, Fault::ForeignRuleDrops);
    let mut translating = network(Mode::Direct);
    of(&mut translating, "node/a").tables.push(masquerading());
    assert_eq!(explain(&translating, &to_b(), &answered(B)).fault, Fault::MasqueradeTooWide);
}

/// A neighbour that the tunnel knows by a wrong address is a wrong neighbour, though there is no entry for it either.
#[test]
fn a_tunnel_knows_its_neighbour_wrongly() {
    let wrong = |s: &mut Snapshot| link(s, "node/a", 6).neighbours[0].mac = Some(super::scene::mac(0x99));
    broken(&[Mode::Vxlan], &to_b(), wrong, Fault::WrongNeighbour, "node/a nl4", REQUEST);
}

/// IPv6 addresses go with their link, too: who is on its wire says which link it was.
#[test]
fn a_bridge_that_is_down_has_lost_its_addresses() {
    let down = |s: &mut Snapshot| {
        let bridge = link(s, "node/b", 3);
        (bridge.up, bridge.carrier) = (false, false);
        bridge.addresses.clear();
        of(s, "node/b").routes.retain(|route| !route.ways.iter().any(|(_, link)| *link == Some(3)));
    };
    broken(BOTH, &to_b(), down, Fault::LinkDown, "node/b netloom0", REQUEST);
}
