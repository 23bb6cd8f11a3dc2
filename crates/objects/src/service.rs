//! The store as a service: what a `kube::Client` has in place of a connection.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use serde_json::{Value, json};

use crate::{
    Shared,
    call::{Call, Verb},
    delete,
    kind::{Kind, Status},
    patch,
    read::{self, typed},
    refusal::Refusal,
    watch,
    write::{self, Written},
};

/// The body of an answer.
pub type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerFailed {
    /// The store was stopped: what a refused connection is to a server.
    #[error("the object store does not answer: it was stopped (Store::start lets it answer again)")]
    Stopped,
    /// The body of the request could not be read.
    #[error("the body of the request ended early")]
    BodyNotRead(#[source] kube::Error),
}

/// A `tower` service that answers as the API server does. It can be cloned; all clones are of one store.
#[derive(Debug, Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

impl Service {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl tower::Service<Request<Body>> for Service {
    type Response = Response<Answer>;
    type Error = AnswerFailed;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(answer(Arc::clone(&self.shared), request))
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Body>) -> Result<Response<Answer>, AnswerFailed> {
    let (head, body) = request.into_parts();
    let body = body.collect_bytes().await.map_err(AnswerFailed::BodyNotRead)?;
    let delay = shared.state().delay;
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if !shared.state().reachable {
        return Err(AnswerFailed::Stopped);
    }
    Ok(match head.uri.path() {
        "/version" => sent(StatusCode::OK, &version()),
        "/healthz" | "/livez" | "/readyz" => plain(StatusCode::OK, "ok"),
        _ => match Call::parse(&head) {
            Some(call) => route(&shared, &call, &body).unwrap_or_else(|refusal| refused(&refusal)),
            None => refused(&Refusal::NoSuchPage),
        },
    })
}

fn route(shared: &Arc<Shared>, call: &Call, body: &[u8]) -> Result<Response<Answer>, Refusal> {
    let mut state = shared.state();
    let kind = state.kind(&call.place)?;
    let verb = call.verb().ok_or_else(Refusal::method_not_allowed)?;
    shared.count(verb.as_str(), call.place.resource());
    check_subresource(&state, &kind, call)?;
    let key = || (call.place.namespace.clone(), call.place.name.clone());
    let written = |written: Written| sent(written.0, &typed(&kind, &written.1, call.partial));
    Ok(match verb {
        Verb::Get => sent(StatusCode::OK, &typed(&kind, &*state.object(&kind, &key())?, call.partial)),
        Verb::List => {
            let page = read::list(&state, &kind, call)?;
            // A list is written out without the lock: it may be long.
            drop(state);
            sent(StatusCode::OK, &page.shown(&kind, call.partial))
        }
        Verb::Watch => stream(watch::begin(&mut state, &kind, call, shared)?),
        Verb::Create if call.place.subresource == "binding" => {
            write::bind(&mut state, &kind, call, body)?;
            sent(StatusCode::CREATED, &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
        }
        Verb::Create if !call.place.subresource.is_empty() => return Err(Refusal::method_not_allowed()),
        Verb::Create => {
            let object = write::read_body(&kind, body)?;
            written(write::create(&mut state, &kind, call, object)?)
        }
        Verb::Update => {
            let object = write::read_body(&kind, body)?;
            written(write::update(&mut state, &kind, call, object, false)?)
        }
        Verb::Patch => written(patch::patch(&mut state, &kind, call, body)?),
        Verb::Delete if !call.place.subresource.is_empty() => return Err(Refusal::method_not_allowed()),
        Verb::Delete => sent(StatusCode::OK, &delete::delete(&mut state, &kind, call, body)?),
        Verb::DeleteCollection => {
            if kind.namespaced && call.place.namespace.is_empty() || kind.is_namespace() {
                return Err(Refusal::method_not_allowed());
            }
            let (page, keys) = read::selected(&state, &kind, call)?;
            for key in keys {
                let object = state.object(&kind, &key)?;
                delete::end_of(&mut state, &kind, &key, &object)?;
            }
            sent(StatusCode::OK, &page.shown(&kind, call.partial))
        }
    })
}

fn check_subresource(state: &crate::state::State, kind: &Kind, call: &Call) -> Result<(), Refusal> {
    match call.place.subresource.as_str() {
        "" => Ok(()),
        "status" if kind.status != Status::Field => Ok(()),
        "finalize" if kind.is_namespace() => Ok(()),
        "binding" if kind.is_pod() => Ok(()),
        "status" if kind.custom => {
            let key = (call.place.namespace.clone(), call.place.name.clone());
            state.object(kind, &key)?;
            Err(Refusal::not_found(kind, &call.place.name))
        }
        _ => Err(Refusal::no_such_resource()),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "35", "gitVersion": "v1.35.0+netloom", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

fn refused(refusal: &Refusal) -> Response<Answer> {
    match refusal {
        Refusal::NoSuchPage => plain(refusal.code(), "404 page not found\n"),
        Refusal::Status { .. } => sent(refusal.code(), &refusal.status()),
    }
}

fn sent(code: StatusCode, value: &Value) -> Response<Answer> {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    response(code, "application/json", Full::new(Bytes::from(bytes)).boxed_unsync())
}

fn plain(code: StatusCode, text: &'static str) -> Response<Answer> {
    response(code, "text/plain; charset=utf-8", Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync())
}

fn stream(watch: watch::Watch) -> Response<Answer> {
    let frames = watch.lines().map(|line| Ok(Frame::data(line)));
    response(StatusCode::OK, "application/json", StreamBody::new(frames).boxed_unsync())
}

fn response(code: StatusCode, content_type: &'static str, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}
