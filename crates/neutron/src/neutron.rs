//! The client: a call is sent with a token, and its answer read.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use openstack::{Auth, Cloud};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, RequestLine, SetupError};
use crate::http1::{Answer, Http};
use crate::keystone::{Keystone, Session};
use crate::query::{Query, encode};
use crate::retry::Safety;
use crate::tls;

/// How many resources a page of a list has. Neutron writes 500 ports in a second.
const PAGE: usize = 500;

/// How hard an OpenStack may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// So many requests are on their way at once, at most; 0 is taken for 1.
    pub in_flight: usize,
    /// A call is sent so many times, at most, the first time included.
    pub attempts: u32,
    /// So long may one request take.
    pub timeout: Duration,
}

/// A client of one Neutron. A clone shares its connections, its token and its limits.
#[derive(Clone)]
pub struct Neutron {
    http: Http,
    keystone: Arc<Keystone>,
    observer: Option<Observer>,
}

/// Who is told of each call.
pub type Observer = Arc<dyn Fn(&Sent<'_>) + Send + Sync>;

/// A call that has ended: all attempts of it together.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// The method.
    pub method: &'a Method,
    /// What it is about: `ports`, `subnets`.
    pub resource: &'a str,
    /// The status of the last answer; none where there was none.
    pub status: Option<u16>,
    /// How long it took, with the time that it waited for a place in flight.
    pub took: Duration,
}

/// What was asked for, and by what Neutron's log knows the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// What was asked for.
    pub value: T,
    /// `req-...`
    pub request_id: Option<String>,
}

/// A call before it has a token.
pub(crate) struct Call {
    method: Method,
    path: String,
    query: Query,
    body: Option<Bytes>,
    revision: Option<u64>,
    safety: Safety,
}

// === impl Limits ===

impl Default for Limits {
    /// Eight requests at once: Neutron's own workers are that many on four processors. A port may take Neutron seconds when it is busy.
    fn default() -> Self {
        Limits { in_flight: 8, attempts: 5, timeout: Duration::from_secs(60) }
    }
}

// === impl Neutron ===

/// Nothing of it is shown: it has a token.
impl fmt::Debug for Neutron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neutron").finish_non_exhaustive()
    }
}

impl Neutron {
    /// Prepares a client; nothing is sent. Its calls need a tokio runtime with I/O and time. What the cloud says of a timeout goes over that of
    /// the limits.
    ///
    /// # Errors
    /// [`SetupError`]: certificates, keys or addresses that cannot be used.
    pub fn new(cloud: Cloud, limits: Limits) -> Result<Self, SetupError> {
        let limits = Limits { timeout: cloud.timeout.unwrap_or(limits.timeout), ..limits };
        let asks = !matches!(cloud.auth, Auth::None);
        let keystone = asks.then_some(("auth_url", cloud.auth_url.as_str()));
        let endpoint = cloud.endpoint.as_deref().map(|value| ("endpoint_override", value));
        // What the catalogue has is not known yet.
        let mut encrypts = asks && endpoint.is_none();
        for (option, value) in keystone.into_iter().chain(endpoint) {
            encrypts |= checked(option, value)?.scheme_str() == Some("https");
        }
        let http = Http::new(tls::config(&cloud.tls, encrypts)?, limits);
        Ok(Neutron { keystone: Arc::new(Keystone::new(http.clone(), cloud)), http, observer: None })
    }

    /// The same, of whose calls somebody is told.
    #[must_use]
    pub fn observed(self, observer: Observer) -> Self {
        Neutron { observer: Some(observer), ..self }
    }

    /// How long one request may take. One that [may go on](Error::may_go_on) at Neutron is taken for ended as long after it.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.http.timeout()
    }

    /// The aliases of the extensions that this Neutron has, as `tag-ports-during-bulk-creation`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn extensions(&self) -> Result<BTreeSet<String>, Error> {
        #[derive(serde::Deserialize)]
        struct Extension {
            alias: String,
        }
        let all: Vec<Extension> = self.read(Call::get("extensions"), "extensions").await?;
        Ok(all.into_iter().map(|extension| extension.alias).collect())
    }

    /// What stands under `key` in the answer.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call, key: &str) -> Result<T, Error> {
        self.answered(call, key).await.map(|answered| answered.value)
    }

    /// The same, with the request's ID.
    pub(crate) async fn answered<T: DeserializeOwned>(&self, call: Call, key: &str) -> Result<Answered<T>, Error> {
        let asked = call.asked();
        let answer = self.send(call).await?;
        let mut body = object(&asked, &answer)?;
        let value = value(&asked, &answer, body.remove(key).unwrap_or_default(), key)?;
        Ok(Answered { value, request_id: answer.request_id() })
    }

    /// All pages of a list; `key` is its name, and its path.
    pub(crate) async fn list<T: DeserializeOwned>(&self, key: &'static str, filter: &Query) -> Result<Vec<T>, Error> {
        let (mut all, mut marker) = (Vec::new(), None::<String>);
        loop {
            let mut call = Call::get(key);
            call.query = filter.clone();
            call.query.add("limit", &PAGE.to_string()).add("sort_key", "id").add("sort_dir", "asc");
            if let Some(marker) = &marker {
                call.query.add("marker", marker);
            }
            let asked = call.asked();
            let answer = self.send(call).await?;
            let mut body = object(&asked, &answer)?;
            let page: Vec<Value> = value(&asked, &answer, body.remove(key).unwrap_or_default(), key)?;
            let last = page.last().and_then(|last| last.get("id")?.as_str()).map(str::to_owned);
            for one in page {
                all.push(value(&asked, &answer, one, key)?);
            }
            // An empty page would be asked for again and again.
            marker = last.filter(|_| has_next(&body, key));
            if marker.is_none() {
                return Ok(all);
            }
        }
    }

    /// Whether it was there.
    pub(crate) async fn delete(&self, path: String) -> Result<Answered<bool>, Error> {
        match self.send(Call::new(Method::DELETE, path)).await {
            Ok(answer) => Ok(Answered { value: true, request_id: answer.request_id() }),
            Err(Error::Refused { status: 404, request_id, .. }) => Ok(Answered { value: false, request_id }),
            Err(e) => Err(e),
        }
    }

    /// An answer that is a success.
    pub(crate) async fn send(&self, call: Call) -> Result<Answer, Error> {
        let begun = Instant::now();
        let ended = self.send_until_answered(&call).await;
        if let Some(observer) = &self.observer {
            let status = match &ended {
                Ok(answer) => Some(answer.status.as_u16()),
                Err(Error::Refused { status, .. } | Error::Unreadable { status, .. }) => Some(*status),
                Err(_) => None,
            };
            let resource = call.path.split('/').next().unwrap_or_default();
            observer(&Sent { method: &call.method, resource, status, took: begun.elapsed() });
        }
        ended
    }

    async fn send_until_answered(&self, call: &Call) -> Result<Answer, Error> {
        let mut session = self.keystone.session().await?;
        let mut answer = self.send_as(call, &session).await?;
        if let (StatusCode::UNAUTHORIZED, Some(token)) = (answer.status, &session.token) {
            // It was not carried out: whatever it is, it may be sent again.
            self.keystone.discard(token).await;
            session = self.keystone.session().await?;
            answer = self.send_as(call, &session).await?;
        }
        match answer.status.is_success() {
            true => Ok(answer),
            false => Err(Error::refused(call.asked(), answer.status.as_u16(), &answer.body, answer.request_id())),
        }
    }

    async fn send_as(&self, call: &Call, session: &Session) -> Result<Answer, Error> {
        let address = format!("{}/{}{}", session.neutron, call.path, call.query.as_str());
        let uri: Uri = address.parse().map_err(|e: http::uri::InvalidUri| Error::Unreachable {
            asked: call.asked(),
            server: session.neutron.to_string(),
            cause: format!("the catalogue's address cannot be used: {e}"),
        })?;
        let sent = self.http.send(call.safety, || call.request(uri.clone(), session.token.as_ref()));
        sent.await.map_err(|failure| Error::failed(call.asked(), session.neutron.to_string(), failure))
    }
}

fn checked(option: &'static str, value: &str) -> Result<Uri, SetupError> {
    let wrong = || SetupError::Address { option, value: value.to_owned() };
    let uri: Uri = value.parse().map_err(|_| wrong())?;
    let is_whole = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none();
    if is_whole { Ok(uri) } else { Err(wrong()) }
}

fn object(asked: &RequestLine, answer: &Answer) -> Result<Map<String, Value>, Error> {
    serde_json::from_slice(&answer.body).map_err(|e| unreadable(asked, answer, e.to_string()))
}

fn value<T: DeserializeOwned>(asked: &RequestLine, answer: &Answer, value: Value, key: &str) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|e| unreadable(asked, answer, format!("{key}: {e}")))
}

fn unreadable(asked: &RequestLine, answer: &Answer, cause: String) -> Error {
    Error::Unreadable { asked: asked.clone(), status: answer.status.as_u16(), cause, request_id: answer.request_id() }
}

/// Whether a list goes on behind this page. Where it goes on is ours to say.
fn has_next(body: &Map<String, Value>, key: &str) -> bool {
    let links = body.get(&format!("{key}_links")).and_then(Value::as_array);
    links.is_some_and(|links| links.iter().any(|link| link.get("rel").and_then(Value::as_str) == Some("next")))
}

// === impl Call ===

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        let safety = Safety::of(&method, false);
        Call { method, path: path.into(), query: Query::default(), body: None, revision: None, safety }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Call::new(Method::GET, path)
    }

    /// With a body: `{key: value}`.
    pub(crate) fn with(mut self, key: &str, value: &impl serde::Serialize) -> Self {
        // Types of ours have keys that are texts.
        let value = serde_json::to_value(value).unwrap_or_default();
        self.body = Some(Value::from(Map::from_iter([(key.to_owned(), value)])).to_string().into());
        self
    }

    /// Only if the resource has this revision.
    pub(crate) fn if_revision(mut self, revision: Option<u64>) -> Self {
        self.revision = revision;
        self.safety = Safety::of(&self.method, revision.is_some());
        self
    }

    /// It must not be sent a second time where the first one may have been carried out.
    pub(crate) fn once(mut self) -> Self {
        self.safety = Safety::Once;
        self
    }

    pub(crate) fn asked(&self) -> RequestLine {
        RequestLine { method: self.method.clone(), path: self.path.clone() }
    }

    fn request(&self, uri: Uri, token: Option<&HeaderValue>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone().unwrap_or_default()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json"));
        if self.body.is_some() {
            headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(token) = token {
            headers.insert("x-auth-token", token.clone());
        }
        let revision = self.revision.and_then(|revision| HeaderValue::try_from(format!("revision_number={revision}")).ok());
        if let Some(revision) = revision {
            headers.insert(http::header::IF_MATCH, revision);
        }
        request
    }
}

/// `RESOURCE/ID`, whatever stands in the ID.
pub(crate) fn path_of(resource: &str, id: &str) -> String {
    let mut path = format!("{resource}/");
    encode(id, &mut path);
    path
}
