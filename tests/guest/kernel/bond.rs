//! A bond as a parent: two wires to a switch, of which one may be cut.

use netloom_tests::{Host, plugin_dir};
use serde_json::json;

/// `bond0` over `a0` and `a1`, whose other ends are on the bridge `switch` of the container `world`, which has 10.5.0.1.
fn bonded() -> Host {
    let host = Host::new();
    host.container("world");
    host.container("c1");
    for line in [
        "ip link add switch type bridge",
        "ip link set switch up",
        "ip addr add 10.5.0.1/24 dev switch",
        "ip addr add fd00:5::1/64 dev switch nodad",
    ] {
        host.sh("world", line);
    }
    host.sh("", "ip link add bond0 type bond mode active-backup miimon 100");
    for n in ["0", "1"] {
        host.sh("", &format!("ip link add a{n} type veth peer name b{n} netns world"));
        host.sh("", &format!("ip link set a{n} master bond0"));
        host.sh("world", &format!("ip link set b{n} master switch up"));
    }
    host.sh("", "ip link set bond0 up");
    host.until("the bond has a carrier", || host.link("", "bond0").unwrap().has("LOWER_UP"));
    host
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn macvlan_on_a_bond_survives_the_loss_of_a_wire() {
    let host = bonded();
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "bond0", "mode": "bridge", "ipam": {
        "type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24", "rangeStart": "10.5.0.10"}], [{"subnet": "fd00:5::/64", "rangeStart": "fd00:5::10"}]]}});
    let cni = host.cni(plugin_dir()).at("c1", "eth0");
    let result = cni.add(&config);
    cni.del(&config, &result);
    let before = host.traces();
    let result = cni.add(&config);
    assert!(host.pings("c1", "10.5.0.1") && host.pings("c1", "fd00:5::1"));
    assert_eq!(cni.check(&config, &result).code, 0);
    let active = host.json("", "ip -j -d link show bond0")[0]["linkinfo"]["info_data"]["active_slave"].as_str().unwrap().to_owned();
    host.sh("", &format!("ip link set {active} down"));
    host.until("the other wire carries", || host.pings("c1", "10.5.0.1"));
    host.sh("", &format!("ip link set {active} up"));
    cni.del(&config, &result);
    host.expect_traces(&before, "a macvlan on a bond");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_bridge_with_a_bond_as_its_uplink() {
    let host = bonded();
    host.sh("", "ip link add br0 type bridge");
    host.sh("", "ip link set bond0 master br0");
    host.sh("", "ip link set br0 up");
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "ipam": {
        "type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24", "rangeStart": "10.5.0.10"}], [{"subnet": "fd00:5::/64", "rangeStart": "fd00:5::10"}]]}});
    let cni = host.cni(plugin_dir()).at("c1", "eth0");
    let result = cni.add(&config);
    cni.del(&config, &result);
    let before = host.traces();
    let result = cni.add(&config);
    assert!(host.pings("c1", "10.5.0.1") && host.pings("c1", "fd00:5::1"));
    assert_eq!(cni.check(&config, &result).code, 0);
    cni.del(&config, &result);
    host.expect_traces(&before, "a bridge over a bond");
}
