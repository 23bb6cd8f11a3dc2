//! The fields of an object while it is read: each is taken out, what is left is kept.

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::problem::shortened;
use crate::{Problem, Reason};

/// The fields that were not read yet.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

/// Reads a value where it stands.
pub(crate) type Read<T> = fn(Value) -> Result<T, Problem>;

// === impl Fields ===

impl Fields {
    /// Those of a value that is an object.
    pub(crate) fn of(value: Value) -> Result<Self, Problem> {
        match value {
            Value::Object(map) => Ok(Fields(map)),
            other => Err(kind("an object", &other)),
        }
    }

    /// What nobody took.
    pub(crate) fn rest(self) -> Map<String, Value> {
        // A map that was emptied keeps 600 bytes, and a VIF has some sixteen of them.
        if self.0.is_empty() { Map::new() } else { self.0 }
    }

    /// All fields with their names, where any name may stand.
    pub(crate) fn each<T>(self, read: Read<T>) -> Result<impl Iterator<Item = (String, T)>, Problem> {
        let one = |(key, value): (String, Value)| match read(value) {
            Ok(value) => Ok((key, value)),
            Err(problem) => Err(problem.within(&key)),
        };
        Ok(self.0.into_iter().map(one).collect::<Result<Vec<_>, _>>()?.into_iter())
    }

    /// A field as `read` has it. One that is `null` stays: it is written again.
    pub(crate) fn optional<T>(&mut self, key: &str, read: Read<T>) -> Result<Option<T>, Problem> {
        if self.0.get(key).is_none_or(Value::is_null) {
            return Ok(None);
        }
        let Some(value) = self.0.remove(key) else { return Ok(None) };
        read(value).map(Some).map_err(|problem| problem.within(key))
    }

    /// As [`Fields::optional`], of a field that must be there.
    pub(crate) fn required<T>(&mut self, key: &str, read: Read<T>) -> Result<T, Problem> {
        self.optional(key, read)?.ok_or_else(|| Problem::of(Reason::Missing).within(key))
    }
}

/// A text.
pub(crate) fn text(value: Value) -> Result<String, Problem> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(kind("a string", &other)),
    }
}

/// `true` or `false`.
pub(crate) fn flag(value: Value) -> Result<bool, Problem> {
    value.as_bool().ok_or_else(|| kind("true or false", &value))
}

/// An MTU, or any other number of 32 bits.
pub(crate) fn number(value: Value) -> Result<u32, Problem> {
    let read = value.as_u64().and_then(|n| u32::try_from(n).ok());
    read.ok_or_else(|| if value.is_number() { wrong("a number of 32 bits", &value.to_string()) } else { kind("a number", &value) })
}

/// An IP address.
pub(crate) fn address(value: Value) -> Result<std::net::IpAddr, Problem> {
    parsed(value, "an IP address")
}

/// Several of them.
pub(crate) fn addresses(value: Value) -> Result<Vec<std::net::IpAddr>, Problem> {
    list(value, address)
}

/// A network with its prefix length.
pub(crate) fn cidr(value: Value) -> Result<ipnet::IpNet, Problem> {
    parsed(value, "an IP network with a prefix length")
}

/// What Neutron names its things by.
pub(crate) fn uuid(value: Value) -> Result<String, Problem> {
    let text = text(value)?;
    let is_place = |(i, b): (usize, u8)| if matches!(i, 8 | 13 | 18 | 23) { b == b'-' } else { b.is_ascii_hexdigit() };
    match text.len() == 36 && text.bytes().enumerate().all(is_place) {
        true => Ok(text),
        false => Err(wrong("a UUID", &text)),
    }
}

/// A hardware address of six bytes.
pub(crate) fn mac(value: Value) -> Result<String, Problem> {
    let text = text(value)?;
    let is_place = |(i, b): (usize, u8)| if i % 3 == 2 { b == b':' } else { b.is_ascii_hexdigit() };
    match text.len() == 17 && text.bytes().enumerate().all(is_place) {
        true => Ok(text),
        false => Err(wrong("a MAC address", &text)),
    }
}

/// Each element of a list.
pub(crate) fn list<T>(value: Value, read: Read<T>) -> Result<Vec<T>, Problem> {
    let Value::Array(all) = value else { return Err(kind("a list", &value)) };
    // Most lists have one object, and what is collected one by one has room for four at the least.
    let mut list = Vec::with_capacity(all.len());
    for (i, one) in all.into_iter().enumerate() {
        list.push(read(one).map_err(|problem| problem.within(&format!("[{i}]")))?);
    }
    Ok(list)
}

/// A value of another kind than is read here.
pub(crate) fn kind(expected: &'static str, found: &Value) -> Problem {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Problem::of(Reason::Kind { expected, found })
}

/// A text that means nothing here.
pub(crate) fn wrong(expected: &'static str, text: &str) -> Problem {
    Problem::of(Reason::Value { expected, text: shortened(text) })
}

fn parsed<T: FromStr>(value: Value, expected: &'static str) -> Result<T, Problem> {
    let text = text(value)?;
    text.parse().map_err(|_| wrong(expected, &text))
}
