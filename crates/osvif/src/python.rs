//! JSON as Python's `json.dumps` prints it: a space after `,` and `:`, and nothing but printable ASCII.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// The text of a value, keys in alphabetical order.
pub(crate) fn dumps(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut printer = Serializer::with_formatter(&mut bytes, Python);
    // A Value has keys that are texts, and memory takes all bytes.
    if value.serialize(&mut printer).is_err() {
        return String::new();
    }
    String::from_utf8(bytes).unwrap_or_default()
}

struct Python;

// === impl Python ===

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut units = [0; 2];
        for c in fragment.chars() {
            if matches!(c, ' '..='~') {
                write!(writer, "{c}")?;
                continue;
            }
            for unit in c.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    /// As printed by `json.dumps(..., sort_keys=True)` of Python 3.11.
    #[test]
    fn texts_are_escaped_as_python_does() {
        let value = json!({"b": [1, true, null, []], "a": "ä \u{1f600} \u{7f}\u{1}\t\"\\/", "c": {}});
        let printed = r#"{"a": "\u00e4 \ud83d\ude00 \u007f\u0001\t\"\\/", "b": [1, true, null, []], "c": {}}"#;
        assert_eq!(super::dumps(&value), printed);
    }
}
