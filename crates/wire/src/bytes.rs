//! Bytes that need not be text, in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::{Object, Value};

/// The key of what is no text.
const BASE64: &str = "base64";

/// A string where the bytes are UTF-8 and not longer for it, else `{"base64": ...}`: a file of control characters, each of
/// which JSON writes with six, is within the limit of a message too.
pub(crate) fn to_value(bytes: &[u8]) -> Value {
    let written: usize = bytes.iter().map(|b| written(*b)).sum();
    match std::str::from_utf8(bytes) {
        Ok(text) if written <= bytes.len().div_ceil(3).saturating_mul(4) => Value::from(text),
        _ => Value::Object(Object::from_iter([(BASE64.to_owned(), Value::from(STANDARD.encode(bytes)))])),
    }
}

/// The bytes of a value; `None` if it stands for none.
pub(crate) fn of_value(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Object(object) => STANDARD.decode(object.str(BASE64)?).ok(),
        _ => None,
    }
}

/// How many bytes of JSON one byte of a string is.
fn written(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    }
}
