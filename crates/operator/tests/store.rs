//! Operators over an object store, with agents that use what they are granted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod claims;
mod scene;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use netloom_operator::start;
use scene::operators::{Dying, Rivals};
use scene::{
    API, Agent, DEFINITIONS, Fate, Truth, agents, blocks, change, check, condition, delete, named, node, numbered, operator, options, pool,
    run, store, until, way,
};
use serde_json::{Value, json};

fn plain() -> Value {
    json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/22"}], "blockPrefix": 28}})
}

#[test]
fn blocks_are_granted_used_returned_and_granted_to_others() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &plain());
        let operator = operator(&store, "one");
        let [a, b] = agents(&store, ["a", "b"], &["p"], &truth);
        a.wants("p", 3);
        b.wants("p", 1);
        until("what they want", || truth.count() == 4 && blocks(&store, "a").len() == 3 && blocks(&store, "b").len() == 1).await;
        check(&store);
        a.wants("p", 0);
        b.wants("p", 64);
        until("all of it", || truth.count() == 64 && blocks(&store, "a").is_empty()).await;
        until("the condition", || condition(&store, "p", "Exhausted") == "False Sufficient").await;
        a.wants("p", 1);
        until("that there is no more", || condition(&store, "p", "Exhausted") == "True NoFreeBlock").await;
        until("the event", || store.objects("events.k8s.io/v1", "Event").unwrap().iter().any(|e| e["reason"] == "Exhausted")).await;
        assert!(operator.metrics().contains("netloom_operator_ipam_exhausted{pool=\"p\",family=\"ipv4\"} 1"), "{}", operator.metrics());
        let status = named(&store, "IPPool", "p").unwrap()["status"]["ipv4"].clone();
        assert_eq!(status, json!({"capacity": "1022", "granted": 1022, "inUse": 0}));
        check(&store);
        b.wants("p", 60);
        until("somebody gives back", || truth.count() == 61).await;
        until("the other event", || store.objects("events.k8s.io/v1", "Event").unwrap().iter().any(|e| e["reason"] == "Sufficient")).await;
        check(&store);
        a.fine();
        b.fine();
        assert!(operator.metrics().contains("netloom_operator_ipam_violations 0"), "{}", operator.metrics());
    });
}

#[test]
fn an_operator_that_is_killed_at_any_write_is_followed_by_another_one() {
    run(async {
        for (at, fate) in Dying::at_any_of(12) {
            let (store, truth) = (store(), Truth::default());
            pool(&store, "p", &plain());
            let first = Dying::start(&store, options("first"), at, fate);
            let [a, b] = agents(&store, ["a", "b"], &["p"], &truth);
            a.wants("p", 2);
            b.wants("p", 2);
            until("the write at which it dies", || first.is_dead() || truth.count() == 4).await;
            if truth.count() == 4 {
                a.wants("p", 0);
                until("the write at which it dies", || first.is_dead()).await;
            }
            drop(first);
            check(&store);
            a.wants("p", 1);
            b.wants("p", 3);
            let _second = operator(&store, "second");
            until("what they want", || truth.count() == 4 && blocks(&store, "a").len() == 1 && blocks(&store, "b").len() == 3).await;
            check(&store);
            a.fine();
            b.fine();
        }
    });
}

#[test]
fn two_operators_that_both_believe_to_lead_do_no_harm() {
    scene::run_by_the_clock(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &plain());
        let agents = numbered(&store, 0..8, &["p"], &truth);
        let rivals = Rivals::start(&store, options);
        rivals.compete(8, 9, |i, blocks| agents[i].wants("p", blocks as u64), || check(&store)).await;
        agents.iter().for_each(|agent| agent.wants("p", 5));
        until("what they want", || truth.count() == 40 && (0..8).all(|i| blocks(&store, &format!("n{i}")).len() == 5)).await;
        check(&store);
        agents.iter().for_each(Agent::fine);
        rivals.assert_met();
    });
}

#[test]
fn nothing_is_written_before_everything_was_read() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/16"}], "blockPrefix": 28}}));
        let first = operator(&store, "first");
        let mut agents = numbered(&store, 0..180, &["p"], &truth);
        agents.iter().for_each(|agent| agent.wants("p", 2));
        until("two blocks for each", || truth.count() == 360).await;
        drop(first);
        let before: Vec<_> = (0..180).map(|i| blocks(&store, &format!("n{i}"))).collect();
        agents.extend(numbered(&store, 180..200, &["p"], &truth));
        agents.iter().for_each(|agent| agent.wants("p", 2));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let client = way(&store, move |method, path| {
            log.lock().unwrap().push((method.to_owned(), path.to_owned()));
            Fate::Arrives
        });
        let second = start(client, options("second"));
        until("two blocks for the others, too", || truth.count() == 400).await;
        let seen = seen.lock().unwrap().clone();
        let written = seen.iter().position(|(method, _)| method != "GET").unwrap();
        for list in ["/api/v1/nodes", "ippools", "nodeippools", "ipledgershards"] {
            assert!(seen[..written].iter().any(|(_, path)| path.ends_with(list)), "{list} was not read before the first write");
        }
        assert_eq!((0..180).map(|i| blocks(&store, &format!("n{i}"))).collect::<Vec<_>>(), before);
        check(&store);
        agents.iter().for_each(Agent::fine);
        assert!(second.metrics().contains("result=\"done\""));
    });
}

#[test]
fn answers_are_lost_and_the_server_is_busy_and_away() {
    scene::run_by_the_clock(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &plain());
        let agents = numbered(&store, 0..4, &["p"], &truth);
        let count = AtomicUsize::new(0);
        let client = way(&store, move |method, _| match (method, count.fetch_add(1, Ordering::Relaxed) % 5) {
            ("GET", _) => Fate::Arrives,
            (_, 0) => Fate::Unanswered,
            (_, 1) => Fate::Lost,
            (_, 2) => Fate::Refused,
            _ => Fate::Arrives,
        });
        let _operator = start(client, options("one"));
        for round in 0..6_u64 {
            for (i, agent) in (0_u64..).zip(&agents) {
                agent.wants("p", (i + round * 3) % 5);
            }
            // Sleeps: each round is cut off somewhere.
            tokio::time::sleep(Duration::from_millis(60)).await;
            if round == 3 {
                store.stop();
                // Sleeps: an outage is to last.
                tokio::time::sleep(Duration::from_millis(60)).await;
                store.start();
                store.forget_history();
            }
            check(&store);
        }
        agents.iter().for_each(|agent| agent.wants("p", 3));
        until("what they want", || truth.count() == 12).await;
        check(&store);
        agents.iter().for_each(Agent::fine);
    });
}

#[test]
fn pools_come_grow_shrink_and_go_while_they_are_used() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        let agents = numbered(&store, 0..3, &["p", "q"], &truth);
        let _operator = operator(&store, "one");
        agents.iter().for_each(|agent| agent.wants("p", 2));
        // After the operator.
        pool(&store, "p", &json!({"network": "n", "ipv4": {"entries": [{"cidr": "10.0.0.0/26"}], "blockPrefix": 28}}));
        until("four blocks", || truth.count() == 4).await;
        until("that two are missing", || condition(&store, "p", "Exhausted") == "True NoFreeBlock").await;
        let entries = json!([{"cidr": "10.0.0.0/26"}, {"range": "10.9.0.8-10.9.0.39"}]);
        change(&store, "IPPool", "p", &json!({"spec": {"ipv4": {"entries": entries}}})).await;
        until("six", || truth.count() == 6).await;
        // Shrunk: who has something keeps it, and does not hand it out again.
        change(&store, "IPPool", "p", &json!({"spec": {"ipv4": {"entries": [{"cidr": "10.0.0.0/28"}]}}})).await;
        let excluded = || {
            let objects = store.objects(API, "NodeIPPool").unwrap();
            objects.iter().map(|o| o["spec"]["pools"]["p"]["exclude"].to_string().matches('.').count()).sum::<usize>()
        };
        until("exclusions", || excluded() > 3 * 6).await;
        assert_eq!(truth.count(), 6);
        // Another pool of the network cannot have it either.
        pool(&store, "q", &json!({"network": "n", "ipv4": {"entries": [{"cidr": "10.0.0.0/26"}], "blockPrefix": 28}}));
        agents.iter().for_each(|agent| agent.wants("q", 1));
        until("that there is nothing", || condition(&store, "q", "Exhausted") == "True NoFreeBlock").await;
        until("that they overlap", || condition(&store, "q", "Overlap") == "True SharedAddresses").await;
        assert_eq!(truth.count(), 6);
        delete(&store, &format!("/apis/{API}/ippools/p")).await;
        until("that it is gone, and the other one serves", || named(&store, "IPPool", "p").is_none() && truth.count() == 3).await;
        check(&store);
        agents.iter().for_each(Agent::fine);
    });
}

#[test]
fn a_node_that_is_made_anew_is_another_one() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/27"}], "blockPrefix": 28}}));
        let mut wanted = options("one");
        wanted.grace = Duration::from_secs(10);
        let _operator = start(store.client(), wanted);
        let [old] = agents(&store, ["a"], &["p"], &truth);
        old.wants("p", 2);
        until("both blocks", || truth.count() == 2).await;
        // Cut off: it goes on using them, and hears of nothing.
        old.stop();
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        let uid = node(&store, "a");
        let new = Agent::start(&store, "a", &uid, &["p"], &truth);
        new.wants("p", 1);
        until("its own object", || named(&store, "NodeIPPool", "a").is_some_and(|o| o["spec"]["nodeUID"] == uid.as_str())).await;
        // Sleeps: that nothing is granted shows in time alone.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(blocks(&store, "a").is_empty());
        // Before the grace is over it is switched off.
        truth.off("a");
        until("one of the old blocks, in another life", || truth.count() == 1).await;
        check(&store);
        new.fine();
    });
}

#[test]
fn what_waits_for_a_person_is_free_when_a_person_says_so() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/28"}], "blockPrefix": 28}, "reclaim": "Manual"}));
        let _operator = operator(&store, "one");
        let uid = node(&store, "a");
        let old = Agent::start(&store, "a", &uid, &["p"], &truth);
        old.wants("p", 1);
        until("its block", || truth.count() == 1).await;
        old.stop();
        let [new] = agents(&store, ["b"], &["p"], &truth);
        new.wants("p", 1);
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        until("that its object is gone", || named(&store, "NodeIPPool", "a").is_none()).await;
        // More than the grace.
        // Sleeps: the grace time passes.
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(blocks(&store, "b").is_empty());
        truth.off("a");
        change(&store, "IPPool", "p", &json!({"metadata": {"annotations": {"netloom.io/reclaim": format!("other, {uid}")}}})).await;
        until("the block of the other one", || truth.count() == 1 && blocks(&store, "b").len() == 1).await;
        check(&store);
        new.fine();
    });
}

#[test]
fn a_ledger_that_somebody_deletes_stays_as_long_as_it_is_needed() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &plain());
        let _operator = operator(&store, "one");
        let [agent] = agents(&store, ["a"], &["p"], &truth);
        agent.wants("p", 2);
        until("two blocks", || truth.count() == 2).await;
        let uid = |name: &str| named(&store, "IPLedgerShard", name).map(|o| o["metadata"]["uid"].clone());
        let shard = "p.v4.10.0.0.0";
        let first = uid(shard).unwrap();
        for name in [shard, "p.v4"] {
            delete(&store, &format!("/apis/{API}/ipledgershards/{name}")).await;
        }
        agent.wants("p", 3);
        until("one more, in the same ledger", || truth.count() == 3).await;
        assert_eq!(uid(shard).unwrap(), first);
        check(&store);
        agent.wants("p", 0);
        until("that it is gone, as nobody has anything", || uid(shard).is_none_or(|uid| uid != first)).await;
        agent.wants("p", 2);
        until("two blocks of a new one", || truth.count() == 2).await;
        assert_ne!(uid(shard).unwrap(), first);
        check(&store);
        agent.fine();
    });
}

#[test]
fn what_belongs_to_no_node_goes() {
    run(async {
        let store = store();
        node(&store, "a.example.com");
        for i in 0..50 {
            let spec = json!({"nodeUID": format!("old-{i}"), "blocks": [], "ips": [], "pools": {}});
            store.put(&json!({"apiVersion": API, "kind": "NodeIPPool", "metadata": {"name": format!("gone-{i}")}, "spec": spec})).unwrap();
        }
        let _operator = operator(&store, "one");
        until("one object", || {
            let all = store.objects(API, "NodeIPPool").unwrap();
            all.len() == 1 && all[0]["metadata"]["name"] == "a.example.com"
        })
        .await;
    });
}

#[test]
fn a_wrong_pool_is_told_and_the_others_go_on() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "wrong", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.1/24"}]}}));
        pool(&store, "shape", &json!({"ipv4": "all"}));
        pool(&store, "p", &plain());
        let _operator = operator(&store, "one");
        let [agent] = agents(&store, ["a"], &["p"], &truth);
        agent.wants("p", 1);
        until("a block", || truth.count() == 1).await;
        until("both conditions", || ["wrong", "shape"].iter().all(|p| condition(&store, p, "Ready") == "False Invalid")).await;
        let told = named(&store, "IPPool", "wrong").unwrap()["status"]["conditions"][0]["message"].clone();
        assert_eq!(told, "spec.ipv4.entries[0]: 10.0.0.1/24 has host bits set: the network is 10.0.0.0");
    });
}

#[test]
fn one_of_two_operators_has_the_lease() {
    run(async {
        let store = store();
        pool(&store, "p", &plain());
        node(&store, "a");
        let mut wanted = [options("one"), options("two")];
        wanted.iter_mut().for_each(|options| options.lease = true);
        let operators = wanted.map(|options| start(store.client(), options));
        until("one that works", || named(&store, "NodeIPPool", "a").is_some()).await;
        let leads = || operators.iter().filter(|o| o.metrics().contains("\nnetloom_operator_leading 1\n")).count();
        assert_eq!(leads(), 1);
    });
}

#[test]
fn an_object_that_is_never_taken_keeps_nobody_else_waiting() {
    run(async {
        let (store, truth) = (store(), Truth::default());
        pool(&store, "p", &plain());
        let tried = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tried);
        let client = way(&store, move |method, path| match method == "PATCH" && path.ends_with("nodeippools/a") {
            true => {
                count.fetch_add(1, Ordering::Relaxed);
                Fate::TooLarge
            }
            false => Fate::Arrives,
        });
        let operator = start(client, options("one"));
        let [a, b] = agents(&store, ["a", "b"], &["p"], &truth);
        a.wants("p", 2);
        // Each time something else is to be written, the pause of what is refused would be longer.
        until("that it was tried", || tried.load(Ordering::Relaxed) >= 5).await;
        b.wants("p", 1);
        until("the others' blocks", || blocks(&store, "b").len() == 1 && truth.count() == 1).await;
        assert!(tried.load(Ordering::Relaxed) < 50, "it is tried without a pause");
        // An object of somebody else's making is found by an audit, which comes nevertheless.
        let stolen = json!({"cidr": "10.0.3.0/28", "network": "p", "pool": "p", "epoch": 9});
        let odd = json!({"cidr": "10.0.3.0/27", "network": "p", "pool": "p", "epoch": 9});
        change(&store, "NodeIPPool", "a", &json!({"spec": {"blocks": [stolen, odd]}})).await;
        until("the audit", || !operator.metrics().contains("netloom_operator_ipam_violations 0")).await;
        b.fine();
    });
}

#[test]
fn a_shard_that_cannot_be_read_is_left_alone() {
    run(async {
        // A release that knew one state more has left its definition, and a cell.
        let (store, truth) = (objects::Store::new(), Truth::default());
        for document in DEFINITIONS.replace("Returning, Shared]", "Returning, Shared, Lent]").split("\n---\n") {
            store.put(&serde_saphyr::from_str::<Value>(document).unwrap()).unwrap();
        }
        pool(&store, "p", &plain());
        let uids = ["a", "b"].map(|name| node(&store, name));
        let first = operator(&store, "one");
        let [a, b] = [("a", &uids[0]), ("b", &uids[1])].map(|(name, uid)| Agent::start(&store, name, uid, &["p"], &truth));
        a.wants("p", 2);
        until("its blocks", || truth.count() == 2).await;
        drop(first);
        let shards = store.objects(API, "IPLedgerShard").unwrap();
        let name = |shard: &Value| shard["metadata"]["name"].as_str().unwrap().to_owned();
        let shard = shards.iter().map(name).find(|name| name != "p.v4").unwrap();
        change(&store, "IPLedgerShard", &shard, &json!({"spec": {"cells": {"9": {"state": "Lent", "epoch": 1}}}})).await;
        let posts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&posts);
        let client = way(&store, move |method, path| {
            count.fetch_add(usize::from(method == "POST" && path.ends_with("ipledgershards")), Ordering::Relaxed);
            Fate::Arrives
        });
        let second = start(client, options("two"));
        b.wants("p", 1);
        until("the audit", || second.metrics().contains("netloom_operator_ipam_violations 1")).await;
        assert_eq!((posts.load(Ordering::Relaxed), blocks(&store, "a").len(), blocks(&store, "b").len()), (0, 2, 0));
        a.fine();
    });
}
