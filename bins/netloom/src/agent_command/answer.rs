//! The values of an answer. Any of them may be missing, or be of a kind that nobody expects: then there is none.

use std::time::Duration;

use json::{Object, Value};

/// What stands where the agent tells nothing.
pub(super) const NONE: &str = "-";

/// A text, safe to print.
pub(super) fn text(o: &Object, key: &str) -> Option<String> {
    o.str(key).filter(|text| !text.is_empty()).map(clean)
}

/// A text, or [`NONE`].
pub(super) fn shown(o: &Object, key: &str) -> String {
    text(o, key).unwrap_or_else(|| NONE.to_owned())
}

/// True or false.
pub(super) fn flag(o: &Object, key: &str) -> Option<bool> {
    o.get(key).and_then(Value::as_bool)
}

/// A count.
pub(super) fn number(o: &Object, key: &str) -> Option<u64> {
    match o.get(key)? {
        Value::Number(number) => number.as_u64(),
        _ => None,
    }
}

/// A duration, told in microseconds.
pub(super) fn micros(o: &Object, key: &str) -> Option<Duration> {
    number(o, key).map(Duration::from_micros)
}

/// The texts of a list, safe to print.
pub(super) fn texts(o: &Object, key: &str) -> Vec<String> {
    let list = o.get(key).and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(clean).collect()
}

/// The texts of a list as one, or [`NONE`].
pub(super) fn joined(o: &Object, key: &str) -> String {
    let texts = texts(o, key);
    if texts.is_empty() { NONE.to_owned() } else { texts.join(", ") }
}

/// The objects of a list.
pub(super) fn objects<'a>(o: &'a Object, key: &str) -> Vec<&'a Object> {
    let list = o.get(key).and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_object).collect()
}

/// Text that a terminal takes for nothing but text. Annotations and messages have what others wrote in them: no sequence in
/// them may clear the screen, and no mark may turn the direction of what is read.
pub(super) fn clean(text: &str) -> String {
    let hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            '\t' => out.push(' '),
            '\r' => {}
            c if c.is_control() || hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// As [`clean`], on one line: for what stands in a row.
pub(super) fn line(text: &str) -> String {
    clean(text).replace('\n', " ")
}
