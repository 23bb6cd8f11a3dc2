//! Probes of other nodes beyond pings: `GET /hello` at port 4240 of the probe's addresses, as Cilium's health checks ask it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::routing::get;
use tokio::task::AbortHandle;

/// The port that Cilium's health checks ask.
const PORT: u16 = 4240;

/// Who answers, by address. They end when this is dropped.
#[derive(Default)]
pub(super) struct Hello(BTreeMap<IpAddr, AbortHandle>);

// === impl Hello ===

impl Hello {
    /// Answers at these addresses, and no others. Must be called within a tokio runtime.
    pub(super) fn serve(&mut self, addresses: Vec<IpAddr>) {
        self.0.retain(|address, task| {
            let stays = addresses.contains(address);
            if !stays {
                task.abort();
            }
            stays
        });
        for address in addresses {
            self.0.entry(address).or_insert_with(|| tokio::spawn(answer(address)).abort_handle());
        }
    }
}

impl Drop for Hello {
    fn drop(&mut self) {
        self.0.values().for_each(AbortHandle::abort);
    }
}

/// Answers until it is aborted. Pings are answered by the kernel, whatever becomes of this.
async fn answer(address: IpAddr) {
    daemon::health::serve(SocketAddr::new(address, PORT), Router::new().route("/hello", get(|| async {}))).await;
}
