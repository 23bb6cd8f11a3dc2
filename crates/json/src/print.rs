//! How values are printed: compact, or with Go's four-space indentation that CNI's programs use.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::{Object, Value};

/// One line without spaces.
pub fn compact<T: Serialize>(value: &T) -> String {
    // Only a map with keys that are no strings, or a failing `Serialize`, can fail here; ours are neither.
    serde_json::to_string(value).unwrap_or_default()
}

/// Indented by `spaces`, without a final newline, byte for byte as Go prints it: `<`, `>`, `&` and the two line
/// separators of Unicode are escaped, so that the text may stand in HTML and JavaScript.
pub fn indented<T: Serialize>(value: &T, spaces: usize) -> String {
    let indent = " ".repeat(spaces);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => escaped(String::from_utf8(bytes).unwrap_or_default()),
        Err(_) => String::new(),
    }
}

/// These characters stand nowhere in JSON but in strings.
fn escaped(text: String) -> String {
    const ESCAPES: [(char, &str); 5] =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    let replace = |text: String, (from, to): (char, &str)| if text.contains(from) { text.replace(from, to) } else { text };
    ESCAPES.into_iter().fold(text, replace)
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(b) => serializer.serialize_bool(*b),
            Value::Number(n) => n.serialize(serializer),
            Value::String(s) => serializer.serialize_str(s),
            Value::Array(list) => list.serialize(serializer),
            Value::Object(object) => object.serialize(serializer),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use crate::{compact, indented, parse};

    #[test]
    fn indented_is_as_go_prints() {
        let text = "{\"a\":[\"<&>\u{2028}\u{2029}/\u{7f}\"],\"b\":{},\"c\":[]}";
        let value = parse(text.as_bytes()).unwrap();
        let printed = "{\n  \"a\": [\n    \"\\u003c\\u0026\\u003e\\u2028\\u2029/\u{7f}\"\n  ],\n  \"b\": {},\n  \"c\": []\n}";
        assert_eq!(indented(&value, 2), printed);
        assert_eq!(compact(&parse(printed.as_bytes()).unwrap()), text);
    }
}
