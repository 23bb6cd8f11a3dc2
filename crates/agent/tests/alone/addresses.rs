//! Addresses that a cluster grants: the agent on the embedded store, where the test is the operator.

#[path = "conflicts.rs"]
mod conflicts;
#[path = "listening.rs"]
mod listening;
#[path = "node_gone.rs"]
mod node_gone;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use objects::{Requests, Store};
use serde_json::{Value, json};

use crate::api::{Api, pod};
use crate::world::{Of, World, until};

const VERSION: &str = "netloom.io/v1alpha1";

fn store() -> Store {
    let store = Store::new();
    store.install_network_attachment_definitions();
    install(&store);
    store
}

/// The kinds of the operator, as a cluster has them.
pub(crate) fn install(store: &Store) {
    let text = include_str!("../../../../deploy/ippools.yaml");
    for part in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(part).unwrap();
        if object["kind"] == "CustomResourceDefinition" {
            store.put(&object).unwrap();
        }
    }
}

/// The node's default network: a bridge with addresses of the pool `a`.
fn network() -> Value {
    json!({"delegates": [{"cniVersion": "1.1.0", "name": "pods", "type": "bridge", "bridge": "pods0", "isGateway": true,
        "ipam": {"type": "pool", "pool": "a", "addWait": 60}}]})
}

/// A node's object with these blocks of the pool `a`, all of one epoch.
fn granted(blocks: &[&str], epoch: u64, more: Value) -> Value {
    let blocks: Vec<Value> = blocks.iter().map(|cidr| json!({"cidr": cidr, "network": "a", "pool": "a", "epoch": epoch})).collect();
    let mut terms = json!({"network": "a", "ipv4": {"prefixLength": 16, "blockPrefix": 30, "gateway": "10.20.255.254"},
        "ipv6": {"prefixLength": 64, "blockPrefix": 126, "gateway": "fd00:20::ffff"},
        "scaling": {"minAllocate": 0, "preAllocate": 0, "maxAllocate": 0, "maxAboveWatermark": 0, "releaseDelaySeconds": 0},
        "reuse": {"cooldownSeconds": 0, "order": "lowest"}});
    terms.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": VERSION, "kind": "NodeIPPool", "metadata": {"name": "n1"},
        "spec": {"nodeUID": "u1", "blocks": blocks, "ips": [], "pools": {"a": terms}}})
}

fn keeps() -> Value {
    json!({"scaling": {"minAllocate": 0, "preAllocate": 0, "maxAllocate": 0, "maxAboveWatermark": 0, "releaseDelaySeconds": 1_000_000}})
}

/// The operator writes a spec, or the test what an agent before this one had written as its status.
pub(crate) fn write(store: &Store, part: &str, object: &Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let kind = kube::core::GroupVersionKind::gvk("netloom.io", "v1alpha1", "NodeIPPool");
        let api: kube::Api<kube::core::DynamicObject> = kube::Api::all_with(store.client(), &kube::core::ApiResource::from_gvk(&kind));
        loop {
            let Some(mut now) = api.get_opt("n1").await.unwrap() else {
                api.create(&Default::default(), &serde_json::from_value(object.clone()).unwrap()).await.unwrap();
                continue;
            };
            now.data[part] = object[part].clone();
            let written = match part {
                "status" => api.replace_status("n1", &Default::default(), &now).await,
                _ => api.replace("n1", &Default::default(), &now).await,
            };
            match written {
                Err(kube::Error::Api(refused)) if refused.code == 409 => {}
                written => return drop(written.unwrap()),
            }
        }
    });
}

fn grant(store: &Store, object: &Value) {
    write(store, "spec", object);
}

/// The Node for which things are granted.
pub(crate) fn own_node(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": uid}})
}

fn node(store: &Store) -> Option<Value> {
    store.objects(VERSION, "NodeIPPool").unwrap().into_iter().next()
}

pub(crate) fn status(store: &Store) -> Value {
    node(store).map(|node| node["status"].clone()).unwrap_or_default()
}

/// What the agent says that it needs of the pool, in both families.
fn demand(store: &Store) -> (u64, u64) {
    let of = |key: &str| status(store)["demand"][0][key].as_u64().unwrap_or_default();
    (of("v4"), of("v6"))
}

fn returning(store: &Store) -> Vec<(String, u64)> {
    let all = status(store)["returning"].as_array().cloned().unwrap_or_default();
    all.iter().map(|r| (r["cidr"].as_str().unwrap().to_owned(), r["epoch"].as_u64().unwrap())).collect()
}

/// A pod that the agent has seen, and its namespace.
fn known(store: &Store, world: &World, name: &str) {
    let mut pod = pod(name, "");
    pod["metadata"]["annotations"] = json!({});
    Api::put(store, &pod);
    world.sandbox(name);
    until("the watch", || world.agent().knows("default", name), |known| *known);
}

fn ips(result: &Value) -> Vec<String> {
    result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap().to_owned()).collect()
}

fn add(store: &Store, world: &World, name: &str) -> Vec<String> {
    known(store, world, name);
    ips(&world.ok("ADD", name))
}

/// The requests since then, but for watches: one begins when it likes.
fn since(before: &Requests, store: &Store) -> Vec<(&'static str, String, u64)> {
    let now = store.requests();
    let more = now.into_iter().map(|(key, count)| (key.clone(), count - before.get(&key).copied().unwrap_or_default()));
    more.filter(|((verb, _), count)| *verb != "watch" && *count > 0).map(|((verb, resource), count)| (verb, resource, count)).collect()
}

/// An agent that has taken in what is granted, and has said so.
fn world(store: &Store) -> World {
    let world = World::with(store, network(), true);
    until("the agent's name", || status(store)["agent"]["instance"].as_str().is_some_and(|i| !i.is_empty()), |there| *there);
    world
}

#[test]
fn an_add_and_a_del_ask_nobody() {
    let store = store();
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps()));
    let world = world(&store);
    // The first one makes this node need a block of each family: that is told.
    assert_eq!(add(&store, &world, "first"), ["10.20.0.0/16", "fd00:20::/64"]);
    until("what is needed", || demand(&store), |demand| *demand == (4, 4));
    for name in ["web", "db"] {
        known(&store, &world, name);
        let before = store.requests();
        let got = ips(&world.ok("ADD", name));
        assert_eq!(since(&before, &store), [("patch", "pods/status".to_owned(), 1)], "{name}: {got:?}");
        let before = store.requests();
        world.ok("CHECK", name);
        world.ok("DEL", name);
        assert_eq!(since(&before, &store), [], "{name}");
    }
    world.ok("DEL", "first");
}

#[test]
fn an_add_waits_for_its_block_and_holds_the_demand_of_both_families() {
    let store = store();
    grant(&store, &granted(&["10.20.0.0/30"], 1, keeps()));
    let world = world(&store);
    known(&store, &world, "web");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| world.ok("ADD", "web"));
        until("what is needed", || demand(&store), |demand| *demand == (4, 4));
        assert!(!waiting.is_finished(), "of IPv6 there is nothing");
        grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps()));
        assert_eq!(ips(&waiting.join().unwrap()), ["10.20.0.0/16", "fd00:20::/64"]);
    });
    world.ok("DEL", "web");
}

/// The node's object, and even its kind, come after the agent.
#[test]
fn the_kind_comes_later() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    let world = World::with(&store, network(), true);
    known(&store, &world, "web");
    until(
        "the answer that there is no such kind",
        || world.call("ADD", Of { pod: "web", uid: "" }),
        |refused| refused.as_ref().is_err_and(|(code, msg)| *code == 5 && msg.contains("pools/a.json")),
    );
    install(&store);
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps()));
    until("the agent's name", || status(&store)["agent"]["instance"].is_string(), |there| *there);
    assert_eq!(ips(&world.ok("ADD", "web")).len(), 2);
    world.ok("DEL", "web");
}

#[test]
fn too_much_is_given_back_and_comes_again_in_another_life() {
    let store = store();
    let both = ["10.20.0.0/30", "10.20.0.4/30", "fd00:20::/126"];
    grant(&store, &granted(&both, 7, keeps()));
    let world = world(&store);
    let names: Vec<String> = (0..5).map(|n| format!("p{n}")).collect();
    names[..4].iter().for_each(|name| drop(add(&store, &world, name)));
    // It is too much from here on, and there is no delay: one block of IPv4 has nobody.
    grant(&store, &granted(&both, 7, json!({})));
    until("the block given back", || returning(&store), |r| *r == [("10.20.0.4/30".to_owned(), 7)]);
    // Demand returns before the operator has taken it: another one is waited for, this one is not used.
    known(&store, &world, &names[4]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| world.ok("ADD", &names[4]));
        until("what is needed", || demand(&store), |demand| *demand == (8, 8));
        assert!(!waiting.is_finished());
        assert_eq!(returning(&store), [("10.20.0.4/30".to_owned(), 7)]);
        // The operator takes it, and an old word of it comes.
        grant(&store, &granted(&[both[0], both[2]], 7, json!({})));
        until("the block gone", || returning(&store), Vec::is_empty);
        grant(&store, &granted(&both, 7, json!({})));
        until("it is given back once more", || returning(&store), |r| *r == [("10.20.0.4/30".to_owned(), 7)]);
        assert!(!waiting.is_finished());
        let mut anew = granted(&[both[0], both[1], both[2], "fd00:20::4/126"], 7, json!({}));
        anew["spec"]["blocks"][1]["epoch"] = json!(8);
        grant(&store, &anew);
        assert_eq!(ips(&waiting.join().unwrap()), ["10.20.0.4/16", "fd00:20::4/64"]);
    });
    names.iter().for_each(|name| drop(world.ok("DEL", name)));
    until("all given back", || returning(&store).len(), |n| *n == 4);
    until("that nothing is needed", || demand(&store), |demand| *demand == (0, 0));
}

/// The server is away, then has lost the object: the node goes on with what it has, as its Node is there.
#[test]
fn without_the_api_the_node_goes_on() {
    let store = store();
    Api::put(&store, &own_node("u1"));
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps()));
    let mut world = world(&store);
    let first = add(&store, &world, "first");
    known(&store, &world, "web");
    store.stop();
    let web = ips(&world.ok("ADD", "web"));
    assert_ne!(web, first);
    world.ok("DEL", "web");
    store.start();
    assert!(store.remove(VERSION, "NodeIPPool", "", "n1").unwrap());
    world.restart(&store);
    assert!(world.agent().synced(Duration::from_secs(60)));
    until("the watch", || world.agent().knows("default", "web"), |known| *known);
    assert_eq!(ips(&world.ok("ADD", "web")), web, "from the journal");
    assert_eq!(node(&store), None, "nothing is published without an object");
    // It comes again, without a word of what is in use: nobody loses anything.
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps()));
    until("what is needed", || demand(&store), |demand| *demand == (4, 4));
    world.ok("CHECK", "first");
    ["first", "web"].iter().for_each(|name| drop(world.ok("DEL", name)));
}

fn holding(store: &Store) -> Vec<(String, u64)> {
    let all = status(store)["holding"].as_array().cloned().unwrap_or_default();
    all.iter().map(|r| (r["cidr"].as_str().unwrap().to_owned(), r["epoch"].as_u64().unwrap())).collect()
}

/// The Node is deleted and made anew, and the pods of the machine live on.
#[test]
fn what_pods_have_is_told_to_the_next_node_of_the_name() {
    let store = store();
    let both = ["10.20.0.0/30", "fd00:20::/126"];
    grant(&store, &granted(&both, 4, keeps()));
    let mut world = world(&store);
    let web = add(&store, &world, "web");
    assert!(store.remove(VERSION, "NodeIPPool", "", "n1").unwrap());
    let mut anew = granted(&[], 4, keeps());
    anew["spec"]["nodeUID"] = json!("u2");
    grant(&store, &anew);
    let told = both.map(|cidr| (cidr.to_owned(), 4)).to_vec();
    until("what is held", || holding(&store), |held| *held == told);
    let instance = || status(&store)["agent"]["instance"].clone();
    let before = instance();
    world.restart(&store);
    until("the next agent's name", instance, |now| now.is_string() && *now != before);
    assert_eq!(holding(&store), told);
    anew["spec"]["blocks"] = granted(&both, 4, keeps())["spec"]["blocks"].clone();
    grant(&store, &anew);
    until("that it is granted", || holding(&store), Vec::is_empty);
    let db = add(&store, &world, "db");
    assert_eq!((web[0].as_str(), db[0].as_str()), ("10.20.0.0/16", "10.20.0.1/16"));
    for name in ["web", "db"] {
        world.ok("CHECK", name);
        world.ok("DEL", name);
    }
}

/// What is granted to a machine of this node's name is not this machine's because of the name.
#[test]
fn what_is_another_machines_is_not_used() {
    let store = store();
    let machine = |boot: &str| json!({"status": {"nodeInfo": {"bootID": boot}}});
    let mut node = machine("another");
    node["apiVersion"] = json!("v1");
    node["kind"] = json!("Node");
    node["metadata"] = json!({"name": "n1"});
    store.put(&node).unwrap();
    let uid = store.objects("v1", "Node").unwrap()[0]["metadata"]["uid"].clone();
    let asked = || store.requests().get(&("get", "nodes".to_owned())).copied().unwrap_or_default();
    let mut object = granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps());
    grant(&store, &object);
    let world = World::with(&store, network(), true);
    until("a question", asked, |count| *count > 0);
    object["spec"]["nodeUID"] = uid;
    grant(&store, &object);
    let before = asked();
    until("a question that was asked behind it", || asked() - before, |count| *count > 1);
    assert_eq!(status(&store)["agent"], Value::Null);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let kind = kube::core::GroupVersionKind::gvk("", "v1", "Node");
        let api: kube::Api<kube::core::DynamicObject> = kube::Api::all_with(store.client(), &kube::core::ApiResource::from_gvk(&kind));
        let patch = kube::api::Patch::Merge(machine(&boot()));
        api.patch_status("n1", &Default::default(), &patch).await.unwrap();
    });
    until("the agent's name", || status(&store)["agent"]["instance"].is_string(), |there| *there);
    assert_eq!(add(&store, &world, "web")[0], "10.20.0.0/16");
    world.ok("DEL", "web");
}

/// The journal is lost while the operator has a block as given back: it is not used.
#[test]
fn what_was_given_back_is_not_used_by_who_has_forgotten_it() {
    let store = store();
    let mut object = granted(&["10.20.0.0/30", "10.20.0.4/30", "fd00:20::/126"], 3, keeps());
    object["status"] = json!({"agent": {"storeID": "lost", "bootID": boot(), "instance": "before"},
        "returning": [{"cidr": "10.20.0.0/30", "pool": "a", "epoch": 3}]});
    grant(&store, &object);
    write(&store, "status", &object);
    let world = World::with(&store, network(), true);
    until("the agent's name", || status(&store)["agent"]["storeID"] != "lost", |there| *there);
    assert_eq!(add(&store, &world, "web")[0], "10.20.0.4/16");
    assert_eq!(returning(&store), [("10.20.0.0/30".to_owned(), 3)]);
    world.ok("DEL", "web");
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// More pods than addresses: those that are short wait, and run when others go.
#[test]
fn more_pods_than_addresses() {
    let store = store();
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps()));
    let (world, told) = (Arc::new(world(&store)), Arc::new(AtomicBool::new(false)));
    let names: Vec<String> = (0..10).map(|n| format!("p{n}")).collect();
    names.iter().for_each(|name| known(&store, &world, name));
    let adds: Vec<JoinHandle<Vec<String>>> = names
        .iter()
        .map(|name| {
            let (world, told, name) = (Arc::clone(&world), Arc::clone(&told), name.clone());
            spawn(move || {
                let got = ips(&world.ok("ADD", &name));
                // Who has run goes, once it is told that there are too few.
                until("what is needed", || told.load(Ordering::Relaxed), |told| *told);
                world.ok("DEL", &name);
                got
            })
        })
        .collect();
    until("what is needed", || demand(&store).0, |v4| *v4 > 4);
    told.store(true, Ordering::Relaxed);
    assert!(adds.into_iter().all(|add| add.join().unwrap().len() == 2));
}

/// The journal is removed, or damaged, while pods run: what they have is known from their records, and nobody else gets it.
#[test]
fn a_journal_that_is_lost_is_made_anew() {
    let store = store();
    // Its own addresses: other tests' namespaces are on this machine as well, and nobody here knows whose they are.
    let own =
        granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps()).to_string().replace("10.20.", "10.21.").replace("fd00:20:", "fd00:21:");
    grant(&store, &serde_json::from_str(&own).unwrap());
    let mut world = world(&store);
    let kept = ["a", "b"].map(|name| add(&store, &world, name));
    for damage in [false, true] {
        world.restart_after(&store, |journal| if damage { spoil(journal) } else { std::fs::remove_dir_all(journal).unwrap() });
        assert!(world.agent().synced(Duration::from_secs(60)));
        let name = format!("new{damage}");
        let got = add(&store, &world, &name);
        assert!(got.iter().all(|ip| !kept.concat().contains(ip)), "{got:?} {kept:?}");
        ["a", "b"].iter().for_each(|name| drop(world.ok("CHECK", name)));
        world.ok("DEL", &name);
    }
    world.ok("DEL", "a");
    assert_eq!(add(&store, &world, "c"), kept[0], "what is given back is free");
    ["b", "c"].iter().for_each(|name| drop(world.ok("DEL", name)));
}

/// A disk that forgets.
fn spoil(journal: &Path) {
    let log = journal.join("0000000000000000.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[..64].fill(0xff);
    std::fs::write(&log, bytes).unwrap();
}

/// What makes a journal anew waits for what is granted, also over a restart: a namespace that nobody knows keeps its address.
#[test]
fn a_lost_journal_is_remembered_until_all_is_granted_again() {
    let store = store();
    let own = |blocks: &str| granted(&[blocks], 1, keeps()).to_string().replace("10.20.", "10.22.").replace("fd00:20:", "fd00:22:");
    grant(&store, &serde_json::from_str(&own("10.22.0.0/30")).unwrap());
    let mut network = network();
    network["delegates"][0]["ipam"]["families"] = json!(["ipv4"]);
    let mut world = World::with(&store, network, true);
    assert_eq!(add(&store, &world, "a"), ["10.22.0.0/16"]);
    world.ok("DEL", "a");
    world.stray("stray", "10.22.0.0/32");
    assert!(store.remove(VERSION, "NodeIPPool", "", "n1").unwrap(), "somebody has deleted it");
    world.restart_after(&store, spoil);
    // It has found nothing to take in, and its journal is a sound one now.
    assert!(world.agent().synced(Duration::from_secs(60)));
    let mut journal = std::path::PathBuf::new();
    world.restart_after(&store, |dir| journal = dir.to_owned());
    grant(&store, &serde_json::from_str(&own("10.22.0.0/30")).unwrap());
    assert_eq!(add(&store, &world, "b"), ["10.22.0.1/16"]);
    until("the end of it", || journal.join("recovering").exists(), |there| !there);
    world.ok("DEL", "b");
}

/// Pools of the host's own that no record names, and two of them with the same addresses.
#[test]
fn a_hosts_own_pools_are_made_anew_each_for_itself() {
    let store = store();
    let mut network = network();
    network["delegates"][0]["ipam"] = json!({"type": "pool", "pool": "own", "addWait": 60});
    let mut world = World::with(&store, network, true);
    let entries = json!([{"range": "10.23.0.1-10.23.0.4"}]);
    let pool = json!({"kind": "IPPool", "spec": {"ipv4": {"entries": entries, "prefixLength": 24, "gateway": "10.23.0.254"}}});
    ["another", "own"].iter().for_each(|name| drop(world.pool_file(name, &pool)));
    let kept = add(&store, &world, "a");
    let free: Vec<String> = (1..=4).map(|n| format!("10.23.0.{n}")).filter(|ip| !kept[0].starts_with(ip)).collect();
    world.stray("stray", &format!("{}/32", free[0]));
    world.restart_after(&store, spoil);
    assert!(world.agent().synced(Duration::from_secs(60)));
    world.ok("CHECK", "a");
    let mut got: Vec<String> = ["b", "c"].iter().map(|name| add(&store, &world, name)[0].clone()).collect();
    got.sort();
    assert_eq!(got, free[1..].iter().map(|ip| format!("{ip}/24")).collect::<Vec<_>>());
    ["a", "b", "c"].iter().for_each(|name| drop(world.ok("DEL", name)));
    // Without a record: nobody but its namespace says anything of the stray one's.
    world.restart_after(&store, spoil);
    let got: Vec<String> = ["d", "e", "f"].iter().map(|name| add(&store, &world, name)[0].clone()).collect();
    assert!(!got.contains(&format!("{}/24", free[0])), "{got:?}");
    ["d", "e", "f"].iter().for_each(|name| drop(world.ok("DEL", name)));
}

/// A host had a pool of its own of a name that is the cluster's now: it keeps all of it while anybody has an address of it, and the cluster
/// hears of nothing that is its own. When nobody has, the pool is the cluster's, and no word of the operator is needed for it.
#[test]
fn a_hosts_own_pool_makes_way_for_the_clusters_when_nobody_has_anything_of_it() {
    let store = store();
    let mut network = network();
    network["delegates"][0]["ipam"]["addWait"] = json!(30);
    let world = World::with(&store, network, true);
    // With one of them in use the cluster's pool would need four addresses.
    let entries = json!([{"range": "10.20.0.1-10.20.0.2"}, {"range": "10.20.8.1-10.20.8.2"}, {"range": "10.20.9.1-10.20.9.4"}]);
    let spec = json!({"ipv4": {"entries": entries, "prefixLength": 16, "gateway": "10.20.255.254"}, "scaling": {"preAllocate": 0}});
    let file = world.pool_file("a", &json!({"kind": "IPPool", "spec": spec}));
    assert_eq!(add(&store, &world, "p1"), ["10.20.0.1/16"]);
    // There is no delay: what the cluster's pool has too much is given back at once.
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, json!({})));
    until("the agent's name", || status(&store)["agent"]["instance"].is_string(), |there| *there);
    assert_eq!(demand(&store), (0, 0));
    let got: Vec<String> = ["p2", "p3", "p4", "p5"].iter().flat_map(|name| add(&store, &world, name)).collect();
    assert_eq!(got, ["10.20.0.2/16", "10.20.8.1/16", "10.20.8.2/16", "10.20.9.1/16"]);
    assert_eq!(returning(&store), []);
    grant(&store, &granted(&["10.20.0.0/30", "fd00:20::/126"], 1, keeps()));
    std::fs::remove_file(file).unwrap();
    ["p1", "p2", "p3", "p4", "p5"].iter().for_each(|name| drop(world.ok("DEL", name)));
    assert_eq!(add(&store, &world, "new"), ["10.20.0.0/16", "fd00:20::/64"]);
    world.ok("DEL", "new");
}

/// The pod's owner hears of it.
#[test]
fn who_waits_in_vain_is_told_why() {
    let store = store();
    grant(&store, &granted(&[], 1, keeps()));
    let mut network = network();
    network["delegates"][0]["ipam"]["addWait"] = json!(1);
    let world = World::with(&store, network, true);
    until("the agent's name", || status(&store)["agent"]["instance"].is_string(), |there| *there);
    known(&store, &world, "web");
    let refused = world.call("ADD", Of { pod: "web", uid: "" }).unwrap_err();
    assert!(refused.0 == 11 && refused.1.contains("pool \"a\" has no free IPv4 address on this node"), "{refused:?}");
    assert!(["operator", "`kubectl get ippools.netloom.io a`", "Exhausted"].iter().all(|said| refused.1.contains(said)), "{refused:?}");
    until("the Event", || Api::events(&store, "web"), |events| events.iter().any(|(_, reason, _)| reason == "AddressesExhausted"));
    // What it waited for is not needed any more.
    until("that nothing is needed", || demand(&store), |demand| *demand == (0, 0));
    world.ok("DEL", "web");
}

/// A name that neither a file nor the cluster has: where to look is said to who called and to the pod's owner.
#[test]
fn a_pool_that_is_nowhere() {
    let store = store();
    grant(&store, &granted(&["10.20.0.0/30"], 1, keeps()));
    let mut network = network();
    let ipam = &mut network["delegates"][0]["ipam"];
    (ipam["addWait"], ipam["pool"]) = (json!(0), json!("b"));
    let world = World::with(&store, network, true);
    until("the agent's name", || status(&store)["agent"]["instance"].is_string(), |there| *there);
    known(&store, &world, "web");
    let refused = world.call("ADD", Of { pod: "web", uid: "" }).unwrap_err();
    let words = ["pool \"b\" is not granted to this node (yet): there is no file", "b.json", "cluster", "`kubectl get ippools.netloom.io`"];
    assert!(refused.0 == 11 && words.iter().all(|said| refused.1.contains(said)), "{refused:?}");
    until("the Event", || Api::events(&store, "web"), |events| events.iter().any(|(_, reason, _)| reason == "PoolNotHere"));
    world.ok("DEL", "web");
}

/// A pod that another address manager had given its address, brought over: it has no lease here. While anybody has a trace of it nothing
/// is given back, whatever becomes of the pool.
#[test]
fn what_was_brought_over_is_given_back_when_its_attachment_is_gone() {
    let store = store();
    let owner = json!({"pod": "default/old", "attachment": {"containerID": "sandbox-of-old", "ifname": "net1"}});
    let mut object = granted(&["10.20.0.0/30"], 1, keeps());
    object["spec"]["ips"] = json!([{"ip": "10.20.77.9", "network": "a", "pool": "a", "epoch": 3, "owner": owner}]);
    grant(&store, &object);
    let world = world(&store);
    known(&store, &world, "old");
    let netns = world.netns("old");
    let ip = |args: &[&str]| {
        let name = netns.file_name().unwrap().to_str().unwrap();
        assert!(std::process::Command::new("ip").args(["-n", name]).args(args).status().unwrap().success(), "{args:?}");
    };
    let looks = || [0; 3].map(|_| world.agent().return_kept());
    assert_eq!(looks(), [0; 3], "its pod lives");
    ip(&["address", "add", "10.20.77.9/16", "dev", "lo"]);
    let result = world.cached("storage-sandbox-of-old-net1");
    std::fs::write(&result, "{}").unwrap();
    Api::remove_pod(&store, "old");
    until("the watch", || world.agent().knows("default", "old"), |known| !known);
    assert_eq!(looks(), [0; 3], "its runtime has kept its result");
    std::fs::remove_file(&result).unwrap();
    assert_eq!(looks(), [0; 3], "it is in a namespace");
    object["spec"]["pools"]["a"]["ending"] = json!(true);
    grant(&store, &object);
    until("the end of the pool", || returning(&store), |returned| !returned.is_empty());
    assert_eq!((looks(), returning(&store)), ([0; 3], vec![("10.20.0.0/30".to_owned(), 1)]));
    ip(&["address", "del", "10.20.77.9/16", "dev", "lo"]);
    assert_eq!(world.agent().return_kept(), 0, "one look is not enough");
    // A look that cannot see everything counts for nothing.
    until("another one", || world.agent().return_kept(), |count| *count == 1);
    assert_eq!(looks(), [0; 3]);
    until("its return", || returning(&store), |returned| returned.contains(&("10.20.77.9/32".to_owned(), 3)));
}

/// Its pod was attached by Multus with whereabouts; its DEL comes here, and the address goes back with it, no look at all needed. Another
/// interface of it, and another container, keep theirs.
#[test]
fn what_was_brought_over_goes_back_with_its_del() {
    let store = store();
    let kept = |ip: &str, epoch: u64, container: &str, ifname: &str| {
        let owner = json!({"pod": "default/old", "attachment": {"containerID": container, "ifname": ifname}});
        json!({"ip": ip, "network": "a", "pool": "a", "epoch": epoch, "owner": owner})
    };
    let mut object = granted(&["10.20.0.0/30"], 1, keeps());
    object["spec"]["ips"] = json!([
        kept("10.20.77.9", 3, "c-old", "net1"),
        kept("fd00:20::9", 4, "c-old", "net1"),
        kept("10.20.77.10", 5, "c-old", "net2"),
        kept("10.20.77.11", 6, "c-other", "net1"),
    ]);
    grant(&store, &object);
    let world = world(&store);
    known(&store, &world, "old");
    let config = json!({"cniVersion": "1.0.0", "name": "storage", "type": "bridge", "bridge": "stor0",
        "ipam": {"type": "whereabouts", "range": "10.20.77.0/24"}});
    let cached = json!({"kind": "cniCacheV1", "containerId": "c-old", "config": BASE64.encode(config.to_string()), "ifName": "net1",
        "networkName": "storage", "result": {"cniVersion": "1.0.0", "ips": [{"address": "10.20.77.9/24"}]}});
    let file = world.multus("storage-c-old-net1");
    std::fs::write(&file, cached.to_string()).unwrap();
    world.ok("DEL", "old");
    assert!(!file.exists(), "the DEL of what Multus had attached");
    until("its return", || returning(&store), |returned| returned.len() > 1);
    let expected = [("10.20.77.9/32".to_owned(), 3), ("fd00:20::9/128".to_owned(), 4)];
    assert_eq!(returning(&store), expected);
    world.ok("DEL", "old");
    assert_eq!(returning(&store), expected);
}
