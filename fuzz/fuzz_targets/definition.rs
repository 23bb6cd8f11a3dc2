//! A NetworkAttachmentDefinition.
#![no_main]

use cni::CniError;
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::{assert_kept, parts};
use npwg::Definition;

fuzz_target!(|bytes: &[u8]| {
    let [config, name, namespace] = parts(bytes);
    let Ok(config) = std::str::from_utf8(config) else { return };
    let or = |text: &[u8], otherwise: &str| match text {
        [] => otherwise.to_owned(),
        text => String::from_utf8_lossy(text).into_owned(),
    };
    let definition =
        Definition { namespace: or(namespace, "default"), name: or(name, "net"), config: Some(config.to_owned()), resource_name: None, is_neutron: false };
    match definition.network() {
        Ok(Some(list)) => {
            assert!(!list.plugins.is_empty());
            assert_kept(&list);
        }
        Ok(None) => assert!(config.trim().is_empty()),
        Err(e) => assert!(!CniError::from(e).msg.is_empty()),
    }
});
