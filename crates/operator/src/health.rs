//! `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use crate::metrics::Metrics;
use crate::store::Store;

/// Listens until it is aborted. An address that is taken is told, and tried again.
pub(crate) async fn serve(address: SocketAddr, seen: Arc<Store>, metrics: Arc<Metrics>) {
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
        async move { daemon::health::figures(text) }
    });
    let pages = Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", ready).route("/metrics", numbers);
    daemon::health::serve(address, pages).await;
}
