//! What the caches of a full node cost: 110 pods and 1,000 definitions, of which most is skipped while it is read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use netloom_cluster::{Cluster, client};
use serde_json::json;
use testbed::ControlPlane;

/// What this whole process may have of memory that is no file's, in KiB: caches, watches, TLS connections, and what the
/// largest answer left behind. It was 3,400.
const LIMIT: usize = 6 * 1024;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A pod of about 8 KB, as a Deployment's are.
fn pod(i: usize) -> String {
    let env: Vec<_> = (0..60).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "something that is of some length"})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{i}"), "namespace": "default", "annotations": {"k8s.v1.cni.cncf.io/networks": "net1,net2,net3"}},
        "spec": {"nodeName": "n1", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "busybox", "env": env}]},
    })
    .to_string()
}

fn definition(i: usize) -> String {
    let config = format!(
        r#"{{"cniVersion":"1.0.0","name":"net{i}","plugins":[{{"type":"macvlan","master":"eth1","mode":"bridge","ipam":{{"type":"host-local","ranges":[[{{"subnet":"10.1.0.0/16"}}]]}}}}]}}"#
    );
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": format!("net{i}"), "namespace": "default"}, "spec": {"config": config},
    })
    .to_string()
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_full_node_is_small() {
    let dir = std::env::temp_dir().join(format!("netloom-cluster-memory-{}", std::process::id()));
    let plane = ControlPlane::start(dir).unwrap();
    plane.define_networks().unwrap();
    {
        let all: Vec<String> = (0..110).map(pod).chain((0..1000).map(definition)).collect();
        plane.kubectl(&["create", "-f", "-"], &all.join("\n")).unwrap();
    }
    let before = resident();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::start(client(Some(&plane.kubeconfig())).await.unwrap(), "n1");
        let begin = Instant::now();
        while !cluster.synced().complete() {
            assert!(begin.elapsed() < Duration::from_secs(90), "{:?}", cluster.synced());
            // Sleeps: between two looks.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let listed = begin.elapsed();
        assert_eq!(cluster.pods().len(), 110);
        // Sleeps: what was freed is given back to the kernel a little later.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = resident();
        println!("listed in {listed:?}, {now} KiB now, {before} KiB before");
        assert!(now < LIMIT, "{now} KiB with a full node's caches");
    });
}
