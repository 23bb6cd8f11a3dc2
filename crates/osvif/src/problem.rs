//! What is wrong with an object, and where.

use std::fmt;

/// Why something cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The way to the value, as `eth1.network.subnets[0].cidr`; empty where it is the whole.
    path: String,
    reason: Reason,
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The text is not JSON.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// It must be there.
    #[error("missing")]
    Missing,
    /// It is a value of another kind.
    #[error("must be {expected}, but is {found}")]
    Kind {
        /// What is read here.
        expected: &'static str,
        /// What was found.
        found: &'static str,
    },
    /// It is a text or a number that means nothing here.
    #[error("{text:?} is not {expected}")]
    Value {
        /// What is read here.
        expected: &'static str,
        /// At most 80 characters of what was found.
        text: String,
    },
    /// It is more than is read.
    #[error("takes about {bytes} bytes of memory; at most {most} are read")]
    Large {
        /// As many as it would take.
        bytes: usize,
        /// As many as it may.
        most: usize,
    },
    /// It is another object.
    #[error("must be an object {expected} of os_vif, but is {found:?}")]
    Object {
        /// The name of what is read here.
        expected: &'static str,
        /// At most 80 characters of the name that was found.
        found: String,
    },
    /// Its version cannot be read.
    #[error("{name} has version {version:?}; versions 1.x are supported")]
    Version {
        /// The object's name.
        name: String,
        /// At most 80 characters of its version.
        version: String,
    },
}

// === impl Problem ===

impl Problem {
    pub(crate) fn of(reason: Reason) -> Self {
        Problem { path: String::new(), reason }
    }

    /// The same, seen from one level further out.
    pub(crate) fn within(mut self, key: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{key}{dot}{}", self.path);
        self
    }

    /// What is wrong.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => self.reason.fmt(f),
            path => write!(f, "{path}: {}", self.reason),
        }
    }
}

impl std::error::Error for Problem {}

/// At most 80 characters of what was given.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
