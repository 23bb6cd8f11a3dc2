//! What `iptables-save` prints: words are what they were when they are written again.
#![no_main]

use rules::iptables::{Rule, Saved};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let saved = Saved::parse("nat", text);
    for chain in saved.chains() {
        for rule in saved.rules(chain) {
            let words = rule.words();
            assert_eq!(Rule::new(&words).words(), words);
            assert!(saved.has(chain, rule));
        }
        assert!(saved.leading_to(chain).all(|(_, rule)| rule.target().as_deref() == Some(chain)));
    }
});
