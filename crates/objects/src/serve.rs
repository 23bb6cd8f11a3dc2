//! The store over HTTP, for clients in other processes: `http://ADDRESS`, without TLS and without asking who it is.

use std::{convert::Infallible, io};

use axum::{Router, response::IntoResponse, serve::ListenerExt};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use tower::ServiceExt;

use crate::Store;

impl Store {
    /// Answers requests on a listener until the future is dropped. It must be polled inside a tokio runtime.
    ///
    /// # Errors
    /// If the listener cannot be used without blocking.
    pub async fn serve(self, listener: std::net::TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        // A line of a watch does not wait until the one before it is acknowledged.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let answer = tower::service_fn(move |request: Request<axum::body::Body>| {
            let service = self.service();
            async {
                let (head, body) = request.into_parts();
                // A client that was killed in the middle of a request has not sent it.
                let Ok(body) = body.collect().await else { return Ok(StatusCode::BAD_REQUEST.into_response()) };
                let request = Request::from_parts(head, Body::from(body.to_bytes().to_vec()));
                let answer = service.oneshot(request).await;
                Ok::<_, Infallible>(answer.map_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response(), IntoResponse::into_response))
            }
        });
        axum::serve(listener, Router::new().fallback_service(answer)).await
    }
}
