//! `clouds.yaml`, and the `secure.yaml` beside it: the clouds that a person's tools know by name.
//!
//! As openstacksdk reads them, but for profiles of vendors.

use std::path::PathBuf;

use json::{Object, Value};

use crate::auth::Options;
use crate::cloud::Tls;
use crate::{AuthError, Cloud};

/// Why a cloud cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloudsError {
    /// A file is not YAML, or not an object.
    #[error("{file}: {reason}")]
    File {
        /// `clouds.yaml` or `secure.yaml`.
        file: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// There is no cloud of this name.
    #[error("clouds.yaml has no cloud {name:?}; it has {known}")]
    NoCloud {
        /// What was asked for.
        name: String,
        /// Which there are.
        known: String,
    },
    /// A profile that would have to be looked up.
    #[error("the cloud {name:?} has a profile ({profile}), which is not supported: write auth_url and what else it has into clouds.yaml")]
    Profile {
        /// The cloud.
        name: String,
        /// Its profile.
        profile: String,
    },
    /// Something is missing or cannot be used.
    #[error("the cloud {name:?}: {reason}")]
    Auth {
        /// The cloud.
        name: String,
        /// What.
        reason: AuthError,
    },
}

/// A cloud's entry, and what `secure.yaml` has of it.
struct Entry<'a>(Vec<&'a Object>);

/// The cloud of that name.
///
/// # Errors
/// [`CloudsError`].
pub fn clouds(name: &str, clouds: &str, secure: Option<&str>) -> Result<Cloud, CloudsError> {
    let (clouds, secure) = (file("clouds.yaml", clouds)?, secure.map(|text| file("secure.yaml", text)).transpose()?);
    let of = |file: Option<&Object>| file.and_then(|file| file.object("clouds")).cloned().unwrap_or_default();
    let (all, secrets) = (of(Some(&clouds)), of(secure.as_ref()));
    let Some(public) = exactly(&all, name) else {
        let known: Vec<&str> = all.iter().map(|(name, _)| name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(CloudsError::NoCloud { name: name.to_owned(), known });
    };
    // What is secret goes over what is not.
    let entry = Entry(exactly(&secrets, name).into_iter().chain([public]).collect());
    if let Some(profile) = entry.top("profile").or_else(|| entry.top("cloud")) {
        return Err(CloudsError::Profile { name: name.to_owned(), profile });
    }
    let interface = entry.top("interface").or_else(|| entry.top("endpoint_type"));
    let interfaces: Vec<String> = interface.into_iter().collect();
    let seconds = entry.top("api_timeout").and_then(|text| text.parse().ok());
    let refused = |reason| CloudsError::Auth { name: name.to_owned(), reason };
    Cloud::new(&entry, &interfaces, entry.tls(), seconds).map_err(refused)
}

fn file(name: &'static str, text: &str) -> Result<Object, CloudsError> {
    let wrong = |reason: String| CloudsError::File { file: name, reason };
    match yaml::json(text).map_err(|e| wrong(e.to_string()))? {
        Value::Object(object) => Ok(object),
        Value::Null => Ok(Object::new()),
        other => Err(wrong(format!("must be an object, but is {}", other.kind()))),
    }
}

/// Names of clouds differ by case, too.
fn exactly<'a>(clouds: &'a Object, name: &str) -> Option<&'a Object> {
    clouds.iter().filter(|(key, _)| *key == name).find_map(|(_, value)| value.as_object())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

// === impl Entry ===

impl Entry<'_> {
    fn top(&self, key: &str) -> Option<String> {
        self.0.iter().find_map(|entry| text(entry.get(key)?))
    }

    fn tls(&self) -> Tls {
        let file = |key: &str| self.top(key).map(PathBuf::from);
        let verify = self.0.iter().find_map(|entry| entry.get("verify")?.as_bool());
        let insecure = self.0.iter().find_map(|entry| entry.get("insecure")?.as_bool());
        let identity = file("cert").map(|cert| (cert.clone(), file("key").unwrap_or(cert)));
        Tls { ca: file("cacert"), identity, insecure: insecure.or(verify.map(|verify| !verify)).unwrap_or_default() }
    }
}

impl Options for Entry<'_> {
    fn get(&self, name: &str) -> Option<String> {
        match name {
            "endpoint_override" => return self.top("network_endpoint_override"),
            "auth_type" | "region_name" => return self.top(name),
            _ => {}
        }
        let auth = |name: &str| self.0.iter().find_map(|entry| text(entry.object("auth")?.get(name)?));
        // Domains may stand beside `auth`, too.
        auth(name).or_else(|| self.top(name))
    }
}
