//! Events on pods: what was attached, as Multus says it, and what was refused, however often.

use serde_json::{Value, json};

use crate::standard::scene::{NETWORKS, Node, Pod, ask, bridge, default_network, macvlan, until};

/// The Events of a pod with this reason.
fn events(pod: &Pod<'_>, reason: &str) -> Vec<Value> {
    let (namespace, name) = pod.name.split_once('/').unwrap();
    let all = ask("GET", &format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), &Value::Null);
    let is = |event: &&Value| event["regarding"]["name"] == name && event["reason"] == reason;
    all["items"].as_array().unwrap().iter().filter(is).cloned().collect()
}

fn added(pod: &Pod<'_>) -> Vec<(String, String)> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    let mut said: Vec<_> = events(pod, "AddedInterface").iter().map(|event| (text(event, "type"), text(event, "note"))).collect();
    said.sort();
    said
}

#[test]
fn each_attachment_is_an_event_as_multus_writes_it() {
    let node = Node::new("events-added");
    node.definition("one", &macvlan("one", 1));
    node.definition("layer2", &json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "br2"}));
    let pod = node.pod("web", "one,layer2@data");
    pod.add();
    let (eth0, net1) = (&pod.addresses("eth0")[0], &pod.addresses("net1")[0]);
    let said = until("three Events", || Some(added(&pod)).filter(|said| said.len() == 3));
    let expected = [
        "Add data [] from events-added/layer2".to_owned(),
        format!("Add eth0 [{eth0}] from cluster"),
        format!("Add net1 [{net1}] from events-added/one"),
    ];
    assert_eq!(said, expected.map(|note| ("Normal".to_owned(), note)));
}

#[test]
fn the_setting_leaves_warnings_only() {
    let node = Node::with("events-warnings", json!({"delegates": [default_network()], "events": "warnings"}));
    node.definition("one", &macvlan("one", 1));
    let pod = node.pod("web", "one");
    pod.add();
    // Told after it, by the same queue.
    let wrong = node.pod("wrong", "missing/");
    wrong.refused();
    wrong.event("InvalidNetworks");
    assert_eq!(added(&pod), []);
}

/// What a kubelet repeats is one Event, and what other pods of the node have come to have meanwhile does not make it another.
#[test]
fn a_pod_that_is_refused_again_and_again_has_one_event() {
    let node = Node::new("events-again");
    let mut network = macvlan("nowhere", 1);
    network["master"] = json!("eth9");
    node.definition("nowhere", &network);
    node.definition("veth", &bridge("veth", 2));
    node.pod("first", "veth").add();
    let pod = node.pod("web", "nowhere");
    for n in 0..16 {
        pod.refused();
        node.pod_with(&format!("other{n}"), &json!({NETWORKS: "veth"})).add();
    }
    let counted = || events(&pod, "InvalidNetworks").iter().map(|event| event["series"]["count"].as_u64()).max().flatten();
    until("its count", || counted().filter(|count| *count >= 8));
    let events = events(&pod, "InvalidNetworks");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0]["note"].as_str().unwrap().contains("there is no interface \"eth9\" here; there are br0, br2"), "{events:?}");
}
