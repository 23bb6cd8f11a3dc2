//! `/healthz`, `/readyz` and `/metrics`, for the kubelet's probes and for a person with `curl`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use crate::Agent;

/// How long a probe may wait for the API server: less than kubelets wait for a probe.
const LOOK: Duration = Duration::from_millis(800);
/// How long no call may have begun or ended while others wait: longer than the longest call, and than a runtime waits for it.
const STUCK: Duration = Duration::from_secs(300);

/// The same. A test need not wait for it; a release has no such variable.
fn stuck_after() -> Duration {
    #[cfg(debug_assertions)]
    if let Some(seconds) = std::env::var("NETLOOM_STUCK_AFTER").ok().and_then(|text| text.parse().ok()) {
        return Duration::from_secs(seconds);
    }
    STUCK
}

/// Listens until it is aborted. An address that is taken is told, and tried again: calls are served all the same.
pub(crate) async fn serve(agent: Arc<Agent>) {
    let Some(address) = agent.settings.health_address else { return };
    let live = {
        let agent = Arc::clone(&agent);
        get(
            move || async move { agent.dead().map_or((StatusCode::OK, "ok\n".to_owned()), |why| (StatusCode::SERVICE_UNAVAILABLE, why + "\n")) },
        )
    };
    let ready = {
        let agent = Arc::clone(&agent);
        get(move || readiness(Arc::clone(&agent)))
    };
    let figures = {
        let agent = Arc::clone(&agent);
        // Some of them are asked of the kernel.
        get(move || async move {
            let looked = tokio::task::spawn_blocking(move || agent.figures()).await;
            daemon::health::figures(looked.unwrap_or_default())
        })
    };
    daemon::health::serve(address, Router::new().route("/healthz", live).route("/readyz", ready).route("/metrics", figures)).await;
}

async fn readiness(agent: Arc<Agent>) -> (StatusCode, String) {
    let looked = tokio::task::spawn_blocking(move || agent.unready()).await;
    match looked.map_err(|e| e.to_string()) {
        Ok(None) => (StatusCode::OK, "ok\n".to_owned()),
        Ok(Some(why)) | Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
    }
}

impl Agent {
    /// Why only a new agent would help: calls wait, and none of those that are served comes to its end.
    fn dead(&self) -> Option<String> {
        let stuck = self.shares.stuck_for().filter(|time| *time > stuck_after())?;
        let queued = match self.shares.in_line() {
            1 => "1 call is queued".to_owned(),
            count => format!("{count} calls are queued"),
        };
        Some(format!("{queued}, and none has finished for {} s: see the log for the reason", stuck.as_secs()))
    }

    /// Why an ADD would not be served now, if it would not. A node whose API server is away goes on with what it knows.
    pub(crate) fn unready(&self) -> Option<String> {
        if self.load.is_stopping() {
            return Some("the agent is stopping".to_owned());
        }
        if let Some(why) = self.cluster.synced().missing().or_else(|| self.cluster_addresses.awaited()) {
            return Some(why);
        }
        if let Some(why) = self.waits.why().or_else(|| self.addresses.as_ref()?.store.closed()) {
            return Some(why);
        }
        let default = self.default_network_now(&self.settings, Instant::now() + LOOK);
        default.err().map(|e| e.to_string()).or_else(|| self.records.are_writable().err().map(|e| e.to_string()))
    }
}
