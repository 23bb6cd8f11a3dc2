//! A ledger that is lost with all nodes' objects, and nodes that went before, or go meanwhile: what outlives it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the scene is more than this needs")]

mod scene;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::Connection;
use netloom_operator::{Options, Running, reclaim, start, what_to_reclaim};
use objects::Store;
use scene::{API, DEFINITIONS, Fate, blocks, check, named, node, options, pool, request, run, store, until, way};
use serde_json::{Value, json};

const GRACE: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

/// Four blocks.
fn four(store: &Store) {
    pool(store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/26"}], "blockPrefix": 28}}));
}

fn operator(store: &Store, grace: Duration) -> Running {
    start(store.client(), Options { grace, ..options("one") })
}

/// What a node's agent says: which blocks it holds, and how many it wants.
async fn tells(store: &Store, node: &str, holds: &[String], wants: u64) {
    until("its object", || named(store, "NodeIPPool", node).is_some()).await;
    let holding: Vec<Value> = holds.iter().map(|cidr| json!({"cidr": cidr, "network": "p", "pool": "p", "epoch": 1})).collect();
    let demand = json!([{"pool": "p", "v4": wants * 16, "v6": 0, "inUseV4": 0, "inUseV6": 0}]);
    let agent = json!({"storeID": node, "bootID": "", "instance": "one"});
    let status = json!({"observedGeneration": 1, "agent": agent, "demand": demand, "holding": holding, "returning": []});
    let path = format!("/apis/{API}/nodeippools/{node}/status");
    request(&store.client(), "PATCH", &path, "application/merge-patch+json", &json!({ "status": status })).await.unwrap();
}

/// The nodes that are marked, by key.
fn marked(store: &Store) -> Vec<(String, String)> {
    let maps = store.objects("v1", "ConfigMap").unwrap();
    let map = maps.into_iter().find(|map| map["metadata"]["name"] == "netloom-ledgers").unwrap_or_default();
    let all = map["data"].as_object().cloned().unwrap_or_default();
    all.into_iter().map(|(key, value)| (key, value.as_str().unwrap().to_owned())).filter(|(_, value)| !value.is_empty()).collect()
}

/// Whether the agent of a node that is gone is to say that it lives.
fn is_asked(store: &Store, node: &str) -> bool {
    named(store, "NodeIPPool", node).is_some_and(|object| object["spec"]["reclaimAfterSeconds"].is_u64())
}

/// Why nothing is granted.
fn ready(store: &Store) -> String {
    let pool = named(store, "IPPool", "p").unwrap_or_default();
    let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().filter(|c| c["type"] == "Ready").map(|c| format!("{} {}", c["reason"], c["message"])).collect()
}

/// The definitions of the kinds are deleted, and all that is in them; then somebody makes them anew, and the pool.
fn everything_is_lost(store: &Store) {
    let documents = || DEFINITIONS.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    for kind in documents().filter(|document| document["kind"] == "CustomResourceDefinition") {
        let name = kind["metadata"]["name"].as_str().unwrap();
        store.remove("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name).unwrap();
    }
    documents().for_each(|document| store.put(&document).unwrap());
    for kind in ["IPPool", "NodeIPPool", "IPLedgerShard"] {
        assert_eq!(store.objects(API, kind).unwrap(), Vec::<Value>::new(), "{kind}");
    }
    four(store);
}

#[test]
fn who_went_a_moment_before_everything_was_lost_is_waited_for() {
    run(async {
        let store = store();
        four(&store);
        let uids = ["a", "b"].map(|name| node(&store, name));
        let first = operator(&store, HOUR);
        for node in ["a", "b"] {
            tells(&store, node, &[], 1).await;
            until("its block", || blocks(&store, node).len() == 1).await;
        }
        let own = blocks(&store, "b");
        // Its machine goes on.
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        until("its mark", || marked(&store) == [(format!("node.{}", uids[0]), "a".to_owned())]).await;
        until("that its agent is asked whether it lives", || is_asked(&store, "a")).await;
        drop(first);
        everything_is_lost(&store);
        let begun = tokio::time::Instant::now();
        let _second = operator(&store, GRACE);
        tells(&store, "b", &own, 4).await;
        until("that it is waited for", || ready(&store).contains("1 Node was deleted, but its pods may still run: a: wait")).await;
        loop {
            let (now, after) = (blocks(&store, "b"), begun.elapsed());
            if after >= GRACE {
                break;
            }
            assert!(now.iter().all(|block| own.contains(block)), "{now:?} after {after:?}");
            // Sleeps: between two looks.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        until("all blocks", || blocks(&store, "b").len() == 4).await;
        until("that nobody has to know of it any more", || marked(&store).is_empty()).await;
        check(&store);
    });
}

/// Whose Node is deleted before it has told what it holds has as much time, unless a person knows better.
#[test]
fn who_goes_before_it_has_told_is_waited_for_until_a_person_says_that_nothing_runs() {
    run(async {
        let store = store();
        let metadata = json!({"namespace": "kube-system", "name": "netloom-ledgers"});
        store.put(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"p.v4": ""}})).unwrap();
        four(&store);
        let uids = ["a", "b"].map(|name| node(&store, name));
        let first = operator(&store, HOUR);
        tells(&store, "b", &[], 1).await;
        until("that one has not told", || ready(&store).contains("1 node has not: a: start")).await;
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        until("that it is waited for", || ready(&store).contains("1 Node was deleted, but its pods may still run: a:")).await;
        until("its mark", || marked(&store) == [(format!("node.{}", uids[0]), "a".to_owned())]).await;
        until("that its agent is asked whether it lives", || is_asked(&store, "a")).await;
        // So does an operator that has not seen it, and cannot read for a while who has gone.
        drop(first);
        let away = Arc::new(AtomicBool::new(true));
        let is_away = Arc::clone(&away);
        let fate = move |_: &str, path: &str| match path.contains("/configmaps") && is_away.load(Ordering::Relaxed) {
            true => Fate::Lost,
            false => Fate::Arrives,
        };
        let _second = start(way(&store, fate), Options { grace: HOUR, ..options("two") });
        // Sleeps: the second operator goes on for a while, with and without an answer.
        tokio::time::sleep(Duration::from_secs(1)).await;
        away.store(false, Ordering::Relaxed);
        // Sleeps: that nothing is moved shows in time alone.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(blocks(&store, "b").is_empty());
        let connection = Connection::from(store.client());
        let what = what_to_reclaim(&connection, "a").await.unwrap();
        let lives: Vec<_> = what.lives.iter().map(|life| (life.uid.as_str(), life.is_there, life.is_marked, life.has.len())).collect();
        assert_eq!(lives, [(uids[0].as_str(), false, true, 0)]);
        reclaim(&connection, &what).await.unwrap();
        until("a block", || blocks(&store, "b").len() == 1).await;
        until("that nobody has to know of it any more", || marked(&store).is_empty() && named(&store, "NodeIPPool", "a").is_none()).await;
        assert!(what_to_reclaim(&connection, "a").await.is_err(), "nobody knows of it any more");
        check(&store);
    });
}

/// As long as its mark cannot be written nothing follows from a node's being gone.
#[test]
fn nobody_is_gone_before_that_is_marked() {
    run(async {
        let store = store();
        four(&store);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, away) = (Arc::clone(&asked), Arc::new(AtomicBool::new(false)));
        let is_away = Arc::clone(&away);
        let client = way(&store, move |method, path| {
            let mark = method != "GET" && path.contains("/configmaps");
            log.lock().unwrap().push(format!("{method} {path}"));
            if mark && is_away.load(Ordering::Relaxed) { Fate::Lost } else { Fate::Arrives }
        });
        let grace = options("one").grace;
        let _operator = start(client, options("one"));
        ["a", "b"].iter().for_each(|name| drop(node(&store, name)));
        tells(&store, "a", &[], 1).await;
        until("its block", || blocks(&store, "a").len() == 1).await;
        until("the root's mark", || asked.lock().unwrap().iter().any(|line| line.starts_with("POST") && line.ends_with("/configmaps")))
            .await;
        away.store(true, Ordering::Relaxed);
        asked.lock().unwrap().clear();
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        let tried = |what: &str| asked.lock().unwrap().iter().filter(|line| line.starts_with(what)).count();
        until("that it was tried", || tried("PUT") >= 2).await;
        // Sleeps: the grace time passes.
        tokio::time::sleep(grace * 2).await;
        assert!(named(&store, "NodeIPPool", "a").is_some() && marked(&store).is_empty());
        // Nobody else waits for that.
        tells(&store, "b", &[], 1).await;
        until("the other one's block", || blocks(&store, "b").len() == 1).await;
        away.store(false, Ordering::Relaxed);
        until("that its object is gone", || named(&store, "NodeIPPool", "a").is_none()).await;
        until("its blocks are free, and its mark is off", || marked(&store).is_empty()).await;
        check(&store);
    });
}
