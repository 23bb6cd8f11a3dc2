//! Pages for the kubelet's probes, for Prometheus, and for a person with `curl`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;

use crate::log::Line;

/// Between two attempts to listen.
const PAUSE: Duration = Duration::from_secs(5);

/// Listens until it is aborted. An address that is taken is told once, and tried again: the daemon does its work all the same.
pub async fn serve(address: SocketAddr, pages: Router) {
    let mut said = None;
    loop {
        let failed = match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => axum::serve(listener, pages.clone()).await.err().map(|e| e.to_string()),
            Err(e) => Some(e.to_string()),
        };
        if failed != said {
            Line::error("health").with("address", address).with("error", failed.as_deref().unwrap_or_default()).end();
            said = failed;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Figures in Prometheus' text format, version 0.0.4.
pub fn figures(text: String) -> impl IntoResponse {
    ([("content-type", "text/plain; version=0.0.4")], text)
}
