//! Configurations for whereabouts: any bytes are pools or refused, by the plugin as by the operator, and their names are names.
#![no_main]

use ipam::{Whereabouts, WhereaboutsKeys, range_pools};
use libfuzzer_sys::fuzz_target;

fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(inner) && text.bytes().next_back().is_some_and(inner);
    ends && text.len() <= 253 && text.bytes().all(|b| inner(b) || b"-.".contains(&b))
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let found = range_pools([("default/net", text)]);
    assert!(found.pools.keys().all(|name| is_name(name)), "{found:?}");
    let Ok(keys) = json::parse(bytes).map_err(drop).and_then(|value| json::read::<WhereaboutsKeys>(&value).map_err(drop)) else { return };
    match Whereabouts::check(&keys) {
        Ok(all) => {
            for range in all.ranges {
                assert!(is_name(&range.pool) && is_name(&range.network), "{range:?}");
                assert_eq!(range.to_pool().map(|pool| pool.runs), Ok(vec![range.run]));
            }
        }
        Err(e) => assert!(e.to_string().starts_with("ipam.")),
    }
});
