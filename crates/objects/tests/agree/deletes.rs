//! Deletion.

use serde_json::json;

use crate::talk::{MERGE, Talk};

const MAPS: &str = "/api/v1/{ns}/configmaps";
const MAP: &str = "/api/v1/{ns}/configmaps/a";

pub(crate) async fn delete(talk: &mut Talk) {
    talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.delete(200, MAP, json!({"propagationPolicy": "Background"})).await;
    talk.delete(404, MAP, json!({})).await;
    talk.get(404, MAP).await;
    let again = talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    assert!(again["metadata"]["uid"].is_string());
}

pub(crate) async fn delete_preconditions(talk: &mut Talk) {
    let made = talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.delete(409, MAP, json!({"preconditions": {"uid": "other"}})).await;
    talk.delete(409, MAP, json!({"preconditions": {"resourceVersion": "1"}})).await;
    let (uid, version) = (&made["metadata"]["uid"], &made["metadata"]["resourceVersion"]);
    talk.delete(200, MAP, json!({"preconditions": {"uid": uid, "resourceVersion": version}})).await;
}

pub(crate) async fn finalizers(talk: &mut Talk) {
    talk.post(201, MAPS, json!({"metadata": {"name": "a", "finalizers": ["x.example/y"]}})).await;
    let marked = talk.delete(200, MAP, json!({})).await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    talk.delete(200, MAP, json!({})).await;
    let refused = talk.patch(422, MERGE, MAP, json!({"metadata": {"finalizers": ["x.example/y", "x.example/z"]}})).await;
    assert_eq!(refused["details"]["causes"][0]["reason"], "FieldValueForbidden");
    talk.said.last_mut().unwrap()["answer"]["details"]["causes"].as_array_mut().unwrap().truncate(1);
    // A deletion is not taken back.
    let still = talk.patch(200, MERGE, MAP, json!({"metadata": {"annotations": {"a": "b"}, "deletionTimestamp": null}})).await;
    assert!(still["metadata"]["deletionTimestamp"].is_string(), "{still}");
    talk.post(409, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.patch(200, MERGE, MAP, json!({"metadata": {"finalizers": null}})).await;
    talk.get(404, MAP).await;
}

pub(crate) async fn pods_are_marked(talk: &mut Talk) {
    let spec = json!({"nodeName": "n", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    talk.post(201, "/api/v1/{ns}/pods", json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let mut watching = talk.watch("/api/v1/{ns}/pods?watch=1").await;
    talk.see(&mut watching, 1).await;
    talk.delete(200, "/api/v1/{ns}/pods/p", json!({"gracePeriodSeconds": 0})).await;
    let seen = talk.see(&mut watching, 2).await;
    assert_eq!((&seen[0]["type"], &seen[1]["type"]), (&json!("MODIFIED"), &json!("DELETED")));
    talk.get(404, "/api/v1/{ns}/pods/p").await;
}

pub(crate) async fn collections(talk: &mut Talk) {
    for name in ["a", "b", "c"] {
        let label = if name == "b" { "keep" } else { "go" };
        talk.post(201, MAPS, json!({"metadata": {"name": name, "labels": {"what": label}}})).await;
    }
    let (code, list) = talk.send("DELETE", &talk.path(&format!("{MAPS}?labelSelector=what%3Dgo")), "application/json", None).await;
    assert_eq!(code, 200, "{list}");
    let left = talk.get(200, &format!("{MAPS}?labelSelector=what")).await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

pub(crate) async fn namespaces_end(talk: &mut Talk) {
    talk.post(201, "/api/v1/namespaces", json!({"metadata": {"name": "ending", "labels": {"a": "b"}}})).await;
    talk.delete(200, "/api/v1/namespaces/ending", json!({})).await;
    talk.post(403, "/api/v1/namespaces/ending/configmaps", json!({"metadata": {"name": "a"}})).await;
    talk.put(200, "/api/v1/namespaces/ending/finalize", json!({"metadata": {"name": "ending"}, "spec": {"finalizers": []}})).await;
    talk.get(404, "/api/v1/namespaces/ending").await;
}
