//! A request as the store understands it: verb, resource, namespace, name, subresource and parameters.

use std::collections::BTreeMap;

use http::{Method, request::Parts};

/// What a path names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    /// Empty: all namespaces, or none.
    pub(crate) namespace: String,
    /// Empty: the collection.
    pub(crate) name: String,
    /// Empty: the object itself.
    pub(crate) subresource: String,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb as RBAC writes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A request's path and parameters.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) place: ResourcePath,
    pub(crate) parameters: BTreeMap<String, String>,
    /// `Content-Type` without parameters.
    pub(crate) content_type: String,
    /// Whether only metadata is asked for.
    pub(crate) partial: bool,
    pub(crate) method: Method,
}

impl Call {
    /// Reads the head of a request; `None` for a path that is no resource's.
    pub(crate) fn parse(head: &Parts) -> Option<Self> {
        let header = |name: http::header::HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = header(http::header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_owned();
        let partial = header(http::header::ACCEPT).contains("as=PartialObjectMetadata");
        let parameters = head.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        let place = ResourcePath::parse(head.uri.path())?;
        Some(Self { place, parameters: parameters.collect(), content_type, partial, method: head.method.clone() })
    }

    /// A parameter, empty where it is missing.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Whether a parameter says yes.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.parameter(name), "1" | "true" | "True" | "TRUE" | "t" | "T")
    }

    /// What is to be done; `None` for a method that the path does not take.
    pub(crate) fn verb(&self) -> Option<Verb> {
        let named = !self.place.name.is_empty();
        match (self.method.as_str(), named) {
            ("GET", _) if self.flag("watch") => Some(Verb::Watch),
            ("GET", true) => Some(Verb::Get),
            ("GET", false) => Some(Verb::List),
            ("POST", named) if !named || !self.place.subresource.is_empty() => Some(Verb::Create),
            ("PUT", true) => Some(Verb::Update),
            ("PATCH", true) => Some(Verb::Patch),
            ("DELETE", true) => Some(Verb::Delete),
            ("DELETE", false) => Some(Verb::DeleteCollection),
            _ => None,
        }
    }
}

impl ResourcePath {
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // What is under a namespace, but not the namespace's own subresources.
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return None,
        };
        let own = str::to_owned;
        Some(Self {
            group: own(group),
            version: own(version),
            plural: own(plural),
            namespace: own(namespace),
            name: own(name),
            subresource: own(subresource),
        })
    }

    /// The resource as requests are counted: `pods`, `pods/status`, `leases.coordination.k8s.io`.
    pub(crate) fn resource(&self) -> String {
        let mut resource = self.plural.clone();
        for (sign, part) in [('.', &self.group), ('/', &self.subresource)] {
            if !part.is_empty() {
                resource.push(sign);
                resource.push_str(part);
            }
        }
        resource
    }
}

// `%2F` and `+` of a query or a path.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped =
            after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            (first, _) => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
