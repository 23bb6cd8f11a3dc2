//! What was observed of a real cluster with two nodes, in each of kube-proxy's modes: every way is followed to its end, and what is broken there
//! is named.
//!
//! `netloom verify --cluster --record FILE` has written it; `captured/keep.py` has kept some of the many Services.

use crate::snapshot::Snapshot;
use crate::{Check, Expected, Fault, Observation, Place, Planned, explain, plan, predict};

const NFTABLES: &[u8] = include_bytes!("captured/nftables.json");
const IPTABLES: &[u8] = include_bytes!("captured/iptables.json");

fn modes() -> [(&'static str, Snapshot); 2] {
    [("nftables", NFTABLES), ("iptables", IPTABLES)].map(|(mode, text)| (mode, Snapshot::read(text).unwrap()))
}

/// The questions of the cases of the matrix.
fn checks(snapshot: &Snapshot) -> Vec<Check> {
    let planned = plan(snapshot.site.as_ref().unwrap());
    let check = |planned| match planned {
        Planned::Check(check) if check.case.id.parse::<u8>().is_ok() => Some(check),
        _ => None,
    };
    planned.into_iter().filter_map(check).collect()
}

fn of_case(snapshot: &Snapshot, id: &str) -> Vec<Check> {
    let checks: Vec<Check> = checks(snapshot).into_iter().filter(|check| check.case.id == id).collect();
    assert!(!checks.is_empty(), "{id}");
    checks
}

/// Whether a rule of kube-proxy rewrites a destination in each mode is seen by every path that arrives: to no Service leads a route.
#[test]
fn every_question_of_a_whole_cluster_arrives() {
    for (mode, snapshot) in modes() {
        let checks = checks(&snapshot);
        let cases: std::collections::BTreeSet<&str> = checks.iter().map(|check| check.case.id).collect();
        assert!(cases.len() >= 44, "{mode}: {cases:?}");
        for check in &checks {
            let (from, whom, case) = (&check.from, check.whom(), check.case.id);
            let what = format!("{mode} {case}: {from} to {whom} at {} port {} over {}", check.address, check.port, check.protocol);
            let finding = explain(&snapshot, check, &Observation::Silent);
            match check.expected {
                Expected::Answer(_) => assert_eq!(finding.fault, Fault::Unexplained, "{what}: {finding}"),
                _ => assert!(!matches!(predict(&snapshot, check), Observation::Answered { .. }), "{what}: {finding}"),
            }
        }
    }
}

/// The node whose Services are broken, and the questions that meet it: a pod's there, at a Service of another node's pod.
fn broken_node(snapshot: &Snapshot) -> (Place, Vec<Check>) {
    let node = snapshot.site.as_ref().unwrap().nodes[0].clone();
    let home = |place: &Place| snapshot.namespaces.iter().find(|namespace| namespace.place == *place).unwrap().node.clone();
    let checks = of_case(snapshot, "21").into_iter().filter(|check| home(&check.from).as_ref() == Some(&node.name)).collect();
    (node.place(), checks)
}

fn each_is(what: &str, snapshot: &Snapshot, checks: &[Check], fault: Fault, at: &Place) {
    assert!(!checks.is_empty(), "{what}");
    for check in checks {
        let finding = explain(snapshot, check, &Observation::Silent);
        assert_eq!((finding.fault, &finding.place), (fault, at), "{what}: {finding}");
    }
}

#[test]
fn kube_proxy_gone_is_named_on_the_node() {
    for (mode, mut snapshot) in modes() {
        let (node, checks) = broken_node(&snapshot);
        let tables = &mut snapshot.namespaces.iter_mut().find(|namespace| namespace.place == node).unwrap().tables;
        tables.retain(|table| table.name != "kube-proxy" && !table.chains.iter().any(|chain| chain.name.starts_with("KUBE-")));
        each_is(mode, &snapshot, &checks, Fault::ServiceUnserved, &node);
        // The other node serves as before.
        for check in of_case(&snapshot, "21").iter().filter(|check| !checks.iter().any(|broken| broken.from == check.from)) {
            assert_eq!(explain(&snapshot, check, &Observation::Silent).fault, Fault::Unexplained, "{mode}");
        }
    }
}

/// The pod's address has changed, and kube-proxy's rules have not.
#[test]
fn rules_older_than_the_endpoints_are_named_on_the_node() {
    for (mode, mut snapshot) in modes() {
        let (node, checks) = broken_node(&snapshot);
        let answerer = checks[0].answerers[0].clone();
        let pods = &mut snapshot.site.as_mut().unwrap().pods;
        let pod = pods.iter_mut().find(|pod| pod.place() == answerer).unwrap();
        pod.attachments[0].addresses = vec!["10.244.200.200".parse().unwrap()];
        let namespace = snapshot.namespaces.iter_mut().find(|namespace| namespace.place == answerer).unwrap();
        namespace.links.iter_mut().for_each(|link| link.addresses.clear());
        each_is(mode, &snapshot, &checks, Fault::EndpointStale, &node);
    }
}

/// Behind a Service of two pods, on two nodes, one is broken: it is the one that is named.
#[test]
fn the_broken_endpoint_of_two_is_named() {
    for (mode, whole) in modes() {
        let service =
            whole.site.as_ref().unwrap().services.iter().find(|service| service.backends.len() == 2 && !service.is_local).unwrap().clone();
        for backend in &service.backends {
            let mut snapshot = whole.clone();
            let namespace = snapshot.namespaces.iter_mut().find(|namespace| namespace.place == *backend).unwrap();
            namespace.links.iter_mut().flat_map(|link| &mut link.addresses).for_each(|address| address.usable = false);
            let from = whole.site.as_ref().unwrap().nodes.iter().map(|node| node.place()).next().unwrap();
            let mut check = of_case(&whole, "21").remove(0);
            (check.from, check.answerers, check.address) = (from, service.backends.clone(), service.cluster_ips[0]);
            each_is(mode, &snapshot, &[check], Fault::AddressUnusable, backend);
        }
    }
}
