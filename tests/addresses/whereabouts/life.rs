//! Attachments with such addresses, from ADD to DEL.

use netloom_tests::{at, attached_once, ips};
use serde_json::{Value, json};

use crate::whereabouts::{add, all, call, config, del, gets, got, range, scene};

fn dual() -> Value {
    json!({"type": "whereabouts", "range": "10.9.0.0/24", "ipRanges": [{"range": "fd00:9::/64"}], "exclude": ["10.9.0.0/30"]})
}

#[test]
fn two_containers_of_a_bridge_reach_each_other() {
    let host = scene();
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "ipam": dual()});
    live(&host, &config, true);
}

#[test]
fn two_containers_of_a_macvlan_reach_each_other() {
    let host = scene();
    host.sh("", "ip link add up0 up type veth peer name up1");
    host.sh("", "ip link set up1 up");
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "master": "up0", "ipam": dual()});
    live(&host, &config, true);
}

#[test]
fn a_pair_to_the_host() {
    let host = scene();
    let mut ipam = dual();
    ipam["gateway"] = json!("10.9.0.1");
    ipam["ipRanges"] = json!([]);
    let config = json!({"cniVersion": "0.4.0", "name": "net", "type": "ptp", "ipam": ipam});
    live(&host, &config, false);
}

fn live(host: &netloom_tests::Host, config: &Value, together: bool) {
    let before = attached_once(host, config);
    let results = ["c1", "c2"].map(|c| at(host, c).add(config));
    for (container, result) in ["c1", "c2"].iter().zip(&results) {
        let told: Vec<&str> = result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect();
        assert!(told[0].starts_with("10.9.0."), "{told:?}");
        assert_eq!(host.addresses(container, "eth0").len(), told.len());
        at(host, container).check(config, result).silent();
    }
    assert_ne!(results[0]["ips"], results[1]["ips"]);
    for address in ips(&results[1]).iter().filter(|_| together) {
        assert!(host.pings("c1", address), "{address}");
    }
    ["c1", "c2"].iter().zip(&results).for_each(|(c, result)| at(host, c).del(config, result));
    host.expect_traces(&before, "two ADDs and two DELs");
}

#[test]
fn a_range_that_is_exhausted_and_recovers() {
    let host = scene();
    let small = range("10.9.0.0/29");
    let held: Vec<String> = (0..6).flat_map(|n| gets(&host, &format!("pod{n}"), &small)).collect();
    let unique: std::collections::BTreeSet<&String> = held.iter().collect();
    assert_eq!(unique.len(), 6);
    let short = add(&host, "pod6", &small);
    assert_eq!(short.error()["code"], 11, "{short:?}");
    for said in ["pool \"whereabouts-10.9.0.0-29\" has no free IPv4 address", "6 held", "add addresses"] {
        assert!(short.message().contains(said), "{said}: {short:?}");
    }
    assert_eq!(call(&host, "STATUS", "pod6", &small).error()["code"], 50);
    // Those of a set that is scaled down and up again, at once.
    (2..5).for_each(|n| del(&host, &format!("pod{n}"), &small));
    call(&host, "STATUS", "pod6", &small).silent();
    assert_eq!(all(&host, &small), held[2..5]);
}

/// whereabouts gives a second family back only where the first one had something to give back.
#[test]
fn del_frees_every_range_and_frees_it_once() {
    let host = scene();
    let both = config(json!({"ipRanges": [{"range": "10.9.0.0/30"}, {"range": "fd00::/126"}, {"range": "10.9.1.0/30"}]}));
    let one = config(json!({"ipRanges": [{"range": "fd00::/126"}, {"range": "10.9.1.0/30"}]}));
    for n in 0..5 {
        let held = gets(&host, &format!("pod{n}"), &both);
        assert_eq!(held, ["10.9.0.1/30", "fd00::1/126", "10.9.1.1/30"], "{n}");
        // The network's definition has changed meanwhile: another range is gone than that which is held.
        del(&host, &format!("pod{n}"), if n % 2 == 0 { &both } else { &one });
    }
    assert_eq!(gets(&host, "new", &both)[0], "10.9.0.1/30");
    // A DEL that comes late, of one whose address the other one has now, without a namespace.
    at(&host, "c1").set("CNI_CONTAINERID", "pod0").unset("CNI_NETNS").call("DEL", "whereabouts", both.to_string()).silent();
    assert_eq!(gets(&host, "next", &both), ["10.9.0.2/30", "fd00::2/126", "10.9.1.2/30"]);
    // Of two ranges one is full: the other one gives nothing.
    let wide = config(json!({"ipRanges": [{"range": "10.8.0.0/24"}, {"range": "10.9.0.0/30"}]}));
    assert_eq!(add(&host, "more", &wide).error()["code"], 11);
    assert_eq!(gets(&host, "other", &range("10.8.0.0/24")), ["10.8.0.1/24"]);
}

#[test]
fn who_asks_again_gets_the_same() {
    let host = scene();
    let both = config(dual());
    let first = gets(&host, "c1", &both);
    assert_eq!(gets(&host, "c1", &both), first);
    assert_ne!(gets(&host, "c2", &both), first);
    del(&host, "c1", &both);
    assert_eq!(gets(&host, "c3", &both), first, "the lowest address that is free");
}

#[test]
fn del_of_what_never_was_makes_nothing() {
    let host = scene();
    for _ in 0..2 {
        del(&host, "stranger", &config(dual()));
        // No key of it means anything any more.
        del(&host, "stranger", &config(json!({"range": "x", "gateway": 7})));
    }
    assert_eq!(host.list("/var/lib/netloom"), Vec::<String>::new());
}

#[test]
fn check_finds_what_is_lost() {
    let host = scene();
    let mut ipam = dual();
    ipam["addresses"] = json!([{"address": "10.7.0.1/24"}]);
    let config = config(ipam);
    let result = add(&host, "c1", &config).result();
    let check = |result: &Value| at(&host, "c1").check(&config, result);
    check(&result).silent();
    for (n, says) in [(0, "10.9.0.4 is not in the result"), (1, "fd00:9::1 is not in the result"), (2, "10.7.0.1/24 is not in the result")]
    {
        let mut lost = result.clone();
        lost["ips"].as_array_mut().unwrap().remove(n);
        let refused = check(&lost);
        assert!(refused.message().contains(says), "{refused:?}");
    }
    let mut more = result.clone();
    more["ips"].as_array_mut().unwrap().push(json!({"address": "10.9.0.77/24"}));
    assert!(check(&more).message().contains("10.9.0.77/24 is not assigned to net/c1/eth0 any more"));
    // Another plugin of the chain may have given one.
    more["ips"][3]["address"] = json!("192.0.2.7/24");
    check(&more).silent();
    del(&host, "c1", &config);
    let gone = check(&result);
    assert!(gone.message().contains("net/c1/eth0 has no address"), "{gone:?}");
}

#[test]
fn collection_frees_what_is_gone_and_only_that() {
    let host = scene();
    let mut other = range("10.9.0.0/24");
    other["name"] = json!("other");
    let config = range("10.9.0.0/24");
    let held = [gets(&host, "c1", &config), gets(&host, "c2", &config), gets(&host, "c3", &other)].concat();
    let mut collect = config.clone();
    collect["cni.dev/valid-attachments"] = json!([{"containerID": "c2", "ifname": "eth0"}, {"containerID": "nobody", "ifname": "eth0"}]);
    host.cni(netloom_tests::plugin_dir()).call("GC", "whereabouts", collect.to_string()).silent();
    assert_eq!([gets(&host, "c4", &config), gets(&host, "c5", &config)].concat(), [held[0].clone(), "10.9.0.4/24".to_owned()]);
    assert_eq!(got(&add(&host, "c2", &config))[0], held[1]);
}
