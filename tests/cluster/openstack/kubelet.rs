//! The whole path on a real Kubernetes with a real Neutron: scheduler, kubelet, containerd, `netloom-cni`, our agent and operator; Neutron's
//! agents wire the ports. The agents have no more rights than `deploy/openstack/access.yaml` gives them.

use std::path::Path;

use serde_json::json;
use testbed::{DefaultNetwork, Node};

use super::NETWORKS;
use super::cloud::{OpenStack, Place};
use crate::path::scene::{Pod, Scene, definition, workload};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// Lets a node's agent plug ports of Neutron: the steps of `docs/operate/openstack-node.md`.
fn plugs(node: &mut Node) {
    let settings = std::fs::read_to_string(node.path("/etc/netloom/agent.yaml")).unwrap();
    node.write("/etc/netloom/agent.yaml", format!("{settings}openstackVIFs: kuryrports\nopenstackWait: 100s\n")).unwrap();
    node.restart_agent().unwrap();
}

/// The addresses of a pod on Neutron's networks, by its status.
fn addresses(pod: &Pod) -> Vec<String> {
    let status = pod.status();
    let of_neutron = status.iter().filter(|network| network["interface"] != "eth0");
    of_neutron.flat_map(|network| network["ips"].as_array().unwrap()).map(|ip| ip.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_deployment_with_ports_of_three_networks() {
    let mut openstack = OpenStack::new("kubelet", &NETWORKS);
    [("icmp", "IPv4"), ("ipv6-icmp", "IPv6")].iter().for_each(|(protocol, family)| drop(openstack.allow(protocol, family)));
    let mut scene = Scene::new("neutron", 2, DefaultNetwork::Agent);
    for file in ["ippools.yaml", "openstack/kuryrports.yaml", "openstack/access.yaml"] {
        scene.kubectl(&["apply", "-f", Path::new(DEPLOY).join(file).to_str().unwrap()]);
    }
    for (name, config) in openstack.definitions() {
        scene.apply(&definition(name, &json!({"openstack.org/kuryr-config": config}), None));
    }
    scene.cluster.nodes_mut().iter_mut().for_each(plugs);
    openstack.operate_with(&std::fs::read_to_string(scene.cluster.control().kubeconfig()).unwrap());
    let nodes = scene.cluster.nodes();
    let paths = [&nodes[0], &nodes[1]].map(|node| move |inside: &str| node.path(inside));
    let place = |n: usize, address| Place {
        pid: nodes[n].den().pid(),
        name: nodes[n].name(),
        address,
        path: &paths[n],
        enter: nodes[n].command("setpriv"),
    };
    let wirings = openstack.wire([place(0, "198.19.0.1"), place(1, "198.19.0.2")]);
    openstack.agents(2);

    let mut web = workload("web", 2, "red,blue,green", "1");
    web["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["httpd", "-f", "-p", "[::]:80", "-h", "/bin"]);
    scene.apply(&web);
    scene.rolled("web");
    let pods = scene.pods("web");
    assert_ne!(pods[0].node, pods[1].node);
    assert_eq!(openstack.statuses(), ["ACTIVE"; 6]);
    for (from, to) in [(&pods[0], &pods[1]), (&pods[1], &pods[0])] {
        let all = addresses(to);
        assert_eq!(all.len(), 6, "{all:?}");
        scene.pings(from, &all);
        for address in all {
            let host = if address.contains(':') { format!("[{address}]") } else { address };
            let got =
                scene.within(from, &["curl", "-gs", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}", &format!("http://{host}/sh")]);
            assert_eq!(String::from_utf8_lossy(&got.stdout), "200", "{host}: {got:?}");
        }
    }
    scene.delete("web");
    openstack.until("the ports go with their pods", || openstack.statuses().is_empty());
    let left = || {
        wirings.iter().map(|wiring| wiring.switch.vsctl("--bare --columns=name find port external_ids:owner=netloom")).collect::<String>()
    };
    openstack.until("no port of ours is left in Open vSwitch", || left().trim().is_empty());
    scene.no_failure_of_ours();
}
