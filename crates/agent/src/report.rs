//! What became of the last calls for each pod, and where their time went.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use cni::CniError;

use crate::call::PodName;
use crate::lock;

/// Pods of which reports are kept. A node has a tenth of that; the oldest goes.
const MOST: usize = 1024;

/// Where the time of a call went.
pub(crate) struct Laps {
    begun: Instant,
    last: Instant,
    laps: Vec<(&'static str, Duration)>,
}

/// One call, after it.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// The verb.
    pub(crate) verb: &'static str,
    /// The pod.
    pub(crate) pod: PodName,
    /// The container.
    pub(crate) container: String,
    /// When it ended.
    pub(crate) at: SystemTime,
    /// How long it took.
    pub(crate) took: Duration,
    /// How long each part of it took.
    pub(crate) laps: Vec<(&'static str, Duration)>,
    /// Why it failed.
    pub(crate) error: Option<CniError>,
}

/// The last ADD of each pod, and the last DEL that failed.
#[derive(Default)]
pub(crate) struct Reports {
    kept: Mutex<BTreeMap<(String, String), Report>>,
}

// === impl Laps ===

impl Laps {
    /// Begins now.
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        Laps { begun: now, last: now, laps: Vec::new() }
    }

    /// What was done since the last lap has this name.
    pub(crate) fn lap(&mut self, name: &'static str) {
        let now = Instant::now();
        self.laps.push((name, now - self.last));
        self.last = now;
    }

    /// From the beginning until now.
    pub(crate) fn total(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Each part, in order.
    pub(crate) fn all(&self) -> &[(&'static str, Duration)] {
        &self.laps
    }
}

// === impl Report ===

impl Report {
    pub(crate) fn new(verb: &'static str, pod: PodName, container: &str, laps: &Laps, error: Option<&CniError>) -> Self {
        let (container, at) = (container.to_owned(), SystemTime::now());
        Report { verb, pod, container, at, took: laps.total(), laps: laps.all().to_vec(), error: error.cloned() }
    }
}

// === impl Reports ===

impl Reports {
    /// Keeps what somebody may ask for: an ADD whatever came of it, another call if it failed. A DEL that succeeded ends
    /// what there is to tell.
    pub(crate) fn keep(&self, report: Report) {
        let mut kept = lock(&self.kept);
        let key = (report.pod.namespace.clone(), report.pod.name.clone());
        match (report.verb, &report.error) {
            ("DEL", None) => {
                // Another sandbox of the pod may be the one that was reported.
                if kept.get(&key).is_some_and(|old| old.container == report.container) {
                    kept.remove(&key);
                }
                return;
            }
            ("ADD", _) | (_, Some(_)) => drop(kept.insert(key, report)),
            _ => return,
        }
        if kept.len() > MOST
            && let Some(oldest) = kept.iter().min_by_key(|(_, report)| report.at).map(|(key, _)| key.clone())
        {
            kept.remove(&oldest);
        }
    }

    /// The report of a pod.
    pub(crate) fn of(&self, namespace: &str, name: &str) -> Option<Report> {
        lock(&self.kept).get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Report> {
        lock(&self.kept).values().cloned().collect()
    }
}
