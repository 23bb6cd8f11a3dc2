//! When what has failed is tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The first pause and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Pauses by what has failed, each twice as long as the one before.
#[derive(Debug)]
pub(super) struct Pace<K>(BTreeMap<K, Pause>);

#[derive(Debug, Clone)]
struct Pause {
    failures: u32,
    until: Instant,
    why: String,
}

// === impl Pace ===

impl<K: Ord + Clone> Pace<K> {
    pub(super) fn new() -> Self {
        Pace(BTreeMap::new())
    }

    /// It has failed.
    pub(super) fn failed(&mut self, key: &K, why: String, now: Instant) {
        let failures = self.0.get(key).map_or(0, |pause| pause.failures);
        let pause = PAUSES.0.saturating_mul(1 << failures.min(16)).min(PAUSES.1);
        self.0.insert(key.clone(), Pause { failures: failures + 1, until: now + pause, why });
    }

    /// It has not.
    pub(super) fn done(&mut self, key: &K) {
        self.0.remove(key);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    pub(super) fn is_paused(&self, key: &K, now: Instant) -> bool {
        self.0.get(key).is_some_and(|pause| pause.until > now)
    }

    /// Why it has failed the last time.
    pub(super) fn why(&self, key: &K) -> Option<&str> {
        self.0.get(key).map(|pause| pause.why.as_str())
    }

    /// Those whose pause lasts.
    pub(super) fn paused(&self, now: Instant) -> impl Iterator<Item = &K> {
        self.0.iter().filter(move |(_, pause)| pause.until > now).map(|(key, _)| key)
    }

    /// Ends the pause of the one that has waited for the longest time, among those.
    pub(super) fn hurry(&mut self, now: Instant, which: impl Fn(&str) -> bool) {
        let waiting = self.0.values_mut().filter(|pause| pause.until > now && which(&pause.why));
        if let Some(pause) = waiting.max_by_key(|pause| pause.failures) {
            pause.until = now;
        }
    }

    /// What has failed the last time, and why.
    pub(super) fn failing(&self) -> impl Iterator<Item = (&K, &str)> {
        self.0.iter().map(|(key, pause)| (key, pause.why.as_str()))
    }

    /// Forgets what nobody has tried again for long: nobody needs it any more.
    pub(super) fn trim(&mut self, now: Instant) {
        self.0.retain(|_, pause| pause.until + PAUSES.1 > now);
    }

    /// When the next pause is over.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.0.values().map(|pause| pause.until).filter(|until| *until > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let (start, mut pace) = (Instant::now(), Pace::new());
        let at = |seconds| start + Duration::from_secs(seconds);
        pace.failed(&"a", "full".to_owned(), start);
        assert!(pace.is_paused(&"a", start) && !pace.is_paused(&"a", at(1)) && !pace.is_paused(&"b", start));
        pace.failed(&"a", "full".to_owned(), at(1));
        assert_eq!((pace.next(at(1)), pace.why(&"a")), (Some(at(3)), Some("full")));
        for _ in 0..40 {
            pace.failed(&"a", "other".to_owned(), start);
        }
        assert_eq!(pace.next(start), Some(at(300)));
        pace.failed(&"b", "full".to_owned(), start);
        pace.hurry(start, |why| why == "full");
        assert_eq!(pace.paused(start).collect::<Vec<_>>(), [&"a"]);
        assert_eq!(pace.failing().collect::<Vec<_>>(), [(&"a", "other"), (&"b", "full")]);
        pace.trim(at(299));
        assert_eq!(pace.failing().count(), 2);
        pace.trim(at(300));
        assert_eq!(pace.failing().map(|(key, _)| *key).collect::<Vec<_>>(), ["a"], "b was not tried again");
        pace.done(&"a");
        assert_eq!(pace.next(start), None);
    }
}
