//! What an agent may change of Nodes, against a real API server: of its own one condition and one annotation, and nothing of others.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use netloom_tests::seen_within;
use serde_json::{Value, json};
use testbed::ControlPlane;

use crate::deploy::plane;

const BETWEEN: &str = "netloom.io/between";
const TIME: &str = "2026-01-01T00:00:00Z";

/// A Node as its kubelet has written it.
fn node(plane: &ControlPlane, name: &str) {
    // More than a kubelet lists: the API server gives up on a policy that takes too many steps.
    let names = |n: usize| -> Vec<String> { (0..5).map(|tag| format!("registry.example/{n}/{}:{tag}", "x".repeat(150))).collect() };
    let images: Vec<Value> = (0..100).map(|n| json!({"names": names(n), "sizeBytes": 1})).collect();
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"mine": "1"}, "annotations": {"mine": "1"}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.11"}], "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"},
            "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False")], "nodeInfo": {"bootID": "b"},
            "images": images, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        },
    });
    plane.kubectl(&["create", "-f", "-"], &node.to_string()).unwrap();
}

fn condition(name: &str, status: &str) -> Value {
    json!({"type": name, "status": status, "reason": "R", "message": "m", "lastHeartbeatTime": TIME, "lastTransitionTime": TIME})
}

fn get(plane: &ControlPlane, name: &str) -> Value {
    serde_json::from_str(&plane.kubectl(&["get", "node", name, "-o", "json"], "").unwrap()).unwrap()
}

/// Patches as whoever has this kubeconfig. `of`: the arguments before the patch.
fn patch(plane: &ControlPlane, config: &Path, of: &[&str], change: &Value) -> Output {
    let change = change.to_string();
    let args = [&["patch", "node"], of, &["-p", &change]].concat();
    plane.kubectl_command(&args).env("KUBECONFIG", config).output().unwrap()
}

fn refused(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("netloom-own-node") && said.contains(why), "{why}: {output:?}");
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

/// The control plane with two Nodes, and roles that go further than the agents': what refuses is the policy.
fn with_two_nodes(name: &str) -> ControlPlane {
    let plane = plane(name);
    for name in ["node-a", "node-b"] {
        node(&plane, name);
    }
    let account = "--serviceaccount=kube-system:netloom";
    for args in [
        // kubectl reads before it patches; the agent does not.
        ["clusterrole", "more", "--verb=get,patch,update,create", "--resource=nodes,nodes/status"],
        ["clusterrolebinding", "more", "--clusterrole=more", account],
    ] {
        plane.kubectl(&[&["create"], &args[..]].concat(), "").unwrap();
    }
    plane
}

#[test]
fn an_agent_changes_the_network_of_its_own_node_only() {
    let plane = with_two_nodes("node");
    let agent = plane.write_kubeconfig("agent", &plane.agent_token("node-a").unwrap()).unwrap();
    let unbound = plane.kubectl(&["create", "token", "netloom", "-n", "kube-system"], "").unwrap();
    let nobody = plane.write_kubeconfig("nobody", unbound.trim()).unwrap();
    let strategic = |name| [name, "--subresource=status", "--type=strategic"];
    let network = |text: &Value, status: &str| json!({"metadata": {"annotations": {BETWEEN: text}}, "status": {"conditions": [condition("NetworkUnavailable", status)]}});
    let up = network(&json!("{\"mode\":\"vxlan\"}"), "False");

    // A policy holds a moment after it was made, as a role does.
    let by_policy = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("netloom-own-node");
    let other = || patch(&plane, &agent, &strategic("node-b"), &up);
    let last = seen_within(Duration::from_secs(120), other, by_policy).unwrap_or_else(|last| last);
    refused(&last, "its token is of node \"node-a\", the Node is \"node-b\"");
    refused(&patch(&plane, &nobody, &strategic("node-a"), &up), "its token is of node \"\"");

    let before = get(&plane, "node-a");
    for change in [&up, &network(&json!("{\"mode\":\"direct\"}"), "True"), &up] {
        succeeded(&patch(&plane, &agent, &strategic("node-a"), change));
    }
    let written = get(&plane, "node-a");
    assert_eq!(written["metadata"]["annotations"][BETWEEN], "{\"mode\":\"vxlan\"}");
    let conditions = written["status"]["conditions"].as_array().unwrap();
    let own = conditions.iter().find(|condition| condition["type"] == "NetworkUnavailable").unwrap();
    assert_eq!((conditions.len(), &own["status"], &own["lastHeartbeatTime"]), (3, &json!("False"), &json!(TIME)));
    assert_eq!(written["spec"], before["spec"]);
    succeeded(&patch(&plane, &agent, &strategic("node-a"), &network(&Value::Null, "False")));
    assert!(get(&plane, "node-a")["metadata"]["annotations"].get(BETWEEN).is_none());
}

#[test]
fn an_agent_changes_nothing_else_of_its_own_node() {
    let plane = with_two_nodes("node-rest");
    let agent = plane.write_kubeconfig("agent", &plane.agent_token("node-a").unwrap()).unwrap();
    let by_status = |kind: &str, change: &Value| patch(&plane, &agent, &["node-a", "--subresource=status", kind], change);
    let direct = |change: &Value| patch(&plane, &agent, &["node-a", "--type=merge"], change);
    let by_policy = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("netloom-own-node");
    let label = json!({"metadata": {"labels": {"mine": "2"}}});
    seen_within(Duration::from_secs(120), || by_status("--type=merge", &label), by_policy).unwrap();
    let before = get(&plane, "node-a");

    let (ready, network) = (condition("Ready", "True"), condition("NetworkUnavailable", "False"));
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "node-b", "uid": "u"}]);
    let others = [
        (json!({"metadata": {"labels": {"mine": "2"}}}), "nothing of a Node but its condition NetworkUnavailable and its annotation"),
        (json!({"metadata": {"labels": {"other": "1"}}}), "nothing of a Node"),
        (json!({"metadata": {"finalizers": ["example.org/stay"]}}), "nothing of a Node"),
        (json!({"metadata": {"ownerReferences": owner}}), "nothing of a Node"),
        (json!({"metadata": {"annotations": {"other": "1"}}}), "no annotation of a Node but netloom.io/between"),
        (json!({"metadata": {"annotations": {"mine": "2"}}}), "no annotation of a Node"),
        (json!({"metadata": {"annotations": {"mine": null, BETWEEN: "{}"}}}), "no annotation of a Node"),
        (json!({"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": "[]"}}}), "no annotation of a Node"),
        (json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.12"}]}}), "nothing of a Node's status"),
        (json!({"status": {"capacity": {"cpu": "64"}}}), "nothing of a Node's status"),
        (json!({"status": {"allocatable": {"cpu": "2"}}}), "nothing of a Node's status"),
        (json!({"status": {"nodeInfo": {"bootID": "c"}}}), "nothing of a Node's status"),
        (json!({"status": {"images": null}}), "nothing of a Node's status"),
        (json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 7}}}}), "nothing of a Node's status"),
        (json!({"status": {"volumesInUse": ["v"]}}), "nothing of a Node's status"),
        (json!({"status": {"phase": "Running"}}), "nothing of a Node's status"),
        // A merge patch replaces the list: here without MemoryPressure, with another one, with two.
        (json!({"status": {"conditions": [ready, network]}}), "no condition of a Node but NetworkUnavailable"),
        (json!({"status": {"conditions": null}}), "no condition of a Node"),
        (
            json!({"status": {"conditions": [ready, condition("MemoryPressure", "False"), condition("Mine", "True")]}}),
            "no condition of a Node",
        ),
        (
            json!({"status": {"conditions": [ready, condition("MemoryPressure", "False"), network, network]}}),
            "no condition of a Node but NetworkUnavailable, of which there is one",
        ),
    ];
    for (change, why) in &others {
        refused(&by_status("--type=merge", change), why);
    }
    for changed in [condition("Ready", "False"), condition("Mine", "True")] {
        refused(&by_status("--type=strategic", &json!({"status": {"conditions": [changed]}})), "no condition of a Node");
    }
    // The API server ignores a specification that comes with a status.
    let spec = json!({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"], "unschedulable": true, "taints": null}});
    by_status("--type=merge", &spec);
    for change in [
        spec,
        label,
        json!({"metadata": {"annotations": {BETWEEN: "{}"}}}),
        json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}),
    ] {
        refused(&direct(&change), "an agent changes no Node but by nodes/status");
    }
    let made = plane.kubeconfig().with_file_name("made.json");
    std::fs::write(&made, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c"}}).to_string()).unwrap();
    let created = plane.kubectl_command(&["create", "-f", made.to_str().unwrap()]).env("KUBECONFIG", &agent).output().unwrap();
    refused(&created, "an agent changes no Node but by nodes/status");
    assert_eq!(get(&plane, "node-a"), before, "nothing was written");
}

#[test]
fn who_is_no_agent_changes_nodes_and_an_agent_is_one_in_any_namespace() {
    let plane = with_two_nodes("node-others");
    plane.kubectl(&["create", "serviceaccount", "netloom", "-n", "default"], "").unwrap();
    plane.kubectl(&["create", "clusterrolebinding", "elsewhere", "--clusterrole=more", "--serviceaccount=default:netloom"], "").unwrap();
    let bound = ["create", "token", "netloom", "-n", "default", "--bound-object-kind=Node", "--bound-object-name=node-a"];
    let elsewhere = plane.write_kubeconfig("elsewhere", plane.kubectl(&bound, "").unwrap().trim()).unwrap();
    let network = json!({"status": {"conditions": [condition("NetworkUnavailable", "False")]}});
    let strategic = |name| [name, "--subresource=status", "--type=strategic"];
    let by_policy = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("netloom-own-node");
    let other = || patch(&plane, &elsewhere, &strategic("node-b"), &network);
    seen_within(Duration::from_secs(120), other, by_policy).unwrap();
    succeeded(&patch(&plane, &elsewhere, &strategic("node-a"), &network));

    let admin = plane.kubeconfig();
    let all = json!({"metadata": {"labels": {"mine": "2"}, "annotations": {BETWEEN: "{}"}}, "status": {"conditions": [condition("Ready", "False")]}});
    succeeded(&patch(&plane, &admin, &strategic("node-b"), &all));
    succeeded(&patch(&plane, &admin, &["node-b", "--type=merge"], &json!({"spec": {"unschedulable": true}})));
    let kubelet = ["label", "node", "node-a", "example.org/rack=7", "--as=system:node:node-a", "--as-group=system:nodes"];
    plane.kubectl(&kubelet, "").unwrap();
}
