//! Who runs `pool` beside the agent that holds the addresses: it asks the agent. Without one it goes on by itself.

use netloom_tests::{Node, Outcome};
use serde_json::json;

use crate::granted::{Cluster, ips, lab};

/// Calls `bridge` for a container of nobody's pod, in a process of its own.
pub(crate) fn alone<'n>(node: &'n Node, container: &'n str, pool: &str) -> impl Fn(&str) -> Outcome + 'n {
    node.host.container(container);
    let config = json!({"cniVersion": "1.0.0", "name": "beside", "type": "bridge", "bridge": "br1",
        "ipam": {"type": "pool", "pool": pool, "addWait": 60}});
    move |verb| {
        let cni = netloom_tests::at(&node.host, container).set("CNI_CONTAINERID", container);
        let outcome = cni.call(verb, "bridge", config.to_string());
        assert_eq!(outcome.code, 0, "{verb} {container}: {outcome:?}");
        outcome
    }
}

#[test]
fn beside_an_agent_and_without_one() {
    let cluster = Cluster::new("beside");
    cluster.pool("lab", &lab());
    let node = cluster.node("beside-a");
    let pod = node.pod("web", "");
    let of_pod = ips(&pod.must("ADD"));
    let (one, two, three) = (alone(&node, "one", "lab"), alone(&node, "two", "lab"), alone(&node, "three", "lab"));
    let first = ips(&one("ADD"));
    assert!(first.len() == 2 && first.iter().all(|ip| !of_pod.contains(ip)), "{first:?} {of_pod:?}");
    node.kill9();
    // The store is free, and has what the agent knew.
    let second = ips(&two("ADD"));
    assert!(second.iter().all(|ip| !of_pod.contains(ip) && !first.contains(ip)), "{second:?}");
    one("DEL");
    node.restart();
    let third = ips(&three("ADD"));
    assert!(third.iter().all(|ip| !of_pod.contains(ip) && !second.contains(ip)), "{third:?}");
    two("DEL");
    three("DEL");
    three("DEL");
    pod.must("CHECK");
    pod.must("DEL");
    assert!(node.host.list("/var/lib/netloom/ipam").contains(&"agent".to_owned()));
}

/// Whoever spells the directory otherwise means the same store: the agent must not ask itself.
#[test]
fn a_directory_by_another_name() {
    let cluster = Cluster::new("spelt");
    cluster.pool("lab", &lab());
    let node = cluster.node("spelt-a");
    let of_pod = ips(&node.pod("web", "").must("ADD"));
    std::os::unix::fs::symlink("ipam", node.host.path("/var/lib/netloom/alias")).unwrap();
    node.host.container("one");
    let config = json!({"cniVersion": "1.0.0", "name": "spelt", "type": "bridge", "bridge": "br1",
        "ipam": {"type": "pool", "pool": "lab", "dataDir": "/var/lib/netloom/alias"}});
    let call = |verb: &str| {
        let outcome = netloom_tests::at(&node.host, "one").set("CNI_CONTAINERID", "one").call(verb, "bridge", config.to_string());
        assert_eq!(outcome.code, 0, "{verb}: {outcome:?}");
        outcome
    };
    let first = ips(&call("ADD"));
    assert!(first.len() == 2 && first.iter().all(|ip| !of_pod.contains(ip)), "{first:?} {of_pod:?}");
    call("DEL");
}
