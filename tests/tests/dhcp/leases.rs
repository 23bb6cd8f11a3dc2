//! Leases come, and go.

use serde_json::json;

use crate::server::{World, bridge, ips};

#[test]
fn a_lease_comes_and_goes() {
    let world = World::new();
    let before = world.used();
    let result = world.attach("c1");
    let address = &ips(&result)[0];
    assert!(address.starts_with("10.9.0."), "{result}");
    assert_eq!(world.host.addresses("c1", "eth0"), [format!("{address}/24")]);
    assert_eq!(result["ips"][0]["gateway"], "10.9.0.1");
    assert_eq!(world.host.json("c1", "ip -j route show default")[0]["gateway"], "10.9.0.1");
    assert!(world.host.pings("c1", "10.9.0.1"));
    let checked = world.cni("c1").check(&bridge(json!({})), &result);
    assert_eq!(checked.code, 0, "{checked:?}");

    world.cni("c1").del(&bridge(json!({})), &result);
    world.until_told("server", &format!("DHCPRELEASE(eth0) {address}"), 1, 5);
    world.cni("c1").del(&bridge(json!({})), &result);
    world.host.run("", &["ip", "netns", "del", "c1"]);
    world.expect(&before, "a lease");
}
