//! What the operator says of itself: a line for each thing that happened, with named fields, as the agent's.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

use k8s_openapi::jiff::Timestamp;

/// Which lines are written: these, and those that matter more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What failed, and does not go on by itself.
    Error,
    /// What is odd, or failed and is tried again.
    Warn,
    /// What was done.
    Info,
}

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// Makes a level hold for the whole process.
pub(crate) fn set(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// A line that is being put together; it is written when [`Line::end`] is called.
#[must_use = "a line is written by `end`"]
pub(crate) struct Line {
    level: LogLevel,
    text: String,
}

// === impl Line ===

impl Line {
    fn new(level: LogLevel, what: &str) -> Self {
        let name = match level {
            LogLevel::Off | LogLevel::Error => "ERROR",
            LogLevel::Warn => "WARN",
            LogLevel::Info => "INFO",
        };
        Line { level, text: format!("{:.3} {name:<5} {what}", Timestamp::now()) }
    }

    /// A failure.
    pub(crate) fn error(what: &str) -> Self {
        Line::new(LogLevel::Error, what)
    }

    /// Something odd.
    pub(crate) fn warn(what: &str) -> Self {
        Line::new(LogLevel::Warn, what)
    }

    /// Something that was done.
    pub(crate) fn info(what: &str) -> Self {
        Line::new(LogLevel::Info, what)
    }

    /// One more field; an empty value is left out.
    pub(crate) fn with(mut self, key: &str, value: impl Display) -> Self {
        let value = value.to_string();
        let plain = !value.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
        match (value.is_empty(), plain) {
            (true, _) => {}
            (false, true) => self.text += &format!(" {key}={value}"),
            (false, false) => self.text += &format!(" {key}={value:?}"),
        }
        self
    }

    /// Writes it, in one piece. Where standard error is gone there is nobody to tell.
    pub(crate) fn end(self) {
        if self.level as u8 <= LEVEL.load(Ordering::Relaxed) {
            drop(std::io::stderr().write_all((self.text + "\n").as_bytes()));
        }
    }
}
