//! Ports of a real Neutron, wired by its own agents: our operator makes them, our agent plugs them, neutron-openvswitch-agent gives them their
//! VLANs, flows and security groups.

mod change_over;
mod cloud;
mod kubelet;
mod share;
mod vhost_user;

use netloom_tests::{Outcome, Pod};
use serde_json::{Value, json};

use cloud::{Cloud, Machine};

/// Each network with its type and number.
const NETWORKS: [(&str, &str, u8); 3] = [("red", "vxlan", 31), ("blue", "vlan", 32), ("green", "vxlan", 33)];

/// The addresses of a pod's port, IPv4 and IPv6.
fn addresses(machine: &Machine, pod: &Pod<'_>, interface: &str) -> Vec<String> {
    let all = machine.node.host.addresses(&pod.sandbox(), interface);
    all.iter().map(|address| address.split_once('/').unwrap().0.to_owned()).collect()
}

/// Pods of three networks on two nodes: from DOWN to ACTIVE, packets from one to the other in both families, rules of their security group
/// while they run, and DOWN again after them.
#[test]
fn pods_of_three_networks_on_two_nodes() {
    let mut cloud = Cloud::new("cloud", &NETWORKS);
    cloud.operate();
    let machines = cloud.machines(["cloud-one", "cloud-two"]);
    let [one, two] = &machines;
    cloud.agents(2);
    let before = [one, two].map(|machine| machine.node.before());

    let pods = [one, two].map(|machine| machine.node.pod("web", "red,blue,green"));
    cloud.until("the pods' ports are bound", || pods.iter().all(|pod| cloud.bound(&pod.namespace, &pod.name) == 3));
    assert_eq!(cloud.statuses(), ["DOWN"; 6]);
    let adding: Vec<_> = pods.iter().map(|pod| pod.begin("ADD")).collect();
    for call in adding {
        let added = Outcome::from(call.wait_with_output().unwrap());
        assert_eq!(added.code, 0, "{added:?}");
    }
    assert_eq!(cloud.statuses(), ["ACTIVE"; 6]);

    let [web, peer] = &pods;
    two.node.host.answer_at(&peer.sandbox(), "peer", "::", 80);
    for (n, (network, ..)) in (1..).zip(NETWORKS) {
        let interface = format!("eth{n}");
        let [own, theirs] = [(one, web), (two, peer)].map(|(machine, pod)| addresses(machine, pod, &interface));
        assert_eq!((own.len(), theirs.len()), (2, 2), "{network}: {own:?}, {theirs:?}");
        for (from, to) in own.iter().zip(&theirs) {
            assert_eq!(one.node.host.told_over_tcp(&web.sandbox(), to, 80), format!("peer {from}"), "{network}");
            assert!(one.node.host.silent(&web.sandbox(), to), "{network}: no rule lets {to} answer a ping");
        }
    }
    let rules = [cloud.allow("icmp", "IPv4"), cloud.allow("ipv6-icmp", "IPv6")];
    let theirs: Vec<String> = (1..=3).flat_map(|n| addresses(two, peer, &format!("eth{n}"))).collect();
    for to in &theirs {
        cloud.until(&format!("the new rule lets {to} answer"), || one.node.host.pings(&web.sandbox(), to));
    }
    rules.iter().for_each(|rule| cloud.forbid(rule));
    for to in &theirs {
        cloud.until(&format!("without the rule {to} does not answer"), || one.node.host.silent(&web.sandbox(), to));
        assert!(one.node.host.told_over_tcp(&web.sandbox(), to, 80).starts_with("peer "), "{to}: what is allowed still passes");
    }

    for pod in &pods {
        assert_eq!(pod.check().code, 0, "{:?}", pod.check());
        pod.must("DEL");
    }
    cloud.until("Neutron's agents report that the ports are unplugged", || cloud.statuses() == ["DOWN"; 6]);
    drop(pods);
    cloud.until("the ports go with their pods", || cloud.statuses().is_empty());
    for (machine, before) in [one, two].into_iter().zip(&before) {
        let left = machine.switch().vsctl("--bare --columns=name find interface external_ids:iface-status=active");
        assert_eq!(left.trim(), "", "ports are left on {}", machine.node.name);
        machine.node.expect(before, "pods of three networks of Neutron");
    }
}

/// What a pod waits for is said with its interface and port: of a node whose Neutron agent is dead by our agent, of a host that has none by the
/// operator.
#[test]
fn a_port_that_waits_says_for_what() {
    let mut cloud = Cloud::new("waits", &NETWORKS[..2]);
    cloud.operate();
    let machines = cloud.machines_that_wait(["waits-one", "waits-two"], "10s");
    let [one, _] = &machines;
    cloud.agents(2);
    let pod = one.node.pod("web", "red,blue");
    cloud.until("its ports are bound", || cloud.bound(&pod.namespace, &pod.name) == 2);
    one.kill_agent();
    let ports = cloud.ports_of(&pod.namespace, &pod.name);
    let down = pod.add();
    assert_eq!(down.error()["code"], json!(11), "{down:?}");
    let of_port = |n: usize, network: &str| format!("interface eth{}, Neutron port {} (network {network}, bridge br-int)", n + 1, ports[n]);
    for says in
        ["not ACTIVE 10 s after it was plugged", &of_port(0, "red"), &of_port(1, "blue"), "check neutron-openvswitch-agent on this node"]
    {
        assert!(down.message().contains(says), "{says}: {down:?}");
    }
    let left = one.switch().vsctl("--bare --columns=name find interface external_ids:iface-status=active");
    assert_eq!(left.trim(), "", "everything was unplugged");

    let path = format!("/api/v1/namespaces/{}/pods", pod.namespace);
    let annotations = json!({"k8s.v1.cni.cncf.io/networks": "red"});
    let spec = json!({"nodeName": "waits-none", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lost", "annotations": annotations}, "spec": spec});
    cloud.api.must("POST", &path, &object);
    let says = "NeutronPortsFailed: Neutron cannot bind the port of eth1 on waits-none: no mechanism driver serves this host; check that its agent is alive";
    let events = format!("/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name=lost", pod.namespace);
    cloud.until("the other pod's owner can read why", || {
        let list = cloud.api.must("GET", &events, &Value::Null);
        let said = |event: &Value| format!("{}: {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap());
        list["items"].as_array().unwrap().iter().any(|event| said(event) == says)
    });
    pod.must("DEL");
}
