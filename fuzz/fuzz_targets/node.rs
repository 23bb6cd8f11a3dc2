//! A Node: whatever its owner writes, it takes little room, and an announcement is read again as it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| cluster::fuzz::node(bytes));
