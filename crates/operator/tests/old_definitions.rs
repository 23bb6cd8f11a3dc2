//! An operator over definitions that are older than it: the API server keeps nothing of a field that they do not know.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the scene is more than this needs")]

mod scene;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use netloom_operator::start;
use objects::Store;
use scene::{API, named, node, options, pool, run, store, until};
use serde_json::json;
use tower::ServiceExt;

/// A client of the store that loses what marks a root that gathers, as long as that is so; and how many shards it was to make.
fn older(store: &Store, so: &Arc<AtomicBool>) -> (kube::Client, Arc<AtomicUsize>) {
    let (service, so, asked) = (store.service(), Arc::clone(so), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (service, so, count) = (service.clone(), Arc::clone(&so), Arc::clone(&count));
        async move {
            let (parts, body) = request.into_parts();
            let mut text = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
            if parts.uri.path().contains("ipledgershards") && so.load(Ordering::Relaxed) {
                count.fetch_add(usize::from(parts.method == "POST"), Ordering::Relaxed);
                text = text.replace("\"gathering\":true,", "").replace(",\"gathering\":true", "");
            }
            let body = kube::client::Body::from(text.into_bytes());
            service.oneshot(Request::from_parts(parts, body)).await.map_err(tower::BoxError::from)
        }
    });
    (kube::Client::new(service, "default"), asked)
}

#[test]
fn nothing_is_granted_by_definitions_that_are_older() {
    run(async {
        let store = store();
        let options = options("new");
        let metadata = json!({"namespace": options.namespace, "name": "netloom-ledgers"});
        store.put(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"p.v4": ""}})).unwrap();
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 28}}));
        node(&store, "a");
        let so = Arc::new(AtomicBool::new(true));
        let (client, asked) = older(&store, &so);
        let _operator = start(client, options);
        until("it has asked twice", || asked.load(Ordering::Relaxed) >= 2).await;
        // Sleeps: that nothing is made shows in time alone.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(store.objects(API, "IPLedgerShard").unwrap().is_empty(), "a root that does not gather was made");
        so.store(false, Ordering::Relaxed);
        until("the root", || named(&store, "IPLedgerShard", "p.v4").is_some_and(|root| root["spec"]["gathering"] == json!(true))).await;
    });
}
