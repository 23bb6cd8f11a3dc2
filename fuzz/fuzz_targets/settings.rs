//! The agent's own file, YAML or JSON, and behind a NUL the configuration that a runtime gives with a call.
#![no_main]

use agent::Settings;
use json::Value;
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::{assert_kept, parts};

fn looked_at(settings: &Settings) {
    settings.warnings.iter().for_each(|warning| assert!(!warning.is_empty()));
    for source in settings.every_pod.iter().chain([&settings.default_network]) {
        if let agent::settings::NetworkSource::Inline(list) = source {
            assert!(!list.plugins.is_empty());
            assert_kept(list);
        }
    }
    assert!(settings.workers > 0);
    // Where it works is said by absolute paths: nothing depends on where the agent was started.
    for path in [&settings.conf_dir, &settings.bin_dir, &settings.cni_config_dir, &settings.socket_dir, &settings.state_dir] {
        assert!(path.is_absolute(), "{}", path.display());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [own, call] = parts(bytes);
    let settings = match Settings::parse(own) {
        Ok(settings) => settings,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    looked_at(&settings);
    let Ok(Value::Object(call)) = json::parse(call) else { return };
    match settings.with_call(&call) {
        Ok(merged) => {
            looked_at(&merged);
            // What a runtime says reaches nothing that was decided when the agent started.
            assert_eq!((&merged.socket_dir, &merged.state_dir), (&settings.socket_dir, &settings.state_dir));
            assert_eq!(merged.admission.policy, settings.admission.policy);
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
