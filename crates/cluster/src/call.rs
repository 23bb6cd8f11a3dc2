//! One request to the API server and its answer: time limits, the reading of the answer, and errors that name both sides.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::response::Status;
use kube::core::{WatchEvent, request};
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::list::{Page, PageMeta};
use crate::{ApiError, Connection, RequestedObject};

/// How long an answer may take.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// How long a server that answers with a list may say nothing: a busy one needs longer for it than for an object.
pub(crate) const LIST: Duration = Duration::from_secs(30);
/// The longest answer that is read as a whole, in bytes: an object has 1.5 MB at the most in etcd, and more as JSON.
const MAX_ANSWER: usize = 16 << 20;
/// Of answers longer than this so many are read at a time: what asks comes from pods, and many may be attached at once.
const LONG: (usize, usize) = (256 << 10, 4);
/// How many pieces of a list may be ahead of who reads it.
const AHEAD: usize = 4;
/// How long after the last answer a connection is still there to be used again: an API server closes one after 90 s without a request, and
/// what stands before it often sooner.
const OPEN: Duration = Duration::from_secs(30);

/// Makes requests. A clone makes them over the same connection.
#[derive(Clone)]
pub(crate) struct Caller {
    connection: Connection,
    /// Told of each answer: whoever waits for the server to come back need not wait longer.
    answered: Arc<Notify>,
    /// Whose turn it is to read a long answer.
    long: Arc<Semaphore>,
    /// How often what was asked, by verb and resource.
    asked: Arc<Mutex<BTreeMap<(&'static str, &'static str), u64>>>,
    /// When the last answer was read to its end, whose connection was free for the next request then.
    last: Arc<Mutex<Option<Instant>>>,
}

/// An answer that comes in pieces, for who reads it on a thread of his own.
struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let length = self.piece.len().min(into.len());
        let part = self.piece.split_to(length);
        if let Some(into) = into.get_mut(..length) {
            into.copy_from_slice(&part);
        }
        Ok(length)
    }
}

// === impl Caller ===

impl Caller {
    pub(crate) fn new(connection: Connection) -> Self {
        let long = Arc::new(Semaphore::new(LONG.1));
        Caller { connection, answered: Arc::default(), long, asked: Arc::default(), last: Arc::default() }
    }

    /// The requests so far, by verb and resource.
    pub(crate) fn requests(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, asked: &RequestedObject) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner).entry((asked.verb, asked.resource)).or_default() += 1;
    }

    /// Until somebody gets an answer.
    pub(crate) async fn answered(&self) {
        self.answered.notified().await;
    }

    /// Whether the next request would have to open a connection, as far as is known. Who is the first to hear so is to open one: nobody else
    /// hears it meanwhile.
    pub(crate) fn take_cold(&self) -> bool {
        let mut last = self.last();
        let is_cold = last.is_none_or(|last| last.elapsed() >= OPEN);
        if is_cold {
            *last = Some(Instant::now());
        }
        is_cold
    }

    /// Opens a connection for a request that will come soon, by one that everybody may make and whose answer does not matter.
    pub(crate) async fn warm(&self) {
        let asked = RequestedObject { verb: "get", group: "", resource: "version", of: "".into() };
        let request = Request::get("/version").body(Vec::new()).map_err(request::Error::BuildRequest);
        let _ = self.ask::<IgnoredAny>(&asked, request, ANSWER).await;
    }

    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn was_answered(&self) {
        *self.last() = Some(Instant::now());
        self.answered.notify_waiters();
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.connection.ip()
    }

    pub(crate) fn server(&self) -> Arc<str> {
        self.connection.server_shared()
    }

    fn failed(&self, asked: &RequestedObject, error: &kube::Error) -> ApiError {
        ApiError::from_kube(asked.clone(), self.server(), error)
    }

    /// Asks, and reads the answer as a `T`.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        asked: &RequestedObject,
        request: Result<Request<Vec<u8>>, request::Error>,
        limit: Duration,
    ) -> Result<T, ApiError> {
        let request = request.map_err(|e| self.failed(asked, &kube::Error::BuildRequest(e)))?;
        self.count(asked);
        // The turn is over when the answer was understood.
        let (body, _turn) = match timeout(limit, self.answer(asked, request)).await {
            Ok(answer) => answer?,
            Err(_) => return Err(ApiError::TimedOut { asked: asked.clone(), server: self.server(), after: limit }),
        };
        serde_json::from_slice(&body).map_err(|e| self.unreadable(asked, e.to_string()))
    }

    /// A page of a list, which may be long: it is read as it comes, and what is not taken of an object takes no room. It may take its
    /// time as long as more of it comes: the limit is for each piece.
    pub(crate) async fn read_list<T, S>(
        &self,
        asked: &RequestedObject,
        request: Result<Request<Vec<u8>>, request::Error>,
        page: Page<T, S>,
    ) -> Result<(S, PageMeta), ApiError>
    where
        T: DeserializeOwned + 'static,
        S: Send + 'static,
    {
        let limit = LIST;
        let request = request.map_err(|e| self.failed(asked, &kube::Error::BuildRequest(e)))?;
        self.count(asked);
        let late = |_| ApiError::TimedOut { asked: asked.clone(), server: self.server(), after: limit };
        let client = self.connection.client();
        let response = timeout(limit, client.send(request.map(Body::from))).await.map_err(late)?.map_err(|e| self.failed(asked, &e))?;
        if !response.status().is_success() {
            return timeout(limit, self.not_answered(asked, response)).await.map_err(late).and_then(Err);
        }
        let (sender, receiver) = mpsc::channel(AHEAD);
        let parser = tokio::task::spawn_blocking(move || {
            let mut text = serde_json::Deserializer::from_reader(BufReader::new(Pieces { receiver, piece: Bytes::new() }));
            page.deserialize(&mut text).and_then(|read| text.end().map(|()| read))
        });
        let mut body = response.into_body();
        while let Some(frame) = timeout(limit, body.frame()).await.map_err(late)? {
            let frame = frame.map_err(|e| self.failed(asked, &e))?;
            // Who has found an error in it reads no more.
            if let Ok(data) = frame.into_data()
                && sender.send(data).await.is_err()
            {
                break;
            }
        }
        drop(sender);
        self.was_answered();
        let parsed = parser.await.map_err(|e| self.unreadable(asked, e.to_string()))?;
        parsed.map_err(|e: serde_json::Error| self.unreadable(asked, e.to_string()))
    }

    /// An object, or `None` if there is none of that name.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        asked: &RequestedObject,
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
    async fn answer(
        &self,
        asked: &RequestedObject,
        request: Request<Vec<u8>>,
    ) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), ApiError> {
        let response = self.connection.client().send(request.map(Body::from)).await.map_err(|e| self.failed(asked, &e))?;
        if !response.status().is_success() {
            return Err(self.not_answered(asked, response).await);
        }
        self.bytes(asked, response.into_body()).await
    }

    /// The whole of it, and the turn to hold it where it is long.
    async fn bytes(&self, asked: &RequestedObject, mut body: Body) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), ApiError> {
        let (mut bytes, mut turn) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| self.failed(asked, &e))?;
            if let Some(data) = frame.data_ref() {
                bytes.extend_from_slice(data);
            }
            if bytes.len() > LONG.0 && turn.is_none() {
                turn = Arc::clone(&self.long).acquire_owned().await.ok();
            }
            if bytes.len() > MAX_ANSWER {
                return Err(self.unreadable(asked, format!("longer than {MAX_ANSWER} bytes")));
            }
        }
        self.was_answered();
        Ok((bytes, turn))
    }

    /// What a refusal says.
    async fn not_answered(&self, asked: &RequestedObject, response: http::Response<Body>) -> ApiError {
        let status = response.status();
        let (bytes, _turn) = match self.bytes(asked, response.into_body()).await {
            Ok(bytes) => bytes,
            Err(e) => return e,
        };
        let said: Option<Status> = serde_json::from_slice(&bytes).ok();
        let (reason, said) = said.map(|s| (s.reason, s.message)).unwrap_or_default();
        let said = if said.is_empty() { status.canonical_reason().unwrap_or_default().to_owned() } else { said };
        ApiError::answered(asked.clone(), self.server(), status.as_u16(), &reason, said)
    }

    /// Opens a watch. The stream ends when the server ends it.
    pub(crate) async fn watch<T: DeserializeOwned + Clone + Send + 'static>(
        &self,
        asked: &RequestedObject,
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

    pub(crate) fn unreadable(&self, asked: &RequestedObject, cause: String) -> ApiError {
        ApiError::Unreadable { asked: asked.clone(), server: self.server(), cause }
    }

    /// The refusal that a watch's ERROR event is.
    pub(crate) fn refused(&self, asked: &RequestedObject, status: &Status) -> ApiError {
        ApiError::answered(asked.clone(), self.server(), status.code, &status.reason, status.message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_opened_where_none_may_be_left() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let server = tower::service_fn(move |request: Request<Body>| {
            noted.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            async { Ok::<_, kube::Error>(http::Response::new(Body::from(b"{}".to_vec()))) }
        });
        let caller = Caller::new(Connection::from(kube::Client::new(server, "default")));
        assert!(caller.take_cold(), "nothing was asked yet");
        assert!(!caller.take_cold(), "one opens it");
        caller.warm().await;
        assert!(!caller.take_cold());
        assert_eq!(*asked.lock().unwrap(), ["GET /version"]);
        *caller.last() = Instant::now().checked_sub(OPEN);
        assert!(caller.take_cold());
        *caller.last() = None;
        let pod = RequestedObject { verb: "get", group: "", resource: "pods", of: "a/b".into() };
        let request = Request::get("/api/v1/namespaces/a/pods/b").body(Vec::new()).map_err(request::Error::BuildRequest);
        caller.ask::<IgnoredAny>(&pod, request, ANSWER).await.unwrap();
        assert!(!caller.take_cold(), "any answer leaves one");
    }
}
