//! One thing that is wrong.

use cni::CniError;

/// What is reported of one network at the most: a person mends some and asks again, and nobody shall keep us busy with a million wrong keys.
pub(crate) const MOST_FINDINGS: usize = 100;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong; something outside of the manifests is needed.
    Note,
    /// It may be a mistake.
    Warning,
    /// A pod cannot be attached, or does not get what is written.
    Error,
}

/// One thing that is wrong with a network, or with what a pod asks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The key in the text, as `plugins[1].ipam.ranges[0][0].subnet`; empty for the text as a whole.
    pub path: String,
    /// Whether the key itself is meant, and not its value ([`json::locate`] has the places of both).
    pub is_key: bool,
    /// What is wrong, in one line.
    pub message: String,
    /// The next step; empty if the message has it.
    pub help: String,
}

// === impl Severity ===

impl Severity {
    /// As it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

// === impl Finding ===

impl Finding {
    pub(crate) fn new(severity: Severity, path: impl Into<String>, message: impl Into<String>) -> Self {
        Finding { severity, path: path.into(), is_key: false, message: message.into(), help: String::new() }
    }

    pub(crate) fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Finding::new(Severity::Error, path, message)
    }

    pub(crate) fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Finding::new(Severity::Warning, path, message)
    }

    /// What an ADD would say; `prefix` is the plugin's place in the text.
    pub(crate) fn of_add(prefix: &str, e: CniError) -> Self {
        Finding { help: e.details, ..Finding::error(under(prefix, &e.at), e.msg) }
    }

    pub(crate) fn at_key(self) -> Self {
        Finding { is_key: true, ..self }
    }

    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Finding { help: help.into(), ..self }
    }
}

/// The path of a key below another one.
pub(crate) fn under(prefix: &str, key: &str) -> String {
    match (prefix.is_empty(), key.is_empty()) {
        (true, _) => key.to_owned(),
        (_, true) => prefix.to_owned(),
        _ if key.starts_with('[') => format!("{prefix}{key}"),
        _ => format!("{prefix}.{key}"),
    }
}

/// The path of a key as somebody wrote it, which may have dots and brackets itself: then it is in quotes.
pub(crate) fn under_any(prefix: &str, key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
    if is_plain { under(prefix, key) } else { under(prefix, &format!("[{key:?}]")) }
}
