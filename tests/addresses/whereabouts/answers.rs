//! What a configuration means, key by key, as whereabouts answers it.

use netloom_tests::at;
use serde_json::json;

use crate::whereabouts::{add, all, call, config, del, gets, got, range, scene};

#[test]
fn ranges() {
    let host = scene();
    for (range, first) in [
        ("192.168.1.0/24", "192.168.1.1/24"),
        ("192.168.2.225/28", "192.168.2.225/28"),
        ("192.168.2.0/30", "192.168.2.1/30"),
        ("192.168.1.5-192.168.1.25/24", "192.168.1.5/24"),
        ("010.001.000.000/016", "10.1.0.1/16"),
        ("caa5::0/112", "caa5::1/112"),
        ("fd::1/116", "fd::1/116"),
        ("100::2:1/126", "100::2:1/126"),
        ("2001:db8:480:603d:0304:0403:000:0/64", "2001:db8:480:603d::1/64"),
        ("fd00:0:0:10:0:0:3:1-fd00:0:0:10:0:0:3:6/64", "fd00::10:0:0:3:1/64"),
        ("fd00::/8", "fd00::1/8"),
    ] {
        assert_eq!(gets(&host, "c1", &crate::whereabouts::range(range)), [first], "{range}");
        del(&host, "c1", &crate::whereabouts::range(range));
    }
}

#[test]
fn all_usable_addresses_and_no_other() {
    let host = scene();
    assert_eq!(all(&host, &range("10.0.0.0/29")), (1..7).map(|n| format!("10.0.0.{n}/29")).collect::<Vec<_>>());
    assert_eq!(all(&host, &range("10.0.1.0/30")), ["10.0.1.1/30", "10.0.1.2/30"]);
    assert_eq!(all(&host, &range("fd00::/126")), ["fd00::1/126", "fd00::2/126"]);
    assert_eq!(all(&host, &range("fd00:1::5-fd00:1::6/64")), ["fd00:1::5/64", "fd00:1::6/64"]);
    for small in ["10.0.0.0/31", "10.0.0.1/32", "fd00::/127", "fd00::/128"] {
        let refused = add(&host, "c1", &range(small));
        assert!(refused.error()["code"] == 7 && refused.message().contains("has no usable addresses"), "{small}: {refused:?}");
    }
}

#[test]
fn ends_and_exclusions() {
    let host = scene();
    let v4 = |keys: serde_json::Value| {
        let mut ipam = json!({"range": "192.168.10.0/28"});
        ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        // What another part of the range has just given back may come last.
        let found = all(&host, &config(ipam));
        let last = |address: &String| address.replace("192.168.10.", "").replace("/28", "").parse::<u8>().unwrap();
        let found: std::collections::BTreeSet<u8> = found.iter().map(last).collect();
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(v4(json!({"range_start": "192.168.10.5", "range_end": "192.168.10.8"})), "5 6 7 8");
    assert_eq!(v4(json!({"range_start": "192.168.10.12"})), "12 13 14");
    assert_eq!(v4(json!({"range_end": "192.168.10.2"})), "1 2");
    // A network of exclusions may be written with any address of it, and the last one before the broadcast address may go.
    assert_eq!(v4(json!({"exclude": ["192.168.10.2/30", "192.168.10.9", "192.168.10.15/30"]})), "4 5 6 7 8 10 11");
    assert_eq!(v4(json!({"exclude": ["192.168.10.0/29", "fd00::/64"], "gateway": "192.168.10.9"})), "8 10 11 12 13 14");
    let v6 = config(json!({"range": "fd00::/123", "exclude": ["fd00::/124", "fd00::10", "fd00:0::0012/127"], "range_end": "fd00::16"}));
    assert_eq!(all(&host, &v6), ["fd00::11/123", "fd00::14/123", "fd00::15/123", "fd00::16/123"]);
    // Nothing is left, and no waiting brings any.
    let none = config(json!({"range": "192.168.10.0/28", "exclude": ["192.168.10.0/28"]}));
    assert_eq!(add(&host, "c1", &none).error()["code"], 7);
}

#[test]
fn several_ranges_give_one_address_each() {
    let host = scene();
    let both = config(json!({"ipRanges": [{"range": "192.168.5.0/24"}, {"range": "fd00:5::/64", "exclude": ["fd00:5::/125"]}]}));
    assert_eq!(gets(&host, "c1", &both), ["192.168.5.1/24", "fd00:5::8/64"]);
    // `range` comes first.
    let mixed = config(json!({"range": "192.168.5.0/24", "ipRanges": [{"range": "192.168.6.0/24"}, {"range": "fd00:5::/64"}]}));
    assert_eq!(gets(&host, "c2", &mixed), ["192.168.5.2/24", "192.168.6.1/24", "fd00:5::1/64"]);
}

#[test]
fn what_comes_along_with_an_address() {
    let host = scene();
    let with = config(json!({
        "range": "192.168.2.0/24", "ipRanges": [{"range": "fd00:2::/64"}], "gateway": "192.168.2.1",
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.168.9.0/24", "gw": "192.168.2.9"}],
        "dns": {"nameservers": ["10.96.0.10"], "search": ["example.org"]},
        "addresses": [{"address": "10.7.0.5/16", "gateway": "10.7.0.1"}, {"address": "fd00:7::5/64"}],
    }));
    let result = add(&host, "c1", &with).result();
    assert_eq!(
        result["ips"],
        json!([
            {"address": "192.168.2.2/24", "gateway": "192.168.2.1"},
            {"address": "fd00:2::1/64"},
            {"address": "10.7.0.5/16", "gateway": "10.7.0.1"},
            {"address": "fd00:7::5/64"},
        ])
    );
    assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0"}, {"dst": "192.168.9.0/24", "gw": "192.168.2.9"}]));
    assert_eq!(result["dns"], json!({"nameservers": ["10.96.0.10"], "search": ["example.org"]}));
    at(&host, "c1").check(&with, &result).silent();
}

/// `IP` comes on top of the ranges, `GATEWAY` to those addresses that it suits.
#[test]
fn what_the_caller_names() {
    let host = scene();
    let args = |args: &str| at(&host, "c1").set("CNI_ARGS", args).call("ADD", "whereabouts", range("10.2.0.0/24").to_string());
    let named = args("IgnoreUnknown=1;IP=10.5.0.7/24, fd00:5::7/64;GATEWAY=10.5.0.1,fd00:5::1;K8S_POD_NAME=p");
    assert_eq!(
        named.result()["ips"],
        json!([{"address": "10.2.0.1/24"}, {"address": "10.5.0.7/24", "gateway": "10.5.0.1"}, {"address": "fd00:5::7/64", "gateway": "fd00:5::1"}])
    );
    for (wrong, says) in [("IP=10.5.0.7", "CNI_ARGS IP: \"10.5.0.7\""), ("GATEWAY=x", "CNI_ARGS GATEWAY: \"x\"")] {
        let refused = args(wrong);
        assert!(refused.error()["code"] == 4 && refused.message().contains(says), "{refused:?}");
    }
}

/// Not whereabouts' own: a runtime that asks for an address is heard.
#[test]
fn a_requested_address() {
    let host = scene();
    let mut asks = config(json!({"ipRanges": [{"range": "10.2.0.0/24", "exclude": ["10.2.0.8/29"]}, {"range": "fd00::/64"}]}));
    asks["runtimeConfig"] = json!({"ips": ["fd00::77", "10.2.0.50/24"]});
    assert_eq!(gets(&host, "c1", &asks), ["10.2.0.50/24", "fd00::77/64"]);
    let taken = add(&host, "c2", &asks);
    assert!(taken.error()["code"] == 11 && taken.message().contains("10.2.0.50 is not free"), "{taken:?}");
    for other in ["10.3.0.1", "10.2.0.9", "10.2.0.255"] {
        asks["runtimeConfig"] = json!({"ips": [other]});
        let refused = add(&host, "c2", &asks);
        assert!(refused.error()["code"] == 7 && refused.message().contains(other), "{refused:?}");
    }
}

#[test]
fn every_version_of_the_specification() {
    let host = scene();
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let mut both = config(json!({"ipRanges": [{"range": "10.2.0.0/24"}, {"range": "fd00::/64"}], "gateway": "10.2.0.254"}));
        both["cniVersion"] = json!(version);
        let result = add(&host, "c1", &both).result();
        assert_eq!(result["cniVersion"], version);
        let told = result.to_string();
        assert!(["10.2.0.1/24", "fd00::1/64", "10.2.0.254"].iter().all(|said| told.contains(said)), "{told}");
        del(&host, "c1", &both);
    }
    let mut two = config(json!({"range": "10.2.0.0/24", "addresses": [{"address": "10.9.0.1/24"}]}));
    two["cniVersion"] = json!("0.2.0");
    let refused = add(&host, "c1", &two);
    assert!(refused.error()["code"] == 7 && refused.message().contains("does not support more than 1 address per family"), "{refused:?}");
}

#[test]
fn what_another_file_says() {
    let host = scene();
    host.write("/var/lib/wb.conf", r#"{"gateway": "10.2.0.1", "range": "10.9.0.0/24", "log_level": "debug", "exclude": ["10.2.0.2"]}"#);
    let other = config(json!({"range": "10.2.0.0/24", "configuration_path": "/var/lib/wb.conf"}));
    assert_eq!(add(&host, "c1", &other).result()["ips"], json!([{"address": "10.2.0.3/24", "gateway": "10.2.0.1"}]));
    host.write("/var/lib/wb.conf", "root:x:0:0");
    let refused = add(&host, "c2", &other);
    assert!(refused.message().contains("/var/lib/wb.conf: is not JSON") && !refused.message().contains("root"), "{refused:?}");
    // DEL needs none of it.
    del(&host, "c1", &other);
}

/// Keys without a meaning here, of whatever type.
#[test]
fn keys_for_others() {
    let host = scene();
    let full = config(json!({
        "range": "10.2.0.0/24", "datastore": "kubernetes", "etcd_host": "x:2379", "etcd_username": "u", "etcd_password": "p", "etcd_key_file": "/k",
        "etcd_cert_file": "/c", "etcd_ca_cert_file": "/a", "leader_lease_duration": 1500, "leader_renew_deadline": "1000", "leader_retry_period": 500,
        "log_file": "/var/log/wb.log", "log_level": "debug", "reconciler_cron_expression": "30 4 * * *", "sleep_for_race": 3, "node_slice_size": "/28",
        "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig", "k8s_api_root": "https://10.96.0.1"},
    }));
    assert_eq!(gets(&host, "c1", &full), ["10.2.0.1/24"]);
    assert!(!host.list("/var/log").contains(&"wb.log".to_owned()));
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_made() {
    let host = scene();
    for (ipam, says) in [
        (json!({}), "ipam.range"),
        (json!({"range": "10.2.0.0"}), "ipam.range: \"10.2.0.0\" is not a network"),
        (json!({"range": "10.3.0.1-10.2.0.9/24"}), "\"10.3.0.1\" is not an address of 10.2.0.9/24"),
        (json!({"range": "10.2.0.0/24", "gateway": "x"}), "ipam.gateway: \"x\""),
        (json!({"range": "10.2.0.0/24", "exclude": ["x"]}), "ipam.exclude[0]: \"x\""),
        (json!({"range": "10.2.0.0/24", "routes": [{"dst": "x"}]}), "ipam.routes[0].dst"),
        (json!({"range": "10.2.0.0/24", "addresses": [{"address": "10.2.0.7"}]}), "ipam.addresses[0].address"),
        (json!({"ipRanges": [{"range": "10.2.0.0/24"}, {"range_start": "10.2.0.7"}]}), "ipam.ipRanges[1].range"),
        (json!({"range": 7}), "ipam.range"),
    ] {
        let refused = add(&host, "c1", &config(ipam.clone()));
        assert!([6, 7].contains(&refused.error()["code"].as_u64().unwrap()) && refused.message().contains(says), "{ipam}: {refused:?}");
    }
    assert_eq!(host.list("/var/lib/netloom"), Vec::<String>::new());
    let asked = got(&call(&host, "ADD", "c1", &range("10.2.0.0/24")));
    assert_eq!(asked, ["10.2.0.1/24"]);
}
