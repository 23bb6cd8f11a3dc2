//! Claims, and StatefulSets whose pods keep their addresses: from pod to pod and from node to node.

use netloom_tests::{Node, Pod};
use serde_json::{Value, json};

use crate::granted::{Cluster, lab, net1};

const CLAIMS: &str = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/db/ipamclaims";

/// A cluster with claims, in whose namespace `db` a definition has addresses of a pool.
fn cluster(name: &str) -> (Cluster, [Node; 2]) {
    let cluster = Cluster::new(name);
    let kinds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/ipamclaims.yaml");
    cluster.api.plane().kubectl(&["apply", "-f", kinds], "").expect("claims");
    cluster.pool("lab", &lab());
    let data = json!({
        "ipv4": {"entries": [{"cidr": "10.30.0.0/24"}], "blockPrefix": 28, "gateway": "10.30.0.1"},
        "ipv6": {"entries": [{"cidr": "fd00:30::/116"}], "blockPrefix": 124, "gateway": "fd00:30::1"},
        "reserved": ["10.30.0.128/28", "fd00:30::80/124"], "exclude": ["10.30.0.130"],
    });
    cluster.pool("data", &data);
    cluster.api.namespace("db");
    for (definition, wait) in [("data", 100), ("impatient", 3)] {
        let network = json!({"cniVersion": "1.0.0", "name": "data-net", "type": "bridge", "bridge": "br1", "isGateway": true,
            "ipam": {"type": "pool", "pool": "data", "addWait": wait}});
        cluster.api.definition("db", definition, &network.to_string());
    }
    let nodes = ["a", "b"].map(|node| cluster.node(&format!("{name}-{node}")));
    (cluster, nodes)
}

/// What an ADD is told that fails because nothing of its claim is on the node.
fn unclaimed(pod: &Pod<'_>, claim: &str) -> String {
    let failed = pod.add();
    assert_eq!(failed.error()["code"], 11, "{failed:?}");
    let why = format!("claim db/{claim} has no IPv4 address of pool \"data\" on this node");
    assert!(failed.error()["msg"].as_str().unwrap().contains(&why), "{failed:?}");
    failed.error()["details"].as_str().unwrap_or_default().to_owned()
}

fn claim(cluster: &Cluster, name: &str) -> Value {
    cluster.api.ask("GET", &format!("{CLAIMS}/{name}"), &Value::Null).1
}

fn told(cluster: &Cluster, name: &str, kind: &str) -> String {
    let object = claim(cluster, name);
    let found = object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind).cloned().unwrap_or_default();
    format!("{} {}", found["status"].as_str().unwrap_or("-"), found["reason"].as_str().unwrap_or("-"))
}

fn forget(cluster: &Cluster, pod: &Pod<'_>) {
    cluster.api.must("DELETE", &format!("{}?gracePeriodSeconds=0", pod.path()), &Value::Null);
}

/// A StatefulSet whose pods keep their addresses of a definition, and its first pod.
fn stateful_set(cluster: &Cluster, definition: &str) -> (Value, Value) {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
    let set = cluster.api.must(
        "POST",
        "/apis/apps/v1/namespaces/db/statefulsets",
        &json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"},
            "spec": {"replicas": 1, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}}, "template": template}}),
    );
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": set["metadata"]["uid"], "controller": true}]);
    let notes = json!({"k8s.v1.cni.cncf.io/networks": definition, "netloom.io/sticky": "true"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "db", "annotations": notes, "ownerReferences": owner}});
    (set, pod)
}

#[test]
fn s57_s58_s59_a_stateful_sets_pod_keeps_both_addresses_on_another_node() {
    let (cluster, [a, b]) = cluster("set");
    let (set, object) = stateful_set(&cluster, "data");
    let first = a.pod_of(object.clone());
    first.must("ADD");
    let kept = net1(&a, &first);
    assert_eq!(kept.len(), 2, "{kept:?}");
    let name = "web-0-data-net1";
    a.until("the claim's addresses", || claim(&cluster, name)["status"]["ips"] == json!(kept));
    assert_eq!(claim(&cluster, name)["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    a.until("its pod", || claim(&cluster, name)["status"]["ownerPod"]["name"] == "web-0");

    // Forced out of the API while its container runs: who comes after it waits for the node's word.
    forget(&cluster, &first);
    let second = b.pod_of(object.clone());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.must("ADD"));
        b.until("that it is told", || told(&cluster, name, "Delegated") == "False Returning");
        assert!(!waiting.is_finished(), "its addresses are in use on the other node");
        assert_eq!(net1(&a, &first), kept);
        first.must("DEL");
        waiting.join().unwrap();
    });
    assert_eq!(net1(&b, &second), kept);
    assert!(b.host.pings(&second.sandbox(), "10.30.0.1"));
    second.must("CHECK");

    // As it is meant: deleted, its container gone, made anew where it was at first; the agent was killed in between.
    second.must("DEL");
    forget(&cluster, &second);
    a.restart();
    let third = a.pod_of(object);
    third.must("ADD");
    assert_eq!(net1(&a, &third), kept);

    // Its sandbox is made anew without the API: the address is the node's still.
    third.must("DEL");
    cluster.api.stop();
    third.renew();
    third.must("ADD");
    assert_eq!(net1(&a, &third), kept);
    cluster.api.start();

    // The claim is deleted while the pod runs.
    a.until("the API", || cluster.api.ask("DELETE", &format!("{CLAIMS}/{name}"), &Value::Null).0 == 200);
    a.until("that it is being deleted", || !claim(&cluster, name)["metadata"]["deletionTimestamp"].is_null());
    third.must("CHECK");
    assert_eq!(net1(&a, &third), kept);
    third.must("DEL");
    forget(&cluster, &third);
    a.until("that it is gone", || cluster.api.ask("GET", &format!("{CLAIMS}/{name}"), &Value::Null).0 == 404);
    for node in ["set-a", "set-b"] {
        a.until("that no node has it", || cluster.object(node)["spec"]["ips"].as_array().is_none_or(Vec::is_empty));
    }
}

#[test]
fn s28_s60_a_pod_has_the_address_that_its_claim_asks_for() {
    let (cluster, [a, b]) = cluster("static");
    let make = |name: &str, requests: Value| {
        let spec = json!({"network": "data-net", "interface": "net1", "ipRequests": requests});
        let object = json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": name}, "spec": spec});
        cluster.api.must("POST", CLAIMS, &object);
    };
    let pod = |claim: &str, name: &str, definition: &str| {
        let networks = json!([{"name": definition, "ipam-claim-reference": claim}]).to_string();
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "db", "annotations": {"k8s.v1.cni.cncf.io/networks": networks}}})
    };
    make("vip", json!(["10.30.0.131/24"]));
    let first = a.pod_of(pod("vip", "first", "data"));
    first.must("ADD");
    assert_eq!(net1(&a, &first)[0], "10.30.0.131/24");
    for (name, request, why) in [
        ("outside", "10.31.0.7/24", "False RequestOutsidePool"),
        ("excluded", "10.30.0.130/24", "False RequestExcluded"),
        ("taken", "10.30.0.131/24", "False RequestTaken"),
    ] {
        make(name, json!([request]));
        a.until("why not", || told(&cluster, name, "IPsAllocated") == why);
    }
    // Two pods, one claim: the second one waits, and fails when nothing comes of it.
    let second = b.pod_of(pod("vip", "second", "impatient"));
    b.until("it is told why", || {
        let said = unclaimed(&second, "vip");
        said.starts_with("pod first has them") && said.contains("pods second on static-b wait for node static-a")
    });
    // Nobody else ever got one of the reserved addresses.
    let plain = b.pod_of(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "plain", "namespace": "db", "annotations": {"k8s.v1.cni.cncf.io/networks": "data"}}}));
    plain.must("ADD");
    assert!(net1(&b, &plain).iter().all(|ip| !ip.starts_with("10.30.0.13") && !ip.starts_with("fd00:30::8")), "{:?}", net1(&b, &plain));
    // What lies in a block of a node is no claim's.
    make("granted", json!([net1(&b, &plain)[0]]));
    b.until("why not", || told(&cluster, "granted", "IPsAllocated") == "False RequestGranted");
    plain.must("DEL");
    first.must("DEL");
    forget(&cluster, &first);
    second.renew();
    b.until("the node has it", || claim(&cluster, "vip")["status"]["ownerPod"]["name"] == "second");
    second.must("ADD");
    assert_eq!(net1(&b, &second)[0], "10.30.0.131/24");
    second.must("DEL");
}

/// The machine's pods say that it migrates: both nodes have the address, and whichever pod is left keeps it.
#[test]
fn s57_two_launchers_of_a_machine_have_its_address_while_it_migrates() {
    let (cluster, [a, b]) = cluster("moves");
    let spec = json!({"network": "data-net", "interface": "net1", "ipRequests": ["10.30.0.132/24"]});
    let object = json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": "vm"}, "spec": spec});
    cluster.api.must("POST", CLAIMS, &object);
    let launcher = |name: &str| {
        let networks = json!([{"name": "data", "ipam-claim-reference": "vm"}]).to_string();
        let notes = json!({"k8s.v1.cni.cncf.io/networks": networks, "netloom.io/migration": "true"});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "db", "annotations": notes}})
    };
    let source = a.pod_of(launcher("virt-launcher-1"));
    source.must("ADD");
    let kept = net1(&a, &source);
    assert_eq!(kept[0], "10.30.0.132/24");
    let target = b.pod_of(launcher("virt-launcher-2"));
    target.must("ADD");
    assert_eq!((net1(&a, &source), net1(&b, &target)), (kept.clone(), kept.clone()));
    source.must("CHECK");
    target.must("CHECK");
    let (code, told) = trace(&cluster, "10.30.0.132");
    assert!(code == 0 && told.matches("has it as well, because the claim's pod is migrating").count() == 2, "{told}");
    // A third pod does not say so: it gets nothing, although no container of its node has the addresses.
    target.must("DEL");
    let networks = json!([{"name": "impatient", "ipam-claim-reference": "vm"}]).to_string();
    let notes = json!({"k8s.v1.cni.cncf.io/networks": networks});
    let third =
        b.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "third", "namespace": "db", "annotations": notes}}));
    b.until("it is told why", || unclaimed(&third, "vm").contains("pods third on moves-b wait"));
    forget(&cluster, &third);
    target.renew();
    target.must("ADD");
    assert_eq!((net1(&a, &source), net1(&b, &target)), (kept.clone(), kept.clone()));
    // It has migrated. The first node's pod has gone, and the second one's goes on, with a sandbox made anew as well.
    source.must("DEL");
    forget(&cluster, &source);
    a.until("that one node has it", || cluster.object("moves-a")["spec"]["ips"].as_array().is_none_or(Vec::is_empty));
    b.until("its pod", || claim(&cluster, "vm")["status"]["ownerPod"]["name"] == "virt-launcher-2");
    target.must("CHECK");
    assert!(b.host.pings(&target.sandbox(), "10.30.0.1"));
    target.must("DEL");
    target.renew();
    target.must("ADD");
    assert_eq!(net1(&b, &target), kept);
    let (_, told) = trace(&cluster, "10.30.0.132");
    assert!(told.contains("moves-b, alone, for claim db/vm") && !told.contains("moves-a"), "{told}");
    // The next one comes to nothing.
    let again = a.pod_of(launcher("virt-launcher-3"));
    again.must("ADD");
    assert_eq!(net1(&a, &again), kept);
    again.must("DEL");
    forget(&cluster, &again);
    a.until("that one node has it", || cluster.object("moves-a")["spec"]["ips"].as_array().is_none_or(Vec::is_empty));
    assert_eq!(net1(&b, &target), kept);
    target.must("DEL");
}

/// A definition that was made for whereabouts knows nothing of claims: they work with it as with a pool that somebody has written.
#[test]
fn claims_and_stateful_sets_with_a_definition_for_whereabouts() {
    let (cluster, [a, b]) = cluster("range");
    let network = json!({"cniVersion": "1.0.0", "name": "wb-net", "type": "bridge", "bridge": "br2",
        "ipam": {"type": "whereabouts", "range": "10.40.0.0/24", "addWait": 100}});
    cluster.api.definition("db", "wb", &network.to_string());
    let spec = json!({"network": "wb-net", "interface": "net1", "ipRequests": ["10.40.0.77/24"]});
    let object = json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": "vip"}, "spec": spec});
    cluster.api.must("POST", CLAIMS, &object);
    let networks = json!([{"name": "wb", "ipam-claim-reference": "vip"}]).to_string();
    let object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "db", "namespace": "db", "annotations": {"k8s.v1.cni.cncf.io/networks": networks}}});
    let first = a.pod_of(object.clone());
    first.must("ADD");
    first.must("CHECK");
    assert_eq!(net1(&a, &first), ["10.40.0.77/24"]);
    assert_eq!(claim(&cluster, "vip")["status"]["ips"], json!(["10.40.0.77/24"]));
    // Another pod has any other address of the range.
    let plain = a.pod_of(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "plain", "namespace": "db", "annotations": {"k8s.v1.cni.cncf.io/networks": "wb"}}}));
    plain.must("ADD");
    assert_ne!(net1(&a, &plain), net1(&a, &first));
    // On another node.
    first.must("DEL");
    forget(&cluster, &first);
    let second = b.pod_of(object);
    second.must("ADD");
    assert_eq!(net1(&b, &second), ["10.40.0.77/24"]);
    // A StatefulSet's pod, which names no claim.
    let (_, object) = stateful_set(&cluster, "wb");
    let zero = b.pod_of(object.clone());
    zero.must("ADD");
    let kept = net1(&b, &zero);
    a.until("its claim", || claim(&cluster, "web-0-wb-net1")["status"]["ips"] == json!(kept));
    zero.must("DEL");
    forget(&cluster, &zero);
    let anew = a.pod_of(object);
    anew.must("ADD");
    assert_eq!(net1(&a, &anew), kept);
    assert!(a.host.pings(&plain.sandbox(), kept[0].trim_end_matches("/24")));
    [&anew, &plain].iter().for_each(|pod| drop(pod.must("DEL")));
    second.must("DEL");
}

fn trace(cluster: &Cluster, address: &str) -> (i32, String) {
    let mut command = std::process::Command::new(netloom_tests::netloom());
    command.args(["ipam", "trace", "--cluster", address, "--kubeconfig"]).arg(cluster.dir.join("kubeconfig"));
    let out = command.output().unwrap();
    (out.status.code().unwrap(), String::from_utf8(out.stdout).unwrap())
}
