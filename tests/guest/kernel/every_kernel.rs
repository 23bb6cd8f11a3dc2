//! What every kernel has, on the guest's: it is an older one (Debian 12's), which sends back no link that it has made.

use netloom_tests::{Host, at, peers_dir};
use serde_json::{Value, json};

use crate::kernel::links::{addressed, config, dual, wired};

/// What the reference plugin made is deleted by ours; then ADD, CHECK, packets of both families, DEL twice, and nothing is left.
fn comes_and_goes(host: &Host, config: &Value, outside: &str) {
    let kind = config["type"].as_str().unwrap();
    // What the kernel, the plugin and its peer keep: directories, settings.
    let first = host.cni(peers_dir()).at("c1", "eth0").add(config);
    at(host, "c1").del(config, &first);
    let first = at(host, "c1").add(config);
    at(host, "c1").del(config, &first);
    let before = host.traces();

    let result = at(host, "c1").add(config);
    let checked = at(host, "c1").check(config, &result);
    assert_eq!(checked.code, 0, "{kind}: {checked:?}");
    for address in ["10.5.0.1", "fd00:5::1"] {
        assert!(host.pings("c1", address), "{kind}: {address}");
    }
    for ip in result["ips"].as_array().unwrap() {
        let address = ip["address"].as_str().unwrap().split('/').next().unwrap();
        assert!(host.pings(outside, address), "{kind}: {address} from {outside:?}");
    }
    host.sh("c1", "ip link set eth0 down");
    let checked = at(host, "c1").check(config, &result);
    assert!(checked.message().contains("interface eth0 was changed: it is down"), "{kind}: {checked:?}");
    at(host, "c1").del(config, &result);
    at(host, "c1").del(config, &result);
    host.expect_traces(&before, kind);
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_bridge_with_a_gateway_and_masquerade() {
    let host = wired();
    let config =
        config("bridge", json!({"bridge": "br0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "mtu": 1400, "ipam": dual()}));
    comes_and_goes(&host, &config, "");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_pair_to_the_host() {
    let host = wired();
    let config = config("ptp", json!({"ipMasq": true, "mtu": 1400, "ipam": dual()}));
    comes_and_goes(&host, &config, "");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_macvlan_on_a_wire() {
    let host = wired();
    addressed(&host, "wire1", 5);
    let config = config("macvlan", json!({"master": "wire0", "mode": "bridge", "mtu": 1400, "ipam": dual()}));
    comes_and_goes(&host, &config, "world");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_device_of_the_host() {
    let host = wired();
    addressed(&host, "wire1", 5);
    let config = config("host-device", json!({"device": "wire0", "ipam": dual()}));
    comes_and_goes(&host, &config, "world");
    assert!(host.link("", "wire0").is_some() && host.link("c1", "wire0").is_none());
}

/// With networks and without: other queueing disciplines.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn limits_of_a_bridges_pair() {
    let host = wired();
    let bridge = config("bridge", json!({"bridge": "br0", "isDefaultGateway": true, "ipam": dual()}));
    let first = at(&host, "c1").add(&bridge);
    at(&host, "c1").del(&bridge, &first);
    let before = host.traces();
    let joined = at(&host, "c1").add(&bridge);
    let outer = joined["interfaces"][1]["name"].as_str().unwrap();
    let limits = json!({"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000, "egressBurst": i32::MAX});
    for (networks, kind) in [(json!([]), "tbf"), (json!(["10.9.0.0/16", "fd00:9::/35"]), "htb")] {
        let mut limited = config("bandwidth", limits.clone());
        limited["unshapedSubnets"] = networks;
        limited["prevResult"] = joined.clone();
        let status = at(&host, "c1").call("STATUS", "bandwidth", limited.to_string());
        assert_eq!(status.code, 0, "{status:?}");
        let result = at(&host, "c1").add(&limited);
        let checked = at(&host, "c1").check(&limited, &result);
        assert_eq!(checked.code, 0, "{kind}: {checked:?}");
        assert!(host.pings("c1", "10.5.0.1") && host.pings("c1", "fd00:5::1"), "{kind}");
        let qdiscs = host.json("", "tc -j qdisc show").to_string();
        assert!(qdiscs.contains(kind) && qdiscs.contains("ingress") && qdiscs.contains("\"dev\":\"bwp"), "{qdiscs}");
        host.sh("", &format!("tc qdisc del dev {outer} ingress"));
        let checked = at(&host, "c1").check(&limited, &result);
        assert!(checked.message().contains("it has lost the filter"), "{kind}: {checked:?}");
        at(&host, "c1").del(&limited, &result);
        at(&host, "c1").del(&limited, &result);
        assert!(!host.json("", "tc -j qdisc show").to_string().contains(kind));
    }
    at(&host, "c1").del(&bridge, &joined);
    host.expect_traces(&before, "limits");
}
