//! Boots a kernel with every module, once, and runs the tests of `kernel` in it.
//!
//! `GUEST_TESTS="vlan bond"` runs those whose names contain one of the words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use netloom_tests::{crashing_plugin_dir, guest, netloom, peers_dir, plugin_dir};

#[test]
fn what_needs_modules_passes_in_the_guest() {
    // There is no cargo in the guest: what is executed there is built here.
    let _ = (plugin_dir(), crashing_plugin_dir(), netloom(), peers_dir());
    let executable = guest::test_executable("kernel");
    let words = std::env::var("GUEST_TESTS").unwrap_or_default();
    // A test waits for its kernel as long as it computes: of the guest's two processors each has two tests.
    let mut argv = vec![executable.to_str().unwrap(), "--ignored", "--color", "never", "--test-threads", "4"];
    argv.extend(words.split_whitespace());

    let run = guest::run(&argv, Duration::from_secs(2400));
    let failed: Vec<&str> = run.output.lines().filter_map(|l| l.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
    // What they have printed is above: it is shown as it comes.
    assert!(failed.is_empty(), "failed in the guest: {}", failed.join(", "));
    assert_eq!(run.code, 0, "the guest, or what ran in it, ended badly");
    let passed = run.output.lines().filter(|l| l.starts_with("test ") && l.ends_with(" ... ok")).count();
    assert!(passed > 0, "no test ran in the guest (GUEST_TESTS={words:?})");
}
