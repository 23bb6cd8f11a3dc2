//! Operators that fill CiliumNodes, over an object store, with agents that use and give back what stands there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the scene is more than this needs")]

mod scene;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use netloom_operator::{Options, Running, start};
use objects::Store;
use scene::operators::{Dying, Rivals};
use scene::{API, Fate, Truth, change, condition, delete, named, node, pool, request, run, store, until, way};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const KIND: &str = "/apis/cilium.io/v2/ciliumnodes";
const DEFINITION: &str = include_str!("../../../deploy/cilium-crd/ciliumnodes.yaml");

fn cluster() -> Store {
    let store = store();
    store.put(&serde_saphyr::from_str::<Value>(DEFINITION).unwrap()).unwrap();
    store
}

fn options(identity: &str) -> Options {
    Options { cilium_nodes: Some("p".to_owned()), release_delay: Duration::from_millis(50), ..scene::options(identity) }
}

fn operator(store: &Store, identity: &str) -> Running {
    start(store.client(), options(identity))
}

fn small() -> Value {
    json!({"ipv4": {"entries": [{"range": "10.0.0.1-10.0.0.24"}], "blockPrefix": 28}, "scaling": {"preAllocate": 2}})
}

fn object(store: &Store, name: &str) -> Option<Value> {
    store.objects("cilium.io/v2", "CiliumNode").unwrap().into_iter().find(|object| object["metadata"]["name"] == name)
}

fn keys(of: &Value) -> BTreeSet<String> {
    of.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

fn addresses(store: &Store, name: &str) -> BTreeSet<String> {
    keys(&object(store, name).unwrap_or_default()["spec"]["ipam"]["pool"])
}

/// Which node the ledger has each address for, in blocks of 16 addresses.
fn ledger(store: &Store) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for shard in store.objects(API, "IPLedgerShard").unwrap() {
        let base: std::net::Ipv4Addr = shard["spec"]["base"].as_str().unwrap().split('/').next().unwrap().parse().unwrap();
        for (cell, what) in shard["spec"]["cells"].as_object().into_iter().flatten() {
            for (number, ip) in what["ips"].as_object().into_iter().flatten() {
                let at = u32::from(base) + 16 * cell.parse::<u32>().unwrap() + number.parse::<u32>().unwrap();
                let owner = ip["owner"]["ciliumNode"].as_str().unwrap_or_default();
                if !owner.is_empty() {
                    found.insert(std::net::Ipv4Addr::from(at).to_string(), owner.to_owned());
                }
            }
        }
    }
    found
}

/// The ledger has at least what the objects have. It is read last: what it has may become more meanwhile, and less only afterwards.
fn check(store: &Store, nodes: &[&str]) {
    let pools: Vec<(&str, BTreeSet<String>)> = nodes.iter().map(|name| (*name, addresses(store, name))).collect();
    let ledger = ledger(store);
    for (name, all) in &pools {
        for address in all {
            assert_eq!(ledger.get(address).map(String::as_str), Some(*name), "{address}");
        }
    }
}

/// An agent that uses as many addresses as it is told to.
struct Agent {
    wants: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Agent {
    fn start(store: &Store, name: &str, truth: &Truth) -> Agent {
        let wants: Arc<AtomicUsize> = Arc::default();
        let (client, name, truth, want) = (store.client(), name.to_owned(), truth.clone(), Arc::clone(&wants));
        let task = tokio::spawn(async move {
            let mut held: BTreeSet<String> = BTreeSet::new();
            loop {
                // Sleeps: an agent looks so often.
                tokio::time::sleep(Duration::from_millis(3)).await;
                let Ok(object) = request(&client, "GET", &format!("{KIND}/{name}"), "", &Value::Null).await else { continue };
                let status = look(&object, &name, want.load(Ordering::Relaxed), &truth, &mut held);
                if object["status"]["ipam"] != status {
                    let patch = json!([
                        {"op": "test", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]},
                        {"op": "add", "path": "/status", "value": {"ipam": status}},
                    ]);
                    drop(request(&client, "PATCH", &format!("{KIND}/{name}/status"), "application/json-patch+json", &patch).await);
                }
            }
        });
        Agent { wants, task }
    }

    /// The node is made, too.
    fn on_node(store: &Store, name: &str, truth: &Truth) -> Agent {
        node(store, name);
        Agent::start(store, name, truth)
    }

    fn wants(&self, n: usize) {
        self.wants.store(n, Ordering::Relaxed);
    }

    fn fine(&self) {
        assert!(!self.task.is_finished(), "an agent has ended");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes and leaves addresses, and answers; the status that follows.
fn look(object: &Value, name: &str, want: usize, truth: &Truth, held: &mut BTreeSet<String>) -> Value {
    let (pool, mut release) = (keys(&object["spec"]["ipam"]["pool"]), object["status"]["ipam"]["release-ips"].clone());
    for address in held.iter() {
        assert!(pool.contains(address), "{name}: {address} was taken away");
    }
    while held.len() > want {
        truth.leave("p", &held.pop_last().unwrap(), name);
    }
    for address in pool.iter().filter(|address| release[address.as_str()].is_null()) {
        if held.len() < want && held.insert(address.clone()) {
            truth.take("p", address, name);
        }
    }
    let answers = release.as_object().cloned().unwrap_or_default().into_iter().filter_map(|(address, said)| {
        let answer = match said.as_str().unwrap() {
            "marked-for-release" if held.contains(&address) || !pool.contains(&address) => json!("do-not-release"),
            "marked-for-release" => json!("ready-for-release"),
            "released" if !pool.contains(&address) => return None,
            other => json!(other),
        };
        Some((address, answer))
    });
    release = answers.collect::<serde_json::Map<_, _>>().into();
    let used: serde_json::Map<_, _> = held.iter().map(|address| (address.clone(), json!({"owner": "ns/pod"}))).collect();
    let mut status = json!({});
    for (key, part) in [("used", used.into()), ("release-ips", release)] {
        if part.as_object().is_some_and(|part: &serde_json::Map<_, _>| !part.is_empty()) {
            status[key] = part;
        }
    }
    status
}

#[test]
fn addresses_are_given_used_taken_back_and_given_to_others() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        pool(&store, "p", &small());
        let uids = ["a", "b"].map(|name| node(&store, name));
        // One that is there already, with an address and what nobody here knows.
        let by_hand = json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": "b"},
            "spec": {"eni": {"kept": true}, "ipam": {"pool": {"10.0.0.20": {}, "192.168.1.1": {}}, "pre-allocate": 4}}});
        store.put(&by_hand).unwrap();
        let operator = operator(&store, "one");
        until("two for one that was made", || addresses(&store, "a").len() == 2).await;
        until("four with two that were there", || addresses(&store, "b").len() == 4).await;
        check(&store, &["a"]);
        let made = object(&store, "a").unwrap();
        assert_eq!((&made["metadata"]["ownerReferences"][0]["uid"], &made["spec"]["ipam"]["pre-allocate"]), (&json!(uids[0]), &json!(2)));
        let kept = object(&store, "b").unwrap();
        assert_eq!((&kept["metadata"]["ownerReferences"][0]["uid"], &kept["spec"]["eni"]["kept"]), (&json!(uids[1]), &json!(true)));
        assert_eq!(ledger(&store).get("10.0.0.20").map(String::as_str), Some("b"));

        let [a, b] = ["a", "b"].map(|name| Agent::start(&store, name, &truth));
        a.wants(16);
        until("what it wants, and two more", || truth.count() == 16 && addresses(&store, "a").len() == 18).await;
        check(&store, &["a"]);
        b.wants(7);
        until("that there is no more", || condition(&store, "p", "Exhausted") == "True NoFreeBlock").await;
        a.wants(1);
        until("all but what it needs is given back", || addresses(&store, "a").len() == 3).await;
        until("the other one gets what it needs", || addresses(&store, "b").len() == 11).await;
        until("it is told", || condition(&store, "p", "Exhausted") == "False Sufficient").await;
        let status = named(&store, "IPPool", "p").unwrap()["status"]["ipv4"].clone();
        assert_eq!((&status["capacity"], &status["granted"]), (&json!("24"), &json!(13)));
        check(&store, &["a"]);
        assert!(addresses(&store, "b").contains("192.168.1.1"), "what is of no pool is left alone");

        // What is excluded goes as soon as nobody uses it.
        let free: BTreeSet<String> =
            addresses(&store, "a").difference(&keys(&object(&store, "a").unwrap()["status"]["ipam"]["used"])).cloned().collect();
        let excluded = free.first().unwrap().clone();
        change(&store, "IPPool", "p", &json!({"spec": {"exclude": [excluded]}})).await;
        until("it goes", || !addresses(&store, "a").contains(&excluded) && addresses(&store, "a").len() == 3).await;
        until("it is free", || !ledger(&store).contains_key(&excluded)).await;
        a.fine();
        b.fine();
        assert!(operator.metrics().contains("netloom_operator_ipam_violations 0"), "{}", operator.metrics());
    });
}

#[test]
fn an_operator_that_is_killed_at_any_write_is_followed_by_another_one() {
    run(async {
        for (at, fate) in Dying::at_any_of(15) {
            let (store, truth) = (cluster(), Truth::default());
            pool(&store, "p", &small());
            let first = Dying::start(&store, options("first"), at, fate);
            let [a, b] = ["a", "b"].map(|name| Agent::on_node(&store, name, &truth));
            a.wants(3);
            b.wants(2);
            until("the write at which it dies", || first.is_dead() || truth.count() == 5).await;
            if !first.is_dead() {
                a.wants(0);
                let rest = || addresses(&store, "a").len() == 2 && ledger(&store).len() == 6;
                until("the write at which it dies, or all are", || first.is_dead() || rest()).await;
            }
            drop(first);
            check(&store, &["a", "b"]);
            a.wants(1);
            b.wants(3);
            let _second = operator(&store, "second");
            until("what they want", || truth.count() == 4 && addresses(&store, "a").len() == 3 && addresses(&store, "b").len() == 5).await;
            until("nothing else is anybody's", || ledger(&store).len() == 8).await;
            check(&store, &["a", "b"]);
            a.fine();
            b.fine();
        }
    });
}

#[test]
fn two_operators_that_both_believe_to_lead_do_no_harm() {
    scene::run_by_the_clock(async {
        let (store, truth) = (cluster(), Truth::default());
        let names: Vec<String> = (0..6).map(|i| format!("n{i}")).collect();
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/26"}], "blockPrefix": 28}, "scaling": {"preAllocate": 1}}));
        let agents: Vec<Agent> = names.iter().map(|name| Agent::on_node(&store, name, &truth)).collect();
        let rivals = Rivals::start(&store, options);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        rivals.compete(6, 12, |i, n| agents[i].wants(n), || check(&store, &names)).await;
        agents.iter().for_each(|agent| agent.wants(4));
        until("what they want, and one more", || truth.count() == 24 && names.iter().all(|name| addresses(&store, name).len() == 5)).await;
        agents.iter().for_each(Agent::fine);
        rivals.assert_met();
    });
}

#[test]
fn what_a_node_had_is_free_when_it_is_gone_for_long() {
    run(async {
        let store = cluster();
        pool(&store, "p", &small());
        node(&store, "a");
        let _operator = operator(&store, "one");
        until("two", || addresses(&store, "a").len() == 2).await;
        // Somebody deletes the object: it comes again, with what the ledger has.
        let before = addresses(&store, "a");
        delete(&store, &format!("{KIND}/a")).await;
        until("they are there again", || addresses(&store, "a") == before).await;
        delete(&store, "/api/v1/nodes/a").await;
        until("the object goes, then what was in it", || object(&store, "a").is_none() && ledger(&store).is_empty()).await;
        assert!(condition(&store, "p", "Ready").starts_with("True"));
    });
}

#[test]
fn nobody_elses_object_is_written() {
    run(async {
        let store = cluster();
        let selector = json!({"matchLabels": {"kubernetes.io/hostname": "ours"}});
        pool(&store, "p", &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/26"}]}, "nodeSelector": selector}));
        pool(&store, "q", &json!({"ipv4": {"entries": [{"cidr": "10.0.1.0/26"}]}}));
        let theirs = json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": "theirs"},
            "spec": {"ipam": {"pool": {"10.0.0.1": {}}}}});
        store.put(&theirs).unwrap();
        let before = object(&store, "theirs").unwrap();
        ["ours", "theirs", "nobodys"].iter().for_each(|name| drop(node(&store, name)));
        {
            // Without the flag it reads none of them.
            let _without = start(store.client(), scene::options("without"));
            until("it works", || condition(&store, "q", "Ready").starts_with("True")).await;
            let asked = store.requests().keys().any(|(_, what)| what.starts_with("ciliumnodes"));
            assert!(!asked && object(&store, "ours").is_none());
        }
        let _operator = operator(&store, "one");
        until("its own", || addresses(&store, "ours").len() == 8).await;
        assert!(!addresses(&store, "ours").contains("10.0.0.1"), "what stands in any object is not free");
        assert_eq!((object(&store, "theirs").unwrap(), object(&store, "nobodys")), (before, None));
    });
}

/// An operator to which CiliumNodes come late gives nothing of their network away meanwhile, and everything of the others.
#[test]
fn as_long_as_the_objects_were_not_read_nothing_of_their_network_is_granted() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        let selector = json!({"matchLabels": {"kubernetes.io/hostname": "nobody"}});
        let entries = json!({"entries": [{"cidr": "10.0.0.0/26"}], "blockPrefix": 28});
        pool(&store, "p", &json!({"ipv4": entries, "nodeSelector": selector}));
        pool(&store, "same", &json!({"ipv4": entries, "network": "p"}));
        pool(&store, "other", &json!({"ipv4": entries}));
        let theirs = json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": {"name": "theirs"},
            "spec": {"ipam": {"pool": {"10.0.0.1": {}, "10.0.0.16/28": {}}}}});
        store.put(&theirs).unwrap();
        let agent = scene::Agent::start(&store, "a", &node(&store, "a"), &["same", "other"], &truth);
        let late = Arc::new(AtomicBool::new(true));
        let is_late = Arc::clone(&late);
        let client = way(&store, move |method, path| match method == "GET" && path.ends_with("/ciliumnodes") {
            true if is_late.load(Ordering::Relaxed) => Fate::Refused,
            _ => Fate::Arrives,
        });
        let _operator = start(client, options("one"));
        agent.wants("same", 1);
        agent.wants("other", 1);
        until("a block of the other network", || truth.count() == 1).await;
        // Sleeps: that nothing is granted shows in time alone.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(
            (scene::blocks(&store, "a"), condition(&store, "same", "Ready").as_str()),
            (vec!["10.0.0.0/28".to_owned()], "True Granting")
        );
        late.store(false, Ordering::Relaxed);
        until("one beside what stands in the object", || truth.count() == 2).await;
        assert!(scene::blocks(&store, "a").contains(&"10.0.0.32/28".to_owned()), "{:?}", scene::blocks(&store, "a"));
        agent.fine();
    });
}

#[test]
fn the_kind_is_deleted_under_it_and_comes_again() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        pool(&store, "p", &small());
        pool(&store, "other", &json!({"ipv4": {"entries": [{"cidr": "10.1.0.0/22"}], "blockPrefix": 28}}));
        let agent = scene::Agent::start(&store, "a", &node(&store, "a"), &["other"], &truth);
        let _operator = operator(&store, "one");
        agent.wants("other", 1);
        until("two, and a block", || addresses(&store, "a").len() == 2 && truth.count() == 1).await;
        let before = addresses(&store, "a");
        delete(&store, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ciliumnodes.cilium.io").await;
        let client = store.client();
        let served = async || request(&client, "GET", KIND, "", &Value::Null).await.is_ok();
        while served().await {
            // Sleeps: between two looks.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Before a shard is made again, all nodes' objects are read.
        assert!(store.remove(API, "IPLedgerShard", "", "other.v4.10.1.0.0").unwrap());
        agent.wants("other", 3);
        until("blocks of another network", || truth.count() == 3).await;
        store.put(&serde_saphyr::from_str::<Value>(DEFINITION).unwrap()).unwrap();
        until("the same again", || addresses(&store, "a") == before).await;
        agent.fine();
    });
}

/// A node that joins while a ledger gathers: nothing comes into its object, so its agent can use nothing, and says so.
#[test]
fn who_joins_while_a_ledger_gathers_is_waited_for_until_it_says_that_it_has_nothing() {
    run(async {
        let store = cluster();
        let metadata = json!({"namespace": "kube-system", "name": "netloom-ledgers"});
        store.put(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"p.v4": ""}})).unwrap();
        pool(&store, "p", &small());
        node(&store, "a");
        let _operator = operator(&store, "one");
        until("its object", || object(&store, "a").is_some()).await;
        until("that it is waited for", || condition(&store, "p", "Ready") == "False Gathering").await;
        // Sleeps: that nothing is granted shows in time alone.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(addresses(&store, "a"), BTreeSet::new());
        let nothing = json!({"status": {"ipam": {"used": {}}}});
        request(&store.client(), "PATCH", &format!("{KIND}/a/status"), "application/merge-patch+json", &nothing).await.unwrap();
        until("two addresses", || addresses(&store, "a").len() == 2).await;
        check(&store, &["a"]);
    });
}
