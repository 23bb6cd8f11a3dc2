//! What every kernel has, on the guest's: it is an older one (Debian 12's), which sends back no link that it has made.

use netloom_tests::{Host, at, peers_dir};
use serde_json::{Value, json};

use crate::links::{addressed, config, dual, wired};

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
    assert!(checked.message().contains("interface eth0 is not as it was made: it is down"), "{kind}: {checked:?}");
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
