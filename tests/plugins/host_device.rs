//! `host-device`: an interface goes into a container and comes back as it was.

mod back;
mod named;
mod refused;

use netloom_tests::{Host, Traces, at, attached_once, ips};
use serde_json::{Value, json};

use crate::scene::config;

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
    host.sh("c1", "ip link set other gso_max_size 2000 gso_max_segs 7 gro_max_size 2000");
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
