//! The names by which a device is found: its own, its hardware address, its place on a bus.

use netloom_tests::at;
use serde_json::{Value, json};

use super::{device, machine};
use crate::scene::config;

#[test]
fn by_hardware_address() {
    let (host, before) = machine();
    let mut config = device(json!({"hwaddr": "02:00:00:00:00:07"}));
    config.as_object_mut().unwrap().remove("device");
    let result = at(&host, "c1").add(&config);
    assert!(host.pings("c1", "10.7.0.254"));
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "by MAC");
}

/// A name of more than 15 bytes can only be an altname.
#[test]
fn by_a_long_altname() {
    let (host, _) = machine();
    host.sh("", "ip link property add dev dev0 altname enp0s20f0u1u4i5long");
    let before = host.traces();
    let config = device(json!({"device": "enp0s20f0u1u4i5long"}));
    let result = at(&host, "c1").add(&config);
    assert_eq!(host.link("c1", "eth0").unwrap().0["ifalias"], "dev0");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "by altname");
    let over = json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "enp0s20f0u1u4i5long"});
    let result = at(&host, "c1").add(&over);
    assert_eq!(at(&host, "c1").check(&over, &result).code, 0);
    at(&host, "c1").del(&over, &result);
}

/// An interface in use whose alias is what the configuration takes for its name.
#[test]
fn an_alias_is_no_name() {
    let (host, _) = machine();
    host.sh("", "ip link add eth0 type veth peer name eth1");
    host.sh("", "ip link set eth0 alias uplink up");
    let before = host.traces();
    let config = config("host-device", json!({"device": "uplink"}));
    assert_ne!(at(&host, "c1").call("ADD", "host-device", config.to_string()).code, 0);
    at(&host, "c1").del(&config, &Value::Null);
    host.expect_traces(&before, "DEL of a refused ADD");
}

/// Devices on a bus: of files that say what `/sys` says of hardware.
#[test]
fn fixture_of_sysfs_files_pci_auxiliary_and_userspace_drivers() {
    let (host, before) = machine();
    host.sh("", "mount -t tmpfs fixture /sys/bus");
    host.sh("", "mount -t tmpfs fixture /sys/devices/virtual");
    for dir in [
        "pci/drivers/ice",
        "pci/drivers/vfio-pci",
        "pci/devices/0000:03:00.0/net/dev0",
        "pci/devices/0000:03:00.1/virtio3/net/dev0",
        "pci/devices/0000:03:00.2",
        "pci/devices/0000:03:00.3",
        "auxiliary/devices/mlx5_core.sf.4/net/dev0",
    ] {
        host.run("", &["mkdir", "-p", &format!("/sys/bus/{dir}")]);
    }
    host.sh("", "mkdir -p /sys/devices/virtual/card/net/dev0");
    for (device, driver) in [("0", "ice"), ("1", "ice"), ("2", "vfio-pci")] {
        host.sh("", &format!("ln -s ../../drivers/{driver} /sys/bus/pci/devices/0000:03:00.{device}/driver"));
    }
    // The name alone is no proof: this /sys may be of a namespace that has another interface of that name.
    let shown = |index: &str| {
        for file in [format!("echo {index} >$net/ifindex"), "echo 02:00:00:00:00:07 >$net/address".to_owned()] {
            let folders = "/sys/bus/*/devices/*/net/dev0 /sys/bus/pci/devices/*/virtio3/net/dev0 /sys/devices/virtual/card/net/dev0";
            host.run("", &["sh", "-c", &format!("for net in {folders}; do {file}; done")]);
        }
    };
    shown("77");
    let other = at(&host, "c1").call("ADD", "host-device", config("host-device", json!({"pciBusID": "0000:03:00.0"})).to_string());
    assert!(other.message().contains("0000:03:00.0 is interface dev0, which is not in this network namespace"), "{other:?}");
    shown(&host.link("", "dev0").unwrap().0["ifindex"].to_string());
    host.sh("", "ln -s /sys/devices/virtual/card /sys/devices/virtual/detour");
    let detour = json!({"kernelpath": "/sys/devices/virtual/detour"});
    let detour = at(&host, "c1").call("ADD", "host-device", config("host-device", detour).to_string());
    assert!(detour.message().contains("contains symbolic links; use /sys/devices/virtual/card"), "{detour:?}");
    let by = |keys: Value| {
        let mut config = device(keys);
        config.as_object_mut().unwrap().remove("device");
        config
    };
    for keys in [
        json!({"pciBusID": "0000:03:00.0"}),
        json!({"pciBusID": "0000:03:00.1"}),
        json!({"kernelpath": "/sys/devices/virtual/card"}),
        json!({"runtimeConfig": {"deviceID": "0000:03:00.0"}}),
        json!({"pciBusID": "0000:03:00.2", "runtimeConfig": {"deviceID": "mlx5_core.sf.4"}}),
    ] {
        let config = by(keys.clone());
        let result = at(&host, "c1").add(&config);
        assert!(host.pings("c1", "10.7.0.254"), "{keys}");
        at(&host, "c1").del(&config, &result);
        host.expect_traces(&before, &keys.to_string());
    }
    // A program in the container drives it: addresses, and no interface.
    for keys in [
        json!({"pciBusID": "0000:03:00.2"}),
        json!({"runtimeConfig": {"deviceID": "0000:03:00.2"}}),
        json!({"kernelpath": "/sys/devices/virtual/card", "DPDKMode": true}),
    ] {
        let config = by(keys.clone());
        let result = at(&host, "c1").add(&config);
        assert_eq!(result["interfaces"], json!([{"name": "eth0", "sandbox": "/run/netns/c1"}]), "{keys}");
        assert_eq!(result["ips"].as_array().unwrap().len(), 2);
        assert!(host.link("", "dev0").is_some() && host.link("c1", "eth0").is_none());
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
        at(&host, "c1").del(&config, &result);
        host.expect_traces(&before, &keys.to_string());
    }
    let none = at(&host, "c1").call("ADD", "host-device", by(json!({"pciBusID": "0000:03:00.3"})).to_string());
    assert!(none.message().contains("0000:03:00.3 has no driver"), "{none:?}");
}
