//! All Nodes are followed, and an agent writes the state of the network to its own one.

use std::time::Duration;

use between::{Mode, NodeSeen};
use futures::FutureExt;
use netloom_cluster::{Announced, Cluster, Node, Nodes, OwnNetwork, Unavailable, client};
use serde_json::{Value, json};
use testbed::ControlPlane;

use crate::{create, delete, plane, run, start, until};

fn node(name: &str, range: &str, address: &str) -> String {
    let condition = |name: &str, status: &str| {
        json!({"type": name, "status": status, "reason": "R", "message": "m", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": range, "podCIDRs": [range]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}], "conditions": [condition("Ready", "True")]},
    })
    .to_string()
}

fn get(plane: &ControlPlane, name: &str) -> Value {
    serde_json::from_str(&plane.kubectl(&["get", "node", name, "-o", "json"], "").unwrap()).unwrap()
}

fn condition(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == "NetworkUnavailable").cloned().unwrap_or_default()
}

async fn followed(cluster: &Cluster) -> Nodes {
    let nodes = cluster.follow_nodes();
    until("the Nodes", || nodes.listed().complete).await;
    nodes
}

/// The own Node, once it is as wanted.
async fn own(nodes: &Nodes, what: &str, so: impl Fn(&Node) -> bool) -> Node {
    until(what, || nodes.own().is_some_and(|node| so(&node))).await;
    Node::clone(&nodes.own().unwrap())
}

fn network(mode: Mode, unavailable: Option<(&str, &str)>) -> OwnNetwork {
    let unavailable = unavailable.map(|(reason, message)| Unavailable { reason: reason.to_owned(), message: message.to_owned() });
    OwnNetwork { announced: Some(Announced { mode, keys: Vec::new(), rotation: 0, moved: 0 }), unavailable }
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn all_nodes_are_followed_and_a_heartbeat_wakes_nobody() {
    let plane = plane("nodes");
    create(&plane, &node("n1", "10.1.0.0/24", "192.0.2.1"));
    run(async {
        let cluster = start(&plane).await;
        let mut nodes = followed(&cluster).await;
        let n1 = nodes.own().expect("listed");
        let there = get(&plane, "n1");
        let seen = NodeSeen::from(&*n1);
        assert_eq!(
            (there["metadata"]["uid"].as_str(), there["metadata"]["creationTimestamp"].as_str()),
            (Some(&*seen.uid), Some(&*seen.created))
        );
        assert_eq!((seen.ranges, seen.endpoints), (vec!["10.1.0.0/24".parse().unwrap()], vec!["192.0.2.1".parse().unwrap()]));
        assert_eq!((n1.announced.clone(), n1.network_unavailable), (None, None));
        nodes.changed().await;

        create(&plane, &node("n2", "10.2.0.0/24", "192.0.2.2"));
        nodes.changed().await;
        assert!(nodes.get("n2").is_some());
        let beat = |time: &str| json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": time}]}}).to_string();
        for time in ["2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"] {
            plane.kubectl(&["patch", "node", "n2", "--subresource=status", "-p", &beat(time)], "").unwrap();
        }
        let before = nodes.get("n2").unwrap();
        plane.kubectl(&["label", "node", "n2", "a=b"], "").unwrap();
        // The object is another one, though it is equal: so it is seen that it came.
        until("the heartbeats", || !std::sync::Arc::ptr_eq(&before, &nodes.get("n2").unwrap())).await;
        assert!(nodes.changed().now_or_never().is_none(), "nothing has changed that anybody asks about");
        plane.kubectl(&["annotate", "node", "n2", r#"netloom.io/between={"mode":"direct"}"#], "").unwrap();
        nodes.changed().await;
        assert_eq!(NodeSeen::from(&*nodes.get("n2").unwrap()).mode, Some(Mode::Direct));
        delete(&plane, "node", "n2");
        nodes.changed().await;
        assert!(nodes.get("n2").is_none() && nodes.all().len() == 1);
    });
}

/// With the agents' own rights, under the policy that restricts them.
#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn the_state_of_the_network_reaches_the_own_node_and_no_other() {
    let plane = plane("own-network");
    create(&plane, &node("n1", "10.1.0.0/24", "192.0.2.1"));
    plane.allow_agents().unwrap();
    let config = plane.write_kubeconfig("agent", &plane.agent_token("n1").unwrap()).unwrap();
    run(async {
        let cluster = Cluster::start(client(Some(&config)).await.unwrap(), "n1");
        let nodes = followed(&cluster).await;
        let (down, up) = (network(Mode::Vxlan, Some(("NoTunnel", "vxlan cannot be made"))), network(Mode::Vxlan, None));
        let seen = own(&nodes, "the own Node", |_| true).await;
        assert!(cluster.write_own_network(&seen, &down).await.unwrap());
        let first = get(&plane, "n1");
        let (is, since) = (condition(&first), condition(&first)["lastTransitionTime"].clone());
        assert_eq!((&is["status"], &is["reason"], &is["message"]), (&json!("True"), &json!("NoTunnel"), &json!("vxlan cannot be made")));
        assert_eq!((&is["lastHeartbeatTime"], first["status"]["conditions"].as_array().unwrap().len()), (&since, 2));
        // The API server keeps metadata that comes with a status.
        assert_eq!(first["metadata"]["annotations"]["netloom.io/between"], r#"{"mode":"vxlan"}"#);
        assert_eq!(first["spec"]["podCIDRs"], json!(["10.1.0.0/24"]));

        // What is there already is not written.
        let seen = own(&nodes, "what was written", |node| down.is_in(node)).await;
        assert_eq!(seen.network_unavailable, Some(true));
        let requests = || cluster.requests().get(&("patch", "nodes/status")).copied();
        let asked = requests();
        assert!(!cluster.write_own_network(&seen, &down).await.unwrap());
        assert_eq!((requests(), asked), (asked, Some(1)));

        // Times have seconds: the next one is another.
        // Sleeps: until the clock's next second.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let other = network(Mode::Vxlan, Some(("NoAddress", "no InternalIP")));
        assert!(cluster.write_own_network(&seen, &other).await.unwrap());
        let is = condition(&get(&plane, "n1"));
        assert_eq!((&is["reason"], &is["lastTransitionTime"]), (&json!("NoAddress"), &since), "the status is the same since then");
        assert_ne!(is["lastHeartbeatTime"], since);
        let seen = own(&nodes, "another reason", |node| other.is_in(node)).await;
        assert!(cluster.write_own_network(&seen, &up).await.unwrap());
        let is = condition(&get(&plane, "n1"));
        assert_eq!((&is["status"], &is["reason"]), (&json!("False"), &json!("NetloomIsUp")));
        assert_ne!(is["lastTransitionTime"], since);
        let seen = own(&nodes, "that it is up", |node| up.is_in(node)).await;
        let silent = OwnNetwork { announced: None, unavailable: None };
        assert!(cluster.write_own_network(&seen, &silent).await.unwrap());
        assert!(get(&plane, "n1")["metadata"]["annotations"].get("netloom.io/between").is_none());

        // Another Node has the name by now. A token that is bound to a Node ends with it, so this is asked as the administrator.
        let cluster = start(&plane).await;
        let nodes = followed(&cluster).await;
        delete(&plane, "node", "n1");
        let code = async |node: &Node| cluster.write_own_network(node, &down).await.unwrap_err().code();
        assert_eq!(code(&seen).await, Some(404));
        create(&plane, &node("n1", "10.2.0.0/24", "192.0.2.2"));
        assert!(matches!(code(&seen).await, Some(409 | 422)));
        assert_eq!(condition(&get(&plane, "n1")), Value::Null, "nothing was written to it");
        let seen = own(&nodes, "the new one", |node| node.uid != seen.uid).await;
        assert!(cluster.write_own_network(&seen, &up).await.unwrap());
        own(&nodes, "that it is up", |node| up.is_in(node)).await;
    });
}
