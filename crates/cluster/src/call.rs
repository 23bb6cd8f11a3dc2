//! One request to the API server and its answer: time limits, the reading of the answer, and errors that name both sides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::response::Status;
use kube::core::{WatchEvent, request};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::{ApiError, Asked, Connection};

/// How long an answer may take.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// How long a page of a list may take: a busy server needs longer for it than for an object.
pub(crate) const LIST: Duration = Duration::from_secs(30);
/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// Makes requests. A clone makes them over the same connection.
#[derive(Clone)]
pub(crate) struct Caller {
    connection: Connection,
    /// Told of each answer: whoever waits for the server to come back need not wait longer.
    answered: Arc<Notify>,
    /// How often what was asked, by verb and resource.
    asked: Arc<Mutex<BTreeMap<(&'static str, &'static str), u64>>>,
}

// === impl Caller ===

impl Caller {
    pub(crate) fn new(connection: Connection) -> Self {
        Caller { connection, answered: Arc::default(), asked: Arc::default() }
    }

    /// The requests so far, by verb and resource.
    pub(crate) fn requests(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, asked: &Asked) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner).entry((asked.verb, asked.resource)).or_default() += 1;
    }

    /// Until somebody gets an answer.
    pub(crate) async fn answered(&self) {
        self.answered.notified().await;
    }

    pub(crate) fn server(&self) -> Arc<str> {
        self.connection.server_shared()
    }

    fn failed(&self, asked: &Asked, error: &kube::Error) -> ApiError {
        ApiError::from_kube(asked.clone(), self.server(), error)
    }

    /// Asks, and reads the answer as a `T`.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        asked: &Asked,
        request: Result<Request<Vec<u8>>, request::Error>,
        limit: Duration,
    ) -> Result<T, ApiError> {
        let request = request.map_err(|e| self.failed(asked, &kube::Error::BuildRequest(e)))?;
        self.count(asked);
        let body = match timeout(limit, self.answer(asked, request)).await {
            Ok(answer) => answer?,
            Err(_) => return Err(ApiError::TimedOut { asked: asked.clone(), server: self.server(), after: limit }),
        };
        serde_json::from_slice(&body).map_err(|e| self.unreadable(asked, e.to_string()))
    }

    /// An object, or `None` if there is none of that name.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        asked: &Asked,
        request: Result<Request<Vec<u8>>, request::Error>,
    ) -> Result<Option<T>, ApiError> {
        match self.ask(asked, request, ANSWER).await {
            Ok(found) => Ok(Some(found)),
            // A kind that is not served has another message: "the server could not find the requested resource".
            Err(ApiError::NotServed { said, .. }) if said.ends_with("not found") && said.contains('"') => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The bytes of a good answer.
    async fn answer(&self, asked: &Asked, request: Request<Vec<u8>>) -> Result<Vec<u8>, ApiError> {
        let response = self.connection.client().send(request.map(Body::from)).await.map_err(|e| self.failed(asked, &e))?;
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| self.failed(asked, &e))?;
            if let Some(data) = frame.data_ref() {
                bytes.extend_from_slice(data);
            }
            if bytes.len() > MAX_ANSWER {
                return Err(self.unreadable(asked, format!("longer than {MAX_ANSWER} bytes")));
            }
        }
        self.answered.notify_waiters();
        if status.is_success() {
            return Ok(bytes);
        }
        let said: Option<Status> = serde_json::from_slice(&bytes).ok();
        let (reason, said) = said.map(|s| (s.reason, s.message)).unwrap_or_default();
        let said = if said.is_empty() { status.canonical_reason().unwrap_or_default().to_owned() } else { said };
        Err(ApiError::answered(asked.clone(), self.server(), status.as_u16(), &reason, said))
    }

    /// Opens a watch. The stream ends when the server ends it.
    pub(crate) async fn watch<T: DeserializeOwned + Clone + Send + 'static>(
        &self,
        asked: &Asked,
        request: Result<Request<Vec<u8>>, request::Error>,
    ) -> Result<impl Stream<Item = Result<WatchEvent<T>, ApiError>> + Send + Unpin + use<T>, ApiError> {
        let request = request.map_err(|e| self.failed(asked, &kube::Error::BuildRequest(e)))?;
        self.count(asked);
        let client = self.connection.client();
        let stream = match timeout(ANSWER, client.request_events::<T>(request)).await {
            Ok(stream) => stream.map_err(|e| self.failed(asked, &e))?,
            Err(_) => return Err(ApiError::TimedOut { asked: asked.clone(), server: self.server(), after: ANSWER }),
        };
        self.answered.notify_waiters();
        let (asked, server) = (asked.clone(), self.server());
        Ok(stream.map(move |item| item.map_err(|e| ApiError::from_kube(asked.clone(), server.clone(), &e))).boxed())
    }

    pub(crate) fn unreadable(&self, asked: &Asked, cause: String) -> ApiError {
        ApiError::Unreadable { asked: asked.clone(), server: self.server(), cause }
    }

    /// The refusal that a watch's ERROR event is.
    pub(crate) fn refused(&self, asked: &Asked, status: &Status) -> ApiError {
        ApiError::answered(asked.clone(), self.server(), status.code, &status.reason, status.message.clone())
    }
}
