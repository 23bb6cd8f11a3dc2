//! `ovs`, key by key, with the real Open vSwitch.

mod broken;
mod crowd;
mod neutron;
mod vhost_user;

use std::process::Stdio;

use netloom_tests::{Host, Switch, at, ips, plugin_dir, until_seen};
use serde_json::{Value, json};

use crate::scene::{config, del_with_little_and_del_again};

/// A network on the bridge `br0`.
fn network(keys: Value) -> Value {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd00:7::/64"}]]});
    let mut config = config("ovs", json!({"bridge": "br0", "ipam": ipam}));
    keys.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
    config
}

/// A machine with three containers, and a switch with the bridge `br0`.
fn machine() -> (Host, Switch) {
    let host = Host::new();
    ["c1", "c2", "c3"].iter().for_each(|container| host.container(container));
    let switch = Switch::start(&host, &["br0"]);
    (host, switch)
}

/// The host's end of a pair, which has its port's name.
fn port_of(result: &Value) -> String {
    result["interfaces"][0]["name"].as_str().unwrap().to_owned()
}

fn nobody() -> [&'static str; 0] {
    []
}

#[test]
fn two_containers_reach_each_other() {
    let (host, switch) = machine();
    let config = network(json!({"vlan": 100}));
    let results = ["c1", "c2"].map(|container| at(&host, container).add(&config));
    for to in ips(&results[1]) {
        assert!(host.pings("c1", &to), "{to}");
        assert!(host.tcp("c1", "c2", &to), "{to}");
    }
    assert_eq!(at(&host, "c1").check(&config, &results[0]).code, 0);
    assert_eq!(switch.ports("br0").len(), 2);
    for (container, result) in ["c1", "c2"].iter().zip(&results) {
        at(&host, container).del(&config, result);
    }
    assert_eq!(switch.ports("br0"), nobody());
    let before = host.traces();
    del_with_little_and_del_again(&host, &before, &config);
    assert_eq!(switch.ports("br0"), nobody());
}

/// With the userspace datapath, what a container receives is limited, and what it sends is not: ovs-vswitchd reads that before the kernel's
/// traffic control, as docs/use/plugins/ovs.md says. (Both are over the kernel's datapath: tests/guest/kernel/ovs.rs.)
#[test]
fn a_limit_of_what_is_received() {
    let (host, switch) = machine();
    let config = network(json!({}));
    let results = ["c1", "c2"].map(|container| at(&host, container).add(&config));
    let limit = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "prevResult": results[0], "ingressRate": 8_000_000,
        "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000});
    let limited = at(&host, "c1").add(&limit);
    host.carries("c2", "c1", &ips(&results[0])[0], 500_000);
    let shown = host.json("", &format!("tc -s -j qdisc show dev {}", port_of(&results[0])));
    let bucket = shown.as_array().unwrap().iter().find(|qdisc| qdisc["kind"] == "tbf");
    assert!(bucket.is_some_and(|bucket| bucket["overlimits"].as_u64() > Some(0)), "{shown}");
    at(&host, "c1").del(&limit, &limited);
    ["c1", "c2"].iter().zip(&results).for_each(|(container, result)| at(&host, container).del(&config, result));
    assert_eq!(switch.ports("br0"), nobody());
}

/// The port is told apart by others, and what cannot compute a checksum is not asked to.
#[test]
fn what_the_port_tells() {
    let (host, switch) = machine();
    let config = network(json!({"socket_file": format!("unix:{}", switch.socket()), "mac": "02:00:00:00:00:07"}));
    let result = at(&host, "c1").add(&config);
    let port = port_of(&result);
    let of = |table: &str, key: &str| switch.vsctl(&format!("get {table} {port} external_ids:{key}")).trim().replace('"', "");
    let ids = ["owner", "netloom-network", "netloom-container", "netloom-interface", "netloom-tx-checksum"].map(|key| of("port", key));
    assert_eq!(ids, ["netloom", "net", "c1", "eth0", "off"]);
    assert_eq!(["attached-mac", "iface-status"].map(|key| of("interface", key)), ["02:00:00:00:00:07", "active"]);
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:07");
    assert_eq!(switch.vsctl("get bridge br0 datapath_type").trim(), "netdev");
}

#[test]
fn vlans_are_apart() {
    let (host, _switch) = machine();
    let [ten, twenty] = [10, 20].map(|vlan| network(json!({"vlan": vlan})));
    at(&host, "c1").add(&ten);
    let (second, third) = (at(&host, "c2").add(&twenty), at(&host, "c3").add(&ten));
    assert!(host.pings("c1", &ips(&third)[0]), "within a VLAN");
    assert!(host.silent("c1", &ips(&second)[0]), "from one VLAN to another");
}

/// Sends a frame of VLAN 43, then one of 42, until the one who waits has enough of them.
const SEND: &str = "
import socket, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0))
while True:
    for vlan in 43, 42:
        s.send(b'\\xff' * 6 + b'\\x02\\0\\0\\0\\0\\x01\\x81\\x00' + vlan.to_bytes(2, 'big') + b'\\x88\\xb5' + b'hello'.ljust(46, b'\\0'))
    # Sleeps: a frame of each VLAN twenty times a second is enough.
    time.sleep(0.05)
";
/// Waits for such a frame without its tag; says what came.
const RECEIVE: &str = "
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
s.bind(('eth0', 0x88b5))
s.settimeout(float(sys.argv[1]))
try:
    print(s.recv(100)[14:19].decode())
except TimeoutError:
    print('nothing')
";

/// Frames of a VLAN that the trunk has arrive in it, those of another do not; without a trunk all do.
#[test]
fn a_trunk_passes_its_vlans() {
    let (host, _switch) = machine();
    let without = |vlan: Value| network(json!({"vlan": vlan, "ipam": null}));
    for (container, vlan) in [("c2", 42), ("c3", 43)] {
        at(&host, container).add(&without(json!(vlan)));
    }
    let got = |keys: Value| {
        let mut config = without(Value::Null);
        keys.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        let result = at(&host, "c1").add(&config);
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0, "{keys}");
        let receive = |container: &str, seconds: &str| {
            let mut command = host.command(container, "python3");
            command.args(["-c", RECEIVE, seconds]).stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut sender = host.command("c1", "python3").args(["-c", SEND]).spawn().unwrap();
        let said = [("c2", "60"), ("c3", "3")].map(|(container, seconds)| {
            let output = receive(container, seconds).wait_with_output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        });
        sender.kill().unwrap();
        sender.wait().unwrap();
        at(&host, "c1").del(&config, &result);
        said
    };
    assert_eq!(got(json!({"trunk": [{"id": 42}, {"minID": 100, "maxID": 110}]})), ["hello", "nothing"]);
    assert_eq!(got(json!({})), ["hello", "hello"]);
}

#[test]
fn mtu_and_openflow_port() {
    let (host, switch) = machine();
    let result = at(&host, "c1").add(&network(json!({"mtu": 1400, "ofport_request": 77})));
    let port = port_of(&result);
    assert_eq!((host.link("c1", "eth0").unwrap().mtu(), host.link("", &port).unwrap().mtu()), (1400, 1400));
    assert_eq!(switch.vsctl(&format!("get interface {port} ofport")).trim(), "77");
}

/// Open vSwitch gives a bridge the smallest MTU of its ports: one of large frames keeps its own.
#[test]
fn the_bridge_keeps_its_mtu() {
    let (host, switch) = machine();
    for line in ["ip link add wire0 up mtu 9000 type veth peer name wire1 mtu 9000", "ip link set wire1 up"] {
        host.sh("", line);
    }
    switch.vsctl("add-port br0 wire0");
    let mtu = || host.link("", "br0").unwrap().mtu();
    until_seen("the bridge has the MTU of its port", mtu, |mtu| *mtu == 9000);
    let result = at(&host, "c1").add(&network(json!({})));
    assert_eq!((host.link("c1", "eth0").unwrap().mtu(), host.link("", &port_of(&result)).unwrap().mtu()), (9000, 9000));
    // Another port makes the switch look at all of them again.
    at(&host, "c2").add(&network(json!({"mtu": 9000})));
    assert_eq!(mtu(), 9000);
}

/// The host's kernel sees what a container sends into a userspace bridge, and must not answer: the container is in a VLAN, and the host is
/// not. Also where another program has weakened reverse path filtering, and the host has a way to the container's network.
#[test]
fn the_host_is_not_reached_past_the_switch() {
    let (host, _switch) = machine();
    for line in [
        "ip link add wire0 up type veth peer name wire1",
        "ip link set wire1 up",
        "ip route add 10.7.0.0/24 dev wire0",
        "ip addr add 10.99.0.1/32 dev lo",
        "ip -6 addr add fd00:99::1/128 dev lo",
    ] {
        host.sh("", line);
    }
    at(&host, "c1").add(&network(json!({"vlan": 100})));
    host.sh("c1", "ip route add 10.99.0.0/24 dev eth0");
    host.sh("c1", "ip -6 route add fd00:99::/64 dev eth0");
    for (filter, address) in [("0", "10.99.0.1"), ("2", "10.99.0.1"), ("0", "fd00:99::1")] {
        host.within("", || std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", filter).unwrap());
        assert!(host.silent("c1", address), "{address}");
        let neighbour = host.sh("c1", &format!("ip neigh show {address} dev eth0"));
        assert!(!neighbour.contains("lladdr"), "the host answers for {address}: {neighbour}");
    }
}

/// The pair's name is the same each time: a switch that still has the link of before in mind would forward nothing.
#[test]
fn a_container_that_comes_again_at_once() {
    let (host, switch) = machine();
    let config = network(json!({}));
    let other = at(&host, "c2").add(&config);
    for round in 0..10 {
        let result = at(&host, "c1").add(&config);
        assert!(host.pings("c1", &ips(&other)[0]), "round {round}");
        at(&host, "c1").del(&config, &result);
    }
    // After a reboot the database has the port, and there is no link.
    let config = network(json!({"ipam": {"type": "static", "addresses": [{"address": "10.7.0.99/24"}]}}));
    let result = at(&host, "c1").add(&config);
    host.sh("", &format!("ip link delete {}", port_of(&result)));
    at(&host, "c1").add(&config);
    assert!(host.pings("c1", &ips(&other)[0]), "in place of what a reboot has left");
    assert_eq!(switch.ports("br0").len(), 2);
}

#[test]
fn gc_removes_ports_of_nobody() {
    let (host, switch) = machine();
    let config = network(json!({}));
    let mut other = config.clone();
    other["name"] = json!("other");
    let kept = [at(&host, "c1").add(&config), at(&host, "c3").add(&other)].map(|result| port_of(&result));
    let lost = port_of(&at(&host, "c2").add(&config));
    let mut valid = config.clone();
    valid["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let outcome = host.cni(plugin_dir()).call("GC", "ovs", valid.to_string());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{outcome:?}");
    let (mut ports, mut kept) = (switch.ports("br0"), kept.to_vec());
    ports.sort();
    kept.sort();
    assert_eq!(ports, kept);
    assert!(host.link("", &lost).is_none());
}

/// Its pods may have been here before: by the result of its ADD.
#[test]
fn what_ovs_cni_made_goes_with_our_del() {
    let (host, switch) = machine();
    host.sh("", "ip link add veth1a2b3c4d type veth peer name eth0 netns c1");
    switch.vsctl("add-port br0 veth1a2b3c4d -- set port veth1a2b3c4d external_ids:owner=ovs-cni.network.kubevirt.io");
    let mac = |container, name| host.link(container, name).unwrap().mac().to_owned();
    let result = json!({"cniVersion": "1.1.0", "interfaces": [
        {"name": "veth1a2b3c4d", "mac": mac("", "veth1a2b3c4d")},
        {"name": "eth0", "mac": mac("c1", "eth0"), "sandbox": "/run/netns/c1"}]});
    at(&host, "c1").del(&network(json!({"ipam": null})), &result);
    assert_eq!(switch.ports("br0"), nobody());
    assert!(host.link("", "veth1a2b3c4d").is_none());
}
