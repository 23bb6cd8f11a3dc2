//! CHECK of a macvlan finds each thing that is not as ADD made it.

use netloom_tests::{Host, at, peers_dir, plugin_dir};
use serde_json::{Value, json};

use crate::scene::{config, dual, wired};

/// Changes one thing in `c1`, and expects CHECK to say so.
pub(crate) fn finds(host: &Host, config: &Value, result: &Value, change: &str, says: &str) {
    assert_eq!(at(host, "c1").check(config, result).code, 0, "before {change}");
    change.split(';').for_each(|line| drop(host.sh("c1", line)));
    let check = at(host, "c1").check(config, result);
    assert!(check.code == 1 && check.message().contains(says), "{change}: {check:?}");
}

#[test]
fn what_was_changed_in_the_container() {
    let config = config("macvlan", json!({"master": "wire0", "ipam": dual()}));
    for (change, says) in [
        // No MTU is configured.
        ("ip link set eth0 mtu 1400", "its MTU is 1400, not 1500"),
        ("ip link set eth0 address 02:00:00:00:00:77", "its hardware address is 02:00:00:00:00:77"),
        ("ip link set eth0 down", "it is down"),
        ("ip link set eth0 type macvlan mode vepa", "its mode is vepa, not bridge"),
        ("ip addr del 10.5.0.10/24 dev eth0", "it has lost address 10.5.0.10/24"),
        ("ip addr del fd00:5::10/64 dev eth0", "it has lost address fd00:5::10/64"),
        ("ip route del 10.99.0.0/16", "route to 10.99.0.0/16 is gone"),
        ("ip link del eth0", "it is gone from the container"),
        ("ip link del eth0;ip link add eth0 type veth peer name other", "it is a veth, not a macvlan"),
    ] {
        let host = wired();
        let result = at(&host, "c1").add(&config);
        finds(&host, &config, &result, change, says);
    }
}

#[test]
fn another_parent() {
    let host = wired();
    host.sh("", "ip link add wire2 type veth peer name wire3");
    host.sh("", "ip link set wire2 up");
    let on = |master: &str| config("macvlan", json!({"master": master, "ipam": dual()}));
    let result = at(&host, "c1").add(&on("wire0"));
    assert_eq!(at(&host, "c1").check(&on("wire0"), &result).code, 0);
    let check = at(&host, "c1").check(&on("wire2"), &result);
    assert!(check.message().contains("its parent is not wire2"), "{check:?}");
    let check = at(&host, "c1").check(&on("wire9"), &result);
    assert!(check.message().contains("no interface \"wire9\""), "{check:?}");
}

/// A default route as host-local gives it names no gateway: it goes by the address's.
#[test]
fn a_default_route_that_goes_elsewhere() {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24"}], [{"subnet": "fd00:5::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    let config = config("macvlan", json!({"master": "wire0", "ipam": ipam}));
    for (change, says) in [
        ("ip route replace default via 10.5.0.99 dev eth0", "route to 0.0.0.0/0 is gone (it went via 10.5.0.1)"),
        ("ip route replace default dev eth0", "route to 0.0.0.0/0 is gone"),
        ("ip -6 route del default;ip -6 route add default via fd00:5::99 dev eth0", "route to ::/0 is gone (it went via fd00:5::1)"),
    ] {
        let host = wired();
        let result = at(&host, "c1").add(&config);
        finds(&host, &config, &result, change, says);
    }
}

/// Without `master` it stands where the default route led when it was made.
#[test]
fn the_default_route_has_moved_since() {
    let host = wired();
    host.sh("", "ip link add wire2 type veth peer name wire3");
    host.sh("", "ip link set wire2 up");
    host.sh("", "ip route replace default dev wire0");
    let config = config("macvlan", json!({"ipam": dual()}));
    let result = at(&host, "c1").add(&config);
    host.sh("", "ip route replace default dev wire2");
    let check = at(&host, "c1").check(&config, &result);
    assert_eq!(check.code, 0, "{check:?}");
}

/// An old result cannot tell it.
#[test]
fn an_mtu_that_only_the_configuration_tells() {
    let host = wired();
    let mut config = config("macvlan", json!({"master": "wire0", "mtu": 1400, "ipam": dual()}));
    config["cniVersion"] = json!("0.4.0");
    let result = at(&host, "c1").add(&config);
    assert!(!result.to_string().contains("mtu"), "{result}");
    finds(&host, &config, &result, "ip link set eth0 mtu 1300", "its MTU is 1300, not 1400");
}

/// What `tuning` changes later is as it should be.
#[test]
fn the_mtu_of_a_chain_is_the_last_one() {
    let host = wired();
    let network = config("macvlan", json!({"master": "wire0", "ipam": dual()}));
    let result = at(&host, "c1").add(&network);
    let told = |result: &Value| result["interfaces"][0]["mtu"].clone();
    assert_eq!(told(&result), 1500);
    let last = at(&host, "c1").add(&config("tuning", json!({"mtu": 1350, "prevResult": result})));
    assert_eq!(told(&last), 1350);
    finds(&host, &network, &last, "ip link set eth0 mtu 1300", "its MTU is 1300, not 1350");
}

/// The reference's `tuning` does not tell what it has set.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn an_mtu_that_another_tuning_has_set() {
    let host = wired();
    host.run("", &["mkdir", "/run/plugins"]);
    for (name, dir) in [("macvlan", plugin_dir()), ("host-local", plugin_dir()), ("tuning", peers_dir())] {
        host.run("", &["ln", "-s", dir.join(name).to_str().unwrap(), &format!("/run/plugins/{name}")]);
    }
    let cni = host.cni("/run/plugins".as_ref()).at("c1", "eth0");
    let of = |kind: &str, keys: Value| {
        let mut config = config(kind, keys);
        config["cniVersion"] = json!("1.0.0");
        config
    };
    let network = of("macvlan", json!({"master": "wire0", "ipam": dual()}));
    let result = cni.add(&network);
    let last = cni.add(&of("tuning", json!({"mtu": 1350, "prevResult": result})));
    assert_eq!(host.link("c1", "eth0").unwrap().mtu(), 1350);
    let check = cni.check(&network, &last);
    assert_eq!(check.code, 0, "{check:?}");
}
