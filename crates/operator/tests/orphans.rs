//! Nodes that are deleted while their agents live: what they have is theirs as long as they say so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the scene is more than this needs")]

mod scene;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netloom_operator::{Options, Running, start};
use objects::Store;
use scene::{API, Agent, Fate, Truth, agents, blocks, check, delete, named, node, options, pool, request, run, store, until, way};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const GRACE: Duration = Duration::from_secs(10);

/// A node that has the only block, and another one that waits for it. The first one's agent does nothing by itself any more.
async fn two(store: &Store, truth: &Truth) -> [Agent; 2] {
    pool(store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/28"}], "blockPrefix": 28}}));
    let [a] = agents(store, ["a"], &["p"], truth);
    a.wants("p", 1);
    until("its block", || truth.count() == 1).await;
    a.stop();
    let [b] = agents(store, ["b"], &["p"], truth);
    b.wants("p", 1);
    [a, b]
}

fn operator(client: kube::Client) -> Running {
    start(client, Options { grace: GRACE, ..options("one") })
}

fn is_asked(store: &Store) -> bool {
    named(store, "NodeIPPool", "a").is_some_and(|object| object["spec"]["reclaimAfterSeconds"] == GRACE.as_secs())
}

/// The Node `a` is deleted, and its agent is asked whether it lives.
async fn loses_its_node(store: &Store) {
    assert!(store.remove("v1", "Node", "", "a").unwrap());
    until("that it is asked", || is_asked(store)).await;
}

/// The agent of the node `a` says that it lives: what it says is another thing each time.
async fn speaks(store: &Store, second: u64) {
    let at = format!("2026-01-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
    let path = format!("/apis/{API}/nodeippools/a/status");
    let patch = json!({"status": {"aliveAt": at}});
    request(&store.client(), "PATCH", &path, "application/merge-patch+json", &patch).await.unwrap();
}

#[test]
fn what_a_node_has_is_its_own_as_long_as_its_agent_says_that_it_lives() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        let _operator = operator(store.client());
        let [_a, b] = two(&store, &truth).await;
        loses_its_node(&store).await;
        for second in 0..60 {
            speaks(&store, second).await;
            // Sleeps: an agent says it so often.
            sleep(GRACE / 4).await;
            assert!(named(&store, "NodeIPPool", "a").is_some() && blocks(&store, "b").is_empty(), "after {second}");
        }
        let silent = Instant::now();
        truth.off("a");
        until("that its object is gone", || named(&store, "NodeIPPool", "a").is_none()).await;
        assert!(silent.elapsed() >= GRACE / 2, "{:?}", silent.elapsed());
        until("the block of the other one", || blocks(&store, "b").len() == 1).await;
        check(&store);
        b.fine();
    });
}

/// Neither the operator nor the agent can reach the API server for longer than the grace time: nobody was silent.
#[test]
fn nobody_is_silent_while_the_operator_cannot_hear() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        let away = Arc::new(AtomicBool::new(false));
        let is_away = Arc::clone(&away);
        let fate = move |_: &str, _: &str| if is_away.load(Ordering::Relaxed) { Fate::Lost } else { Fate::Arrives };
        let _operator = operator(way(&store, fate));
        let [_a, b] = two(&store, &truth).await;
        loses_its_node(&store).await;
        speaks(&store, 0).await;
        away.store(true, Ordering::Relaxed);
        store.end_watches();
        // Sleeps: the grace time passes, and more.
        sleep(GRACE * 3).await;
        away.store(false, Ordering::Relaxed);
        // Sleeps: the agent is back a little later.
        sleep(GRACE / 2).await;
        for second in 1..20 {
            assert!(named(&store, "NodeIPPool", "a").is_some() && blocks(&store, "b").is_empty(), "after {second}");
            speaks(&store, second).await;
            // Sleeps: an agent says it so often.
            sleep(GRACE / 4).await;
        }
        check(&store);
        b.fine();
    });
}

/// The watch of the nodes' objects says nothing of what an agent has said: the object is read before anything follows.
#[test]
fn who_has_said_something_that_no_watch_brings_is_heard() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        let deaf = Arc::new(AtomicBool::new(false));
        let is_deaf = Arc::clone(&deaf);
        // A list or a watch that never answers: nothing fails.
        let fate = move |_: &str, path: &str| match path.ends_with("/nodeippools") && is_deaf.load(Ordering::Relaxed) {
            true => Fate::Hangs,
            false => Fate::Arrives,
        };
        let _operator = operator(way(&store, fate));
        let [_a, b] = two(&store, &truth).await;
        loses_its_node(&store).await;
        deaf.store(true, Ordering::Relaxed);
        store.end_watches();
        for second in 0..30 {
            speaks(&store, second).await;
            // Sleeps: an agent says it so often.
            sleep(GRACE / 4).await;
            assert!(named(&store, "NodeIPPool", "a").is_some(), "after {second}");
        }
        deaf.store(false, Ordering::Relaxed);
        assert!(blocks(&store, "b").is_empty());
        check(&store);
        b.fine();
    });
}

/// The question does not arrive, so the agent is not silent: when the Node is there again and its old object goes, the grace time begins.
#[test]
fn who_was_not_asked_was_not_silent() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let fate =
            move |method: &str, path: &str| match method == "PATCH" && path.contains("/nodeippools/a") && away.load(Ordering::Relaxed) {
                true => Fate::Lost,
                false => Fate::Arrives,
            };
        let _operator = operator(way(&store, fate));
        let [_a, b] = two(&store, &truth).await;
        is_away.store(true, Ordering::Relaxed);
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        // Sleeps: the grace time passes, and more.
        sleep(GRACE * 3).await;
        assert!(named(&store, "NodeIPPool", "a").is_some() && !is_asked(&store));
        let old = named(&store, "NodeIPPool", "a").unwrap()["metadata"]["uid"].clone();
        truth.off("a");
        is_away.store(false, Ordering::Relaxed);
        // Another machine of that name.
        let [_anew] = agents(&store, ["a"], &["p"], &truth);
        until("that its old object is gone", || named(&store, "NodeIPPool", "a").is_none_or(|now| now["metadata"]["uid"] != old)).await;
        let begun = Instant::now();
        until("the block of the other one", || blocks(&store, "b").len() == 1).await;
        assert!(begun.elapsed() >= GRACE / 2, "{:?}", begun.elapsed());
        check(&store);
        b.fine();
    });
}

/// Somebody deletes the object of a node whose agent was heard a moment ago: it has as long as it would have had.
#[test]
fn what_was_heard_outlives_the_object() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        let _operator = operator(store.client());
        let [_a, b] = two(&store, &truth).await;
        loses_its_node(&store).await;
        for second in 0..6 {
            // Sleeps: an agent says it so often.
            sleep(GRACE / 4).await;
            speaks(&store, second).await;
        }
        let heard = Instant::now();
        // Sleeps: the watch brings it.
        sleep(GRACE / 10).await;
        delete(&store, &format!("/apis/{API}/nodeippools/a")).await;
        truth.off("a");
        while heard.elapsed() < GRACE {
            assert!(blocks(&store, "b").is_empty(), "after {:?}", heard.elapsed());
            // Sleeps: between two looks.
            sleep(Duration::from_millis(50)).await;
        }
        until("the block of the other one", || blocks(&store, "b").len() == 1).await;
        check(&store);
        b.fine();
    });
}

/// Objects of earlier releases went with their Nodes: the API server's garbage collector deletes what has no owner any more.
#[test]
fn no_node_owns_an_object() {
    run(async {
        let store = store();
        let uids = ["a", "b"].map(|name| node(&store, name));
        let owner = |kind: &str, uid: &str| json!({"apiVersion": "v1", "kind": kind, "name": "a", "uid": uid});
        let metadata = json!({"name": "a", "ownerReferences": [owner("ConfigMap", "other"), owner("Node", &uids[0])]});
        let spec = json!({"nodeUID": uids[0], "blocks": [], "ips": [], "pools": {}});
        store.put(&json!({"apiVersion": API, "kind": "NodeIPPool", "metadata": metadata, "spec": spec})).unwrap();
        let _operator = operator(store.client());
        let owners = |name: &str| named(&store, "NodeIPPool", name).map(|object| object["metadata"]["ownerReferences"].clone());
        until("what is left", || owners("a") == Some(json!([owner("ConfigMap", "other")]))).await;
        until("the new one", || owners("b") == Some(Value::Null)).await;
    });
}
