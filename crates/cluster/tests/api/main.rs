//! The caches, the writes and the errors against a real API server, which is stopped, killed and forgetful.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod claims;
mod follow;
mod gate;
mod nodes;
mod refuse;
mod tell;

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use netloom_cluster::{Cluster, Connection, client};
use testbed::ControlPlane;

/// A control plane in a directory of its own, with the custom resource of definitions.
fn plane(name: &str) -> ControlPlane {
    let dir: PathBuf = std::env::temp_dir().join(format!("netloom-cluster-{name}-{}", std::process::id()));
    let plane = ControlPlane::start(dir).expect("a control plane");
    plane.define_networks().expect("the custom resource");
    plane
}

/// Runs a test as the agent runs: on one thread.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

async fn admin(plane: &ControlPlane) -> Connection {
    client(Some(&plane.kubeconfig())).await.expect("a kubeconfig")
}

async fn start(plane: &ControlPlane) -> Cluster {
    let cluster = Cluster::start(admin(plane).await, "n1");
    until("both lists", || cluster.synced().complete()).await;
    cluster
}

/// Waits until it is so; how long it took.
async fn until(what: &str, so: impl Fn() -> bool) -> Duration {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < Duration::from_secs(90), "not in time: {what}");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begin.elapsed()
}

/// A pod that no kubelet will ever see, as JSON.
fn pod(name: &str, node: &str, networks: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "busybox", "resources": {"limits": {"intel.com/sriov": "2", "cpu": "1"}}}],
        },
    })
    .to_string()
}

fn definition(name: &str, config: &str) -> String {
    serde_json::json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": "default", "annotations": {"k8s.v1.cni.cncf.io/resourceName": "intel.com/sriov"}},
        "spec": {"config": config},
    })
    .to_string()
}

/// Makes an object with kubectl.
fn create(plane: &ControlPlane, object: &str) {
    plane.kubectl(&["create", "-f", "-"], object).expect("created");
}

fn delete(plane: &ControlPlane, kind: &str, name: &str) {
    plane.kubectl(&["delete", kind, name, "--force", "--grace-period=0", "--wait=true"], "").expect("deleted");
}
