//! CHECK, STATUS and GC, which cover every attachment of a pod.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::standard::scene::{Node, bridge, default_network, macvlan, until};

fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": "netloom", "type": "netloom"})
}

/// STATUS of a node.
/// Of a runtime whose other calls wait long for an agent.
fn status(node: &Node) -> netloom_tests::Outcome {
    let mut config = config();
    config["agentWait"] = json!(600);
    node.host.cni(Path::new("/run/bin")).call("STATUS", "netloom", config.to_string())
}

fn gc(node: &Node, valid: &Value) -> netloom_tests::Outcome {
    let mut config = config();
    config["cni.dev/valid-attachments"] = valid.clone();
    node.host.cni(Path::new("/run/bin")).call("GC", "netloom", config.to_string())
}

#[test]
fn s2_check_looks_at_every_attachment() {
    let node = Node::new("check");
    node.definition("one", &macvlan("one", 1));
    let pod = node.pod("web", "one,one");
    pod.add();
    assert_eq!(pod.call("CHECK").code, 0);
    // The last of them, and something that a plugin had made of it.
    node.host.sh(&pod.sandbox, "ip address flush dev net2");
    let failed = pod.call("CHECK");
    assert!(failed.message().contains("net2"), "{failed:?}");
    node.host.sh(&pod.sandbox, "ip link delete net1");
    let failed = pod.call("CHECK");
    assert!(failed.message().contains("net1"), "{failed:?}");
    pod.del();
    assert_eq!(pod.call("CHECK").error()["code"], 3);
}

/// Code 50 says that no pod could be attached now; a runtime keeps pods away until it is gone.
#[test]
fn s47_status_says_whether_the_default_network_is_ready() {
    let mut node = Node::with("status", json!({"clusterNetwork": "/etc/cni/net.d/10-main.conf"}));
    let not_ready = status(&node);
    assert!(not_ready.error()["code"] == 50 && not_ready.message().contains("10-main.conf"), "{not_ready:?}");
    node.host.write("/etc/cni/net.d/10-main.conf", &bridge("main", 1).to_string());
    // Nor is it before the agent knows what the API server knows.
    until("it is ready", || (status(&node).code == 0).then_some(()));
    // What the default network's own plugin says of itself.
    let mut bad = macvlan("main", 1);
    bad["cniVersion"] = json!("1.1.0");
    bad["master"] = json!("nowhere");
    node.host.write("/etc/cni/net.d/10-main.conf", &bad.to_string());
    let not_ready = status(&node);
    assert!(not_ready.error()["code"] == 50 && not_ready.message().contains("nowhere"), "{not_ready:?}");
    node.host.write("/etc/cni/net.d/10-main.conf", &bridge("main", 1).to_string());
    assert_eq!(status(&node).code, 0);
    // Without an agent it is answered at once.
    node.kill();
    let start = Instant::now();
    assert_eq!(status(&node).error()["code"], 50);
    assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
}

/// GC takes what the runtime does not name: sandboxes with all their networks, and addresses that nobody has.
#[test]
fn s52_gc_frees_what_the_runtime_does_not_name_and_keeps_what_it_does() {
    let node = Node::with("gc", json!({"delegates": [{"cniVersion": "1.1.0", "name": "cluster", "plugins": [default_network()]}]}));
    node.definition("one", &macvlan("one", 1));
    let (stays, goes) = (node.pod("stays", "one"), node.pod("goes", "one"));
    stays.add();
    goes.add();
    let kept = stays.addresses("net1");
    // What a program that was killed has left of the default network.
    node.host.write("/var/lib/cni/networks/cluster/10.0.9.9", "nobody\r\neth0");
    // A container that another program attached, Multus say, and that the runtime names as its own.
    node.host.write("/var/lib/cni/networks/cluster/10.0.9.8", "others\r\neth0");
    let valid = |sandbox: &str| json!({"containerID": sandbox, "ifname": "eth0"});
    // Nobody here knows what else it has on which networks.
    let done = gc(&node, &json!([valid(&stays.sandbox), valid(&goes.sandbox), valid("others")]));
    assert_eq!((done.code, node.leases("cluster").len()), (0, 4), "{done:?}");
    let done = gc(&node, &json!([valid(&stays.sandbox), valid("others")]));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!((stays.addresses("net1"), stays.links()), (kept.clone(), ["eth0", "lo", "net1"].map(str::to_owned).to_vec()));
    assert_eq!((goes.links(), node.records()), (vec!["lo".to_owned()], vec![format!("{}.json", stays.sandbox)]));
    assert_eq!((node.leases("one").len(), node.leases("cluster").len()), (1, 3));
    // It is gone, too: then what is nobody's is known.
    let done = gc(&node, &json!([valid(&stays.sandbox)]));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!((stays.addresses("net1"), stays.call("CHECK").code), (kept, 0));
    assert_eq!((node.leases("one").len(), node.leases("cluster").len()), (1, 1));
    // A list that is not there says nothing, and frees nothing.
    let mut silent = config();
    silent.as_object_mut().unwrap().remove("cni.dev/valid-attachments");
    let _ = node.host.cni(Path::new("/run/bin")).call("GC", "netloom", silent.to_string());
    assert_eq!(stays.links(), ["eth0", "lo", "net1"]);
}

/// One record that nobody can read: the rest is collected, what its pod may have stays, and the error says what to do.
#[test]
fn s52_gc_collects_the_rest_beside_a_record_that_cannot_be_read() {
    let node = Node::with("gc-torn", json!({"delegates": [{"cniVersion": "1.1.0", "name": "cluster", "plugins": [default_network()]}]}));
    node.definition("layer2", &json!({"cniVersion": "1.1.0", "plugins": [{"type": "bridge", "bridge": "br7"}]}));
    let (torn, stays, goes) = (node.pod("torn", "layer2@data"), node.pod("stays", "layer2"), node.pod("goes", "layer2"));
    [&torn, &stays, &goes].iter().for_each(|pod| drop(pod.add()));
    node.host.write(&format!("/var/lib/netloom/sandboxes/{}.json", torn.sandbox), "{");
    node.host.write("/var/lib/cni/networks/cluster/10.0.9.9", "nobody\r\neth0");
    let valid = |sandbox: &str| json!({"containerID": sandbox, "ifname": "eth0"});
    let both = json!([valid(&torn.sandbox), valid(&stays.sandbox)]);
    // The agent may not have been told of all pods yet: until then it cannot know what is nobody's.
    until("what is nobody's is free", || {
        let error = gc(&node, &both).error();
        assert!(error["code"] == 5 && error["msg"].as_str().unwrap().contains("delete the pod"), "{error}");
        (node.leases("cluster").len() == 2).then_some(())
    });
    assert_eq!((goes.links(), node.leases("layer2").len()), (vec!["lo".to_owned()], 0));
    // Of both links of each, none has lost its other end.
    for (pod, link) in [(&torn, "eth0"), (&torn, "data"), (&stays, "eth0"), (&stays, "net1")] {
        assert!(node.host.link(&pod.sandbox, link).unwrap().0["flags"].to_string().contains("LOWER_UP"), "{} {link}", pod.name);
    }
    // Its DEL frees what its container's ID tells, and says nevertheless that it could not know all.
    let error = torn.call("DEL").error();
    assert_eq!(error["code"], 5, "{error}");
    assert_eq!(node.leases("cluster").len(), 1);
    let links = node.host.json(&torn.sandbox, "ip -j link");
    let up: Vec<&Value> =
        links.as_array().unwrap().iter().filter(|l| l["ifname"] != "lo" && l["flags"].to_string().contains("\"UP\"")).collect();
    assert_eq!(up, Vec::<&Value>::new(), "nothing answers any more for an address that is free");
    assert_eq!(stays.call("CHECK").code, 0);
}

/// The same of a record that nobody can read, whose pod is gone.
#[test]
fn s52_gc_collects_all_beside_a_record_that_cannot_be_read_of_a_pod_that_is_gone() {
    let node =
        Node::with("gc-torn-gone", json!({"delegates": [{"cniVersion": "1.1.0", "name": "cluster", "plugins": [default_network()]}]}));
    let (torn, stays) = (node.pod("torn", ""), node.pod("stays", ""));
    [&torn, &stays].iter().for_each(|pod| drop(pod.add()));
    node.host.write(&format!("/var/lib/netloom/sandboxes/{}.json", torn.sandbox), "{");
    node.host.write("/var/lib/cni/networks/cluster/10.0.9.9", "nobody\r\neth0");
    let one = json!([{"containerID": stays.sandbox, "ifname": "eth0"}]);
    until("what is nobody's is free", || {
        let error = gc(&node, &one).error();
        assert!(error["code"] == 5 && error["msg"].as_str().unwrap().contains("delete the pod"), "{error}");
        (node.leases("cluster").len() == 1).then_some(())
    });
    assert_eq!(stays.call("CHECK").code, 0);
}

/// As Multus does where it has kept nothing: what the pod selects is unmade.
#[test]
fn s52_a_del_without_a_record_frees_what_its_pod_selects() {
    let node = Node::new("unrecorded");
    node.definition("one", &macvlan("one", 1));
    let (pod, other) = (node.pod("web", "one"), node.pod("other", "one"));
    pod.add();
    other.add();
    let records = "/var/lib/netloom/sandboxes";
    for file in node.host.list(records).into_iter().filter(|file| file.starts_with(&pod.sandbox)) {
        std::fs::remove_file(node.host.path(records).join(file)).unwrap();
    }
    // Until the agent has it from its watch, it knows no pod without a question.
    until("the addresses are free", || {
        assert_eq!(pod.call("DEL").code, 0);
        (node.leases("cluster").len() == 1 && node.leases("one").len() == 1).then_some(())
    });
    assert_eq!(other.call("CHECK").code, 0);
    // A kubelet's second DEL asks no plugin again: somebody else may have the address by then.
    node.host.write("/var/lib/cni/networks/one/10.1.0.99", &format!("{}\r\nnet1", pod.sandbox));
    assert_eq!((pod.call("DEL").code, node.leases("one").len()), (0, 2));
}
