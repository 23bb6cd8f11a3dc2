//! What goes wrong when Neutron is asked, in Neutron's own words.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::KeystoneError;

/// What was asked: `POST ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestLine {
    /// The method.
    pub method: http::Method,
    /// The path behind the version, without a query.
    pub path: String,
}

/// A client could not be prepared. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A file of certificates or keys cannot be read, or has none.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The machine's certificate authorities cannot be read.
    #[error("no certificate authority is configured (cafile): {0}")]
    NoRoots(String),
    /// An address that is none.
    #[error("{option} = {value}: not an address such as https://cloud.example:5000")]
    Address {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
    },
}

/// Neutron did not do what it was asked. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It refused, and said why.
    #[error("{asked}: {message} ({status}{}{})", if kind.is_empty() { "" } else { " " }, with_id(kind, request_id.as_deref()))]
    Refused {
        /// What was asked.
        asked: RequestLine,
        /// The HTTP status.
        status: u16,
        /// Neutron's name for it, as `IpAddressGenerationFailure`.
        kind: String,
        /// Neutron's message.
        message: String,
        /// By what Neutron's log knows the request, `req-...`.
        request_id: Option<String>,
    },
    /// There is no connection. Nothing was sent.
    #[error("{asked}: {server} is not reachable: {cause}")]
    Unreachable {
        /// What was asked.
        asked: RequestLine,
        /// Neutron's address.
        server: String,
        /// What happened.
        cause: String,
    },
    /// It was sent, and the connection ended, or nothing came in time: it may have been carried out.
    #[error("{asked}: no answer from {server}: {cause}; it may have been carried out")]
    NoAnswer {
        /// What was asked.
        asked: RequestLine,
        /// Neutron's address.
        server: String,
        /// What happened.
        cause: String,
    },
    /// It answered something else than its API documents. It may have been carried out.
    #[error("{asked}: the answer cannot be read: {cause} ({status}{})", with_id("", request_id.as_deref()))]
    Unreadable {
        /// What was asked.
        asked: RequestLine,
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        cause: String,
        /// By what Neutron's log knows the request.
        request_id: Option<String>,
    },
    /// There is no token.
    #[error(transparent)]
    Keystone(#[from] KeystoneError),
}

/// Why Neutron refuses, as far as a caller acts on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// A subnet has no address left.
    NoAddressLeft,
    /// The address or MAC that was asked for is another port's.
    AddressTaken,
    /// The project's quota is used up.
    OverQuota,
    /// Somebody changed the resource since it was read (412).
    Changed,
    /// It is in use, or another change of it is not done (any other 409).
    InUse,
    /// It is not there.
    NotFound,
    /// The token is not good (any more).
    Unauthorized,
    /// A policy of Neutron forbids it.
    Forbidden,
    /// It asks for something that cannot be (400, and others).
    Invalid,
    /// Neutron has too much to do (429, 503).
    Busy,
    /// Neutron has failed, or who stands before it.
    Server,
}

/// How far it certainly got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There was no connection.
    NotSent(String),
    /// It was sent.
    NoAnswer(String),
}

// === impl RequestLine ===

impl fmt::Display for RequestLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

// === impl Error ===

impl Error {
    /// Why it was refused; none where there was no answer that could be read.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Error::Refused { status, kind, .. } => Some(Refusal::of(*status, kind)),
            _ => None,
        }
    }

    /// Whether it is unknown what has happened: who wanted something made looks for it before it is made again.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        match self {
            Error::NoAnswer { .. } | Error::Unreadable { .. } => true,
            Error::Refused { status, .. } => *status >= 500 && *status != 503,
            Error::Unreachable { .. } | Error::Keystone(_) => false,
        }
    }

    /// Whether Neutron may still be at work on it: who answered, if anybody, was not Neutron itself.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        match self {
            Error::NoAnswer { .. } => true,
            Error::Refused { status, .. } => matches!(status, 502 | 504),
            _ => false,
        }
    }

    /// What an answer with an error status says.
    pub(crate) fn refused(asked: RequestLine, status: u16, body: &[u8], request_id: Option<String>) -> Self {
        let said = ErrorBody::of(body);
        // Proxies answer in HTML: a reader is told by the status.
        let message = if said.message.is_empty() { "refused, without a message".to_owned() } else { said.message };
        Error::Refused { asked, status, kind: said.kind, message, request_id }
    }

    pub(crate) fn failed(asked: RequestLine, server: String, failure: Failure) -> Self {
        match failure {
            Failure::NotSent(cause) => Error::Unreachable { asked, server, cause },
            Failure::NoAnswer(cause) => Error::NoAnswer { asked, server, cause },
        }
    }
}

fn with_id(kind: &str, request_id: Option<&str>) -> String {
    match request_id {
        Some(id) => format!("{kind}, {id}"),
        None => kind.to_owned(),
    }
}

// === impl Refusal ===

impl Refusal {
    fn of(status: u16, kind: &str) -> Self {
        match (status, kind) {
            (_, "IpAddressGenerationFailure" | "IpAddressGenerationFailureNoMatchingSubnet") => Refusal::NoAddressLeft,
            (_, "IpAddressAlreadyAllocated" | "IpAddressInUse" | "MacAddressInUse") => Refusal::AddressTaken,
            (_, "OverQuota") => Refusal::OverQuota,
            (412, _) => Refusal::Changed,
            (409, _) => Refusal::InUse,
            (404, _) => Refusal::NotFound,
            (401, _) => Refusal::Unauthorized,
            (403, _) => Refusal::Forbidden,
            (429 | 503, _) => Refusal::Busy,
            (500.., _) => Refusal::Server,
            _ => Refusal::Invalid,
        }
    }
}

/// `{"NeutronError": {"type": ..., "message": ..., "detail": ...}}`; what is between Neutron and us writes `{"error": {"message": ...}}`.
#[derive(Default)]
pub(crate) struct ErrorBody {
    pub(crate) kind: String,
    pub(crate) message: String,
}

#[derive(Deserialize)]
struct Body {
    #[serde(rename = "NeutronError", alias = "error")]
    error: serde_json::Value,
}

impl ErrorBody {
    pub(crate) fn of(body: &[u8]) -> Self {
        let Ok(Body { error }) = serde_json::from_slice(body) else { return ErrorBody::default() };
        let text = |key: &str| error.get(key).and_then(serde_json::Value::as_str).map(shortened).unwrap_or_default();
        // Some of its errors are a text alone.
        let message = error.as_str().map_or_else(|| text("message"), shortened);
        ErrorBody { kind: text("type"), message }
    }
}

/// A message of which a reader sees the beginning.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(1000) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// What happened where a limit of time was reached.
pub(crate) fn timed_out(after: Duration) -> String {
    format!("none within {} s", after.as_secs_f32())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str, id: Option<&str>) -> Error {
        let asked = RequestLine { method: http::Method::POST, path: "ports".to_owned() };
        Error::refused(asked, status, body.as_bytes(), id.map(str::to_owned))
    }

    /// Bodies of Neutron 21, and of proxies.
    #[test]
    fn neutrons_own_words_are_passed_on() {
        let body = r#"{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['port'].", "detail": ""}}"#;
        let e = refused(409, body, Some("req-1"));
        assert_eq!(e.to_string(), "POST ports: Quota exceeded for resources: ['port']. (409 OverQuota, req-1)");
        assert_eq!((e.refusal(), e.is_uncertain()), (Some(Refusal::OverQuota), false));
        let e = refused(502, "<html>Bad Gateway</html>", None);
        assert_eq!(e.to_string(), "POST ports: refused, without a message (502)");
        assert_eq!((e.refusal(), e.is_uncertain(), e.may_go_on()), (Some(Refusal::Server), true, true));
        let e = refused(500, "", None);
        assert_eq!((e.is_uncertain(), e.may_go_on()), (true, false), "Neutron has ended it");
        assert_eq!(refused(400, r#"{"NeutronError": "bad"}"#, None).to_string(), "POST ports: bad (400)");
        assert_eq!(refused(401, r#"{"error": {"code": 401, "message": "no"}}"#, None).to_string(), "POST ports: no (401)");
    }

    #[test]
    fn each_conflict_has_its_reason() {
        let of = |status, kind: &str| Refusal::of(status, kind);
        assert_eq!(of(409, "IpAddressGenerationFailure"), Refusal::NoAddressLeft);
        assert_eq!(of(409, "MacAddressInUse"), Refusal::AddressTaken);
        assert_eq!(of(409, "ParentPortInUse"), Refusal::InUse);
        assert_eq!(of(412, "RevisionNumberConstraintFailed"), Refusal::Changed);
        assert_eq!((of(413, ""), of(429, ""), of(503, ""), of(500, "")), (Refusal::Invalid, Refusal::Busy, Refusal::Busy, Refusal::Server));
    }
}
