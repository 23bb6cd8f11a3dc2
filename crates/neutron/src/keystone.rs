//! The token that requests carry, and where Neutron is.
//!
//! A token is got with the first request, kept, and renewed before it ends, by whoever needs it first; the others wait. One that Neutron
//! does not take is thrown away: Keystone may have been set up anew.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::Full;
use openstack::{Auth, Cloud, Domain, Project, Scope, User};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::catalog::TokenBody;
use crate::error::{ErrorBody, Failure};
use crate::http1::{Answer, Http};
use crate::retry::Safety;

/// A token is renewed this long before it ends, or after three quarters of a short life.
const AHEAD: Duration = Duration::from_secs(60);

/// There is no token, so nothing was asked of Neutron. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeystoneError {
    /// It refuses.
    #[error("Keystone at {url} gives no token: {message} ({status}{}): check the credentials", request_id.as_ref().map(|id| format!(", {id}")).unwrap_or_default())]
    Refused {
        /// Keystone's address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Keystone's message.
        message: String,
        /// By what Keystone's log knows the request.
        request_id: Option<String>,
    },
    /// No answer.
    #[error("Keystone at {url} is not reachable: {cause}: check auth_url, its certificate and the network")]
    Unreachable {
        /// Keystone's address.
        url: String,
        /// What happened.
        cause: String,
    },
    /// The answer is not one of Keystone's.
    #[error("Keystone at {url}: the answer cannot be read: {cause}: check that auth_url is that of Keystone's API, version 3")]
    Unreadable {
        /// Keystone's address.
        url: String,
        /// What is wrong.
        cause: String,
    },
    /// The catalogue has no Neutron that fits.
    #[error("Keystone at {url}: the catalogue has no network endpoint {wanted}; it has {known}: check region_name and endpoint_type")]
    NoEndpoint {
        /// Keystone's address.
        url: String,
        /// Interfaces and region.
        wanted: String,
        /// Those that there are.
        known: String,
    },
}

/// Who asks for tokens.
pub(crate) struct Keystone {
    http: Http,
    cloud: Cloud,
    last: Mutex<Option<CachedSession>>,
}

/// What a request needs.
#[derive(Clone)]
pub(crate) struct Session {
    /// None where nobody asks who we are.
    pub(crate) token: Option<HeaderValue>,
    /// Neutron's address, with its version: `http://cloud:9696/v2.0`.
    pub(crate) neutron: Arc<str>,
}

struct CachedSession {
    session: Session,
    /// None: it never ends.
    renew: Option<Instant>,
}

// === impl Keystone ===

impl Keystone {
    pub(crate) fn new(http: Http, cloud: Cloud) -> Self {
        Keystone { http, cloud, last: Mutex::new(None) }
    }

    /// The token, a new one if the last one is about to end.
    pub(crate) async fn session(&self) -> Result<Session, KeystoneError> {
        let mut last = self.last.lock().await;
        if let Some(held) = last.as_ref().filter(|held| held.renew.is_none_or(|at| Instant::now() < at)) {
            return Ok(held.session.clone());
        }
        let held = self.sign_in().await?;
        Ok(last.insert(held).session.clone())
    }

    /// Throws a token away that was not taken, unless another one has its place by now.
    pub(crate) async fn discard(&self, refused: &HeaderValue) {
        let mut last = self.last.lock().await;
        if last.as_ref().is_some_and(|held| held.session.token.as_ref() == Some(refused)) {
            *last = None;
        }
    }

    async fn sign_in(&self) -> Result<CachedSession, KeystoneError> {
        let Some(identity) = identity(&self.cloud.auth) else {
            let neutron = versioned(self.cloud.endpoint.as_deref().unwrap_or_default(), "v2.0").into();
            return Ok(CachedSession { session: Session { token: None, neutron }, renew: None });
        };
        let (begun, url) = (Instant::now(), versioned(&self.cloud.auth_url, "v3"));
        let body = Bytes::from(identity.to_string());
        // No place is taken away by asking twice.
        let answer = self.http.send(Safety::Repeatable, || {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = http::Method::POST;
            // It was parsed when the client was made.
            *request.uri_mut() = format!("{url}/auth/tokens").parse().unwrap_or_default();
            request.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            request
        });
        let answer = answer.await.map_err(|failure| {
            let (Failure::NotSent(cause) | Failure::NoAnswer(cause)) = failure;
            KeystoneError::Unreachable { url: url.clone(), cause }
        })?;
        self.held(url, begun, &answer)
    }

    fn held(&self, url: String, begun: Instant, answer: &Answer) -> Result<CachedSession, KeystoneError> {
        if answer.status.is_client_error() || answer.status.is_server_error() {
            let message = Some(ErrorBody::of(&answer.body).message).filter(|message| !message.is_empty());
            let message = message.unwrap_or_else(|| "it says no more".to_owned());
            return Err(KeystoneError::Refused { url, status: answer.status.as_u16(), message, request_id: answer.request_id() });
        }
        let unreadable = |cause: String| KeystoneError::Unreadable { url: url.clone(), cause };
        let token = answer.headers.get("x-subject-token").cloned().map(|mut token| {
            token.set_sensitive(true);
            token
        });
        let token = token.ok_or_else(|| unreadable(format!("no X-Subject-Token ({})", answer.status)))?;
        let body: TokenBody = serde_json::from_slice(&answer.body).map_err(|e| unreadable(e.to_string()))?;
        let cloud = &self.cloud;
        let found = cloud.endpoint.as_deref().or_else(|| body.network(cloud.region.as_deref(), &cloud.interfaces));
        let neutron = found.map(|endpoint| versioned(endpoint, "v2.0")).ok_or_else(|| {
            let interfaces: Vec<&str> = cloud.interfaces.iter().map(|interface| interface.name()).collect();
            let region = cloud.region.as_deref().map(|region| format!(" in {region}")).unwrap_or_default();
            KeystoneError::NoEndpoint { url: url.clone(), wanted: format!("{}{region}", interfaces.join(" or ")), known: body.known() }
        })?;
        let renew = body.life().map(|life| begun + life.saturating_sub(AHEAD).max(life * 3 / 4));
        Ok(CachedSession { session: Session { token: Some(token), neutron: neutron.into() }, renew })
    }
}

/// An address with its version, which settings and catalogues have or have not.
pub(crate) fn versioned(address: &str, version: &str) -> String {
    let address = address.trim_end_matches('/');
    if address.ends_with(&format!("/{version}")) { address.to_owned() } else { format!("{address}/{version}") }
}

/// The body of `POST /v3/auth/tokens`; none where nobody asks who we are.
fn identity(auth: &Auth) -> Option<Value> {
    let secret = |secret: &SecretString| Value::from(secret.expose_secret());
    let (method, what, scope) = match auth {
        Auth::Password { user, password, scope } => {
            let mut user = named_user(user);
            user.insert("password".to_owned(), secret(password));
            ("password", json!({ "user": user }), Some(scope))
        }
        Auth::ApplicationCredential { user: None, id, secret: given } => {
            ("application_credential", json!({"id": id, "secret": secret(given)}), None)
        }
        Auth::ApplicationCredential { user: Some(user), id: name, secret: given } => {
            ("application_credential", json!({"name": name, "user": named_user(user), "secret": secret(given)}), None)
        }
        Auth::Token { token, scope } => ("token", json!({"id": secret(token)}), Some(scope)),
        _ => return None,
    };
    let identity = json!({"methods": [method], method: what});
    Some(match scope.and_then(named_scope) {
        Some(scope) => json!({"auth": {"identity": identity, "scope": scope}}),
        None => json!({"auth": {"identity": identity}}),
    })
}

fn named_user(user: &User) -> Map<String, Value> {
    let pairs = match user {
        User::Id(id) => vec![("id", id.as_str().into())],
        User::Name(name, domain) => vec![("name", name.as_str().into()), ("domain", named_domain(domain))],
    };
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn named_scope(scope: &Scope) -> Option<Value> {
    match scope {
        Scope::Unscoped => None,
        Scope::Project(Project::Id(id)) => Some(json!({"project": {"id": id}})),
        Scope::Project(Project::Name(name, domain)) => Some(json!({"project": {"name": name, "domain": named_domain(domain)}})),
        Scope::Domain(domain) => Some(json!({"domain": named_domain(domain)})),
        Scope::System => Some(json!({"system": {"all": true}})),
    }
}

fn named_domain(domain: &Domain) -> Value {
    match domain {
        Domain::Id(id) => json!({"id": id}),
        Domain::Name(name) => json!({"name": name}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// <https://docs.openstack.org/api-ref/identity/v3/#authentication-and-token-management>
    #[test]
    fn each_way_to_sign_in_has_its_body() {
        let domain = || Domain::Name("Default".to_owned());
        let user = || User::Name("u".to_owned(), domain());
        let scope = || Scope::Project(Project::Name("p".to_owned(), domain()));
        let of = |auth: Auth| identity(&auth).map(|body| body["auth"].clone());
        let password = Auth::Password { user: user(), password: "s".into(), scope: scope() };
        let wanted = json!({
            "identity": {"methods": ["password"], "password": {"user": {"name": "u", "domain": {"name": "Default"}, "password": "s"}}},
            "scope": {"project": {"name": "p", "domain": {"name": "Default"}}},
        });
        assert_eq!(of(password), Some(wanted));
        let by_id = Auth::ApplicationCredential { user: None, id: "i".to_owned(), secret: "s".into() };
        let wanted = json!({"identity": {"methods": ["application_credential"], "application_credential": {"id": "i", "secret": "s"}}});
        assert_eq!(of(by_id), Some(wanted));
        let by_name = Auth::ApplicationCredential { user: Some(User::Id("7".to_owned())), id: "n".to_owned(), secret: "s".into() };
        let wanted = json!({"identity": {"methods": ["application_credential"],
            "application_credential": {"name": "n", "secret": "s", "user": {"id": "7"}}}});
        assert_eq!(of(by_name), Some(wanted));
        let token = Auth::Token { token: "t".into(), scope: Scope::System };
        let wanted = json!({"identity": {"methods": ["token"], "token": {"id": "t"}}, "scope": {"system": {"all": true}}});
        assert_eq!(of(token), Some(wanted));
        assert_eq!(of(Auth::None), None);
    }

    #[test]
    fn an_address_has_its_version_once() {
        for address in ["http://k:5000", "http://k:5000/", "http://k:5000/v3", "http://k:5000/v3/"] {
            assert_eq!(versioned(address, "v3"), "http://k:5000/v3");
        }
        assert_eq!(versioned("http://k/identity", "v3"), "http://k/identity/v3");
    }
}
