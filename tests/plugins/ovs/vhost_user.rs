//! `ovs-vhost-user` where it cannot work. Where Open vSwitch has DPDK: tests/cluster/openstack/vhost_user.rs.

use netloom_tests::{Host, Switch, at};
use serde_json::json;

use crate::scene::config;

/// Nothing is made before it is known that the switch has such ports.
#[test]
fn a_switch_without_dpdk() {
    let host = Host::new();
    host.container("c1");
    let switch = Switch::start(&host, &["br0"]);
    let before = host.traces();
    let config = config("ovs-vhost-user", json!({"bridge": "br0", "socketDir": "/run/vhost"}));
    for (mode, kind) in [("server", "dpdkvhostuserclient"), ("client", "dpdkvhostuser")] {
        let mut config = config.clone();
        config["mode"] = json!(mode);
        let added = at(&host, "c1").call("ADD", "ovs-vhost-user", config.to_string());
        let says = format!("has no ports of type {kind}: install Open vSwitch with DPDK, and set other_config:dpdk-init");
        assert!(added.message().contains(&says), "{added:?}");
        at(&host, "c1").del(&config, &json!(null));
    }
    assert_eq!(switch.ports("br0"), [""; 0]);
    host.expect_traces(&before, "a switch without DPDK");
}
