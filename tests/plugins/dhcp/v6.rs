//! Leases of DHCPv6 live on: renewed, rebound, ended, declined.

use netloom_tests::ips;
use serde_json::{Value, json};

use crate::dhcp::server::{World, bridge};

const POOL: &str = "fd00:9::10 - fd00:9::50";

fn only6() -> Value {
    bridge(json!({"ipv6": "only"}))
}

/// A machine with a Kea and the daemon.
fn world(pool: &str, times: [u32; 3]) -> World {
    let mut world = World::empty();
    world.kea6("server", pool, times);
    world.start();
    world.host.container("c1");
    world
}

/// The addresses of `c1` that are not link-local.
fn addresses(world: &World) -> Vec<String> {
    world.host.addresses("c1", "eth0").into_iter().filter(|a| !a.starts_with("fe80")).collect()
}

/// Ends the attachment: nothing is left of it.
fn leave(world: &World, result: &Value) {
    world.cni("c1").del(&only6(), result);
    world.host.until("the lease is gone", || world.host.list("/run/cni/dhcp.leases") == [".lock"]);
    world.host.until("its link is gone", || world.host.json("", "ip -j link show type veth").as_array().unwrap().len() <= stations(world));
}

fn stations(world: &World) -> usize {
    world.host.list("/run/netns").iter().filter(|name| *name != "c1").count()
}

#[test]
fn renewed_by_its_server() {
    let world = world(POOL, [2, 30, 60]);
    let before = world.host.traces();
    let result = world.cni("c1").add(&only6());
    let address = format!("{}/128", ips(&result)[0]);
    world.until_told("dhcp", "c1/net/eth0: lease renewed", 2);
    assert_eq!((addresses(&world), world.told("dhcp", "rebound")), (vec![address], 0));
    leave(&world, &result);
    world.until_told("server", "DHCP6_RELEASE_NA ", 1);
    world.host.expect_traces(&before, "a renewed lease of DHCPv6");
}

#[test]
fn rebound_by_another_server() {
    let mut world = world(POOL, [3, 6, 60]);
    let result = world.cni("c1").add(&only6());
    world.stop("server");
    world.kea6("server2", POOL, [60, 80, 100]);
    let before = world.host.traces();
    world.until_told("dhcp", "c1/net/eth0: lease rebound", 1);
    assert_eq!(addresses(&world), [format!("{}/128", ips(&result)[0])]);
    assert_eq!(world.cni("c1").check(&only6(), &result).code, 0);
    world.host.expect_traces(&before, "a lease of DHCPv6 that was rebound");
    leave(&world, &result);
}

#[test]
fn ended_and_granted_again() {
    let world = world(POOL, [2, 4, 6]);
    let before = world.host.traces();
    let result = world.cni("c1").add(&only6());
    world.host.sh("", "ip link set server nomaster");
    world.until_told("dhcp", "bringing interface eth0 DOWN", 1);
    assert_eq!(addresses(&world), Vec::<String>::new(), "the address is nobody's");
    let checked = world.cni("c1").check(&only6(), &result);
    assert!(checked.message().contains("has expired"), "{checked:?}");
    world.host.sh("", "ip link set server master br0");
    world.until_told("dhcp", "lease acquired again", 1);
    let address = format!("{}/128", ips(&result)[0]);
    world.host.until("the address is there again", || addresses(&world) == [&*address]);
    assert!(world.host.link("c1", "eth0").unwrap().has("UP"));
    leave(&world, &result);
    world.host.expect_traces(&before, "a lease of DHCPv6 that had ended");
}

/// A station that the server knows nothing of has the address that it offers first.
#[test]
fn a_conflict_is_declined() {
    let world = world("fd00:9::10 - fd00:9::11", [60, 80, 100]);
    world.station("squatter");
    world.host.sh("squatter", "ip addr add fd00:9::10/64 dev eth0 nodad");
    let before = world.host.traces();
    // However slow the squatter's kernel is.
    let result = world.cni("c1").add(&bridge(json!({"ipv6": "only", "probe": 5000})));
    assert_eq!(ips(&result), ["fd00:9::11"], "{}", world.log("server"));
    world.until_told("server", "DHCP6_DECLINE_LEASE ", 1);
    leave(&world, &result);
    world.host.expect_traces(&before, "a declined address of DHCPv6");
}
