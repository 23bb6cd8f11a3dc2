//! `loopback`: what it says in each version, and what it finds.

use netloom_tests::{Host, peers_dir, plugin_dir};
use serde_json::{Value, json};

fn loopback(version: &str) -> Value {
    json!({"cniVersion": version, "name": "lo", "type": "loopback"})
}

/// The result has the form of the version that was asked for, which the reference plugin's has not before 1.0.0.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn the_result_is_of_the_version_that_was_asked_for() {
    let host = Host::new();
    host.container("c1");
    let ours = host.cni(plugin_dir()).at("c1", "lo");
    let theirs = host.cni(peers_dir()).at("c1", "lo");
    for version in ["0.1.0", "0.2.0"] {
        let result = ours.add(&loopback(version));
        assert_eq!(
            (&result["cniVersion"], &result["ip4"]["ip"], &result["ip6"]["ip"]),
            (&json!(version), &json!("127.0.0.1/8"), &json!("::1/128"))
        );
        assert!(result.get("ips").is_none() && result.get("interfaces").is_none(), "{result}");
    }
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let result = ours.add(&loopback(version));
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["ips"].as_array().unwrap().len(), 2, "{result}");
        if version.starts_with('1') {
            assert_eq!(result, theirs.add(&loopback(version)));
        }
    }
    let mut chained = loopback("1.0.0");
    chained["prevResult"] = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "dns": {"domain": "d"}});
    assert_eq!(ours.add(&chained), chained["prevResult"]);
}

#[test]
fn check_and_what_is_odd() {
    let host = Host::new();
    host.container("c1");
    let (cni, config) = (host.cni(plugin_dir()).at("c1", "whatever"), loopback("1.1.0"));
    let result = cni.add(&config);
    assert_eq!(cni.check(&config, &result).code, 0);
    host.sh("c1", "ip link set lo down");
    assert!(cni.check(&config, &result).message().contains("loopback interface is down"));
    for netns in ["", "/run/netns/gone", "/run/netns/c1"] {
        cni.clone().set("CNI_NETNS", netns).del(&config, &result);
    }
    host.sh("c1", "ip addr add 10.9.9.9/32 dev lo");
    assert!(cni.call("ADD", "loopback", config.to_string()).message().contains("non-loopback address 10.9.9.9"));
    assert!(!host.link("c1", "lo").unwrap().has("UP"), "a refused ADD changes nothing");
}

#[test]
fn it_comes_up_and_answers() {
    let host = Host::new();
    host.container("c1");
    let config = json!({"cniVersion": "1.1.0", "name": "lo", "type": "loopback"});
    let lo = host.cni(plugin_dir()).at("c1", "lo");
    let result = lo.add(&config);
    assert!(host.link("c1", "lo").unwrap().has("UP") && host.pings("c1", "127.0.0.1") && host.pings("c1", "::1"));
    assert_eq!(lo.check(&config, &result).code, 0);
    let before = host.traces();
    lo.del(&config, &result);
    host.expect_traces(&before, "DEL of loopback: it goes with its namespace");
}
