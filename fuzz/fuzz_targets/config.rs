//! What a plugin gets on its standard input.
#![no_main]

use cni::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (config, prev) = match Config::parse(bytes) {
        Ok(read) => read,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    let _ = config.ipam();
    for prev in [None, prev.as_ref()] {
        let Ok(printed) = config.print(prev) else { continue };
        let (again, prev) = Config::parse(printed.as_bytes()).expect("what an external plugin gets is a configuration");
        assert_eq!((&again.network, again.version, &again.kind), (&config.network, config.version, &config.kind));
        assert_eq!(again.print(prev.as_ref()).as_deref(), Ok(printed.as_str()));
    }
});
