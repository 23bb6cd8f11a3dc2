//! What is refused, and that it takes nothing from anybody.

use netloom_tests::{at, plugin_dir};
use serde_json::{Value, json};

use super::{device, machine};
use crate::scene::config;

/// What cannot be lent is refused, and nothing stays. STATUS says the same before.
#[test]
fn refusals_leave_nothing() {
    let (host, before) = machine();
    for (keys, says, code) in [
        (json!({"device": ""}), "specify either \"device\", \"hwaddr\", \"kernelpath\" or \"pciBusID\"", None),
        (json!({"device": "nope"}), "there is no interface nope", Some(50)),
        (json!({"device": "lo"}), "loopback", Some(7)),
        (json!({"device": "", "hwaddr": "02:00:00:00:00:08"}), "02:00:00:00:00:08", Some(50)),
        (json!({"device": "", "hwaddr": "x"}), "hwaddr", Some(7)),
        (json!({"device": "", "kernelpath": "/etc"}), "must be absolute and begin with /sys/devices/", Some(7)),
        (json!({"device": "", "kernelpath": "/sys/devices/../../etc"}), "must be absolute", Some(7)),
        (json!({"device": "", "kernelpath": "/sys/devices/virtual/nope"}), "kernelpath: device /sys/devices/virtual/nope", Some(50)),
        (
            json!({"device": "", "kernelpath": "/sys/devices/virtual/mem"}),
            "kernelpath: device /sys/devices/virtual/mem has no interface",
            Some(50),
        ),
        (json!({"device": "", "pciBusID": "99:00.0"}), "with its domain, which lspci leaves out, it would be 0000:99:00.0", Some(50)),
        (json!({"device": "", "pciBusID": "../x"}), "there is no PCI device", Some(50)),
        (json!({"runtimeConfig": {"deviceID": "0000:00:99.9"}}), "DeviceID 0000:00:99.9 not found or unsupported", None),
    ] {
        let config = device(keys.clone());
        let add = at(&host, "c1").call("ADD", "host-device", config.to_string());
        assert!(add.message().contains(says), "{keys}: {add:?}");
        if let Some(code) = code {
            let status = host.cni(plugin_dir()).call("STATUS", "host-device", config.to_string());
            assert!(status.error()["code"] == code && status.message().contains(says), "{keys}: {status:?}");
        }
        // Whatever the device became, its container can be deleted.
        at(&host, "c1").del(&config, &Value::Null);
        host.expect_traces(&before, says);
    }
    assert_eq!(host.cni(plugin_dir()).call("STATUS", "host-device", device(json!({})).to_string()).code, 0);
}

/// Two networks give the same container the same interface's name: the second is refused, and its DEL takes nothing away.
#[test]
fn a_refused_attachment_takes_nothing_from_another() {
    let (host, before) = machine();
    host.sh("", "ip link add db0 type veth peer name db1");
    let with_db = host.traces();
    let first = device(json!({}));
    let result = at(&host, "c1").add(&first);
    for keys in [json!({"device": "db0"}), json!({"device": "dev0"}), json!({"device": "", "hwaddr": "02:00:00:00:00:07"})] {
        let during = host.traces();
        let mut second = config("host-device", keys);
        second["name"] = json!("netb");
        assert_ne!(at(&host, "c1").call("ADD", "host-device", second.to_string()).code, 0);
        at(&host, "c1").del(&second, &Value::Null);
        host.expect_traces(&during, "DEL of a refused ADD");
    }
    at(&host, "c1").set("CNI_NETNS", "").del(&first, &result);
    host.expect_traces(&with_db, "DEL of the first");
    host.sh("", "ip link del db0");
    host.expect_traces(&before, "all");
}

/// `a_b` and `c`, and `a` and `b_c`.
#[test]
fn names_that_look_alike_when_they_are_joined() {
    let (host, _) = machine();
    ["a_b", "a"].iter().for_each(|c| host.container(c));
    for (name, mtu) in [("up1", "1300"), ("up2", "1350")] {
        host.sh("", &format!("ip link add {name} mtu {mtu} type veth peer name {name}p"));
    }
    let before = host.traces();
    let pairs = [("a_b", "c", "up1"), ("a", "b_c", "up2")];
    for (container, ifname, device) in pairs {
        host.cni(plugin_dir()).at(container, ifname).add(&config("host-device", json!({"device": device})));
    }
    for (container, ifname, device) in pairs {
        host.cni(plugin_dir()).at(container, ifname).del(&config("host-device", json!({"device": device})), &Value::Null);
    }
    host.expect_traces(&before, "two loans");
}

/// The container's links do not choose what goes to the host.
#[test]
fn a_container_cannot_pass_off_another_link() {
    let (host, before) = machine();
    let config = device(json!({}));
    for evil in [
        "ip link add evil type veth peer name evilp && ip link set eth0 group 0 && ip link set evil group $G alias dev0",
        "ip link set eth0 group 0 alias x",
        "ip link set eth0 name other group 0 && ip link add eth0 type veth peer name evilp && ip link set eth0 group $G alias dev0",
    ] {
        for netns in ["/run/netns/c1", ""] {
            let result = at(&host, "c1").add(&config);
            let group = host.link("c1", "eth0").unwrap().0["group"].as_str().unwrap().to_owned();
            host.run("c1", &["sh", "-ec", &evil.replace("$G", &group)]);
            at(&host, "c1").set("CNI_NETNS", netns).del(&config, &result);
            host.run("c1", &["sh", "-c", "ip link del evilp 2>/dev/null; true"]);
            host.expect_traces(&before, evil);
        }
    }
    // Nothing was lent: the container's own interface stays there, whatever its alias.
    for alias in ["uplink0", "dev0"] {
        host.sh("c1", "ip link add eth0 type veth peer name x");
        host.sh("c1", &format!("ip link set eth0 alias {alias}"));
        let during = host.traces();
        assert_ne!(at(&host, "c1").call("ADD", "host-device", config.to_string()).code, 0);
        at(&host, "c1").del(&config, &Value::Null);
        host.expect_traces(&during, "DEL of a refused ADD");
        host.sh("c1", "ip link del eth0");
    }
}

/// STATUS and a second ADD know who has it, however it is named.
#[test]
fn a_device_that_is_lent() {
    let (host, _) = machine();
    host.sh("", "ip link property add dev dev0 altname enp0s20f0u1u4i5long");
    let before = host.traces();
    let config = device(json!({}));
    let result = at(&host, "c1").add(&config);
    for keys in [json!({}), json!({"device": "enp0s20f0u1u4i5long"}), json!({"device": "", "hwaddr": "02:00:00:00:00:07"})] {
        let same = device(keys.clone());
        let status = at(&host, "").call("STATUS", "host-device", same.to_string());
        assert_eq!(status.code, 0, "{keys}: {status:?}");
        let second = at(&host, "c2").call("ADD", "host-device", same.to_string());
        assert!(second.message().contains("container c1 has it as eth0"), "{keys}: {second:?}");
    }
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a device that is lent");
}
