//! Any text is read or refused; a value is kept whole, and what it refers to is put in once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use netloom_openstack::{Settings, WrittenOptions, clouds};
use proptest::prelude::*;

/// A line as a file of settings may have it, or nearly so.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec!["[neutron]", "[kubernetes]", "[vif_pool]", "[neutron_defaults]", "[", "[]", "", "# c"])
            .prop_map(str::to_owned),
        ("(auth_type|auth_url|port_debug|ports_pool_min|subnet_mapping|pod_security_groups|project|x)", "[=: ]", "[ -~]{0,12}")
            .prop_map(|(name, sign, value)| format!("{name}{sign}{value}")),
        "[ -~]{0,16}",
    ]
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec(line(), 0..12), other in ".{0,60}") {
        for text in [lines.join("\n"), other] {
            let read = [WrittenOptions::kuryr_conf(&text), WrittenOptions::yaml(&text)];
            for given in read.into_iter().flatten() {
                let _settings = Settings::check(&given).map_err(|problems| assert!(!problems.is_empty()));
                prop_assert!(given.notes().iter().all(|note| note.line > 0 && note.line <= text.lines().count()));
            }
            prop_assert!(clouds("a", &text, Some(&text)).is_err());
        }
    }

    /// A password may have any character that a line can have.
    #[test]
    fn a_value_is_kept_whole(value in "[!-~]([ -~]{0,20}[!-~])?") {
        // Quotes around a value are not part of it; to oslo.config `\$$` is a `$`, and another one.
        let quoted = value.starts_with(['"', '\'']) || value.contains("\\$");
        let conf = format!("[neutron]\nauth_type = {}\n[neutron_defaults]\nproject = p\n", value.replace('$', "$$"));
        let Err(problems) = Settings::check(&WrittenOptions::kuryr_conf(&conf).unwrap()) else { return Ok(()) };
        let told = problems[0].to_string();
        let known = ["password", "token", "none", "noauth", "v3password", "v3token", "v3applicationcredential"].contains(&value.as_str());
        prop_assert!(quoted || known || told.contains(&format!("auth_type {value} is not supported")), "{}: {}", value, told);
    }
}
