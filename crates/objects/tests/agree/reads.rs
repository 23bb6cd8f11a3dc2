//! Get and list.

use serde_json::{Value, json};

use crate::talk::Talk;

const MAPS: &str = "/api/v1/{ns}/configmaps";

async fn some(talk: &mut Talk) {
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "z")] {
        let labels = json!({"l": label, "case": "some"});
        talk.post(201, MAPS, json!({"metadata": {"name": name, "labels": labels}})).await;
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

pub(crate) async fn lists(talk: &mut Talk) {
    talk.get(200, MAPS).await;
    some(talk).await;
    let list = talk.get(200, MAPS).await;
    assert_eq!(names(&list), ["a", "b", "c", "d"]);
    // A list's objects are of the list's kind, and do not say it again.
    assert!(list["items"][0].get("kind").is_none(), "{list}");
    let cached = talk.get(200, &format!("{MAPS}?resourceVersion=0")).await;
    assert!(cached["metadata"]["resourceVersion"].is_string());
}

pub(crate) async fn pages(talk: &mut Talk) {
    some(talk).await;
    let first = talk.get(200, &format!("{MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["a", "b"]);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    // The second page is of the time of the first.
    talk.delete(200, "/api/v1/{ns}/configmaps/c", json!({})).await;
    talk.post(201, MAPS, json!({"metadata": {"name": "e"}})).await;
    let token = token.replace('=', "%3D");
    let (code, second) = talk.send("GET", &talk.path(&format!("{MAPS}?limit=2&continue={token}")), "application/json", None).await;
    assert_eq!((code, names(&second)), (200, vec!["c", "d"]), "{second}");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(second["metadata"].get("continue").is_none(), "{second}");
    let (code, answer) = talk.send("GET", &talk.path(&format!("{MAPS}?limit=2&continue=nonsense")), "application/json", None).await;
    assert_eq!((code, answer["reason"].as_str()), (400, Some("BadRequest")), "{answer}");
    talk.get(200, &format!("{MAPS}?limit=1&labelSelector=l%3Dx")).await;
    talk.get(400, &format!("{MAPS}?limit=x")).await;
}

pub(crate) async fn selectors(talk: &mut Talk) {
    some(talk).await;
    let cases: [(&str, &[&str]); 10] = [
        ("labelSelector=l%3Dx", &["a", "c"]),
        ("labelSelector=l%3D%3Dx,case%3Dsome", &["a", "c"]),
        ("labelSelector=l!%3Dx,case", &["b", "d"]),
        ("labelSelector=l+in+(x,y)", &["a", "b", "c"]),
        ("labelSelector=l+notin+(x,y),case", &["d"]),
        ("labelSelector=!l,case", &[]),
        ("fieldSelector=metadata.name%3Db", &["b"]),
        ("fieldSelector=metadata.name!%3Db", &["a", "c", "d"]),
        ("fieldSelector=metadata.namespace%3Delsewhere", &[]),
        ("fieldSelector=metadata.name%3Db&labelSelector=l%3Dx", &[]),
    ];
    for (selector, expected) in cases {
        let list = talk.get(200, &format!("{MAPS}?{selector}")).await;
        assert_eq!(names(&list), expected, "{selector}");
    }
    talk.get(400, &format!("{MAPS}?fieldSelector=data.k%3Dv")).await;
    talk.get(400, &format!("{MAPS}?fieldSelector=bogus")).await;
    talk.get(400, &format!("{MAPS}?labelSelector=a+b")).await;
    for (name, node) in [("p", "n1"), ("q", "n2"), ("r", "")] {
        let spec = json!({"nodeName": node, "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
        talk.post(201, "/api/v1/{ns}/pods", json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    for (selector, expected) in
        [("spec.nodeName%3Dn1", vec!["p"]), ("spec.nodeName!%3Dn1,status.phase%3DPending", vec!["q", "r"]), ("spec.nodeName%3D", vec!["r"])]
    {
        let list = talk.get(200, &format!("/api/v1/{{ns}}/pods?fieldSelector={selector}")).await;
        assert_eq!(names(&list), expected, "{selector}");
    }
}

pub(crate) async fn versions_of_lists(talk: &mut Talk) {
    some(talk).await;
    let list = talk.get(200, MAPS).await;
    let version = list["items"][3]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    talk.delete(200, "/api/v1/{ns}/configmaps/a", json!({})).await;
    talk.patch(200, crate::talk::MERGE, "/api/v1/{ns}/configmaps/b", json!({"metadata": {"labels": {"l": "new"}}})).await;
    let exact = format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    let (code, then) = talk.send("GET", &talk.path(&exact), "application/json", None).await;
    assert_eq!((code, names(&then)), (200, vec!["a", "b", "c", "d"]));
    assert_eq!(then["items"][1]["metadata"]["labels"]["l"], "y");
    let at_least = format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    let (code, now) = talk.send("GET", &talk.path(&at_least), "application/json", None).await;
    assert_eq!((code, names(&now)), (200, vec!["b", "c", "d"]));
    talk.get(422, &format!("{MAPS}?resourceVersionMatch=Exact")).await;
    talk.get(400, &format!("{MAPS}?resourceVersion=nonsense")).await;
}

pub(crate) async fn metadata_only(talk: &mut Talk) {
    some(talk).await;
    use kube::{Api, api::ListParams};
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(talk.client.clone(), &talk.namespace);
    let one = maps.get_metadata("a").await.unwrap();
    assert_eq!(one.metadata.labels.unwrap()["l"], "x");
    let all = maps.list_metadata(&ListParams::default().labels("l=x")).await.unwrap();
    assert_eq!(all.items.len(), 2);
    assert_eq!(all.types.kind, "PartialObjectMetadataList");
}
