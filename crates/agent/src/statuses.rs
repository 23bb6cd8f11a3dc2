//! The annotation `network-status`: written while the runtime waits, or afterwards.
//!
//! ```text
//!   ADD --write--> a task asks the API server --within statusWait--> the ADD is answered
//!    |                   |
//!    |                   `-- unreachable --> pending --deliver--> until it is written, or the pod is gone
//!    `-- its worker serves others meanwhile
//! ```
//!
//! Nothing is lost with the process: at its start the agent compares what pods have with its records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::{Cluster, PodRef, StatusError};
use tokio::sync::{Notify, oneshot};

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

/// A status that is being written while somebody waits for it.
#[derive(Debug)]
pub(crate) struct StatusWrite {
    pod: String,
    by: Instant,
    delivery: oneshot::Receiver<Delivery>,
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
    waiting: Mutex<BTreeMap<Key, Waiting>>,
    /// The number of the newest text of each pod that something is being written to: an older one, whose answer was lost,
    /// must not come after it.
    newest: Mutex<BTreeMap<Key, u64>>,
    last: AtomicU64,
    /// Pods that something was written to since the comparison began that goes on now: what it has read of them is old.
    since: Mutex<BTreeSet<Key>>,
    wake: Notify,
}

type Key = (String, String);

#[derive(Clone)]
struct Waiting {
    pod: PodRef,
    text: String,
    number: u64,
}

// === impl Pending ===

impl Pending {
    /// A new text's number.
    fn number(&self, key: &Key) -> u64 {
        self.number_since(&mut lock(&self.since), key)
    }

    /// The number of a text that a comparison has made; `None` if there is a newer one.
    fn number_compared(&self, key: &Key) -> Option<u64> {
        let mut since = lock(&self.since);
        (!since.contains(key)).then(|| self.number_since(&mut since, key))
    }

    fn number_since(&self, since: &mut BTreeSet<Key>, key: &Key) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.newest).insert(key.clone(), number);
        since.insert(key.clone());
        number
    }

    fn is_newest(&self, key: &Key, number: u64) -> bool {
        lock(&self.newest).get(key) == Some(&number)
    }

    /// Nothing more is to be said of it.
    fn settle(&self, key: &Key, number: u64) {
        let mut newest = lock(&self.newest);
        if newest.get(key) == Some(&number) {
            newest.remove(key);
        }
    }
}

// === impl Statuses ===

impl Statuses {
    /// Begins to deliver.
    pub(crate) fn start(cluster: Cluster, runtime: tokio::runtime::Handle) -> Self {
        let statuses = Statuses { cluster, runtime: runtime.clone(), pending: Arc::default() };
        runtime.spawn(statuses.clone().deliver());
        statuses
    }

    /// A status will be written soon: the connection for it is opened meanwhile, if none is there. With TLS that takes as long as the pod's links.
    pub(crate) fn prepare(&self) {
        if self.cluster.take_cold() {
            let cluster = self.cluster.clone();
            self.runtime.spawn(async move { cluster.warm().await });
        }
    }

    /// Writes it. It is waited for so long at the most; what is not written then follows.
    pub(crate) fn write(&self, pod: PodRef, text: String, wait: Duration) -> StatusWrite {
        let (sender, delivery) = oneshot::channel();
        let write = StatusWrite { pod: pod.name.clone(), by: Instant::now() + wait, delivery };
        let this = self.clone();
        let key = key(&pod);
        let number = self.pending.number(&key);
        // An older text that is still to be delivered would come after this one.
        lock(&self.pending.waiting).remove(&key);
        self.runtime.spawn(async move {
            let delivery = this.attempt(&pod, &text).await;
            match delivery {
                Delivery::Later => this.wait(key, Waiting { pod, text, number }),
                _ => this.pending.settle(&key, number),
            }
            let _ = sender.send(delivery);
        });
        write
    }

    /// A comparison begins to read what pods have and what they should have. There is one at a time.
    pub(crate) fn begin_comparison(&self) {
        lock(&self.pending.since).clear();
    }

    /// Writes what a comparison has found to be missing, when the API server can be reached. Nothing, if something was written to the pod
    /// since the comparison began: that is newer. Whether it is to be written.
    pub(crate) fn follow(&self, pod: PodRef, text: String) -> bool {
        let key = key(&pod);
        let Some(number) = self.pending.number_compared(&key) else { return false };
        self.wait(key, Waiting { pod, text, number });
        true
    }

    fn wait(&self, key: Key, waiting: Waiting) {
        if self.pending.is_newest(&key, waiting.number) {
            lock(&self.pending.waiting).insert(key, waiting);
            self.pending.wake.notify_one();
        }
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

    /// One after the other, in rounds: a pod whose status is refused for now holds up no other one. Between two rounds in
    /// which nothing was taken there is a pause.
    async fn deliver(self) {
        let mut pause = PAUSES.0;
        loop {
            let round: Vec<(Key, Waiting)> =
                lock(&self.pending.waiting).iter().map(|(key, waiting)| (key.clone(), waiting.clone())).collect();
            if round.is_empty() {
                pause = PAUSES.0;
                self.pending.wake.notified().await;
                continue;
            }
            let mut taken = false;
            for (key, waiting) in round {
                taken |= self.deliver_one(key, waiting).await;
            }
            if taken {
                pause = PAUSES.0;
            } else {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }

    /// Whether there is an end to it.
    async fn deliver_one(&self, key: Key, Waiting { pod, text, number }: Waiting) -> bool {
        if !self.pending.is_newest(&key, number) {
            return false;
        }
        let delivery = self.attempt(&pod, &text).await;
        if delivery == Delivery::Later {
            return false;
        }
        let mut waiting = lock(&self.pending.waiting);
        if waiting.get(&key).is_some_and(|there| there.number == number) {
            waiting.remove(&key);
        }
        drop(waiting);
        self.pending.settle(&key, number);
        let said = format!("{}/{}", key.0, key.1);
        match delivery {
            Delivery::Refused(why) => Line::error("status refused").with("pod", said).with("error", why).end(),
            _ => Line::info("status delivered").with("pod", said).end(),
        }
        true
    }
}

// === impl StatusWrite ===

impl StatusWrite {
    /// Waits until it is written, or will be later. The pod is attached whether or not somebody can be told.
    pub(crate) async fn end(self) {
        let told = tokio::time::timeout_at(self.by.into(), self.delivery).await;
        match told.ok().and_then(Result::ok).unwrap_or(Delivery::Later) {
            Delivery::Written => {}
            Delivery::Later => {
                Line::warn("status later").with("pod", &self.pod).with("why", "the API server has not accepted it yet").end()
            }
            // Nobody misses it: a Deployment was scaled down while it came up, say.
            Delivery::Gone => Line::info("status").with("pod", &self.pod).with("why", "the pod is gone").end(),
            Delivery::Refused(why) => Line::error("status refused").with("pod", &self.pod).with("error", why).end(),
        }
    }
}

fn key(pod: &PodRef) -> Key {
    (pod.namespace.clone(), pod.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_comparison_has_read_is_older_than_what_was_written_since() {
        let (pending, key) = (Pending::default(), ("team-a".to_owned(), "web".to_owned()));
        let before = pending.number(&key);
        lock(&pending.since).clear();
        let compared = pending.number_compared(&key).unwrap();
        assert!(compared > before && pending.is_newest(&key, compared));
        lock(&pending.since).clear();
        let written = pending.number(&key);
        pending.settle(&key, written);
        assert_eq!(pending.number_compared(&key), None, "it would come after what was written already");
    }
}
