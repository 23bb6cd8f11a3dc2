//! The variable `CNI_ARGS`.
#![no_main]

use cni::CniArgs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let args = match CniArgs::parse(text) {
        Ok(args) => args,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    assert_eq!(CniArgs::parse(&args.to_string()).as_ref(), Ok(&args));
    for (key, _) in args.iter() {
        assert!(args.get(key).is_some());
    }
    let known: Vec<&str> = args.iter().map(|(key, _)| key).collect();
    let plain = args.without(&["IgnoreUnknown"]);
    assert_eq!(plain.only(&known), Ok(()));
    assert!(known.iter().all(|key| plain.get(key).is_some() == (*key != "IgnoreUnknown")));
    // It says neither yes nor no, at worst.
    let said = args.get("IgnoreUnknown").is_none_or(|v| ["1", "true", "0", "false"].iter().any(|known| v.eq_ignore_ascii_case(known)));
    assert_eq!(args.only(&known).is_ok(), said);
    let _ = args.only(&["IP"]);
});
