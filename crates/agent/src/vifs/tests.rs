use serde_json::{Map, Value, json};

use super::*;
use crate::Settings;
use crate::settings::Vifs;

const OPEN_VSWITCH: &str = include_str!("../../../osvif/tests/captured/VIFOpenVSwitch.json");
const BRIDGE: &str = include_str!("../../../osvif/tests/captured/VIFBridge.json");
const VLAN: &str = include_str!("../../../osvif/tests/captured/VIFVlanNested.json");
const VHOST_USER: &str = include_str!("../../../osvif/tests/captured/VIFVHostUser.json");
const SRIOV: &str = include_str!("../../../osvif/tests/captured/VIFSriov.json");
const DPDK: &str = include_str!("../../../osvif/tests/captured/VIFDPDKNested.json");
const MACVLAN: &str = include_str!("../../../osvif/tests/captured/VIFMacvlanNested.json");

const ON_ENS3: Base<'_> = Base { link: Some("ens3"), resource: None };

fn vif(text: &str) -> Vif {
    Vif::read(serde_json::from_str(text).unwrap()).unwrap()
}

fn settings(more: &str) -> Vifs {
    Settings::parse(format!("openstackVIFs: kuryrports\n{more}").as_bytes()).unwrap().vifs
}

fn made(vif: &Vif, settings: &Vifs, is_default: bool) -> Value {
    let list = network(vif, settings, ON_ENS3, is_default).unwrap();
    serde_json::from_slice(&list.source).unwrap()
}

/// What Kuryr wrote becomes a configuration that anybody could have written.
#[test]
fn each_kind_is_a_plugins_configuration() {
    let ipam = json!({"type": "static", "addresses": [{"address": "192.0.2.146/24", "gateway": "192.0.2.1"}],
        "routes": [{"dst": "198.51.100.0/24", "gw": "192.0.2.254"}], "dns": {"nameservers": ["192.0.2.53"]}});
    let whole = |plugin: Value| json!({"cniVersion": "1.1.0", "name": "f68f9190-73eb-41c0-a565-4e9a99c9fe6c", "plugins": [plugin]});
    let ovs = json!({"type": "ovs", "bridge": "br-int", "iface_id": "d1e40f3e-d1a4-4044-a4f3-90d82f439e1c", "isolate": true, "mtu": 1450,
        "mac": "fa:16:3e:53:39:69", "ipam": ipam});
    assert_eq!(made(&vif(OPEN_VSWITCH), &settings(""), false), whole(ovs.clone()));
    let hybrid = &made(&vif(BRIDGE), &settings("openstackVLAN: none"), false)["plugins"][0];
    assert_eq!(hybrid.get("isolate"), None, "OVN sets no VLAN");
    let of_hybrid = [&hybrid["type"], &hybrid["bridge"], &hybrid["iface_id"]];
    assert_eq!(of_hybrid, ["ovs-hybrid", "br-int", "ff49ca14-fac9-48e7-be35-a7669977b345"]);
    let mut other = ovs;
    (other["mtu"], other["socket_file"]) = (json!(1400), json!("/run/ovs.sock"));
    let routes = other["ipam"]["routes"].as_array_mut().unwrap();
    routes.insert(0, json!({"dst": "0.0.0.0/0", "gw": "192.0.2.1"}));
    assert_eq!(made(&vif(OPEN_VSWITCH), &settings("openstackMTU: 1400\nopenstackSocket: /run/ovs.sock"), true), whole(other));
    let nested = |kind: Value| {
        let mut plugin = json!({"master": "ens3", "mtu": 1450, "mac": "fa:16:3e:53:39:69", "ipam": ipam});
        plugin.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        whole(plugin)
    };
    let mut vlan = nested(json!({"type": "vlan", "vlanId": 101}));
    vlan["plugins"][0].as_object_mut().unwrap().remove("mac");
    vlan["plugins"].as_array_mut().unwrap().push(json!({"type": "tuning", "mac": "fa:16:3e:53:39:69"}));
    assert_eq!(made(&vif(VLAN), &settings(""), false), vlan);
    assert_eq!(made(&vif(MACVLAN), &settings(""), false), nested(json!({"type": "macvlan", "mode": "bridge"})));
}

/// The socket must be where the node's settings say, and be called as the plugin calls it.
#[test]
fn a_socket_is_in_the_directory_of_the_settings() {
    let vif = vif(VHOST_USER);
    let list = |more: &str| network(&vif, &settings(more), Base::default(), false);
    let plugin = &made(&vif, &settings("openstackVhostDir: /var/cni/vhostuser"), false)["plugins"][0];
    let keys = ["type", "bridge", "socketDir", "mode", "iface_id", "isolate", "mac"].map(|key| &plugin[key]);
    let id = "0c1d2e3f-0000-4000-8000-00000000abcd";
    assert_eq!(
        keys,
        [
            &json!("ovs-vhost-user"),
            &json!("br-int"),
            &json!("/var/cni/vhostuser"),
            &json!("client"),
            &json!(id),
            &json!(true),
            &json!("fa:16:3e:00:00:01")
        ]
    );
    for more in ["", "openstackVhostDir: /var/cni", "openstackVhostDir: /var/cni/vhostuser/vhu0c1d2e3f-00"] {
        let refused = list(more).unwrap_err().to_string();
        let says = r#"its VIF names the socket "/var/cni/vhostuser/vhu0c1d2e3f-00": set openstackVhostDir to its directory"#;
        assert!(refused.starts_with(says) && refused.ends_with("must be vhu0c1d2e3f-00"), "{more}: {refused}");
    }
}

#[test]
fn what_is_not_plugged_says_why() {
    let refused = |vif: &Vif, base| network(vif, &settings("openstackBridges: [br-a, br-b]"), base, false).unwrap_err().to_string();
    let nothing = Base::default();
    assert!(refused(&vif(VLAN), nothing).contains("set openstackLink"));
    let bridge = refused(&vif(OPEN_VSWITCH), nothing);
    assert_eq!(bridge, r#"its VIF names the bridge "br-int", and the agent's openstackBridges are br-a, br-b: add it there"#);
    let device = include_str!("../../../osvif/tests/captured/VIFHostDevice.json");
    assert!(refused(&vif(device), ON_ENS3).starts_with("a VIF of kind VIFHostDevice is not supported"));
    let unknown = refused(&vif(SRIOV), ON_ENS3);
    assert!(unknown.starts_with(r#"no resource has devices on its physical network "physnet22": set openstackResources"#), "{unknown}");
    let of_default = network(&vif(SRIOV), &settings("openstackResources: {physnet22: example.com/vf}"), nothing, true).unwrap_err();
    assert_eq!(of_default, network::Unpluggable::DefaultFunction);
    let mut nowhere = vif(OPEN_VSWITCH);
    nowhere.kind = VifKind::OpenVSwitch { bridge_name: None };
    if let Some(network) = &mut nowhere.network {
        network.bridge = None;
    }
    assert!(refused(&nowhere, nothing).contains("names no bridge"));
}

/// Which device it is the kubelet says, or the cloud by its hardware address; how it is used, the settings.
#[test]
fn devices_are_configurations_of_plugins_too() {
    let resources = "openstackResources: {physnet22: example.com/vf}";
    let plugin = |vif: &Vif, more: &str, base| {
        let list = network(vif, &settings(more), base, false).unwrap();
        let list: Value = serde_json::from_slice(&list.source).unwrap();
        list["plugins"].as_array().unwrap().clone()
    };
    let of_card = |driver: Value| {
        let mut plugin = json!({"type": "sriov-vf", "capabilities": {"deviceID": true}, "vlan": 3501, "mtu": 1500, "mac": "fa:16:3e:53:39:69",
            "ipam": {"type": "static", "addresses": [{"address": "203.0.114.7/24", "gateway": "203.0.114.1"}], "dns": {"nameservers": ["192.0.2.53"]}}});
        plugin.as_object_mut().unwrap().extend(driver.as_object().unwrap().clone());
        vec![plugin]
    };
    let vif_of_card = vif(SRIOV);
    assert_eq!(plugin(&vif_of_card, resources, ON_ENS3), of_card(json!({})));
    let bound = format!("{resources}\nopenstackDrivers: {{example.com/vf: vfio-pci, example.com/other: igb_uio}}");
    assert_eq!(plugin(&vif_of_card, &bound, ON_ENS3), of_card(json!({"driver": "vfio-pci"})));
    // The definition's own resource wins, for its driver as well.
    let base = Base { resource: Some("example.com/other"), ..ON_ENS3 };
    assert_eq!(network::resource(&vif_of_card, &settings(&bound), base).unwrap(), Some("example.com/other"));
    assert_eq!(plugin(&vif_of_card, &bound, base), of_card(json!({"driver": "igb_uio"})));
    let nested = &plugin(&vif(DPDK), "openstackDPDKDriver: vfio-pci\nopenstackPCIDir: /var/pci_address", ON_ENS3)[0];
    let keys = ["type", "hwaddr", "driver", "pciDir", "mac", "mtu"].map(|key| nested.get(key).and_then(Value::as_str));
    assert_eq!(keys, [Some("dpdk-device"), Some("fa:16:3e:00:00:02"), Some("vfio-pci"), Some("/var/pci_address"), None, None]);
    assert_eq!(
        network::resource(&vif(DPDK), &settings(resources), base).unwrap(),
        None,
        "it may have a device of the kubelet's, and needs none"
    );
}

/// A subnet's own default route does not take the pod's away.
#[test]
fn a_default_route_of_a_subnet_is_left_out() {
    let text = OPEN_VSWITCH.replace("198.51.100.0/24", "0.0.0.0/0");
    assert_eq!(made(&vif(&text), &settings(""), false)["plugins"][0]["ipam"].get("routes"), None);
}

fn pod_vifs(keys: &[(&str, bool)]) -> BTreeMap<String, PodVif> {
    let one = |(key, default): &(&str, bool)| {
        let vif = Vif { vif_name: Some((*key).to_owned()), ..vif(OPEN_VSWITCH) };
        ((*key).to_owned(), PodVif { default: *default, vif: Box::new(vif), rest: Map::new() })
    };
    keys.iter().map(one).collect()
}

#[test]
fn selections_have_the_vifs_of_their_names_and_the_rest_in_order() {
    let selections = |text: &str| npwg::parse(text, "ns").unwrap().into_iter().enumerate().collect::<Vec<_>>();
    let keys = |vifs: &[(&str, bool)], text: &str, has_default| {
        let (default, of_selections) = matched(&pod_vifs(vifs), &selections(text), has_default)?;
        let all: Vec<String> = default.into_iter().chain(of_selections).map(|(key, _)| key).collect();
        Ok::<_, String>(all.join(" "))
    };
    let many = ["eth1", "eth2", "eth10"].map(|key| (key, false));
    assert_eq!(keys(&many, "a,b,c", false).as_deref(), Ok("eth1 eth2 eth10"));
    assert_eq!(keys(&many, "a@eth2,b,c", false).as_deref(), Ok("eth2 eth1 eth10"));
    // Kuryr ignores the name of a selection's interface.
    assert_eq!(keys(&many, "a,b@data,c", false).as_deref(), Ok("eth1 eth2 eth10"));
    let with_default = [("eth0", true), ("eth1", false)];
    assert_eq!(keys(&with_default, "a@eth0", false).as_deref(), Ok("eth1"));
    assert_eq!(keys(&with_default, "a", true).as_deref(), Ok("eth0 eth1"));
    let missing = |vifs: &[(&str, bool)], text: &str, has_default| keys(vifs, text, has_default).unwrap_err();
    assert_eq!(missing(&many, "a,b,c,d", false), "element 4 of its networks, ns/d, has no VIF yet");
    assert_eq!(missing(&many, "a", true), "its default network has no VIF yet");
}

#[test]
fn nested_ports_count_as_active() {
    let [switched, vlan, macvlan] = [OPEN_VSWITCH, VLAN, MACVLAN].map(vif);
    assert_eq!(
        [&switched, &vlan, &macvlan].map(|vif| (vif.active, is_active(vif))),
        [(Some(false), false), (Some(false), true), (Some(false), true)]
    );
    for device in [SRIOV, DPDK].map(vif) {
        assert!(is_active(&Vif { active: Some(false), ..device }));
    }
    assert!(is_active(&Vif { active: Some(true), ..switched }));
}
