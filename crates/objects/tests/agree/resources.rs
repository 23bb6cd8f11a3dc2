//! Resources with habits of their own.

use serde_json::{Value, json};

use crate::talk::{APPLY, MERGE, STRATEGIC, Talk};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of something in `test.example/v1`.
pub(crate) fn definition(plural: &str, status: bool) -> Value {
    let subresources = if status { json!({"status": {}}) } else { json!({}) };
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let kind = plural[..1].to_uppercase() + &plural[1..plural.len() - 1];
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.test.example")},
        "spec": {
            "group": "test.example", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": subresources, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

pub(crate) async fn definitions(talk: &mut Talk) {
    let networks = "/apis/k8s.cni.cncf.io/v1/{ns}/network-attachment-definitions";
    talk.get(404, networks).await;
    let mut defined = definition("network-attachment-definitions", false);
    defined["metadata"]["name"] = json!("network-attachment-definitions.k8s.cni.cncf.io");
    defined["spec"]["group"] = json!("k8s.cni.cncf.io");
    defined["spec"]["names"]["kind"] = json!("NetworkAttachmentDefinition");
    talk.post(201, DEFINITIONS, defined).await;
    talk.until(200, networks).await;
    let network = |name: &str, config: &str| json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": name}, "spec": {"config": config}});
    let made = talk.post(201, networks, network("d", "{}")).await;
    assert_eq!(made["metadata"]["generation"], 1);
    talk.post(409, networks, network("d", "{}")).await;
    talk.get(200, networks).await;
    let one = format!("{networks}/d");
    talk.put(422, &one, network("d", "{2}")).await;
    talk.put(404, &format!("{networks}/e"), network("e", "{2}")).await;
    let changed = talk.patch(200, MERGE, &one, json!({"spec": {"config": "{2}"}})).await;
    assert_eq!(changed["metadata"]["generation"], 2);
    talk.patch(200, MERGE, &one, json!({"metadata": {"annotations": {"a": "b"}}})).await;
    talk.patch(415, STRATEGIC, &one, json!({"spec": {"config": "{3}"}})).await;
    talk.patch(404, MERGE, &format!("{one}/status"), json!({"status": {}})).await;
    talk.patch(201, APPLY, &format!("{networks}/f?fieldManager=me"), network("f", "{}")).await;
    talk.get(400, &format!("{networks}?fieldSelector=spec.config%3Dx")).await;
    talk.get(200, &format!("{networks}?fieldSelector=metadata.name%3Dd")).await;
    talk.delete(409, &one, json!({"preconditions": {"uid": "other"}})).await;
    talk.delete(200, &one, json!({})).await;
    talk.delete(200, &format!("{DEFINITIONS}/network-attachment-definitions.k8s.cni.cncf.io"), json!({})).await;
    talk.said.pop();
    talk.until(404, networks).await;
}

pub(crate) async fn status_of_custom_resources(talk: &mut Talk) {
    talk.post(201, DEFINITIONS, definition("gadgets", true)).await;
    let path = "/apis/test.example/v1/{ns}/gadgets";
    talk.until(200, path).await;
    let made = json!({
        "apiVersion": "test.example/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": 1}, "status": {"seen": 1},
    });
    talk.post(201, path, made).await;
    talk.patch(200, MERGE, &format!("{path}/g"), json!({"status": {"seen": 2}})).await;
    let status = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"size": 9}, "status": {"seen": 2}});
    let written = talk.patch(200, MERGE, &format!("{path}/g/status"), status).await;
    assert_eq!(
        (&written["spec"]["size"], &written["status"]["seen"], &written["metadata"]["generation"]),
        (&json!(1), &json!(2), &json!(1))
    );
    talk.patch(200, MERGE, &format!("{path}/g"), json!({"spec": {"size": 2}})).await;
    talk.get(200, &format!("{path}/g/status")).await;
    talk.delete(200, &format!("{DEFINITIONS}/gadgets.test.example"), json!({})).await;
    talk.said.pop();
    talk.until(404, path).await;
}

pub(crate) async fn events_in_two_groups(talk: &mut Talk) {
    let (older, newer) = ("/api/v1/{ns}/events", "/apis/events.k8s.io/v1/{ns}/events");
    let about = json!({"kind": "Pod", "namespace": talk.namespace, "name": "p", "uid": "u1-u1-u1-u1"});
    let event = json!({
        "metadata": {"name": "e"}, "regarding": about, "reason": "R", "note": "m", "type": "Warning", "action": "A",
        "reportingController": "x.example/c", "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    talk.post(201, newer, event).await;
    let (_, seen) = talk.send("GET", &talk.path(&format!("{older}/e")), "application/json", None).await;
    assert_eq!((&seen["message"], &seen["involvedObject"]["name"]), (&json!("m"), &json!("p")), "{seen}");
    for (path, selector, found) in [
        (older, "involvedObject.name%3Dp,type%3DWarning", 1),
        (older, "involvedObject.name%3Dq", 0),
        (older, "involvedObject.uid%3Du1-u1-u1-u1,reason%3DR", 1),
        (newer, "regarding.name%3Dp", 1),
        (newer, "regarding.name%3Dq", 0),
    ] {
        let (code, list) = talk.send("GET", &talk.path(&format!("{path}?fieldSelector={selector}")), "application/json", None).await;
        assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(found)), "{path} {selector} {list}");
    }
    let patched = talk
        .patch(200, MERGE, &format!("{newer}/e"), json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}))
        .await;
    assert_eq!(patched["series"]["count"], 2);
    talk.delete(200, &format!("{newer}/e"), json!({})).await;
    talk.get(404, &format!("{older}/e")).await;
}

pub(crate) async fn leases(talk: &mut Talk) {
    let path = "/apis/coordination.k8s.io/v1/{ns}/leases/l";
    let lease =
        |version: &Value, holder: &str| json!({"metadata": {"name": "l", "resourceVersion": version}, "spec": {"holderIdentity": holder}});
    let made = talk.put(201, path, lease(&Value::Null, "a")).await;
    let version = &made["metadata"]["resourceVersion"];
    talk.put(200, path, lease(version, "b")).await;
    talk.put(409, path, lease(version, "c")).await;
    talk.delete(200, path, json!({})).await;
}

pub(crate) async fn claims_and_slices(talk: &mut Talk) {
    let claims = "/apis/resource.k8s.io/v1/{ns}/resourceclaims";
    let spec = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}});
    talk.post(201, claims, json!({"metadata": {"name": "rc"}, "spec": spec})).await;
    talk.said.pop();
    talk.get(404, &format!("{claims}/none")).await;
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let pool = json!({"name": "p", "resourceSliceCount": 1, "generation": 1});
    talk.post(201, slices, json!({"metadata": {"name": "rs"}, "spec": {"driver": "d.example", "nodeName": "n1", "pool": pool}})).await;
    let (_, found) =
        talk.send("GET", &format!("{slices}?fieldSelector=spec.nodeName%3Dn1,spec.driver%3Dd.example"), "application/json", None).await;
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{found}");
    talk.delete(200, &format!("{slices}/rs"), json!({})).await;
}

pub(crate) async fn binding(talk: &mut Talk) {
    let spec = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    talk.post(201, "/api/v1/{ns}/pods", json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let binding =
        |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    talk.post(201, "/api/v1/{ns}/pods/p/binding", binding("n1")).await;
    talk.post(409, "/api/v1/{ns}/pods/p/binding", binding("n2")).await;
    let (_, pod) = talk.send("GET", &talk.path("/api/v1/{ns}/pods/p"), "application/json", None).await;
    assert_eq!(pod["spec"]["nodeName"], "n1");
}
