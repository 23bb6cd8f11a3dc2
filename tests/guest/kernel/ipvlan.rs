//! `ipvlan` in its modes, and behind another plugin.

use std::process::{Child, Command, Stdio};

use netloom_tests::{at, attached_once, plugin_dir};
use serde_json::{Value, json};

use crate::kernel::links::{addressed, check_finds, config, dual, fixed, goes_every_way, status_tells_of_the_parent, wired};

fn ipvlan(mode: &str, ipam: Value) -> Value {
    config("ipvlan", json!({"master": "wire0", "mode": mode, "ipam": ipam}))
}

fn mode(host: &netloom_tests::Host, container: &str) -> String {
    host.link(container, "eth0").unwrap().0["linkinfo"]["info_data"]["mode"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn l2_reaches_neighbours_and_the_world() {
    let host = wired();
    addressed(&host, "wire1", 5);
    let config = ipvlan("l2", dual());
    let before = attached_once(&host, &config);
    let (one, two) = (at(&host, "c1").add(&config), at(&host, "c2").add(&config));
    assert_eq!((mode(&host, "c1").as_str(), host.link("c1", "eth0").unwrap().mac()), ("l2", host.link("", "wire0").unwrap().mac()));
    for ip in two["ips"].as_array().unwrap() {
        assert!(host.pings("c1", ip["address"].as_str().unwrap().split('/').next().unwrap()), "{ip}");
    }
    assert!(host.pings("c1", "10.5.0.1") && host.pings("c2", "fd00:5::1"));
    at(&host, "c1").del(&config, &one);
    at(&host, "c2").del(&config, &two);
    host.expect_traces(&before, "ipvlan in mode l2");
}

/// A server, or the daemon: it ends with the test.
struct Service(Child);

impl Service {
    fn start(mut command: Command, args: &[&str]) -> Self {
        Service(command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All have one hardware address: the server tells them apart by their identifiers, and its answers go to all.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn addresses_of_a_dhcp_server() {
    let host = wired();
    addressed(&host, "wire1", 5);
    let served = ["--no-daemon", "--conf-file=/dev/null", "--port=0", "--no-ping", "--user=root", "--interface=wire1", "--pid-file="];
    let leases = ["--dhcp-leasefile=/run/server.leases", "--dhcp-range=10.5.0.10,10.5.0.200,255.255.255.0,1h"];
    let _server = Service::start(host.command("world", "dnsmasq"), &[&served[..], &leases[..]].concat());
    let _daemon = Service::start(host.command("", plugin_dir().join("dhcp")), &["daemon", "-broadcast"]);
    host.until("server and daemon are there", || host.path("/run/cni/dhcp.sock").exists() && host.path("/run/server.leases").exists());
    let config = ipvlan("l2", json!({"type": "dhcp"}));
    let before = attached_once(&host, &config);
    let (one, two) = (at(&host, "c1").add(&config), at(&host, "c2").add(&config));
    let address = |result: &Value| result["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    assert_ne!(address(&one), address(&two));
    assert!(host.pings("c1", "10.5.0.1") && host.pings("c2", "10.5.0.1") && host.pings("c1", &address(&two)));
    assert_eq!(at(&host, "c1").check(&config, &one).code, 0);
    at(&host, "c1").del(&config, &one);
    at(&host, "c2").del(&config, &two);
    // The file of the server's leases has none, as before.
    host.until("the server has them again", || !host.run("", &["cat", "/run/server.leases"]).contains("10.5.0."));
    host.expect_traces(&before, "ipvlan with dhcp");
}

/// Two networks, between which the parent's namespace routes.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn l3_and_l3s_route() {
    for kind in ["l3", "l3s"] {
        let host = wired();
        let ipam = |address: &str| {
            let mut ipam = fixed(address);
            ipam["routes"] = json!([{"dst": "0.0.0.0/0"}]);
            ipvlan(kind, ipam)
        };
        let (first, second) = (ipam("10.71.1.2/24"), ipam("10.72.1.2/24"));
        let before = attached_once(&host, &first);
        let one = at(&host, "c1").add(&first);
        at(&host, "c2").add(&second);
        assert_eq!(mode(&host, "c1"), kind);
        assert!(host.pings("c1", "10.72.1.2") && host.pings("c2", "10.71.1.2"), "{kind}");
        assert_eq!(at(&host, "c1").check(&first, &one).code, 0);
        at(&host, "c1").del(&first, &one);
        at(&host, "c2").del(&second, &Value::Null);
        host.expect_traces(&before, kind);
    }
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn an_ipvlan_goes_every_way() {
    let host = wired();
    goes_every_way(&host, &ipvlan("l2", dual()));
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn check_and_status_of_an_ipvlan() {
    let host = wired();
    let config = ipvlan("l2", dual());
    check_finds(&host, &config, &[("ip link set eth0 type ipvlan mode l3", "its mode is l3, not l2")]);
    let result = at(&host, "c1").add(&config);
    host.sh("", "ip link add wire2 type veth peer name wire3");
    let mut other = config.clone();
    other["master"] = json!("wire2");
    assert!(at(&host, "c1").check(&other, &result).message().contains("its parent is not wire2"));
    // A parent carries one or the other.
    let macvlan = crate::kernel::links::config("macvlan", json!({"master": "wire0"}));
    let add = at(&host, "c2").call("ADD", "macvlan", macvlan.to_string());
    assert!(add.message().contains("have both macvlans and ipvlans"), "{add:?}");
    at(&host, "c1").del(&config, &result);
    status_tells_of_the_parent(&host, &config);
}

/// The parent and the addresses are what the plugin before told.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn behind_another_plugin() {
    let host = wired();
    addressed(&host, "wire1", 5);
    let prev = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "wire0"}], "ips": [{"address": "10.5.0.50/24", "interface": 0}],
        "dns": {"nameservers": ["10.5.0.53"]}});
    let chained = config("ipvlan", json!({"prevResult": prev}));
    let before = host.traces();
    let result = at(&host, "c1").add(&chained);
    assert!(host.pings("c1", "10.5.0.1"));
    assert_eq!((&result["interfaces"][0]["name"], &result["ips"][0]["address"]), (&json!("eth0"), &json!("10.5.0.50/24")));
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 1);
    assert_eq!(result["dns"]["nameservers"][0], "10.5.0.53");
    let alone = config("ipvlan", json!({}));
    assert_eq!(at(&host, "c1").check(&alone, &result).code, 0);
    at(&host, "c1").del(&alone, &result);
    host.expect_traces(&before, "a chained ipvlan");
    let mut two = chained.clone();
    two["prevResult"]["interfaces"] = json!([{"name": "wire0"}, {"name": "wire1"}]);
    let add = at(&host, "c1").call("ADD", "ipvlan", two.to_string());
    assert!(add.message().contains("PrevResult lacks a single named interface: it has [wire0, wire1]"), "{add:?}");
    let status = host.cni(netloom_tests::plugin_dir()).call("STATUS", "ipvlan", alone.to_string());
    assert_eq!(status.code, 0, "{status:?}");
}
