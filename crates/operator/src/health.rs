//! `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use crate::log::Line;
use crate::metrics::Metrics;
use crate::seen::Seen;

/// Listens until it is aborted. An address that is taken is told, and tried again.
pub(crate) async fn serve(address: SocketAddr, seen: Arc<Seen>, metrics: Arc<Metrics>) {
    let ready = get(move || {
        let missing = seen.unlisted();
        async move {
            match missing.is_empty() {
                true => (StatusCode::OK, "ok\n".to_owned()),
                false => (StatusCode::SERVICE_UNAVAILABLE, format!("not read yet: {}\n", missing.join(", "))),
            }
        }
    });
    let numbers = get(move || {
        let text = metrics.text();
        async move { ([("content-type", "text/plain; version=0.0.4")], text) }
    });
    let router = Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", ready).route("/metrics", numbers);
    loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => {
                let served = axum::serve(listener, router.clone()).await;
                Line::error("health").with("address", address).with("error", served.err().map(|e| e.to_string()).unwrap_or_default()).end();
            }
            Err(e) => Line::error("health").with("address", address).with("error", e).end(),
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}
