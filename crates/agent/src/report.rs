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
pub(crate) struct Timings {
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
    /// The ADD of this container that failed before this call did.
    pub(crate) failed_add: Option<Box<Report>>,
}

/// The last ADD of each pod, and the last other call that failed.
#[derive(Default)]
pub(crate) struct Reports {
    kept: Mutex<BTreeMap<(String, String), Report>>,
}

// === impl Timings ===

impl Timings {
    /// Begins now.
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        Timings { begun: now, last: now, laps: Vec::new() }
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
    pub(crate) fn new(verb: &'static str, pod: PodName, container: &str, laps: &Timings, error: Option<&CniError>) -> Self {
        let (container, at) = (container.to_owned(), SystemTime::now());
        Report { verb, pod, container, at, took: laps.total(), laps: laps.all().to_vec(), error: error.cloned(), failed_add: None }
    }

    /// The ADD that failed: this call, or the one before it.
    fn into_failed_add(self) -> Option<Report> {
        if self.verb == "ADD" { self.error.is_some().then_some(self) } else { self.failed_add.map(|add| *add) }
    }
}

// === impl Reports ===

impl Reports {
    /// Keeps what somebody may ask for: an ADD whatever came of it, another call if it failed. A DEL that succeeded ends
    /// what there is to tell, but for why an ADD failed: runtimes send one after each of these.
    pub(crate) fn keep(&self, mut report: Report) {
        let mut kept = lock(&self.kept);
        let key = (report.pod.namespace.clone(), report.pod.name.clone());
        match (report.verb, &report.error) {
            ("DEL", None) => {
                // Another sandbox of the pod may be the one that was reported.
                if kept.get(&key).is_some_and(|old| old.container == report.container)
                    && let Some(add) = kept.remove(&key).and_then(Report::into_failed_add)
                {
                    kept.insert(key, add);
                }
                return;
            }
            ("ADD", _) => drop(kept.insert(key, report)),
            (_, Some(_)) => {
                let before = kept.remove(&key).filter(|old| old.container == report.container);
                report.failed_add = before.and_then(Report::into_failed_add).map(Box::new);
                kept.insert(key, report);
            }
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

    /// Those of calls that failed.
    pub(crate) fn failed(&self) -> Vec<Report> {
        lock(&self.kept).values().filter(|report| report.error.is_some()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use cni::Code;

    use super::*;

    fn told(verb: &'static str, container: &str, error: Option<&str>) -> Report {
        let pod = PodName { namespace: "default".to_owned(), name: "web".to_owned(), uid: None };
        Report::new(verb, pod, container, &Timings::start(), error.map(|why| CniError::new(Code::INVALID_CONFIG, why)).as_ref())
    }

    #[test]
    fn why_an_add_failed_outlives_the_del_that_follows_it() {
        let reports = Reports::default();
        reports.keep(told("ADD", "a", Some("no such network")));
        reports.keep(told("DEL", "a", None));
        assert_eq!(reports.failed().len(), 1);
        // Until the next ADD; then the DEL is the end.
        reports.keep(told("ADD", "b", None));
        assert!(reports.failed().is_empty() && reports.of("default", "web").is_some());
        reports.keep(told("DEL", "a", None));
        assert!(reports.of("default", "web").is_some(), "another sandbox's DEL");
        reports.keep(told("DEL", "b", Some("busy")));
        assert_eq!(reports.failed().len(), 1);
        reports.keep(told("DEL", "b", None));
        assert!(reports.of("default", "web").is_none());
        // A DEL that fails hides it no more than one that succeeds.
        let add = || reports.of("default", "web").and_then(Report::into_failed_add).and_then(|add| add.error).map(|e| e.msg);
        reports.keep(told("ADD", "c", Some("no address left")));
        for error in [Some("busy"), Some("busy still"), None, None] {
            reports.keep(told("DEL", "c", error));
            assert_eq!(add().as_deref(), Some("no address left"), "{error:?}");
        }
    }
}
