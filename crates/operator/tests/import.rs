//! Addresses that whereabouts has handed out, brought into the ledger, over an object store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use cluster::Connection;
use netloom_operator::{Exported, Imported, LogLevel, Options, export, import, start};
use objects::Store;
use serde_json::{Value, json};

const API: &str = "netloom.io/v1alpha1";
const THEIRS: &str = "whereabouts.cni.cncf.io/v1alpha1";
/// The kinds as they are deployed.
const KINDS: [&str; 2] = [include_str!("../../../deploy/ippools.yaml"), include_str!("../../../deploy/definition.yaml")];

/// A kind of whereabouts, as far as it matters here.
fn their_kind(store: &Store, plural: &str, kind: &str) {
    let version = json!([{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]);
    let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
    let metadata = json!({"name": format!("{plural}.whereabouts.cni.cncf.io")});
    let spec = json!({"group": "whereabouts.cni.cncf.io", "scope": "Namespaced", "names": names, "versions": version});
    store
        .put(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}))
        .unwrap();
}

/// Two nodes, a definition, and four addresses that whereabouts has noted: of two pods that live, of one that is gone, and of one that
/// lives and has another one.
fn scene() -> Store {
    let store = Store::new();
    for document in KINDS.iter().flat_map(|file| file.split("\n---\n")) {
        store.put(&serde_saphyr::from_str::<Value>(document).unwrap()).unwrap();
    }
    their_kind(&store, "ippools", "IPPool");
    for node in ["n1", "n2"] {
        store.put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})).unwrap();
    }
    let config =
        json!({"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.9.0.0/24", "ipRanges": [{"range": "fd00:9::/64"}]}});
    store
        .put(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"namespace": "d", "name": "net"},
            "spec": {"config": config.to_string()}}))
        .unwrap();
    for (name, node, addresses) in
        [("p1", "n1", json!(["10.9.0.1", "fd00:9::8000:0:0:1"])), ("p2", "n2", json!(["10.9.0.2"])), ("moved", "n2", json!(["10.9.0.9"]))]
    {
        let status =
            json!([{"name": "cbr0", "ips": ["10.244.0.5"], "default": true}, {"name": "d/net", "interface": "net1", "ips": addresses}]);
        let annotations = json!({"k8s.v1.cni.cncf.io/network-status": status.to_string()});
        store
            .put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "d", "name": name, "annotations": annotations},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}}))
            .unwrap();
    }
    let allocation = |pod: &str| json!({"id": format!("sandbox-of-{pod}"), "podref": format!("d/{pod}"), "ifname": "net1"});
    let v4 = json!({"1": allocation("p1"), "2": allocation("p2"), "3": allocation("gone"), "4": allocation("moved")});
    for (name, range, allocations) in
        [("10.9.0.0-24", "10.9.0.0/24", v4), ("fd00-9---64", "fd00:9::/64", json!({"9223372036854775809": allocation("p1")}))]
    {
        store
            .put(&json!({"apiVersion": THEIRS, "kind": "IPPool", "metadata": {"namespace": "kube-system", "name": name},
                "spec": {"range": range, "allocations": allocations}}))
            .unwrap();
    }
    store
}

fn bring(store: &Store, dry: bool) -> Imported {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { import(&Connection::from(store.client()), dry).await.unwrap() })
}

/// Address, node and owner of everything in the ledger that is kept for somebody.
fn ledger(store: &Store) -> BTreeMap<String, (String, Value)> {
    let mut all = BTreeMap::new();
    for shard in store.objects(API, "IPLedgerShard").unwrap() {
        let base = shard["spec"]["base"].as_str().unwrap().split('/').next().unwrap().parse::<std::net::IpAddr>().unwrap();
        for (cell, value) in shard["spec"]["cells"].as_object().into_iter().flatten() {
            let address = match base {
                std::net::IpAddr::V4(base) => std::net::Ipv4Addr::from_bits(base.to_bits() + cell.parse::<u32>().unwrap()).to_string(),
                std::net::IpAddr::V6(base) => std::net::Ipv6Addr::from_bits(base.to_bits() + cell.parse::<u128>().unwrap()).to_string(),
            };
            let ip = &value["ips"]["0"];
            all.insert(address, (ip["node"].as_str().unwrap_or_default().to_owned(), ip["owner"].clone()));
        }
    }
    all
}

#[test]
fn every_pod_keeps_its_address_and_nothing_else_comes() {
    let store = scene();
    let dry = bring(&store, true);
    assert_eq!((dry.plan.kept.len(), dry.plan.stale.len(), dry.plan.unclear.len(), dry.entered), (4, 2, 0, 0), "{dry:?}");
    assert!(store.objects(API, "IPLedgerShard").unwrap().is_empty() && store.objects(API, "IPPool").unwrap().is_empty());
    let done = bring(&store, false);
    assert!(done.entered == 4 && done.refused.is_empty(), "{done:?}");
    for shard in store.objects(API, "IPLedgerShard").unwrap() {
        assert_eq!(shard["metadata"]["finalizers"], json!(["netloom.io/blocks"]), "{shard}");
    }
    let entered = ledger(&store);
    let addresses: Vec<&str> = entered.keys().map(String::as_str).collect();
    assert_eq!(addresses, ["10.9.0.1", "10.9.0.2", "10.9.0.9", "fd00:9::8000:0:0:1"]);
    assert_eq!(entered["10.9.0.1"].0, "n1");
    assert_eq!(entered["10.9.0.1"].1, json!({"pod": "d/p1", "attachment": {"containerID": "sandbox-of-p1", "ifname": "net1"}}));
    assert_eq!(entered["10.9.0.9"].1, json!({"pod": "d/moved", "attachment": {"containerID": "", "ifname": "net1"}}));
    let again = bring(&store, false);
    assert!(again.entered == 0 && again.refused.is_empty() && ledger(&store) == entered, "{again:?}");
}

/// The kinds were made anew, and the operator has not made the root yet: nodes may hold addresses of which nobody has told.
#[test]
fn the_root_of_a_ledger_that_was_lost_gathers() {
    let gathering = |store: &Store| -> Vec<(String, bool)> {
        bring(store, false);
        let shards = store.objects(API, "IPLedgerShard").unwrap();
        let roots = shards.iter().filter(|shard| shard["spec"]["base"].as_str().unwrap().ends_with("/0"));
        roots.map(|root| (root["metadata"]["name"].as_str().unwrap().to_owned(), root["spec"]["gathering"] == json!(true))).collect()
    };
    let [v4, v6] = ["whereabouts.v4", "whereabouts.v6"].map(str::to_owned);
    assert_eq!(gathering(&scene()), [(v4.clone(), false), (v6.clone(), false)]);
    let store = scene();
    let metadata = json!({"namespace": "network", "name": "netloom-ledgers"});
    store.put(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"whereabouts.v4": ""}})).unwrap();
    let held = json!([{"cidr": "fd00:9::7/128", "network": "whereabouts", "pool": "whereabouts-fd00-9---64", "epoch": 7}]);
    store
        .put(&json!({"apiVersion": API, "kind": "NodeIPPool", "metadata": {"name": "n1"}, "spec": {"nodeUID": "u", "blocks": held}}))
        .unwrap();
    assert_eq!(gathering(&store), [(v4, true), (v6, true)]);
}

fn put_shard(store: &Store, name: &str, base: &str, cell_prefix: u8, cells: &Value) {
    let spec = json!({"network": "whereabouts", "base": base, "cellPrefix": cell_prefix, "firstEpoch": 1, "cells": cells});
    store.put(&json!({"apiVersion": API, "kind": "IPLedgerShard", "metadata": {"name": name}, "spec": spec})).unwrap();
}

fn uid(store: &Store, node: &str) -> Value {
    store.objects("v1", "Node").unwrap().iter().find(|object| object["metadata"]["name"] == node).unwrap()["metadata"]["uid"].clone()
}

/// The pod's own node had it before anybody said that it is the pod's: its agent gives it to whoever asks next.
#[test]
fn what_a_node_has_already_is_not_called_kept() {
    let store = scene();
    bring(&store, false);
    let first = store.objects(API, "IPLedgerShard").unwrap();
    let shard = first.iter().find(|shard| shard["spec"]["cells"]["1"]["state"] == "Shared").unwrap();
    let granted = json!({"state": "Granted", "epoch": 1, "node": "n1", "nodeUID": uid(&store, "n1"), "pool": "whereabouts-10.9.0.0-24"});
    let (name, base) = (shard["metadata"]["name"].as_str().unwrap(), shard["spec"]["base"].as_str().unwrap());
    let store = scene();
    let granted = {
        let mut granted = granted;
        granted["nodeUID"] = uid(&store, "n1");
        granted
    };
    put_shard(&store, name, base, 32, &json!({"1": granted}));
    let dry = bring(&store, true);
    let done = bring(&store, false);
    assert!(dry.refused == done.refused && dry.entered == 0, "{dry:?}");
    let refused: Vec<(String, &str)> = done.refused.iter().map(|(kept, why)| (kept.address.to_string(), why.as_str())).collect();
    assert!(refused.len() == 1 && refused[0].0 == "10.9.0.1" && refused[0].1.contains("which node n1 has"), "{refused:?}");
    assert_eq!(done.entered, 3);
}

/// The network's blocks are of another size: nothing of that kind is written beside them.
#[test]
fn a_network_that_is_cut_otherwise_is_left_alone() {
    let store = scene();
    put_shard(&store, "whereabouts.v4", "0.0.0.0/0", 28, &json!({}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let failed = runtime.block_on(async { import(&Connection::from(store.client()), false).await.unwrap_err() });
    assert!(failed.to_string().contains("divided into /28 blocks already"), "{failed}");
    assert_eq!(store.objects(API, "IPLedgerShard").unwrap().len(), 1);
}

/// An operator that starts then grants all others, and none of these.
#[test]
fn nobody_else_gets_them() {
    let store = scene();
    bring(&store, false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _operator =
            start(store.client(), Options { lease: false, writes_per_second: 100_000, log_level: LogLevel::Off, ..Options::new("test") });
        let spec = |node: &str| {
            let all = store.objects(API, "NodeIPPool").unwrap();
            all.into_iter().find(|object| object["metadata"]["name"] == node).map(|object| object["spec"].clone()).unwrap_or_default()
        };
        let begun = Instant::now();
        let mut asked = false;
        loop {
            assert!(begun.elapsed() < Duration::from_secs(90), "not in time: {}", spec("n1"));
            // Sleeps: between two looks.
            tokio::time::sleep(Duration::from_millis(20)).await;
            if !asked && spec("n1")["pools"]["whereabouts-10.9.0.0-24"].is_object() {
                let status = json!({"status": {"demand": [{"pool": "whereabouts-10.9.0.0-24", "v4": 300, "v6": 0}]}});
                let path = format!("/apis/{API}/nodeippools/n1/status");
                let request = http::Request::builder().method("PATCH").uri(path).header("content-type", "application/merge-patch+json");
                store.client().request::<Value>(request.body(status.to_string().into_bytes()).unwrap()).await.unwrap();
                asked = true;
            }
            if spec("n1")["blocks"].as_array().is_some_and(|blocks| blocks.len() >= 251) {
                break;
            }
        }
        let granted: BTreeSet<String> =
            spec("n1")["blocks"].as_array().unwrap().iter().map(|b| b["cidr"].as_str().unwrap().replace("/32", "")).collect();
        assert_eq!(granted.len(), 251, "254 without those of three pods");
        assert!(["10.9.0.1", "10.9.0.2", "10.9.0.9"].iter().all(|kept| !granted.contains(*kept)));
        // Each node has what its pods have.
        let own = |node: &str| -> Vec<String> {
            let mut ips: Vec<String> =
                spec(node)["ips"].as_array().into_iter().flatten().map(|ip| ip["ip"].as_str().unwrap().to_owned()).collect();
            ips.sort();
            ips
        };
        assert_eq!(
            (own("n1"), own("n2")),
            (vec!["10.9.0.1".to_owned(), "fd00:9::8000:0:0:1".to_owned()], vec!["10.9.0.2".to_owned(), "10.9.0.9".to_owned()])
        );
    });
}

/// What is reserved, and no pool has it: kept out while its pod lives. A release that has no reservations is in every other test here.
#[test]
fn what_is_only_reserved_is_kept_while_its_pod_lives() {
    let store = scene();
    their_kind(&store, "overlappingrangeipreservations", "OverlappingRangeIPReservation");
    for (name, pod) in [("10.9.0.1", "p1"), ("10.9.0.30", "p2"), ("10.9.0.31", "gone"), ("10.9.0.2", "p1")] {
        let spec = json!({"podref": format!("d/{pod}"), "ifname": "net7", "containerid": ""});
        let metadata = json!({"namespace": "kube-system", "name": name});
        store.put(&json!({"apiVersion": THEIRS, "kind": "OverlappingRangeIPReservation", "metadata": metadata, "spec": spec})).unwrap();
    }
    let done = bring(&store, false);
    let left = |all: &[ipam::Left]| -> Vec<String> {
        let told = |left: &ipam::Left| format!("{} {} {}: {}", left.pool, left.address, left.pod, left.why);
        all.iter().map(told).filter(|told| told.contains("10.9.0.3") || told.contains("pod d/p2 has it")).collect()
    };
    assert!(
        left(&done.plan.stale).contains(&"reservation 10.9.0.31 10.9.0.31 d/gone: its pod is gone".to_owned()),
        "{:?}",
        done.plan.stale
    );
    assert_eq!(left(&done.plan.unclear), ["whereabouts-10.9.0.0-24 10.9.0.2 d/p1: pod d/p2 has it as well"]);
    let entered = ledger(&store);
    assert_eq!((entered.len(), &entered["10.9.0.30"].0), (5, &"n2".to_owned()), "{entered:?}");
    assert_eq!(entered["10.9.0.30"].1, json!({"pod": "d/p2", "attachment": {"containerID": "", "ifname": "net7"}}));
    assert_eq!(entered["10.9.0.2"].1["pod"], "d/p2");
}

fn take_back(store: &Store, dry: bool) -> Exported {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { export(&Connection::from(store.client()), "kube-system", dry).await.unwrap() })
}

/// The addresses of `10.9.0.0/24` that whereabouts has noted, with their pods.
fn noted(store: &Store) -> BTreeMap<String, String> {
    let pools = store.objects(THEIRS, "IPPool").unwrap();
    let pool = pools.iter().find(|pool| pool["metadata"]["name"] == "10.9.0.0-24").unwrap();
    let one = |(offset, noted): (&String, &Value)| (format!("10.9.0.{offset}"), noted["podref"].as_str().unwrap().to_owned());
    pool["spec"]["allocations"].as_object().unwrap().iter().map(one).collect()
}

/// Makes a pod that has got an address.
fn pod(store: &Store, name: &str, address: &str) {
    let status = json!([{"name": "d/net", "interface": "net1", "ips": [address]}]);
    let annotations = json!({"k8s.v1.cni.cncf.io/network-status": status.to_string()});
    store
        .put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "d", "name": name, "annotations": annotations},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
}

/// An export writes each pod's address, a dry run writes nothing, and a second export has nothing to write.
#[test]
fn whereabouts_is_told_of_every_pod() {
    let store = scene();
    their_kind(&store, "overlappingrangeipreservations", "OverlappingRangeIPReservation");
    let before = store.objects(THEIRS, "IPPool").unwrap();
    let dry = take_back(&store, true);
    assert!(dry.written > 0 && store.objects(THEIRS, "IPPool").unwrap() == before, "{dry:?}");
    let done = take_back(&store, false);
    assert_eq!((done.written, done.plan.left.len()), (dry.written, 0), "{done:?}");
    assert_eq!(done.plan.kept.len(), 4, "{done:?}");
    let kept =
        [("10.9.0.1", "d/p1"), ("10.9.0.2", "d/p2"), ("10.9.0.9", "d/moved")].map(|(address, pod)| (address.to_owned(), pod.to_owned()));
    assert_eq!(noted(&store), kept.into());
    let again = take_back(&store, false);
    assert_eq!((again.written, again.deleted), (0, 0), "{again:?}");
}

/// Ten times from whereabouts to Netloom and back, while pods come and go: no two that live have the same address.
#[test]
fn there_and_back_again() {
    let store = scene();
    their_kind(&store, "overlappingrangeipreservations", "OverlappingRangeIPReservation");
    let lowest = |taken: &BTreeSet<String>| (1..255).map(|n| format!("10.9.0.{n}")).find(|address| !taken.contains(address)).unwrap();
    let mut alive: BTreeMap<String, String> =
        [("p1", "10.9.0.1"), ("p2", "10.9.0.2"), ("moved", "10.9.0.9")].map(|(pod, address)| (pod.to_owned(), address.to_owned())).into();
    let begins = |alive: &mut BTreeMap<String, String>, name: String, taken: &BTreeSet<String>| {
        let address = lowest(taken);
        assert!(!alive.values().any(|other| *other == address), "{name} got {address}, which another pod has: {alive:?}");
        pod(&store, &name, &address);
        alive.insert(name, address);
    };
    let ends = |alive: &mut BTreeMap<String, String>| {
        let name = alive.keys().next().unwrap().clone();
        store.remove("v1", "Pod", "d", &name).unwrap();
        alive.remove(&name);
    };
    for round in 0..10 {
        let done = bring(&store, false);
        assert!(done.refused.is_empty() && done.plan.unclear.is_empty(), "{round}: {done:?}");
        let taken: BTreeSet<String> = ledger(&store).into_keys().collect();
        begins(&mut alive, format!("n{round}"), &taken);
        ends(&mut alive);
        take_back(&store, false);
        for kind in ["IPLedgerShard", "IPPool"] {
            for object in store.objects(API, kind).unwrap() {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                store.remove(API, kind, "", &name).unwrap();
            }
        }
        let reserved = store.objects(THEIRS, "OverlappingRangeIPReservation").unwrap();
        let reserved = reserved.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned());
        let taken: BTreeSet<String> = noted(&store).into_keys().chain(reserved).collect();
        for (pod, address) in &alive {
            assert!(taken.contains(address), "{round}: whereabouts does not know that {pod} has {address}");
        }
        begins(&mut alive, format!("w{round}"), &taken);
        ends(&mut alive);
    }
}
