//! Boots a kernel with every module, once, and runs the tests of `kernel` in it, then the part of `parity` that needs modules.
//! Those of `lacking` unload modules, and come first.
//!
//! `cargo xtask test guest vlan bond` runs those whose names contain one of the words, `parity` and `lacking` those parts.

use std::time::Duration;

use netloom_tests::{guest, netloom, peers_dir, plugin_dir};

/// One after the other: what two print at once would be mixed. A test waits for its kernel as long as it computes: of the
/// guest's two processors each has two tests.
const BOTH: &str = r#"
parity=$1 with_parity=$2 with_lacking=$3 failed=0
shift 3
[ "$with_lacking" = no ] || "$0" --ignored --color never --test-threads 1 lacking:: || failed=1
"$0" --ignored --color never --test-threads 4 --skip lacking:: "$@" || failed=1
[ "$with_parity" = no ] || "$parity" --ignored --color never --nocapture --exact configurations::in_the_guest || failed=1
exit $failed
"#;

#[test]
fn what_needs_modules_passes_in_the_guest() {
    // There is no cargo in the guest: what is executed there is built here.
    let _ = (plugin_dir(), netloom(), peers_dir());
    let (kernel, parity) = (guest::test_executable("guest"), guest::test_executable("parity"));
    let words = std::env::var("GUEST_TESTS").unwrap_or_default();
    let words: Vec<&str> = words.split_whitespace().collect();
    let wanted = |name: &str| if words.is_empty() || words.contains(&name) { "yes" } else { "no" };
    let mut argv = vec!["sh", "-c", BOTH, kernel.to_str().unwrap(), parity.to_str().unwrap(), wanted("parity"), wanted("lacking")];
    argv.extend(&words);

    let run = guest::run(&argv, Duration::from_secs(3000));
    let failed: Vec<&str> = run.output.lines().filter_map(|l| l.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
    // What they have printed is above: it is shown as it comes.
    assert!(failed.is_empty(), "failed in the guest: {}", failed.join(", "));
    assert_eq!(run.code, 0, "the guest, or what ran in it, ended badly");
    let passed = run.output.lines().filter(|l| l.starts_with("test ") && l.ends_with(" ... ok")).count();
    assert!(passed > 0, "no test ran in the guest (GUEST_TESTS={words:?})");
}
