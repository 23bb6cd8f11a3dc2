//! Nodes that are granted blocks, use them and give them back.

use std::collections::BTreeSet;

use netloom_tests::Pod;
use serde_json::json;

use crate::granted::{Cluster, ipam, ips, lab};

#[test]
fn pods_of_two_nodes_have_addresses_that_nobody_else_has() {
    let cluster = Cluster::new("two");
    cluster.pool("lab", &lab());
    let nodes = ["gone-a", "gone-b"].map(|name| cluster.node(name));
    let befores = nodes.each_ref().map(|node| node.before());
    let mut all = BTreeSet::new();
    let pods = nodes.each_ref().map(|node| (0..10).map(|n| node.pod(&format!("p{n}"), "")).collect::<Vec<Pod<'_>>>());
    // More than a block has: some wait for another one.
    for pod in pods.iter().flatten() {
        let got = ips(&pod.must("ADD"));
        assert_eq!(got.len(), 2, "{got:?}");
        got.into_iter().for_each(|ip| assert!(all.insert(ip.clone()), "{ip} twice"));
    }
    pods.iter().flatten().for_each(|pod| drop(pod.must("CHECK")));
    for (node, pods) in nodes.iter().zip(&pods) {
        assert!(node.host.pings(&pods[0].sandbox(), "10.20.0.1") && node.host.pings(&pods[9].sandbox(), "fd00:20::1"));
        pods.iter().for_each(|pod| drop(pod.must("DEL")));
    }
    drop(pods);
    for (node, before) in nodes.iter().zip(&befores) {
        node.expect(before, "ten pods");
        let figures = node.host.sh("", "curl -s http://127.0.0.1:9180/metrics");
        let has = |line: &str| figures.lines().any(|l| l == line);
        assert!(has("netloom_ipam_addresses{pool=\"lab\",family=\"ipv4\",state=\"used\"} 0"), "{figures}");
        assert!(has("netloom_ipam_add_seconds_count{result=\"granted\"} 10"), "{figures}");
        assert!(has("netloom_agent_api_requests_total{verb=\"patch\",resource=\"pods/status\"} 10"), "{figures}");
    }
    // All but what is kept ready goes back, and each agent tells that it has what it was granted.
    for node in &nodes {
        node.until("one block of each family", || cluster.blocks(&node.name).len() == 2);
        node.until("the agent has told of it", || {
            let object = cluster.object(&node.name);
            object["status"]["observedGeneration"] == object["metadata"]["generation"]
        });
    }
}

/// A pool of six addresses, more pods than that: they run when others go.
#[test]
fn more_pods_than_the_cluster_has_addresses() {
    let cluster = Cluster::new("few");
    cluster.pool(
        "lab",
        &json!({"ipv4": {"entries": [{"range": "10.20.0.8-10.20.0.13"}], "blockPrefix": 30, "prefixLength": 24, "gateway": "10.20.0.1"},
            "scaling": {"preAllocate": 0, "releaseDelaySeconds": 1}, "reuse": {"cooldownSeconds": 1}}),
    );
    let node = cluster.node("few-a");
    let pods: Vec<Pod<'_>> = (0..12).map(|n| node.pod(&format!("p{n}"), "")).collect();
    let first: BTreeSet<String> = pods[..6].iter().flat_map(|pod| ips(&pod.must("ADD"))).collect();
    assert_eq!(first.len(), 6);
    // Of two blocks of four two addresses are nobody's to have: nothing is free, which is no fault of this node's.
    let figures = node.host.sh("", "curl -s http://127.0.0.1:9180/metrics");
    let of = |state: &str, n: u64| format!("netloom_ipam_addresses{{pool=\"lab\",family=\"ipv4\",state=\"{state}\"}} {n}\n");
    for line in [of("used", 6), of("free", 0), of("reserved", 0)] {
        assert!(figures.contains(&line), "{line}{figures}");
    }
    assert!(!figures.contains("netloom_ipam_refill_seconds_count 0\n") && figures.contains("netloom_ipam_lock_seconds_count"), "{figures}");
    let told = ipam(&node, &["status", "lab"]);
    assert_eq!((&told[0]["origin"], &told[0]["held"], &told[0]["free"]), (&"cluster".into(), &6.into(), &0.into()), "{told}");
    let second: BTreeSet<String> = std::thread::scope(|scope| {
        let adds: Vec<_> = pods[6..].iter().map(|pod| scope.spawn(|| ips(&pod.must("ADD")))).collect();
        // All of them wait, and no DEL waits behind them.
        pods[..6].iter().for_each(|pod| drop(pod.must("DEL")));
        adds.into_iter().flat_map(|add| add.join().unwrap()).collect()
    });
    assert_eq!(second, first);
    pods[6..].iter().for_each(|pod| drop(pod.must("DEL")));
    node.until("everything is given back", || cluster.blocks("few-a").is_empty());
}

/// All blocks of a pool are other nodes', which use none of them: who waits gets one, and what is in use stays.
#[test]
fn blocks_that_other_nodes_do_not_use() {
    let cluster = Cluster::new("idle");
    cluster.pool(
        "lab",
        &json!({"ipv4": {"entries": [{"cidr": "10.20.0.16/28"}], "blockPrefix": 30, "prefixLength": 24, "gateway": "10.20.0.1"},
            "allowFirstIP": true, "allowLastIP": true, "scaling": {"preAllocate": 8, "releaseDelaySeconds": 3600}}),
    );
    let [idle, busy] = ["idle-a", "idle-b"].map(|name| cluster.node(name));
    let has = |node: &str| cluster.blocks(node).len();
    busy.until("all blocks are somebody's", || has("idle-a") == 2 && has("idle-b") == 2);
    let kept = idle.pod("kept", "");
    let kept_ip = ips(&kept.must("ADD"));
    let pods: Vec<Pod<'_>> = (0..12).map(|n| busy.pod(&format!("p{n}"), "")).collect();
    let all: BTreeSet<String> = pods.iter().flat_map(|pod| ips(&pod.must("ADD"))).chain(kept_ip).collect();
    assert_eq!(all.len(), 13, "{all:?}");
    assert_eq!((has("idle-a"), has("idle-b")), (1, 3));
    kept.must("CHECK");
    kept.must("DEL");
    pods.iter().for_each(|pod| drop(pod.must("DEL")));
}

/// The API server is gone, the agent is killed and starts again: what was granted is handed out, what is held is kept.
#[test]
fn without_an_api_server() {
    let cluster = Cluster::new("away");
    cluster.pool("lab", &lab());
    let node = cluster.node("away-a");
    let (lasting, pod) = (node.pod("lasting", ""), node.pod("web", ""));
    let kept = ips(&lasting.must("ADD"));
    node.until("blocks", || cluster.blocks("away-a").len() >= 2);
    cluster.api.stop();
    let got = ips(&pod.must("ADD"));
    pod.must("DEL");
    node.serve();
    // Its pods are not known to this agent, its addresses are.
    lasting.must("CHECK");
    let beside = crate::granted::pool_plugin::alone(&node, "other", "lab");
    let other = ips(&beside("ADD"));
    assert!(other.iter().all(|ip| !kept.contains(ip)) && other.len() == 2, "{other:?} {kept:?} {got:?}");
    beside("DEL");
    lasting.must("DEL");
    cluster.api.start();
    pod.renew();
    node.until("the agent knows the pod", || pod.add().code == 0);
    pod.must("DEL");
}

/// The operator is killed again and again while pods come and go.
#[test]
fn an_operator_that_comes_and_goes() {
    let mut cluster = Cluster::new("operator");
    cluster.pool("lab", &lab());
    let node = cluster.node("operator-a");
    for round in 0..3 {
        let pods: Vec<Pod<'_>> = (0..9).map(|n| node.pod(&format!("r{round}p{n}"), "")).collect();
        let all: BTreeSet<String> = std::thread::scope(|scope| {
            let adds: Vec<_> = pods.iter().map(|pod| scope.spawn(|| ips(&pod.must("ADD")))).collect();
            cluster.stop_operator();
            cluster.operate();
            adds.into_iter().flat_map(|add| add.join().unwrap()).collect()
        });
        assert_eq!(all.len(), 18, "{all:?}");
        pods.iter().for_each(|pod| drop(pod.must("DEL")));
    }
    node.until("one block of each family", || cluster.blocks("operator-a").len() == 2);
}
