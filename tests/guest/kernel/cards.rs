//! Network cards whose virtual functions, or which themselves, containers get: real drivers of the kernel on cards of qemu.
//!
//! ```text
//!   c1 eth0: function 0 of card0 (igb), VLAN 7 --- card0 ====wire==== line0 (virtio): 10.9.0.1; its VLAN 7: 10.7.0.1
//!   function 1 of card0, spare0 (virtio)           uio_pci_generic, for programs
//! ```
//!
//! Where qemu has no such card, `scripts/setup.sh guest` could not fetch one that has, and said so: what needs it is passed over here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use netloom_tests::{Api, Host, Node, Pod, at, attached_once, plugin_dir, until};
use serde_json::{Value, json};

use crate::kernel::links::{config, fixed};

const CARD: &str = "02:00:00:00:00:10";
const LINE: &str = "02:00:00:00:00:20";
const SPARE: &str = "fa:16:3e:00:00:02";
const MAC: &str = "02:00:00:00:00:55";
const DATA: &str = "versioned_object.data";
const SRIOV: &str = include_str!("../../../crates/osvif/tests/captured/VIFSriov.json");
const DPDK: &str = include_str!("../../../crates/osvif/tests/captured/VIFDPDKNested.json");

/// There is one of each: who uses them has his turn.
static TURN: Mutex<()> = Mutex::new(());

/// The cards in one machine's namespace. Those that have interfaces go back to the guest's own when that ends.
struct Cards {
    /// The PCI addresses of two virtual functions, of which the first one's interface is here, as `function0`.
    functions: [String; 2],
    /// That of `card0`.
    card: String,
    _turn: MutexGuard<'static, ()>,
}

/// In the guest's own namespace.
fn run(argv: &[&str]) -> String {
    let output = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
    assert!(output.status.success(), "{argv:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn named(mac: &str) -> Option<String> {
    let links: Value = serde_json::from_str(&run(&["ip", "-j", "link"])).unwrap();
    links.as_array().unwrap().iter().find(|link| link["address"] == mac).map(|link| link["ifname"].as_str().unwrap().to_owned())
}

fn device(id: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(id)
}

/// A card as a whole, for a program.
fn config_of_card(id: &str) -> Value {
    config("dpdk-device", json!({"pciBusID": id}))
}

/// The name of what a link of `/sys` leads to.
fn target(path: &Path) -> String {
    path.read_link().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

fn driver(id: &str) -> String {
    target(&device(id).join("driver"))
}

fn interface(id: &str) -> Option<String> {
    std::fs::read_dir(device(id).join("net")).ok()?.next().map(|entry| entry.unwrap().file_name().into_string().unwrap())
}

fn take(host: &Host, name: &str, as_name: &str) {
    run(&["ip", "link", "set", "dev", name, "netns", &host.pid().to_string(), "name", as_name]);
}

/// Moves a card with this hardware address into the machine.
fn take_card(host: &Host, mac: &str, as_name: &str) {
    until(&format!("there is a card {mac}"), || named(mac).is_some());
    take(host, &named(mac).unwrap(), as_name);
}

// === impl Cards ===

impl Cards {
    /// `None` where qemu has no card with virtual functions.
    fn of(host: &Host) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        ["virtio_net", "igb", "igbvf", "uio_pci_generic"].iter().for_each(|module| drop(run(&["/.guest/busybox", "modprobe", module])));
        until("the driver of virtio has its cards", || named(LINE).is_some());
        let Some(name) = named(CARD) else {
            println!("passed over: this qemu has no card with virtual functions (igb, qemu 8.0)");
            return None;
        };
        let folder = Path::new("/sys/class/net").join(&name).join("device");
        let count = folder.join("sriov_numvfs");
        if std::fs::read_to_string(&count).unwrap().trim() == "0" {
            std::fs::write(&count, "2").unwrap();
        }
        let functions = ["virtfn0", "virtfn1"].map(|function| target(&folder.join(function)));
        let card = target(&folder);
        until("both functions have interfaces", || functions.iter().all(|id| interface(id).is_some()));
        take(host, &interface(&functions[0]).unwrap(), "function0");
        take_card(host, CARD, "card0");
        take_card(host, LINE, "line0");
        for line in [
            // It shows the interfaces of this namespace.
            "mount -t sysfs sysfs /sys",
            "ip link set card0 up",
            "ip link set line0 up",
            "ip addr add 10.9.0.1/24 dev line0",
            "ip link add link line0 name line0.7 type vlan id 7",
            "ip link set line0.7 up",
            "ip addr add 10.7.0.1/24 dev line0.7",
        ] {
            host.sh("", line);
        }
        Some(Cards { functions, card, _turn: turn })
    }
}

/// What the card has for a virtual function: hardware address and VLAN.
fn settings(host: &Host, number: usize) -> (String, u64) {
    let shown = host.json("", "ip -j link show dev card0");
    let function = &shown[0]["vfinfo_list"][number];
    (function["address"].as_str().unwrap().to_owned(), function["vlan_list"][0]["vlan"].as_u64().unwrap_or_default())
}

/// Whether the card has nothing of a container for a virtual function. A driver asks its card for the address that it has chosen itself: the card may
/// tell that one.
fn is_given_back(host: &Host, number: usize) -> bool {
    let (mac, vlan) = settings(host, number);
    mac != MAC && vlan == 0
}

fn machine() -> Host {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|container| host.container(container));
    host
}

fn of_function(id: &str, keys: &Value) -> Value {
    let mut config = config("sriov-vf", json!({"pciBusID": id, "mac": MAC, "vlan": 7, "mtu": 1400, "ipam": fixed("10.7.0.2/24")}));
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_virtual_function_in_a_vlan() {
    let host = machine();
    let Some(cards) = Cards::of(&host) else { return };
    let id = cards.functions[0].as_str();
    let config = of_function(id, &json!({}));
    let before = attached_once(&host, &config);
    let other = settings(&host, 1);
    let result = at(&host, "c1").add(&config);
    assert_eq!(result["interfaces"], json!([{"name": "eth0", "mac": MAC, "mtu": 1400, "sandbox": "/run/netns/c1", "pciID": id}]));
    assert_eq!((settings(&host, 0), settings(&host, 1)), ((MAC.to_owned(), 7), other));
    assert!(host.link("", "function0").is_none() && host.link("c1", "eth0").unwrap().mac() == MAC);
    // The card adds the tag and takes it off again.
    assert!(host.pings("c1", "10.7.0.1") && host.tcp("c1", "", "10.7.0.1"));
    assert_eq!(host.json("", "ip -j neigh show 10.7.0.2")[0]["dev"], "line0.7");
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    for (change, back, says) in [
        ("vlan 8", "vlan 7", "its card has VLAN 8 with priority 0 for it, not 7 with 0"),
        ("mac 02:00:00:00:00:66", "mac 02:00:00:00:00:55", "its card has another hardware address for it than 02:00:00:00:00:55"),
    ] {
        host.sh("", &format!("ip link set dev card0 vf 0 {change}"));
        let check = at(&host, "c1").check(&config, &result);
        assert!(check.message().contains(says), "{change}: {check:?}");
        host.sh("", &format!("ip link set dev card0 vf 0 {back}"));
    }
    let other = at(&host, "c2").call("ADD", "sriov-vf", config.to_string());
    assert!(other.message().contains(&format!("PCI device {id} is that of container c1 (network net)")), "{other:?}");
    at(&host, "c1").del(&config, &result);
    at(&host, "c1").del(&config, &result);
    assert!(is_given_back(&host, 0), "{:?}", settings(&host, 0));
    host.expect_traces(&before, "a virtual function");

    // What is no virtual function.
    for (id, says) in [
        (cards.card.as_str(), "is no virtual function of a card"),
        ("0000:00:00.0", "is not a network card"),
        ("0000:77:00.0", "there is no PCI device"),
    ] {
        let refused = at(&host, "c1").call("ADD", "sriov-vf", of_function(id, &json!({})).to_string());
        assert!(refused.message().contains(says), "{id}: {refused:?}");
    }
    let whole = config_of_card(&cards.card);
    let refused = at(&host, "c1").call("ADD", "dpdk-device", whole.to_string());
    assert!(refused.message().contains("card0 is used by the host: it has 2 virtual functions"), "{refused:?}");
    host.expect_traces(&before, "refused devices");

    // GC, and a kill at each step: the function and its card are as they were.
    at(&host, "c1").add(&config);
    let mut all = config.clone();
    all["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(at(&host, "c1").call("GC", "sriov-vf", all.to_string()).code, 0);
    host.expect_traces(&before, "GC");
    for (verb, point) in [
        ("ADD", "card-noted"),
        ("ADD", "card-mac-unset"),
        ("ADD", "card-mac-set"),
        ("ADD", "sriov-set"),
        ("ADD", "device-lent"),
        ("DEL", "card-mac-set"),
        ("DEL", "card-set-back"),
        ("DEL", "card-restored"),
    ] {
        if verb == "DEL" {
            at(&host, "c1").add(&config);
        }
        let dying = host.cni(plugin_dir()).at("c1", "eth0").set("NETLOOM_CRASH_AT", &format!("{point}:1"));
        let outcome = dying.call(verb, "sriov-vf", config.to_string());
        assert_eq!(outcome.code, -1, "{verb} was to be killed at {point}: {outcome:?}");
        at(&host, "c1").del(&config, &Value::Null);
        assert!(is_given_back(&host, 0), "{verb} {point}: {:?}", settings(&host, 0));
        host.expect_traces(&before, point);
    }
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_virtual_function_for_a_program() {
    let host = machine();
    let Some(cards) = Cards::of(&host) else { return };
    let id = cards.functions[1].as_str();
    // As a container's runtime mounts it, and so the agent finds it in its pod.
    host.sh("", "mount -o remount,bind,ro /sys");
    let config = of_function(id, &json!({"driver": "uio_pci_generic", "mtu": 0}));
    // The kernel makes the interface of a function that is bound to its driver in the guest's own namespace.
    let back_in = || {
        until("the function has an interface", || interface(id).is_some());
        take(&host, &interface(id).unwrap(), "function1");
    };
    let elsewhere = at(&host, "c1").call("ADD", "sriov-vf", config.to_string());
    assert!(elsewhere.message().contains("with the driver igbvf has no interface here: it may be in another container"), "{elsewhere:?}");
    back_in();
    let result = at(&host, "c1").add(&config);
    assert_eq!(result["interfaces"], json!([{"name": "eth0", "mac": MAC, "sandbox": "/run/netns/c1", "pciID": id}]));
    assert_eq!((driver(id).as_str(), settings(&host, 1)), ("uio_pci_generic", (MAC.to_owned(), 7)));
    assert!(host.link("c1", "eth0").is_none() && host.link("", "function1").is_none());
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    let check = at(&host, "c1").check(&of_function(id, &json!({"driver": "vfio-pci", "mtu": 0})), &result);
    assert!(check.message().contains("has the driver uio_pci_generic, so that no program can drive it"), "{check:?}");
    at(&host, "c1").del(&config, &result);
    let is_back = |when: &str| {
        let files = ["/run/netloom/borrowed/pci", "/run/netloom/borrowed"].map(|dir| host.list(dir).len());
        assert_eq!((driver(id).as_str(), is_given_back(&host, 1), files), ("igbvf", true, [0, 1]), "{when}: {:?}", settings(&host, 1));
        assert_eq!(std::fs::read_to_string(device(id).join("driver_override")).unwrap().trim(), "(null)", "{when}");
    };
    is_back("DEL");
    for (verb, point) in [
        ("ADD", "sriov-set-driven"),
        ("ADD", "card-driver-chosen"),
        ("ADD", "card-bound"),
        ("DEL", "card-driver-chosen"),
        ("DEL", "card-bound"),
    ] {
        if host.link("", "function1").is_none() {
            back_in();
        }
        if verb == "DEL" {
            at(&host, "c1").add(&config);
        }
        let dying = host.cni(plugin_dir()).at("c1", "eth0").set("NETLOOM_CRASH_AT", &format!("{point}:1"));
        let outcome = dying.call(verb, "sriov-vf", config.to_string());
        assert_eq!(outcome.code, -1, "{verb} was to be killed at {point}: {outcome:?}");
        at(&host, "c1").del(&config, &Value::Null);
        is_back(point);
    }
    // A driver that is not loaded takes nothing, and the function is as it was.
    back_in();
    let absent = at(&host, "c1").call("ADD", "sriov-vf", of_function(id, &json!({"driver": "igb_uio", "mtu": 0})).to_string());
    assert!(
        absent.message().contains("driver igb_uio did not take PCI device") && absent.message().contains("modprobe igb_uio"),
        "{absent:?}"
    );
    is_back("a driver that is not there");
    // One that a device plugin has bound already stays so.
    let bind_by_hand = |driver: &str| {
        std::fs::write(device(id).join("driver_override"), driver).unwrap();
        std::fs::write(device(id).join("driver/unbind"), id).unwrap();
        std::fs::write("/sys/bus/pci/drivers_probe", id).unwrap();
    };
    bind_by_hand("uio_pci_generic");
    let bound = of_function(id, &json!({"mtu": 0}));
    let result = at(&host, "c1").add(&bound);
    assert_eq!((result["interfaces"][0]["pciID"].as_str(), settings(&host, 1)), (Some(id), (MAC.to_owned(), 7)));
    at(&host, "c1").del(&bound, &result);
    assert_eq!((driver(id).as_str(), is_given_back(&host, 1)), ("uio_pci_generic", true), "{:?}", settings(&host, 1));
    bind_by_hand("\n");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_card_for_a_program() {
    let host = machine();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    ["virtio_net", "uio_pci_generic"].iter().for_each(|module| drop(run(&["/.guest/busybox", "modprobe", module])));
    take_card(&host, SPARE, "spare0");
    host.sh("", "mount -t sysfs sysfs /sys");
    let config = config("dpdk-device", json!({"hwaddr": SPARE, "pciDir": "/run/pci", "ipam": fixed("10.8.0.2/24")}));
    host.sh("", "ip addr add 10.8.0.1/24 dev spare0");
    let used = at(&host, "c1").call("ADD", "dpdk-device", config.to_string());
    assert!(used.message().contains("spare0 is used by the host: it has the address 10.8.0.1/24"), "{used:?}");
    host.sh("", "ip addr flush dev spare0");
    let unknown = at(&host, "c1").call("ADD", "dpdk-device", {
        let mut other = config.clone();
        other["hwaddr"] = json!("02:00:00:00:00:99");
        other.to_string()
    });
    assert!(unknown.message().contains("no interface of this host has the hardware address 02:00:00:00:00:99"), "{unknown:?}");
    let add = || {
        let result = at(&host, "c1").add(&config);
        let id = result["interfaces"][0]["pciID"].as_str().unwrap().to_owned();
        (result, id)
    };
    let is_back = |id: &str, when: &str| {
        assert_eq!(
            (driver(id).as_str(), host.list("/run/pci").len(), host.list("/run/netloom/borrowed/pci").len()),
            ("virtio-pci", 0, 0),
            "{when}"
        );
        // The kernel makes its interface in the guest's own namespace.
        take_card(&host, SPARE, "spare0");
    };
    let (result, id) = add();
    assert_eq!(result["interfaces"], json!([{"name": "eth0", "mac": SPARE, "sandbox": "/run/netns/c1", "pciID": id}]));
    assert_eq!((driver(&id).as_str(), std::fs::read_to_string(host.path("/run/pci/c1-eth0")).unwrap()), ("uio_pci_generic", id.clone()));
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    host.write("/run/pci/c1-eth0", "0000:00:00.0");
    let check = at(&host, "c1").check(&config, &result);
    assert!(check.message().contains("/run/pci/c1-eth0 does not have its PCI address"), "{check:?}");
    at(&host, "c1").del(&config, &result);
    is_back(&id, "DEL");
    // GC finds it, and the file.
    let (_, id) = add();
    let mut all = config.clone();
    all["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(at(&host, "c1").call("GC", "dpdk-device", all.to_string()).code, 0);
    is_back(&id, "GC");
    for point in ["dpdk-bound", "dpdk-told"] {
        let dying = host.cni(plugin_dir()).at("c1", "eth0").set("NETLOOM_CRASH_AT", point);
        let outcome = dying.call("ADD", "dpdk-device", config.to_string());
        assert_eq!(outcome.code, -1, "ADD was to be killed at {point}: {outcome:?}");
        at(&host, "c1").del(&config, &Value::Null);
        is_back(&id, point);
    }
}

/// A captured VIF of this hardware address, with one address in a network of 24 bits.
fn vif(captured: &str, mac: &str, address: &str) -> Value {
    let mut vif: Value = serde_json::from_str(captured).unwrap();
    let data = &mut vif[DATA];
    (data["address"], data["active"]) = (json!(mac), json!(false));
    let network = &mut data["network"][DATA];
    (network["vlan"], network["should_provide_vlan"], network["mtu"]) = (json!(7), json!(true), json!(1400));
    let subnet = &mut network["subnets"][DATA]["objects"][0][DATA];
    let (net, _) = address.rsplit_once('.').unwrap();
    (subnet["cidr"], subnet["gateway"], subnet["dns"]) = (json!(format!("{net}.0/24")), Value::Null, json!([]));
    subnet["routes"][DATA]["objects"] = json!([]);
    let ips = subnet["ips"][DATA]["objects"].as_array_mut().unwrap();
    ips.truncate(1);
    ips[0][DATA]["address"] = json!(address);
    vif
}

/// Writes a pod's KuryrPort with one VIF, which is not said to be ACTIVE.
fn bind(node: &Node, pod: &Pod<'_>, vif: &Value) {
    let object = json!({"apiVersion": "openstack.org/v1", "kind": "KuryrPort",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": {"kuryr.openstack.org/nodeName": node.name}},
        "spec": {"podUid": pod.uid, "podNodeName": node.name, "podStatic": false},
        "status": {"vifs": {"eth1": {"default": false, "vif": vif}}}});
    node.api.must("POST", &format!("/apis/openstack.org/v1/namespaces/{}/kuryrports", pod.namespace), &object);
}

/// Pods of OpenStack: `VIFSriov`, with the device that the kubelet's own file says, and `VIFDPDKNested`, with that of its hardware address.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn ports_of_neutron_on_cards() {
    let settings_of_vifs = "openstackVIFs: kuryrports\nopenstackResources: {physnet22: example.com/vf}\nopenstackPCIDir: /run/pci";
    let node = Node::new(&Api::shared(), "cards", settings_of_vifs);
    let Some(cards) = Cards::of(&node.host) else { return };
    let host = &node.host;
    node.api.define("openstack/kuryrports.yaml");
    let path = format!("/apis/k8s.cni.cncf.io/v1/namespaces/{}/network-attachment-definitions", node.namespace);
    let metadata = json!({"name": "fast", "namespace": node.namespace, "annotations": {"openstack.org/kuryr-config": "{}"}});
    node.api.must("POST", &path, &json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata}));
    node.restart();
    let none = node.pod("none", "fast");
    bind(&node, &none, &vif(SRIOV, MAC, "10.7.0.4"));
    let refused = none.call("ADD");
    assert!(refused.message().contains("the pod has no device of the resource example.com/vf: request it"), "{refused:?}");
    drop(none);

    let one = node.pod("one", "fast");
    let id = &cards.functions[0];
    let entry =
        json!({"PodUID": one.uid, "ContainerName": "c", "ResourceName": "example.com/vf", "DeviceIDs": {"0": [id]}, "AllocResp": ""});
    let checkpoint = json!({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1});
    host.write("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", &checkpoint.to_string());
    bind(&node, &one, &vif(SRIOV, MAC, "10.7.0.5"));
    one.must("ADD");
    one.must("DEL");
    one.renew();
    let before = node.before();
    one.must("ADD");
    assert_eq!(settings(host, 0), (MAC.to_owned(), 7));
    let link = host.link(&one.sandbox(), "eth1").unwrap();
    assert_eq!((link.mac(), link.mtu()), (MAC, 1400));
    assert!(host.pings(&one.sandbox(), "10.7.0.1"));
    assert_eq!(one.check().code, 0, "{:?}", one.check());
    node.until("the status has it", || one.status()[1]["ips"] == json!(["10.7.0.5"]));
    // A restarted agent has it in its records, and a DEL needs no API server.
    node.restart();
    node.api_proxy.shut();
    one.must("DEL");
    node.api_proxy.open();
    node.until("the card has nothing of the pod for it", || is_given_back(host, 0));
    node.expect(&before, "a virtual function of Neutron");
    drop(one);

    take_card(host, SPARE, "spare0");
    let two = node.pod("two", "fast");
    bind(&node, &two, &vif(DPDK, SPARE, "10.8.0.5"));
    two.must("ADD");
    let file = format!("/run/pci/{}-eth1", two.sandbox());
    let id = std::fs::read_to_string(host.path(&file)).unwrap();
    assert_eq!((driver(&id).as_str(), host.link(&two.sandbox(), "eth1").is_none()), ("uio_pci_generic", true));
    assert_eq!(two.check().code, 0, "{:?}", two.check());
    two.must("DEL");
    assert_eq!((driver(&id).as_str(), host.path(&file).exists()), ("virtio-pci", false));
}
