//! Conditions of host ports, in words of nft: what is read is told in the name of a chain, and read again from it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rules::fuzz_conditions(text));
