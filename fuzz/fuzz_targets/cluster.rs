//! What an API server and a kubelet say: pages and watches' lines, devices, our own objects.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    cluster::fuzz::framing(bytes);
    cluster::fuzz::devices(bytes);
    cluster::fuzz::own(bytes);
});
