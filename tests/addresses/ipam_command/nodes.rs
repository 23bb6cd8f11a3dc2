//! What is told of a cluster's pools, whose objects the test writes as operator and agents would.

use std::process::{Command, Output};

use netloom_tests::netloom;
use serde_json::{Value, json};
use testbed::ControlPlane;

use crate::ipam_command::text;

const API: &str = "netloom.io/v1alpha1";

/// An API server that serves our kinds.
fn cluster(name: &str) -> ControlPlane {
    let control = ControlPlane::named(&format!("ipam-{name}-{}", std::process::id())).unwrap();
    control.apply(include_str!("../../../deploy/ippools.yaml")).unwrap();
    ["ippools.netloom.io", "nodeippools.netloom.io"].iter().for_each(|kind| control.served(kind).unwrap());
    control
}

/// Writes an object with its status.
fn put(control: &ControlPlane, object: &Value) {
    control.apply(&object.to_string()).unwrap();
    if let Some(status) = object.get("status") {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let patch = json!({ "status": status }).to_string();
        control.kubectl(&["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch], "").unwrap();
    }
}

fn run(control: &ControlPlane, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(netloom()).arg("ipam").args(args).env("KUBECONFIG", control.kubeconfig()).output().unwrap();
    (status.code().unwrap(), text(&stdout), text(&stderr))
}

fn words(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect()
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn nodes_and_pools_of_a_cluster() {
    let control = cluster("nodes");
    assert_eq!(
        run(&control, &["nodes"]),
        (0, "no node has a NodeIPPool: check that the operator runs and that the cluster has an IPPool\n".into(), String::new())
    );
    assert_eq!(run(&control, &["status", "--cluster"]).1, "the cluster has no IPPool\n");
    let spec = json!({"ipv4": {"entries": [{"cidr": "10.20.0.0/24"}], "blockPrefix": 26}, "ipv6": {"entries": [{"cidr": "fd00:20::/64"}], "blockPrefix": 122}});
    let used = |capacity: &str, granted: u64, used: u64| json!({"capacity": capacity, "granted": granted, "inUse": used});
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Test", "message": "128 addresses are missing", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    put(
        &control,
        &json!({"apiVersion": API, "kind": "IPPool", "metadata": {"name": "storage"}, "spec": spec,
        "status": {"observedGeneration": 1, "ipv4": used("254", 192, 99), "ipv6": used("18446744073709551614", 64, 0), "conditions": [condition("Ready", "True")]}}),
    );
    let block = |cidr: &str| json!({"cidr": cidr, "network": "storage", "pool": "storage", "epoch": 1});
    let agent = json!({"storeID": "s", "bootID": "b", "instance": "i"});
    let node = |name: &str, blocks: Value, status: Value| json!({"apiVersion": API, "kind": "NodeIPPool", "metadata": {"name": name}, "spec": {"nodeUID": name, "blocks": blocks, "ips": [], "pools": {}}, "status": status});
    put(
        &control,
        &node(
            "n1",
            json!([block("10.20.0.0/26"), block("fd00:20::/122")]),
            json!({"observedGeneration": 9, "agent": agent,
        "demand": [{"pool": "storage", "v4": 64, "v6": 64, "inUseV4": 31, "inUseV6": 30}]}),
        ),
    );
    let (code, stdout, _) = run(&control, &["nodes"]);
    let lines: Vec<Vec<&str>> = stdout.lines().map(words).collect();
    assert_eq!((code, &lines[0]), (0, &vec!["NODE", "POOL", "BLOCKS", "IPV4", "IPV6", "RETURNING", "AGENT"]), "{stdout}");
    assert_eq!(lines[1], ["n1", "storage", "2", "31 of 64", "30 of 64", "0", "current"]);
    let (code, stdout, _) = run(&control, &["status", "--cluster"]);
    let lines: Vec<Vec<&str>> = stdout.lines().map(words).collect();
    assert_eq!(
        (code, &lines[1], &lines[2]),
        (0, &vec!["storage", "IPv4", "254", "192", "99", "38%"], &vec!["IPv6", "~2^64", "64", "0", "0%"]),
        "{stdout}"
    );
    // A node that needs more, one whose agent says nothing, an address that somebody else has, and a pool that is exhausted.
    put(
        &control,
        &node(
            "n2",
            json!([block("10.20.0.64/26")]),
            json!({"observedGeneration": 9, "agent": agent,
        "demand": [{"pool": "storage", "v4": 128, "v6": 0, "inUseV4": 64, "inUseV6": 0}],
        "returning": [{"cidr": "10.20.0.64/26", "pool": "storage", "epoch": 1}],
        "problems": [{"ip": "10.20.0.77", "pool": "storage", "reason": "Conflict"}]}),
        ),
    );
    put(&control, &node("n3", json!([]), json!({})));
    let (code, stdout, _) = run(&control, &["nodes"]);
    let lines: Vec<Vec<&str>> = stdout.lines().map(words).collect();
    assert_eq!((code, &lines[2]), (3, &vec!["n2", "storage", "1", "64 of 64, needs 128", "-", "1", "current"]), "{stdout}");
    assert_eq!(
        (&lines[3], lines[4].join(" ")),
        (&vec!["n3", "-", "0", "-", "-", "0", "not seen"], "n2: 10.20.0.77 of pool storage: Conflict".to_owned())
    );
    assert_eq!(run(&control, &["nodes", "n1"]).0, 0);
    let deleted = json!({"spec": {"reclaimAfterSeconds": 900}}).to_string();
    control.kubectl(&["patch", "nodeippools.netloom.io", "n1", "--type=merge", "-p", &deleted], "").unwrap();
    let (code, stdout, _) = run(&control, &["nodes", "n1"]);
    let last = "n1: its Node was deleted: what it has is free when its agent has reported nothing for 900 s\n";
    assert!(code == 3 && stdout.ends_with(last), "{stdout}");
    let (code, stdout, _) = run(&control, &["nodes", "-o", "json"]);
    let told: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &told[1]["spec"]["blocks"][0]["cidr"]), (3, &json!("10.20.0.64/26")));
    let exhausted = json!({"status": {"conditions": [condition("Ready", "True"), condition("Exhausted", "True")]}}).to_string();
    control.kubectl(&["patch", "ippools.netloom.io", "storage", "--subresource=status", "--type=merge", "-p", &exhausted], "").unwrap();
    let (code, stdout, _) = run(&control, &["status", "--cluster", "storage"]);
    assert!(code == 3 && stdout.contains("storage: Exhausted: 128 addresses are missing\n"), "{stdout}");
    let (code, _, stderr) = run(&control, &["nodes", "other"]);
    assert!(code == 1 && stderr.contains("the cluster has no NodeIPPool \"other\""), "{stderr}");
}

/// A node that is no more, and has two blocks; one that is there.
#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_person_says_that_nothing_runs_any_more() {
    let control = cluster("reclaim");
    control.served("ipledgershards.netloom.io").unwrap();
    let run = |args: &[&str]| run(&control, args);
    let (code, _, stderr) = run(&["reclaim", "n1"]);
    assert!(code == 1 && stderr.contains("there is no Node \"n1\", and the ledger does not know it"), "{stderr}");
    let spec = json!({"ipv4": {"entries": [{"cidr": "10.20.0.0/24"}], "blockPrefix": 26}});
    for (pool, annotations) in [("storage", json!({"netloom.io/reclaim": "before"})), ("other", json!({}))] {
        let metadata = json!({"name": pool, "annotations": annotations});
        put(&control, &json!({"apiVersion": API, "kind": "IPPool", "metadata": metadata, "spec": spec}));
    }
    let cell = |node: &str, uid: &str| json!({"state": "Granted", "epoch": 1, "node": node, "nodeUID": uid, "pool": "storage"});
    let cells = json!({"0": cell("n1", "u1"), "1": cell("n2", "u2"), "2": cell("n1", "u0")});
    let shard = json!({"network": "storage", "base": "10.20.0.0/20", "cellPrefix": 26, "cells": cells});
    put(&control, &json!({"apiVersion": API, "kind": "IPLedgerShard", "metadata": {"name": "storage.v4.10.20.0.0"}, "spec": shard}));
    let said = |pool: &str| {
        let path = "jsonpath={.metadata.annotations.netloom\\.io/reclaim}";
        control.kubectl(&["get", "ippools.netloom.io", pool, "-o", path], "").unwrap()
    };
    let (code, stdout, _) = run(&["reclaim", "n1", "--dry-run"]);
    assert!(code == 0 && stdout.contains("10.20.0.128/26") && stdout.ends_with("nothing was changed\n"), "{stdout}");
    assert_eq!((said("storage").as_str(), said("other").as_str()), ("before", ""));
    let (code, _, stderr) = run(&["reclaim", "n1"]);
    assert!(code == 1 && stderr.contains("one block or address is released at once") && stderr.contains("--yes"), "{stderr}");
    assert_eq!(said("other"), "", "its machine may run, whether or not its Node exists");
    let (code, stdout, _) = run(&["reclaim", "n1", "--yes", "-o", "json"]);
    let told: Value = serde_json::from_str(&stdout).unwrap();
    let blocks = |at: usize| told["lives"][at]["blocks"][0]["cidr"].as_str();
    assert_eq!((code, &told["reclaimed"], blocks(0), blocks(1)), (0, &json!(true), Some("10.20.0.128/26"), Some("10.20.0.0/26")), "{told}");
    assert_eq!((said("storage").as_str(), said("other").as_str()), ("before,u0,u1", "u0,u1"));
    assert_eq!(run(&["reclaim", "n1"]).0, 0);
    assert_eq!(said("storage"), "before,u0,u1", "nothing is said twice");
    // One that may live.
    put(&control, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}));
    let (code, _, stderr) = run(&["reclaim", "n2"]);
    assert!(code == 1 && stderr.contains("released at once") && stderr.contains("--yes"), "{stderr}");
    let granted = json!({"nodeUID": "u3", "blocks": [], "ips": [], "pools": {}});
    let spoken = json!({"observedGeneration": 1, "agent": {"storeID": "s", "bootID": "b", "instance": "i"}});
    put(&control, &json!({"apiVersion": API, "kind": "NodeIPPool", "metadata": {"name": "n3"}, "spec": granted, "status": spoken}));
    let (code, _, stderr) = run(&["reclaim", "n3"]);
    assert!(code == 1 && stderr.contains("its agent reported"), "{stderr}");
    assert_eq!(said("storage"), "before,u0,u1");
    let (code, stdout, _) = run(&["reclaim", "n3", "--yes"]);
    assert!(code == 0 && stdout.contains("reported to the operator"), "{stdout}");
    assert_eq!(said("storage"), "before,u0,u1,u3");
    // The machine that is gone first; of the living one of that name nothing is said with it.
    assert_eq!(run(&["reclaim", "n2", "--yes"]).0, 0);
    assert_eq!(said("storage"), "before,u0,u1,u3,u2");
    let (code, _, stderr) = run(&["reclaim", "n2"]);
    assert!(code == 1 && stderr.contains("its Node exists"), "{stderr}");
    let uid = control.kubectl(&["get", "node", "n2", "-o", "jsonpath={.metadata.uid}"], "").unwrap();
    assert_eq!(run(&["reclaim", "n2", "--yes"]).0, 0);
    assert_eq!(said("storage"), format!("before,u0,u1,u3,u2,{uid}:silent"));
}

/// Why there is no answer is told with what to do.
#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_cluster_that_does_not_answer() {
    let control = ControlPlane::named(&format!("ipam-empty-{}", std::process::id())).unwrap();
    let (code, _, stderr) = run(&control, &["nodes"]);
    assert!(code == 1 && stderr.contains("does not serve it (404") && stderr.contains("CustomResourceDefinition"), "{stderr}");
    let output = Command::new(netloom()).args(["ipam", "nodes", "--kubeconfig", "/nowhere"]).output().unwrap();
    assert!(text(&output.stderr).contains("kubeconfig /nowhere: "), "{output:?}");
}
