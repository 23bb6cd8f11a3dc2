//! What an attachment has from its ADD to its DEL, and who else cannot take it away.

use netloom_tests::{at, attached_once, ips};
use serde_json::{Value, json};

use crate::pool::{POOLS, add, all_free, alone, bridge, call, collect, del, dual, got, ipam, range, scene};

#[test]
fn two_containers_of_a_bridge_reach_each_other() {
    let host = scene(&dual());
    let config = bridge();
    let before = attached_once(&host, &config);
    let results = ["c1", "c2"].map(|c| at(&host, c).add(&config));
    for (container, result) in ["c1", "c2"].iter().zip(&results) {
        let told: Vec<&str> = result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect();
        assert_eq!(host.addresses(container, "eth0"), told);
        assert!(told[0].ends_with("/24") && told[1].ends_with("/64"), "{told:?}");
        assert_eq!([&result["ips"][0]["gateway"], &result["ips"][1]["gateway"]], ["10.9.0.1", "fd00:9::1"]);
        at(&host, container).check(&config, result).silent();
    }
    assert_ne!(results[0]["ips"], results[1]["ips"]);
    for address in ips(&results[1]).iter().map(String::as_str).chain(["10.9.0.1", "fd00:9::1"]) {
        assert!(host.pings("c1", address), "{address}");
    }
    ["c1", "c2"].iter().zip(&results).for_each(|(c, result)| at(&host, c).del(&config, result));
    host.expect_traces(&before, "two ADDs and two DELs");
}

/// A gateway that no subnet contains is put on the link first, or the kernel takes it for no next hop.
#[test]
fn an_address_without_a_subnet_has_everything_behind_its_gateway() {
    let host = scene(&dual());
    let mut config = bridge();
    config["isDefaultGateway"] = json!(true);
    config["ipam"]["hostPrefix"] = json!(true);
    let before = attached_once(&host, &config);
    let results = ["c1", "c2"].map(|c| at(&host, c).add(&config));
    // To the containers the host needs routes of its own.
    ["10.9.0.0/24", "fd00:9::/64"].iter().for_each(|range| drop(host.sh("", &format!("ip route add {range} dev br0"))));
    for (container, result) in ["c1", "c2"].iter().zip(&results) {
        let told: Vec<&str> = result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect();
        assert!(told[0].ends_with("/32") && told[1].ends_with("/128") && host.addresses(container, "eth0") == told, "{told:?}");
        let on_link = json!([{"dst": "10.9.0.1/32", "scope": 253}, {"dst": "fd00:9::1/128", "scope": 253}]);
        assert_eq!(json!([result["routes"][0], result["routes"][1]]), on_link, "{result}");
        at(&host, container).check(&config, result).silent();
    }
    for address in ips(&results[1]).iter().map(String::as_str).chain(["10.9.0.1", "fd00:9::1"]) {
        assert!(host.pings("c1", address), "{address}");
    }
    host.sh("c1", "ip route flush 10.9.0.1");
    let checked = at(&host, "c1").check(&config, &results[0]);
    assert!(checked.message().contains("route to 10.9.0.1/32 is gone"), "{checked:?}");
    ["10.9.0.0/24", "fd00:9::/64"].iter().for_each(|range| drop(host.sh("", &format!("ip route del {range} dev br0"))));
    ["c1", "c2"].iter().zip(&results).for_each(|(c, result)| at(&host, c).del(&config, result));
    host.expect_traces(&before, "two ADDs and two DELs");
}

#[test]
fn one_family_of_two() {
    let host = scene(&dual());
    let with = |families: Value| {
        let mut config = alone();
        config["ipam"]["families"] = families;
        config
    };
    assert_eq!(got(&call(&host, "ADD", "c1", &with(json!(["ipv6"])))), ["fd00:9::2/64"]);
    assert_eq!(got(&call(&host, "ADD", "c2", &with(json!(["ipv4"])))), ["10.9.0.2/24"]);
    assert_eq!(got(&call(&host, "ADD", "c3", &with(json!(["ipv6", "ipv4"])))), ["fd00:9::3/64", "10.9.0.3/24"]);
}

/// A runtime that has not heard the answer asks again.
#[test]
fn who_asks_again_gets_the_same() {
    let host = scene(&range("10.9.0.2-10.9.0.4"));
    let first = got(&add(&host, "c1"));
    assert_eq!(got(&add(&host, "c1")), first);
    let mut other = alone();
    other["runtimeConfig"] = json!({"ips": ["10.9.0.4"]});
    let refused = call(&host, "ADD", "c1", &other);
    assert!(refused.error()["code"] == 4 && refused.message().contains("net/c1/eth0 has other addresses"), "{refused:?}");
    del(&host, "c1");
    assert_eq!(got(&call(&host, "ADD", "c1", &other)), ["10.9.0.4/32"]);
}

/// One container may have several interfaces of one network, and networks of one pool share its addresses.
#[test]
fn each_attachment_has_its_own() {
    let host = scene(&range("10.9.0.2-10.9.0.5"));
    let mut other = alone();
    other["name"] = json!("other");
    let second = at(&host, "c1").set("CNI_IFNAME", "net1").call("ADD", "pool", alone().to_string());
    let mut all = [got(&add(&host, "c1")), got(&second), got(&call(&host, "ADD", "c1", &other))].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3);
    del(&host, "c1");
    assert_eq!(all_free(&host).len(), 2, "the other two are held");
}

#[test]
fn del_comes_twice_late_and_from_strangers() {
    let host = scene(&range("10.9.0.2-10.9.0.3"));
    del(&host, "c1");
    assert_eq!(host.list("/var/lib/netloom"), Vec::<String>::new(), "DEL of what never was makes nothing");
    got(&add(&host, "c1"));
    let kept = got(&add(&host, "c2"));
    // Without a namespace, without a previous result, and with the pool's file gone.
    std::fs::remove_file(host.path(format!("{POOLS}/lab.json"))).unwrap();
    for _ in 0..2 {
        at(&host, "c1").unset("CNI_NETNS").call("DEL", "pool", alone().to_string()).silent();
    }
    del(&host, "stranger");
    // No more is said of the pool than where it is not.
    let bare = json!({"cniVersion": "1.1.0", "name": "net", "type": "pool", "ipam": {"type": "pool"}});
    call(&host, "DEL", "c1", &bare).silent();
    crate::pool::grant(&host, &range("10.9.0.2-10.9.0.3"));
    let new = got(&add(&host, "c3"));
    assert_ne!(new, kept);
    // The first container's DEL comes once more, when somebody else has its address.
    del(&host, "c1");
    assert_eq!(all_free(&host), Vec::<String>::new());
    let mut held = alone();
    held["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": new[0]}]});
    call(&host, "CHECK", "c3", &held).silent();
}

#[test]
fn collection_frees_what_is_gone_and_only_that() {
    let host = scene(&range("10.9.0.2-10.9.0.5"));
    let mut other = alone();
    other["name"] = json!("other");
    let kept = [got(&add(&host, "c1")), got(&call(&host, "ADD", "c2", &other))].concat();
    let gone = got(&add(&host, "c2"));
    collect(&host, &["c1", "nobody"]).silent();
    let free = all_free(&host);
    assert!(free.contains(&gone[0]) && free.len() == 2 && !kept.iter().any(|k| free.contains(k)), "{free:?}");
    // No list is no reason to free anything.
    let refused = call(&host, "GC", "c1", &alone());
    assert_eq!(refused.error()["code"], 7, "{refused:?}");
    assert_eq!(all_free(&host).len(), 2);
}

#[test]
fn check_finds_a_lease_that_is_lost() {
    let host = scene(&dual());
    let result = add(&host, "c1").result();
    let check = |result: &Value| at(&host, "c1").check(&alone(), result);
    check(&result).silent();
    let mut other = result.clone();
    other["ips"][0]["address"] = json!("10.9.0.77/24");
    let lost = check(&other);
    assert!(lost.message().contains("10.9.0.77/24 is not assigned to net/c1/eth0 any more"), "{lost:?}");
    // What another plugin of the chain gave is not of this pool.
    let mut more = result.clone();
    more["ips"].as_array_mut().unwrap().push(json!({"address": "192.0.2.7/24"}));
    check(&more).silent();
    // A pool that is gone leaves its holders what they have.
    std::fs::remove_file(host.path(format!("{POOLS}/lab.json"))).unwrap();
    check(&result).silent();
    del(&host, "c1");
    let lost = check(&result);
    assert!(lost.message().contains("net/c1/eth0 has no address: there is none for it in /var/lib/netloom/ipam"), "{lost:?}");
}

#[test]
fn status_says_what_is_missing() {
    let host = scene(&range("10.9.0.2-10.9.0.3"));
    let status = || call(&host, "STATUS", "c1", &alone());
    status().silent();
    let held = ["c1", "c2"].map(|c| got(&add(&host, c)));
    let short = status();
    assert_eq!(short.error()["code"], 50, "{short:?}");
    assert!(short.message().contains("no free IPv4 address on this node: 2 held, 0 cooling down"), "{short:?}");
    del(&host, "c1");
    status().silent();
    assert_eq!(got(&add(&host, "c3")), held[0]);
    std::fs::remove_file(host.path(format!("{POOLS}/lab.json"))).unwrap();
    let gone = status();
    assert!(gone.error()["code"] == 50 && gone.message().contains("expected an IPPool as JSON in /var/lib/pools/lab.json"), "{gone:?}");
    // A bridge hands the question on.
    let mut on = bridge();
    on["ipam"] = ipam();
    assert_eq!(call(&host, "STATUS", "c1", &on).error()["code"], 50);
}

#[test]
fn an_address_that_was_given_back_cools_down() {
    let mut spec = range("10.9.0.2-10.9.0.3");
    spec["reuse"] = json!({"cooldownSeconds": 3600});
    let host = scene(&spec);
    got(&add(&host, "c1"));
    del(&host, "c1");
    assert_eq!(got(&add(&host, "c2")), ["10.9.0.3/32"]);
    let short = add(&host, "c3");
    assert!(short.error()["code"] == 11 && short.message().contains("1 held, 1 cooling down"), "{short:?}");
    let mut asked = alone();
    asked["args"] = json!({"cni": {"ips": ["10.9.0.2"]}});
    let cooling = call(&host, "ADD", "c3", &asked);
    assert!(cooling.error()["code"] == 11 && cooling.message().contains("free in 3"), "{cooling:?}");
    // It is the pool's owner who says how long.
    spec["reuse"] = json!({"cooldownSeconds": 0});
    crate::pool::grant(&host, &spec);
    assert_eq!(got(&add(&host, "c3")), ["10.9.0.2/32"]);
}

/// A second ADD that fails has not given the address to the attachment, and does not take it away.
#[test]
fn an_add_that_fails_leaves_what_was_there() {
    let host = scene(&dual());
    let before = attached_once(&host, &bridge());
    let result = at(&host, "c1").add(&bridge());
    let again = at(&host, "c1").call("ADD", "bridge", bridge().to_string());
    assert_ne!(again.code, 0, "eth0 is there: {again:?}");
    at(&host, "c1").check(&bridge(), &result).silent();
    let other = at(&host, "c2").add(&bridge());
    assert_ne!(result["ips"], other["ips"]);
    at(&host, "c1").del(&bridge(), &result);
    at(&host, "c2").del(&bridge(), &other);
    host.expect_traces(&before, "an ADD that fails and two DELs");
}
