//! What anybody on a network says of addresses: ARP and neighbour discovery. The first two bytes are the protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linux::fuzz::speech(bytes));
