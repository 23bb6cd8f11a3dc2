//! VIFs that a pod's annotation or a KuryrPort has, written by whoever may write there: read or refused, and kept as they came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netloom_fuzz::parts;
use osvif::{KuryrPort, PodState};

fuzz_target!(|bytes: &[u8]| {
    let [annotation, object] = parts(bytes);
    if let Ok(text) = std::str::from_utf8(annotation) {
        match PodState::parse(text) {
            Ok(state) => {
                let printed = state.annotation();
                let again = PodState::parse(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
                assert_eq!(again.annotation(), printed);
            }
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
    let Ok(object) = serde_json::from_slice(object) else { return };
    match KuryrPort::read(object) {
        Ok(port) => {
            let written = port.write();
            assert_eq!(KuryrPort::read(written.clone()).map(KuryrPort::write), Ok(written));
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
