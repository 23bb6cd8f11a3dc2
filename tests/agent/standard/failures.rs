//! What is wrong with a pod's networks fails it, undoes what was made, and is told where its owner looks.

use serde_json::{Value, json};

use crate::standard::scene::{DEFAULT_NETWORK, Node, bridge, default_network, definition, ensure_namespace, macvlan};

fn text(error: &Value) -> String {
    format!("{} {}", error["msg"].as_str().unwrap_or_default(), error["details"].as_str().unwrap_or_default())
}

/// Every rule that is broken is told with element and key, in the runtime's error and in an Event.
#[test]
fn s16_s22_an_invalid_annotation_fails_the_pod_and_is_told() {
    let node = Node::new("invalid");
    node.definition("one", &macvlan("one", 1));
    for (name, annotation, words) in [
        ("mac", r#"[{"name": "one"}, {"name": "one", "mac": "12:34"}]"#, vec!["element 2 (one), mac", "12:34"]),
        ("ips", r#"[{"name": "one", "ips": ["10.0.0.500"]}]"#, vec!["element 1 (one), ips[0]", "is not an IP address"]),
        ("key", r#"[{"name": "one", "intreface": "x"}]"#, vec!["element 1 (one), intreface", "did you mean \"interface\"?"]),
        ("broken", r#"[{"name": "one"]"#, vec!["it is read as JSON"]),
        ("twice", "one@x,one@x", vec!["element 2 (one), interface", "already requested by element 1"]),
        (
            "routes",
            r#"[{"name": "one", "default-route": []}, {"name": "one", "default-route": ["10.1.0.1"]}]"#,
            vec!["element 2", "default-route"],
        ),
        (
            "claim",
            r#"[{"name": "one", "ips": ["10.1.0.9/16"], "ipam-claim-reference": "c"}]"#,
            vec!["element 1 (one), ipam-claim-reference", "cannot be combined with \"ips\""],
        ),
    ] {
        let pod = node.pod(name, annotation);
        let error = pod.refused();
        let event = pod.event("InvalidNetworks");
        assert!(event.starts_with("Warning: ") && error["code"] == 7, "{event} {error}");
        for word in words.into_iter().chain(["annotation k8s.v1.cni.cncf.io/networks"]) {
            assert!(event.contains(word) && text(&error).contains(word), "{name}: {word:?} is not in {event:?} and {error}");
        }
    }
    // Nothing was begun.
    assert_eq!((node.leases("cluster"), node.leases("one"), node.records()), (vec![], vec![], vec![]));
}

/// The standard's own behaviour, by a setting: the annotation counts as not given, and a Warning says so.
#[test]
fn s20_an_invalid_annotation_may_be_ignored() {
    let node = Node::with("ignored", json!({"delegates": [default_network()], "invalidAnnotation": "ignore"}));
    node.definition("one", &macvlan("one", 1));
    let pod = node.pod("web", r#"[{"name": "one"}, {"name": "one", "mac": "12:34"}]"#);
    pod.add();
    assert_eq!(pod.links(), ["eth0", "lo"]);
    assert_eq!(pod.status().as_array().unwrap().len(), 1);
    let event = pod.event("InvalidAnnotation");
    assert!(event.starts_with("Warning: ") && event.contains("element 2 (one), mac") && event.contains("ignored"), "{event}");
    // A definition that is missing is no invalid annotation.
    assert_eq!(node.pod("lost", "nothing").refused()["code"], 7);
    let chosen = node.pod_with("chosen", &json!({DEFAULT_NETWORK: "a/b/c"}));
    chosen.add();
    assert!(chosen.event("InvalidAnnotation").contains(DEFAULT_NETWORK));
}

#[test]
fn s10_s20_what_is_missing_is_told_with_words_to_search_for() {
    let node = Node::new("missing");
    node.definition("one", &macvlan("one", 1));
    node.definition("typo", &json!({"cniVersion": "1.0.0", "type": "macvlna"}));
    node.definition("broken", &json!("{"));
    for (name, annotation, words) in [
        ("definition", "one,gone", vec!["cannot find a network-attachment-definition (gone) in namespace (missing)"]),
        ("other", "elsewhere/gone", vec!["cannot find a network-attachment-definition (gone) in namespace (elsewhere)"]),
        (
            "bandwidth",
            r#"[{"name": "one", "bandwidth": {"ingressRate": 1000}}]"#,
            vec!["missing/one", "no plugin of network \"one\" has the capability \"bandwidth\""],
        ),
        ("ports", r#"[{"name": "one", "portMappings": [{"hostPort": 1, "containerPort": 1}]}]"#, vec!["missing/one", "portMappings"]),
        ("plugin", "typo", vec!["failed to find plugin \"macvlna\" in path [/run/bin"]),
        ("broken", "broken", vec!["missing/broken"]),
        ("both", "gone,alsogone", vec!["(gone)", "(alsogone)"]),
    ] {
        let pod = node.pod(name, annotation);
        let error = pod.refused();
        let event = pod.event("InvalidNetworks");
        for word in words {
            assert!(text(&error).contains(word) && event.contains(word), "{name}: {word:?} is not in {error} and {event:?}");
        }
    }
    assert_eq!((node.leases("cluster"), node.records()), (vec![], vec![]));
}

/// As with Multus: own and global namespaces, and its words.
#[test]
fn s54_namespaces_are_isolated() {
    let node = Node::with(
        "isolated",
        json!({"delegates": [default_network()], "namespaceIsolation": true, "globalNamespaces": "isolated-global"}),
    );
    for namespace in ["isolated-global", "isolated-other"] {
        ensure_namespace(namespace);
        definition(namespace, "net", &macvlan(namespace, 2), &json!({}));
    }
    node.definition("own", &macvlan("own", 1));
    let pod = node.pod("web", "own,isolated-global/net");
    pod.add();
    assert_eq!(pod.links(), ["eth0", "lo", "net1", "net2"]);
    let other = node.pod("other", "own,isolated-other/net");
    let error = other.refused();
    let words = "namespace isolation enabled, annotation violates permission, pod is in namespace isolated but refers to target namespace isolated-other";
    assert!(text(&error).contains(words) && other.event("InvalidNetworks").contains(words), "{error}");
    // The pod's default network is not meant, as with Multus.
    let chosen = node.pod_with("chosen", &json!({DEFAULT_NETWORK: "isolated-other/net"}));
    chosen.add();
}

/// A refusal names the rule, and what would be allowed.
#[test]
fn s54_the_owners_policy_refuses_and_names_the_rule() {
    let policy = json!([{"name": "plain-links", "allow": {"plugins": ["macvlan", "host-local", "tuning"], "devices": ["up*"], "sysctls": ["net.ipv4.conf.IFNAME.*"]}},
        {"name": "own-only", "podNamespaces": ["policy"], "allow": {"namespaces": ["$pod"]}}]);
    let node = Node::with("policy", json!({"delegates": [default_network()], "policy": policy}));
    ensure_namespace("policy-other");
    definition("policy-other", "net", &macvlan("x", 9), &json!({}));
    node.definition("good", &macvlan("good", 1));
    node.definition("plugin", &bridge("plugin", 2));
    let mut device = macvlan("device", 3);
    device["master"] = json!("eth0");
    node.definition("device", &device);
    node.definition(
        "sysctl",
        &json!({"cniVersion": "1.0.0", "plugins": [macvlan("x", 4), {"type": "tuning", "sysctl": {"net.core.somaxconn": "1"}}]}),
    );
    for (name, annotation, rule, words) in [
        ("p", "plugin", "plain-links", "plugin \"bridge\""),
        ("d", "device", "plain-links", "host device \"eth0\""),
        ("s", "sysctl", "plain-links", "net.core.somaxconn"),
        ("n", "policy-other/net", "own-only", "policy-other"),
    ] {
        let pod = node.pod(name, format!("good,{annotation}"));
        let (error, event) = (pod.refused(), pod.event("InvalidNetworks"));
        let rule = format!("policy rule {rule:?}");
        for word in [rule.as_str(), words] {
            assert!(text(&error).contains(word) && event.contains(word), "{name}: {word:?} is not in {error} and {event:?}");
        }
    }
    // What stands in the node's own configuration is the owner's.
    let pod = node.pod("good", "good");
    pod.add();
    assert_eq!(pod.links(), ["eth0", "lo", "net1"]);
}

/// What a plugin answers is what the runtime gets, with code and details. It is executed by the runtime's own process, in
/// its mount namespace: for the agent there is nothing behind that path.
#[test]
fn s4_s51_a_plugins_error_arrives_unchanged_and_it_runs_where_the_runtime_is() {
    let mut node = Node::asleep("foreign", json!({"delegates": [default_network()]}));
    node.plugin("foreign", "cat >/dev/null\nexec /run/outside/real\n");
    node.host.write(
        "/run/outside/real",
        "#!/bin/sh\necho $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS >>/run/outside/calls
[ $CNI_COMMAND = ADD ] || exit 0
echo '{\"cniVersion\":\"1.0.0\",\"code\":117,\"msg\":\"no port left\",\"details\":\"switch 7, rack \\\"b\\\"\"}'; exit 1\n",
    );
    node.host.sh("", "chmod 755 /run/outside/real");
    // Before the agent has mounts of its own.
    node.host.container("foreign-web");
    node.start_as(&[
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        "mount -t tmpfs none /run/outside && exec \"$0\" \"$@\"",
    ]);
    node.definition("foreign", &json!({"cniVersion": "1.0.0", "type": "foreign"}));
    let pod = node.pod("web", "foreign");
    let error = pod.refused();
    assert_eq!((&error["code"], &error["cniVersion"]), (&json!(117), &json!("1.1.0")), "{error}");
    assert!(error["msg"].as_str().unwrap().contains("no port left"), "{error}");
    assert!(error["details"].as_str().unwrap().contains("switch 7, rack \"b\""), "{error}");
    let calls = std::fs::read_to_string(node.host.path("/run/outside/calls")).unwrap();
    let lines: Vec<&str> = calls.lines().collect();
    let by_pod = format!("{} net1 IgnoreUnknown=1;K8S_POD_NAMESPACE=foreign;K8S_POD_NAME=web;", pod.sandbox);
    // A plugin whose ADD has failed gets its DEL.
    assert_eq!(lines.len(), 2, "{calls}");
    assert!(lines[0].starts_with(&format!("ADD {by_pod}")) && lines[1].starts_with(&format!("DEL {by_pod}")), "{calls}");
    assert_eq!((node.leases("cluster"), node.records()), (vec![], vec![]));
}

/// Fails on ADD, and on DEL as long as `/run/stuck` is there.
const FAILING: &str = "cat >/dev/null
echo $CNI_COMMAND $CNI_IFNAME >>/run/calls
[ $CNI_COMMAND = ADD ] && { [ -e /run/good ] || { echo '{\"code\":200,\"msg\":\"not today\"}'; exit 1; }; }
[ $CNI_COMMAND = DEL ] && [ -e /run/stuck ] && { echo '{\"code\":201,\"msg\":\"stuck\"}'; exit 1; }
[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.0.0\"}'
";

#[test]
fn s51_s53_a_failure_of_the_third_undoes_the_first_two_and_tries_no_fourth() {
    let node = Node::new("third");
    node.plugin("failing", FAILING);
    for (name, n) in [("one", 1), ("two", 2), ("four", 4)] {
        node.definition(name, &macvlan(name, n));
    }
    node.definition("three", &json!({"cniVersion": "1.0.0", "type": "failing"}));
    let pod = node.pod("web", "one,two,three,four");
    let error = pod.refused();
    assert!(error["code"] == 200 && text(&error).contains("not today") && text(&error).contains("third/three"), "{error}");
    for network in ["cluster", "one", "two", "four"] {
        assert_eq!(node.leases(network), [""; 0], "{network}");
    }
    assert_eq!(node.records(), [""; 0]);
    assert!(!node.host.path("/var/lib/cni/networks/four").exists(), "the fourth was tried");
    // The runtime's own DEL of it finds nothing.
    pod.del();
}

#[test]
fn s52_del_tries_all_and_tells_the_first_error() {
    let node = Node::new("delall");
    node.plugin("failing", FAILING);
    node.host.write("/run/good", "");
    for (name, n) in [("one", 1), ("three", 3)] {
        node.definition(name, &macvlan(name, n));
    }
    node.definition("two", &json!({"cniVersion": "1.0.0", "type": "failing"}));
    let pod = node.pod("web", "one,two,three");
    pod.add();
    node.host.write("/run/stuck", "");
    let error = pod.call("DEL").error();
    assert!(error["code"] == 201 && text(&error).contains("stuck"), "{error}");
    assert_eq!(pod.links(), ["lo"], "one failure held the others up");
    // It is repeated until it succeeds, and then it is forgotten.
    assert_eq!(pod.call("DEL").error()["code"], 201);
    std::fs::remove_file(node.host.path("/run/stuck")).unwrap();
    pod.del();
    assert_eq!((node.leases("cluster"), node.leases("one"), node.leases("three"), node.records()), (vec![], vec![], vec![], vec![]));
    pod.del();
}
