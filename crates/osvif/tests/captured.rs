//! What os_vif 5.3.0 and Kuryr 10.0.0 wrote, `tests/captured/`, is read, and written again to the byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::net::IpAddr;

use netloom_osvif::{
    DEFAULT_INTERFACE, FixedIp, KuryrPort, List, Network, PodState, PortProfile, Rest, Route, Subnet, VhostUserMode, Vif, VifKind,
};
use serde_json::{Value, json};

const VIFS: [(&str, &str); 8] = [
    ("VIFOpenVSwitch", include_str!("captured/VIFOpenVSwitch.json")),
    ("VIFBridge", include_str!("captured/VIFBridge.json")),
    ("VIFVlanNested", include_str!("captured/VIFVlanNested.json")),
    ("VIFMacvlanNested", include_str!("captured/VIFMacvlanNested.json")),
    ("VIFVHostUser", include_str!("captured/VIFVHostUser.json")),
    ("VIFDPDKNested", include_str!("captured/VIFDPDKNested.json")),
    ("VIFHostDevice", include_str!("captured/VIFHostDevice.json")),
    ("VIFSriov", include_str!("captured/VIFSriov.json")),
];
const POD_STATE: &str = include_str!("captured/PodState.annotation");

fn captured(name: &str) -> Value {
    serde_json::from_str(VIFS.iter().find(|(of, _)| *of == name).unwrap().1).unwrap()
}

fn vif(name: &str) -> Vif {
    Vif::read(captured(name)).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn every_vif_is_written_as_it_was_read() {
    for (name, text) in VIFS {
        let vif = vif(name);
        assert_eq!(vif.kind.name(), name);
        assert_eq!(vif.write(), serde_json::from_str::<Value>(text).unwrap(), "{name}");
    }
}

/// A VIF made from nothing but what Neutron says is that which Kuryr made of the same port.
#[test]
fn a_new_vif_is_what_kuryr_writes() {
    let id = "d1e40f3e-d1a4-4044-a4f3-90d82f439e1c".to_owned();
    let subnet = Subnet {
        cidr: Some("192.0.2.0/24".parse().unwrap()),
        dns: Some(vec![ip("192.0.2.53")]),
        gateway: Some(ip("192.0.2.1")),
        ips: Some(List::from(vec![FixedIp::from(ip("192.0.2.146"))])),
        routes: Some(List::from(vec![Route {
            cidr: Some("198.51.100.0/24".parse().unwrap()),
            gateway: Some(ip("192.0.2.254")),
            rest: Rest::default(),
        }])),
        rest: Rest::default(),
    };
    let network = Network {
        id: "f68f9190-73eb-41c0-a565-4e9a99c9fe6c".to_owned(),
        label: Some("net-a".to_owned()),
        bridge: Some("br-int".to_owned()),
        mtu: Some(1450),
        multi_host: Some(false),
        should_provide_bridge: Some(false),
        should_provide_vlan: Some(false),
        subnets: Some(List::from(vec![subnet])),
        ..Network::default()
    };
    let new = Vif {
        address: Some("fa:16:3e:53:39:69".to_owned()),
        network: Some(network),
        plugin: Some("ovs".to_owned()),
        vif_name: Some("tapd1e40f3e-d1".to_owned()),
        active: Some(false),
        preserve_on_delete: Some(false),
        has_traffic_filtering: Some(true),
        port_profile: Some(PortProfile::OpenVSwitch { interface_id: Some(id.clone()), rest: Rest::default() }),
        kind: VifKind::OpenVSwitch { bridge_name: Some("br-int".to_owned()) },
        id,
        rest: Rest::default(),
    };
    assert_eq!(new.clone().write(), captured("VIFOpenVSwitch"));
    // A controller compares what is stored with what is to be: it would write for ever.
    assert_eq!(new, vif("VIFOpenVSwitch"));
    let mut network = new.network.clone().unwrap();
    network.bridge = None;
    let nested = Vif {
        network: Some(network),
        plugin: Some("noop".to_owned()),
        port_profile: None,
        kind: VifKind::VlanNested { vlan_id: 101 },
        ..new
    };
    assert_eq!(nested.write(), captured("VIFVlanNested"));
}

#[test]
fn each_kind_has_its_own_fields() {
    assert_eq!(vif("VIFBridge").kind, VifKind::Bridge { bridge_name: Some("qbrff49ca14-fa".to_owned()) });
    assert_eq!(vif("VIFVlanNested").kind, VifKind::VlanNested { vlan_id: 101 });
    let socket = VifKind::VhostUser { mode: VhostUserMode::Client, path: "/var/cni/vhostuser/vhu0c1d2e3f-00".to_owned() };
    assert_eq!(vif("VIFVHostUser").kind, socket);
    assert_eq!(vif("VIFSriov").kind, VifKind::Sriov { physnet: "physnet22".to_owned() });
    let network = vif("VIFVHostUser").network.unwrap();
    // `"mtu": null`: not known.
    assert_eq!((network.mtu, network.vlan, network.label.as_deref()), (None, Some(101), Some("nét \"b\"")));
    let addresses: Vec<IpAddr> = network.subnets.unwrap().objects[0].ips.as_ref().unwrap().objects.iter().map(|ip| ip.address).collect();
    assert_eq!(addresses, [ip("2001:db8:7::ff:fe00:1"), ip("::ffff:192.0.2.7")]);
}

#[test]
fn an_annotation_is_read_in_each_form_and_written_as_a_pod_state() {
    let state = PodState::parse(POD_STATE).unwrap();
    assert_eq!(state.additional_vifs.keys().collect::<Vec<_>>(), ["eth1", "eth2", "eth3", "eth4"]);
    assert_eq!(state.annotation(), POD_STATE);

    let one = PodState::parse(&captured("VIFOpenVSwitch").to_string()).unwrap();
    assert_eq!((one.default_vif.as_ref(), one.additional_vifs.len()), (Some(&vif("VIFOpenVSwitch")), 0));
    let by_name = json!({"eth0": captured("VIFOpenVSwitch"), "eth1": captured("VIFVlanNested")});
    let by_name = PodState::parse(&by_name.to_string()).unwrap();
    assert_eq!((by_name.default_vif.as_ref(), &by_name.additional_vifs["eth1"]), (Some(&vif("VIFOpenVSwitch")), &vif("VIFVlanNested")));
    for state in [one, by_name] {
        let text = state.clone().annotation();
        assert!(text.contains(r#""versioned_object.name": "PodState", "versioned_object.namespace": "os_vif""#), "{text}");
        let again = PodState::parse(&text).unwrap();
        assert_eq!((again.default_vif, again.additional_vifs), (state.default_vif, state.additional_vifs));
    }
}

/// A pod whose default network is not Neutron's has no default VIF: Kuryr had no such pods.
#[test]
fn a_pod_state_and_a_kuryr_port_say_the_same() {
    let state = PodState::parse(POD_STATE).unwrap();
    let vifs = state.into_vifs();
    assert_eq!(vifs.values().map(|vif| vif.default).collect::<Vec<_>>(), [true, false, false, false, false]);
    let (written, captured) = (PodState::of_vifs(&vifs).annotation(), serde_json::from_str::<Value>(POD_STATE).unwrap());
    let mut wanted = captured.as_object().unwrap().clone();
    // What os_vif notes of its own.
    wanted.remove("versioned_object.changes");
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), Value::from(wanted));
    let additional = vifs.into_iter().filter(|(_, vif)| !vif.default).collect();
    let text = PodState::of_vifs(&additional).annotation();
    assert!(!text.contains("default_vif"), "{text}");
    assert_eq!(PodState::parse(&text).unwrap().into_vifs(), additional);
}

#[test]
fn a_kuryr_port_keeps_what_is_not_known() {
    let object = json!({
        "apiVersion": "openstack.org/v1", "kind": "KuryrPort",
        "metadata": {"name": "pod", "namespace": "a", "resourceVersion": "7", "finalizers": ["kuryr.openstack.org/kuryrport-finalizer"]},
        "spec": {"podUid": "u-1", "podNodeName": "node-1", "podStatic": false, "later": 1},
        "status": {"projectId": "6c1f", "later": [1], "vifs": {
            "eth0": {"default": true, "vif": captured("VIFOpenVSwitch"), "later": {}},
            "eth1": {"default": false, "vif": captured("VIFHostDevice")},
        }},
    });
    let port = KuryrPort::read(object.clone()).unwrap();
    assert_eq!((port.spec.pod_uid.as_str(), port.spec.pod_static), ("u-1", Some(false)));
    assert!(port.status.vifs[DEFAULT_INTERFACE].default);
    assert_eq!(port.clone().write(), object);

    // The controller's next step changes one field, and nothing else.
    let mut wanted = object;
    wanted["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]["active"] = true.into();
    let mut port = port;
    port.status.vifs.get_mut("eth0").unwrap().vif.active = Some(true);
    assert_eq!(port.write(), wanted);

    let empty = json!({"spec": {"podUid": "u", "podNodeName": "n"}, "status": {"vifs": {}}});
    assert!(KuryrPort::read(empty).unwrap().status.vifs.is_empty());
}

/// What makes an object wrong.
type Change = fn(&mut Value);

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let changed = |change: Change| {
        let mut object = json!({"eth0": captured("VIFOpenVSwitch"), "eth1": captured("VIFVlanNested")});
        change(&mut object);
        PodState::parse(&object.to_string()).unwrap_err().to_string()
    };
    const DATA: &str = "versioned_object.data";
    let rows: [(Change, &str); 9] = [
        (|o| o["eth1"][DATA]["vlan_id"] = 4095.into(), r#"eth1.vlan_id: "4095" is not a VLAN ID, 1 to 4094"#),
        (|o| o["eth1"][DATA]["id"] = "../x".into(), r#"eth1.id: "../x" is not a UUID"#),
        (|o| o["eth1"][DATA]["address"] = "fa:16".into(), r#"eth1.address: "fa:16" is not a MAC address"#),
        (|o| o["eth1"][DATA]["active"] = "yes".into(), "eth1.active: must be true or false, but is a string"),
        (
            |o| o["eth1"][DATA]["network"]["versioned_object.version"] = "2.0".into(),
            r#"eth1.network: Network has version "2.0"; versions 1.x are supported"#,
        ),
        (
            |o| o["eth1"][DATA]["network"]["versioned_object.name"] = "Subnet".into(),
            r#"eth1.network: must be an object Network of os_vif, but is "Subnet""#,
        ),
        (
            |o| o["eth1"]["versioned_object.namespace"] = "nova".into(),
            r#"eth1.versioned_object.namespace: "nova" is not the namespace os_vif"#,
        ),
        (|o| o["eth0"] = Value::Null, "eth0: must be an object, but is null"),
        (|o| drop(o.as_object_mut().unwrap().remove("eth0")), "eth0: missing"),
    ];
    for (change, message) in rows {
        assert_eq!(changed(change), message);
    }
    let deep = |o: &mut Value| {
        let subnet = &mut o["eth0"][DATA]["network"][DATA]["subnets"][DATA]["objects"][0];
        subnet[DATA]["ips"][DATA]["objects"][0][DATA]["address"] = "192.0.2".into();
    };
    assert_eq!(changed(deep), r#"eth0.network.subnets.objects[0].ips.objects[0].address: "192.0.2" is not an IP address"#);
    assert!(PodState::parse("{").unwrap_err().to_string().starts_with("not valid JSON: "));
    assert_eq!(PodState::parse("3").unwrap_err().to_string(), "must be an object, but is a number");
}
