//! `macvlan`, key by key.

mod check;

use netloom_tests::{Host, at, attached_once, ips, peers_dir};
use serde_json::{Value, json};

use crate::scene::{config, dual, wired};

fn info(host: &Host, container: &str) -> Value {
    host.link(container, "eth0").unwrap().0["linkinfo"]["info_data"].clone()
}

#[test]
fn every_mode() {
    for (mode, among, out) in [("bridge", true, true), ("private", false, true), ("vepa", false, true), ("passthru", false, true)] {
        let host = wired();
        let config = config("macvlan", json!({"master": "wire0", "mode": mode, "ipam": dual()}));
        let before = attached_once(&host, &config);
        let result = at(&host, "c1").add(&config);
        assert_eq!(info(&host, "c1")["mode"], mode);
        assert_eq!((host.pings("c1", "10.5.0.1"), host.pings("c1", "fd00:5::1")), (out, out), "{mode}");
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0, "{mode}");
        if mode == "passthru" {
            let second = at(&host, "c2").call("ADD", "macvlan", config.to_string());
            assert!(second.message().contains("wire0 may be a bridge port, used by a macvlan in passthru mode"), "{second:?}");
        } else {
            let second = at(&host, "c2").add(&config);
            let address = second["ips"][0]["address"].as_str().unwrap().trim_end_matches("/24").to_owned();
            assert!(if among { host.pings("c1", &address) } else { host.silent("c1", &address) }, "{mode}");
            at(&host, "c2").del(&config, &second);
        }
        at(&host, "c1").del(&config, &result);
        host.expect_traces(&before, mode);
    }
}

#[test]
fn mtu_and_queue() {
    let host = wired();
    let keys = json!({"master": "wire0", "mtu": 1280, "bcqueuelen": 333});
    at(&host, "c1").add(&config("macvlan", keys));
    assert_eq!((host.link("c1", "eth0").unwrap().mtu(), &info(&host, "c1")["bcqueuelen"]), (1280, &json!(333)));
    for mtu in [1501, -1] {
        let add = at(&host, "c2").call("ADD", "macvlan", config("macvlan", json!({"master": "wire0", "mtu": mtu})).to_string());
        assert!(add.message().contains(&format!("invalid MTU {mtu}, must be [0, master MTU(1500)]")), "{add:?}");
    }
}

/// Of the host, of either family; of the container.
#[test]
fn a_parent_that_is_not_named() {
    for route in ["ip -4 route add default dev wire0", "ip -6 route add default dev wire0"] {
        let host = wired();
        let config = config("macvlan", json!({"ipam": dual()}));
        let add = at(&host, "c1").call("ADD", "macvlan", config.to_string());
        assert!(add.message().contains("set \"master\""), "{add:?}");
        host.sh("", route);
        let result = at(&host, "c1").add(&config);
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0, "{route}");
        assert!(host.pings("c1", "10.5.0.1"));
    }
}

#[test]
fn a_parent_in_the_container() {
    let host = wired();
    host.sh("", "ip link add inner netns c1 type veth peer name outer netns world");
    host.sh("c1", "ip link set inner up");
    host.sh("world", "ip link set outer up");
    host.sh("world", "ip addr add 10.8.0.1/24 dev outer");
    let ipam = json!({"type": "host-local", "subnet": "10.8.0.0/24", "rangeStart": "10.8.0.10"});
    let config = config("macvlan", json!({"master": "inner", "linkInContainer": true, "mtu": 1400, "ipam": ipam}));
    let before = attached_once(&host, &config);
    let result = at(&host, "c1").add(&config);
    assert!(host.pings("c1", "10.8.0.1"));
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    let mut other = config.clone();
    other["linkInContainer"] = json!(false);
    other["master"] = json!("wire0");
    assert!(at(&host, "c1").check(&other, &result).message().contains("its parent is not wire0"));
    other["linkInContainer"] = json!(true);
    let add = at(&host, "c2").call("ADD", "macvlan", other.to_string());
    assert!(add.message().contains("there is no interface \"wire0\" in the container"), "{add:?}");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a macvlan on a link of the container");
}

/// What the reference plugin made goes with our DEL, by the result of its ADD; twice is no error.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn one_that_another_implementation_made() {
    let host = wired();
    let config = config("macvlan", json!({"master": "wire0", "ipam": dual()}));
    let before = attached_once(&host, &config);
    let theirs = host.cni(peers_dir()).at("c1", "eth0").add(&config);
    assert!(host.pings("c1", "10.5.0.1"));
    at(&host, "c1").del(&config, &theirs);
    at(&host, "c1").del(&config, &theirs);
    host.expect_traces(&before, "our DEL of the reference plugin's macvlan");
}

/// The DNS settings that the IPAM plugin gives are the result's, unless there are others.
#[test]
fn name_servers() {
    let host = wired();
    let ipam = json!({"type": "static", "addresses": [{"address": "10.5.0.20/24"}], "dns": {"nameservers": ["10.5.0.53"]}});
    let result = at(&host, "c1").add(&config("macvlan", json!({"master": "wire0", "ipam": ipam})));
    assert_eq!(result["dns"], json!({"nameservers": ["10.5.0.53"]}));
    let own = config("macvlan", json!({"master": "wire0", "ipam": ipam, "dns": {"domain": "x.org"}}));
    assert_eq!(at(&host, "c2").add(&own)["dns"], json!({"domain": "x.org"}));
}

#[test]
fn macvlan_on_a_shared_wire() {
    let host = Host::new();
    for container in ["c1", "c2", "far"] {
        host.container(container);
    }
    host.sh("", "ip link add wire0 type veth peer name wire1 netns far");
    host.sh("", "ip link set wire0 up");
    host.sh("far", "ip link set wire1 up");
    host.sh("far", "ip addr add 10.5.0.254/24 dev wire1");
    let config = json!({"cniVersion": "1.1.0", "name": "wire", "type": "macvlan", "master": "wire0", "mtu": 1400,
        "ipam": {"type": "host-local", "subnet": "10.5.0.0/24", "rangeEnd": "10.5.0.9"}});
    let first = at(&host, "c1").add(&config);
    at(&host, "c1").del(&config, &first);
    let before = host.traces();
    let results = ["c1", "c2"].map(|c| at(&host, c).add(&config));
    let link = host.link("c1", "eth0").unwrap();
    assert_eq!((&link.0["linkinfo"]["info_kind"], &link.0["linkinfo"]["info_data"]["mode"]), (&json!("macvlan"), &json!("bridge")));
    assert_eq!(link.mtu(), 1400);
    assert!(host.pings("c1", &ips(&results[1])[0]), "to the other container");
    assert!(host.pings("c1", "10.5.0.254"), "over the wire");
    assert_eq!(at(&host, "c1").check(&config, &results[0]).code, 0);
    host.sh("c1", "ip link set eth0 type macvlan mode vepa");
    assert!(at(&host, "c1").check(&config, &results[0]).message().contains("mode is vepa, not bridge"));
    for (c, result) in ["c1", "c2"].iter().zip(&results) {
        at(&host, c).del(&config, result);
    }
    host.expect_traces(&before, "macvlan");
}
