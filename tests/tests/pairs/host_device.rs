//! `host-device`: an interface goes into a container and comes back as it was.

use netloom_tests::{Host, Traces, peers_dir, plugin_dir};
use serde_json::{Value, json};

use crate::{at, config, ips};

/// A machine with an interface `dev0` that is in use: up, with settings of its own. Its other end is in `far`.
fn machine() -> (Host, Traces) {
    let host = Host::new();
    ["c1", "c2", "far"].iter().for_each(|c| host.container(c));
    host.sh("", "ip link add dev0 address 02:00:00:00:00:07 type veth peer name far0 netns far");
    host.sh("", "ip link set dev0 mtu 1400 group 77 txqlen 55 alias my-uplink up");
    host.sh("far", "ip link set far0 mtu 1400 up");
    host.sh("far", "ip addr add 10.7.0.254/24 dev far0");
    host.sh("far", "ip addr add fd00:7::fe/64 dev far0 nodad");
    // The directories of loans and leases stay.
    let before = attached_once(&host, &device(json!({})));
    (host, before)
}

fn attached_once(host: &Host, config: &Value) -> Traces {
    let result = at(host, "c1").add(config);
    at(host, "c1").del(config, &result);
    host.traces()
}

fn device(keys: Value) -> Value {
    let ranges = json!([[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd00:7::/64"}]]);
    let mut config = config("host-device", json!({"device": "dev0", "ipam": {"type": "host-local", "ranges": ranges}}));
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// Moves the container's interface to the host by hand, as the kernel does with hardware when a namespace ends.
fn returned_by_the_kernel(host: &Host, container: &str) {
    host.sh(container, &format!("ip link set eth0 netns {}", host.pid()));
    host.sh("", &format!("ip netns del {container}"));
}

#[test]
fn packets_and_everything_comes_back() {
    let (host, before) = machine();
    let config = device(json!({}));
    let result = at(&host, "c1").add(&config);
    let link = host.link("c1", "eth0").unwrap();
    assert_eq!((link.mac(), &link.0["ifalias"], link.has("UP")), ("02:00:00:00:00:07", &json!("dev0"), true));
    assert_eq!(result["interfaces"], json!([{"name": "eth0", "mac": "02:00:00:00:00:07", "mtu": 1400, "sandbox": "/run/netns/c1"}]));
    assert!(host.link("", "dev0").is_none());
    for address in ["10.7.0.254", "fd00:7::fe"] {
        assert!(host.pings("c1", address) && host.tcp("c1", "far", address) && host.udp("c1", "far", address), "{address}");
    }
    assert!(host.tcp("far", "c1", &ips(&result)[0]));
    let checked = at(&host, "c1").check(&config, &result);
    assert_eq!(checked.code, 0, "{checked:?}");
    // What the container made of it does not stay.
    host.sh("c1", "ip link set eth0 address 02:00:00:00:00:99 mtu 1300 alias mine");
    host.sh("c1", "ip link set eth0 down");
    host.sh("c1", "ip link set eth0 name other");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a device that was lent");
}

#[test]
fn a_device_that_was_down_stays_down() {
    let (host, _) = machine();
    host.sh("", "ip link add ifb7 type ifb");
    let config = config("host-device", json!({"device": "ifb7"}));
    let before = attached_once(&host, &config);
    assert!(!host.link("", "ifb7").unwrap().has("UP"));
    let result = at(&host, "c1").add(&config);
    assert!(host.link("c1", "eth0").unwrap().has("UP"));
    assert!(result.get("ips").is_none_or(|ips| ips == &json!([])), "{result}");
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a device without addresses");
}

/// The host has an `eth0`, too, and the container one with the device's name.
#[test]
fn names_that_are_taken_on_the_way_do_no_harm() {
    let (host, _) = machine();
    host.sh("", "ip link add eth0 type veth peer name eth1");
    host.sh("c1", "ip link add index 100 name dev0 type veth peer name dev1 index 101");
    let before = host.traces();
    let config = device(json!({}));
    let result = at(&host, "c1").add(&config);
    assert!(host.pings("c1", "10.7.0.254"));
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "names that are taken");
    // The container's name is taken: refused before anything is done.
    host.sh("c1", "ip link add eth0 type veth peer name x");
    let before = host.traces();
    let refused = at(&host, "c1").call("ADD", "host-device", config.to_string());
    assert!(refused.message().contains("interface name eth0 already exists in the container"), "{refused:?}");
    host.expect_traces(&before, "a refused ADD");
}

#[test]
fn del_with_little_and_del_again() {
    let (host, before) = machine();
    let config = device(json!({}));
    for netns in ["", "/run/netns/gone", "/run/netns/c1"] {
        for told in [true, false] {
            let result = at(&host, "c1").add(&config);
            let prev = if told { result } else { Value::Null };
            for again in ["", "again "] {
                at(&host, "c1").set("CNI_NETNS", netns).del(&config, &prev);
                host.expect_traces(&before, &format!("DEL {again}with namespace {netns:?}, result told: {told}"));
            }
        }
    }
}

/// The namespace is gone, and the kernel gave the device back under the container's name.
#[test]
fn a_device_that_the_kernel_gave_back() {
    let (host, before) = machine();
    let config = device(json!({}));
    for (renamed, told) in [(false, true), (true, false)] {
        let result = at(&host, "c1").add(&config);
        returned_by_the_kernel(&host, "c1");
        if renamed {
            host.sh("", "ip link set eth0 name dev7");
        }
        let status = at(&host, "").call("STATUS", "host-device", config.to_string());
        assert_eq!(status.code, 0, "a container has it: {status:?}");
        let other = at(&host, "c2").call("ADD", "host-device", config.to_string());
        assert!(other.message().contains("has the alias dev0"), "{other:?}");
        at(&host, "c1").del(&config, if told { &result } else { &Value::Null });
        host.container("c1");
        host.expect_traces(&before, "DEL after the kernel gave it back");
    }
    // The same, of an ADD of the reference plugin: what the device was before nobody knows, but for its name.
    host.cni(peers_dir()).at("c1", "eth0").add(&config);
    returned_by_the_kernel(&host, "c1");
    at(&host, "c1").del(&config, &Value::Null);
    let link = host.link("", "dev0").unwrap();
    assert!(link.0.get("ifalias").is_none() && !link.has("UP"), "{link:?}");
}

#[test]
fn gc_gives_back_what_nobody_has() {
    let (host, before) = machine();
    let config = device(json!({}));
    let gc = |valid: Value| {
        let mut gc = config.clone();
        gc["cni.dev/valid-attachments"] = valid;
        let done = at(&host, "").call("GC", "host-device", gc.to_string());
        assert_eq!(done.code, 0, "{done:?}");
    };
    // In a namespace that is still there; back on the host; and twice.
    for kernel in [false, true] {
        let result = at(&host, "c1").add(&config);
        let during = host.traces();
        gc(json!([{"containerID": "c1", "ifname": "eth0"}]));
        host.expect_traces(&during, "GC of a valid attachment");
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
        if kernel {
            returned_by_the_kernel(&host, "c1");
        }
        gc(json!([]));
        gc(json!([]));
        if kernel {
            host.container("c1");
        }
        host.expect_traces(&before, "GC");
    }
    // Another network's are not its business.
    let mut other = config.clone();
    other["name"] = json!("other");
    let result = at(&host, "c1").add(&other);
    gc(json!([]));
    assert!(host.link("c1", "eth0").is_some());
    at(&host, "c1").del(&other, &result);
}

/// Somebody took the name: nothing is lost, and the next DEL succeeds.
#[test]
fn a_name_that_is_taken_when_it_comes_back() {
    let (host, before) = machine();
    let config = device(json!({}));
    let result = at(&host, "c1").add(&config);
    host.sh("", "ip link add dev0 type veth peer name other");
    let during = host.traces();
    for _ in 0..2 {
        let mut told = config.clone();
        told["prevResult"] = result.clone();
        let del = at(&host, "c1").call("DEL", "host-device", told.to_string());
        assert!(del.message().contains("the host has another interface dev0 now"), "{del:?}");
        host.expect_traces(&during, "a DEL that failed");
    }
    assert!(host.pings("c1", "10.7.0.254"));
    host.sh("", "ip link del dev0");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "DEL when the name was free");
}

/// What one implementation lends the other one takes back.
#[test]
fn both_implementations_give_back_each_others() {
    let (host, before) = machine();
    let config = device(json!({}));
    let theirs = host.cni(peers_dir()).at("c1", "eth0");
    for told in [true, false] {
        let prev = |result: Value| if told { result } else { Value::Null };
        let result = at(&host, "c1").add(&config);
        theirs.del(&config, &prev(result));
        let link = host.link("", "dev0").unwrap();
        assert!(link.0.get("ifalias").is_none() && !link.has("UP"), "as the reference plugin leaves it: {link:?}");
        // The next DEL, or GC, knows what it was before.
        at(&host, "c1").del(&config, &Value::Null);
        host.expect_traces(&before, "our ADD, the reference plugin's DEL, ours");
        let result = theirs.add(&config);
        let checked = at(&host, "c1").check(&config, &result);
        assert_eq!(checked.code, 0, "{checked:?}");
        at(&host, "c1").del(&config, &prev(result));
        let link = host.link("", "dev0").unwrap();
        assert!(link.0.get("ifalias").is_none() && !link.has("UP"), "{link:?}");
        host.sh("", "ip link set dev0 alias my-uplink up");
        host.expect_traces(&before, "the reference plugin's ADD, our DEL");
    }
    // Ours, taken back by the other one, and lent again without a DEL of ours between.
    let result = at(&host, "c1").add(&config);
    theirs.del(&config, &result);
    host.sh("", "ip link set dev0 up");
    let result = at(&host, "c1").add(&config);
    at(&host, "c1").del(&config, &result);
    host.sh("", "ip link set dev0 group 77 alias my-uplink");
    host.expect_traces(&before, "lent again");
}

#[test]
fn check_finds_what_changed() {
    let (host, before) = machine();
    let config = device(json!({}));
    for (change, says) in [
        ("ip link set eth0 address 02:00:00:00:00:01", "hardware address"),
        ("ip link set eth0 down", "is down"),
        ("ip link set eth0 name eth1", "gone from the container"),
        ("ip -4 addr flush dev eth0", "lost address 10.7.0."),
        ("ip -6 addr flush dev eth0 scope global", "lost address fd00:7::"),
    ] {
        let result = at(&host, "c1").add(&config);
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
        host.sh("c1", change);
        let message = at(&host, "c1").check(&config, &result).message();
        assert!(message.contains(says), "{change}: {message}");
        at(&host, "c1").del(&config, &result);
        host.expect_traces(&before, change);
    }
}

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
    assert!(detour.message().contains("leads through symbolic links; say /sys/devices/virtual/card"), "{detour:?}");
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

/// Its file is gone, and the kernel gave the device back: GC of the network that names it finds it.
#[test]
fn gc_finds_what_no_file_tells_of() {
    let (host, _) = machine();
    let config = device(json!({}));
    at(&host, "c1").add(&config);
    returned_by_the_kernel(&host, "c1");
    host.run("", &["sh", "-c", "rm /run/netloom/borrowed/*"]);
    let mut gc = config.clone();
    gc["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(at(&host, "").call("GC", "host-device", gc.to_string()).code, 0);
    let link = host.link("", "dev0").unwrap();
    assert!(link.0.get("ifalias").is_none() && link.0["group"] == "default", "{link:?}");
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

#[test]
fn flags_queue_and_master_come_back() {
    let (host, _) = machine();
    host.sh("", "ip link add br7 type bridge");
    host.sh("", "ip link set dev0 promisc on allmulticast on arp off multicast off master br7");
    let flags = || {
        let links = host.links_but_carriers("");
        links.as_array().unwrap().iter().find(|link| link["ifname"] == "dev0").unwrap()["flags"].clone()
    };
    let (before, had) = (host.traces(), flags());
    let config = config("host-device", json!({"device": "dev0"}));
    let result = at(&host, "c1").add(&config);
    host.sh("c1", "ip link set eth0 promisc off allmulticast off arp on multicast on txqueuelen 7");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "flags, queue and master");
    assert_eq!(flags(), had);
}

/// The namespace has lost its name, and a process lives on in it.
#[test]
fn a_namespace_that_a_process_holds() {
    let (host, before) = machine();
    let config = device(json!({}));
    for gc in [false, true] {
        let result = at(&host, "c1").add(&config);
        let mut process = host.within("c1", || std::process::Command::new("sleep").arg("60").spawn().unwrap());
        host.sh("", "ip netns del c1");
        if gc {
            let mut gc = config.clone();
            gc["cni.dev/valid-attachments"] = json!([]);
            assert_eq!(at(&host, "").call("GC", "host-device", gc.to_string()).code, 0);
        } else {
            at(&host, "c1").set("CNI_NETNS", "").del(&config, &result);
        }
        process.kill().unwrap();
        process.wait().unwrap();
        host.container("c1");
        host.expect_traces(&before, "a process in a namespace without a name");
    }
}

/// Hardware does not vanish: until it is seen, DEL fails, and what is known of it stays. There is none here: the file says so.
#[test]
fn fixture_of_hardware_that_is_nowhere() {
    let (host, before) = machine();
    let config = device(json!({}));
    let result = at(&host, "c1").add(&config);
    let file = "/run/netloom/borrowed/net@c1@eth0.json";
    let kept = std::fs::read_to_string(host.path(file)).unwrap();
    let mut loan: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(loan.as_object_mut().unwrap().remove("kind"), Some(json!("veth")));
    host.write(file, &loan.to_string());
    let during = host.traces();
    let del = at(&host, "c1").call("DEL", "host-device", config.to_string());
    assert!(del.error()["code"] == 11 && del.message().contains("neither in /run/netns/c1 nor back on the host"), "{del:?}");
    host.expect_traces(&during, "a DEL that failed");
    // Pulled out of the machine: its bus has it no more.
    loan["onBus"] = json!("pci");
    loan["busDevice"] = json!("0000:ff:1f.7");
    host.write(file, &loan.to_string());
    at(&host, "c1").del(&config, &Value::Null);
    assert!(host.list("/run/netloom/borrowed").is_empty());
    // What is read is its own file alone, as it was written.
    host.write(file, &kept);
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "DEL of what is there");
}
