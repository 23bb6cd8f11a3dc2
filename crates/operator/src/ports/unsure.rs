//! Ports of requests without an answer: whether they were made, a list by their tags tells; a list that came too early tells nothing.
//!
//! ```text
//!   POST --no answer--> unsure --list: it is there--> known
//!                              --list: it is not there--> again, until Neutron cannot be at work on it any more --> made again
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use binding::Key;
use tokio::time::Instant;

/// The first pause between two lists and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Such ports.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    keys: BTreeMap<Key, Doubt>,
    /// Lists that have told nothing.
    lists: u32,
    next: Option<Instant>,
    began: Option<Instant>,
}

#[derive(Debug)]
struct Doubt {
    /// Until then Neutron may still make it.
    until: Instant,
    /// Whether the list on its way began after it.
    is_listed: bool,
}

// === impl Unsure ===

impl Unsure {
    /// A request has ended without an answer. What may be made after it was, may be until `until`.
    pub(super) fn add(&mut self, keys: impl IntoIterator<Item = Key>, until: Instant, now: Instant) {
        self.keys.extend(keys.into_iter().map(|key| (key, Doubt { until, is_listed: false })));
        (self.lists, self.next) = (0, Some(now));
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.keys()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// When a list is needed.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.filter(|_| !self.keys.is_empty())
    }

    /// A list begins.
    pub(super) fn list_begins(&mut self, now: Instant) {
        self.keys.values_mut().for_each(|doubt| doubt.is_listed = true);
        self.began = Some(now);
    }

    /// It has come: of what is there, and of what cannot come any more, all is known.
    pub(super) fn listed(&mut self, is_there: impl Fn(&Key) -> bool, now: Instant) {
        let Some(began) = self.began.take() else { return };
        self.keys.retain(|key, doubt| !doubt.is_listed || !(is_there(key) || doubt.until <= began));
        self.lists += 1;
        let pause = PAUSES.0.saturating_mul(1 << self.lists.min(16)).min(PAUSES.1);
        let ends = self.keys.values().map(|doubt| doubt.until).min();
        // The list at the end is the one that tells for certain.
        self.next = ends.map(|end| (now + pause).min(end.max(now + PAUSES.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_comes_too_early_tells_nothing() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let key = |n: usize| ("pod".to_owned(), n);
        let mut unsure = Unsure::default();
        unsure.add([key(1), key(2)], at(60), start);
        unsure.add([key(3)], start, start);
        assert_eq!(unsure.next(), Some(start));
        unsure.list_begins(at(1));
        unsure.add([key(4)], at(61), at(1));
        unsure.listed(|key| key.1 == 2, at(2));
        assert_eq!(
            unsure.keys().map(|key| key.1).collect::<Vec<_>>(),
            [1, 4],
            "2 is there, 3 cannot come any more, 4 is younger than the list"
        );
        let mut lists = 0;
        while let Some(next) = unsure.next() {
            assert!(lists < 20 && next > at(2));
            unsure.list_begins(next);
            unsure.listed(|_| false, next);
            lists += 1;
        }
        assert!(unsure.is_empty() && lists > 2, "{lists}");
        unsure.listed(|_| true, at(99));
    }
}
