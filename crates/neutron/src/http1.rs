//! A request and its answer: one connection's turn, and again where that is safe.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use trust::chain;

use crate::Limits;
use crate::error::{Failure, timed_out};
use crate::retry::{Outcome, Safety, pause};

/// How long a TCP connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// A server that is cut off is noticed after this time: idle, then three probes.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How far probes are apart.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Connections are closed before the server does it: eventlet's closes them after 15 minutes, a load balancer after one.
const IDLE: Duration = Duration::from_secs(45);
/// The bytes of an answer at the most. A page of 500 ports has one megabyte.
const MAX_BODY: usize = 32 << 20;

/// By what the servers' logs know us.
const PROGRAM: HeaderValue = HeaderValue::from_static(concat!("netloom/", env!("CARGO_PKG_VERSION")));

/// A client that keeps its connections. A clone has the same ones.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Requests on their way, those of all servers together.
    places: Arc<Semaphore>,
    limits: Limits,
}

/// What a server says.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

// === impl Http ===

impl Http {
    /// How long one request may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.limits.timeout
    }

    pub(crate) fn new(tls: ClientConfig, limits: Limits) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(3));
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(limits.in_flight);
        Http { client: builder.build(https), places: Arc::new(Semaphore::new(limits.in_flight.max(1))), limits }
    }

    /// Sends a request until it is answered, or must not be sent again.
    pub(crate) async fn send(&self, safety: Safety, request: impl Fn() -> Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let mut attempt = 1;
        loop {
            let ended = self.send_once(request()).await;
            let outcome = match &ended {
                Ok(answer) if answer.status.is_client_error() || answer.status.is_server_error() => {
                    Outcome::Status(answer.status, answer.retry_after())
                }
                Ok(_) => return ended,
                Err(failure) => Outcome::Failed(failure),
            };
            match pause(&outcome, safety, attempt, chance()).filter(|_| attempt < self.limits.attempts) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return ended,
            }
            attempt += 1;
        }
    }

    /// Sends a request, and reads all of the answer.
    async fn send_once(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        // It is never closed.
        let _place = self.places.acquire().await.map_err(|e| Failure::NotSent(e.to_string()))?;
        request.headers_mut().insert(http::header::USER_AGENT, PROGRAM);
        let whole = async {
            let response = self.client.request(request).await.map_err(|e| match e.is_connect() {
                true => Failure::NotSent(chain(&e)),
                false => Failure::NoAnswer(chain(&e)),
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_BODY).collect().await.map_err(|e| Failure::NoAnswer(chain(e.as_ref())))?;
            Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
        };
        let timeout = self.limits.timeout;
        tokio::time::timeout(timeout, whole).await.unwrap_or_else(|_| Err(Failure::NoAnswer(timed_out(timeout))))
    }
}

/// A number from 0 to 1: each hasher has other keys.
fn chance() -> f64 {
    f64::from(u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

// === impl Answer ===

impl Answer {
    /// A header's text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// By what the server's log knows the request.
    pub(crate) fn request_id(&self) -> Option<String> {
        self.header("x-openstack-request-id").map(str::to_owned)
    }

    /// When the server wants to be asked again. The other form, a date, is not one that OpenStack's services use.
    fn retry_after(&self) -> Option<Duration> {
        self.header("retry-after")?.trim().parse().ok().map(Duration::from_secs)
    }
}
