//! What goes wrong when the API server is asked, and what to check then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use trust::chain;

use crate::TooLarge;

/// What was asked of the API server. Shown as `patch pods/status default/web-1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedObject {
    /// The verb, as in a role's rule.
    pub verb: &'static str,
    /// The API group, empty for the core one.
    pub group: &'static str,
    /// The resource in plural, as in a role's rule.
    pub resource: &'static str,
    /// Of which object or objects, for a reader; may be empty.
    pub of: Box<str>,
}

/// A request that the API server did not answer, or answered with a refusal. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The server does not know who asks (401).
    #[error("{asked}: {server} does not accept the token (401 {said}): check that the token's file is fresh and of this cluster")]
    Unauthorized {
        /// What was asked.
        asked: RequestedObject,
        /// The server's address.
        server: Arc<str>,
        /// What the server said.
        said: String,
    },
    /// A role lacks a rule (403).
    #[error(
        "{asked}: {server} forbids it (403 {said}): give the agent's ClusterRole the rule \
         {{apiGroups: [\"{}\"], resources: [\"{}\"], verbs: [\"{}\"]}}, or look for an admission policy that refuses",
        asked.group, asked.resource, asked.verb
    )]
    Forbidden {
        /// What was asked.
        asked: RequestedObject,
        /// The server's address.
        server: Arc<str>,
        /// What the server said.
        said: String,
    },
    /// The server does not serve this kind of object (404 for the resource itself).
    #[error("{asked}: {server} does not serve it (404 {said}): check that the CustomResourceDefinition or API version is installed")]
    NotServed {
        /// What was asked.
        asked: RequestedObject,
        /// The server's address.
        server: Arc<str>,
        /// What the server said.
        said: String,
    },
    /// No answer: no connection, no trust in the server's certificate, or the connection broke.
    #[error("{asked}: {server} is not reachable: {cause}: check the address, the server's certificate and the network")]
    Unreachable {
        /// What was asked.
        asked: RequestedObject,
        /// The server's address.
        server: Arc<str>,
        /// What happened, from the outside in.
        cause: String,
    },
    /// No answer in time.
    #[error("{asked}: no answer from {server} in {} s: check the server's load and the network", after.as_secs())]
    TimedOut {
        /// What was asked.
        asked: RequestedObject,
        /// The server's address.
        server: Arc<str>,
        /// How long it was waited for.
        after: Duration,
    },
    /// Any other refusal.
    #[error("{asked}: {server} refuses ({code} {reason}): {said}")]
    Refused {
        /// What was asked.
        asked: RequestedObject,
        /// The server's address.
        server: Arc<str>,
        /// The HTTP status code.
        code: u16,
        /// The server's machine-readable reason, `Conflict` for example; may be empty.
        reason: Box<str>,
        /// What the server said.
        said: String,
    },
    /// An answer that is not what the API promises.
    #[error(
        "{asked}: the answer of {server} is unreadable: {cause}: check that it is a Kubernetes API server and that there is no \
        proxy in between"
    )]
    Unreadable {
        /// What was asked.
        asked: RequestedObject,
        /// The server's address.
        server: Arc<str>,
        /// What was found.
        cause: String,
    },
    /// A definition that is there but too large to be used.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// A network status that was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// There is no such pod any more, or another one has its name: nobody waits for this status.
    #[error("network status of {pod}: the pod with UID {uid} is gone")]
    Gone {
        /// The pod's namespace and name.
        pod: String,
        /// The UID that was to have the status.
        uid: String,
    },
    /// The server does not take it; the same status will be refused again until somebody acts.
    #[error("network status of {pod}: {cause}")]
    Refused {
        /// The pod's namespace and name.
        pod: String,
        /// Why.
        cause: Box<ApiError>,
    },
    /// The server did not answer, or could not now; worth to be tried again.
    #[error("network status of {pod}: {cause}")]
    Unreachable {
        /// The pod's namespace and name.
        pod: String,
        /// Why.
        cause: Box<ApiError>,
    },
}

// === impl RequestedObject ===

impl fmt::Display for RequestedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.of.is_empty() { Ok(()) } else { write!(f, " {}", self.of) }
    }
}

// === impl ApiError ===

impl ApiError {
    /// Whether a later attempt may succeed although nobody changes anything.
    pub fn is_passing(&self) -> bool {
        match self {
            ApiError::Unreachable { .. } | ApiError::TimedOut { .. } | ApiError::Unauthorized { .. } => true,
            ApiError::Refused { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }

    /// The HTTP status code of a refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            ApiError::Unauthorized { .. } => Some(401),
            ApiError::Forbidden { .. } => Some(403),
            ApiError::NotServed { .. } => Some(404),
            ApiError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The error that a status code stands for.
    pub(crate) fn answered(asked: RequestedObject, server: Arc<str>, code: u16, reason: &str, said: String) -> Self {
        match code {
            401 => ApiError::Unauthorized { asked, server, said },
            403 => ApiError::Forbidden { asked, server, said },
            404 => ApiError::NotServed { asked, server, said },
            _ => ApiError::Refused { asked, server, code, reason: reason.into(), said },
        }
    }

    /// The error that the client library reports.
    pub(crate) fn from_kube(asked: RequestedObject, server: Arc<str>, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::answered(asked, server, status.code, &status.reason, status.message.clone()),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) | kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
                ApiError::Unreadable { asked, server, cause: chain(error) }
            }
            kube::Error::Service(e) => ApiError::Unreachable { asked, server, cause: chain(e.as_ref()) },
            kube::Error::HyperError(e) => ApiError::Unreachable { asked, server, cause: chain(e) },
            kube::Error::ReadEvents(e) => ApiError::Unreachable { asked, server, cause: chain(e) },
            _ => ApiError::Unreachable { asked, server, cause: chain(error) },
        }
    }
}
