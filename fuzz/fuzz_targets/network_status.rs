//! The annotation that tells what a pod got, ours or somebody else's, and what it is made of.
#![no_main]

use cni::{AddResult, IfName, Version};
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::parts;
use npwg::{NetworkStatus, StatusIps, parse_status, to_json};

fn assert_read_back(entries: &[NetworkStatus]) {
    let text = to_json(entries);
    match parse_status(&text) {
        Ok(again) => assert_eq!(to_json(&again), text),
        Err(e) => assert!(matches!(e, npwg::StatusError::TooLong(_)), "{e}"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [annotation, result] = parts(bytes);
    if let Ok(annotation) = std::str::from_utf8(annotation) {
        match parse_status(annotation) {
            Ok(entries) => assert_read_back(&entries),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
    let Ok((result, _)) = AddResult::parse(result, Version::LATEST) else { return };
    let ifname = IfName::parse("net1").expect("a good name");
    for (default, ips) in [(true, StatusIps::Bare), (false, StatusIps::Cidr)] {
        assert_read_back(&[NetworkStatus::from_result("default/net", &result, &ifname, default, ips)]);
    }
});
