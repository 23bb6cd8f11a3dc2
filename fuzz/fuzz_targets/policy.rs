//! A policy, and behind a NUL a network that is held against it. What a policy refuses it refuses under every rule's name.
#![no_main]

use attach::{Case, Policy};
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
    let case = Case { pod_namespace: &namespace, definition: &definition, is_selected: true, list: &list, device: None };
    let refused = policy.check(&case).err().unwrap_or_default();
    for forbidden in &refused {
        assert!(policy.rules.iter().any(|rule| rule.name == forbidden.rule), "{forbidden}");
    }
    // Another rule never allows what one refuses.
    for rule in &policy.rules {
        let alone = Policy { rules: vec![rule.clone()] };
        assert_eq!(alone.check(&case).is_err(), refused.iter().any(|forbidden| forbidden.rule == rule.name));
    }
});
