//! A plugin's result: read, and printed in every version that can express it.
#![no_main]

use cni::{AddResult, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for configured in [Version::V0_1_0, Version::V0_4_0, Version::LATEST] {
        let result = match AddResult::parse(bytes, configured) {
            Ok((result, _)) => result,
            Err(e) => {
                assert!(!e.to_string().is_empty());
                continue;
            }
        };
        for version in Version::ALL {
            let Ok(printed) = result.print(*version) else { continue };
            let (again, stated) = AddResult::parse(printed.as_bytes(), configured).expect("what was printed is a result");
            assert_eq!(stated, *version);
            assert_eq!(again.print(*version).as_deref(), Ok(printed.as_str()));
            // The newest version expresses everything.
            assert!(*version != Version::LATEST || again == result);
        }
    }
});
