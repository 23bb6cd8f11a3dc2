//! A node is made to forward, and keeps the default route that a router has advertised.

use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};

use linux::{Family, forward};

use crate::space::{Space, until};

/// A router that advertises itself on `wire`; it ends with its handle.
struct Router {
    dnsmasq: Child,
    leases: PathBuf,
}

impl Router {
    fn new(space: &Space) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let file = format!("nlfb-{}-{}.leases", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let leases = std::env::temp_dir().join(file);
        let line = format!(
            "dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --interface=wire --pid-file= --user=root --enable-ra \
             --ra-param=wire,high,4,600 --dhcp-range=fd00:5::,ra-only,64,600 --dhcp-leasefile={}",
            leases.display()
        );
        Router { dnsmasq: space.spawn(&line), leases }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.dnsmasq.kill();
        let _ = self.dnsmasq.wait();
        let _ = std::fs::remove_file(&self.leases);
    }
}

/// A node whose `eth0` takes the advertisements of a router in the other namespace.
fn advertised() -> (Space, Space, Router) {
    let (node, world) = (Space::new(), Space::new());
    world.sh(&format!("ip link add wire type veth peer name eth0 netns {}", node.path()));
    world.set_sysctl("ipv6/conf/wire/accept_ra", "0");
    node.set_sysctl("ipv6/conf/eth0/accept_ra", "1");
    world.sh("ip link set wire up");
    node.sh("ip link set eth0 up");
    world.sh("ip -6 addr add fd00:5::1/64 dev wire nodad");
    let router = Router::new(&world);
    until("a default route is advertised", || has_default_route(&node));
    (node, world, router)
}

fn has_default_route(node: &Space) -> bool {
    !node.json("ip -6 -j route show default proto ra").is_empty()
}

/// What was written, as the path below /proc/sys/net and the values before and after.
fn turn_on(node: &Space, family: Family) -> Vec<String> {
    let written = node.run(|inside, netlink| forward(inside, netlink, family)).unwrap();
    written.iter().map(|one| format!("{} {} {}", one.sysctl.path().display(), one.before, one.now)).collect()
}

#[test]
fn an_advertised_default_route_outlives_forwarding() {
    let (node, _world, _router) = advertised();
    let expected = ["/proc/sys/net/ipv6/conf/eth0/accept_ra 1 2", "/proc/sys/net/ipv6/conf/all/forwarding 0 1"];
    assert_eq!(turn_on(&node, Family::V6), expected);
    assert!(has_default_route(&node));
    assert!(turn_on(&node, Family::V6).is_empty(), "written again");
}

/// What would happen otherwise.
#[test]
fn forwarding_by_itself_costs_an_advertised_default_route() {
    let (node, _world, _router) = advertised();
    node.set_sysctl("ipv6/conf/all/forwarding", "1");
    assert!(!has_default_route(&node));
}

#[test]
fn a_link_without_an_advertised_route_is_left_as_it_is() {
    let node = Space::new();
    node.sh("ip link add eth0 type veth peer name wire");
    for link in ["eth0", "wire"] {
        node.sh(&format!("ip link set {link} up"));
    }
    node.set_sysctl("ipv6/conf/eth0/accept_ra", "1");
    node.sh("ip -6 addr add fd00:5::2/64 dev eth0 nodad");
    node.sh("ip -6 route add default via fd00:5::1 dev eth0");
    // A program takes the advertisements instead of the kernel, and marks its route as the kernel would.
    node.set_sysctl("ipv6/conf/wire/accept_ra", "0");
    node.sh("ip -6 addr add fd00:6::2/64 dev wire nodad");
    node.sh("ip -6 route add default via fd00:6::1 dev wire proto ra metric 5");
    assert_eq!(turn_on(&node, Family::V6), ["/proc/sys/net/ipv6/conf/all/forwarding 0 1"]);
    assert_eq!(["eth0", "wire"].map(|link| node.sysctl(&format!("ipv6/conf/{link}/accept_ra"))), ["1", "0"]);
    assert_eq!(node.json("ip -6 -j route show default").len(), 2);
    assert_eq!(turn_on(&node, Family::V4), ["/proc/sys/net/ipv4/ip_forward 0 1"]);
    assert!(turn_on(&node, Family::V4).is_empty(), "written again");
}
