//! `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use daemon::health;

use crate::metrics::Metrics;
use crate::seen::Seen;

/// Listens until it is aborted.
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
        async move { health::figures(text) }
    });
    let pages = Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", ready).route("/metrics", numbers);
    health::serve(address, pages).await;
}
