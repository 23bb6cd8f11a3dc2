//! Rules that lead packets to another host or port, and routes that keep packets of others.

use linux::nft::{ListedTable, ListedVerdict, Op};

use super::scene::{address, ip, link, local, network, of, route};
use super::{A, A2, B, BOTH, Mode, REPLY, REQUEST, broken, check, dropping, to_a2, to_b};
use crate::case::Target;
use crate::snapshot::{RouteKind, Rule, Snapshot};
use crate::{CASES, Check, Expected, ExpectedSource, Fault, Observation, explain};

/// A rule for every packet at a hook.
fn ruling(kind: &str, hook: u32, ops: Vec<Op>) -> ListedTable {
    let mut table = dropping("ip", hook);
    table.chains[0].base.as_mut().unwrap().kind = kind.to_owned();
    table.chains[0].rules[0].ops = ops;
    table
}

/// A rule that rewrites the destination of every packet.
fn leading(hook: u32, to: &str) -> ListedTable {
    let value = to.split('.').map(|octet| octet.parse().unwrap()).collect();
    ruling("nat", hook, vec![Op::Load { into: 8, value }, Op::Dnat { address: Some(8), port: None }])
}

fn with(place: &'static str, table: ListedTable) -> impl Fn(&mut Snapshot) {
    move |s| of(s, place).tables.push(table.clone())
}

/// Another pod got the packet, and was said to have an address that it has not.
#[test]
fn who_gets_a_rewritten_packet_has_no_second_address() {
    broken(BOTH, &to_b(), with("node/a", leading(0, "10.244.0.3")), Fault::RedirectedByRule, "node/a", REQUEST);
    broken(BOTH, &to_b(), with("node/a", leading(0, "10.244.1.77")), Fault::RedirectedByRule, "node/a", REQUEST);
    let mut snapshot = network(Mode::Direct);
    with("node/a", leading(0, "10.244.0.3"))(&mut snapshot);
    let refused = explain(&snapshot, &to_b(), &Observation::Refused);
    assert_eq!(refused.fault, Fault::RedirectedByRule, "{refused}");
    let words = "the rule with handle 7 of chain guard of table ip other leads packets for 10.244.1.2 port 26767 to 10.244.0.3 port 26767, which \
                 pod/default/a2 has; pod/default/b is to answer";
    assert_eq!(refused.evidence, words);
    assert!(refused.next_step.ends_with(": nft -a list chain ip other guard"), "{refused:?}");
}

/// A published port that leads to another pod than the one that publishes it.
#[test]
fn a_published_port_that_is_anothers() {
    let case = CASES.iter().find(|case| matches!(case.to, Target::HostPort(..))).unwrap();
    let published = Check { case, port: 8080, expected: Expected::Answer(ExpectedSource::Anyhow), ..check(A2, "172.30.0.1") };
    let published = Check { from: B.parse().unwrap(), ..published };
    let modes = &[Mode::Direct];
    broken(modes, &published, with("node/a", leading(0, "10.244.0.2")), Fault::RedirectedByRule, "node/a", REQUEST);
    broken(modes, &published, with("node/a", leading(0, "10.244.0.3")), Fault::Unexplained, B, REQUEST);
    // Every host has the loopback's address.
    let with_loopbacks = |s: &mut Snapshot| {
        for place in [A, A2, B] {
            let lo = crate::Link { index: 1, name: "lo".to_owned(), kind: String::new(), other: None, ..link(s, place, 2).clone() };
            of(s, place).links.push(crate::Link { addresses: vec![address("127.0.0.1/8")], ..lo });
        }
        with(B, leading(3, "127.0.0.1"))(s);
    };
    broken(modes, &published, with_loopbacks, Fault::RedirectedByRule, B, REQUEST);
    // Netloom's own rule is restored.
    let mut snapshot = network(Mode::Direct);
    let own = ListedTable { name: "netloom".to_owned(), family: "inet".to_owned(), ..leading(0, "10.244.0.2") };
    with("node/a", own)(&mut snapshot);
    let finding = explain(&snapshot, &published, &Observation::Silent);
    assert!(finding.next_step.contains("netloom repair"), "{finding:?}");
}

#[test]
fn packets_that_are_redirected_to_the_host_itself() {
    for statement in ["redir", "target REDIRECT"] {
        let redirect = |hook| ruling("nat", hook, vec![Op::Other(statement.to_owned())]);
        broken(BOTH, &to_b(), with("node/a", redirect(0)), Fault::RedirectedByRule, "node/a", REQUEST);
        // As sidecars do: what the pod sends, and what it receives.
        broken(BOTH, &to_b(), with(A, redirect(3)), Fault::RedirectedByRule, A, REQUEST);
        broken(BOTH, &to_b(), with(B, redirect(0)), Fault::RedirectedByRule, B, REQUEST);
        let mut snapshot = network(Mode::Direct);
        with(A, redirect(3))(&mut snapshot);
        let refused = explain(&snapshot, &to_b(), &Observation::Refused);
        assert!(refused.evidence.contains("to 127.0.0.1 another port, which pod/default/a itself has"), "{refused}");
    }
    // Frames between two pods of one bridge meet the router's rules with br_netfilter.
    let bridged = |s: &mut Snapshot| {
        link(s, "node/a", 3).filters_ipv4 = true;
        with("node/a", ruling("nat", 0, vec![Op::Other("redir".to_owned())]))(s);
    };
    broken(BOTH, &to_a2(), bridged, Fault::RedirectedByRule, "node/a", REQUEST);
    // Whether it holds is not known.
    let unsure = vec![Op::Other("match owner".to_owned()), Op::Other("redir".to_owned())];
    broken(BOTH, &to_b(), with(A, ruling("nat", 3, unsure)), Fault::NotObserved, "pod/default/a eth0", REQUEST);
}

#[test]
fn packets_that_a_proxy_gets() {
    let proxy = |s: &mut Snapshot| {
        let mark = vec![Op::Load { into: 8, value: 1_u32.to_ne_bytes().to_vec() }, Op::SetMark { from: 8 }];
        let ops = [vec![Op::Other("tproxy".to_owned())], mark, vec![Op::Verdict(ListedVerdict::Accept)]].concat();
        let node = of(s, "node/a");
        node.tables.push(ruling("filter", 0, ops));
        node.rules.insert(0, Rule { mark: Some((1, u32::MAX)), ..super::scene::rule(5, Some(111)) });
        node.routes.push(crate::snapshot::Route { table: 111, kind: RouteKind::Local, ..route("0.0.0.0/0", None, 1) });
    };
    broken(BOTH, &to_b(), proxy, Fault::RedirectedByRule, "node/a", REQUEST);
}

/// It was said to be an address that is to be removed.
#[test]
fn a_local_route_that_is_no_address() {
    let keep = |s: &mut Snapshot| of(s, "node/a").routes.push(local("10.244.1.2", 3));
    broken(BOTH, &to_b(), keep, Fault::WrongNextHop, "node/a netloom0", REQUEST);
    // What comes from that address is dropped for the same reason.
    let filtered = |s: &mut Snapshot| {
        of(s, "node/a").links.iter_mut().for_each(|link| link.rp_filter = 2);
        keep(s);
    };
    broken(&[Mode::Direct], &Check { from: B.parse().unwrap(), ..to_a2() }, filtered, Fault::WrongNextHop, "node/a netloom0", REPLY);
    let mut snapshot = network(Mode::Direct);
    keep(&mut snapshot);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert_eq!(finding.next_step, "delete the route: ip route del local 10.244.1.2/32 dev netloom0 table 255");
    assert!(of(&mut snapshot, "node/a").holder(ip("10.244.1.2")).is_none());
}

/// With another zone the answer belongs to no connection.
#[test]
fn zones_of_connection_tracking_are_not_followed() {
    let zone = ruling("filter", 0, vec![Op::Other("ct".to_owned())]);
    broken(BOTH, &to_b(), with("node/a", zone), Fault::NotObserved, "node/a netloom0", REQUEST);
}

/// A frame that a rule of a link forwards to another one is not followed.
#[test]
fn frames_that_are_forwarded_to_another_link() {
    let forwarding = |s: &mut Snapshot| {
        let mut table = ruling("filter", 0, vec![Op::Other("fwd".to_owned())]);
        table.family = "netdev".to_owned();
        table.chains[0].base.as_mut().unwrap().devices = vec!["vetha".to_owned()];
        of(s, "node/a").tables.push(table);
    };
    broken(BOTH, &to_b(), forwarding, Fault::NotObserved, "node/a vetha", REQUEST);
}
