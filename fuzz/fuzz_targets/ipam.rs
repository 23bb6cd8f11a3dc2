//! Ranges, routes and name resolution as a configuration has them.
#![no_main]

use ipam::{RangeSet, RangeSources, RawRange, RawRoute};
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::parts;

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Ipam {
    ranges: Vec<Vec<RawRange>>,
    routes: Vec<RawRoute>,
}

fuzz_target!(|bytes: &[u8]| {
    let [config, resolv_conf] = parts(bytes);
    if let Ok(text) = std::str::from_utf8(resolv_conf) {
        let _ = ipam::parse_resolv_conf(text);
    }
    let Some(ipam) = json::parse(config).ok().and_then(|v| json::read::<Ipam>(&v).ok()) else { return };
    if let Err(e) = ipam::check_routes("ipam.routes", &ipam.routes) {
        assert!(!e.to_string().is_empty());
    }
    match RangeSet::check_all(RangeSources { ranges: &ipam.ranges, ..RangeSources::default() }) {
        Ok(sets) => sets.iter().flat_map(|set| set.ranges().iter().map(move |range| (set, range))).for_each(|(set, range)| {
            assert!(range.start() <= range.end() && range.subnet().contains(&range.start()) && range.subnet().contains(&range.end()));
            assert!(range.contains(range.start()) && range.contains(range.end()));
            assert_eq!(set.range_for(range.end()), Some(range));
        }),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
