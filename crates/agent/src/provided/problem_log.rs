//! What is wrong is told once, and so is its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::log::Line;

/// What passes by itself within this time is told to nobody: a Node that is being registered has no address yet.
const PASSING: Duration = Duration::from_secs(3);

/// What is wrong, since when, and whether it was told.
#[derive(Debug, Default)]
pub(crate) struct ProblemLog {
    holds: BTreeMap<String, (Instant, bool)>,
}

// === impl ProblemLog ===

impl ProblemLog {
    /// Takes what is wrong now; logs what has been so for a while, and what is over that was told. What is told now, and how long until
    /// more may be.
    pub(crate) fn take(&mut self, wrong: BTreeSet<String>, now: Instant) -> (Vec<String>, Option<Duration>) {
        let is_over = |what: &String, (_, was_told): &mut (Instant, bool)| {
            let is_over = !wrong.contains(what);
            if is_over && *was_told {
                Line::info("cluster network").with("solved", what).end();
            }
            is_over
        };
        self.holds.retain(|what, state| !is_over(what, state));
        for what in wrong {
            self.holds.entry(what).or_insert((now, false));
        }
        let (mut told, mut next) = (Vec::new(), None);
        for (what, (since, was_told)) in self.holds.iter_mut().filter(|(_, (_, was_told))| !was_told) {
            let left = (*since + PASSING).saturating_duration_since(now);
            if left.is_zero() {
                Line::warn("cluster network").with("what", what).end();
                told.push(what.clone());
                *was_told = true;
            } else {
                next = Some(next.map_or(left, |next: Duration| next.min(left)));
            }
        }
        (told, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_told_once_and_what_passes_is_not() {
        let (mut told, start) = (ProblemLog::default(), Instant::now());
        let mut take = |texts: &[&str], seconds: u64| {
            told.take(texts.iter().map(|text| (*text).to_owned()).collect(), start + Duration::from_secs(seconds))
        };
        assert_eq!(take(&["a", "b"], 0), (vec![], Some(PASSING)));
        assert_eq!(take(&["b"], 1), (vec![], Some(Duration::from_secs(2))));
        assert_eq!(take(&["b", "c"], 3), (vec!["b".to_owned()], Some(PASSING)));
        assert_eq!(take(&["b", "c"], 9), (vec!["c".to_owned()], None));
        assert_eq!(take(&["a"], 10).0, [""; 0], "anew, after it was solved");
        assert_eq!(take(&["a"], 20).0, ["a"]);
    }
}
