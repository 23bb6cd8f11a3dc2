//! Requested addresses, which are honoured or refused, and pools that are short of some.

use std::time::{Duration, Instant};

use netloom_tests::{Outcome, at};
use serde_json::{Value, json};

use crate::pool::{POOLS, add, all_free, alone, bridge, call, del, dual, got, grant, range, scene};

/// The ways in which an address can be asked for.
#[derive(Clone, Copy, Debug)]
enum Channel {
    Runtime,
    Configuration,
    Variable,
}

const CHANNELS: [Channel; 3] = [Channel::Runtime, Channel::Configuration, Channel::Variable];

fn ask(host: &netloom_tests::Host, channel: Channel, addresses: &[&str]) -> Outcome {
    ask_as(host, channel, addresses, &alone())
}

fn ask_as(host: &netloom_tests::Host, channel: Channel, addresses: &[&str], config: &Value) -> Outcome {
    let (mut config, mut cni) = (config.clone(), at(host, "c1"));
    match channel {
        Channel::Runtime => config["runtimeConfig"] = json!({"ips": addresses}),
        Channel::Configuration => config["args"] = json!({"cni": {"ips": addresses}}),
        Channel::Variable => cni = cni.set("CNI_ARGS", &format!("IP={}", addresses.join(","))),
    }
    cni.call("ADD", config["type"].as_str().unwrap(), config.to_string())
}

#[test]
fn requested_by_any_channel() {
    let host = scene(&dual());
    for channel in CHANNELS {
        let addresses = got(&ask(&host, channel, &["10.9.0.77"]));
        assert!(addresses[0] == "10.9.0.77/24" && addresses[1].starts_with("fd00:9::"), "{channel:?}: {addresses:?}");
        del(&host, "c1");
        assert_eq!(got(&ask(&host, channel, &["fd00:9::8000:0:0:77", "10.9.0.5"])), ["10.9.0.5/24", "fd00:9::8000:0:0:77/64"]);
        del(&host, "c1");
    }
}

/// The codes are those of `host-local` for the same.
#[test]
fn requested_and_not_to_be_had() {
    let mut spec = dual();
    spec["exclude"] = json!(["10.9.0.64/28"]);
    spec["reserved"] = json!(["10.9.0.9"]);
    let host = scene(&spec);
    let local = json!({"cniVersion": "1.1.0", "name": "local", "type": "host-local",
        "ipam": {"type": "host-local", "subnet": "10.9.0.0/24", "gateway": "10.9.0.1"}});
    for config in [alone(), local.clone()] {
        let taken = ask_as(&host, Channel::Runtime, &["10.9.0.50"], &config);
        assert_eq!(taken.code, 0, "{taken:?}");
        let mut again = config.clone();
        again["runtimeConfig"] = json!({"ips": ["10.9.0.50"]});
        let refused = call(&host, "ADD", "c2", &again);
        assert_eq!(refused.error()["code"], 11, "{refused:?}");
        call(&host, "DEL", "c1", &config).silent();
    }
    for channel in CHANNELS {
        for (address, says) in [
            ("10.8.0.1", "10.8.0.1 is in no block of pool \"lab\""),
            ("10.9.0.1", "10.9.0.1 is excluded from pool \"lab\", or is its gateway"),
            ("10.9.0.255", "10.9.0.255 is excluded"),
            ("x", "\"x\" is not an IP address"),
        ] {
            let refused = ask(&host, channel, &[address]);
            assert!(refused.message().contains(says), "{channel:?} {address}: {refused:?}");
            let same = ask_as(&host, channel, &[address], &local);
            assert_eq!(refused.error()["code"], same.error()["code"], "{channel:?} {address}: {refused:?} {same:?}");
        }
        for (address, says) in [("10.9.0.70", "10.9.0.70 is excluded"), ("10.9.0.9", "10.9.0.9 is reserved for claims in pool \"lab\"")] {
            let refused = ask(&host, channel, &[address]);
            assert!(refused.error()["code"] == 7 && refused.message().contains(says), "{channel:?} {address}: {refused:?}");
        }
    }
    let mut one = alone();
    one["ipam"]["families"] = json!(["ipv4"]);
    let refused = ask_as(&host, Channel::Runtime, &["fd00:9::5"], &one);
    assert!(refused.error()["code"] == 7 && refused.message().contains("no IPv6 address is assigned here"), "{refused:?}");
    assert_eq!(got(&add(&host, "c2")), ["10.9.0.2/24", "fd00:9::3/64"], "what was refused has taken nothing");
}

/// What no waiting brings is refused at once, and named; what is wrong with a configuration, too.
#[test]
fn what_can_never_be_had() {
    let host = scene(&range("10.9.0.2-10.9.0.9"));
    let waits = |ipam: &[(&str, Value)]| {
        let mut config = alone();
        config["ipam"]["addWait"] = json!(600);
        ipam.iter().for_each(|(key, value)| config["ipam"][key] = value.clone());
        config
    };
    let refused = |config: &Value, says: &[&str]| {
        let begun = Instant::now();
        let outcome = call(&host, "ADD", "c1", config);
        assert!(outcome.error()["code"] == 7 && begun.elapsed() < Duration::from_secs(300), "{outcome:?}");
        says.iter().for_each(|said| assert!(outcome.message().contains(said), "{said}: {outcome:?}"));
    };
    refused(&waits(&[("families", json!(["ipv6"]))]), &["pool \"lab\" has no IPv6 addresses"]);
    refused(&waits(&[("families", json!(["ipv4", "ipv4"]))]), &["ipam.families[1]", "is listed twice"]);
    refused(&waits(&[("dataDir", json!("ipam"))]), &["ipam.dataDir", "\"ipam\" is not an absolute path"]);
    let mut spec = range("10.9.0.2-10.9.0.9");
    spec["exclude"] = json!(["10.9.0.0/24"]);
    grant(&host, &spec);
    refused(&waits(&[]), &["pool \"lab\" has no usable IPv4 address", "excluded"]);
    let whereabouts = json!({"type": "whereabouts", "range": "10.8.0.0/29", "exclude": ["10.8.0.0/29"], "addWait": 600});
    refused(&json!({"cniVersion": "1.1.0", "name": "net", "type": "whereabouts", "ipam": whereabouts}), &["has no usable IPv4 address"]);
    // Another pool, and there is something.
    grant(&host, &range("10.9.0.2-10.9.0.9"));
    assert_eq!(got(&add(&host, "c1")), ["10.9.0.2/32"]);
    let twice = ask(&host, Channel::Variable, &["10.9.0.3", "10.9.0.4"]);
    assert!(twice.error()["code"] == 4 && twice.message().contains("several addresses of a family"), "{twice:?}");
}

/// Nobody has one, and the pool says when there is one.
#[test]
fn all_of_them_rest() {
    let mut spec = range("10.9.0.2-10.9.0.2");
    spec["reuse"] = json!({"cooldownSeconds": 3000});
    let host = scene(&spec);
    got(&add(&host, "c1"));
    del(&host, "c1");
    let short = add(&host, "c2");
    assert!(
        short.message().contains("0 held, 1 cooling down; the next one is free in ") && !short.message().contains("CNI GC"),
        "{short:?}"
    );
}

/// A gateway that nobody has named is an address that anybody may get.
#[test]
fn a_bridge_whose_gateway_is_the_containers() {
    let host = scene(&json!({"ipv4": {"entries": [{"cidr": "10.9.0.0/24"}]}, "reuse": {"cooldownSeconds": 0, "order": "lowest"}}));
    for key in ["isGateway", "isDefaultGateway"] {
        let mut config = bridge();
        config[key] = json!(true);
        let refused = call(&host, "ADD", "c1", &config);
        assert_eq!(refused.error()["code"], 7, "{refused:?}");
        for said in ["assigned 10.9.0.1/24", "bridge br0 would use 10.9.0.1 as the gateway of 10.9.0.0/24", "\"gateway\" in the pool"] {
            assert!(refused.message().contains(said), "{said}: {refused:?}");
        }
        assert_eq!(host.sh("", "ip -o link show type bridge"), "", "nothing is made");
    }
    got(&add(&host, "first"));
    assert_eq!(got(&call(&host, "ADD", "c1", &bridge())), ["10.9.0.2/24"], "what was refused was given back");
}

#[test]
fn a_pool_that_is_exhausted_and_recovers() {
    let host = scene(&range("10.9.0.2-10.9.0.4"));
    let held: Vec<_> = (0..3).map(|n| got(&add(&host, &format!("pod{n}")))).collect();
    let short = add(&host, "pod3");
    assert_eq!(short.error()["code"], 11, "{short:?}");
    for said in ["pool \"lab\" has no free IPv4 address", "3 held, 0 cooling down", "CNI GC", "add addresses to the pool"] {
        assert!(short.message().contains(said), "{said}: {short:?}");
    }
    del(&host, "pod1");
    assert_eq!(got(&add(&host, "pod3")), held[1]);
}

#[test]
fn of_two_families_both_or_none() {
    for (v4, v6, short) in [("10.9.0.2-10.9.0.2", "fd00:9::2-fd00:9::9", "IPv4"), ("10.9.0.2-10.9.0.9", "fd00:9::2-fd00:9::2", "IPv6")] {
        let both = json!({"ipv4": {"entries": [{"range": v4}]}, "ipv6": {"entries": [{"range": v6}]}, "reuse": {"cooldownSeconds": 0}});
        let host = scene(&both);
        got(&add(&host, "c1"));
        for n in 0..10 {
            let refused = add(&host, &format!("more{n}"));
            assert!(refused.error()["code"] == 11 && refused.message().contains(&format!("no free {short} address")), "{refused:?}");
        }
        let mut one = alone();
        one["ipam"]["families"] = json!([if short == "IPv4" { "ipv6" } else { "ipv4" }]);
        for n in 0..7 {
            got(&call(&host, "ADD", &format!("single{n}"), &one));
        }
        assert_eq!(call(&host, "ADD", "single7", &one).error()["code"], 11);
    }
}

#[test]
fn a_file_that_is_no_pool() {
    let host = scene(&dual());
    let refused = |code: u64, says: &[&str]| {
        for (verb, code) in [("ADD", code), ("STATUS", 50)] {
            let outcome = call(&host, verb, "c1", &alone());
            assert_eq!(outcome.error()["code"], code, "{verb}: {outcome:?}");
            says.iter().for_each(|said| assert!(outcome.message().contains(said), "{verb}: {said}: {outcome:?}"));
        }
        assert_eq!(host.list("/var/lib/netloom"), Vec::<String>::new(), "it is refused before anything is made");
    };
    let write = |text: &str| host.write(&format!("{POOLS}/lab.json"), text);
    write("{");
    refused(7, &["/var/lib/pools/lab.json: "]);
    write(r#"{"spec": {"ipv4": {"entires": []}}}"#);
    refused(7, &["unknown field `entires`", "entries"]);
    write(r#"{"spec": {"ipv4": {"entries": [{"cidr": "10.9.0.1/24"}]}}}"#);
    refused(7, &["spec.ipv4.entries[0]", "the network is 10.9.0.0"]);
    write(r#"{"metadata": {"name": "other"}, "spec": {"ipv4": {"entries": [{"cidr": "10.9.0.0/24"}]}}}"#);
    refused(7, &["metadata.name is \"other\""]);
    std::fs::remove_file(host.path(format!("{POOLS}/lab.json"))).unwrap();
    host.sh("", &format!("mkfifo {POOLS}/lab.json"));
    refused(5, &["cannot read pool \"lab\""]);
    std::fs::remove_file(host.path(format!("{POOLS}/lab.json"))).unwrap();
    refused(5, &["cannot read pool \"lab\"", "expected an IPPool as JSON in /var/lib/pools/lab.json"]);
    for name in ["../pools/lab", "", "a/b", ".lab"] {
        let mut config = alone();
        config["ipam"]["pool"] = json!(name);
        let outcome = call(&host, "ADD", "c1", &config);
        assert!([5, 7].contains(&outcome.error()["code"].as_u64().unwrap()), "{name}: {outcome:?}");
    }
    grant(&host, &range("10.9.0.2-10.9.0.2"));
    assert_eq!(all_free(&host), ["10.9.0.2/32"]);
}
