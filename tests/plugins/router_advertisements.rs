//! Who takes addresses and routes from a router that nobody has asked for (CVE-2020-10749).

use std::process::{Child, Stdio};

use netloom_tests::{Host, at};
use serde_json::{Value, json};

use crate::scene::{config, wired};

/// A router in the container `world`, which advertises the prefix of `wire1`; it ends with its handle.
struct Router(Child);

impl Router {
    fn on(host: &Host) -> Self {
        let mut command = host.command("world", "dnsmasq");
        command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=wire1", "--pid-file=", "--user=root"]);
        command.args([
            "--enable-ra",
            "--ra-param=wire1,high,4,600",
            "--dhcp-range=fd00:5::,ra-only,64,600",
            "--dhcp-leasefile=/run/leases",
        ]);
        Router(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine whose default route is from a router that advertises itself on its wire, and that does not forward yet.
fn advertised() -> (Host, Router) {
    let host = wired();
    host.sh("", "sysctl -qw net.ipv6.conf.wire0.accept_ra=1");
    host.sh("world", "sysctl -qw net.ipv6.conf.wire1.accept_ra=0");
    let router = Router::on(&host);
    host.until("a default route is advertised", || has_default_route(&host));
    (host, router)
}

fn has_default_route(host: &Host) -> bool {
    !host.json("", "ip -6 -j route show default proto ra").as_array().unwrap().is_empty()
}

fn macvlan(ipam: &Value) -> Value {
    match ipam {
        Value::Null => config("macvlan", json!({"master": "wire0"})),
        ipam => config("macvlan", json!({"master": "wire0", "ipam": ipam})),
    }
}

fn accepts(host: &Host, container: &str) -> String {
    host.sh(container, "cat /proc/sys/net/ipv6/conf/eth0/accept_ra").trim().to_owned()
}

#[test]
fn an_interface_takes_advertised_addresses_only_where_no_ipam_plugin_says_what_it_has() {
    let host = wired();
    host.container("c3");
    let v4 = json!({"type": "host-local", "subnet": "10.5.0.0/24", "rangeStart": "10.5.0.10"});
    let dual = json!({"type": "host-local", "ranges": [[{"subnet": "10.6.0.0/24"}], [{"subnet": "fd00:6::/64"}]]});
    at(&host, "c1").add(&macvlan(&v4));
    at(&host, "c2").add(&macvlan(&dual));
    at(&host, "c3").add(&macvlan(&Value::Null));
    host.sh("c3", "ip link set eth0 up");
    assert_eq!(["c1", "c2", "c3"].map(|c| accepts(&host, c)), ["0", "0", "1"]);
    let _router = Router::on(&host);
    host.until("an advertisement arrives", || !host.addresses("c3", "eth0").is_empty());
    // They had what c3 had.
    assert_eq!(host.addresses("c1", "eth0").len(), 1);
    assert_eq!(host.addresses("c2", "eth0").len(), 2);
    assert!(!host.sh("c2", "ip -6 route").contains("default"));
}

#[test]
fn tuning_wins() {
    let host = wired();
    let network = macvlan(&json!({"type": "host-local", "subnet": "10.5.0.0/24", "rangeStart": "10.5.0.10"}));
    let result = at(&host, "c1").add(&network);
    at(&host, "c1").add(&config("tuning", json!({"sysctl": {"net.ipv6.conf.IFNAME.accept_ra": "1"}, "prevResult": result})));
    assert_eq!(accepts(&host, "c1"), "1");
    assert_eq!(at(&host, "c1").check(&network, &result).code, 0);
}

/// Nothing is written, and nothing fails, where a runtime has IPv6 off in the container.
#[test]
fn without_ipv6_there_is_nothing_to_set() {
    let host = wired();
    host.sh("c1", "sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
    host.sh("c1", "sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    at(&host, "c1").add(&macvlan(&json!({"type": "host-local", "subnet": "10.5.0.0/24", "rangeStart": "10.5.0.10"})));
    assert_eq!(accepts(&host, "c1"), "1");
    assert_eq!(host.sh("c1", "cat /proc/sys/net/ipv6/conf/eth0/disable_ipv6").trim(), "1");
}

#[test]
fn the_containers_end_of_a_pair_takes_none_either() {
    let host = wired();
    let ipam = json!({"type": "host-local", "subnet": "10.7.0.0/24"});
    at(&host, "c1").add(&config("bridge", json!({"bridge": "br0", "ipam": ipam})));
    at(&host, "c2").add(&config("bridge", json!({"bridge": "br0"})));
    assert_eq!(["c1", "c2"].map(|c| accepts(&host, c)), ["0", "1"]);
    at(&host, "world").add(&config("ptp", json!({"ipam": ipam, "name": "other"})));
    assert_eq!(accepts(&host, "world"), "0");
}

/// A kernel that forwards IPv6 takes no default route from an advertisement, unless `accept_ra` is 2, and forgets those that it has.
#[test]
fn a_gateway_of_ipv6_leaves_the_host_its_advertised_default_route() {
    let ipam = json!({"type": "static", "addresses": [{"address": "fd71::2/64", "gateway": "fd71::1"}]});
    for network in [config("ptp", json!({"ipam": ipam})), config("bridge", json!({"bridge": "br0", "isGateway": true, "ipam": ipam}))] {
        let (host, _router) = advertised();
        let result = at(&host, "c1").add(&network);
        assert_eq!(host.sh("", "sysctl -n net.ipv6.conf.all.forwarding").trim(), "1");
        assert!(has_default_route(&host), "{network}");
        assert_eq!(host.sh("", "sysctl -n net.ipv6.conf.wire0.accept_ra").trim(), "2");
        at(&host, "c1").del(&network, &result);
        assert!(has_default_route(&host), "{network}");
    }
}
