//! Which pod it is: recreated, static, on its node's network, unknown; and what its status looks like.

use serde_json::{Value, json};

use crate::standard::scene::{NETWORKS, Node, STATUS, api, ask, bridge, default_network, macvlan, until};

/// The pod that was meant is gone, and another one has its name: it would get the networks of the other one.
#[test]
fn s13_a_pod_that_was_made_anew_is_another_pod() {
    let node = Node::new("anew");
    node.definition("one", &macvlan("one", 1));
    let old = node.pod("web", "one");
    old.add();
    old.delete();
    until("the old one is gone", || (api("GET", "/api/v1/namespaces/anew/pods/web", &Value::Null).0 == 404).then_some(()));
    let object = json!({"metadata": {"name": "web"}, "spec": {"nodeName": "anew", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}});
    let new = ask("POST", "/api/v1/namespaces/anew/pods", &object);
    let late = old.again("anew-late");
    // The agent hears of the new one in its own time.
    let error = until("the old one is refused", || match late.call("ADD") {
        added if added.code == 0 => {
            late.del();
            None
        }
        refused => Some(refused.error()),
    });
    assert_eq!(late.links(), ["lo"], "{error}");
    let text = error["msg"].as_str().unwrap();
    assert!(error["code"] == 11 && text.contains(&format!("expected pod UID {:?} but got", old.uid)), "{error}");
    assert!(text.contains(new["metadata"]["uid"].as_str().unwrap()), "{error}");
    // The old sandbox goes, whoever has the name now; the new pod's status is not the old one's.
    old.del();
    assert_eq!((old.links(), node.leases("one")), (vec!["lo".to_owned()], vec![]));
    assert_eq!(old.object()["metadata"]["annotations"].get(STATUS), None);
}

/// A static pod's kubelet knows it by another UID than the API server.
#[test]
fn s37_a_static_pod_is_found_under_its_mirrors_uid() {
    let node = Node::new("mirror");
    node.definition("one", &macvlan("one", 1));
    for (name, annotation, value) in
        [("file", "kubernetes.io/config.source", "file"), ("mirror", "kubernetes.io/config.mirror", "0123abcd")]
    {
        let mut pod = node.pod_with(name, &json!({annotation: value, NETWORKS: "one"}));
        pod.uid = "0123abcd".to_owned();
        pod.add();
        assert_eq!(pod.status().as_array().unwrap().len(), 2);
        pod.del();
        assert_eq!(pod.links(), ["lo"]);
    }
}

/// A runtime calls no plugin for a pod on its node's network. If one does, the node's own namespace is not touched.
#[test]
fn s1_a_pod_on_its_nodes_network_is_left_alone() {
    let node = Node::new("hostnetwork");
    node.definition("one", &macvlan("one", 1));
    let pod = node.pod_in("hostnetwork", "web", &json!({NETWORKS: "one"}), &json!({"hostNetwork": true}));
    let before = node.host.links_but_carriers("");
    let cni = node.host.cni(std::path::Path::new("/run/bin")).at(&pod.sandbox, "eth0").set("CNI_NETNS", "/proc/self/ns/net");
    let args = format!("K8S_POD_NAMESPACE=hostnetwork;K8S_POD_NAME=web;K8S_POD_UID={}", pod.uid);
    let error = cni.set("CNI_ARGS", &args).call("ADD", "netloom", pod.config.to_string()).error();
    assert_eq!(error["code"], 8, "{error}");
    assert_eq!((node.host.links_but_carriers(""), node.records()), (before, vec![]));
    assert_eq!(pod.object()["metadata"]["annotations"].get(STATUS), None);
}

/// A kubelet starts a static pod at once, and registers it afterwards.
#[test]
fn s51_a_pod_that_the_api_shows_after_add_began_is_waited_for() {
    let node = Node::new("arrives");
    node.definition("one", &macvlan("one", 1));
    let made = node.pod("first", "one");
    made.add();
    let mut late = node.pod("late", "one");
    late.delete();
    until("it is gone", || (api("GET", "/api/v1/namespaces/arrives/pods/late", &Value::Null).0 == 404).then_some(()));
    late.uid.clear();
    std::thread::scope(|scope| {
        let added = scope.spawn(|| late.call("ADD"));
        node.host.until("ADD has begun", || node.host.path("/run/netns/arrives-late").exists());
        // Sleeps: the agent is to have asked the API server in vain.
        std::thread::sleep(std::time::Duration::from_millis(500));
        node.pod("late", "one");
        let added = added.join().unwrap();
        assert_eq!(added.code, 0, "{added:?}");
    });
    assert_eq!(late.links(), ["eth0", "lo", "net1"]);
}

#[test]
fn s51_a_pod_that_is_not_in_the_api_fails_and_can_be_deleted() {
    let node = Node::new("nowhere");
    let mut pod = node.pod_with("web", &json!({}));
    pod.name = "nowhere/other".to_owned();
    let error = pod.refused();
    assert!(error["code"] == 11 && error["msg"].as_str().unwrap().contains("pod nowhere/other is not in the API"), "{error}");
    pod.del();
    // Who names no pod at all is told what is missing.
    let cni = node.host.cni(std::path::Path::new("/run/bin")).at(&pod.sandbox, "eth0");
    let error = cni.call("ADD", "netloom", pod.config.to_string()).error();
    assert!(error["code"] == 4 && error["msg"].as_str().unwrap().contains("K8S_POD_NAME"), "{error}");
}

/// What consumers of Multus compare with, key by key; and the standard's own form of addresses by a setting.
#[test]
fn s32_s37_s38_s39_s40_s41_s42_the_status_is_written_as_multus_writes_it() {
    let node = Node::new("form");
    let mut own = macvlan("one", 1);
    // With a metric of its own: a second default route that cannot be made is not told.
    own["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0", "gw": "10.1.0.77", "priority": 100}, {"dst": "192.0.2.0/24", "gw": "10.1.0.1"}]);
    own["dns"] = json!({"nameservers": ["10.1.0.53"], "search": ["a.example"]});
    node.definition("one", &own);
    let pod = node.pod("web", "one");
    pod.add();
    let mac = |link: &str| node.host.link(&pod.sandbox, link).unwrap().mac().to_owned();
    let expected = format!(
        r#"[{{
    "name": "cluster",
    "interface": "eth0",
    "ips": [
        "10.0.0.2"
    ],
    "mac": "{}",
    "default": true,
    "dns": {{}},
    "gateway": [
        "10.0.0.1"
    ]
}},{{
    "name": "form/one",
    "interface": "net1",
    "ips": [
        "10.1.0.2"
    ],
    "mac": "{}",
    "default": false,
    "dns": {{
        "nameservers": [
            "10.1.0.53"
        ],
        "search": [
            "a.example"
        ]
    }},
    "gateway": [
        "10.1.0.77"
    ]
}}]"#,
        mac("eth0"),
        mac("net1")
    );
    let without_mtu = |text: String| text.lines().filter(|line| !line.contains("\"mtu\"")).collect::<Vec<_>>().join("\n");
    assert_eq!(without_mtu(pod.status_text()), expected);
    let standard = Node::with("form-cidr", json!({"delegates": [default_network()], "statusIPs": "cidr"}));
    let pod = standard.pod_with("web", &json!({}));
    pod.add();
    assert_eq!(pod.entry("eth0")["ips"], json!(["10.0.0.2/16"]));
}

/// The runtime makes another sandbox for a pod whose first one died, before or after the first one's DEL: the status is the
/// living one's.
#[test]
fn s33_the_status_is_the_last_sandboxs() {
    let node = Node::new("second");
    node.definition("one", &macvlan("one", 1));
    let first = node.pod("web", "one");
    first.add();
    let before = first.status_text();
    let second = first.again("second-b");
    second.add();
    let after = until("the status of the second sandbox", || Some(second.status_text()).filter(|text| *text != before));
    assert!(after.contains(&second.addresses("net1")[0].replace("/16", "")), "{after}");
    assert_ne!(first.addresses("net1"), second.addresses("net1"));
    first.del();
    assert_eq!((first.links(), second.links()), (vec!["lo".to_owned()], ["eth0", "lo", "net1"].map(str::to_owned).to_vec()));
    assert_eq!(second.status_text(), after);
    assert_eq!(second.call("CHECK").code, 0);
    second.del();
    assert_eq!((node.leases("one"), node.leases("cluster"), node.records()), (vec![], vec![], vec![]));
}

/// The same container is attached twice without a DEL between: as CNI has it, that is an error, and what is there stays.
#[test]
fn s31_an_attachment_is_made_once() {
    let node = Node::with("once", json!({"delegates": [bridge("main", 1)]}));
    let pod = node.pod_with("web", &json!({}));
    pod.add();
    let addresses = pod.addresses("eth0");
    let error = pod.call("ADD").error();
    assert_eq!((pod.addresses("eth0"), node.leases("main").len()), (addresses, 1), "{error}");
    pod.del();
}
