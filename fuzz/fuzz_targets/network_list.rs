//! A network from a file or a definition, with a plugin's file beside it and a runtime's wishes.
#![no_main]

use cni::{Config, NetworkList};
use json::Value;
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::{assert_kept, name, parts};

fuzz_target!(|bytes: &[u8]| {
    let [text, beside, runtime] = parts(bytes);
    let runtime = json::parse(runtime).ok().and_then(|v| v.as_object().cloned()).unwrap_or_default();
    let _ = NetworkList::name_of(text);
    for named in [None, Some(&name())] {
        let mut list = match NetworkList::parse(text, named) {
            Ok(list) => list,
            Err(e) => {
                assert!(!e.to_string().is_empty());
                continue;
            }
        };
        assert_kept(&list);
        let before = list.clone();
        match list.append(beside) {
            Ok(()) => assert_kept(&list),
            Err(_) => assert_eq!(list, before),
        }
        list.set_in_plugins("args", |own| {
            let mut args = own.and_then(Value::as_object).cloned().unwrap_or_default();
            args.set("cni", runtime.clone());
            Some(Value::Object(args))
        });
        assert_kept(&list);
        for plugin in &list.plugins {
            let _ = plugin.capabilities().count();
            let Ok(config) = list.derive(plugin, &runtime) else { continue };
            let printed = config.print(None).expect("no previous result, nothing to convert");
            Config::parse(printed.as_bytes()).expect("what is derived from a network is a configuration");
        }
    }
});
