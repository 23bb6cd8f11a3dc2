//! One line for each thing that happened, with named fields.
//!
//! ```text
//!   2026-11-21T16:04:05.123Z INFO  call verb=ADD pod=default/web-0 took=6.2ms pod=0.0ms plan=0.1ms attach=2.9ms status=3.1ms
//! ```
//!
//! Lines go to standard error, where the container's runtime or systemd keeps them; as JSON objects where asked for.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use json::Object;

/// What is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// And what is odd.
    Warn,
    /// And what was done.
    #[default]
    Info,
    /// And every step.
    Debug,
}

/// How lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// An object a line.
    Json,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static JSON: AtomicU8 = AtomicU8::new(0);

/// Makes level and format hold for the whole process.
pub fn set(level: Level, format: Format) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    JSON.store(u8::from(format == Format::Json), Ordering::Relaxed);
}

/// A line that is being put together; it is written when [`Line::end`] is called.
#[must_use = "a line is written by `end`"]
pub struct Line {
    level: Level,
    what: &'static str,
    fields: Vec<(&'static str, String)>,
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Off | Level::Error => "ERROR",
        Level::Warn => "WARN",
        Level::Info => "INFO",
        Level::Debug => "DEBUG",
    }
}

// === impl Line ===

impl Line {
    /// A line about `what`, in a word or two.
    pub fn new(level: Level, what: &'static str) -> Self {
        Line { level, what, fields: Vec::new() }
    }

    /// A failure.
    pub fn error(what: &'static str) -> Self {
        Line::new(Level::Error, what)
    }

    /// Something odd.
    pub fn warn(what: &'static str) -> Self {
        Line::new(Level::Warn, what)
    }

    /// Something that was done.
    pub fn info(what: &'static str) -> Self {
        Line::new(Level::Info, what)
    }

    /// A step.
    pub fn debug(what: &'static str) -> Self {
        Line::new(Level::Debug, what)
    }

    /// One more field; an empty value is left out.
    pub fn with(mut self, key: &'static str, value: impl Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.fields.push((key, value));
        }
        self
    }

    /// A duration, in milliseconds.
    pub fn took(self, key: &'static str, took: Duration) -> Self {
        self.with(key, Millis(took))
    }

    /// Writes it, in one piece. Where standard error is gone there is nobody to tell.
    pub fn end(self) {
        if self.level as u8 > LEVEL.load(Ordering::Relaxed) {
            return;
        }
        let line = if JSON.load(Ordering::Relaxed) == 1 { self.json() } else { self.text() };
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn text(&self) -> String {
        let mut line = format!("{} {:<5} {}", now(), name(self.level), self.what);
        for (key, value) in &self.fields {
            line.push(' ');
            line.push_str(key);
            line.push('=');
            let plain = value.chars().all(|c| c.is_ascii_graphic() && c != '"' && c != '=');
            if plain { line.push_str(value) } else { line.push_str(&format!("{value:?}")) }
        }
        line.push('\n');
        line
    }

    fn json(&self) -> String {
        let mut o = Object::new();
        o.set("time", now());
        o.set("level", name(self.level));
        o.set("what", self.what);
        for (key, value) in &self.fields {
            o.set(key, value.as_str());
        }
        json::compact(&o) + "\n"
    }
}

/// A duration as a person compares it.
pub struct Millis(pub Duration);

impl Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1}ms", self.0.as_secs_f64() * 1e3)
    }
}

/// The time of day, in UTC (RFC 3339).
pub fn now() -> String {
    stamp(SystemTime::now())
}

/// A moment in UTC (RFC 3339), with milliseconds.
pub fn stamp(at: SystemTime) -> String {
    Timestamp::try_from(at).map(|t| format!("{t:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_fields_and_quotes_what_needs_it() {
        let line = Line::info("call")
            .with("pod", "default/web")
            .with("empty", "")
            .with("error", "no \"x\"")
            .took("took", Duration::from_micros(6210));
        let text = line.text();
        assert!(text.ends_with("INFO  call pod=default/web error=\"no \\\"x\\\"\" took=6.2ms\n"), "{text}");
        let value = json::parse(line.json().as_bytes()).unwrap();
        assert_eq!(value.as_object().unwrap().str("error"), Some("no \"x\""));
        assert!(text.starts_with("20") && text.contains("Z INFO"), "{text}");
    }

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(Line::warn("x").with("why", "a\nb").text().lines().count(), 1);
    }
}
