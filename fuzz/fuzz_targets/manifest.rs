//! Manifests on standard input: YAML or JSON of any shape.
#![no_main]

use std::path::PathBuf;

use lab::manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match manifest::load(&[PathBuf::from("-")], &mut &*bytes) {
        Ok(manifests) => manifests.findings.iter().for_each(|finding| assert!(!finding.to_string().is_empty())),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
