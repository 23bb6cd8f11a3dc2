//! Events on pods: they wait here, and one task sends one after the other.
//!
//! ```text
//!   ADD --tell--> by namespace: pod, reason, message, how often --the namespaces in turn, so many a second--> API server
//! ```
//!
//! Nothing waits for an Event, and an Event holds up nothing: while one is on its way no other one is, and while runtimes wait for calls
//! there is a pause between two, so that statuses, which an ADD waits for, find connection and API server free. A namespace whose pods are refused again and again fills its own queue only.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::{Cluster, EventKind, PodRef, Recorded};
use tokio::sync::Notify;

use crate::lock;
use crate::log::Line;

/// Between the first Event of a queue that was empty and its sending: by then whoever called has its answer.
const GATHER: Duration = Duration::from_millis(100);
/// Between two Events while a call is being answered.
const CALLS_FIRST: Duration = Duration::from_millis(100);
/// Events that are sent without a pause between them: a node that starts with its pods.
const BURST: u32 = 100;
/// After those, between two Events.
const SPACING: Duration = Duration::from_millis(50);
/// The most that wait of one namespace.
const PER_NAMESPACE: usize = 512;
/// The most that wait. Each has some 1,300 bytes at the most.
const ALL: usize = 2048;

/// Sends Events.
pub(crate) struct Events {
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// The last call has its answer.
    quiet: Notify,
}

/// A call that is being answered, until it is dropped.
pub(crate) struct Answering(Arc<Queue>);

/// By namespace, and how many there are in all.
#[derive(Default)]
struct Waiting {
    namespaces: BTreeMap<String, VecDeque<QueuedEvent>>,
    all: usize,
    /// Calls that are being answered.
    calls: usize,
    /// One that was taken is still on its way.
    sending: bool,
    /// What found no room since the last line of the log.
    dropped: u64,
    /// The namespace that had its turn last.
    last: String,
}

/// An Event that waits.
struct QueuedEvent {
    event: Event,
    times: u32,
}

/// An Event on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Of which pod.
    pub(crate) pod: PodRef,
    /// How bad it is.
    pub(crate) kind: EventKind,
    /// One word in camel case.
    pub(crate) reason: &'static str,
    /// What a person reads.
    pub(crate) message: String,
}

/// How many may be sent now without a pause.
struct Pace {
    left: u32,
    since: Instant,
}

// === impl Waiting ===

impl Waiting {
    fn push(&mut self, event: Event) {
        let queue = self.namespaces.entry(event.pod.namespace.clone()).or_default();
        if let Some(one) = queue.iter_mut().find(|one| one.event == event) {
            one.times = one.times.saturating_add(1);
            return;
        }
        if queue.len() >= PER_NAMESPACE {
            self.dropped += 1;
            return;
        }
        queue.push_back(QueuedEvent { event, times: 1 });
        self.all += 1;
        if self.all > ALL
            && let Some(longest) = self.namespaces.values_mut().max_by_key(|queue| queue.len())
            && longest.pop_back().is_some()
        {
            self.all -= 1;
            self.dropped += 1;
        }
    }

    /// The next one: of the namespace after that which had its turn last.
    fn take(&mut self) -> Option<QueuedEvent> {
        let after = self.namespaces.range::<String, _>((Excluded(&self.last), Unbounded)).next();
        let next = after.or_else(|| self.namespaces.iter().next()).map(|(namespace, _)| namespace.clone())?;
        let queue = self.namespaces.get_mut(&next)?;
        let one = queue.pop_front();
        if queue.is_empty() {
            self.namespaces.remove(&next);
        }
        self.last = next;
        self.all -= usize::from(one.is_some());
        self.sending = one.is_some();
        one
    }
}

// === impl Events ===

impl Events {
    /// Begins to send.
    pub(crate) fn start(cluster: Cluster, runtime: &tokio::runtime::Handle) -> Self {
        let queue = Arc::<Queue>::default();
        drop(runtime.spawn(send(cluster, Arc::clone(&queue))));
        Events { queue }
    }

    /// Puts an Event into the queue; the same one that waits there already is counted up.
    pub(crate) fn tell(&self, event: Event) {
        let message = cluster::note(&event.message).to_owned();
        lock(&self.queue.waiting).push(Event { message, ..event });
        self.queue.wake.notify_one();
    }

    /// Says that a call is being answered.
    pub(crate) fn answering(&self) -> Answering {
        lock(&self.queue.waiting).calls += 1;
        Answering(Arc::clone(&self.queue))
    }

    /// Whether none waits, and none is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        let waiting = lock(&self.queue.waiting);
        waiting.all == 0 && !waiting.sending
    }
}

// === impl Answering ===

impl Drop for Answering {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.waiting);
        waiting.calls -= 1;
        if waiting.calls == 0 {
            self.0.quiet.notify_one();
        }
    }
}

// === impl Queue ===

impl Queue {
    /// Waits until no call is being answered, or for a moment.
    async fn after_calls(&self) {
        let none = async {
            while lock(&self.waiting).calls > 0 {
                self.quiet.notified().await;
            }
        };
        // Whether it came to that or not, the next Event's turn has come.
        drop(tokio::time::timeout(CALLS_FIRST, none).await);
    }
}

async fn send(cluster: Cluster, queue: Arc<Queue>) {
    let mut pace = Pace { left: BURST, since: Instant::now() };
    loop {
        queue.after_calls().await;
        let (next, dropped) = {
            let mut waiting = lock(&queue.waiting);
            (waiting.take(), std::mem::take(&mut waiting.dropped))
        };
        if dropped > 0 {
            Line::warn("event").with("dropped", dropped).with("why", "the queue of Events is full").end();
        }
        let Some(QueuedEvent { event: Event { pod, kind, reason, message }, times }) = next else {
            queue.wake.notified().await;
            tokio::time::sleep(GATHER).await;
            continue;
        };
        let sent = cluster.event(&pod, kind, reason, &message, times).await;
        lock(&queue.waiting).sending = false;
        match sent {
            Ok(Recorded::New | Recorded::Counted) => pace.keep().await,
            Ok(Recorded::Kept | Recorded::Dropped) => {}
            Err(e) => {
                Line::warn("event").with("pod", &pod.name).with("reason", reason).with("error", e).end();
                pace.keep().await;
            }
        }
    }
}

// === impl Pace ===

impl Pace {
    /// Waits until the next one may be sent.
    async fn keep(&mut self) {
        let gained = u32::try_from(self.since.elapsed().as_millis() / SPACING.as_millis()).unwrap_or(BURST);
        self.since += SPACING * gained;
        self.left = self.left.saturating_add(gained).min(BURST);
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => {
                tokio::time::sleep(SPACING).await;
                self.since += SPACING;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_waits_while_a_call_is_answered() {
        let events = Events { queue: Arc::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let may_be_sent = || runtime.block_on(async { tokio::time::timeout(Duration::ZERO, events.queue.after_calls()).await.is_ok() });
        assert!(may_be_sent());
        let calls = [events.answering(), events.answering()];
        assert!(!may_be_sent());
        let [first, second] = calls;
        drop(first);
        assert!(!may_be_sent(), "one is left");
        drop(second);
        assert!(may_be_sent());
        // A node that is never without a call still sends.
        let _busy = events.answering();
        runtime.block_on(events.queue.after_calls());
    }
}
