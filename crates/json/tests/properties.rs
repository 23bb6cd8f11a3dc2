//! What must hold of any JSON: it is printed as it was read, and it is read as Go reads it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use json::{Object, Value};
use netloom_json as json;
use proptest::prelude::*;

/// A second; a debug build on a busy machine gets more. What is not linear takes minutes.
const QUICK: Duration = Duration::from_secs(if cfg!(debug_assertions) { 120 } else { 10 });

/// Any value, nested a little.
fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("JSON has no such number", |n| serde_json::Number::from_f64(n).map(Value::Number)),
    ];
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number, any::<String>().prop_map(Value::from)];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec(("[a-cA-C]{0,3}|.{0,8}", inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Object>())),
        ]
    })
}

/// How many values there are in one, itself included.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(count).sum::<usize>(),
        Value::Object(object) => 1 + object.iter().map(|(_, value)| count(value)).sum::<usize>(),
        _ => 1,
    }
}

/// The key with the case of some letters changed.
fn respelled(key: &'static str) -> impl Strategy<Value = String> {
    prop::collection::vec(any::<bool>(), key.len()).prop_map(move |upper| {
        key.chars().zip(upper).map(|(c, up)| if up { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() }).collect()
    })
}

#[derive(serde::Deserialize, Debug, Default, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Conf {
    is_gateway: Option<u32>,
    is_gateways: Option<u32>,
}

proptest! {
    /// Compact text is canonical: it reads as the value that it was printed from, and prints as itself.
    #[test]
    fn what_is_printed_is_read(value in value()) {
        let text = json::compact(&value);
        let again = json::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(&again, &value);
        prop_assert_eq!(json::compact(&again), &*text);
        let indented = json::indented(&value, 4);
        // What is counted without reading.
        for text in [&text, &indented] {
            let size = json::Size::of(text.as_bytes());
            prop_assert_eq!(size.depth, value.depth());
            prop_assert!((count(&value)..=2 * count(&value)).contains(&size.values), "{:?} of {}", size, text);
        }
        prop_assert_eq!(json::parse(indented.as_bytes()), Ok(value));
    }

    /// White space between tokens means nothing.
    #[test]
    fn space_is_nothing(value in value(), spaces in 0_usize..9) {
        prop_assert_eq!(json::compact(&json::parse(json::indented(&value, spaces).as_bytes()).unwrap()), json::compact(&value));
    }

    /// Another reader of JSON finds the same, once duplicates are gone.
    #[test]
    fn others_read_the_same(value in value()) {
        let text = json::compact(&value);
        let theirs: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ours: serde_json::Value = json::read(&value).unwrap();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn depth_is_counted(value in value(), more in 0_usize..20) {
        let text = format!("{}{}{}", "[".repeat(more), json::compact(&value), "]".repeat(more));
        prop_assert_eq!(json::parse(text.as_bytes()).unwrap().depth(), value.depth() + more);
    }

    /// However a key is spelled, the last pair whose value is not null counts, both for a struct and for a look-up.
    #[test]
    fn the_last_that_is_not_null_wins(
        pairs in prop::collection::vec(
            (prop_oneof![respelled("isgateway"), respelled("isgateways"), Just("other".to_owned())], any::<Option<u32>>()),
            0..12,
        )
    ) {
        let pair = |(key, n): &(String, Option<u32>)| format!("{key:?}:{}", n.map_or("null".to_owned(), |n| n.to_string()));
        let text = format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(","));
        let value = json::parse(text.as_bytes()).unwrap();
        let last = |key: &str| pairs.iter().rfind(|(k, n)| k.to_lowercase() == key && n.is_some()).and_then(|(_, n)| *n);
        let expected = Conf { is_gateway: last("isgateway"), is_gateways: last("isgateways") };
        let object = value.as_object().unwrap();
        prop_assert_eq!(object.get("isGateway").cloned(), last("isgateway").map(|n| Value::from(u64::from(n))));
        prop_assert_eq!(json::read::<Conf>(&value), Ok(expected));
    }

    /// What is set is found, once, whatever stood there; nothing else moves.
    #[test]
    fn what_is_set_is_found(pairs in prop::collection::vec(("[a-bA-B]{1,2}", any::<u64>()), 0..10), key in "[a-bA-B]{1,2}") {
        let mut object: Object = pairs.iter().map(|(k, n)| (k.clone(), Value::from(*n))).collect();
        object.set(&key, "new");
        let others = |o: &Object| -> Vec<(String, Value)> {
            o.iter().filter(|(k, _)| !k.eq_ignore_ascii_case(&key)).map(|(k, v)| (k.to_owned(), v.clone())).collect()
        };
        let before: Object = pairs.iter().map(|(k, n)| (k.clone(), Value::from(*n))).collect();
        prop_assert_eq!(others(&object), others(&before));
        prop_assert_eq!(object.iter().count(), others(&before).len() + 1);
        prop_assert_eq!(object.str(&key), Some("new"));
        object.remove(&key);
        prop_assert_eq!(object.get(&key), None);
    }

    /// No bytes are read twice, or for ever.
    #[test]
    fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Err(e) = json::parse(&bytes) {
            prop_assert!(!e.to_string().is_empty());
        }
    }
}

/// A megabyte of whatever is worst takes less than a second.
#[test]
fn a_megabyte_is_quick() {
    let megabyte = |unit: &str| unit.repeat((1 << 20) / unit.len());
    for (what, text) in [
        ("the same key", format!("{{{}\"a\":1}}", megabyte("\"isGateway\":1,"))),
        ("different keys", format!("{{{}\"a\":1}}", (0..80_000).map(|n| format!("\"key{n}\":{n},")).collect::<String>())),
        ("lists", format!("[{}1]", megabyte("[[[]]],"))),
        ("numbers", format!("[{}1]", megabyte("1.7976931348623157e308,"))),
        ("digits", megabyte("9")),
        ("fraction", format!("0.{}", megabyte("123456789"))),
        ("escapes", format!("\"{}\"", megabyte("\\ud83d\\ude00"))),
        ("opened", megabyte("[")),
    ] {
        let started = Instant::now();
        if let Ok(value) = json::parse(text.as_bytes()) {
            let _ = (json::read::<Conf>(&value), json::read::<serde_json::Value>(&value), value.depth(), json::compact(&value));
        }
        assert!(started.elapsed() < QUICK, "{what}: {:?}", started.elapsed());
    }
}
