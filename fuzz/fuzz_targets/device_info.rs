//! Information on a device, from a device plugin's or a CNI plugin's file, and what such a file is called.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netloom_fuzz::parts;
use npwg::{DeviceInfo, MAX_DEVICE_INFO, NetworkStatus, parse_status, to_json};

fuzz_target!(|bytes: &[u8]| {
    let [text, resource, device] = parts(bytes);
    match DeviceInfo::parse(text) {
        Ok(info) => {
            assert!(text.len() <= MAX_DEVICE_INFO && !info.kind().is_empty());
            // Escapes make a text longer: 6 bytes for one.
            let printed = json::compact(&info);
            if printed.len() <= MAX_DEVICE_INFO {
                assert_eq!(DeviceInfo::parse(printed.as_bytes()).as_ref(), Ok(&info));
            }
            let status = NetworkStatus { name: "a".to_owned(), device_info: Some(info), ..NetworkStatus::default() };
            assert_eq!(parse_status(&to_json(std::slice::from_ref(&status))), Ok(vec![status]));
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    let (Ok(resource), Ok(device)) = (std::str::from_utf8(resource), std::str::from_utf8(device)) else { return };
    match npwg::device_plugin_file(resource, device) {
        Ok(path) => assert!(path.parent().is_some_and(|dir| dir == "dp") && path.file_name().is_some_and(|n| n.len() <= 255)),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
