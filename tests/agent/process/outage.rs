//! The API server is away, or does not know us any more.

use std::time::{Duration, Instant};

use netloom_tests::{Api, Node, Pod};
use serde_json::json;

use crate::process::chance::soak;

/// How long it is away: at least as long as it takes to do what can be done meanwhile.
fn outage() -> Duration {
    Duration::from_secs(if soak() > 0 { 60 } else { 0 })
}

/// What can be done without the API server.
fn during(node: &Node, cached: &Pod<'_>, attached: &Pod<'_>) {
    let begun = Instant::now();
    let added = cached.add();
    assert_eq!(added.code, 0, "a pod whose definitions are cached starts: {added:?}\n{}", node.tail());
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    println!("ADD without the API server: {took:?}");
    cached.must("CHECK");
    attached.must("DEL");
    // An agent that begins now knows nothing, and says so.
    node.kill9();
    node.serve();
    cached.must("CHECK");
    attached.renew();
    let refused = attached.add();
    assert_eq!(refused.error()["code"], json!(11), "{refused:?}");
    println!("ADD of an agent that has never seen the API server: {}", refused.message());
    assert!(refused.message().contains("API server") || refused.message().contains("cannot be asked"), "{}", refused.message());
    attached.must("DEL");
}

#[test]
fn a_minute_without_the_api_server() {
    let api = Api::own();
    let node = Node::new(&api, "outage", "");
    node.restart();
    let before = node.before();
    let (cached, attached, leaving) = (node.pod("cached", "mac1,mac2"), node.pod("attached", "mac3"), node.pod("leaving", "mac1"));
    attached.must("ADD");
    leaving.must("ADD");
    let begun = Instant::now();
    api.stop();
    during(&node, &cached, &attached);
    leaving.must("DEL");
    node.until("the agent has noticed", || node.status()["ready"] == json!(false));
    // Sleeps: an outage is to last.
    std::thread::sleep(outage().saturating_sub(begun.elapsed()));
    api.start();
    node.until("the agent is ready again", || node.status()["ready"] == json!(true));
    cached.wait_for_status();
    attached.must("ADD");
    attached.wait_for_status();
    [&cached, &attached].iter().for_each(|pod| drop(pod.must("DEL")));
    drop((cached, attached, leaving));
    node.expect(&before, "an outage");
}

/// The status of a pod that came while nobody could be told arrives without anybody's doing.
#[test]
fn a_status_arrives_after_the_outage() {
    let node = Node::start("later", "statusWait: 200ms");
    let before = node.before();
    let (pod, gone) = (node.pod("web", "mac1,mac2,mac3"), node.pod("gone", "mac1"));
    // The agent knows each of them once it has served it.
    for pod in [&pod, &gone] {
        pod.must("ADD");
        pod.must("DEL");
        pod.renew();
    }
    node.until("no status is under way", || node.status()["statusesWaiting"] == json!([]));
    node.api_proxy.shut();
    pod.must("ADD");
    gone.must("ADD");
    gone.must("DEL");
    assert_ne!(node.status()["statusesWaiting"], json!([]));
    node.api_proxy.open();
    pod.wait_for_status();
    pod.must("DEL");
    drop((pod, gone));
    node.expect(&before, "statuses that came later");
}

/// A server that takes connections and says nothing.
#[test]
#[ignore = "needs Kubernetes: a process that is stopped"]
fn an_api_server_that_says_nothing() {
    let api = Api::own();
    let node = Node::new(&api, "silent", "statusWait: 500ms");
    node.restart();
    let before = node.before();
    let pod = node.pod("web", "mac1,mac2,mac3");
    // It is in the cache when it was seen once.
    pod.must("ADD");
    pod.must("DEL");
    api.plane().pause_api().unwrap();
    let begun = Instant::now();
    let api_is = node.status()["api"].to_string();
    assert!(api_is.contains("has not answered within") && begun.elapsed() < Duration::from_secs(5), "{api_is} {:?}", begun.elapsed());
    pod.renew();
    let begun = Instant::now();
    let added = pod.add();
    let took = begun.elapsed();
    api.plane().resume_api().unwrap();
    assert_eq!(added.code, 0, "{added:?}");
    assert!(took < Duration::from_secs(60), "{took:?}");
    pod.wait_for_status();
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "a silent API server");
}

/// The token's file is replaced, and the old one is worth nothing: nobody has to start anything again.
#[test]
#[ignore = "needs Kubernetes: tokens"]
fn a_token_expires() {
    let api = Api::shared();
    let node = Node::new(&api, "token", "");
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "token-test"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "token"},
            {"kind": "ServiceAccount", "name": "other", "namespace": "token"}]});
    api.must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
    let other = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"}});
    api.must("POST", "/api/v1/namespaces/token/serviceaccounts", &other);
    let token = |account: &str| api.plane().kubectl(&["-n", "token", "create", "token", account], "").unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&api.kubeconfig("")).unwrap();
    config["users"][0]["user"] = json!({"tokenFile": "/run/token"});
    node.host.write("/run/kubeconfig", &config.to_string());
    node.host.write("/run/token", &token("default"));
    node.restart();
    let pod = node.pod("web", "mac1");
    pod.must("ADD");
    pod.wait_for_status();
    pod.must("DEL");
    // Its account goes, and what it has signed with it.
    node.host.write("/run/token", &token("other"));
    api.must("DELETE", "/api/v1/namespaces/token/serviceaccounts/default", &serde_json::Value::Null);
    let remade = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    api.must("POST", "/api/v1/namespaces/token/serviceaccounts", &remade);
    node.api_proxy.shut();
    node.api_proxy.open();
    pod.renew();
    pod.must("ADD");
    pod.wait_for_status();
    let late = node.pod("late", "mac2");
    late.must("ADD");
    late.wait_for_status();
    [&pod, &late].iter().for_each(|pod| drop(pod.must("DEL")));
    drop((pod, late));
    api.must("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/token-test", &serde_json::Value::Null);
}
