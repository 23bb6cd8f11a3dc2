//! Patches.

use serde_json::json;

use crate::talk::{APPLY, JSON, MERGE, STRATEGIC, Talk};

const MAPS: &str = "/api/v1/{ns}/configmaps";
const MAP: &str = "/api/v1/{ns}/configmaps/a";

pub(crate) async fn merge_patch(talk: &mut Talk) {
    talk.post(201, MAPS, json!({"metadata": {"name": "a", "annotations": {"old": "1"}}, "data": {"k": "v", "l": "w"}})).await;
    let made = talk.patch(200, MERGE, MAP, json!({"metadata": {"annotations": {"new": "2"}}, "data": {"k": null}})).await;
    let same = talk.patch(200, MERGE, MAP, json!({"metadata": {"annotations": {"new": "2"}}})).await;
    assert_eq!(made["metadata"]["resourceVersion"], same["metadata"]["resourceVersion"]);
    talk.patch(200, MERGE, MAP, json!({"metadata": {"annotations": null}})).await;
    talk.patch(400, MERGE, MAP, json!({"metadata": {"name": "other"}})).await;
    talk.patch(404, MERGE, "/api/v1/{ns}/configmaps/none", json!({})).await;
    talk.patch(415, "application/json", MAP, json!({})).await;
}

pub(crate) async fn strategic_patch(talk: &mut Talk) {
    let made = json!({"metadata": {"name": "a", "labels": {"a": "b"}, "finalizers": ["x.example/one"]}, "data": {"k": "v"}});
    talk.post(201, MAPS, made).await;
    let patch = json!({"metadata": {"labels": {"c": "d", "a": null}, "finalizers": ["x.example/two"]}});
    talk.patch(200, STRATEGIC, MAP, patch).await;
    talk.patch(200, STRATEGIC, MAP, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.example/one", "x.example/two"]}})).await;
    talk.patch(200, STRATEGIC, MAP, json!({"data": {"$patch": "replace", "z": "y"}})).await;
    talk.patch(404, STRATEGIC, "/api/v1/{ns}/configmaps/none", json!({"metadata": {"uid": "x"}})).await;
}

pub(crate) async fn json_patch(talk: &mut Talk) {
    talk.post(201, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    talk.patch(200, JSON, MAP, json!([{"op": "add", "path": "/data/l", "value": "w"}])).await;
    talk.patch(200, JSON, MAP, json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "remove", "path": "/data/k"}])).await;
    talk.patch(422, JSON, MAP, json!([{"op": "test", "path": "/data/l", "value": "no"}, {"op": "remove", "path": "/data/l"}])).await;
    talk.patch(422, JSON, MAP, json!([{"op": "remove", "path": "/data/none"}])).await;
    talk.patch(422, JSON, MAP, json!([{"op": "test", "path": "/metadata/uid", "value": "other"}])).await;
    talk.get(200, MAP).await;
}

pub(crate) async fn apply(talk: &mut Talk) {
    let sent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a": "b"}}, "data": {"k": "v"}});
    talk.patch(422, APPLY, MAP, sent.clone()).await;
    talk.patch(201, APPLY, &format!("{MAP}?fieldManager=me"), sent.clone()).await;
    let more = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"c": "d"}}});
    talk.patch(200, APPLY, &format!("{MAP}?fieldManager=other"), more).await;
    talk.patch(400, APPLY, &format!("{MAP}?fieldManager=me"), json!({"metadata": {"name": "a"}})).await;
    let path = "/api/v1/{ns}/configmaps/b?fieldManager=me";
    talk.patch(409, APPLY, path, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "uid": "x"}})).await;
}

pub(crate) async fn patch_preconditions(talk: &mut Talk) {
    let made = talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    let (uid, version) = (&made["metadata"]["uid"], &made["metadata"]["resourceVersion"]);
    for form in [MERGE, STRATEGIC] {
        let annotations = json!({"by": form});
        // Another UID is no conflict in a patch: the API server takes it for an attempt to change what cannot be changed.
        refuse_uid(talk, form, MAP, json!({"metadata": {"uid": "other", "annotations": annotations}})).await;
        talk.patch(200, form, MAP, json!({"metadata": {"uid": uid, "annotations": annotations}})).await;
        talk.patch(409, form, MAP, json!({"metadata": {"resourceVersion": version, "annotations": {"x": "y"}}})).await;
        talk.patch(409, form, MAP, json!({"metadata": {"uid": "other", "resourceVersion": version}})).await;
        talk.patch(200, form, MAP, json!({"metadata": {"uid": null}})).await;
    }
    refuse_uid(talk, JSON, MAP, json!([{"op": "replace", "path": "/metadata/uid", "value": "other"}])).await;
    talk.get(200, MAP).await;
}

// The API server names the cause twice; once is enough for ours.
async fn refuse_uid(talk: &mut Talk, form: &str, path: &str, body: serde_json::Value) {
    let answer = talk.patch(422, form, path, body).await;
    assert_eq!(answer["details"]["causes"][0]["field"], "metadata.uid");
    talk.said.last_mut().unwrap()["answer"]["details"]["causes"].as_array_mut().unwrap().truncate(1);
}

pub(crate) async fn patch_of_status(talk: &mut Talk) {
    let spec = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    let made = talk.post(201, "/api/v1/{ns}/pods", json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let path = "/api/v1/{ns}/pods/p/status";
    let condition =
        |name: &str| json!({"type": name, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let first = json!({"metadata": {"uid": made["metadata"]["uid"]}, "status": {"phase": "Running", "conditions": [condition("Ready")]}});
    talk.patch(200, STRATEGIC, path, first).await;
    talk.patch(200, STRATEGIC, path, json!({"status": {"conditions": [condition("Other")]}})).await;
    let off = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    talk.patch(200, STRATEGIC, path, off).await;
    talk.patch(200, STRATEGIC, path, json!({"status": {"conditions": [{"type": "Other", "$patch": "delete"}]}})).await;
    talk.patch(200, MERGE, path, json!({"status": {"conditions": [condition("Third")]}})).await;
    refuse_uid(talk, STRATEGIC, path, json!({"metadata": {"uid": "other", "annotations": {"a": "b"}}})).await;
    talk.patch(200, STRATEGIC, path, json!({"metadata": {"annotations": {"a": "b"}}})).await;
}

/// What an agent writes to its own Node: a condition and an annotation in one patch.
pub(crate) async fn patch_of_a_nodes_status(talk: &mut Talk) {
    let (nodes, path) = ("/api/v1/nodes", "/api/v1/nodes/patch-of-a-nodes-status/status");
    let time = "2026-01-01T00:00:00Z";
    let condition =
        |name: &str, status: &str| json!({"type": name, "status": status, "lastHeartbeatTime": time, "lastTransitionTime": time});
    let node = json!({"metadata": {"name": "patch-of-a-nodes-status"}, "status": {"conditions": [condition("Ready", "True")]}});
    let made = talk.post(201, nodes, node).await;
    only_conditions(talk);
    let uid = &made["metadata"]["uid"];
    let network = |uid: &serde_json::Value, text: &str, status: &str| json!({"metadata": {"uid": uid, "annotations": {"a/b": text}}, "status": {"conditions": [condition("NetworkUnavailable", status)]}});
    for (text, status) in [("1", "True"), ("2", "False"), ("2", "False")] {
        talk.patch(200, STRATEGIC, path, network(uid, text, status)).await;
        only_conditions(talk);
    }
    let gone = json!({"metadata": {"annotations": {"a/b": null}}, "spec": {"unschedulable": true}});
    let patched = talk.patch(200, STRATEGIC, path, gone).await;
    only_conditions(talk);
    assert!(patched["spec"].get("unschedulable").is_none() && patched["metadata"].get("annotations").is_none(), "{patched}");
    refuse_uid(talk, STRATEGIC, path, network(&json!("other"), "3", "True")).await;
    talk.delete(200, &nodes.replace("nodes", "nodes/patch-of-a-nodes-status"), json!({})).await;
    talk.patch(404, STRATEGIC, path, network(uid, "4", "True")).await;
}

// The rest of a Node's status has fields that are always there.
fn only_conditions(talk: &mut Talk) {
    let status = &mut talk.said.last_mut().unwrap()["answer"]["status"];
    *status = json!({"conditions": status["conditions"]});
}
