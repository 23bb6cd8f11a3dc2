//! What the kernel answers about the connections that it tracks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linux::fuzz::tracked(bytes));
