//! Watches.

use serde_json::{Value, json};

use crate::talk::{MERGE, Talk};

const MAPS: &str = "/api/v1/{ns}/configmaps";

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

async fn version(talk: &Talk) -> String {
    let (_, list) = talk.send("GET", &talk.path(MAPS), "application/json", None).await;
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

pub(crate) async fn events_in_order(talk: &mut Talk) {
    let from = version(talk).await;
    let mut watching = talk.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.patch(200, MERGE, &format!("{MAPS}/a"), json!({"data": {"k": "v"}})).await;
    talk.patch(200, MERGE, &format!("{MAPS}/a"), json!({"data": {"k": "v"}})).await;
    talk.patch(200, MERGE, &format!("{MAPS}/a"), json!({"metadata": {"finalizers": ["x.example/y"]}})).await;
    talk.delete(200, &format!("{MAPS}/a"), json!({})).await;
    talk.patch(200, MERGE, &format!("{MAPS}/a"), json!({"metadata": {"finalizers": null}})).await;
    talk.post(201, MAPS, json!({"metadata": {"name": "b"}})).await;
    talk.delete(200, &format!("{MAPS}/b"), json!({})).await;
    let seen = talk.see(&mut watching, 7).await;
    assert_eq!(kinds(&seen), ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
    // What is gone has the resource version of its end.
    assert_ne!(seen[6]["object"]["metadata"]["resourceVersion"], seen[5]["object"]["metadata"]["resourceVersion"]);
}

pub(crate) async fn from_a_version(talk: &mut Talk) {
    let a = talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.post(201, MAPS, json!({"metadata": {"name": "b"}})).await;
    talk.delete(200, &format!("{MAPS}/a"), json!({})).await;
    let from = a["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watching = talk.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).await;
    let seen = talk.see(&mut watching, 2).await;
    assert_eq!(kinds(&seen), ["ADDED", "DELETED"]);
    let mut short = talk.watch(&format!("{MAPS}?watch=1&resourceVersion={}&timeoutSeconds=1", version(talk).await)).await;
    assert!(short.next().await.is_none(), "nothing happens, and after a second the watch ends");
    talk.get(422, &format!("{MAPS}?watch=1&resourceVersionMatch=NotOlderThan")).await;
    talk.get(500, &format!("{MAPS}?watch=1&resourceVersion=nonsense")).await;
}

pub(crate) async fn selected_events(talk: &mut Talk) {
    let from = version(talk).await;
    let mut watching = talk.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&labelSelector=on%3Dyes")).await;
    let mut one = talk.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&fieldSelector=metadata.name%3Db")).await;
    talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.post(201, MAPS, json!({"metadata": {"name": "b", "labels": {"on": "yes"}}})).await;
    for on in ["yes", "no", "yes"] {
        talk.patch(200, MERGE, &format!("{MAPS}/a"), json!({"metadata": {"labels": {"on": on}}})).await;
    }
    talk.delete(200, &format!("{MAPS}/a"), json!({})).await;
    talk.delete(200, &format!("{MAPS}/b"), json!({})).await;
    let seen = talk.see(&mut watching, 6).await;
    assert_eq!(kinds(&seen), ["ADDED", "ADDED", "DELETED", "ADDED", "DELETED", "DELETED"]);
    assert_eq!(kinds(&talk.see(&mut one, 2).await), ["ADDED", "DELETED"]);
    // A pod that gets its node begins to be there for the watch of that node.
    let mut node = talk.watch("/api/v1/{ns}/pods?watch=1&fieldSelector=spec.nodeName%3Dn1").await;
    let spec = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    talk.post(201, "/api/v1/{ns}/pods", json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    talk.post(201, "/api/v1/{ns}/pods/p/binding", binding).await;
    talk.delete(200, "/api/v1/{ns}/pods/p", json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(kinds(&talk.see(&mut node, 3).await), ["ADDED", "MODIFIED", "DELETED"]);
}

pub(crate) async fn initial_events(talk: &mut Talk) {
    for name in ["a", "b"] {
        talk.post(201, MAPS, json!({"metadata": {"name": name}})).await;
    }
    for version in ["", "&resourceVersion=0"] {
        let mut watching = talk.watch(&format!("{MAPS}?watch=1{version}")).await;
        assert_eq!(kinds(&talk.see(&mut watching, 2).await), ["ADDED", "ADDED"]);
    }
    let asked = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watching = talk.watch(&format!("{MAPS}?{asked}&fieldSelector=metadata.name!%3Dkube-root-ca.crt")).await;
    assert_eq!(kinds(&talk.see(&mut watching, 2).await), ["ADDED", "ADDED"]);
    let end = watching.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    talk.delete(200, &format!("{MAPS}/a"), json!({})).await;
    assert_eq!(kinds(&talk.see(&mut watching, 1).await), ["DELETED"]);
    talk.get(422, &format!("{MAPS}?watch=1&sendInitialEvents=true")).await;
}

pub(crate) async fn too_old(talk: &mut Talk) {
    // The resource begins with its definition, so the beginning of time is too old for it.
    let definition = crate::resources::definition("olds", false);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    talk.post(201, path, definition).await;
    let things = "/apis/test.example/v1/{ns}/olds";
    talk.until(200, things).await;
    let mut watching = talk.watch(&format!("{things}?watch=1&resourceVersion=1")).await;
    let seen = talk.see(&mut watching, 1).await;
    assert_eq!((&seen[0]["type"], &seen[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(watching.next().await.is_none(), "the watch ends with it");
    talk.delete(200, &format!("{path}/olds.test.example"), json!({})).await;
    talk.said.pop();
    talk.until(404, things).await;
}
