//! The annotation that replaces the default network.
#![no_main]

use cni::CniError;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|annotation: &str| {
    match npwg::default_network(annotation, "kube-system") {
        Ok(selection) => assert_eq!(npwg::parse(annotation, "kube-system").as_deref(), Ok(&[selection][..])),
        Err(e) => assert!(!CniError::from(e).msg.is_empty()),
    }
});
