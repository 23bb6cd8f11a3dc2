//! What can go wrong between bytes and a typed value.

use std::fmt;

/// Bytes that are not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text breaks JSON's grammar, or is nested deeper than [`crate::MAX_DEPTH`] levels.
    #[error("not valid JSON: {reason} (line {line}, column {column})")]
    Syntax {
        /// What the parser expected or met.
        reason: String,
        /// 1-based line.
        line: usize,
        /// 1-based column, in bytes.
        column: usize,
    },
    /// Nothing but white space was given.
    #[error("empty: expected a JSON object")]
    Empty,
    /// More bytes than [`crate::MAX_INPUT`].
    #[error("{size} bytes of JSON are more than the maximum of {max}")]
    TooLarge {
        /// Bytes received.
        size: usize,
        /// Bytes accepted at the most.
        max: usize,
    },
}

impl From<serde_json::Error> for ParseError {
    fn from(e: serde_json::Error) -> Self {
        let (line, column) = (e.line(), e.column());
        let text = e.to_string();
        let reason = match text.rfind(" at line ") {
            Some(end) => text.get(..end).unwrap_or(&text).to_owned(),
            None => text,
        };
        ParseError::Syntax { reason, line, column }
    }
}

/// A value whose shape is not what was asked for: where, and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    path: String,
    reason: String,
}

impl std::error::Error for ReadError {}

impl ReadError {
    pub(crate) fn new(reason: String) -> Self {
        ReadError { path: String::new(), reason }
    }

    /// The same error, where what was read is the value of a key.
    pub fn under_key(mut self, key: &str) -> Self {
        self.path = match self.path.chars().next() {
            None => key.to_owned(),
            Some('[') => format!("{key}{}", self.path),
            Some(_) => format!("{key}.{}", self.path),
        };
        self
    }

    pub(crate) fn under_index(mut self, index: usize) -> Self {
        self.path = match self.path.chars().next() {
            None | Some('[') => format!("[{index}]{}", self.path),
            Some(_) => format!("[{index}].{}", self.path),
        };
        self
    }

    /// Where the value stands, as `ipam.ranges[0][1].subnet`; empty for the outermost value.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What was found there, and what was expected.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.is_empty() {
            true => f.write_str(&self.reason),
            false => write!(f, "{}: {}", self.path, self.reason),
        }
    }
}

impl serde::de::Error for ReadError {
    fn custom<T: fmt::Display>(msg: T) -> Self {
        ReadError::new(msg.to_string())
    }
}
