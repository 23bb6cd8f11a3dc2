//! The annotation that selects networks, and what a network is given for it.
#![no_main]

use cni::{CniError, NetworkList};
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::{assert_kept, parts};

const CAPABLE: &[u8] = br#"{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"a","args":{"cni":{"ips":["10.0.0.1"],"x":1},"y":2},
    "capabilities":{"ips":true,"mac":true,"infinibandGUID":true,"portMappings":true,"bandwidth":true,"deviceID":true,"ipam-claim-reference":true}},{"type":"b"}]}"#;

fuzz_target!(|bytes: &[u8]| {
    let [annotation, own] = parts(bytes);
    let Ok(annotation) = std::str::from_utf8(annotation) else { return };
    let own = json::parse(own).ok();
    let selections = match npwg::parse(annotation, "default") {
        Ok(selections) => selections,
        Err(e) => return assert!(!CniError::from(e).msg.is_empty()),
    };
    assert!(selections.len() <= npwg::MAX_ELEMENTS);
    for selection in selections {
        let mut list = NetworkList::parse(CAPABLE, None).expect("a good list");
        assert_eq!(selection.verify(&list), Ok(()));
        let _ = selection.args(own.as_ref().and_then(json::Value::as_object));
        list.set_in_plugins("args", |own| selection.args(own.and_then(json::Value::as_object)).map(json::Value::Object));
        assert_kept(&list);
        let runtime = selection.runtime_config();
        for plugin in &list.plugins {
            list.derive(plugin, &runtime).expect("every plugin can be given what was selected");
        }
        let nothing = selection.not_honoured(&list, &Default::default());
        assert_eq!(nothing.is_empty(), selection.ips.is_empty() && selection.mac.is_none());
        let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric());
        if selection.interface.as_ref().is_none_or(|name| plain(name.as_str())) {
            let again = npwg::parse(&selection.to_string(), "other").expect("the comma form is read");
            let seen = |s: &npwg::Selection| (s.definition.clone(), s.interface.clone());
            assert_eq!(again.iter().map(seen).collect::<Vec<_>>(), [seen(&selection)]);
        }
    }
});
