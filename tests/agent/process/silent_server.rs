//! Pods of several namespaces whose networks ask for an address by DHCP, where no server answers.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use netloom_tests::{Node, Pod};
use serde_json::json;

const NAMESPACES: [&str; 3] = ["leaseless-a", "leaseless-b", "leaseless-c"];
const PODS: usize = 8;
const LOG: &str = "/run/dhcp.log";

/// The node's DHCP daemon. It ends with this.
struct Daemon(Child);

impl Daemon {
    fn start(node: &Node) -> Self {
        let log = File::create(node.host.path(LOG)).unwrap();
        let mut command = node.host.command("", node.bin.join("dhcp"));
        let daemon = Daemon(command.arg("daemon").stdout(Stdio::null()).stderr(log).spawn().unwrap());
        node.until("the daemon listens", || UnixStream::connect(node.host.path("/run/cni/dhcp.sock")).is_ok());
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pods<'n>(node: &'n Node, namespace: &str) -> Vec<Pod<'n>> {
    let network = json!({"cniVersion": "1.0.0", "name": namespace, "type": "bridge", "bridge": "silent0", "ipam": {"type": "dhcp"}});
    node.api.namespace(namespace);
    node.api.definition(namespace, "leased", &network.to_string());
    let pod = |n: usize| {
        let annotations = json!({"k8s.v1.cni.cncf.io/networks": "leased"});
        let metadata = json!({"name": format!("{namespace}{n}"), "namespace": namespace, "annotations": annotations});
        node.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
    };
    (0..PODS).map(pod).collect()
}

/// More of them wait than there are workers: each steps aside, so that another namespace's pod comes and goes meanwhile. Where their callers
/// are killed they wait no longer, long before a server would be late.
#[test]
fn pods_that_wait_for_a_silent_server_keep_nobody_waiting() {
    let node = Node::start("leaseless", "");
    let _daemon = Daemon::start(&node);
    let pods: Vec<Pod<'_>> = NAMESPACES.iter().flat_map(|namespace| pods(&node, namespace)).collect();
    let all = json!(pods.len());
    let mut calls: Vec<Child> = pods.iter().map(|pod| pod.begin("ADD")).collect();
    let asked = || std::fs::read_to_string(node.host.path(LOG)).unwrap_or_default().matches("acquiring lease").count();
    node.until("the daemon asks for all of them", || asked() == pods.len());
    let innocent = node.pod("innocent", "mac1");
    innocent.must("ADD");
    innocent.must("CHECK");
    innocent.must("DEL");
    let status = node.status();
    assert_eq!((&status["calls"], &status["callsWaiting"]), (&all, &json!(0)), "all of them still wait: {status:#}");
    for call in &mut calls {
        call.kill().unwrap();
        call.wait().unwrap();
    }
    node.until("no call outlives its caller", || node.status()["calls"] == json!(0));
    pods.iter().for_each(|pod| drop(pod.must("DEL")));
    assert_eq!(node.host.list("/run/cni/dhcp.leases"), [".lock"], "no lease is left");
}
