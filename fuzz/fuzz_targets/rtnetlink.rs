//! What the kernel, or who pretends to be it, answers about links, addresses and routes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linux::fuzz::rtnetlink(bytes));
