//! A policy, and behind a NUL a network that is held against it: what a rule refuses it refuses under its name, beside whatever others.
#![no_main]

use attach::{Case, Forbidden, Policy, Uses};
use cni::NetworkList;
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::{name, parts};
use npwg::DefinitionRef;

fuzz_target!(|bytes: &[u8]| {
    let [rules, network, namespace] = parts(bytes);
    let Ok(value) = json::parse(rules) else { return };
    let policy = match Policy::parse(&value, "policy") {
        Ok(policy) => policy,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    let Ok(list) = NetworkList::parse(network, Some(&name())) else { return };
    let namespace = String::from_utf8_lossy(namespace);
    let definition = DefinitionRef { namespace: "shared".to_owned(), name: "net".to_owned() };
    let case = Case {
        pod_namespace: &namespace,
        definition: &definition,
        is_selected: true,
        uses: &Uses::of(&list, plugins::BUILTINS),
        device: None,
        granted: None,
        is_on_disk: false,
    };
    let of_rule = |forbidden: &Forbidden| if let Forbidden::ByRule { rule, .. } = forbidden { Some(rule.clone()) } else { None };
    let refused = policy.check(&case).err().unwrap_or_default();
    let named: Vec<String> = refused.iter().filter_map(of_rule).collect();
    assert!(named.iter().all(|name| policy.rules.iter().any(|rule| rule.name == *name)), "{refused:?}");
    // Another rule never allows what one refuses.
    for rule in &policy.rules {
        let alone = Policy { rules: vec![rule.clone()] }.check(&case).err().unwrap_or_default();
        let refuses = alone.iter().any(|forbidden| of_rule(forbidden).is_some());
        assert!(!refuses || !refused.is_empty());
        assert!(refuses || !named.contains(&rule.name));
    }
    // A file of the node's own names what it likes.
    let on_disk = Case { is_on_disk: true, ..case };
    assert!(Policy::OPEN.check(&on_disk).is_ok());
});
