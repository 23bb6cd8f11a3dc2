//! Nobody on a link has the address that is looked for there: which of link, address, route or setting is wrong.

use super::scene::{Mode, address, link, local, network, of, put, route};
use super::{A, A2, B, BOTH, REQUEST, broken, check, to_a2, to_b};
use crate::plan::{Check, Expected, ExpectedSource};
use crate::snapshot::{Link, Snapshot};
use crate::{Fault, Observation, explain};

/// Each was said to be an address with the wrong prefix length, or an entry that the tunnel lacks.
#[test]
fn a_route_with_the_wrong_device_or_without_its_next_hop() {
    let wrong_device = |s: &mut Snapshot| of(s, "node/a").routes.push(route("10.244.1.2/32", None, 3));
    broken(BOTH, &to_b(), wrong_device, Fault::WrongNextHop, "node/a netloom0", REQUEST);
    let without_via = |device: u32| move |s: &mut Snapshot| put(s, "node/a", "10.244.1.0/24", route("10.244.1.0/24", None, device));
    broken(&[Mode::Direct], &to_b(), without_via(2), Fault::WrongNextHop, "node/a eth0", REQUEST);
    broken(&[Mode::Vxlan], &to_b(), without_via(6), Fault::WrongNextHop, "node/a nl4", REQUEST);
    let mut snapshot = network(Mode::Vxlan);
    without_via(6)(&mut snapshot);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert!(finding.next_step.ends_with("ip route del 10.244.1.0/24 dev nl4 table 254"), "{finding:?}");
}

#[test]
fn a_pod_on_the_wrong_bridge() {
    let moved = |s: &mut Snapshot| {
        let other = Link { index: 20, name: "fast0".to_owned(), addresses: Vec::new(), ..link(s, "node/a", 3).clone() };
        of(s, "node/a").links.push(other);
        link(s, "node/a", 5).master = Some(20);
    };
    broken(BOTH, &to_a2(), moved, Fault::WrongNetwork, "node/a vetha2", REQUEST);
    // From the pod to its gateway, and from the gateway to the pod.
    broken(BOTH, &Check { from: A2.parse().unwrap(), ..to_b() }, moved, Fault::WrongNetwork, "node/a vetha2", REQUEST);
    broken(BOTH, &Check { from: B.parse().unwrap(), ..to_a2() }, moved, Fault::WrongNetwork, "node/a vetha2", REQUEST);
    let mut snapshot = network(Mode::Direct);
    moved(&mut snapshot);
    let finding = explain(&snapshot, &Check { from: B.parse().unwrap(), ..to_a2() }, &Observation::Silent);
    assert_eq!(finding.next_step, "ip link set vetha2 master netloom0");
}

/// An address that was moved to another link of its node.
#[test]
fn an_address_on_the_wrong_link() {
    let moved = |s: &mut Snapshot| {
        let own = link(s, "node/b", 2).addresses.remove(0);
        let other = Link { index: 21, name: "eth1".to_owned(), kind: "dummy".to_owned(), other: None, ..link(s, "node/b", 2).clone() };
        of(s, "node/b").links.push(other);
        link(s, "node/b", 21).addresses.push(own);
    };
    broken(&[Mode::Direct], &to_b(), moved, Fault::WrongNetwork, "node/a eth0", REQUEST);
    let mut snapshot = network(Mode::Direct);
    moved(&mut snapshot);
    let finding = explain(&snapshot, &to_b(), &Observation::Silent);
    assert!(finding.evidence.ends_with("and node/b eth1 (dummy) have addresses of 172.30.0.0/16, and are not on one wire"), "{finding}");
}

/// A pair of a VPN with both ends in one namespace is no missing port of a bridge.
#[test]
fn a_pair_of_one_namespace_is_not_for_a_bridge() {
    let through = |s: &mut Snapshot| {
        let end = |index, name: &str, other| Link {
            index,
            name: name.to_owned(),
            kind: "veth".to_owned(),
            addresses: Vec::new(),
            other: Some(crate::snapshot::End { place: "node/a".parse().unwrap(), index: other }),
            ..link(&mut network(Mode::Direct), "node/a", 2).clone()
        };
        of(s, "node/a").links.extend([end(20, "wg0", 21), end(21, "wg0p", 20)]);
        put(s, "node/a", "10.244.1.0/24", route("0.0.0.0/0", None, 20));
    };
    broken(BOTH, &to_b(), through, Fault::WrongNextHop, "node/a wg0", REQUEST);
}

/// The network with IPv6 between pods `a` and `b`, and no IPv4 routes between them.
fn with_ipv6(s: &mut Snapshot) {
    for (node, own, range, far, other) in [
        ("node/a", A, "fd00:10:244", "fd00:10:244:1::/64", "fd00:172::2"),
        ("node/b", B, "fd00:10:244:1", "fd00:10:244::/64", "fd00:172::1"),
    ] {
        let number = if node == "node/a" { 1 } else { 2 };
        let ranges = format!("{range}::/64");
        let six = |route: crate::Route, to: &str| crate::Route { to: to.parse().unwrap(), ..route };
        link(s, own, 2).addresses.push(address(&format!("{range}::2/64")));
        link(s, node, 3).addresses.push(address(&format!("{range}::1/64")));
        link(s, node, 2).addresses.push(address(&format!("fd00:172::{number}/64")));
        let gateway = format!("{range}::1");
        let pod = of(s, own);
        pod.rules.clear();
        pod.routes.extend([
            six(local("10.0.0.1", 2), &format!("{range}::2/128")),
            route(&ranges, None, 2),
            route("::/0", Some(&gateway), 2),
        ]);
        let node = of(s, node);
        node.rules.clear();
        let locals = [(format!("{range}::1/128"), 3), (format!("fd00:172::{number}/128"), 2)];
        node.routes.extend(locals.map(|(to, link)| six(local("10.0.0.1", link), &to)));
        node.routes.extend([route(&ranges, None, 3), route("fd00:172::/64", None, 2), route(far, Some(other), 2)]);
    }
}

/// Disabling it takes addresses and routes away: that was what was found missing.
#[test]
fn ipv6_that_is_off_on_a_link() {
    let off = |place: &'static str, index: u32, nets: &'static [&'static str]| {
        move |s: &mut Snapshot| {
            with_ipv6(s);
            let link = link(s, place, index);
            link.ipv6_disabled = true;
            link.addresses.retain(|own| own.net.addr().is_ipv4());
            of(s, place).routes.retain(|route| !nets.contains(&route.to.to_string().as_str()));
        }
    };
    let expected = Expected::Answer(ExpectedSource::Anyhow);
    let to_b = Check { expected, ..check(B, "fd00:10:244:1::2") };
    let six = &[Mode::Direct];
    broken(six, &to_b, with_ipv6, Fault::Unexplained, A, REQUEST);
    broken(six, &to_b, off("node/a", 3, &["fd00:10:244::/64", "fd00:10:244::1/128"]), Fault::Ipv6Disabled, "node/a netloom0", REQUEST);
    let right = off("node/b", 3, &["fd00:10:244:1::/64", "fd00:10:244:1::1/128"]);
    broken(six, &to_b, right, Fault::Ipv6Disabled, "node/b netloom0", REQUEST);
    broken(
        six,
        &to_b,
        off(B, 2, &["fd00:10:244:1::/64", "fd00:10:244:1::2/128", "::/0"]),
        Fault::Ipv6Disabled,
        "pod/default/b eth0",
        REQUEST,
    );
    broken(six, &to_b, off(A, 2, &["fd00:10:244::/64", "fd00:10:244::2/128", "::/0"]), Fault::Ipv6Disabled, "pod/default/a eth0", REQUEST);
    // A neighbour's, which is not on the way.
    let beside = |s: &mut Snapshot| {
        with_ipv6(s);
        link(s, A2, 2).ipv6_disabled = true;
    };
    broken(six, &to_b, beside, Fault::Unexplained, A, REQUEST);
}
