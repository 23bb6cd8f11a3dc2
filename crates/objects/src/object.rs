//! Objects as the store keeps them: JSON maps, and the few fields of them that the API server itself reads and writes.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::{Map, Value};

/// An object: built-in ones without `apiVersion` and `kind`, which the reader's path tells; custom ones with both.
pub(crate) type Object = Map<String, Value>;

/// Namespace (empty for what belongs to the cluster) and name: lists come in this order.
pub(crate) type Key = (String, String);

/// The value at a path of keys.
pub(crate) fn at<'a>(object: &'a Object, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(object.get(*first)?, |value, key| value.get(*key))
}

/// The text at a path of keys, empty where there is none.
pub(crate) fn text<'a>(object: &'a Object, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// A key of the metadata as text, empty where there is none.
pub(crate) fn meta<'a>(object: &'a Object, key: &str) -> &'a str {
    text(object, &["metadata", key])
}

/// The map under a key, made where it is missing or is something else.
pub(crate) fn map_mut<'a>(object: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    let value = object.entry(key).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Sets or removes a key of the metadata.
pub(crate) fn set_meta(object: &mut Object, key: &str, value: Option<Value>) {
    let Some(metadata) = map_mut(object, "metadata") else { return };
    match value {
        Some(value) => metadata.insert(key.to_owned(), value),
        None => metadata.remove(key),
    };
}

/// The object with another resource version, as a watch shows what is gone.
pub(crate) fn at_revision(object: &Object, revision: u64) -> Object {
    let mut copy = object.clone();
    set_meta(&mut copy, "resourceVersion", Some(Value::String(revision.to_string())));
    copy
}

/// The texts of the list of finalizers.
pub(crate) fn finalizers(object: &Object) -> Vec<&str> {
    at(object, &["metadata", "finalizers"]).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a deletion has begun.
pub(crate) fn is_terminating(object: &Object) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// The time of a write, in whole seconds as the API server has it.
pub(crate) fn now() -> Value {
    let now = k8s_openapi::jiff::Timestamp::now();
    Value::String(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A random UID, version 4.
pub(crate) fn new_uid() -> String {
    let (high, low) = (random(), random());
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, (high & 0x0fff) | 0x4000);
    let (d, e) = (((low >> 48) & 0x3fff) | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

/// The five letters that end a generated name.
pub(crate) fn name_ending() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut left = random();
    let mut ending = String::with_capacity(5);
    for _ in 0..5 {
        let letter = LETTERS.get((left % LETTERS.len() as u64) as usize).copied().unwrap_or(b'x');
        ending.push(char::from(letter));
        left /= LETTERS.len() as u64;
    }
    ending
}

// The standard library has no generator; its hasher's keys are random, and differ with every call.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// `metadata.name` as the API server checks it: a DNS subdomain (RFC 1123).
pub(crate) fn is_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.iter().all(|byte| inside(*byte) || *byte == b'-')
            && bytes.first().is_some_and(|byte| inside(*byte))
            && bytes.last().is_some_and(|byte| inside(*byte))
    };
    name.len() <= 253 && name.split('.').all(label)
}
