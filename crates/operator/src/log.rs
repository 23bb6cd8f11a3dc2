//! What the operator says of itself: a line for each thing that happened, with named fields, as the agent's.

use std::fmt::Display;
use std::io::Write;

use k8s_openapi::jiff::Timestamp;

/// A line that is being put together; it is written when [`Line::end`] is called.
#[must_use = "a line is written by `end`"]
pub(crate) struct Line(String);

// === impl Line ===

impl Line {
    fn new(level: &str, what: &str) -> Self {
        Line(format!("{:.3} {level:<5} {what}", Timestamp::now()))
    }

    /// A failure.
    pub(crate) fn error(what: &str) -> Self {
        Line::new("ERROR", what)
    }

    /// Something odd.
    pub(crate) fn warn(what: &str) -> Self {
        Line::new("WARN", what)
    }

    /// Something that was done.
    pub(crate) fn info(what: &str) -> Self {
        Line::new("INFO", what)
    }

    /// One more field; an empty value is left out.
    pub(crate) fn with(mut self, key: &str, value: impl Display) -> Self {
        let value = value.to_string();
        let plain = !value.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
        match (value.is_empty(), plain) {
            (true, _) => {}
            (false, true) => self.0 += &format!(" {key}={value}"),
            (false, false) => self.0 += &format!(" {key}={value:?}"),
        }
        self
    }

    /// Writes it, in one piece. Where standard error is gone there is nobody to tell.
    pub(crate) fn end(self) {
        drop(std::io::stderr().write_all((self.0 + "\n").as_bytes()));
    }
}
