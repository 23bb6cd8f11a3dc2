//! Any JSON value, and how bytes become one.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::{MAX_INPUT, Object, ParseError};

/// Any JSON value. Unlike a map-based one it keeps the order, the spelling and the duplicates of keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Value {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number: an unsigned or signed 64-bit integer, else a double.
    Number(serde_json::Number),
    /// A string
    String(String),
    /// A list
    Array(Vec<Value>),
    /// An object
    Object(Object),
}

/// Reads one JSON value; only white space may follow it.
///
/// # Errors
/// [`ParseError`] with line and column. Input nested deeper than [`MAX_DEPTH`](crate::MAX_DEPTH) levels is refused.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    parse_at_most(bytes, MAX_INPUT)
}

/// As [`parse`], with a limit of bytes in the place of [`MAX_INPUT`]: for what we have written ourselves, in which
/// several inputs may stand.
///
/// # Errors
/// As [`parse`].
pub fn parse_at_most(bytes: &[u8], max: usize) -> Result<Value, ParseError> {
    if bytes.len() > max {
        return Err(ParseError::TooLarge { size: bytes.len(), max });
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ParseError::Empty);
    }
    Ok(serde_json::from_slice(bytes)?)
}

// === impl Value ===

impl Value {
    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(o) => Some(o),
            _ => None,
        }
    }

    /// The list, if it is one.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(a) => Some(a),
            _ => None,
        }
    }

    /// How many levels of lists and objects there are: 0 for a string, 1 for `[]`, 2 for `[{}]`.
    pub fn depth(&self) -> usize {
        match self {
            Value::Array(list) => 1 + list.iter().map(Value::depth).max().unwrap_or(0),
            Value::Object(object) => object.depth(),
            _ => 0,
        }
    }

    /// What it is, in a reader's words: `a string`, `null`, ...
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Value::String(s.to_owned())
    }
}

impl From<String> for Value {
    fn from(s: String) -> Self {
        Value::String(s)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Value::Bool(b)
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Value::Number(n.into())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Value::Number(n.into())
    }
}

impl From<Object> for Value {
    fn from(o: Object) -> Self {
        Value::Object(o)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(list: Vec<T>) -> Self {
        Value::Array(list.into_iter().map(Into::into).collect())
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnyObject)
    }
}

struct AnyObject;

impl<'de> Visitor<'de> for AnyObject {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Object(pairs))
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(Value::Number(n.into()))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Number(n.into()))
    }

    fn visit_f64<E: de::Error>(self, n: f64) -> Result<Value, E> {
        match serde_json::Number::from_f64(n) {
            Some(n) => Ok(Value::Number(n)),
            None => Err(E::custom("a number that JSON cannot express")),
        }
    }

    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::String(s.to_owned()))
    }

    fn visit_string<E>(self, s: String) -> Result<Value, E> {
        Ok(Value::String(s))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        AnyObject.visit_map(map).map(Value::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_line_and_column() {
        let e = parse(b"{\"a\": 1,\n  \"b\" 2}").unwrap_err();
        assert_eq!(e.to_string(), "not valid JSON: expected `:` (line 2, column 7)");
        assert_eq!(parse(b" \n"), Err(ParseError::Empty));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let e = parse("[".repeat(100_000).as_bytes()).unwrap_err();
        assert!(e.to_string().contains("recursion limit"), "{e}");
    }

    /// A network's source could not be read again once it had been put into a list of one: DEL failed for good.
    #[test]
    fn the_limit_of_depth_is_what_is_said() {
        let nested = |n: usize| format!("{}{}", "[{\"a\":".repeat(n / 2), "}]".repeat(n / 2)).replace(":}", ":1}");
        let deepest = format!("[{}]", nested(crate::MAX_DEPTH - 1));
        assert_eq!(parse(deepest.as_bytes()).unwrap().depth(), crate::MAX_DEPTH);
        assert!(parse(format!("[{deepest}]").as_bytes()).is_err());
        for (text, depth) in [("1", 0), ("[]", 1), ("{}", 1), ("[1,[{}],2]", 3), (r#"{"a":[],"b":{"c":[]}}"#, 3)] {
            assert_eq!(parse(text.as_bytes()).unwrap().depth(), depth, "{text}");
        }
    }

    #[test]
    fn a_huge_input_is_refused_before_it_is_parsed() {
        let bytes = vec![b' '; MAX_INPUT + 1];
        assert!(matches!(parse(&bytes), Err(ParseError::TooLarge { .. })));
    }
}
