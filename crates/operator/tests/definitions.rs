//! Definitions that were made for whereabouts, and the IPPools that come of them, over an object store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::future::Future;
use std::time::{Duration, Instant};

use netloom_operator::{LogLevel, Options, Running, start};
use objects::Store;
use serde_json::{Value, json};

const API: &str = "netloom.io/v1alpha1";
const NAD: &str = "k8s.cni.cncf.io/v1";
/// The kinds as they are deployed.
const KINDS: [&str; 2] = [include_str!("../../../deploy/ippools.yaml"), include_str!("../../../deploy/definition.yaml")];

fn store() -> Store {
    let store = Store::new();
    for document in KINDS.iter().flat_map(|file| file.split("\n---\n")) {
        store.put(&serde_saphyr::from_str::<Value>(document).unwrap()).unwrap();
    }
    store
}

fn operator(store: &Store) -> Running {
    start(store.client(), Options { lease: false, writes_per_second: 100_000, log_level: LogLevel::Off, ..Options::new("test") })
}

/// Runs a test as the operator runs: on one thread.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

async fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(90), "not in time: {what}");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn define(store: &Store, name: &str, config: &Value) {
    let metadata = json!({"namespace": "default", "name": name});
    store.put(&json!({"apiVersion": NAD, "kind": "NetworkAttachmentDefinition", "metadata": metadata, "spec": {"config": config.to_string()}})).unwrap();
}

fn range(range: &str) -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "ipam": {"type": "whereabouts", "range": range}})
}

fn pools(store: &Store) -> Vec<String> {
    let mut names: Vec<String> =
        store.objects(API, "IPPool").unwrap().iter().map(|o| o["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn pool(store: &Store, name: &str) -> Value {
    store.objects(API, "IPPool").unwrap().into_iter().find(|object| object["metadata"]["name"] == name).unwrap_or_default()
}

fn definitions(store: &Store, name: &str) -> String {
    pool(store, name)["metadata"]["annotations"]["netloom.io/definitions"].as_str().unwrap_or("none").to_owned()
}

async fn ask(store: &Store, method: &str, path: &str, body: &Value) {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/merge-patch+json").body(body).unwrap();
    store.client().request::<Value>(request).await.unwrap();
}

async fn undefine(store: &Store, name: &str) {
    ask(store, "DELETE", &format!("/apis/{NAD}/namespaces/default/network-attachment-definitions/{name}"), &Value::Null).await;
}

/// What a node needs of a pool.
async fn demand(store: &Store, node: &str, pool: &str, v4: u64) {
    let status = json!({"status": {"demand": [{"pool": pool, "v4": v4, "v6": 0}]}});
    ask(store, "PATCH", &format!("/apis/{API}/nodeippools/{node}/status"), &status).await;
}

fn blocks(store: &Store, node: &str) -> Vec<Value> {
    let all = store.objects(API, "NodeIPPool").unwrap();
    let object = all.into_iter().find(|object| object["metadata"]["name"] == node).unwrap_or_default();
    object["spec"]["blocks"].as_array().cloned().unwrap_or_default()
}

const NAME: &str = "whereabouts-10.9.0.0-24";

#[test]
fn pools_come_and_go_with_their_definitions() {
    run(async {
        let store = store();
        define(&store, "first", &range("10.9.0.0/24"));
        define(&store, "wrong", &range("nonsense"));
        define(&store, "other", &json!({"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.8.0.0/24"}}));
        let _operator = operator(&store);
        until("a pool is made", || pools(&store) == [NAME]).await;
        let made = pool(&store, NAME);
        assert_eq!(made["metadata"]["labels"]["netloom.io/definitions"], "whereabouts");
        assert_eq!(
            (&made["spec"]["network"], &made["spec"]["ipv4"]["entries"]),
            (&json!("whereabouts"), &json!([{"range": "10.9.0.1-10.9.0.254"}]))
        );
        // What somebody says of it is so.
        ask(&store, "PATCH", &format!("/apis/{API}/ippools/{NAME}"), &json!({"spec": {"reuse": {"cooldownSeconds": 77}}})).await;
        define(&store, "second", &json!({"plugins": [range("10.9.0.77/24"), {"type": "tuning"}]}));
        define(&store, "third", &range("fd00:9::/64"));
        until("two mean it", || definitions(&store, NAME) == "default/first,default/second").await;
        until("another range", || pools(&store) == [NAME, "whereabouts-fd00-9--0-64"]).await;
        assert_eq!(pool(&store, NAME)["spec"]["reuse"]["cooldownSeconds"], 77);
        undefine(&store, "first").await;
        undefine(&store, "third").await;
        until("a pool that nobody means is gone", || pools(&store) == [NAME]).await;
        assert_eq!(definitions(&store, NAME), "default/second");
        // One list of each serves all: what came later was told by watches.
        for kind in ["network-attachment", "ippools"] {
            let lists = store.requests().into_iter().filter(|((verb, resource), _)| *verb == "list" && resource.starts_with(kind));
            assert!(lists.map(|(_, count)| count).max() == Some(1), "{kind}: {:?}", store.requests());
        }
    });
}

#[test]
fn a_pool_that_somebody_has_addresses_of_stays() {
    run(async {
        let store = store();
        store.put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).unwrap();
        define(&store, "first", &range("10.9.0.0/24"));
        let _operator = operator(&store);
        until("a node may use it", || {
            let all = store.objects(API, "NodeIPPool").unwrap();
            all.iter().any(|object| object["spec"]["pools"][NAME].is_object())
        })
        .await;
        demand(&store, "n1", NAME, 2).await;
        until("it gets two addresses", || blocks(&store, "n1").len() == 2).await;
        let held = blocks(&store, "n1");
        assert!(held.iter().all(|block| block["cidr"].as_str().unwrap().ends_with("/32")), "{held:?}");
        undefine(&store, "first").await;
        until("nobody means it", || definitions(&store, NAME).is_empty()).await;
        // Somebody means it again, before it could go.
        define(&store, "again", &range("10.9.0.0/24"));
        until("somebody does", || definitions(&store, NAME) == "default/again").await;
        undefine(&store, "again").await;
        until("nobody means it any more", || definitions(&store, NAME).is_empty()).await;
        assert_eq!(pool(&store, NAME)["metadata"]["deletionTimestamp"], Value::Null, "the node has two addresses of it");
        let returning: Vec<Value> = held.iter().map(|b| json!({"cidr": b["cidr"], "pool": NAME, "epoch": b["epoch"]})).collect();
        ask(&store, "PATCH", &format!("/apis/{API}/nodeippools/n1/status"), &json!({"status": {"demand": [], "returning": returning}}))
            .await;
        until("it goes when the node has given them back", || pools(&store).is_empty()).await;
    });
}
