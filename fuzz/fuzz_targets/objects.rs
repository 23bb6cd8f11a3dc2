//! Pods and definitions as an API server might send them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    cluster::fuzz::pod(bytes);
    cluster::fuzz::definition(bytes);
});
