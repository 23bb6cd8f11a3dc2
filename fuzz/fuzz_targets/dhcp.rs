//! What a DHCP server, or another station of the link, sends to a client; and a lease's file. The first byte says which it is.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind {
        b'p' => dhcp::fuzz::packet(rest),
        b'4' => dhcp::fuzz::message(rest),
        b'6' => dhcp::fuzz::message6(rest),
        b'f' => dhcp::fuzz::file(rest),
        _ => dhcp::fuzz::search(rest),
    }
});
