//! An operator over definitions that are older than it: the API server keeps nothing of a field that they do not know.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the scene is more than this needs")]

mod scene;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use netloom_operator::{Options, start};
use objects::Store;
use scene::{API, Truth, agents, check, named, node, options, pool, run, store, until};
use serde_json::json;
use tower::ServiceExt;

/// A client of the store that loses a field of a kind, as long as that is so; and how often such objects were to be written, with that method.
fn older(
    store: &Store,
    so: &Arc<AtomicBool>,
    (kind, method): (&'static str, &'static str),
    loses: fn(&str) -> String,
) -> (kube::Client, Arc<AtomicUsize>) {
    let (service, so, asked) = (store.service(), Arc::clone(so), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (service, so, count) = (service.clone(), Arc::clone(&so), Arc::clone(&count));
        async move {
            let (parts, body) = request.into_parts();
            let mut text = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
            if parts.uri.path().contains(kind) && so.load(Ordering::Relaxed) {
                count.fetch_add(usize::from(parts.method == method), Ordering::Relaxed);
                text = loses(&text);
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
        let gathering = |text: &str| text.replace("\"gathering\":true,", "").replace(",\"gathering\":true", "");
        let (client, asked) = older(&store, &so, ("ipledgershards", "POST"), gathering);
        let _operator = start(client, options);
        until("it has asked twice", || asked.load(Ordering::Relaxed) >= 2).await;
        // Sleeps: that nothing is made shows in time alone.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(store.objects(API, "IPLedgerShard").unwrap().is_empty(), "a root that does not gather was made");
        so.store(false, Ordering::Relaxed);
        until("the root", || named(&store, "IPLedgerShard", "p.v4").is_some_and(|root| root["spec"]["gathering"] == json!(true))).await;
    });
}

/// What asks an agent whether it lives is not kept: it is not written again and again, and what the node had is free as it was before.
#[test]
fn who_cannot_be_asked_is_not_asked_for_ever() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/28"}], "blockPrefix": 28}}));
        let so = Arc::new(AtomicBool::new(false));
        let asking = |text: &str| text.replace(",\"reclaimAfterSeconds\":10", "");
        let (client, asked) = older(&store, &so, ("/nodeippools/a", "PATCH"), asking);
        let _operator = start(client, Options { grace: Duration::from_secs(10), ..options("new") });
        let [agent] = agents(&store, ["a"], &["p"], &truth);
        agent.wants("p", 1);
        until("a block", || truth.count() == 1).await;
        agent.stop();
        so.store(true, Ordering::Relaxed);
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        until("a question", || asked.load(Ordering::Relaxed) > 0).await;
        // Sleeps: that it is not asked again shows in time alone.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let object = named(&store, "NodeIPPool", "a").unwrap();
        assert_eq!((asked.load(Ordering::Relaxed), &object["spec"]["reclaimAfterSeconds"]), (1, &serde_json::Value::Null));
        until("that its object is gone", || named(&store, "NodeIPPool", "a").is_none()).await;
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        check(&store);
    });
}
