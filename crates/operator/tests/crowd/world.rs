//! The API server's double with nodes and a pool, and what a process needs of the machine.

use std::time::{Duration, Instant};

use kube::core::Object;
use netloom_operator::{LogLevel, Options};
use objects::Store;
use serde_json::{Value, json};

/// The definitions of our kinds, as they are deployed.
const DEFINITIONS: &str = include_str!("../../../../deploy/ippools.yaml");

/// The pool that all have.
pub(crate) const POOL: &str = "pods";

/// A node's object.
pub(crate) type NodePool = Object<api::NodeIpPoolSpec, api::NodeIpPoolStatus>;

/// A store with so many nodes, and a pool.
pub(crate) fn store(nodes: usize, pool: &Value) -> Store {
    let store = Store::new();
    // Of a watch that was lost in a crowd as large as this, what it has missed is still known.
    store.keep(100_000);
    store.install_network_attachment_definitions();
    for document in DEFINITIONS.split("\n---\n") {
        store.put(&serde_saphyr::from_str::<Value>(document).unwrap()).unwrap();
    }
    for name in (0..nodes).map(node) {
        let labels = json!({"kubernetes.io/hostname": name});
        store.put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})).unwrap();
    }
    let object = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": POOL}, "spec": pool});
    store.put(&object).unwrap();
    store
}

pub(crate) fn node(number: usize) -> String {
    format!("node-{number:05}")
}

/// An operator that is alone.
pub(crate) fn options(identity: &str, writes_per_second: u32) -> Options {
    let mut options = Options::new(identity);
    options.lease = false;
    options.writes_per_second = writes_per_second;
    options.log_level = LogLevel::Off;
    options
}

/// How many writes of our kinds the store was asked for.
pub(crate) fn writes(store: &Store) -> u64 {
    let ours = |resource: &str| resource.split('/').next().is_some_and(|r| r.ends_with(".netloom.io"));
    let all = store.requests().into_iter();
    all.filter(|((verb, resource), _)| !matches!(*verb, "get" | "list" | "watch") && ours(resource)).map(|(_, n)| n).sum()
}

pub(crate) async fn until(what: &str, most: Duration, mut so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < most, "not in time: {what}");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

/// So many looks in a row, two seconds at least: where the machine is slow, so is whoever writes.
const LOOKS: u32 = 400;

/// Until nobody has written anything for a while.
pub(crate) async fn quiet(store: &Store) {
    let (mut last, mut looks) = (writes(store), 0);
    until("nobody writes", Duration::from_secs(120), || {
        let now = writes(store);
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        looks >= LOOKS
    })
    .await;
}

/// A line of what `/proc` says of a process's memory, in MiB.
pub(crate) fn memory_of(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}
