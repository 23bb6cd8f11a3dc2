//! What the kernel answers about tables, sets and elements.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linux::fuzz::nftables(bytes));
