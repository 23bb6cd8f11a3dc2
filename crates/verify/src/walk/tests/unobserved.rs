//! Nodes of a cluster: what is between them is not observed, and neither are hosts outside.

use super::scene::{Mode, address, ip, link, local, network, of, put, route};
use super::{A, B, BOTH, REPLY, REQUEST, check, dropping, found, to_b};
use crate::case::Need;
use crate::plan::{Check, Expected, ExpectedSource};
use crate::snapshot::{Place, Snapshot, Unobserved};
use crate::{Fault, Finding, Observation, Outside, Site, explain};

/// The same two nodes, as their agents see them.
fn cluster(mode: Mode) -> Snapshot {
    let mut snapshot = network(mode);
    snapshot.namespaces.retain(|namespace| namespace.place != Place::Underlay);
    for place in ["node/a", "node/b"] {
        let eth0 = link(&mut snapshot, place, 2);
        (eth0.kind, eth0.other) = (String::new(), None);
    }
    let outside = ["internet", "public"].into_iter().zip([Need::Internet, Need::PublicClient]).zip(["198.51.100.1", "198.51.100.2"]);
    let outside = outside.map(|((name, role), address)| Outside {
        role,
        place: Place::Outside(name.to_owned()),
        addresses: vec![ip(address)],
        seen_as: Vec::new(),
    });
    snapshot.site = Some(Site { outside: outside.collect(), ..Site::default() });
    snapshot
}

/// The same with a router that nobody observes: each node has a network of its own.
fn routed(mode: Mode) -> Snapshot {
    let mut snapshot = cluster(mode);
    for (place, third, other) in [("node/a", 1, 2), ("node/b", 2, 1)] {
        link(&mut snapshot, place, 2).addresses = vec![address(&format!("172.30.{third}.{third}/24"))];
        let far = format!("10.244.{}.0/24", other - 1);
        let node = of(&mut snapshot, place);
        node.routes.retain(|route| !route.to.to_string().starts_with("172.30."));
        node.routes.push(local(&format!("172.30.{third}.{third}"), 2));
        node.routes.push(route(&format!("172.30.{third}.0/24"), None, 2));
        node.routes.push(route("0.0.0.0/0", Some(&format!("172.30.{third}.254")), 2));
        match mode {
            Mode::Direct => put(&mut snapshot, place, &far, route(&far, Some(&format!("172.30.{third}.254")), 2)),
            Mode::Vxlan => {
                let nl4 = link(&mut snapshot, place, 6);
                nl4.fdb[0].endpoint = Some(ip(&format!("172.30.{other}.{other}")));
                nl4.tunnel.as_mut().unwrap().local = Some(ip(&format!("172.30.{third}.{third}")));
            }
        }
    }
    snapshot
}

fn faults(snapshot: &Snapshot, check: &Check) -> (Fault, String) {
    let Finding { fault, place, .. } = explain(snapshot, check, &Observation::Silent);
    (fault, place.to_string())
}

#[test]
fn nodes_of_one_network_are_on_one_wire() {
    for mode in BOTH {
        assert_eq!(found(&cluster(*mode), &to_b()).0, Fault::Unexplained, "{mode:?}");
        let mut broken = cluster(*mode);
        of(&mut broken, "node/b").routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
        assert_eq!(found(&broken, &to_b()), (Fault::NoRoute, "node/b".to_owned(), String::new(), REPLY), "{mode:?}");
        let mut broken = cluster(*mode);
        link(&mut broken, "node/b", 2).up = false;
        assert_eq!(found(&broken, &to_b()), (Fault::LinkDown, "node/b".to_owned(), "eth0".to_owned(), REQUEST), "{mode:?}");
    }
    let mut broken = cluster(Mode::Vxlan);
    of(&mut broken, "node/b").tables.push(dropping("inet", 1));
    assert_eq!(found(&broken, &to_b()), (Fault::TunnelBlocked, "node/b".to_owned(), "eth0".to_owned(), REQUEST));
    // Bridges of one network on each node, without a physical port, are not joined.
    let mut docker = cluster(Mode::Direct);
    for place in ["node/a", "node/b"] {
        link(&mut docker, place, 3).addresses.push(address("172.17.0.1/16"));
        link(&mut docker, place, 4).other = None;
    }
    let to_pod = found(&docker, &to_b());
    assert_ne!(to_pod.0, Fault::DuplicateAddress);
}

/// A route that a node lacks is named, though the default route leads to a router outside, which may know the way.
#[test]
fn a_router_outside_is_taken_for_whole() {
    for mode in BOTH {
        let found = found(&routed(*mode), &to_b());
        let whole = if *mode == Mode::Vxlan { Fault::Unexplained } else { Fault::GatewayMissing };
        assert_eq!(found.0, whole, "{mode:?}: only where nothing else is wrong: {found:?}");
        let mut broken = routed(*mode);
        of(&mut broken, "node/a").routes.retain(|route| route.to.to_string() != "10.244.1.0/24");
        assert_eq!(faults(&broken, &to_b()), (Fault::NoRoute, "node/a".to_owned()), "{mode:?}");
        let mut broken = routed(*mode);
        link(&mut broken, "node/b", 3).forwards_ipv4 = false;
        assert_eq!(faults(&broken, &to_b()), (Fault::ForwardingOff, "node/b".to_owned()), "{mode:?}");
    }
}

#[test]
fn hosts_outside() {
    let internet = Check {
        answerers: vec![Place::Outside("internet".to_owned())],
        expected: Expected::Answer(ExpectedSource::NotAs(vec![ip("10.244.0.2")])),
        ..check(B, "198.51.100.1")
    };
    assert_eq!(faults(&routed(Mode::Direct), &internet), (Fault::MasqueradeMissing, "node/a".to_owned()));
    let mut without = routed(Mode::Direct);
    of(&mut without, "node/a").routes.retain(|route| route.to.prefix_len() != 0);
    assert_eq!(faults(&without, &internet), (Fault::NoRoute, "node/a".to_owned()));
    // Somebody outside asks a node.
    let public = Check {
        from: Place::Outside("public".to_owned()),
        expected: Expected::Answer(ExpectedSource::Anyhow),
        ..check("node/b", "172.30.2.2")
    };
    assert_eq!(faults(&routed(Mode::Direct), &public).0, Fault::Unexplained);
    let mut guarded = routed(Mode::Direct);
    of(&mut guarded, "node/b").tables.push(dropping("inet", 1));
    assert_eq!(faults(&guarded, &public), (Fault::NodeFirewall, "node/b".to_owned()));
}

/// A node that could not be observed is said to be so where nothing else is wrong.
#[test]
fn a_node_that_is_not_observed() {
    let blind = |mode: Mode| {
        let mut snapshot = cluster(mode);
        let is_of_b = |place: &Place| [B, "node/b"].contains(&place.to_string().as_str());
        snapshot.namespaces.retain(|namespace| !is_of_b(&namespace.place));
        let unobserved = |place: &str| Unobserved { place: place.parse().unwrap(), why: "its agent does not answer".to_owned() };
        snapshot.unobserved = vec![unobserved(B), unobserved("node/b")];
        snapshot
    };
    let mut snapshot = blind(Mode::Direct);
    assert_eq!(faults(&snapshot, &to_b()), (Fault::NotObserved, B.to_owned()));
    of(&mut snapshot, A).routes.retain(|route| route.to.prefix_len() != 0);
    assert_eq!(faults(&snapshot, &to_b()), (Fault::NoDefaultRoute, A.to_owned()));
}

#[test]
fn one_of_several_answerers() {
    let service = Check { answerers: vec!["pod/default/a2".parse().unwrap(), B.parse().unwrap()], ..to_b() };
    let answered = |by: &str| Observation::Answered { by: by.to_owned(), seen: ip("10.244.0.2"), took: std::time::Duration::ZERO };
    assert_eq!(crate::judge::judge(&service, &answered(B)), None);
    assert_eq!(crate::judge::judge(&service, &answered("pod/default/a2")), None);
    let other = crate::judge::judge(&service, &answered("node/a")).unwrap();
    assert_eq!(other, "node/a answered at 10.244.1.2, not pod/default/a2 or pod/default/b");
}

#[test]
fn a_file_of_a_later_version_is_refused() {
    let snapshot = routed(Mode::Vxlan);
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(Snapshot::read(text.as_bytes()).unwrap(), snapshot);
    let later = text.replacen("\"version\":2", "\"version\":9, \"form\": \"another\"", 1);
    let said = Snapshot::read(later.as_bytes()).unwrap_err().to_string();
    assert_eq!(said, "the snapshot has version 9, this netloom reads up to 2: use the netloom that has taken it");
    assert!(Snapshot::read(b"{\"namespaces\": 3}").unwrap_err().to_string().contains("missing field `version`"));
}
