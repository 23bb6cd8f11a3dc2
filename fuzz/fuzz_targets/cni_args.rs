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
    assert_eq!(args.only(&known), Ok(()));
    let _ = args.only(&["IP"]);
});
