//! All pods of a node at once, many networks of a pod, networks that have the same addresses, networks of every size.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netloom_tests::addresses::Sighting;
use netloom_tests::{Node, Pod, sizes};
use serde_json::json;

use crate::granted::agreement::all_go;
use crate::granted::{Cluster, lab};

/// Makes pods, a few at a time.
fn pods<'n>(node: &'n Node, name: &str, count: usize, networks: &str) -> Vec<Pod<'n>> {
    let numbers: Vec<usize> = (0..count).collect();
    let made = std::thread::scope(|scope| {
        let some = |part: &[usize]| {
            let part = part.to_owned();
            scope.spawn(move || part.into_iter().map(|n| node.pod(&format!("{name}{n}"), networks)).collect::<Vec<_>>())
        };
        let parts: Vec<_> = numbers.chunks(count.div_ceil(8)).map(some).collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    made.into_iter().flatten().collect()
}

/// All of them at once; how long each took, the quickest first.
fn at_once(verb: &str, pods: &[Pod<'_>]) -> Vec<Duration> {
    let call = |pod: &Pod<'_>| {
        let begun = Instant::now();
        pod.must(verb);
        begun.elapsed()
    };
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        let calls: Vec<_> = pods.iter().map(|pod| scope.spawn(move || call(pod))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    took.sort();
    took
}

fn shown(took: &[Duration]) -> String {
    format!("half of them within {:?}, the last after {:?}", took[took.len() / 2], took[took.len() - 1])
}

/// How often the agent has written what it needs.
fn told(node: &Node) -> u64 {
    let figures = node.host.sh("", "curl -s http://127.0.0.1:9180/metrics");
    let ours = |line: &&str| line.contains("_api_requests_total{") && line.contains("nodeippools/status");
    figures.lines().filter(ours).map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Five hundred pods of one node at once, from nothing in advance; then half of them go while as many come.
#[test]
fn five_hundred_pods_of_a_node_at_once() {
    const PODS: usize = 500;
    let cluster = Cluster::new("crowd");
    let spec = json!({"ipv4": {"entries": [{"cidr": "10.24.0.0/22"}], "blockPrefix": 26, "gateway": "10.24.0.1"}, "scaling": {"preAllocate": 0}, "reuse": {"cooldownSeconds": 0}});
    cluster.pool("lab", &spec);
    let node = cluster.node("crowd-a");
    let mut all = pods(&node, "p", PODS, "");
    let late = pods(&node, "late", PODS / 2, "");
    let begun = Instant::now();
    let took = at_once("ADD", &all);
    println!("O4: {PODS} pods after {:?}: {}; O5: {} writes of the agent", begun.elapsed(), shown(&took), told(&node));
    assert!(told(&node) <= 30, "{} writes for {PODS} pods", told(&node));
    assert_eq!(cluster.agree(&[(&node, &all)], &["lab"]).len(), PODS);
    let gone: Vec<Pod<'_>> = all.drain(..PODS / 2).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| at_once("DEL", &gone));
        scope.spawn(|| at_once("ADD", &late));
    });
    drop(gone);
    all.extend(late);
    let nodes: [(&Node, &[Pod<'_>]); 1] = [(&node, &all)];
    assert_eq!(cluster.agree(&nodes, &["lab"]).len(), PODS);
    all_go(&nodes);
}

/// Each pod has sixteen networks besides the default one, and one of them twice. All have the same addresses; two are pools of one network,
/// that may not give out the same.
#[test]
fn sixteen_networks_of_a_pod_and_one_of_them_twice() {
    const PODS: usize = 128;
    let cluster = Cluster::new("many");
    let names: Vec<String> = (1..=16).map(|n| format!("lan{n}")).collect();
    let network = |name: &str| if ["lan15", "lan16"].contains(&name) { "shared".to_owned() } else { name.to_owned() };
    for name in ["lab"].into_iter().chain(names.iter().map(String::as_str)) {
        let spec = json!({"network": network(name), "ipv4": {"entries": [{"cidr": "10.25.0.0/22"}], "blockPrefix": 26, "gateway": "10.25.0.1"},
            "scaling": {"preAllocate": 0}, "reuse": {"cooldownSeconds": 0}});
        cluster.pool(name, &spec);
    }
    let node = cluster.node("many-a");
    for name in &names {
        let config = json!({"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": format!("br-{name}"),
            "ipam": {"type": "pool", "pool": name, "addWait": 60}});
        node.define(name, &config.to_string());
    }
    let selected: Vec<String> = names.iter().chain([&names[0]]).cloned().collect();
    let all = pods(&node, "p", PODS, &selected.join(","));
    let before = told(&node);
    let first = at_once("ADD", &all[..1]);
    println!("O4: a cold pod with 18 interfaces: {}; O5: {} writes of the agent", shown(&first), told(&node) - before);
    // One for all networks; another one where the first has met the object before its terms were there.
    assert!(told(&node) - before <= 8, "{} writes for a pod", told(&node) - before);
    let begun = Instant::now();
    let took = at_once("ADD", &all[1..]);
    println!("O4: {} pods with 18 interfaces each after {:?}: {}", PODS - 1, begun.elapsed(), shown(&took));
    let networks: Vec<String> = std::iter::once("lab".to_owned()).chain(selected.iter().map(|name| network(name))).collect();
    let networks: Vec<&str> = networks.iter().map(String::as_str).collect();
    let nodes: [(&Node, &[Pod<'_>]); 1] = [(&node, &all)];
    let live = cluster.agree(&nodes, &networks);
    assert_eq!(live.len(), PODS * 18);
    let of = |network: &str| live.iter().filter(|one| one.network == network).map(|one| one.address).collect::<BTreeSet<IpAddr>>();
    assert_eq!([of("lan1").len(), of("lan2").len(), of("shared").len()], [2 * PODS, PODS, 2 * PODS]);
    assert!(!of("lan2").is_disjoint(&of("lan3")), "networks do not share addresses: {:?}", of("lan2"));
    all_go(&nodes);
}

/// As many pods as small networks have addresses get all of them, and no other; of those that are too large to be used up each has one. The
/// node has a name with periods.
#[test]
fn every_address_of_every_size_once() {
    let cluster = Cluster::new("sizes");
    cluster.pool("lab", &lab());
    let node = cluster.node("node.with.periods");
    for (name, spec) in sizes::pools() {
        cluster.pool(name, &spec);
        for (definition, wait) in [(name.to_owned(), 60), (format!("{name}-now"), 0)] {
            let config = json!({"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": format!("br-{name}"),
                "ipam": {"type": "pool", "pool": name, "addWait": wait}});
            node.define(&definition, &config.to_string());
        }
    }
    let mut held: Vec<(Vec<Pod<'_>>, Vec<&str>)> = Vec::new();
    for n in 0..sizes::PODS {
        let selected = sizes::networks(n);
        let pod = node.pod(&format!("p{n}"), &selected.join(","));
        pod.must("ADD");
        held.push((vec![pod], std::iter::once("lab").chain(selected).collect()));
    }
    let live: Vec<Sighting> = held.iter().flat_map(|(pods, networks)| cluster.seen(&node, pods, networks)).collect();
    cluster.expect(&live);
    assert_eq!(crate::granted::agreement::leased(&node).len(), live.len());
    sizes::complete(&live);
    // There is no more.
    for (name, _) in sizes::pools().iter().filter(|(name, _)| !name.starts_with("huge")) {
        let late = node.pod(&format!("late-{name}"), &format!("{name}-now"));
        let refused = late.add();
        assert!(refused.code != 0 && refused.error()["code"] == json!(11), "{name}: {refused:?}");
        late.must("DEL");
    }
    let all: Vec<Pod<'_>> = held.into_iter().flat_map(|(pods, _)| pods).collect();
    all_go(&[(&node, &all)]);
}
