//! The error that a plugin returns and a runtime reads.

use std::fmt;

use json::{Object, Value};

use crate::Version;

/// An error's number. 1 to 99 belong to the specification, 100 and above to a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u32);

// === impl Code ===

impl Code {
    /// Nothing more precise is known; what a failed executable without a code gets.
    pub const UNKNOWN: Code = Code(0);
    /// 1: the configuration's version is not supported.
    pub const INCOMPATIBLE_VERSION: Code = Code(1);
    /// 2: a key or value of the configuration is not supported; the message names both.
    pub const UNSUPPORTED_FIELD: Code = Code(2);
    /// 3: the container is unknown or gone; no DEL is needed.
    pub const UNKNOWN_CONTAINER: Code = Code(3);
    /// 4: an environment variable is missing or bad.
    pub const INVALID_ENVIRONMENT: Code = Code(4);
    /// 5: reading or writing failed.
    pub const IO: Code = Code(5);
    /// 6: what was read could not be decoded.
    pub const DECODE: Code = Code(6);
    /// 7: the configuration is bad.
    pub const INVALID_CONFIG: Code = Code(7);
    /// 8: `CNI_NETNS` is no namespace that can be used (the reference library's number, not in the specification).
    pub const INVALID_NETNS: Code = Code(8);
    /// 11: try again later.
    pub const TRY_AGAIN_LATER: Code = Code(11);
    /// 50: STATUS: the plugin cannot serve ADD now.
    pub const NOT_AVAILABLE: Code = Code(50);
    /// 51: STATUS: as 50, and existing containers may have limited connectivity.
    pub const LIMITED_CONNECTIVITY: Code = Code(51);
    /// 999: a failure inside a plugin, as the reference library numbers every other error.
    pub const INTERNAL: Code = Code(999);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What went wrong, as the specification's error object (SPEC 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniError {
    /// The number that a runtime acts on.
    pub code: Code,
    /// One line: the thing, the place and the next step.
    pub msg: String,
    /// More, if there is more; empty otherwise.
    pub details: String,
    /// The key of the configuration that it is about, as `ipam.ranges[0][1].subnet`; empty if it is about none. It is never printed:
    /// the message says it in its own words.
    pub at: Box<str>,
}

// === impl CniError ===

impl CniError {
    /// An error without details.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        CniError { code, msg: msg.into(), details: String::new(), at: Box::default() }
    }

    /// Code 2 for a key whose value is not supported; the message names both (SPEC 5, code 2).
    pub fn unsupported(key: &str, value: impl fmt::Display, why: &str) -> Self {
        CniError::new(Code::UNSUPPORTED_FIELD, format!("unsupported: {key}={value}: {why}")).at(key)
    }

    /// Code 7 for a bad value of a key.
    pub fn invalid(key: &str, why: impl fmt::Display) -> Self {
        CniError::new(Code::INVALID_CONFIG, format!("{key}: {why}")).at(key)
    }

    /// Code 7 that begins with `text`, the reference plugin's own message, by which scripts know the mistake, and goes on with `more`:
    /// the key, and what to do.
    pub fn worded(text: impl fmt::Display, more: impl fmt::Display) -> Self {
        CniError::new(Code::INVALID_CONFIG, format!("{text}: {more}"))
    }

    /// With the key of the configuration that it is about; see [`CniError::at`](#structfield.at).
    pub fn at(mut self, key: impl Into<String>) -> Self {
        self.at = key.into().into_boxed_str();
        self
    }

    /// With more to read about it.
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// With words in front of the message that say where it happened.
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.msg = format!("{place}: {}", self.msg);
        self
    }

    /// The first of several errors, with the others in its details.
    pub fn first_of(errors: impl IntoIterator<Item = CniError>) -> Option<Self> {
        let mut errors = errors.into_iter();
        errors.next().map(|first| first.and("", errors))
    }

    /// With other errors in its details, behind a word on them. What several advise, as those do that miss a plugin, is told
    /// once.
    pub fn and(self, word: &str, others: impl IntoIterator<Item = CniError>) -> Self {
        let advice = |e: &CniError| e.details.split("; ").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let mut told = advice(&self);
        let own = told.len();
        for e in others {
            let word = if told.len() == own { word } else { "" };
            told.push(format!("{word}{}", e.msg));
            let new: Vec<String> = advice(&e).into_iter().filter(|part| !told.contains(part)).collect();
            told.extend(new);
        }
        self.with_details(told.join("; "))
    }

    /// The JSON object, indented by four, without a final newline.
    pub fn print(&self, version: Version) -> String {
        let mut o = Object::new();
        o.set("cniVersion", version.as_str());
        o.set("code", u64::from(self.code.0));
        o.set("msg", self.msg.as_str());
        if !self.details.is_empty() {
            o.set("details", self.details.as_str());
        }
        json::indented(&o, 4)
    }

    /// Reads what a failed plugin printed; `None` if that is no error object.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value = json::parse(bytes).ok()?;
        let object = value.as_object()?;
        let code = match object.get("code") {
            Some(Value::Number(n)) => u32::try_from(n.as_u64()?).ok()?,
            None => 0,
            Some(_) => return None,
        };
        let msg = object.str("msg").unwrap_or_default().to_owned();
        let details = object.str("details").unwrap_or_default().to_owned();
        (code != 0 || !msg.is_empty()).then_some(CniError { code: Code(code), msg, details, at: Box::default() })
    }
}

impl std::error::Error for CniError {}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.details.is_empty() {
            true => f.write_str(&self.msg),
            false => write!(f, "{}; {}", self.msg, self.details),
        }
    }
}

impl From<json::ParseError> for CniError {
    fn from(e: json::ParseError) -> Self {
        CniError::new(Code::DECODE, e.to_string())
    }
}

impl From<json::ReadError> for CniError {
    /// Well-formed JSON of the wrong shape is a bad configuration (code 7); broken JSON is code 6.
    fn from(e: json::ReadError) -> Self {
        CniError::new(Code::INVALID_CONFIG, e.to_string()).at(e.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_that_is_the_same_is_given_once() {
        let missing = |kind: &str| CniError::new(Code::INVALID_CONFIG, format!("no {kind}")).with_details("look there");
        let other = CniError::new(Code::IO, "full").with_details("free some");
        let e = CniError::first_of([missing("a"), missing("b"), other]).unwrap();
        assert_eq!(e.to_string(), "no a; look there; no b; full; free some");
        let two = |a, b| CniError::first_of([missing(a), missing(b)]).unwrap();
        let e = CniError::first_of([two("a", "b"), two("c", "d")]).unwrap();
        assert_eq!(e.to_string(), "no a; look there; no b; no c; no d");
        let e = missing("a").and("left: ", [missing("b"), missing("c")]);
        assert_eq!(e.to_string(), "no a; look there; left: no b; no c");
        assert_eq!(missing("a").and("left: ", []), missing("a"));
    }

    #[test]
    fn printed_and_read_back() {
        let e = CniError::unsupported("vlan", 5, "not yet").with_details("more").at("");
        let text = e.print(Version::V1_0_0);
        assert!(text.starts_with("{\n    \"cniVersion\": \"1.0.0\",\n    \"code\": 2,\n    \"msg\": \"unsupported: vlan=5"), "{text}");
        assert_eq!(CniError::parse(text.as_bytes()), Some(e));
        for not_one in ["", "{}", "[]", "null", "hello", r#"{"code":"x"}"#] {
            assert_eq!(CniError::parse(not_one.as_bytes()), None, "{not_one}");
        }
    }
}
