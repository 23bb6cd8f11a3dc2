//! etcd is put back from a snapshot while pods live, and somebody does what `docs/operate/operator.md` says.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use netloom_tests::{Node, Pod};
use serde_json::{Value, json};

use crate::granted::agreement::all_go;
use crate::granted::{Cluster, ips, lab};

/// The lines that a person is to enter, without what is said to them.
fn steps() -> Vec<String> {
    let page = include_str!("../../../docs/operate/operator.md");
    let after = page.split("**etcd was put back from an old snapshot.**").nth(1).expect("the page tells of it");
    let block = after.split("```sh\n").nth(1).and_then(|block| block.split("```").next()).expect("the steps");
    block.lines().map(|line| line.split("  #").next().unwrap().trim().to_owned()).collect()
}

fn pods<'n>(node: &'n Node, name: &str, count: usize) -> Vec<Pod<'n>> {
    (0..count).map(|n| node.pod(&format!("{name}{n}"), "")).collect()
}

fn add(pods: &[Pod<'_>]) -> BTreeSet<String> {
    pods.iter().flat_map(|pod| ips(&pod.must("ADD"))).collect()
}

/// Does what the page says, with the same words; who is no pod here is stopped and started otherwise.
fn follow(cluster: &mut Cluster, nodes: &[&Node]) {
    let bin = cluster.dir.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let kubectl = format!("#!/bin/sh\nexec {} kubectl \"$@\"\n", testbed::peer().unwrap().display());
    std::fs::write(bin.join("kubectl"), kubectl).unwrap();
    std::fs::set_permissions(bin.join("kubectl"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut away = true;
    for step in steps() {
        match &step {
            step if step.contains("scale deployment netloom-operator --replicas=0") => cluster.stop_operator(),
            step if step.contains("scale deployment netloom-operator") => {
                cluster.operate();
                away = false;
            }
            step if step.contains("rollout restart daemonset netloom") => nodes.iter().for_each(|node| node.serve()),
            step => {
                let kubeconfig = cluster.api.plane().kubeconfig();
                let mut command = Command::new("timeout");
                let output = command.args(["60", "sh", "-ec", step]).env("PATH", &path).env("KUBECONFIG", kubeconfig).output().unwrap();
                assert!(output.status.success(), "{step}: {output:?}");
                if step.contains("get configmap netloom-ledgers") {
                    let said = String::from_utf8_lossy(&output.stdout).into_owned();
                    assert!(said.contains("lab.v4:") && said.contains("lab.v6:"), "{said}");
                }
            }
        }
        assert!(away == cluster.operator.is_none(), "{step}");
    }
    assert!(!away, "the operator is started again at last");
}

/// Since the snapshot pods came and went, nodes were granted blocks and gave some back, and a machine joined.
#[test]
fn etcd_is_restored_from_a_snapshot() {
    let mut cluster = Cluster::new("restored");
    cluster.pool("lab", &lab());
    let [a, b] = ["restored-a", "restored-b"].map(|name| cluster.node(name));
    let (mut of_a, mut of_b) = (pods(&a, "old", 10), pods(&b, "old", 3));
    let old: BTreeSet<String> = add(&of_a).into_iter().chain(add(&of_b)).collect();
    assert_eq!(old.len(), 26);
    a.until("all that is needed is granted", || !cluster.blocks("restored-a").is_empty());
    cluster.api.plane().keep().unwrap();

    // The day after.
    [&a, &b].iter().for_each(|node| node.until("the agent is ready", || node.status()["ready"] == json!(true)));
    let blocks = cluster.blocks("restored-a").len();
    of_a.drain(1..).for_each(|pod| drop(pod.must("DEL")));
    a.until("it gives blocks back", || cluster.blocks("restored-a").len() < blocks);
    let c = cluster.node("restored-c");
    let of_c = pods(&c, "new", 12);
    let more = pods(&b, "new", 10);
    let new: BTreeSet<String> = add(&of_c).into_iter().chain(add(&more)).collect();
    of_b.extend(more);
    assert_eq!(new.len(), 44);
    let today = cluster.agree(&[(&a, &of_a), (&b, &of_b), (&c, &of_c)], &["lab"]);
    assert_eq!(today.len(), 2 + 26 + 24);

    // What the API server knows is old; who runs goes on.
    cluster.stop_operator();
    cluster.api.plane().put_back().unwrap();
    of_a.iter().chain(&of_b).chain(&of_c).for_each(|pod| drop(pod.must("CHECK")));
    cluster.api.start();
    assert_eq!(cluster.api.ask("GET", "/api/v1/nodes/restored-c", &Value::Null).0, 404);
    // As its kubelet does, when that is started again.
    cluster.join("restored-c");
    follow(&mut cluster, &[&a, &b, &c]);
    [&a, &b, &c].iter().for_each(|node| node.until("what it holds is granted", || !cluster.blocks(&node.name).is_empty()));
    [&a, &b, &c].iter().for_each(|node| node.until("the agent is ready", || node.status()["ready"] == json!(true)));
    of_a.iter().chain(&of_b).chain(&of_c).for_each(|pod| drop(pod.must("CHECK")));
    cluster.api.namespace("restored-c");
    // More than any of them has.
    let (mut of_a, mut of_b, mut of_c) = (of_a, of_b, of_c);
    of_a.extend(pods(&a, "last", 10));
    of_b.extend(pods(&b, "last", 10));
    of_c.extend(pods(&c, "last", 10));
    for (all, of) in [(&of_a, 1), (&of_b, 13), (&of_c, 12)] {
        assert_eq!(add(&all[of..]).len(), 20);
    }
    let all: [(&Node, &[Pod<'_>]); 3] = [(&a, &of_a), (&b, &of_b), (&c, &of_c)];
    assert_eq!(cluster.agree(&all, &["lab"]).len(), today.len() + 60);
    all_go(&all);
}
