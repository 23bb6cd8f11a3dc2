use super::*;

fn check(text: &str) -> Result<Whereabouts, String> {
    let value = json::parse(text.as_bytes()).unwrap();
    Whereabouts::check(&json::read(&value).unwrap()).map_err(|e| e.to_string())
}

fn one(text: &str) -> WhereaboutsRange {
    let mut all = check(text).unwrap().ranges;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// What addresses a range has, in short.
fn run(text: &str) -> String {
    one(text).run.to_string()
}

#[test]
fn all_but_the_first_and_the_last() {
    for (range, run) in [
        ("192.168.2.225/28", "192.168.2.225-192.168.2.238"),
        ("10.0.0.0/30", "10.0.0.1-10.0.0.2"),
        ("10.0.0.0/8", "10.0.0.1-10.255.255.254"),
        ("0.0.0.0/0", "0.0.0.1-255.255.255.254"),
        ("2001::/126", "2001::1-2001::2"),
        ("2001:db8:5422:0005::/64", "2001:db8:5422:5::1-2001:db8:5422:5:ffff:ffff:ffff:fffe"),
        ("00192.00168.1.0/24", "192.168.1.1-192.168.1.254"),
        ("caa5::0/112", "caa5::1-caa5::fffe"),
    ] {
        assert_eq!(super::tests::run(&format!(r#"{{"range": "{range}"}}"#)), run, "{range}");
    }
    for range in ["10.0.0.0/31", "10.0.0.0/32", "fd00::/127", "fd00::/128"] {
        let refused = check(&format!(r#"{{"range": "{range}"}}"#)).unwrap_err();
        assert_eq!(refused, format!("ipam.range: {range} has no usable addresses: it is too small"));
    }
}

/// Ends that are none of a network's usable addresses are not there, and a last one before the first one neither.
#[test]
fn ends() {
    for (keys, run) in [
        (r#""range": "10.0.0.0/24", "range_start": "10.0.0.5", "range_end": "10.0.0.9""#, "10.0.0.5-10.0.0.9"),
        (r#""range": "10.0.0.0/24", "range_start": "10.0.0.050""#, "10.0.0.50-10.0.0.254"),
        (r#""range": "10.0.0.0/24", "range_end": "10.0.0.9""#, "10.0.0.1-10.0.0.9"),
        (r#""range": "10.0.0.0/24", "range_start": "10.0.0.0", "range_end": "10.0.0.255""#, "10.0.0.1-10.0.0.254"),
        (r#""range": "10.0.0.0/24", "range_start": "10.0.1.5""#, "10.0.0.1-10.0.0.254"),
        (r#""range": "10.0.0.0/24", "range_start": "10.0.0.9", "range_end": "10.0.0.5""#, "10.0.0.9-10.0.0.254"),
        (r#""range": "10.0.0.5-10.0.0.5/24""#, "10.0.0.5"),
        (r#""range": "10.0.0.5-10.0.0.9/24", "range_start": "10.0.0.7", "range_end": "10.0.0.8""#, "10.0.0.5-10.0.0.9"),
        (r#""range": "fd00::5-fd00::9/64""#, "fd00::5-fd00::9"),
        (r#""range": "fd00::/64", "range_start": "fd00::ffff:0:0:1""#, "fd00::ffff:0:0:1-fd00::ffff:ffff:ffff:fffe"),
    ] {
        assert_eq!(super::tests::run(&format!("{{{keys}}}")), run, "{keys}");
    }
}

#[test]
fn what_is_wrong_and_where() {
    for (keys, says) in [
        (r#""range": "10.0.0.0""#, "ipam.range: \"10.0.0.0\" is not a network: expected 10.0.0.0/24 or 10.0.0.5-10.0.0.9/24"),
        (r#""range": "10.1.0.5-10.0.0.9/24""#, "ipam.range: \"10.1.0.5\" is not an address of 10.0.0.9/24"),
        (r#""range": "10.0.0.0/24", "range_end": "x""#, "ipam.range_end: \"x\" is not an IP address"),
        (r#""range": "10.0.0.0/24", "gateway": "10.0.0""#, "ipam.gateway: \"10.0.0\" is not an IP address"),
        (r#""ipRanges": [{"range": "10.0.0.0/24"}, {"range": ""}]"#, "ipam.ipRanges[1].range: \"\" is not a network"),
        (
            r#""ipRanges": [{"range": "10.0.0.0/24", "exclude": ["10.0.0.4", "y/8"]}]"#,
            "ipam.ipRanges[0].exclude[1]: \"y/8\" is neither a network nor an IP address",
        ),
        (r#""range": "10.0.0.0/24", "node_slice_size": "/x""#, "ipam.node_slice_size: \"/x\" is not a prefix length"),
    ] {
        let refused = check(&format!("{{{keys}}}")).unwrap_err();
        assert!(refused.starts_with(says), "{keys}: {refused}");
    }
}

#[test]
fn each_range_is_a_pool_of_these_terms() {
    let all = check(
        r#"{"type": "whereabouts", "range": "10.0.0.0/24", "exclude": ["10.0.0.9/30", "10.0.0.77", "fd00::/64"], "gateway": "10.0.0.1",
            "IPRANGES": [{"range": "fd00::/64"}], "log_file": 7, "leader_lease_duration": "x", "kubernetes": {"kubeconfig": "/x"}}"#,
    )
    .unwrap();
    let [v4, v6] = all.ranges.as_slice() else { panic!("{all:?}") };
    assert_eq!((v4.network.as_str(), v6.network.as_str(), v6.pool.as_str()), ("whereabouts", "whereabouts", "whereabouts-fd00--0-64"));
    let spec = serde_json::to_value(v4.to_spec()).unwrap();
    assert_eq!(spec["ipv4"]["entries"], serde_json::json!([{"range": "10.0.0.1-10.0.0.254"}]));
    assert_eq!((&spec["ipv4"]["prefixLength"], &spec["ipv4"]["gateway"]), (&24.into(), &"10.0.0.1".into()));
    assert_eq!(spec["exclude"], serde_json::json!(["10.0.0.8/30", "10.0.0.77"]));
    assert_eq!((&spec["reuse"]["order"], &spec["reuse"]["cooldownSeconds"]), (&"lowest".into(), &0.into()));
    let pool = v4.to_pool().unwrap();
    assert_eq!((pool.spec.v4.prefix, pool.runs.len(), pool.spec.name), (24, 1, v4.pool.clone()));
    assert_eq!(v6.to_pool().unwrap().spec.v6.gateway, None);
}

/// No node has anything before a pod asks for it; of a slice it keeps as many as the slice has.
#[test]
fn what_a_node_keeps() {
    for (keys, kept, delay) in [
        (r#""range": "10.0.0.0/22""#, 0, 5),
        (r#""range": "10.0.0.0/16""#, 0, 180),
        (r#""range": "fd00::/64""#, 0, 180),
        (r#""range": "10.0.0.0/16", "node_slice_size": "/28""#, 16, 180),
        (r#""range": "10.0.0.0/16", "node_slice_size": "22""#, 64, 180),
        (r#""range": "fd00::/48", "node_slice_size": "/64""#, 64, 180),
        (r#""range": "10.0.0.0/16", "node_slice_size": "/8""#, 0, 180),
    ] {
        let spec = one(&format!("{{{keys}}}")).to_spec();
        let scaling = spec.scaling;
        assert_eq!((scaling.min_allocate, scaling.pre_allocate), (0, 0), "{keys}");
        assert_eq!((scaling.max_above_watermark, scaling.release_delay_seconds), (kept, delay), "{keys}");
        let block = spec.ipv4.map(|f| (f.block_prefix, 32)).or(spec.ipv6.map(|f| (f.block_prefix, 128))).unwrap();
        assert_eq!(block.0, Some(block.1), "{keys}");
    }
}

/// Equal terms are one pool, other terms another one; names and networks are what Kubernetes takes for names.
#[test]
fn names() {
    let keys = |more: &str| one(&format!(r#"{{"range": "10.0.0.0/24"{more}}}"#));
    let same =
        [keys(""), keys(r#", "exclude": []"#), keys(r#", "range_start": "10.0.0.1""#), keys(r#", "enable_overlapping_ranges": true"#)];
    assert!(same.iter().all(|range| *range == same[0]) && same[0].pool == "whereabouts-10.0.0.0-24");
    assert_eq!(one(r#"{"range": "10.0.0.7/24"}"#).pool, same[0].pool);
    let others = [
        keys(r#", "exclude": ["10.0.0.4"]"#),
        keys(r#", "range_start": "10.0.0.4""#),
        keys(r#", "gateway": "10.0.0.1""#),
        keys(r#", "node_slice_size": "/28""#),
        keys(r#", "network_name": "red""#),
        keys(r#", "network_name": "Red""#),
        keys(r#", "network_name": "réd/..""#),
        keys(r#", "network_name": "-""#),
        keys(r#", "enable_overlapping_ranges": false"#),
        keys(r#", "network_name": "red", "enable_overlapping_ranges": false"#),
        one(r#"{"range": "a:b::/64"}"#),
        one(r#"{"range": "b::/64", "network_name": "a"}"#),
    ];
    let names: std::collections::BTreeSet<&str> = others.iter().chain(&same[..1]).map(|range| range.pool.as_str()).collect();
    assert_eq!(names.len(), others.len() + 1, "{names:?}");
    let named = |name: &str| {
        let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c));
        plain && name.len() < 200 && end(name.chars().next()) && end(name.chars().next_back())
    };
    for range in &others {
        assert!(named(&range.pool) && named(&range.network), "{} {}", range.pool, range.network);
    }
    assert_eq!(others[4].network, "whereabouts.red");
    let domains: std::collections::BTreeSet<&str> = others.iter().map(|range| range.network.as_str()).collect();
    assert_eq!(domains.len(), 8, "{domains:?}");
}

#[test]
fn a_flat_file_says_what_the_configuration_does_not() {
    let keys = |text: &str| json::read::<WhereaboutsKeys>(&json::parse(text.as_bytes()).unwrap()).unwrap();
    let merged = keys(r#"{"range": "10.0.0.0/24", "enable_overlapping_ranges": false}"#)
        .or(keys(r#"{"range": "10.1.0.0/24", "gateway": "10.0.0.1", "enable_overlapping_ranges": true, "network_name": "x"}"#));
    assert_eq!((merged.range.as_str(), merged.gateway.as_str(), merged.network_name.as_str()), ("10.0.0.0/24", "10.0.0.1", "x"));
    assert_eq!(merged.enable_overlapping_ranges, Some(false));
}

#[test]
fn pools_of_definitions() {
    let plain = r#"{"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.0.0.0/24"}}"#;
    let list = r#"{"plugins": [{"type": "bridge", "ipam": {"type": "whereabouts", "range": "10.0.0.9/24", "ipRanges": [{"range": "fd00::/64"}]}},
        {"type": "tuning"}]}"#;
    let nested = r#"{"type": "x", "delegate": {"ipam": {"Type": "whereabouts", "range": "10.2.0.0/24"}}}"#;
    let others = [
        ("d/other", r#"{"type": "macvlan", "ipam": {"type": "host-local", "range": "10.3.0.0/24"}}"#),
        ("d/none", ""),
        ("d/broken", "{"),
        ("d/odd", r#"{"ipam": [{"type": "whereabouts"}]}"#),
    ];
    let wrong = [
        ("d/wrong", r#"{"ipam": {"type": "whereabouts", "range": "x"}}"#),
        ("d/shape", r#"{"ipam": {"type": "whereabouts", "range": 7}}"#),
    ];
    let found = range_pools([("a/plain", plain), ("b/list", list), ("c/nested", nested)].into_iter().chain(others).chain(wrong));
    let names: Vec<&str> = found.pools.keys().map(String::as_str).collect();
    assert_eq!(names, ["whereabouts-10.0.0.0-24", "whereabouts-10.2.0.0-24", "whereabouts-fd00--0-64"]);
    let both = &found.pools["whereabouts-10.0.0.0-24"];
    assert_eq!(both.definitions.iter().map(String::as_str).collect::<Vec<_>>(), ["a/plain", "b/list"]);
    assert_eq!(found.undefined.iter().map(|u| u.definition.as_str()).collect::<Vec<_>>(), ["d/wrong", "d/shape"]);
    assert!(found.undefined[0].reason.starts_with("ipam.range: "), "{found:?}");
    // What is kept of them means the same.
    let twice = r#"{"ipam": {"type": "whereabouts", "range": "10.4.0.0/24"}, "IPAM": {"gateway": "10.4.0.1", "x": {"ipam": {"type": "whereabouts", "range": "10.5.0.0/24"}}}}"#;
    let all = || [("a/plain", plain), ("b/list", list), ("c/nested", nested), ("c/twice", twice)].into_iter().chain(others).chain(wrong);
    let kept: Vec<(&str, String)> = all().map(|(name, config)| (name, only_ranges(config))).collect();
    assert_eq!(range_pools(kept.iter().map(|(name, kept)| (*name, kept.as_str()))), range_pools(all()));
    assert!(kept.iter().all(|(name, kept)| kept.is_empty() == others.iter().any(|(other, _)| other == name)), "{kept:?}");
}

#[test]
fn a_range_does_not_end_among_mapped_addresses() {
    for keys in [r#""range":"::/80""#, r#""range":"::/64","exclude":["::/80"]"#] {
        let refused = check(&format!("{{{keys}}}")).unwrap_err();
        assert!(refused.contains("begins or ends among IPv4-mapped addresses"), "{keys}: {refused}");
    }
    assert!(check(r#"{"range":"::/64"}"#).is_ok());
}

mod any {
    use proptest::prelude::*;

    use super::*;

    /// Texts that are almost what is meant.
    fn text() -> impl Strategy<Value = String> {
        let address =
            || prop_oneof![Just("10.0.0.0"), Just("10.0.0.009"), Just("fd00::"), Just("fd00::00ff:1"), Just("::"), Just("255.255.255.255")];
        prop_oneof![
            6 => (address(), 0..=130_u8).prop_map(|(a, p)| format!("{a}/{p}")),
            2 => (address(), address(), 0..=130_u8).prop_map(|(a, b, p)| format!("{a}-{b}/{p}")),
            2 => address().prop_map(str::to_owned),
            1 => "[0-9a-fA-F:./-]{0,24}",
            1 => ".{0,12}",
        ]
    }

    proptest! {
        #[test]
        fn a_range_is_a_pool_or_refused(range in text(), first in text(), last in text(), exclude in proptest::collection::vec(text(), 0..4),
            gateway in text(), network_name in ".{0,60}", apart in any::<Option<bool>>(), slice in "/?[0-9]{0,3}") {
            let keys = WhereaboutsKeys {
                range, range_start: first, range_end: last, exclude, gateway, network_name, node_slice_size: slice,
                enable_overlapping_ranges: apart, ..WhereaboutsKeys::default()
            };
            match Whereabouts::check(&keys) {
                Ok(all) => for range in all.ranges {
                    let pool = range.to_pool().unwrap();
                    prop_assert_eq!(&pool.runs, &vec![range.run]);
                    let whole = pool::Run::network(range.run.first(), range.prefix);
                    let (inside, ends) = (whole.covers(&range.run), [whole.first(), whole.last()].iter().any(|end| range.run.contains(*end)));
                    prop_assert!(inside && !ends, "{range:?}");
                    prop_assert!(range.exclude.iter().all(|excluded| range.run.covers(excluded)));
                    prop_assert_eq!(Whereabouts::check(&keys).unwrap().ranges.remove(0), range);
                },
                Err(e) => prop_assert!(e.to_string().starts_with("ipam.")),
            }
        }
    }
}
