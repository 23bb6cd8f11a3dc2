//! A port of Neutron becomes the VIF that Kuryr 10.0.0 made of the same port, to the byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use netloom_binding::{Refused, nested_vif, vif};
use openstack::resource::{Network, Port, Subnet};
use osvif::VifKind;
use serde_json::{Value, json};

/// As Neutron 21 answers, what nobody reads left out.
fn port() -> Value {
    json!({
        "id": "d1e40f3e-d1a4-4044-a4f3-90d82f439e1c", "network_id": "f68f9190-73eb-41c0-a565-4e9a99c9fe6c",
        "mac_address": "fa:16:3e:53:39:69", "status": "DOWN", "tags": [], "trunk_details": null,
        "fixed_ips": [{"subnet_id": "s-1", "ip_address": "192.0.2.146"}, {"subnet_id": "s-2", "ip_address": "2001:db8::7"}],
        "binding:host_id": "node-1", "binding:vif_type": "ovs",
        "binding:vif_details": {"port_filter": true, "connectivity": "l2", "ovs_hybrid_plug": false, "datapath_type": "netdev", "bridge_name": "br-int"},
    })
}

fn translate(port: Value, network: Value, bridge: Option<&str>) -> Result<Value, Refused> {
    let subnet = json!({
        "id": "s-1", "network_id": "f68f9190-73eb-41c0-a565-4e9a99c9fe6c", "cidr": "192.0.2.0/24", "gateway_ip": "192.0.2.1",
        "dns_nameservers": ["192.0.2.53"], "host_routes": [{"destination": "198.51.100.0/24", "nexthop": "192.0.2.254"}],
    });
    let port: Port = serde_json::from_value(port).unwrap();
    let (network, subnet): (Network, Subnet) = (serde_json::from_value(network).unwrap(), serde_json::from_value(subnet).unwrap());
    vif(&port, &network, &[&subnet], bridge).map(osvif::Vif::write)
}

fn network() -> Value {
    json!({"id": "f68f9190-73eb-41c0-a565-4e9a99c9fe6c", "name": "net-a", "mtu": 1450, "subnets": ["s-1"],
        "provider:network_type": "vxlan", "provider:segmentation_id": 7})
}

#[test]
fn a_vif_is_what_kuryr_makes_of_the_port() {
    let captured: Value = serde_json::from_str(include_str!("../../osvif/tests/captured/VIFOpenVSwitch.json")).unwrap();
    assert_eq!(translate(port(), network(), None).unwrap(), captured);

    let hybrid: Value = serde_json::from_str(include_str!("../../osvif/tests/captured/VIFBridge.json")).unwrap();
    let mut other = port();
    other["id"] = "ff49ca14-fac9-48e7-be35-a7669977b345".into();
    other["mac_address"] = "fa:16:3e:27:10:4c".into();
    other["fixed_ips"][0]["ip_address"] = "192.0.2.134".into();
    other["binding:vif_details"]["ovs_hybrid_plug"] = true.into();
    assert_eq!(translate(other, network(), None).unwrap(), hybrid);

    let mut active = port();
    (active["status"], active["binding:vif_details"]["bridge_name"]) = ("ACTIVE".into(), Value::Null);
    let mut provider = network();
    provider["provider:network_type"] = "vlan".into();
    let written = translate(active.clone(), provider, Some("br-own")).unwrap();
    let data = &written["versioned_object.data"];
    let of_network = &data["network"]["versioned_object.data"];
    assert_eq!((&data["active"], &data["bridge_name"], &of_network["bridge"]), (&json!(true), &json!("br-own"), &json!("br-own")));
    assert_eq!((&of_network["vlan"], &of_network["should_provide_vlan"]), (&json!(7), &json!(true)));
    let refused = translate(active, network(), None).unwrap_err().to_string();
    assert!(refused.ends_with("has no bridge_name, and the setting [neutron_defaults] ovs_bridge is missing"), "{refused}");
}

#[test]
fn a_virtual_function_has_its_physical_network() {
    let mut captured: Value = serde_json::from_str(include_str!("../../osvif/tests/captured/VIFSriov.json")).unwrap();
    let mut function = port();
    (function["status"], function["binding:vif_type"], function["fixed_ips"]) = (json!("ACTIVE"), json!("hw_veb"), json!([]));
    function["binding:vif_details"] = json!({"port_filter": false, "connectivity": "l2"});
    let refused = translate(function.clone(), network(), None).unwrap_err().to_string();
    assert!(refused.contains("has no provider:physical_network"), "{refused}");
    let provider = json!({"id": "f68f9190-73eb-41c0-a565-4e9a99c9fe6c", "name": "vlan-sriov-net", "mtu": 1500,
        "provider:network_type": "vlan", "provider:segmentation_id": 3501, "provider:physical_network": "physnet22"});
    let mut written = translate(function, provider, None).unwrap();
    // The capture is of another subnet, and has what no agent reads: the pod's names and a mode.
    for vif in [&mut captured, &mut written] {
        let data = vif["versioned_object.data"].as_object_mut().unwrap();
        ["mode", "pod_link", "pod_name", "vlan_name"].iter().for_each(|key| drop(data.remove(*key)));
        data["network"]["versioned_object.data"].as_object_mut().unwrap().remove("subnets");
    }
    assert_eq!(written, captured);
}

#[test]
fn a_nested_vif_is_what_kuryr_makes_of_the_port() {
    let subnet = json!({
        "id": "s-1", "network_id": "f68f9190-73eb-41c0-a565-4e9a99c9fe6c", "cidr": "192.0.2.0/24", "gateway_ip": "192.0.2.1",
        "dns_nameservers": ["192.0.2.53"], "host_routes": [{"destination": "198.51.100.0/24", "nexthop": "192.0.2.254"}],
    });
    let (network, subnet): (Network, Subnet) = (serde_json::from_value(network()).unwrap(), serde_json::from_value(subnet).unwrap());
    let port: Port = serde_json::from_value(port()).unwrap();
    let of = |kind: VifKind| nested_vif(&port, &network, &[&subnet], kind).unwrap().write();
    let captured: Value = serde_json::from_str(include_str!("../../osvif/tests/captured/VIFVlanNested.json")).unwrap();
    assert_eq!(of(VifKind::VlanNested { vlan_id: 101 }), captured);
    let mut macvlan: Value = serde_json::from_str(include_str!("../../osvif/tests/captured/VIFMacvlanNested.json")).unwrap();
    // Kuryr writes it twice: at first as it was captured, and at once again, as Neutron never reports such a port.
    macvlan["versioned_object.data"]["active"] = true.into();
    assert_eq!(of(VifKind::MacvlanNested), macvlan);
}

#[test]
fn what_cannot_be_plugged_is_told_with_its_reason() {
    let with = |key: &str, value: &str| {
        let mut port = port();
        port[key] = value.into();
        translate(port, network(), None).unwrap_err().to_string()
    };
    let id = "d1e40f3e-d1a4-4044-a4f3-90d82f439e1c";
    let failed =
        format!("Neutron cannot bind the port of {id} on node-1: no mechanism driver serves this host; check that its agent is alive");
    assert_eq!(with("binding:vif_type", "binding_failed"), failed);
    let bridge = format!("port {id} has vif_type \"bridge\", which is not supported: use an Open vSwitch mechanism driver");
    assert_eq!(with("binding:vif_type", "bridge"), bridge);
    let mut strange = port();
    strange["fixed_ips"][0]["ip_address"] = "192.0.2".into();
    assert_eq!(translate(strange, network(), None).unwrap_err().to_string(), "fixed_ips of Neutron is \"192.0.2\", which cannot be read");
}
