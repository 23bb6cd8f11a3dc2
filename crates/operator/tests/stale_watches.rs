//! An operator whose watches are behind: what it reads once more before it writes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the scene is more than this needs")]

mod scene;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use netloom_operator::{Running, start};
use objects::Store;
use scene::{API, Agent, Fate, Truth, agents, blocks, change, check, named, node, operator, options, pool, run, store, until, way};
use serde_json::json;
use tower::ServiceExt;

/// An operator, what it has asked for, and whether it may go on.
struct Late {
    _operator: Running,
    asked: Arc<Mutex<Vec<(String, String)>>>,
    may_go_on: Arc<AtomicBool>,
}

impl Late {
    /// One that reads one list of these kinds and hears nothing more of them, and reads those only when it may go on.
    fn start(store: &Store, deaf: &'static [&'static str], later: &'static str) -> Late {
        let (asked, may_go_on) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (log, go) = (Arc::clone(&asked), Arc::clone(&may_go_on));
        let reads: Vec<(&str, AtomicUsize)> = deaf.iter().map(|kind| (*kind, AtomicUsize::new(0))).collect();
        let client = way(store, move |method, path| {
            log.lock().unwrap().push((method.to_owned(), path.to_owned()));
            // The second one is the watch behind the list.
            let watches = |(kind, count): &(&str, AtomicUsize)| path.ends_with(kind) && count.fetch_add(1, Ordering::Relaxed) == 1;
            match method == "GET" {
                true if path.ends_with(later) && !go.load(Ordering::Relaxed) => Fate::Lost,
                true if reads.iter().any(watches) => Fate::Hangs,
                _ => Fate::Arrives,
            }
        });
        Late { _operator: start(client, options("late")), asked, may_go_on }
    }

    fn has_asked(&self, method: &str, part: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|(m, path)| m == method && path.contains(part))
    }

    /// Until it has read all that it reads before it may go on.
    async fn has_read(&self, kind: &str) {
        let reads = || self.asked.lock().unwrap().iter().filter(|(_, path)| path.ends_with(kind)).count();
        until("the watch behind the list", || reads() >= 2).await;
    }
}

#[test]
fn what_was_given_back_does_not_come_again() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 28}}));
        let [agent] = agents(&store, ["a"], &["p"], &truth);
        let first = operator(&store, "one");
        agent.wants("p", 1);
        until("a block", || truth.count() == 1).await;
        // It knows the block as granted, and reads the spec when it was returned.
        let late = Late::start(&store, &["/ipledgershards"], "/nodeippools");
        late.has_read("/ipledgershards").await;
        agent.wants("p", 0);
        let is_free = || named(&store, "IPLedgerShard", "p.v4.10.0.0.0").is_some_and(|s| s["spec"]["cells"]["0"]["state"] == "Free");
        until("that it is free", || blocks(&store, "a").is_empty() && is_free()).await;
        drop(first);
        late.may_go_on.store(true, Ordering::Relaxed);
        let shard = "/ipledgershards/p.v4.10.0.0.0";
        until("a decision", || late.has_asked("GET", shard) || late.has_asked("PATCH", "/nodeippools/")).await;
        assert!(!late.has_asked("PATCH", "/nodeippools/"), "{:?}", late.asked.lock().unwrap());
        // It goes on by what it has read.
        agent.wants("p", 1);
        change(&store, "NodeIPPool", "a", &json!({"metadata": {"labels": {"a": "b"}}})).await;
        until("a block", || truth.count() == 1).await;
        check(&store);
        agent.fine();
    });
}

#[test]
fn what_a_node_has_is_in_a_shard_that_is_made_again() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 28}}));
        let uids = ["a", "b"].map(|name| node(&store, name));
        let first = operator(&store, "one");
        until("both objects", || ["a", "b"].iter().all(|n| named(&store, "NodeIPPool", n).is_some())).await;
        until("the root", || named(&store, "IPLedgerShard", "p.v4").is_some()).await;
        drop(first);
        let [a, b] = [("a", &uids[0]), ("b", &uids[1])].map(|(name, uid)| Agent::start(&store, name, uid, &["p"], &truth));
        a.wants("p", 1);
        b.wants("p", 1);
        let wants = |name: &str| named(&store, "NodeIPPool", name).unwrap()["status"]["demand"][0]["v4"] == 16;
        until("what they want", || wants("a") && wants("b")).await;
        let late = Late::start(&store, &["/nodeippools", "/ipledgershards"], "/api/v1/nodes");
        late.has_read("/nodeippools").await;
        late.has_read("/ipledgershards").await;
        // Another operator has granted it, and somebody has deleted the shard.
        let block = json!({"cidr": "10.0.0.0/28", "network": "p", "pool": "p", "epoch": 1});
        change(&store, "NodeIPPool", "b", &json!({"spec": {"blocks": [block]}})).await;
        late.may_go_on.store(true, Ordering::Relaxed);
        until("a block for each", || truth.count() == 2).await;
        assert_eq!((blocks(&store, "a"), blocks(&store, "b")), (vec!["10.0.0.16/28".to_owned()], vec!["10.0.0.0/28".to_owned()]));
        let shard = named(&store, "IPLedgerShard", "p.v4.10.0.0.0").unwrap();
        assert_eq!(
            (&shard["spec"]["cells"]["0"]["node"], &shard["spec"]["cells"]["1"]["node"]),
            (&json!("b"), &json!("a")),
            "{API}: {shard}"
        );
        check(&store);
        a.fine();
        b.fine();
    });
}

/// Whichever list is missing, nothing is written before it is there.
#[test]
fn nothing_is_written_as_long_as_a_list_is_missing() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/26"}], "blockPrefix": 28}}));
        let first = operator(&store, "first");
        let [agent] = agents(&store, ["a"], &["p"], &truth);
        agent.wants("p", 1);
        until("a block", || truth.count() == 1).await;
        drop(first);
        let [other] = agents(&store, ["b"], &["p"], &truth);
        other.wants("p", 1);
        for (n, list) in ["/nodes", "/ippools", "/nodeippools", "/ipledgershards"].into_iter().enumerate() {
            let late = Late::start(&store, &[], list);
            let asked = |what: &dyn Fn(&str, &str) -> bool| late.asked.lock().unwrap().iter().filter(|(m, p)| what(m, p)).count();
            // The others are long there when it is asked for once more.
            until(list, || asked(&|_, path| path.ends_with(list)) > 2).await;
            assert_eq!(asked(&|method, _| method != "GET"), 0, "{list}: {:?}", late.asked.lock().unwrap());
            if n == 3 {
                late.may_go_on.store(true, Ordering::Relaxed);
                until("a block for the other one", || truth.count() == 2).await;
            }
        }
        check(&store);
        [agent, other].iter().for_each(Agent::fine);
    });
}

/// A Node that no watch has any more is gone when the API server says so, and not because it says nothing.
#[test]
fn nobody_is_gone_because_nobody_answers() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/28"}], "blockPrefix": 28}}));
        let late = Late::start(&store, &[], "/nodes/a");
        let [agent] = agents(&store, ["a"], &["p"], &truth);
        agent.wants("p", 1);
        until("a block", || truth.count() == 1).await;
        agent.stop();
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        let [other] = agents(&store, ["b"], &["p"], &truth);
        other.wants("p", 1);
        let asked = || late.asked.lock().unwrap().iter().filter(|(_, path)| path.ends_with("/nodes/a")).count();
        // However long that takes, with pauses that grow.
        until("it is asked for it again and again", || asked() > 5).await;
        // Sleeps: the grace time passes.
        tokio::time::sleep(options("late").grace * 3).await;
        assert!(named(&store, "NodeIPPool", "a").is_some() && blocks(&store, "b").is_empty());
        truth.off("a");
        late.may_go_on.store(true, Ordering::Relaxed);
        until("the block is the other one's", || !blocks(&store, "b").is_empty()).await;
        check(&store);
        other.fine();
    });
}

/// Somebody else writes a shard behind the reading and before the write: what was granted meanwhile is not written over.
#[test]
fn of_two_writers_of_a_shard_the_second_one_reads_again() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/26"}], "blockPrefix": 28}}));
        let first = operator(&store, "first");
        let uids = ["a", "b"].map(|name| node(&store, name));
        let [a, b] = [("a", &uids[0]), ("b", &uids[1])].map(|(name, uid)| Agent::start(&store, name, uid, &["p"], &truth));
        b.wants("p", 1);
        until("a block", || truth.count() == 1).await;
        drop(first);
        a.wants("p", 1);
        b.wants("p", 2);
        let (service, others, between) = (store.service(), store.clone(), Arc::new(AtomicUsize::new(0)));
        let (cell, seen) = (json!({"state": "Granted", "epoch": 1, "node": "b", "nodeUID": uids[1], "pool": "p"}), Arc::clone(&between));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let shard = request.uri().path().ends_with("/ipledgershards/p.v4.10.0.0.0") && request.method() == "PATCH";
            let is_first = shard && seen.fetch_add(1, Ordering::Relaxed) == 0;
            let (service, others, cell) = (service.clone(), others.clone(), cell.clone());
            async move {
                if is_first {
                    change(&others, "IPLedgerShard", "p.v4.10.0.0.0", &json!({"spec": {"cells": {"1": cell}}})).await;
                }
                service.oneshot(request).await
            }
        });
        let _second = start(kube::Client::new(service, "default"), options("second"));
        until("a block for each, and the other operator's", || truth.count() == 3).await;
        assert!(between.load(Ordering::Relaxed) > 1, "it was refused once");
        assert_eq!(
            (blocks(&store, "a"), blocks(&store, "b")),
            (vec!["10.0.0.32/28".to_owned()], vec!["10.0.0.0/28".into(), "10.0.0.16/28".into()])
        );
        check(&store);
        a.fine();
        b.fine();
    });
}
