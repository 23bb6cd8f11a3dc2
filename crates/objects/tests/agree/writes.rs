//! Create and update.

use serde_json::json;

use crate::talk::Talk;

const MAPS: &str = "/api/v1/{ns}/configmaps";

pub(crate) async fn create(talk: &mut Talk) {
    let sent = json!({"metadata": {"name": "a", "uid": "foo", "labels": {"x": "y"}, "annotations": {}}, "data": {"k": "v"}});
    talk.post(201, MAPS, sent).await;
    talk.post(409, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.post(500, MAPS, json!({"metadata": {"name": "b", "resourceVersion": "5"}})).await;
    talk.get(200, "/api/v1/{ns}/configmaps/a").await;
    talk.get(404, "/api/v1/{ns}/configmaps/b").await;
}

pub(crate) async fn names(talk: &mut Talk) {
    let made = talk.post(201, MAPS, json!({"metadata": {"generateName": "some-"}})).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.len() == 10 && name.starts_with("some-"), "{name}");
    talk.said.pop();
    talk.post(422, MAPS, json!({"metadata": {}})).await;
    talk.post(422, MAPS, json!({"metadata": {"name": "Bad_Name"}})).await;
    talk.post(422, MAPS, json!({"metadata": {"name": "-a"}})).await;
}

pub(crate) async fn kinds(talk: &mut Talk) {
    talk.post(201, MAPS, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}})).await;
    let (code, answer) =
        talk.send("POST", &talk.path(MAPS), "application/json", Some(&json!({"kind": "Pod", "metadata": {"name": "b"}}))).await;
    assert_eq!((code, answer["reason"].as_str()), (400, Some("BadRequest")), "{answer}");
    let (code, answer) = talk.send("POST", &talk.path(MAPS), "application/json", Some(&json!([1]))).await;
    assert_eq!((code, answer["reason"].as_str()), (400, Some("BadRequest")), "{answer}");
}

pub(crate) async fn places(talk: &mut Talk) {
    talk.post(400, MAPS, json!({"metadata": {"name": "a", "namespace": "other"}})).await;
    talk.post(404, "/api/v1/namespaces/nowhere/configmaps", json!({"metadata": {"name": "a"}})).await;
    talk.post(405, "/api/v1/configmaps", json!({"metadata": {"name": "a"}})).await;
    talk.patch(405, crate::talk::MERGE, MAPS, json!({})).await;
    talk.delete(405, "/api/v1/configmaps", json!({})).await;
    talk.get(404, "/api/v1/nothings").await;
    talk.get(404, "/apis/nothing.example/v1/things").await;
}

pub(crate) async fn update(talk: &mut Talk) {
    let path = "/api/v1/{ns}/configmaps/a";
    let made = talk.post(201, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    talk.put(409, path, json!({"metadata": {"name": "a", "resourceVersion": "1"}})).await;
    talk.put(400, path, json!({"metadata": {"name": "b"}})).await;
    talk.put(400, path, json!({"metadata": {"name": "a", "namespace": "other"}})).await;
    talk.put(409, path, json!({"metadata": {"name": "a", "uid": "other"}})).await;
    talk.put(404, "/api/v1/{ns}/configmaps/b", json!({"metadata": {"name": "b"}})).await;
    let version = &made["metadata"]["resourceVersion"];
    let written = talk.put(200, path, json!({"metadata": {"name": "a", "resourceVersion": version}, "data": {"k": "w"}})).await;
    assert_ne!(&written["metadata"]["resourceVersion"], version);
    // The first writer has won.
    talk.put(409, path, json!({"metadata": {"name": "a", "resourceVersion": version}, "data": {"k": "x"}})).await;
    // What changes nothing is not written.
    let same = talk.put(200, path, json!({"metadata": {"name": "a", "labels": {}}, "data": {"k": "w"}})).await;
    assert_eq!(same["metadata"]["resourceVersion"], written["metadata"]["resourceVersion"]);
}

pub(crate) async fn unconditional(talk: &mut Talk) {
    talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.put(200, "/api/v1/{ns}/configmaps/a", json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let leases = "/apis/coordination.k8s.io/v1/{ns}/leases";
    talk.post(201, leases, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}})).await;
    talk.put(422, &format!("{leases}/l"), json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "y"}})).await;
}

pub(crate) async fn generations(talk: &mut Talk) {
    let slice = json!({
        "metadata": {"name": "generations"},
        "spec": {"driver": "d.example", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1}},
    });
    let path = "/apis/resource.k8s.io/v1/resourceslices/generations";
    talk.post(201, "/apis/resource.k8s.io/v1/resourceslices", slice).await;
    talk.patch(200, crate::talk::MERGE, path, json!({"metadata": {"labels": {"a": "b"}}})).await;
    talk.patch(200, crate::talk::MERGE, path, json!({"spec": {"pool": {"generation": 2}}})).await;
    talk.delete(200, path, json!({})).await;
}

pub(crate) async fn dry_run(talk: &mut Talk) {
    talk.post(201, &format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "a"}})).await;
    talk.get(404, "/api/v1/{ns}/configmaps/a").await;
    talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.delete(200, "/api/v1/{ns}/configmaps/a", json!({"dryRun": ["All"]})).await;
    talk.get(200, "/api/v1/{ns}/configmaps/a").await;
}

pub(crate) async fn subresources(talk: &mut Talk) {
    let pod = json!({
        "metadata": {"name": "p"}, "status": {"phase": "Running"},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]},
    });
    talk.post(201, "/api/v1/{ns}/pods", pod.clone()).await;
    // The status is nobody's but the subresource's.
    talk.patch(200, crate::talk::MERGE, "/api/v1/{ns}/pods/p", json!({"status": {"phase": "Running"}})).await;
    let status = json!({"metadata": {"annotations": {"a": "b"}, "labels": {"l": "m"}}, "status": {"phase": "Running"}});
    talk.patch(200, crate::talk::MERGE, "/api/v1/{ns}/pods/p/status", status).await;
    talk.get(200, "/api/v1/{ns}/pods/p/status").await;
    talk.post(422, "/api/v1/{ns}/pods", json!({"metadata": {"name": "q"}})).await;
    talk.post(201, MAPS, json!({"metadata": {"name": "a"}})).await;
    talk.patch(404, crate::talk::MERGE, "/api/v1/{ns}/configmaps/a/status", json!({})).await;
}
