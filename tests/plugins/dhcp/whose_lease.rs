//! Whose a lease and an address are: of several callers, interfaces, servers and stations.

use std::process::Stdio;
use std::time::Duration;

use netloom_tests::{ips, plugin_dir};
use serde_json::json;

use crate::dhcp::server::{World, bridge, needs};

/// An ADD that waited for one that gave up had the entry that the other one took out of the table: its lease was nobody's.
#[test]
fn an_add_behind_one_that_gives_up() {
    let mut world = World::empty();
    world.start();
    world.station("server");
    world.station_at("c1", None);
    let config = world.only("net");
    let mut first = world.cni("c1").start("ADD", "dhcp", config.to_string());
    world.until_told("dhcp", "acquiring lease", 1);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| world.cni("c1").call("ADD", "dhcp", config.to_string()).result());
        // Sleeps: the second call is to wait for the first.
        std::thread::sleep(Duration::from_millis(500));
        // Its runtime has given up on it, and nobody sends a DEL.
        first.kill().unwrap();
        first.wait().unwrap();
        world.until_told("dhcp", "the caller is gone", 1);
        world.until_told("dhcp", "acquiring lease", 2);
        let mut server = world.host.command("server", "dnsmasq");
        server.args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--no-ping", "--user=root", "--interface=eth0"]);
        server.args(["--dhcp-leasefile=/run/l", "--pid-file=/run/p", "--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h"]);
        let mut server = server.stderr(Stdio::null()).spawn().unwrap();
        let result = second.join();
        let mut prev = config.clone();
        prev["prevResult"] = result.unwrap_or_default();
        let checked = world.cni("c1").call("CHECK", "dhcp", prev.to_string());
        let deleted = world.cni("c1").call("DEL", "dhcp", config.to_string());
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!((checked.code, deleted.code), (0, 0), "{checked:?}");
    });
    world.until_told("dhcp", "c1/net/eth0: released", 1);
}

/// The lease was taken for the container's name only: it ended with the interface that it had been asked for.
#[test]
fn another_interface_of_the_same_name() {
    let world = World::new();
    world.station_at("c1", None);
    let config = world.only("net").to_string();
    let mac = || world.host.link("c1", "eth0").unwrap().mac().to_owned();
    let address = ips(&world.cni("c1").call("ADD", "dhcp", &config).result())[0].clone();
    assert_eq!(world.exchanges("server", &format!("DHCPACK(eth0) {address} {}", mac())), 1);
    let again = world.cni("c1").call("ADD", "dhcp", &config).result();
    assert_eq!((&ips(&again)[0], world.exchanges("server", "DHCPACK")), (&address, 1), "it is the lease that there is");
    world.host.sh("", "ip link del c1");
    world.host.sh("", "ip link add c1 type veth peer name eth0 netns c1");
    world.host.sh("", "ip link set c1 master br0 up");
    world.host.sh("c1", "ip link set eth0 up");
    let other = ips(&world.cni("c1").call("ADD", "dhcp", &config).result())[0].clone();
    assert_eq!(world.exchanges("server", &format!("DHCPACK(eth0) {other} {}", mac())), 1, "{}", world.log("server"));
    world.until_told("dhcp", "dropped without a DHCPRELEASE", 1);
    assert_eq!(world.told("dhcp", ": released"), 0);
    // The same interface with another address of its own.
    world.host.sh("c1", "ip link set eth0 address 02:00:00:00:77:01");
    assert_eq!(world.cni("c1").call("ADD", "dhcp", &config).code, 0);
    assert!(world.log("server").lines().any(|line| line.contains("DHCPACK") && line.contains("02:00:00:00:77:01")));
}

/// Eight workers waited for a server that was gone, and the leases of one that was there ended.
#[test]
fn one_dead_server_and_one_that_lives() {
    let mut world = World::empty();
    world.kea("server", "10.9.0.10 - 10.9.0.120", [20, 300, 400]);
    world.start();
    let (dead, live) = (world.only("dead").to_string(), world.only("live"));
    let names: Vec<String> = (0..72).map(|n| format!("d{n}")).collect();
    names.iter().for_each(|name| world.station_at(name, None));
    std::thread::scope(|scope| {
        names.iter().for_each(|name| drop(scope.spawn(|| world.cni(name).call("ADD", "dhcp", &dead).result())));
    });
    world.stop("server");
    world.kea("server2", "10.9.0.130 - 10.9.0.139", [3, 40, 60]);
    world.station_at("live", None);
    let result = world.cni("live").call("ADD", "dhcp", live.to_string()).result();
    assert!(ips(&result)[0].starts_with("10.9.0.13"), "{result}");
    world.until_told("dhcp", "/dead/eth0: no DHCP server answered", 24);
    world.until_told("dhcp", "/dead/eth0: no DHCP server answered", 48);
    world.until_told("dhcp", "live/live/eth0: lease renewed", 5);
    assert_eq!(world.told("dhcp", "live/live/eth0: the lease of"), 0, "it has ended");
    assert_eq!(world.told("dhcp", "live/live/eth0: lease rebound"), 0, "it was late");
}

/// What a container said of its own address, with another hardware address or from another interface, was taken for another
/// station's for a second after the ADD: the address was declined.
#[test]
fn a_container_tells_of_its_own_addresses() {
    let world = World::new();
    world.station_at("peer", Some(7));
    world.host.container("c1");
    let mut config = bridge(json!({}));
    config["hairpinMode"] = json!(true);
    let at = |ifname: &str| world.host.cni(plugin_dir()).at("c1", ifname);
    let results = ["eth0", "net1"].map(|ifname| at(ifname).add(&config));
    // Who asks for it hears of both interfaces; who tells of a new hardware address hears itself through the bridge.
    assert!(world.host.pings("peer", &ips(&results[1])[0]));
    for line in ["sysctl -qw net.ipv4.conf.eth0.arp_notify=1", "ip link set eth0 address 02:aa:bb:cc:dd:01"] {
        world.host.sh("c1", line);
    }
    // Sleeps: what the kernel announces arrives, if at all, soon.
    std::thread::sleep(Duration::from_millis(1200));
    for (ifname, result) in ["eth0", "net1"].iter().zip(&results) {
        let mut config = world.only("net");
        config["prevResult"] = result.clone();
        let checked = at(ifname).call("CHECK", "dhcp", config.to_string());
        assert_eq!(checked.code, 0, "{ifname}: {checked:?}");
    }
    assert_eq!(world.told("server", "DHCPDECLINE"), 0, "{}", world.log("server"));
}

/// Answers who asks for 10.9.0.100 with ARP, 40 ms later.
const SLOW: &str = r#"
import socket, struct, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x806))
s.bind(("eth0", 0x806))
mac, own = s.getsockname()[4], socket.inet_aton("10.9.0.100")
print("listens", flush=True)
while True:
    asked = s.recv(2048)
    if asked[20:22] == b"\0\1" and asked[38:42] == own:
        # Sleeps: its answer comes late.
        time.sleep(0.04)
        s.send(asked[6:12] + mac + struct.pack("!HHHBBH", 0x806, 1, 0x800, 6, 4, 2) + mac + own + asked[22:32])
"#;

/// An address that was granted in the place of one that had ended was taken before its owner had answered.
#[test]
fn in_the_place_of_one_that_has_ended() {
    needs("python3", "python3");
    let mut world = World::empty();
    world.kea("server", "10.9.0.10 - 10.9.0.50", [2, 20, 40]);
    world.start();
    world.station_at("slow", None);
    let mut slow = world.host.command("slow", "python3");
    slow.args(["-c", SLOW]);
    world.spawn("slow", slow);
    world.until_told("slow", "listens", 1);
    world.host.container("c1");
    // However late its owner answers.
    world.cni("c1").add(&bridge(json!({"probe": 5000})));
    world.stop("server");
    world.serve("server", &["--dhcp-range=10.9.0.100,10.9.0.100,255.255.255.0,1h", "--dhcp-authoritative"]);
    world.until_told("server", "DHCPACK(eth0) 10.9.0.100", 1);
    world.until_told("server", "DHCPDECLINE(eth0) 10.9.0.100", 1);
    world.until_told("dhcp", "offered 10.9.0.100, which", 1);
    assert_eq!((world.host.addresses("c1", "eth0"), world.told("dhcp", "acquired again")), (Vec::new(), 0));
}
