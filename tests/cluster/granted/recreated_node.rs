//! A Node that is deleted, or deleted and made anew under its name, while its machine is cut off; a machine that starts anew.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use netloom_tests::{Node, Pod, netloom};
use serde_json::{Value, json};

use crate::granted::agreement::{all_go, leased};
use crate::granted::{Cluster, ips};

/// The grace time of Nodes that are gone, for fifteen minutes.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// 32 addresses in eight blocks; pods have them to the last one.
fn small() -> Value {
    json!({"ipv4": {"entries": [{"cidr": "10.20.0.0/27"}], "blockPrefix": 30, "prefixLength": 24, "gateway": "10.20.0.200"}, "allowFirstIP": true, "allowLastIP": true,
        "scaling": {"preAllocate": 0, "releaseDelaySeconds": 3600}, "reuse": {"cooldownSeconds": 0}})
}

pub(crate) fn cluster(name: &str) -> Cluster {
    let mut cluster = Cluster::without_operator(name, &["--grace", &GRACE.as_secs().to_string()]);
    cluster.operate();
    cluster.pool("lab", &small());
    cluster
}

fn pods<'n>(node: &'n Node, name: &str, count: usize) -> Vec<Pod<'n>> {
    (0..count).map(|n| node.pod(&format!("{name}{n}"), "")).collect()
}

fn add(pods: &[Pod<'_>]) -> BTreeSet<String> {
    pods.iter().flat_map(|pod| ips(&pod.must("ADD"))).collect()
}

pub(crate) fn delete(cluster: &Cluster, node: &str) {
    cluster.api.must("DELETE", &format!("/api/v1/nodes/{node}"), &Value::Null);
}

fn signal(node: &Node, signal: &str) {
    assert!(std::process::Command::new("kill").args([signal, &node.pid().to_string()]).status().unwrap().success());
}

/// How many blocks the ledger has as a UID's.
pub(crate) fn out_of(cluster: &Cluster, uid: &str) -> usize {
    let shards = cluster.list("ipledgershards");
    let cells = shards.iter().flat_map(|shard| shard["spec"]["cells"].as_object().into_iter().flatten());
    cells.filter(|(_, cell)| cell["nodeUID"] == uid).count()
}

/// A Node is deleted and made anew while its machine hears of nothing, and while somebody waits for addresses: what its pods have is
/// nobody else's, for longer than the grace time, and is the new Node's when the machine is back. What they do not have is free then.
/// One pod is attached meanwhile, where its agent can do that.
fn made_anew(name: &str, cut: impl FnOnce(&Node), serves: bool, back: impl FnOnce(&Node)) {
    let cluster = cluster(name);
    let [lost, other] = ["lost", "other"].map(|node| cluster.node(&format!("{name}-{node}")));
    // Six blocks, of which nobody uses two any more; the other node has the other two.
    let mut kept = pods(&lost, "old", 24);
    let old = add(&kept);
    kept.drain(4..12).for_each(|pod| drop(pod.must("DEL")));
    let mut others = pods(&other, "other", 8);
    let theirs = add(&others);
    assert!(old.len() == 24 && theirs.len() == 8 && old.is_disjoint(&theirs), "{old:?} {theirs:?}");
    others.push(other.pod("waits", ""));
    let (uid, had) = (cluster.uid(&lost.name), cluster.blocks(&lost.name));
    assert_eq!(had.len(), 6);
    kept.push(lost.pod("late", ""));

    cut(&lost);
    delete(&cluster, &lost.name);
    let new = cluster.join(&lost.name);
    let begun = Instant::now();
    other.until("the new Node's object", || cluster.object(&lost.name)["spec"]["nodeUID"] == new.as_str());
    assert!(cluster.blocks(&lost.name).is_empty());
    let late = kept.last().unwrap();
    if serves {
        late.must("ADD");
    }
    std::thread::scope(|scope| {
        let add = scope.spawn(|| ips(&others[8].must("ADD")));
        while begun.elapsed() < 2 * GRACE {
            assert!(!add.is_finished(), "somebody got what a machine has of which nobody knows anything, after {:?}", begun.elapsed());
            assert_eq!(out_of(&cluster, &uid), 6, "what the machine has is its own after {:?}", begun.elapsed());
            // Sleeps: between two looks.
            std::thread::sleep(Duration::from_millis(200));
        }
        back(&lost);
        // It has told what its pods have; the rest is free.
        let got = add.join().unwrap();
        assert!(got.iter().all(|ip| old.contains(ip)), "{got:?}");
    });
    if !serves {
        late.must("ADD");
    }
    kept.iter().for_each(|pod| drop(pod.must("CHECK")));
    lost.until("nothing is the old Node's", || out_of(&cluster, &uid) == 0);
    assert!(cluster.blocks(&lost.name).iter().filter(|block| had.contains(block)).count() >= 4, "{had:?} {:?}", cluster.blocks(&lost.name));
    let all: [(&Node, &[Pod<'_>]); 2] = [(&lost, &kept), (&other, &others)];
    assert_eq!(cluster.agree(&all, &["lab"]).len(), 17 + 9);
    all_go(&all);
}

/// It goes on serving its pods meanwhile, from what it has.
#[test]
fn a_node_is_made_anew_while_its_machine_is_cut_off() {
    made_anew("cut", |node| node.api_proxy.shut(), true, |node| node.api_proxy.open());
}

#[test]
fn a_node_is_made_anew_while_its_agent_is_frozen() {
    made_anew("frozen", |node| signal(node, "-STOP"), false, |node| signal(node, "-CONT"));
}

/// A machine is switched off and its Node deleted: what it had is free after the grace time, and no earlier.
#[test]
fn what_a_machine_had_that_is_off_is_free_after_the_grace_time() {
    let cluster = cluster("off");
    let [lost, other] = ["off-lost", "off-other"].map(|node| cluster.node(node));
    let (gone, mut others) = (pods(&lost, "old", 20), pods(&other, "other", 12));
    let (old, theirs) = (add(&gone), add(&others));
    assert!(old.len() == 20 && theirs.len() == 12, "{old:?} {theirs:?}");
    lost.kill9();
    drop(gone);
    others.push(other.pod("waits", ""));
    let begun = Instant::now();
    delete(&cluster, "off-lost");
    let got = ips(&others[12].must("ADD"));
    assert!(begun.elapsed() >= GRACE && got.iter().all(|ip| old.contains(ip)), "{got:?} after {:?}", begun.elapsed());
    println!("a grace time of {GRACE:?} was over after {:?}", begun.elapsed());
    let all: [(&Node, &[Pod<'_>]); 1] = [(&other, &others)];
    assert_eq!(cluster.agree(&all, &["lab"]).len(), 13);
    all_go(&all);
}

/// Another boot's ID, no namespaces, no links, and the API server is away at first: nobody holds anything any more, the blocks are the
/// node's still, and what it hands out is nobody else's.
#[test]
fn a_machine_starts_anew() {
    let cluster = cluster("boot");
    let [node, other] = ["boot-a", "boot-b"].map(|node| cluster.node(node));
    let (pods, others) = (pods(&node, "pod", 10), pods(&other, "other", 6));
    let (first, theirs) = (add(&pods), add(&others));
    let had = cluster.blocks("boot-a");
    assert_eq!((first.len(), had.len()), (10, 3));
    node.kill9();
    pods.iter().for_each(Pod::remove_namespace);
    node.host.sh("", "ip link delete br0");
    node.host.write("/run/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
    node.host.sh("", "mount --bind /run/boot_id /proc/sys/kernel/random/boot_id");
    node.api_proxy.shut();
    node.serve();
    node.until("nobody holds anything", || leased(&node).is_empty());
    let beside = crate::granted::pool_plugin::alone(&node, "beside", "lab");
    let alone = ips(&beside("ADD"));
    assert!(alone.len() == 1 && !theirs.contains(&alone[0]), "{alone:?} {theirs:?}");
    beside("DEL");
    node.api_proxy.open();
    pods.iter().for_each(Pod::renew);
    // Where no firmware tells that it is the same machine, another agent may object at first.
    let told = || cluster.object("boot-a")["status"]["agent"]["bootID"] == "01234567-89ab-cdef-0123-456789abcdef";
    node.until("the agent has said who it is, and is ready", || told() && node.status()["ready"] == json!(true));
    let second = add(&pods);
    assert!(second.len() == 10 && second.is_disjoint(&theirs), "{second:?} {theirs:?}");
    assert_eq!(cluster.blocks("boot-a"), had);
    let all: [(&Node, &[Pod<'_>]); 2] = [(&node, &pods), (&other, &others)];
    assert_eq!(cluster.agree(&all, &["lab"]).len(), 16);
    all_go(&all);
}

/// Events of a reason on a node's object, as their notes.
pub(crate) fn notes(cluster: &Cluster, node: &str, reason: &str) -> Vec<String> {
    let events = cluster.api.must("GET", "/apis/events.k8s.io/v1/events", &Value::Null);
    let all = events["items"].as_array().unwrap().iter();
    let of_node = all.filter(|event| event["reason"] == reason && event["regarding"]["name"] == node);
    of_node.map(|event| event["note"].as_str().unwrap().to_owned()).collect()
}

/// `netloom ipam check --cluster` as data, and its exit code.
fn check(cluster: &Cluster) -> (Option<i32>, Value) {
    let mut command = std::process::Command::new(netloom());
    let output =
        command.args(["ipam", "check", "--cluster", "-o", "json", "--kubeconfig"]).arg(cluster.dir.join("kubeconfig")).output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}")))
}

/// The machine is cut off for longer than the grace time while its Node is gone, and comes back: addresses belong to two pods. Both are
/// named, and nobody else gets one of them.
#[test]
fn an_address_of_two_pods_is_reported_with_both() {
    let cluster = cluster("both");
    let [lost, other] = ["both-lost", "both-other"].map(|node| cluster.node(node));
    let (mut kept, mut others) = (pods(&lost, "old", 20), pods(&other, "other", 16));
    let old = add(&kept);
    assert_eq!(check(&cluster), (Some(0), json!([])));
    lost.api_proxy.shut();
    delete(&cluster, &lost.name);
    let theirs = add(&others);
    let both: BTreeSet<&String> = old.intersection(&theirs).collect();
    assert_eq!(both.len(), 4, "{old:?} {theirs:?}");
    cluster.join(&lost.name);
    lost.api_proxy.open();
    let of_two = |found: &Value| -> BTreeSet<String> {
        let all = found.as_array().unwrap().iter().flat_map(|one| one["addresses"].as_array().cloned().unwrap_or_default());
        all.map(|one| format!("{}/24", one["ip"].as_str().unwrap())).collect()
    };
    let named =
        |note: &String| both.iter().all(|ip| note.contains(&format!("{} belongs to pod both-lost/old", ip.trim_end_matches("/24"))));
    lost.until("an Event names them", || notes(&cluster, &lost.name, "LedgerViolated").iter().any(named));
    let (code, found) = check(&cluster);
    assert_eq!((code, of_two(&found)), (Some(3), both.iter().map(|ip| (*ip).clone()).collect()), "{found}");
    assert_eq!(found[0]["addresses"][0]["nodes"], json!(["both-lost", "both-other"]), "{found}");
    // Whoever comes next gets another one.
    let excluded = || cluster.object(&other.name)["spec"]["pools"]["lab"]["exclude"].as_array().is_some_and(|all| !all.is_empty());
    other.until("it is excluded", excluded);
    other.until("the agent knows", || {
        cluster.object(&other.name)["status"]["observedGeneration"] == cluster.object(&other.name)["metadata"]["generation"]
    });
    let is_both =
        |pod: &Pod<'_>| pod.addresses().as_array().unwrap().iter().any(|of| both.contains(&format!("{}/24", of[1].as_str().unwrap())));
    let (contested, own): (Vec<_>, Vec<_>) = others.drain(..).partition(is_both);
    contested[0].must("DEL");
    own[0].must("DEL");
    let next = other.pod("next", "");
    assert!(!both.contains(&ips(&next.must("ADD"))[0]));
    // The old ones go: nothing belongs to two any more.
    kept.drain(..).for_each(|pod| drop(pod.must("DEL")));
    lost.until("nothing is found any more", || check(&cluster).0 == Some(0) && !excluded());
    contested[1..].iter().chain(&own[1..]).chain([&next]).for_each(|pod| drop(pod.must("DEL")));
}
