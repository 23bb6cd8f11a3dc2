//! What a plugin that failed printed.
#![no_main]

use cni::{CniError, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(error) = CniError::parse(bytes) else { return };
    for version in Version::ALL {
        assert_eq!(CniError::parse(error.print(*version).as_bytes()).as_ref(), Some(&error));
    }
});
