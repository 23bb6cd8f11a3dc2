//! `ovs` and `ovs-hybrid` over the kernel's own datapath, whose module the kernel loads when ovs-vswitchd asks for it; and VLANs inside of a trunk.

use netloom_tests::{Host, Switch, at, ips};
use serde_json::{Value, json};

use crate::kernel::links::config;

/// A machine with a bridge of the kernel's datapath, as `ovs-vsctl add-br` makes it.
fn machine() -> (Host, Switch) {
    let host = Host::new();
    ["c1", "c2", "c3"].iter().for_each(|container| host.container(container));
    let switch = Switch::start(&host, &[]);
    switch.vsctl("add-br br0");
    (host, switch)
}

fn ids(switch: &Switch, port: &str) -> String {
    switch.vsctl(&format!("--bare --columns=external_ids list port {port}"))
}

fn tx_checksum(host: &Host, container: &str) -> bool {
    host.sh(container, "ethtool -k eth0").contains("tx-checksumming: on")
}

/// The kernel computes what a container's end leaves out: nothing is turned off. Both kinds of plug reach each other.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn the_kernels_datapath() {
    let (host, switch) = machine();
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd00:7::/64"}]]});
    let plain = config("ovs", json!({"bridge": "br0", "vlan": 100, "ipam": ipam}));
    let id = "d1e40f3e-d1a4-4044-a4f3-90d82f439e1c";
    let hybrid = config("ovs-hybrid", json!({"bridge": "br0", "iface_id": id, "ipam": ipam}));
    let before = host.traces();
    let results = [at(&host, "c1").add(&plain), at(&host, "c2").add(&plain), at(&host, "c3").add(&hybrid)];
    // As Neutron's agent does.
    switch.vsctl("set port qvod1e40f3e-d1 tag=100");
    assert_eq!(switch.vsctl("get bridge br0 datapath_type").trim(), "\"\"", "it is the bridge's own");
    for (container, result) in ["c2", "c3"].iter().zip(&results[1..]) {
        for to in ips(result) {
            assert!(host.pings("c1", &to), "{container}: {to}");
            assert!(host.tcp("c1", container, &to), "{container}: {to}");
        }
    }
    for (container, port) in [("c1", results[0]["interfaces"][0]["name"].as_str().unwrap()), ("c3", "qvod1e40f3e-d1")] {
        assert!(tx_checksum(&host, container) && !ids(&switch, port).contains("netloom-tx-checksum"), "{container}");
    }
    // A limit holds in both directions.
    let limit = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "prevResult": results[0], "ingressRate": 8_000_000,
        "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000});
    let limited = at(&host, "c1").add(&limit);
    host.carries("c2", "c1", &ips(&results[0])[0], 500_000);
    host.carries("c1", "c2", &ips(&results[1])[0], 500_000);
    let ifb = host.json("", "ip -j link show type ifb")[0]["ifname"].as_str().unwrap().to_owned();
    for link in [results[0]["interfaces"][0]["name"].as_str().unwrap(), &ifb] {
        let shown = host.json("", &format!("tc -s -j qdisc show dev {link}"));
        let bucket = shown.as_array().unwrap().iter().find(|qdisc| qdisc["kind"] == "tbf");
        assert!(bucket.is_some_and(|bucket| bucket["overlimits"].as_u64() > Some(0)), "{link}: {shown}");
    }
    at(&host, "c1").del(&limit, &limited);
    for ((container, config), result) in ["c1", "c2", "c3"].iter().zip([&plain, &plain, &hybrid]).zip(&results) {
        let check = at(&host, container).check(config, result);
        assert_eq!(check.code, 0, "{check:?}");
        at(&host, container).del(config, result);
    }
    assert_eq!(switch.ports("br0"), [""; 0]);
    host.run("", &["rm", "-rf", "/var/lib/cni"]);
    host.expect_traces(&before, "ports of the kernel's datapath");
}

/// What a virtual machine with a trunk port does: 802.1Q interfaces on the trunk reach those who are in their VLANs.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vlans_of_a_trunk() {
    let (host, _switch) = machine();
    let without = |keys: Value| {
        let mut config = config("ovs", json!({"bridge": "br0"}));
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        config
    };
    at(&host, "c1").add(&without(json!({"trunk": [{"id": 42}]})));
    let fixed = |address: &str| json!({"type": "static", "addresses": [{"address": address}]});
    at(&host, "c2").add(&without(json!({"vlan": 42, "ipam": fixed("10.42.0.2/24")})));
    at(&host, "c3").add(&without(json!({"vlan": 43, "ipam": fixed("10.43.0.2/24")})));
    for vlan in [42, 43] {
        host.sh("c1", &format!("ip link add link eth0 name v{vlan} type vlan id {vlan}"));
        host.sh("c1", &format!("ip addr add 10.{vlan}.0.1/24 dev v{vlan}"));
        host.sh("c1", &format!("ip link set v{vlan} up"));
    }
    assert!(host.pings("c1", "10.42.0.2") && host.tcp("c1", "c2", "10.42.0.2"));
    assert!(host.silent("c1", "10.43.0.2"), "the trunk does not have it");
}
