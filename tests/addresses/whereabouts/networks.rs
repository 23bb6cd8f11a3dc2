//! Where an address is unique: in all ranges of a network with a name, or in each range.

use netloom_tests::at;
use serde_json::{Value, json};

use crate::whereabouts::{add, all, config, del, gets, scene};

fn with(range: &str, keys: Value) -> Value {
    let mut ipam = json!({"range": range});
    ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config(ipam)
}

#[test]
fn overlapping_ranges_never_give_the_same() {
    for [wide, narrow, first, second, third] in [
        ["10.10.0.0/16", "10.10.0.0/28", "10.10.0.1/16", "10.10.0.2/28", "10.10.0.3/16"],
        ["fd00:10::/64", "fd00:10::/124", "fd00:10::1/64", "fd00:10::2/124", "fd00:10::3/64"],
    ] {
        let host = scene();
        let (wide, narrow) = (with(wide, json!({})), with(narrow, json!({"enable_overlapping_ranges": true})));
        assert_eq!(gets(&host, "c1", &wide), [first]);
        assert_eq!(gets(&host, "c2", &narrow), [second]);
        assert_eq!(gets(&host, "c3", &wide), [third]);
        del(&host, "c1", &wide);
        assert_eq!(all(&host, &narrow).len(), 12, "of 14 two are held, one of each range");
        assert_eq!(gets(&host, "c4", &narrow), [first.split('/').next().unwrap().to_owned() + "/" + second.split('/').nth(1).unwrap()]);
    }
}

#[test]
fn overlapping_ranges_that_may_give_the_same() {
    let host = scene();
    let apart = json!({"enable_overlapping_ranges": false});
    let (wide, narrow) = (with("10.10.0.0/16", apart.clone()), with("10.10.0.0/20", apart.clone()));
    assert_eq!(gets(&host, "c1", &wide), ["10.10.0.1/16"]);
    assert_eq!(gets(&host, "c2", &narrow), ["10.10.0.1/20"]);
    // One range is one range, whoever names it and however.
    assert_eq!(gets(&host, "c3", &with("10.10.0.7/16", apart.clone())), ["10.10.0.2/16"]);
    let mut ends = apart;
    ends["range_start"] = json!("10.10.0.2");
    assert_eq!(gets(&host, "c4", &with("10.10.0.0/16", ends)), ["10.10.0.3/16"]);
}

#[test]
fn two_networks_may_have_the_same() {
    let host = scene();
    let red = with("10.10.0.0/16", json!({"network_name": "red"}));
    let blue = with("10.10.0.0/16", json!({"network_name": "blue"}));
    let none = with("10.10.0.0/16", json!({}));
    for (container, config) in [("c1", &red), ("c2", &blue), ("c3", &none)] {
        assert_eq!(gets(&host, container, config), ["10.10.0.1/16"], "{config}");
    }
    // A name that is no name for anything else.
    let odd = with("10.10.0.0/16", json!({"network_name": "Réd/../x"}));
    assert_eq!(gets(&host, "c4", &odd), ["10.10.0.1/16"]);
    assert_eq!(gets(&host, "c5", &red), ["10.10.0.2/16"]);
}

/// The definitions of several networks often differ in nothing but the part of a range that they use.
#[test]
fn parts_of_one_range() {
    let host = scene();
    let low = with("10.10.0.0/24", json!({"range_end": "10.10.0.3"}));
    let high = with("10.10.0.0/24", json!({"range_start": "10.10.0.3", "range_end": "10.10.0.5"}));
    let but = with("10.10.0.0/24", json!({"exclude": ["10.10.0.0/30"], "range_end": "10.10.0.5"}));
    let held = [gets(&host, "c1", &low), gets(&host, "c2", &high), gets(&host, "c3", &but), gets(&host, "c4", &high)].concat();
    assert_eq!(held, ["10.10.0.1/24", "10.10.0.3/24", "10.10.0.4/24", "10.10.0.5/24"]);
    for full in [&high, &but] {
        assert_eq!(add(&host, "c5", full).error()["code"], 11);
    }
    assert_eq!(all(&host, &low), ["10.10.0.2/24"]);
    // What one of them gives back another one finds.
    del(&host, "c2", &high);
    assert_eq!(all(&host, &low), ["10.10.0.2/24", "10.10.0.3/24"]);
    del(&host, "c3", &but);
    assert_eq!(all(&host, &high), ["10.10.0.3/24", "10.10.0.4/24"]);
}

/// One container with two interfaces in ranges that overlap, and with two ranges that do.
#[test]
fn one_container_never_has_the_same_twice() {
    let host = scene();
    let (wide, narrow) = (with("10.10.0.0/16", json!({})), with("10.10.0.0/28", json!({})));
    assert_eq!(gets(&host, "c1", &wide), ["10.10.0.1/16"]);
    let second = at(&host, "c1").set("CNI_IFNAME", "net1").call("ADD", "whereabouts", narrow.to_string());
    assert_eq!(crate::whereabouts::got(&second), ["10.10.0.2/28"]);
    let two = config(json!({"ipRanges": [{"range": "10.10.0.0/16"}, {"range": "10.10.0.0/28"}, {"range": "10.10.0.0/28"}]}));
    assert_eq!(gets(&host, "c2", &two), ["10.10.0.3/16", "10.10.0.4/28", "10.10.0.5/28"]);
}
