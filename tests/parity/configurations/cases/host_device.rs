//! `host-device`: a veth's end is the device; there is no other one on every machine.

use serde_json::{Value, json};

use super::addresses;
use crate::configurations::case::{Case, case};

/// The device and what it is like.
const DEVICE: &[&str] =
    &["ip link add dev0 address c2:b0:57:49:47:f0 type veth peer name far0", "ip link set dev0 mtu 1450", "ip link set far0 up"];

fn host_device(name: &'static str, keys: Value) -> Case {
    let mut config = json!({"ipam": addresses(true)});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    case("host-device", name, config).prepare(DEVICE)
}

pub(crate) fn cases() -> Vec<Case> {
    let device = || json!({"device": "dev0"});
    vec![
        host_device("device", device()),
        host_device("hwaddr", json!({"hwaddr": "c2:b0:57:49:47:f0"})),
        case("host-device", "layer 2", device()).prepare(DEVICE),
        host_device("a device that is up", device()).prepare(&["ip link set dev0 up"]),
        host_device("a device with an alias", device()).prepare(&["ip link set dev0 alias something"]),
        host_device("no device", json!({})),
        host_device("a device that is missing", json!({"device": "nowhere"})),
        host_device("a hardware address that nothing has", json!({"hwaddr": "02:00:00:00:00:99"})),
        host_device("kernelpath that is missing", json!({"kernelpath": "/sys/devices/nothing"})),
        host_device("kernelpath outside of /sys/devices", json!({"kernelpath": "/sys/class/net/dev0"})),
        host_device("pciBusID that is missing", json!({"pciBusID": "0000:ff:1f.7"})),
        host_device("deviceID that is missing", json!({"device": "dev0", "runtimeConfig": {"deviceID": "0000:ff:1f.7"}})),
        host_device("DPDKMode of a device that has a name", json!({"device": "dev0", "DPDKMode": true})),
        host_device("an interface name that is taken", device()).prepare(&["c1: ip link add eth0 type veth peer name other"]),
        host_device("CHECK: an address is gone", device()).spoil(&["c1: ip addr del 10.1.0.5/24 dev eth0"]),
        host_device("CHECK: the interface was set down", device()).spoil(&["c1: ip link set eth0 down"]),
        host_device("DEL that is told nothing", device()).blind_del(),
    ]
}
