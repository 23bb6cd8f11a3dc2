//! What a clause asks that nothing is done.

use std::sync::{Arc, Mutex, PoisonError};

use netloom_tests::Api;
use serde_json::{Value, json};

use crate::standard::scene::{Node, api, ask, bridge, ensure_namespace, macvlan};

/// Of a pod and of the definitions that it selects one annotation is written, and nothing else anywhere.
#[test]
fn s1_s8_one_annotation_of_a_pod_is_all_that_is_written() {
    let node = Node::new("untouched");
    let config = macvlan("one", 1);
    node.definition("one", &config);
    let path = "/apis/k8s.cni.cncf.io/v1/namespaces/untouched/network-attachment-definitions/one";
    let definition = ask("GET", path, &Value::Null);
    let pod = node.pod("web", "one");
    let before = pod.object();
    pod.add();
    pod.status();
    let strip = |mut object: Value| {
        object["metadata"]["annotations"].as_object_mut().unwrap().remove(crate::standard::scene::STATUS);
        for key in ["managedFields", "resourceVersion", "generation"] {
            object["metadata"].as_object_mut().unwrap().remove(key);
        }
        object
    };
    assert_eq!(strip(pod.object()), strip(before));
    assert_eq!(ask("GET", path, &Value::Null), definition);
    // What kubelets and Services are made of is as the control plane made it.
    for path in ["/api/v1/namespaces/untouched/services", "/apis/discovery.k8s.io/v1/namespaces/untouched/endpointslices", "/api/v1/nodes"]
    {
        assert_eq!(ask("GET", path, &Value::Null)["items"], json!([]), "{path}");
    }
    pod.del();
}

/// The API server, which knows the kind as long as this is held: it ends with the last one who has it.
fn with_claims() -> Arc<Api> {
    static ONE: Mutex<()> = Mutex::new(());
    let api = Api::shared();
    // Of two who apply it at the same time one would find it there and fail.
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    api.define("ipamclaims.yaml");
    api
}

/// The kind is the standard's, with the rules that its Go types have: network and interface stay, addresses are of two
/// families at the most.
#[test]
#[ignore = "needs Kubernetes: its schemas"]
fn s56_s60_claims_are_the_standards() {
    let _api = with_claims();
    ensure_namespace("claims");
    let path = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/claims/ipamclaims";
    let claim = |name: &str, spec: Value| json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": name}, "spec": spec});
    let good =
        claim("vm-a.tenant.eth1", json!({"network": "tenant", "interface": "eth1", "ipRequests": ["192.0.2.7/24", "2001:db8::7/64"]}));
    ask("POST", path, &good);
    let own = format!("{path}/vm-a.tenant.eth1");
    for (spec, why) in [
        (json!({"network": "tenant"}), "spec.interface"),
        (json!({"interface": "eth1"}), "spec.network"),
        (json!({"network": "n", "interface": "i", "ipRequests": ["192.0.2.7/24", "192.0.2.8/24"]}), "different families"),
        (json!({"network": "n", "interface": "i", "ipRequests": ["192.0.2.7"]}), "prefix length"),
        (json!({"network": "n", "interface": "i", "ipRequests": ["192.0.2.7/24", "2001:db8::7/64", "2001:db8::8/64"]}), "ipRequests"),
    ] {
        let (code, answer) = api("POST", path, &claim("bad", spec.clone()));
        assert!(code == 422 && answer["message"].as_str().unwrap().contains(why), "{spec}: {code} {answer}");
    }
    for (change, why) in [
        (json!({"network": "other"}), "spec.network cannot be changed"),
        (json!({"interface": "other"}), "spec.interface cannot be changed"),
        (json!({"ipRequests": ["192.0.2.9/24"]}), "spec.ipRequests cannot be changed"),
        (json!({"ipRequests": null}), "spec.ipRequests cannot be changed"),
    ] {
        let (code, answer) = api("PATCH", &own, &json!({"spec": change}));
        assert!(code == 422 && answer["message"].as_str().unwrap().contains(why), "{change}: {code} {answer}");
    }
    // The status is written by itself, and has its addresses.
    let (code, _) = api("PATCH", &format!("{own}/status"), &json!({"status": {"ownerPod": {"name": "web"}}}));
    assert_eq!(code, 422);
    let status = json!({"ips": ["192.0.2.7/24"], "ownerPod": {"name": "web"}});
    ask("PATCH", &format!("{own}/status"), &json!({"status": status}));
    ask("PATCH", &own, &json!({"status": {"ips": []}}));
    assert_eq!(ask("GET", &own, &Value::Null)["status"], status);
}

/// The claim's name reaches the plugins, who alone may know what it means; the claim is nobody's here, and stays as it is
/// when the pod goes.
#[test]
fn s28_s57_s58_s59_a_claim_reaches_the_plugins_and_outlives_the_pod() {
    let _api = with_claims();
    let node = Node::new("claimed");
    node.plugin(
        "carrier",
        "mkdir -p /run/given; cat >/run/given/$CNI_COMMAND; [ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.0.0\"}'\n",
    );
    let plugin = |capabilities: Value| json!({"type": "carrier", "capabilities": capabilities});
    node.definition("tenant", &json!({"cniVersion": "1.0.0", "plugins": [plugin(json!({"ipam-claim-reference": true}))]}));
    // One that knows no claims has no trouble with them.
    node.definition("plain", &bridge("plain", 1));
    let pod = node.pod(
        "web",
        json!([{"name": "tenant", "ipam-claim-reference": "vm-a.tenant.eth1"}, {"name": "plain", "ipam-claim-reference": "other"}]),
    );
    let path = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/claimed/ipamclaims";
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "11111111-2222-3333-4444-555555555555"}]);
    let claim = json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": "vm-a.tenant.eth1", "ownerReferences": owner},
        "spec": {"network": "tenant", "interface": "net1"}});
    ask("POST", path, &claim);
    let own = format!("{path}/vm-a.tenant.eth1");
    ask("PATCH", &format!("{own}/status"), &json!({"status": {"ips": ["10.9.0.7/16"]}}));
    let before = ask("GET", &own, &Value::Null);
    pod.add();
    let read =
        |verb: &str| serde_json::from_str::<Value>(&std::fs::read_to_string(node.host.path("/run/given").join(verb)).unwrap()).unwrap();
    let added = read("ADD");
    assert_eq!(added["runtimeConfig"]["ipam-claim-reference"], "vm-a.tenant.eth1", "{added}");
    assert_eq!(added["args"]["cni"]["ipam-claim-reference"], "vm-a.tenant.eth1", "{added}");
    pod.delete();
    pod.del();
    assert_eq!(read("DEL")["runtimeConfig"]["ipam-claim-reference"], "vm-a.tenant.eth1");
    assert_eq!(ask("GET", &own, &Value::Null), before);
}
