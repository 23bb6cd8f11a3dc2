//! Pools that select pods: by the labels of pods, and of their namespaces, where a network's configuration names no pool.

use netloom_tests::{Node, Outcome, Pod};
use serde_json::{Value, json};

use crate::granted::{Cluster, KINDS, ips, net1};

/// A pool of a network, in 10.N.0.0/24.
fn pool(network: &str, n: u8, selectors: &Value) -> Value {
    let mut spec = json!({
        "network": network,
        "ipv4": {"entries": [{"cidr": format!("10.{n}.0.0/24")}], "blockPrefix": 29},
        "scaling": {"preAllocate": 0, "releaseDelaySeconds": 1}, "reuse": {"cooldownSeconds": 0},
    });
    spec.as_object_mut().unwrap().extend(selectors.as_object().unwrap().clone());
    spec
}

fn bridge(name: &str, network: &str) -> String {
    json!({"cniVersion": "1.1.0", "name": name, "type": "bridge", "bridge": format!("br-{name}"),
        "ipam": {"type": "pool", "network": network, "addWait": 20}})
    .to_string()
}

fn node(cluster: &Cluster, name: &str) -> Node {
    cluster.join(name);
    let node = Node::new(&cluster.api, name, "");
    let bin = node.bin.display();
    node.host.write(
        netloom_tests::SETTINGS,
        &format!(
            "nodeName: {name}\nkubeconfig: /run/kubeconfig\nbinDir: {bin}\ninstall: never\nhealthAddress: 127.0.0.1:9180\ndelegates:\n- {}\n",
            bridge("pods", "pods")
        ),
    );
    node.restart();
    node
}

fn namespace(cluster: &Cluster, name: &str, labels: &Value) {
    cluster.api.namespace(name);
    cluster.api.must("PATCH", &format!("/api/v1/namespaces/{name}"), &json!({"metadata": {"labels": labels}}));
}

fn pod<'n>(node: &'n Node, namespace: &str, name: &str, labels: &Value, networks: &str) -> Pod<'n> {
    node.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels,
        "annotations": {"k8s.v1.cni.cncf.io/networks": networks}}}))
}

/// The second number of the address that a pod gets, which is that of the pool.
fn attach(node: &Node, pod: &Pod<'_>) -> u8 {
    let mut outcome = pod.call("ADD");
    // A block comes for who waits; a kubelet tries again.
    node.until("it is attached", || {
        if outcome.code != 0 {
            assert_eq!(outcome.error()["code"], 11, "{outcome:?}");
            outcome = pod.call("ADD");
        }
        outcome.code == 0
    });
    second(&ips(&outcome)[0])
}

fn second(address: &str) -> u8 {
    address.split('.').nth(1).unwrap().parse().unwrap()
}

/// How often the agent asked for single namespaces.
fn asked(node: &Node) -> u64 {
    let metrics = node.host.sh("", "curl -s http://127.0.0.1:9180/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(r#"netloom_agent_api_requests_total{verb="get",resource="namespaces"}"#));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

/// A plugin in a process of its own, which asks the agent: its call, for a container of that pod.
fn beside(node: &Node, pod: &str, container: &str, verb: &str, config: &Value) -> Outcome {
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}");
    let cni = netloom_tests::at(&node.host, container).set("CNI_CONTAINERID", container).set("CNI_ARGS", &args);
    let outcome = cni.call(verb, "bridge", config.to_string());
    assert_eq!(outcome.code, 0, "{verb}: {outcome:?}");
    outcome
}

#[test]
fn a_pod_gets_addresses_of_the_pool_that_selects_it() {
    let mut cluster = Cluster::new("selects");
    let red = json!({"podSelector": {"matchLabels": {"team": "red"}}});
    let shop = json!({"namespaceSelector": {"matchExpressions": [{"key": "shop", "operator": "Exists"}]}});
    // Of a shop, and of nobody's team.
    let both = json!({"namespaceSelector": {"matchLabels": {"shop": "book"}},
        "podSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}});
    for (name, network, n, selectors) in [
        ("pods", "pods", 20, &json!({})),
        ("red", "pods", 21, &red),
        ("shop", "pods", 22, &shop),
        ("storage", "storage", 30, &json!({})),
        ("books", "storage", 31, &both),
        ("plain", "plain", 40, &json!({"scaling": {"preAllocate": 1}})),
    ] {
        cluster.pool(name, &pool(network, n, selectors));
    }
    namespace(&cluster, "books", &json!({"shop": "book"}));
    namespace(&cluster, "later", &json!({}));
    let node = node(&cluster, "selects-a");
    node.define("storage", &bridge("storage", "storage"));
    let storage = format!("{}/storage", node.namespace);

    let plain = pod(&node, "default", "plain", &json!({}), &storage);
    assert_eq!((attach(&node, &plain), second(&net1(&node, &plain)[0])), (20, 30));
    let team = pod(&node, "default", "team", &json!({"team": "red"}), &storage);
    assert_eq!((attach(&node, &team), second(&net1(&node, &team)[0])), (21, 30), "of the storage there is none of the team's");
    let book = pod(&node, "books", "book", &json!({}), &storage);
    assert_eq!((attach(&node, &book), second(&net1(&node, &book)[0])), (22, 31));

    // Several: nobody knows which one is meant, nothing is attached, and the pod's owner is told.
    let many = pod(&node, "books", "many", &json!({"team": "red"}), "");
    let refused = many.call("ADD");
    let msg = refused.error()["msg"].as_str().unwrap().to_owned();
    assert_eq!(refused.error()["code"], 7, "{msg}");
    assert!(["network pods", "2 IPPools", "red, shop", "books/many", "podSelector"].iter().all(|word| msg.contains(word)), "{msg}");
    let told = || {
        let events = cluster.api.must("GET", "/apis/events.k8s.io/v1/namespaces/books/events", &Value::Null);
        let all = events["items"].as_array().unwrap().clone();
        all.iter().any(|e| {
            e["regarding"]["name"] == "many" && e["reason"] == "InvalidNetworks" && e["note"].as_str().unwrap().contains("red, shop")
        })
    };
    node.until("an Event says it", told);

    // Labels of a namespace count as they are when the pod comes.
    let late = |name: &str| pod(&node, "later", name, &json!({}), "");
    assert_eq!(attach(&node, &late("before")), 20);
    namespace(&cluster, "later", &json!({"shop": "cake"}));
    let changed = std::cell::Cell::new(0);
    node.until("the namespace is a shop's", || {
        changed.set(changed.get() + 1);
        attach(&node, &late(&format!("after{}", changed.get()))) == 22
    });
    // Nobody was asked for a namespace while a pod waited, but for what came before the first list.
    assert!(asked(&node) <= 1, "{}", node.host.sh("", "curl -s http://127.0.0.1:9180/metrics"));

    // A claim's addresses are of what the configuration means: where a pool selects its pod as well, somebody has to say which one.
    let claimed = pod(&node, "default", "claimed", &json!({"team": "red"}), "");
    let own = json!({"metadata": {"annotations": {"v1.multus-cni.io/default-network":
        format!(r#"[{{"name": "own", "namespace": "{}", "ipam-claim-reference": "c"}}]"#, node.namespace)}}});
    node.define("own", &bridge("own", "pods"));
    cluster.api.must("PATCH", &claimed.path(), &own);
    node.until("it is refused for its claim", || {
        let refused = claimed.call("ADD");
        refused.code != 0 && refused.error()["code"] == 7 && refused.error()["msg"].as_str().unwrap().contains("IPAMClaim \"c\"")
    });

    // A plugin in a process of its own asks the agent, and means the same pool.
    node.host.container("beside");
    let mut config: Value = serde_json::from_str(&bridge("beside", "pods")).unwrap();
    let made = beside(&node, "team", "beside", "ADD", &config);
    assert_eq!(second(&ips(&made)[0]), 21);
    config["prevResult"] = made.result();
    for verb in ["CHECK", "STATUS", "DEL"] {
        beside(&node, "team", "beside", verb, &config);
    }

    // What the host has in a file of its own is nobody's to select.
    let file = json!({"kind": "IPPool", "metadata": {"name": "own"}, "spec": {"ipv4": {"entries": [{"cidr": "10.99.0.0/24"}]}}});
    node.host.write("/run/pools/own.json", &file.to_string());
    cluster.pool("all", &pool("own", 41, &json!({"podSelector": {}})));
    node.until("the node may use it", || cluster.object("selects-a")["spec"]["pools"]["all"].is_object());
    let mut config: Value = serde_json::from_str(&bridge("own", "own")).unwrap();
    config["ipam"]["pools"] = json!("/run/pools");
    node.host.container("own");
    assert_eq!(second(&ips(&beside(&node, "team", "own", "ADD", &config))[0]), 99);

    // Which pool it is stands with what the pod has: a store that is lost knows it again.
    node.kill9();
    node.host.sh("", "rm -r /var/lib/netloom/ipam");
    node.restart();
    let links = node.host.json(&team.sandbox(), "ip -j -4 address show dev eth0");
    let address = links[0]["addr_info"][0]["local"].as_str().unwrap().to_owned();
    node.until("what the team's pod has is of its pool", || node.told(&["ipam", "trace", &address])[0]["pool"] == "red");
    [&plain, &team, &book].iter().for_each(|pod| drop(pod.must("CHECK")));

    // Nobody is left who tells whom pools select: a node goes on with what it was told, also when its agent begins again.
    cluster.stop_operator();
    cluster.api.plane().kubectl(&["delete", "nodeippools.netloom.io", "selects-a", "--wait=false"], "").unwrap();
    node.until("it is gone", || cluster.api.ask("GET", &format!("{KINDS}/nodeippools/selects-a"), &Value::Null).0 == 404);
    node.kill9();
    node.restart();
    let alone = pod(&node, "default", "alone", &json!({"team": "red"}), "");
    assert_eq!(attach(&node, &alone), 21);
    // Without an API server nobody knows a pod; it is not asked for where no pool of the network selects any.
    node.host.container("dark");
    let config: Value = serde_json::from_str(&bridge("dark", "plain")).unwrap();
    node.api_proxy.shut();
    node.kill9();
    node.serve();
    assert_eq!(second(&ips(&beside(&node, "nobody-knows", "dark", "ADD", &config))[0]), 40);
    node.api_proxy.open();
    node.kill9();
    node.restart();
    cluster.operate();
    node.until("it is told again", || cluster.object("selects-a")["spec"]["pools"]["red"].is_object());

    // Nobody's own pool is left: the node serves those whom others select, and says so; the others it cannot.
    plain.must("DEL");
    cluster.api.plane().kubectl(&["delete", "ippools.netloom.io", "pods", "--wait=false"], "").unwrap();
    node.until("nothing of it is handed out", || cluster.object("selects-a")["spec"]["pools"]["pods"]["ending"] != json!(false));
    let next = pod(&node, "default", "next", &json!({"team": "red"}), "");
    assert_eq!(attach(&node, &next), 21);
    let status = || next.call_with("STATUS", &json!({"cniVersion": "1.1.0"}));
    assert_eq!(status().code, 0);
    cluster
        .api
        .plane()
        .kubectl(&["patch", "ippools.netloom.io", "red", "--type=json", "-p", r#"[{"op": "remove", "path": "/spec/podSelector"}]"#], "")
        .unwrap();
    cluster.api.plane().kubectl(&["delete", "ippools.netloom.io", "shop", "--wait=false"], "").unwrap();
    node.until("nobody is selected any more", || status().code == 1 && status().error()["code"] == 50);
    let pools = cluster.api.must("GET", &format!("{KINDS}/nodeippools/selects-a"), &Value::Null);
    assert!(pools["spec"]["pools"]["red"].get("podSelector").is_none(), "{pools}");
}
