//! Any JSON: what was read is printed and read again, and its shape never matters to a reader but as an error.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;

/// A field of every shape that a configuration has.
#[derive(serde::Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(dead_code)]
struct Everything {
    name: String,
    flag: bool,
    byte: u8,
    mtu: u16,
    count: u64,
    offset: i64,
    small: i32,
    part: f64,
    maybe: Option<u32>,
    list: Vec<Everything>,
    words: Vec<Vec<String>>,
    map: BTreeMap<String, Option<json::Value>>,
    object: Option<json::Object>,
    any: Option<json::Value>,
    mode: Option<Mode>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Bridge,
    Vepa,
}

fuzz_target!(|bytes: &[u8]| {
    let value = match json::parse(bytes) {
        Ok(value) => value,
        Err(e) => return drop(e.to_string()),
    };
    for printed in [json::compact(&value), json::indented(&value, 4)] {
        assert_eq!(json::parse(printed.as_bytes()).as_ref(), Ok(&value), "{printed}");
    }
    if let Err(e) = json::read::<Everything>(&value) {
        assert!(!e.to_string().is_empty());
    }
    let Some(object) = value.as_object() else { return };
    let mut changed = object.clone();
    for (key, _) in object.iter() {
        changed.set(key, "x");
        assert_eq!(changed.str(key), Some("x"));
        changed.remove(key);
        assert_eq!(changed.get(key), None);
    }
    assert!(changed.is_empty());
});
