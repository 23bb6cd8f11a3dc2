//! A node with a real Open vSwitch, and a controller that is the test: it writes KuryrPorts as Kuryr does, and says that a port is ACTIVE
//! when the switch has it. Of what Neutron's agent does to a port in between only the VLAN is here: `br-int` forwards as a plain switch.

use std::process::Child;

use netloom_tests::{Api, Node, Outcome, Pod, Switch};
use serde_json::{Value, json};

const DATA: &str = "versioned_object.data";
const HYBRID: &str = include_str!("../../../crates/osvif/tests/captured/VIFBridge.json");
const CAPTURED: &str = include_str!("../../../crates/osvif/tests/captured/VIFOpenVSwitch.json");

/// A port of Neutron: its number, which is the last byte of all that it has, in network `a`, or in `b`, whose ports are plugged by way of a
/// Linux bridge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port(pub(crate) char, pub(crate) u8);

impl Port {
    pub(crate) fn id(self) -> String {
        format!("d1e40f{:02x}-{:x}1a4-4044-a4f3-90d82f400000", self.1, self.subnet())
    }

    pub(crate) fn mac(self) -> String {
        format!("fa:16:3e:00:{:02x}:{:02x}", self.subnet(), self.1)
    }

    fn subnet(self) -> u8 {
        self.0 as u8 - b'a' + 1
    }

    pub(crate) fn v4(self) -> String {
        format!("192.0.{}.{}", self.subnet(), self.1)
    }

    pub(crate) fn v6(self) -> String {
        format!("2001:db8:{}::{:x}", self.subnet(), self.1)
    }

    /// Its VIF, as Kuryr writes it.
    pub(crate) fn vif(self, active: bool) -> Value {
        let is_hybrid = self.0 == 'b';
        let mut vif: Value = serde_json::from_str(if is_hybrid { HYBRID } else { CAPTURED }).unwrap();
        let data = &mut vif[DATA];
        (data["id"], data["address"], data["active"]) = (json!(self.id()), json!(self.mac()), json!(active));
        data["vif_name"] = json!(format!("tap{}", &self.id()[..11]));
        data["port_profile"][DATA]["interface_id"] = json!(self.id());
        if is_hybrid {
            data["bridge_name"] = json!(format!("qbr{}", &self.id()[..11]));
        }
        let network = &mut data["network"][DATA];
        network["id"] = json!(format!("f68f9190-73eb-41c0-a565-4e9a99c9fe0{}", self.0));
        network["label"] = json!(format!("net-{}", self.0));
        let subnets = &mut network["subnets"][DATA]["objects"];
        let mut v6 = subnets[0].clone();
        let (v4, n) = (&mut subnets[0][DATA], self.subnet());
        let ip = |subnet: &mut Value, ip: String| subnet["ips"][DATA]["objects"][0][DATA]["address"] = json!(ip);
        (v4["cidr"], v4["gateway"]) = (json!(format!("192.0.{n}.0/24")), json!(format!("192.0.{n}.1")));
        let route = &mut v4["routes"][DATA]["objects"][0][DATA];
        (route["cidr"], route["gateway"]) = (json!(format!("198.51.{n}.0/24")), json!(format!("192.0.{n}.254")));
        ip(v4, self.v4());
        let six = &mut v6[DATA];
        (six["cidr"], six["gateway"], six["dns"]) = (json!(format!("2001:db8:{n}::/64")), Value::Null, json!([]));
        six["routes"][DATA]["objects"] = json!([]);
        ip(six, self.v6());
        subnets.as_array_mut().unwrap().push(v6);
        vif
    }
}

/// A node that plugs ports of Neutron, with definitions `net-a` and `net-b`, and its switch.
pub(crate) fn node(name: &str, settings: &str) -> (Node, Switch) {
    let node = Node::new(&Api::shared(), name, &format!("openstackVIFs: kuryrports\n{settings}"));
    node.api.define("openstack/kuryrports.yaml");
    for network in ["net-a", "net-b"] {
        let path = format!("/apis/k8s.cni.cncf.io/v1/namespaces/{}/network-attachment-definitions", node.namespace);
        let annotations = json!({"openstack.org/kuryr-config": r#"{"subnetId": "0c1d2e3f-0000-4000-8000-000000000001"}"#});
        let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": network, "namespace": node.namespace, "annotations": annotations}});
        node.api.must("POST", &path, &object);
    }
    node.restart();
    let mut switch = Switch::start(&node.host, &["br-int"]);
    switch.start_agent();
    // Else it follows those of its ports, whenever the switch comes to it.
    switch.vsctl("set interface br-int mtu_request=1500");
    (node, switch)
}

/// Where a pod's KuryrPort is.
fn path(pod: &Pod<'_>) -> String {
    format!("/apis/openstack.org/v1/namespaces/{}/kuryrports", pod.namespace)
}

fn vifs(ports: &[(&str, Port)], active: bool) -> Value {
    let one = |(key, port): &(&str, Port)| ((*key).to_owned(), json!({"default": *key == "eth0", "vif": port.vif(active)}));
    Value::Object(ports.iter().map(one).collect())
}

/// Binds ports for a pod: DOWN, until it says something else.
pub(crate) fn bind(node: &Node, pod: &Pod<'_>, ports: &[(&str, Port)]) {
    let object = json!({"apiVersion": "openstack.org/v1", "kind": "KuryrPort",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": {"kuryr.openstack.org/nodeName": node.name}},
        "spec": {"podUid": pod.uid, "podNodeName": node.name, "podStatic": false}, "status": {"vifs": vifs(ports, false)}});
    node.api.must("POST", &path(pod), &object);
}

/// Says that it makes no ports, and why.
pub(crate) fn refuse(node: &Node, pod: &Pod<'_>, why: &str) {
    bind(node, pod, &[]);
    let metadata = json!({"annotations": {"netloom.io/reason": why}});
    node.api.must("PATCH", &format!("{}/{}", path(pod), pod.name), &json!({"metadata": metadata}));
}

/// Says that they are ACTIVE, or not.
pub(crate) fn say(node: &Node, pod: &Pod<'_>, ports: &[(&str, Port)], active: bool) {
    node.api.must("PATCH", &format!("{}/{}", path(pod), pod.name), &json!({"status": {"vifs": vifs(ports, active)}}));
}

/// The IDs of Neutron's ports that the switch has, sorted.
pub(crate) fn plugged(switch: &Switch) -> Vec<String> {
    let listed = switch.vsctl("--bare --columns=external_ids find interface external_ids:iface-status=active");
    let id = |word: &str| word.strip_prefix("iface-id=").map(str::to_owned);
    let mut ids: Vec<String> = listed.split_whitespace().filter_map(id).collect();
    ids.sort();
    ids
}

/// An ADD while the controller waits for the ports to be plugged, and then says that they are ACTIVE.
pub(crate) fn attach(node: &Node, switch: &Switch, pod: &Pod<'_>, ports: &[(&str, Port)]) -> Outcome {
    let adding = pod.begin("ADD");
    node.until("the ports are plugged", || {
        let there = plugged(switch);
        ports.iter().all(|(_, port)| there.contains(&port.id()))
    });
    say(node, pod, ports, true);
    ended(adding)
}

/// What came of a call that was begun.
pub(crate) fn ended(call: Child) -> Outcome {
    Outcome::from(call.wait_with_output().unwrap())
}
