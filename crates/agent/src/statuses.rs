//! The annotation `network-status`: written while the runtime waits, or afterwards.
//!
//! ```text
//!   ADD --write--> a task asks the API server --within statusWait--> ADD answers
//!                        |
//!                        `-- unreachable --> pending --deliver--> until it is written, or the pod is gone
//! ```
//!
//! Nothing is lost with the process: at its start the agent compares what pods have with its records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cluster::{Cluster, PodRef, StatusError};
use tokio::sync::Notify;

use crate::lock;
use crate::log::Line;

/// Between two attempts, growing from the first to the last of these.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// What became of a write by the time that somebody waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The pod has it.
    Written,
    /// It follows.
    Later,
    /// The pod is gone.
    Gone,
    /// The API server will not have it.
    Refused(String),
}

/// Writes statuses.
#[derive(Clone)]
pub(crate) struct Statuses {
    cluster: Cluster,
    runtime: tokio::runtime::Handle,
    pending: Arc<Pending>,
}

#[derive(Default)]
struct Pending {
    /// By namespace and name: of one pod only the newest counts.
    waiting: Mutex<BTreeMap<(String, String), (PodRef, String)>>,
    wake: Notify,
}

// === impl Statuses ===

impl Statuses {
    /// Begins to deliver.
    pub(crate) fn start(cluster: Cluster, runtime: tokio::runtime::Handle) -> Self {
        let statuses = Statuses { cluster, runtime: runtime.clone(), pending: Arc::default() };
        runtime.spawn(statuses.clone().deliver());
        statuses
    }

    /// Writes it, and waits so long at the most. What is not written then follows.
    pub(crate) fn write(&self, pod: PodRef, text: String, wait: Duration) -> Delivery {
        let (sender, receiver) = mpsc::sync_channel(1);
        let this = self.clone();
        // An older text that is still to be delivered would come after this one.
        lock(&self.pending.waiting).remove(&key(&pod));
        self.runtime.spawn(async move {
            let delivery = this.attempt(&pod, &text).await;
            if delivery == Delivery::Later {
                this.follow(pod, text);
            }
            let _ = sender.send(delivery);
        });
        receiver.recv_timeout(wait).unwrap_or(Delivery::Later)
    }

    /// Writes it when the API server can be reached.
    pub(crate) fn follow(&self, pod: PodRef, text: String) {
        lock(&self.pending.waiting).insert(key(&pod), (pod, text));
        self.pending.wake.notify_one();
    }

    /// The pods whose status is still to be written.
    pub(crate) fn waiting(&self) -> Vec<String> {
        lock(&self.pending.waiting).keys().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
    }

    async fn attempt(&self, pod: &PodRef, text: &str) -> Delivery {
        match self.cluster.write_status(pod, text).await {
            Ok(()) => Delivery::Written,
            Err(StatusError::Gone { .. }) => Delivery::Gone,
            Err(e @ StatusError::Refused { .. }) => Delivery::Refused(e.to_string()),
            Err(_) => Delivery::Later,
        }
    }

    async fn deliver(self) {
        let mut pause = PAUSES.0;
        loop {
            let next = lock(&self.pending.waiting).first_key_value().map(|(key, waiting)| (key.clone(), waiting.clone()));
            let Some((key, (pod, text))) = next else {
                self.pending.wake.notified().await;
                continue;
            };
            let delivery = self.attempt(&pod, &text).await;
            if delivery == Delivery::Later {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
                continue;
            }
            pause = PAUSES.0;
            let mut waiting = lock(&self.pending.waiting);
            if waiting.get(&key).is_some_and(|(_, newest)| *newest == text) {
                waiting.remove(&key);
            }
            drop(waiting);
            let said = format!("{}/{}", key.0, key.1);
            match delivery {
                Delivery::Refused(why) => Line::error("status refused").with("pod", said).with("error", why).end(),
                _ => Line::info("status delivered").with("pod", said).end(),
            }
        }
    }
}

fn key(pod: &PodRef) -> (String, String) {
    (pod.namespace.clone(), pod.name.clone())
}
