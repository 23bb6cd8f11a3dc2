//! The values of one message's keys.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use json::{Object, Value};

use crate::{WireError, bytes};

/// One message's object, on its way into a type.
pub(crate) struct Fields<'a> {
    message: &'static str,
    object: &'a Object,
}

// === impl Fields ===

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'static str, object: &'a Object) -> Self {
        Fields { message, object }
    }

    /// What stands under `kind` in a message that is one of several.
    pub(crate) fn of_kind(message: &'static str, object: &'a Object) -> Result<Self, WireError> {
        match object.get(message) {
            Some(Value::Object(inner)) => Ok(Fields::new(message, inner)),
            other => Err(mismatch(message, message, "an object", other)),
        }
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<String, WireError> {
        match self.object.get(key) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            other => Err(self.mismatch(key, "a string", other)),
        }
    }

    pub(crate) fn flag(&self, key: &'static str) -> Result<bool, WireError> {
        match self.object.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            other => Err(self.mismatch(key, "true or false", other)),
        }
    }

    /// Whether the key is there, with a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.object.get(key).is_some_and(|value| *value != Value::Null)
    }

    /// A number, without which the message means nothing.
    pub(crate) fn number<N: TryFrom<u64>>(&self, key: &'static str) -> Result<N, WireError> {
        let value = self.object.get(key);
        let number = match value {
            Some(Value::Number(number)) => number.as_u64().and_then(|n| N::try_from(n).ok()),
            _ => None,
        };
        number.ok_or_else(|| self.mismatch(key, "a number in its range", value))
    }

    /// True or false, without which the message means nothing.
    pub(crate) fn needed_flag(&self, key: &'static str) -> Result<bool, WireError> {
        self.object.get(key).and_then(Value::as_bool).ok_or_else(|| self.mismatch(key, "true or false", self.object.get(key)))
    }

    pub(crate) fn bytes(&self, key: &'static str) -> Result<Vec<u8>, WireError> {
        match self.object.get(key) {
            None => Ok(Vec::new()),
            Some(value) => bytes::of_value(value).ok_or_else(|| self.mismatch(key, BYTES, Some(value))),
        }
    }

    /// A list of pairs, name and value.
    pub(crate) fn pairs(&self, key: &'static str) -> Result<Vec<(OsString, OsString)>, WireError> {
        let expected = "a list of pairs";
        let list = match self.object.get(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            other => return Err(self.mismatch(key, expected, other)),
        };
        let text = |value: &Value| bytes::of_value(value).map(OsString::from_vec);
        let pair = |value: &Value| match value.as_array()? {
            [name, value] => Some((text(name)?, text(value)?)),
            _ => None,
        };
        list.iter().map(|value| pair(value).ok_or_else(|| self.mismatch(key, expected, Some(value)))).collect()
    }

    /// Any value; `null` where there is none.
    pub(crate) fn value(&self, key: &str) -> Value {
        self.object.get(key).cloned().unwrap_or_default()
    }

    /// An object; without keys where there is none.
    pub(crate) fn object(&self, key: &'static str) -> Result<Object, WireError> {
        match self.object.get(key) {
            None => Ok(Object::new()),
            Some(Value::Object(object)) => Ok(object.clone()),
            other => Err(self.mismatch(key, "an object", other)),
        }
    }

    fn mismatch(&self, key: &'static str, expected: &'static str, found: Option<&Value>) -> WireError {
        mismatch(self.message, key, expected, found)
    }
}

const BYTES: &str = "a string, or {\"base64\": ...}";

fn mismatch(message: &'static str, key: &'static str, expected: &'static str, found: Option<&Value>) -> WireError {
    WireError::Field { message, key, expected, found: found.map_or("nothing", Value::kind) }
}

/// Which of the kinds a message is.
pub(crate) fn kind(object: &Object, known: &'static [&'static str]) -> Result<&'static str, WireError> {
    let unexpected = || {
        // No more of it than a person wants to read.
        let found = object.iter().take(3).map(|(key, _)| key.chars().take(40).collect()).collect();
        WireError::Unexpected { found, known }
    };
    known.iter().copied().find(|kind| object.get(kind).is_some()).ok_or_else(unexpected)
}

/// A message of one kind.
pub(crate) fn wrap<const N: usize>(kind: &str, pairs: [(&str, Value); N]) -> Object {
    Object::from_iter([(kind.to_owned(), Value::Object(inner(pairs)))])
}

/// An object of these pairs, without those that say nothing.
fn inner<const N: usize>(pairs: [(&str, Value); N]) -> Object {
    pairs.into_iter().filter(|(_, value)| !matches!(value, Value::Null)).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Name and value of a variable.
pub(crate) fn pair((name, value): &(OsString, OsString)) -> Value {
    Value::Array(vec![os(name), os(value)])
}

pub(crate) fn os(text: &OsStr) -> Value {
    bytes::to_value(text.as_bytes())
}
