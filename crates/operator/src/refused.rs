//! Writes that the server refuses: one that it will never take must not keep the others waiting, nor the audit.
//!
//! An object may have become too large, or somebody's admission rule may be against it. It is tried again after a pause of its own,
//! which grows.

use std::collections::{BTreeMap, BTreeSet};

use ledger::Write;
use tokio::time::{Duration, Instant};

/// The shortest and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Verb, kind and name.
type Key = (&'static str, &'static str, String);

/// What was refused, and when it is tried again.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    all: BTreeMap<Key, (Instant, Duration)>,
}

// === impl Refused ===

impl Refused {
    /// Of these writes those that are to be tried. What is not to be written any more is forgotten.
    pub(crate) fn due(&mut self, writes: Vec<Write>) -> Vec<Write> {
        if self.all.is_empty() {
            return writes;
        }
        let wanted: BTreeSet<Key> = writes.iter().map(key).collect();
        self.all.retain(|key, _| wanted.contains(key));
        let now = Instant::now();
        let early = |write: &Write| self.all.get(&key(write)).is_some_and(|(at, _)| *at > now);
        writes.into_iter().filter(|write| !early(write)).collect()
    }

    /// The server has refused it.
    pub(crate) fn put(&mut self, write: &Write) {
        let pause = self.all.get(&key(write)).map_or(PAUSES.0, |(_, pause)| (*pause * 2).min(PAUSES.1));
        self.all.insert(key(write), (Instant::now() + pause, pause));
    }

    /// The server has taken it.
    pub(crate) fn clear(&mut self, write: &Write) {
        if !self.all.is_empty() {
            self.all.remove(&key(write));
        }
    }

    /// When the first of them is to be tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.all.values().map(|(at, _)| *at).min()
    }

    /// Somebody else writes now.
    pub(crate) fn forget(&mut self) {
        self.all.clear();
    }
}

fn key(write: &Write) -> Key {
    let (kind, name) = write.object();
    (write.verb(), kind, name.to_owned())
}
