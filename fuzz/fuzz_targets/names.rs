//! Names, identifiers and addresses: what is accepted is shown as it is read, and is safe where it goes.
#![no_main]

use std::fmt::Display;
use std::path::Component;
use std::str::FromStr;

use cni::{ContainerId, IfName, Mac, NetworkName, PluginType, Version};
use libfuzzer_sys::fuzz_target;
use linux::nft::SetElement;
use linux::{BootId, MacvlanMode, NetnsId, Sysctl};
use npwg::{DefinitionRef, NameRule};

fn shown<T>(text: &str) -> Option<String>
where
    T: FromStr<Err: Display> + Display + PartialEq,
{
    match text.parse::<T>() {
        Ok(read) => {
            let shown = read.to_string();
            assert!(shown.parse::<T>().is_ok_and(|again| again == read), "{shown:?}");
            Some(shown)
        }
        Err(e) => {
            assert!(!e.to_string().is_empty());
            None
        }
    }
}

fuzz_target!(|text: &str| {
    let files = [shown::<ContainerId>(text), shown::<NetworkName>(text), shown::<PluginType>(text)];
    for name in files.iter().flatten() {
        assert!(name != "." && name != ".." && !name.contains(['/', '\0']) && name.len() <= 255, "{name:?}");
    }
    if let Some(name) = shown::<IfName>(text) {
        assert!((1..=15).contains(&name.len()) && !name.contains(['/', ':', '%', ' ', '\0']), "{name:?}");
    }
    shown::<Mac>(text);
    shown::<Version>(text);
    shown::<BootId>(text);
    shown::<NetnsId>(text);
    shown::<MacvlanMode>(text);
    shown::<SetElement>(text);
    if let Ok(reference) = DefinitionRef::parse(text, "default") {
        assert_eq!(DefinitionRef::parse(&reference.to_string(), "other").as_ref(), Ok(&reference));
    }
    if let Ok(sysctl) = Sysctl::new(text.split('.')) {
        let inside = sysctl.path().strip_prefix("/proc/sys").expect("a sysctl's file");
        assert!(inside.components().all(|part| matches!(part, Component::Normal(_))), "{text:?}");
    }
    for rule in [NameRule::Namespace, NameRule::Definition, NameRule::Claim] {
        if let Err(e) = rule.check(text) {
            assert!(!e.to_string().is_empty());
        }
    }
});
