//! What a bus, or who pretends to be it, answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(message) = dbus::parse(bytes) {
        assert!(message.body.len() <= bytes.len());
    }
});
