//! Leases live on: renewed, rebound, ended, refused; with the daemon and without it.

use netloom_tests::ips;
use serde_json::json;

use crate::dhcp::server::{World, bridge};

const POOL: &str = "10.9.0.10 - 10.9.0.50";

/// A machine with a Kea and the daemon.
fn world(times: [u32; 3]) -> World {
    let mut world = World::empty();
    world.kea("server", POOL, times);
    world.start();
    world
}

fn default_route(world: &World) -> String {
    world.host.json("c1", "ip -j route show default")[0]["gateway"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn renewed_by_its_server() {
    let world = world([2, 20, 40]);
    let result = world.attach("c1");
    let address = &ips(&result)[0];
    world.until_told("dhcp", "c1/net/eth0: lease renewed", 2);
    assert_eq!(world.told("dhcp", "rebound"), 0);
    assert_eq!(world.host.addresses("c1", "eth0"), [format!("{address}/24")]);
    world.cni("c1").del(&bridge(json!({})), &result);
    world.until_told("server", "DHCP4_RELEASE ", 1);
}

#[test]
fn rebound_by_another_server() {
    let mut world = world([2, 5, 30]);
    let result = world.attach("c1");
    world.stop("server");
    world.kea("server2", POOL, [60, 80, 100]);
    world.until_told("dhcp", "c1/net/eth0: lease rebound", 1);
    assert_eq!(world.host.addresses("c1", "eth0"), [format!("{}/24", ips(&result)[0])]);
    assert_eq!(world.cni("c1").check(&bridge(json!({})), &result).code, 0);
}

#[test]
fn ended_and_granted_again() {
    let mut world = world([2, 4, 6]);
    let result = world.attach("c1");
    assert_eq!(default_route(&world), "10.9.0.1");
    world.stop("server");
    world.until_told("dhcp", "bringing interface eth0 DOWN", 1);
    world.host.until("the interface is down", || !world.host.link("c1", "eth0").unwrap().has("UP"));
    assert_eq!(world.host.addresses("c1", "eth0"), Vec::<String>::new(), "the address is nobody's");
    let checked = world.cni("c1").check(&bridge(json!({})), &result);
    assert!(checked.message().contains("has expired"), "{checked:?}");
    world.kea("server", POOL, [20, 40, 60]);
    world.until_told("dhcp", "lease acquired again", 1);
    world.host.until("the interface is up", || world.host.link("c1", "eth0").unwrap().has("UP"));
    assert_eq!(world.host.addresses("c1", "eth0"), [format!("{}/24", ips(&result)[0])]);
    assert_eq!(default_route(&world), "10.9.0.1");
    assert!(world.host.pings("c1", "10.9.0.1"));
}

/// The server has other addresses now, and says so.
#[test]
fn refused_and_granted_another() {
    let mut world = world([2, 20, 40]);
    let result = world.attach("c1");
    world.stop("server");
    world.serve("server", &["--dhcp-range=10.9.0.100,10.9.0.109,255.255.255.0,1h", "--dhcp-authoritative"]);
    world.until_told("dhcp", "the DHCP server 10.9.0.1 refused: DHCPNAK", 1);
    world.until_told("dhcp", "lease acquired again", 1);
    let now = world.host.addresses("c1", "eth0");
    assert!(now.len() == 1 && now[0].starts_with("10.9.0.10") && now[0] != format!("{}/24", ips(&result)[0]), "{now:?}");
    assert_eq!(default_route(&world), "10.9.0.1");
    let checked = world.cni("c1").check(&bridge(json!({})), &result);
    assert!(checked.message().contains("does not have"), "{checked:?}");
}

#[test]
fn kept_by_the_next_daemon() {
    let mut world = world([4, 20, 40]);
    let result = world.attach("c1");
    let offers = world.told("server", "DHCP4_LEASE_ADVERT");
    assert_eq!(world.terminate(), Some(0));
    assert!(!world.host.path("/run/cni/dhcp.sock").exists());
    world.start();
    world.until_told("dhcp", "c1/net/eth0: kept: ", 1);
    world.until_told("dhcp", "c1/net/eth0: lease renewed", 1);
    world.kill();
    world.host.run("", &["rm", "/run/cni/dhcp.sock"]);
    // Half a file, as nothing of ours leaves one.
    world.host.write("/run/cni/dhcp.leases/net@c9@eth0", "{\"schema\":1,\"bo");
    world.start();
    world.until_told("dhcp", "c1/net/eth0: kept: ", 2);
    world.until_told("dhcp", "net@c9@eth0, which is not a lease", 1);
    world.until_told("dhcp", "c1/net/eth0: lease renewed", 2);
    assert_eq!(world.told("server", "DHCP4_LEASE_ADVERT"), offers, "nothing was asked for anew");
    // The runtime may repeat an ADD whose answer it has not heard.
    assert_eq!(
        world.cni("c1").call("ADD", "dhcp", bridge(json!({})).to_string()).result()["ips"][0]["address"],
        result["ips"][0]["address"]
    );
    world.cni("c1").del(&bridge(json!({})), &result);
    world.until_told("server", "DHCP4_RELEASE ", 1);
    world.cni("c9").del(&bridge(json!({})), &serde_json::Value::Null);
    assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock"]);
}

#[test]
fn a_namespace_that_went_without_a_word() {
    let mut world = world([2, 20, 40]);
    let result = world.attach("c1");
    world.host.run("", &["ip", "netns", "del", "c1"]);
    // Nobody holds it: its end of the pair is gone, and with it the other one.
    world.host.until("the host's end is gone", || world.host.json("", "ip -j link show type veth").as_array().unwrap().len() == 1);
    world.until_told("dhcp", "its namespace or interface is gone", 1);
    assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock"]);
    world.cni("c1").unset("CNI_NETNS").del(&bridge(json!({})), &result);
    // Nor does one that has gone while the daemon was away.
    world.host.container("c1");
    world.cni("c1").add(&bridge(json!({})));
    world.kill();
    world.host.run("", &["ip", "netns", "del", "c1"]);
    world.host.container("c1");
    world.host.run("", &["rm", "/run/cni/dhcp.sock"]);
    world.start();
    world.until_told("dhcp", "its namespace or interface is gone", 2);
    assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock"]);
}
