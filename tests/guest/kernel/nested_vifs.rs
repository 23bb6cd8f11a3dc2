//! Pods of a node that is itself a virtual machine of OpenStack: nested ports of Neutron, as Kuryr writes them, on the machine's own port.
//!
//! ```text
//!   pod eth1: VLAN 101 on up0 --.                                                   .-- c1, in VLAN 101
//!   pod eth2: macvlan on up0 ----+-- up0 == up1, a trunk of br-ex (Open vSwitch) ---+--- c2, in VLAN 102
//!                                                                                   `-- c3, in that of packets without a tag
//! ```

use netloom_tests::{Api, Node, Pod, Switch, at};
use serde_json::{Value, json};

use crate::kernel::links::{config, fixed};

const DATA: &str = "versioned_object.data";
const VLAN: &str = include_str!("../../../crates/osvif/tests/captured/VIFVlanNested.json");
const MACVLAN: &str = include_str!("../../../crates/osvif/tests/captured/VIFMacvlanNested.json");

/// A captured VIF in network `n`, with this number as the last of its address and hardware address.
fn vif(captured: &str, n: u8, last: u8) -> Value {
    let mut vif: Value = serde_json::from_str(captured).unwrap();
    let data = &mut vif[DATA];
    data["id"] = json!(format!("d1e40f3e-d1a4-4044-a4f3-90d82f4000{last:02x}"));
    data["address"] = json!(format!("fa:16:3e:53:{n:02x}:{last:02x}"));
    let network = &mut data["network"][DATA];
    network["id"] = json!(format!("f68f9190-73eb-41c0-a565-4e9a99c900{n:02x}"));
    let subnet = &mut network["subnets"][DATA]["objects"][0][DATA];
    (subnet["cidr"], subnet["gateway"]) = (json!(format!("192.0.{n}.0/24")), Value::Null);
    subnet["routes"][DATA]["objects"] = json!([]);
    subnet["ips"][DATA]["objects"][0][DATA]["address"] = json!(format!("192.0.{n}.{last}"));
    vif
}

/// Writes a pod's KuryrPort: a VLAN, and a macvlan. Neither is said to be ACTIVE, as the machine's own port is.
fn bind(node: &Node, pod: &Pod<'_>, last: u8, vlan: u16) {
    let mut of_vlan = vif(VLAN, 101, last);
    of_vlan[DATA]["vlan_id"] = json!(vlan);
    let vifs = json!({"eth1": {"default": false, "vif": of_vlan}, "eth2": {"default": false, "vif": vif(MACVLAN, 7, last)}});
    let object = json!({"apiVersion": "openstack.org/v1", "kind": "KuryrPort",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": {"kuryr.openstack.org/nodeName": node.name}},
        "spec": {"podUid": pod.uid, "podNodeName": node.name, "podStatic": false}, "status": {"vifs": vifs}});
    node.api.must("POST", &format!("/apis/openstack.org/v1/namespaces/{}/kuryrports", pod.namespace), &object);
}

/// A node whose default route leads over `up0`, and a peer in each VLAN behind the trunk at its other end.
fn machine() -> (Node, Switch) {
    let node = Node::new(&Api::shared(), "nested", "openstackVIFs: kuryrports");
    node.api.define("openstack/kuryrports.yaml");
    for name in ["in-vlan", "beside"] {
        let path = format!("/apis/k8s.cni.cncf.io/v1/namespaces/{}/network-attachment-definitions", node.namespace);
        let metadata = json!({"name": name, "namespace": node.namespace, "annotations": {"openstack.org/kuryr-config": "{}"}});
        let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata});
        node.api.must("POST", &path, &object);
    }
    node.host.sh("", "ip addr add 198.18.0.2/24 dev up0");
    node.host.sh("", "ip route add default via 198.18.0.1");
    node.restart();
    let switch = Switch::start(&node.host, &[]);
    switch.vsctl("add-br br-ex");
    switch.vsctl("add-port br-ex up1 vlan_mode=native-untagged tag=1 trunks=1,101,102");
    for (container, vlan, address) in [("c1", 101, "192.0.101.1/24"), ("c2", 102, "192.0.101.2/24"), ("c3", 1, "192.0.7.1/24")] {
        node.host.container(container);
        at(&node.host, container).add(&config("ovs", json!({"bridge": "br-ex", "vlan": vlan, "ipam": fixed(address)})));
    }
    (node, switch)
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn nested_ports_on_a_trunk() {
    let (node, _switch) = machine();
    // Where `tuning` notes what a device had before.
    node.host.sh("", "mkdir -p /run/cni/tuning");
    let before = node.before();
    let one = node.pod("one", "in-vlan,beside");
    bind(&node, &one, 11, 101);
    one.must("ADD");
    let (host, inside) = (&node.host, one.sandbox());
    for (name, kind, mac) in [("eth1", "vlan", "fa:16:3e:53:65:0b"), ("eth2", "macvlan", "fa:16:3e:53:07:0b")] {
        let link = host.link(&inside, name).unwrap();
        assert_eq!((&link.0["linkinfo"]["info_kind"], link.mac(), link.mtu()), (&json!(kind), mac, 1450), "{name}");
    }
    for (address, container) in [("192.0.101.1", "c1"), ("192.0.7.1", "c3")] {
        assert!(host.pings(&inside, address) && host.tcp(&inside, container, address), "{container}");
    }
    assert!(host.silent(&inside, "192.0.101.2"), "it is in another VLAN");
    // A second pod, in the other VLAN.
    let two = node.pod("two", "in-vlan,beside");
    bind(&node, &two, 12, 102);
    two.must("ADD");
    assert!(host.pings(&two.sandbox(), "192.0.101.2") && host.silent(&two.sandbox(), "192.0.101.1"));
    assert!(host.pings(&two.sandbox(), "192.0.7.11"), "macvlans of one machine reach each other");
    for pod in [&one, &two] {
        assert_eq!(pod.check().code, 0, "{:?}", pod.check());
    }
    // What carries packets is compared, not only what is called so.
    host.sh(&inside, "ip link set eth1 address 02:00:00:00:00:77");
    assert!(one.check().message().contains("02:00:00:00:00:77"), "{:?}", one.check());
    [&one, &two].iter().for_each(|pod| drop(pod.must("DEL")));
    drop((one, two));
    node.expect(&before, "nested ports");
}
