//! Two hosts that call themselves by one node's name; a journal that was copied.

use netloom_tests::{Node, Pod};
use serde_json::{Value, json};

use crate::granted::{Cluster, configure, ips, lab};

/// Another host that has a node's name, and a machine's number of its own. No agent runs there yet.
fn another(cluster: &Cluster, name: &str) -> Node {
    let host = Node::new(&cluster.api, name, "");
    configure(&host, "lab", "");
    host.host.write("/run/machine", "0123456789abcdef0123456789abcdef\n");
    for path in ["/sys/class/dmi/id/product_uuid", "/etc/machine-id"] {
        // A machine without firmware's number has the disk's alone.
        if std::path::Path::new(path).exists() {
            host.host.sh("", &format!("mount --bind /run/machine {path}"));
        }
    }
    host
}

/// How often the operator has told that two agents speak for a node.
fn told(cluster: &Cluster, node: &str) -> usize {
    let events = cluster.api.must("GET", "/apis/events.k8s.io/v1/events", &Value::Null);
    let all = events["items"].as_array().unwrap();
    all.iter().filter(|event| event["reason"] == "TwoAgents" && event["regarding"]["name"] == node).count()
}

fn refused(pod: &Pod<'_>) -> String {
    let outcome = pod.add();
    assert_eq!(outcome.error()["code"], json!(11), "{outcome:?}");
    outcome.message()
}

/// The one that was there goes on, the other one gives out nothing, and the operator tells. It serves when the first one is gone for good
/// and it begins again.
#[test]
fn two_hosts_of_one_name() {
    let cluster = Cluster::new("twice");
    cluster.pool("lab", &lab());
    let own = cluster.node("twice");
    let mut pods = vec![own.pod("one", "")];
    pods[0].must("ADD");
    let second = another(&cluster, "twice");
    second.serve();
    let strange = vec![second.pod("strange", "")];
    let says = "another agent serves a node of the same name";
    second.until("it knows that there is another one", || refused(&strange[0]).contains(says));
    second.until("the operator tells", || told(&cluster, "twice") > 0);
    // However often it begins again.
    second.serve();
    second.until("it knows again", || refused(&strange[0]).contains(says));
    second.rests("another agent serves the node");
    pods.push(own.pod("two", ""));
    pods[1].must("ADD");
    assert_eq!(cluster.agree(&[(&own, &pods)], &["lab"]).len(), 4);
    // The first one is switched off.
    own.kill9();
    pods.iter().for_each(Pod::remove_namespace);
    second.serve();
    second.until("it serves", || strange[0].add().code == 0);
    assert_eq!(cluster.agree(&[(&second, &strange)], &["lab"]).len(), 2);
}

/// The copy knows the first one's blocks as its own, and gives out nothing, with and without the API server.
#[test]
fn a_journal_that_was_copied() {
    let cluster = Cluster::new("copy");
    cluster.pool("lab", &lab());
    let own = cluster.node("copy");
    let mut pods = vec![own.pod("one", "")];
    let first = ips(&pods[0].must("ADD"));
    let copy = another(&cluster, "copy");
    let journal = "/var/lib/netloom/ipam";
    std::fs::create_dir_all(copy.host.path("/var/lib/netloom")).unwrap();
    let [from, to] = [&own, &copy].map(|node| node.host.path(journal));
    assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    let strange = copy.pod("strange", "");
    // Its cache is to know the pod; then it is cut off, and nobody can object.
    copy.api_proxy.shut();
    copy.serve();
    let said = refused_alone(&copy);
    assert!(said.contains("was copied"), "{said}");
    copy.api_proxy.open();
    copy.until("it knows that there is another one", || refused(&strange).contains("another agent serves a node of the same name"));
    copy.until("the operator tells", || told(&cluster, "copy") > 0);
    pods.push(own.pod("two", ""));
    let second = ips(&pods[1].must("ADD"));
    assert!(second.iter().all(|ip| !first.contains(ip)), "{first:?} {second:?}");
    assert_eq!(cluster.agree(&[(&own, &pods)], &["lab"]).len(), 4);
    crate::granted::agreement::all_go(&[(&own, &pods)]);
}

/// What is said to somebody who is no pod of the cluster.
fn refused_alone(node: &Node) -> String {
    node.host.container("beside");
    let config = json!({"cniVersion": "1.0.0", "name": "beside", "type": "bridge", "bridge": "br1",
        "ipam": {"type": "pool", "pool": "lab", "addWait": 5}});
    let outcome = netloom_tests::at(&node.host, "beside").set("CNI_CONTAINERID", "beside").call("ADD", "bridge", config.to_string());
    assert_eq!(outcome.error()["code"], json!(11), "{outcome:?}");
    outcome.message()
}
