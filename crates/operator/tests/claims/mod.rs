//! Claims over an object store: pods that come and go on nodes whose agents hold addresses as long as a container has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use netloom_operator::start;
use objects::Store;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::scene::{API, Fate, Truth, change, check, delete, named, node, operator, options, pool, request, run, store, until, way};

const CLAIMS: &str = include_str!("../../../../deploy/ipamclaims.yaml");
const CLAIM: &str = "k8s.cni.cncf.io/v1alpha1";

fn cluster() -> Store {
    let store = store();
    store.put(&serde_saphyr::from_str::<Value>(CLAIMS).unwrap()).unwrap();
    store.install_network_attachment_definitions();
    store
        .put(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "statefulsets.apps"},
            "spec": {"group": "apps", "scope": "Namespaced",
                "names": {"plural": "statefulsets", "singular": "statefulset", "kind": "StatefulSet", "listKind": "StatefulSetList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}))
        .unwrap();
    let config = json!({"cniVersion": "1.0.0", "name": "storage-net", "type": "bridge", "ipam": {"type": "pool", "pool": "p"}});
    store
        .put(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "storage", "namespace": "ns"}, "spec": {"config": config.to_string()}}))
        .unwrap();
    pool(
        &store,
        "p",
        &json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/24"}], "blockPrefix": 28, "gateway": "10.0.0.1"},
            "ipv6": {"entries": [{"cidr": "fd00::/112"}], "blockPrefix": 120}, "reserved": ["10.0.0.32/28"], "exclude": ["10.0.0.40"]}),
    );
    store
}

fn claim(store: &Store, name: &str, requests: &[&str]) {
    let mut spec = json!({"network": "storage", "interface": "net1"});
    if !requests.is_empty() {
        spec["ipRequests"] = json!(requests);
    }
    store.put(&json!({"apiVersion": CLAIM, "kind": "IPAMClaim", "metadata": {"name": name, "namespace": "ns"}, "spec": spec})).unwrap();
}

fn pod(store: &Store, name: &str, node: &str, claim: &str) {
    let networks = json!([{"name": "storage", "ipam-claim-reference": claim}]).to_string();
    store
        .put(&json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]}}))
        .unwrap();
}

/// A pod that says that it may have its claim's addresses while another one that says so has them.
fn migrating(store: &Store, name: &str, node: &str, claim: &str) {
    let networks = json!([{"name": "storage", "ipam-claim-reference": claim}]).to_string();
    let notes = json!({"k8s.v1.cni.cncf.io/networks": networks, "netloom.io/migration": "true"});
    store
        .put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "annotations": notes},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]}}))
        .unwrap();
}

/// The claim whose containers are those of pods that say that they migrate, as an [`Agent`] calls it.
const MOVING: &str = "vm, migrating";

fn seen(store: &Store, name: &str) -> Value {
    let all = store.objects(CLAIM, "IPAMClaim").unwrap();
    all.into_iter().find(|object| object["metadata"]["name"] == name).unwrap_or_default()
}

fn ips(store: &Store, name: &str) -> Vec<String> {
    let all = seen(store, name)["status"]["ips"].as_array().cloned().unwrap_or_default();
    all.iter().map(|ip| ip.as_str().unwrap().to_owned()).collect()
}

fn told(store: &Store, name: &str, kind: &str) -> String {
    let all = seen(store, name)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
    format!(
        "{} {}: {}",
        found["status"].as_str().unwrap_or("-"),
        found["reason"].as_str().unwrap_or("-"),
        found["message"].as_str().unwrap_or("-")
    )
}

/// An agent whose containers take the addresses of a claim when the node has them, and leave them when they end. Those of pods that say
/// that they migrate take what is for such pods, and the others what is for the others.
struct Agent {
    wants: Arc<Mutex<BTreeSet<String>>>,
    has: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    task: JoinHandle<()>,
}

impl Agent {
    fn start(store: &Store, name: &str, uid: &str, truth: &Truth) -> Agent {
        let (wants, has) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::<Mutex<BTreeMap<String, Vec<String>>>>::default());
        let (client, name, uid, truth, all, held) =
            (store.client(), name.to_owned(), uid.to_owned(), truth.clone(), wants.clone(), has.clone());
        let task = tokio::spawn(async move {
            let path = format!("/apis/{API}/nodeippools/{name}");
            let mut returned: BTreeMap<String, u64> = BTreeMap::new();
            loop {
                // Sleeps: an agent looks so often.
                tokio::time::sleep(Duration::from_millis(3)).await;
                let Ok(object) = request(&client, "GET", &path, "", &Value::Null).await else { continue };
                if object["spec"]["nodeUID"] != uid.as_str() {
                    continue;
                }
                let granted: Vec<Value> = object["spec"]["ips"].as_array().cloned().unwrap_or_default();
                let mut returning = Vec::new();
                {
                    let (wants, mut held) = (all.lock().unwrap(), held.lock().unwrap());
                    for gone in held.keys().filter(|claim| !wants.contains(*claim)).cloned().collect::<Vec<_>>() {
                        held.remove(&gone).into_iter().flatten().for_each(|ip| truth.leave("p", &ip, &name));
                    }
                    for ip in &granted {
                        let (address, epoch) = (ip["ip"].as_str().unwrap(), ip["epoch"].as_u64().unwrap());
                        let kind = if ip["owner"]["migrates"] == true { ", migrating" } else { "" };
                        let claim = &format!("{}{kind}", ip["owner"]["claim"].as_str().unwrap());
                        let over = returned.get(address).is_some_and(|last| *last >= epoch);
                        let own = held.values().any(|ips| ips.iter().any(|a| a == address));
                        if !over && !own && wants.contains(claim) {
                            match ip["also"].is_string() {
                                true => truth.share("p", address, &name),
                                false => truth.take("p", address, &name),
                            }
                            held.entry(claim.to_owned()).or_default().push(address.to_owned());
                        } else if ip["ending"] == true && !own {
                            returned.insert(address.to_owned(), epoch);
                        }
                        if returned.get(address) == Some(&epoch) {
                            let length = if address.contains(':') { 128 } else { 32 };
                            returning.push(json!({"cidr": format!("{address}/{length}"), "pool": "p", "epoch": epoch}));
                        }
                    }
                    for ip in held.values().flatten() {
                        assert!(granted.iter().any(|g| g["ip"] == ip.as_str()), "{ip} was taken from {name}");
                    }
                }
                let status = json!({"observedGeneration": 1, "agent": {"storeID": name, "bootID": "", "instance": "one"},
                    "demand": [], "returning": returning});
                if object["status"] != status {
                    let patch = json!([{"op": "add", "path": "/status", "value": status}]);
                    drop(request(&client, "PATCH", &format!("{path}/status"), "application/json-patch+json", &patch).await);
                }
            }
        });
        Agent { wants, has, task }
    }

    fn begin(&self, claim: &str) {
        self.wants.lock().unwrap().insert(format!("ns/{claim}"));
    }

    fn end(&self, claim: &str) {
        self.wants.lock().unwrap().remove(&format!("ns/{claim}"));
    }

    fn has(&self, claim: &str) -> Vec<String> {
        let mut has = self.has.lock().unwrap().get(&format!("ns/{claim}")).cloned().unwrap_or_default();
        has.sort();
        has
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

fn two(store: &Store, truth: &Truth) -> [Agent; 2] {
    ["a", "b"].map(|name| Agent::start(store, name, &node(store, name), truth))
}

async fn gone(store: &Store, pod: &str) {
    delete(store, &format!("/api/v1/namespaces/ns/pods/{pod}?gracePeriodSeconds=0")).await;
}

#[test]
fn s57_a_claims_addresses_go_from_pod_to_pod_and_are_free_when_it_is_deleted() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        let _operator = operator(&store, "one");
        let [a, b] = two(&store, &truth);
        claim(&store, "c", &[]);
        until("addresses", || ips(&store, "c").len() == 2).await;
        let kept = ips(&store, "c");
        // Of the reserved ones.
        assert_eq!(kept[0], "10.0.0.32/24");
        assert!(told(&store, "c", "IPsAllocated").starts_with("True SuccessfulAllocation"), "{}", told(&store, "c", "IPsAllocated"));
        assert!(told(&store, "c", "Delegated").starts_with("False NoPod"));
        let bare = ["10.0.0.32", kept[1].trim_end_matches("/112")];
        pod(&store, "web-0", "a", "c");
        a.begin("c");
        until("both of them", || a.has("c") == bare).await;
        until("its pod", || seen(&store, "c")["status"]["ownerPod"]["name"] == "web-0").await;
        // Forced out of the API, its container runs on: the next pod waits.
        gone(&store, "web-0").await;
        pod(&store, "web-0", "b", "c");
        b.begin("c");
        until("that it is told", || told(&store, "c", "Delegated").contains("web-0 on b wait for node a to return")).await;
        assert!(b.has("c").is_empty());
        check(&store);
        a.end("c");
        until("the same ones", || b.has("c") == bare).await;
        assert_eq!(ips(&store, "c"), kept);
        check(&store);
        // Deleted while its pod runs.
        delete(&store, &format!("/apis/{CLAIM}/namespaces/ns/ipamclaims/c")).await;
        claim(&store, "d", &[]);
        until("others", || ips(&store, "d").len() == 2).await;
        assert_ne!(ips(&store, "d"), kept);
        assert_eq!(b.has("c"), bare);
        gone(&store, "web-0").await;
        b.end("c");
        until("that it is gone", || seen(&store, "c").is_null()).await;
        claim(&store, "e", &["10.0.0.32/24"]);
        until("its address", || ips(&store, "e").first().is_some_and(|ip| ip == "10.0.0.32/24")).await;
        check(&store);
        a.fine();
        b.fine();
    });
}

/// Of a network's cell that is shared: the nodes of one address.
fn nodes_of(store: &Store, claim: &str) -> Vec<Vec<String>> {
    let shards = store.objects(API, "IPLedgerShard").unwrap();
    let cells = shards.iter().flat_map(|shard| shard["spec"]["cells"].as_object().into_iter().flatten());
    let ips = cells.flat_map(|(_, cell)| cell["ips"].as_object().into_iter().flatten());
    let own = ips.filter(|(_, ip)| ip["owner"]["claim"] == format!("ns/{claim}").as_str());
    let node = |hold: &Value| hold["node"].as_str().map(str::to_owned);
    own.map(|(_, ip)| [node(ip), node(&ip["second"])].into_iter().flatten().collect()).collect()
}

#[test]
fn s57_two_nodes_have_the_addresses_of_a_pod_that_migrates_and_the_one_that_is_left_keeps_them() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        let mut working = operator(&store, "one");
        let [a, b] = two(&store, &truth);
        let c = Agent::start(&store, "c", &node(&store, "c"), &truth);
        claim(&store, "vm", &[]);
        migrating(&store, "launcher-1", "a", "vm");
        a.begin(MOVING);
        until("both families", || a.has(MOVING).len() == 2).await;
        let kept = a.has(MOVING);
        // A pod that does not say that it migrates waits.
        pod(&store, "other", "b", "vm");
        b.begin("vm");
        until("that it is told", || told(&store, "vm", "Delegated").contains("pods other on b wait for node a to return")).await;
        assert!(b.has("vm").is_empty());
        gone(&store, "other").await;
        b.end("vm");
        b.begin(MOVING);
        // One that does has them, too; a third one waits.
        migrating(&store, "launcher-2", "b", "vm");
        until("the same ones", || b.has(MOVING) == kept).await;
        until("that it is told", || told(&store, "vm", "Delegated").contains("True Delegated: node b has them as well")).await;
        migrating(&store, "launcher-3", "c", "vm");
        c.begin(MOVING);
        until("that it waits", || told(&store, "vm", "Delegated").contains("pods launcher-3 on c wait")).await;
        assert_eq!((a.has(MOVING), b.has(MOVING), c.has(MOVING).len()), (kept.clone(), kept.clone(), 0));
        check(&store);
        gone(&store, "launcher-3").await;
        c.end(MOVING);
        // It has migrated: the first pod is gone, and its node returns what it had. The operator is another one by then.
        drop(working);
        gone(&store, "launcher-1").await;
        working = operator(&store, "two");
        until("that it is told", || told(&store, "vm", "Delegated").contains("node a has the addresses until")).await;
        assert_eq!((a.has(MOVING).len(), nodes_of(&store, "vm")), (2, vec![vec!["a".to_owned(), "b".to_owned()]; 2]));
        a.end(MOVING);
        until("one node", || nodes_of(&store, "vm") == vec![vec!["b".to_owned()]; 2]).await;
        assert_eq!((b.has(MOVING), ips(&store, "vm").len()), (kept.clone(), 2));
        until("its pod", || seen(&store, "vm")["status"]["ownerPod"]["name"] == "launcher-2").await;
        check(&store);
        // The next migration comes to nothing: the new pod goes again, and the one that was there keeps the addresses.
        migrating(&store, "launcher-4", "a", "vm");
        a.begin(MOVING);
        until("the same ones", || a.has(MOVING) == kept).await;
        gone(&store, "launcher-4").await;
        a.end(MOVING);
        until("one node", || nodes_of(&store, "vm") == vec![vec!["b".to_owned()]; 2]).await;
        assert_eq!(b.has(MOVING), kept);
        // The machine that it migrates from is lost.
        migrating(&store, "launcher-5", "c", "vm");
        c.begin(MOVING);
        until("the same ones", || c.has(MOVING) == kept).await;
        check(&store);
        b.task.abort();
        truth.off("b");
        assert!(store.remove("v1", "Node", "", "b").unwrap());
        gone(&store, "launcher-2").await;
        until("the other one alone", || nodes_of(&store, "vm") == vec![vec!["c".to_owned()]; 2]).await;
        assert_eq!(c.has(MOVING), kept);
        check(&store);
        assert!(working.metrics().contains("netloom_operator_ipam_violations 0"), "{}", working.metrics());
        a.fine();
        c.fine();
    });
}

/// A third pod of the claim, on a node that has its addresses for the second one.
#[test]
fn s57_a_pod_that_does_not_say_that_it_migrates_never_has_what_another_node_has() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        let operator = operator(&store, "one");
        let [a, b] = two(&store, &truth);
        claim(&store, "vm", &[]);
        migrating(&store, "launcher-1", "a", "vm");
        a.begin(MOVING);
        until("both families", || a.has(MOVING).len() == 2).await;
        let kept = a.has(MOVING);
        let both = vec![vec!["a".to_owned(), "b".to_owned()]; 2];
        migrating(&store, "launcher-2", "b", "vm");
        until("both nodes", || nodes_of(&store, "vm") == both).await;
        // It is there first, and again when the second pod's container has ended.
        pod(&store, "other", "b", "vm");
        b.begin("vm");
        until("that it is told", || told(&store, "vm", "Delegated").contains("pods other on b wait for node a to return")).await;
        assert!(b.has("vm").is_empty());
        b.begin(MOVING);
        until("the same ones", || b.has(MOVING) == kept).await;
        b.end(MOVING);
        // Sleeps: that nothing is given back shows in time alone.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((nodes_of(&store, "vm"), b.has("vm").len()), (both, 0));
        // The second pod goes: its node returns what it has, although the third one is there.
        gone(&store, "launcher-2").await;
        until("one node", || nodes_of(&store, "vm") == vec![vec!["a".to_owned()]; 2]).await;
        assert_eq!((a.has(MOVING), b.has("vm").len()), (kept.clone(), 0));
        check(&store);
        // When nobody else is there it has them, and who migrates waits for it.
        gone(&store, "launcher-1").await;
        a.end(MOVING);
        until("the same ones", || b.has("vm") == kept).await;
        migrating(&store, "launcher-3", "a", "vm");
        a.begin(MOVING);
        until("that it is told", || told(&store, "vm", "Delegated").contains("pods launcher-3 on a wait for node b to return")).await;
        assert_eq!((nodes_of(&store, "vm"), a.has(MOVING).len()), (vec![vec!["b".to_owned()]; 2], 0));
        gone(&store, "other").await;
        b.end("vm");
        until("the same ones", || a.has(MOVING) == kept).await;
        // A pod of the same node that says so has them in a life of its own, and so has the next one that does not.
        pod(&store, "other", "a", "vm");
        gone(&store, "launcher-3").await;
        a.end(MOVING);
        a.begin("vm");
        until("the same ones", || a.has("vm") == kept).await;
        check(&store);
        assert!(operator.metrics().contains("netloom_operator_ipam_violations 0"), "{}", operator.metrics());
        a.fine();
        b.fine();
    });
}

/// Deletes a claim and takes its finalizer off.
async fn force_away(store: &Store, name: &str) {
    let path = format!("/apis/{CLAIM}/namespaces/ns/ipamclaims/{name}");
    delete(store, &path).await;
    request(&store.client(), "PATCH", &path, "application/merge-patch+json", &json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert!(seen(store, name).is_null());
}

#[test]
fn a_claim_whose_finalizer_somebody_took_off_leaves_nothing_behind() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        let first = operator(&store, "one");
        let [a, _b] = two(&store, &truth);
        for (name, address) in [("used", "10.0.0.33/24"), ("idle", "10.0.0.34/24"), ("later", "10.0.0.35/24")] {
            claim(&store, name, &[address]);
            until("its addresses", || ips(&store, name).len() == 2 && ips(&store, name)[0] == address).await;
        }
        pod(&store, "web-0", "a", "used");
        a.begin("used");
        until("both of them", || a.has("used").len() == 2).await;
        // Nobody has the addresses: somebody else gets them. One who waits for those of a pod gets them when its container is gone.
        force_away(&store, "idle").await;
        claim(&store, "next", &["10.0.0.34/24"]);
        until("its address", || ips(&store, "next").first().is_some_and(|ip| ip == "10.0.0.34/24")).await;
        force_away(&store, "used").await;
        claim(&store, "waits", &["10.0.0.33/24"]);
        until("that it is told", || told(&store, "waits", "IPsAllocated").starts_with("False RequestTaken")).await;
        gone(&store, "web-0").await;
        // Sleeps: that nothing is moved shows in time alone.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((a.has("used").len(), told(&store, "waits", "IPsAllocated").starts_with("False RequestTaken")), (2, true));
        a.end("used");
        until("its address", || ips(&store, "waits").first().is_some_and(|ip| ip == "10.0.0.33/24")).await;
        check(&store);
        // While no operator is there. Who comes asks, and frees nothing as long as nobody answers.
        drop(first);
        force_away(&store, "later").await;
        let (asked, silent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let (asks, silence) = (Arc::clone(&asked), Arc::clone(&silent));
        let client = way(&store, move |method, path| {
            let about = method == "GET" && path.ends_with("/ipamclaims/later");
            asks.fetch_add(usize::from(about), Ordering::Relaxed);
            if about && silence.load(Ordering::Relaxed) { Fate::Lost } else { Fate::Arrives }
        });
        let _second = start(client, options("two"));
        claim(&store, "heir", &["10.0.0.35/24"]);
        until("that it is told", || told(&store, "heir", "IPsAllocated").starts_with("False RequestTaken")).await;
        until("that it asks", || asked.load(Ordering::Relaxed) > 0).await;
        // Sleeps: that nothing is granted shows in time alone.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(told(&store, "heir", "IPsAllocated").starts_with("False RequestTaken"));
        silent.store(false, Ordering::Relaxed);
        until("its address", || ips(&store, "heir").first().is_some_and(|ip| ip == "10.0.0.35/24")).await;
        check(&store);
        a.fine();
    });
}

#[test]
fn s60_what_a_claim_asks_for_it_gets_or_is_told_why_not() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        let _operator = operator(&store, "one");
        let [a, _b] = two(&store, &truth);
        claim(&store, "first", &["10.0.0.200/24", "fd00::7/112"]);
        until("exactly these", || ips(&store, "first") == ["10.0.0.200/24", "fd00::7/112"]).await;
        pod(&store, "p-first", "a", "first");
        a.begin("first");
        until("on its node", || a.has("first") == ["10.0.0.200", "fd00::7"]).await;
        for (name, request, reason) in [
            ("outside", "10.9.0.5/24", "False RequestOutsidePool: 10.9.0.5 is in no entry of IPPool p"),
            ("excluded", "10.0.0.40/24", "False RequestExcluded: 10.0.0.40 is excluded"),
            ("gateway", "10.0.0.1/24", "False RequestExcluded: 10.0.0.1 is excluded from IPPool p, or is its gateway"),
            ("prefix", "10.0.0.201/16", "False RequestInvalid: spec.ipRequests[0]: \"10.0.0.201/16\" has another prefix length"),
            ("taken", "10.0.0.200/24", "False RequestTaken: 10.0.0.200 is reserved for ns/first"),
        ] {
            claim(&store, name, &[request]);
            until("the reason", || told(&store, name, "IPsAllocated").starts_with(reason)).await;
            assert!(!ips(&store, name).iter().any(|ip| ip.contains('.')), "{name}");
        }
        // A block that a node has, whole.
        change(&store, "NodeIPPool", "b", &json!({"status": {"demand": [{"pool": "p", "v4": 16, "v6": 0, "inUseV4": 0, "inUseV6": 0}]}}))
            .await;
        let spec = json!({"network": "nowhere", "interface": "net1"});
        store
            .put(&json!({"apiVersion": CLAIM, "kind": "IPAMClaim", "metadata": {"name": "lost", "namespace": "ns"}, "spec": spec}))
            .unwrap();
        // The first one goes: what waits for its address gets it.
        gone(&store, "p-first").await;
        a.end("first");
        delete(&store, &format!("/apis/{CLAIM}/namespaces/ns/ipamclaims/first")).await;
        until("the one that waited", || ips(&store, "taken").first().is_some_and(|ip| ip == "10.0.0.200/24")).await;
        // Whose network has no pool is another address management's.
        let lost = seen(&store, "lost");
        assert!(lost["metadata"]["finalizers"].is_null() && lost["status"].is_null(), "{lost}");
        check(&store);
        a.fine();
    });
}

#[test]
fn s58_s59_a_stateful_sets_pods_keep_their_addresses_without_naming_a_claim() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        let _operator = operator(&store, "one");
        let [a, b] = two(&store, &truth);
        let metadata = json!({"name": "web", "namespace": "ns"});
        store.put(&json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": 2}})).unwrap();
        let uid = store.objects("apps/v1", "StatefulSet").unwrap()[0]["metadata"]["uid"].clone();
        let put = |name: &str, node: &str| {
            let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid, "controller": true}]);
            let notes =
                json!({"k8s.v1.cni.cncf.io/networks": "storage", "netloom.io/sticky": "true", "netloom.io/sticky-retention": "Delete"});
            let metadata = json!({"name": name, "namespace": "ns", "annotations": notes, "ownerReferences": owner});
            let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "x"}]});
            store.put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).unwrap();
        };
        put("web-0", "a");
        put("web-1", "a");
        for name in ["web-0-storage-net1", "web-1-storage-net1"] {
            a.begin(name);
            until("its addresses", || a.has(name).len() == 2).await;
            assert_eq!(seen(&store, name)["metadata"]["ownerReferences"][0]["uid"], uid);
        }
        let kept = a.has("web-1-storage-net1");
        gone(&store, "web-1").await;
        a.end("web-1-storage-net1");
        put("web-1", "b");
        b.begin("web-1-storage-net1");
        until("the same ones", || b.has("web-1-storage-net1") == kept).await;
        // Scaled down.
        let path = "/apis/apps/v1/namespaces/ns/statefulsets/web";
        request(&store.client(), "PATCH", path, "application/merge-patch+json", &json!({"spec": {"replicas": 1}})).await.unwrap();
        gone(&store, "web-1").await;
        b.end("web-1-storage-net1");
        until("that the claim is gone", || seen(&store, "web-1-storage-net1").is_null()).await;
        assert_eq!(a.has("web-0-storage-net1").len(), 2);
        assert!(!seen(&store, "web-0-storage-net1").is_null());
        check(&store);
        a.fine();
        b.fine();
    });
}

#[test]
fn a_claim_that_is_restored_under_its_name_keeps_its_addresses_and_a_lost_node_gives_them_up() {
    run(async {
        let (store, truth) = (cluster(), Truth::default());
        let first = operator(&store, "one");
        let [a, b] = two(&store, &truth);
        claim(&store, "c", &[]);
        pod(&store, "web-0", "a", "c");
        a.begin("c");
        until("addresses", || a.has("c").len() == 2).await;
        let kept = a.has("c");
        drop(first);
        // Somebody takes the finalizer off, and puts the claim back from a backup, without its status.
        let path = format!("/apis/{CLAIM}/namespaces/ns/ipamclaims/c");
        delete(&store, &path).await;
        request(&store.client(), "PATCH", &path, "application/merge-patch+json", &json!({"metadata": {"finalizers": null}})).await.unwrap();
        assert!(seen(&store, "c").is_null());
        claim(&store, "c", &[]);
        let _second = operator(&store, "two");
        until("them again", || ips(&store, "c").len() == 2).await;
        assert_eq!(a.has("c"), kept);
        // The node is switched off, and deleted.
        gone(&store, "web-0").await;
        pod(&store, "web-0", "b", "c");
        b.begin("c");
        until("that it waits", || told(&store, "c", "Delegated").starts_with("False Returning")).await;
        assert!(b.has("c").is_empty());
        a.task.abort();
        truth.off("a");
        assert!(store.remove("v1", "Node", "", "a").unwrap());
        until("the same ones", || b.has("c") == kept).await;
        until("the old object's end", || named(&store, "NodeIPPool", "a").is_none()).await;
        check(&store);
        b.fine();
    });
}
