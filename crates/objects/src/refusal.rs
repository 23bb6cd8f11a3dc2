//! What the store refuses, as the API server says it: HTTP code and a `Status` with reason, message and details.

use http::StatusCode;
use serde_json::{Value, json};

use crate::kind::Kind;

/// A refused request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refusal {
    /// A `Status`.
    Status {
        /// The HTTP code.
        code: StatusCode,
        /// The reason, empty where the API server gives none.
        reason: &'static str,
        /// The message.
        message: String,
        /// The details, `null` where there are none.
        details: Value,
    },
    /// No such group or version: the API server's plain text.
    NoSuchPage,
}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: String, details: Value) -> Self {
        Self::Status { code, reason, message, details }
    }

    /// Its message.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Status { message, .. } => message.clone(),
            Self::NoSuchPage => "404 page not found".into(),
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message.into(), Value::Null)
    }

    /// What the API server did not expect; it answers 500 without a reason.
    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message.into(), Value::Null)
    }

    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message.into(), json!({}))
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message.into(), json!({}))
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} {name:?} not found", kind.resource()), kind.details(name))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str, terminating: bool) -> Self {
        let before = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{before}{} {name:?} already exists", kind.resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message, kind.details(name))
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.resource());
        Self::new(StatusCode::CONFLICT, "Conflict", message, kind.details(name))
    }

    /// An object of another resource version than the request names.
    pub(crate) fn stale(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// A precondition of a deletion. The API server names the kind here, not the resource.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified_kind());
        Self::new(StatusCode::CONFLICT, "Conflict", message, kind.kind_details(name))
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, field: &str, reason: &str, why: &str) -> Self {
        let mut details = kind.kind_details(name);
        if let Some(details) = details.as_object_mut() {
            details.insert("causes".into(), json!([{"reason": reason, "message": why, "field": field}]));
        }
        let message = format!("{} {name:?} is invalid: {field}: {why}", kind.qualified_kind());
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message, details)
    }

    /// An update without a resource version, where one is demanded. The API server names the resource here.
    pub(crate) fn unconditional(kind: &Kind, name: &str) -> Self {
        let why = "Invalid value: 0: must be specified for an update";
        let field = "metadata.resourceVersion";
        let mut details = kind.details(name);
        if let Some(details) = details.as_object_mut() {
            details.insert("causes".into(), json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]));
        }
        let message = format!("{} {name:?} is invalid: {field}: {why}", kind.resource());
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message, details)
    }

    /// Options of a request (`ListOptions`, `PatchOptions`) that do not go together.
    pub(crate) fn invalid_options(options: &str, field: &str, reason: &str, why: &str) -> Self {
        let details = json!({
            "group": "meta.k8s.io", "kind": options,
            "causes": [{"reason": reason, "message": why, "field": field}],
        });
        let message = format!("{options}.meta.k8s.io \"\" is invalid: {field}: {why}");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message, details)
    }

    /// A JSON patch that does not fit the object: the API server does not say why.
    pub(crate) fn patch_does_not_fit() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message.into(), json!({}))
    }

    pub(crate) fn unsupported_patch(accepted: Option<&str>) -> Self {
        let (message, details) = match accepted {
            Some(types) => {
                (format!("the body of the request was in an unknown format - accepted media types include: {types}"), Value::Null)
            }
            None => ("415: Unsupported Media Type".to_owned(), json!({})),
        };
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message, details)
    }

    pub(crate) fn namespace_terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let message = format!(
            "{} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
            kind.resource()
        );
        let mut details = kind.details(name);
        if let Some(details) = details.as_object_mut() {
            let cause = format!("namespace {namespace} is being terminated");
            details.insert("causes".into(), json!([{"reason": "NamespaceTerminating", "message": cause, "field": "metadata.namespace"}]));
        }
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message, details)
    }

    /// History that is no longer kept.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message.into(), Value::Null)
    }

    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message, details)
    }

    /// The HTTP code.
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            Self::Status { code, .. } => *code,
            Self::NoSuchPage => StatusCode::NOT_FOUND,
        }
    }

    /// The `Status` object.
    pub(crate) fn status(&self) -> Value {
        let Self::Status { code, reason, message, details } = self else { return Value::Null };
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code.as_u16(),
        });
        if let Some(status) = status.as_object_mut() {
            if !reason.is_empty() {
                status.insert("reason".into(), Value::from(*reason));
            }
            if !details.is_null() {
                status.insert("details".into(), details.clone());
            }
        }
        status
    }
}
