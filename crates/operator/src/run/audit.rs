//! A look at all that was read, whether it can be as it is.
//!
//! ```text
//!   a step finds something new --> an audit at once: suspected
//!   5 s later                  --> an audit: what was found all the time is so, and told
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use ledger::{Violation, audit};
use tokio::time::Instant;

use super::Operator;
use crate::check::{Pods, named};
use crate::log::Line;

/// What an audit has found is looked at again after this time.
const SUSPECTED: Duration = Duration::from_secs(5);

/// What the last audit found, and since when each was found by every audit. What is found again after a while is so: two watches may be
/// at different times.
#[derive(Debug, Default)]
pub(super) struct Suspected(BTreeMap<Violation, Instant>);

// === impl Suspected ===

impl Suspected {
    /// Takes in what an audit has found; what of it was found for so long.
    fn look(&mut self, found: Vec<Violation>, now: Instant, long: Duration) -> Vec<Violation> {
        let before = std::mem::take(&mut self.0);
        let since = |violation: &Violation| before.get(violation).copied().unwrap_or(now);
        self.0 = found.into_iter().map(|violation| (violation.clone(), since(&violation))).collect();
        self.0.iter().filter(|(_, since)| now.duration_since(**since) >= long).map(|(violation, _)| violation.clone()).collect()
    }

    /// When the next audit is due after the last one: when something was found for so long, and again after that time as long as there is
    /// anything.
    fn next(&self, last: Instant, long: Duration, every: Duration) -> Instant {
        let due = self.0.values().map(|since| *since + long).map(|due| if due > last { due } else { last + long });
        due.min().unwrap_or(last + every)
    }
}

// === impl Operator ===

impl Operator {
    /// When the next audit is due; `None`: now.
    pub(super) fn next_audit(&self) -> Option<Instant> {
        let every = self.options.audit_every;
        self.audited.map(|last| self.suspected.next(last, every.min(SUSPECTED), every))
    }

    /// What a step has found. Whether something is so, and stays so, an audit finds out: now, and in a moment.
    pub(super) fn suspect(&mut self, found: &[Violation]) {
        if found.iter().any(|violation| !self.noticed.contains(violation)) {
            self.audited = None;
        }
        self.noticed = found.to_vec();
    }

    pub(super) async fn audit(&mut self) {
        let now = Instant::now();
        self.audited = Some(now);
        let found = audit(&self.seen.lock().world);
        let found = self.suspected.look(found, now, self.options.audit_every.min(SUSPECTED));
        self.metrics.audited(&found);
        let mut pods = Pods::new();
        for violation in &found {
            let found = named(&self.client, &self.seen, violation, &mut pods).await;
            Line::error("audit").with("found", &found).end();
            if !found.node.is_empty() {
                self.tell_of_node(&found.node, "LedgerViolated", &found.to_string()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that was found later was confirmed by the second audit after it: ten seconds, and not five.
    #[test]
    fn each_violation_is_confirmed_as_soon_as_it_was_found_for_long() {
        let (start, mut suspected) = (Instant::now(), Suspected::default());
        let (of, every) = (|shard: &str| Violation::Unreadable { shard: shard.to_owned() }, Duration::from_secs(60));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(suspected.next(start, SUSPECTED, every), at(60));
        assert_eq!(suspected.look(vec![of("a")], at(0), SUSPECTED), []);
        assert_eq!(suspected.look(vec![of("a"), of("b")], at(4), SUSPECTED), []);
        assert_eq!(suspected.next(at(4), SUSPECTED, every), at(5));
        assert_eq!(suspected.look(vec![of("a"), of("b")], at(5), SUSPECTED), [of("a")]);
        assert_eq!(suspected.next(at(5), SUSPECTED, every), at(9));
        assert_eq!(suspected.look(vec![of("a"), of("b")], at(9), SUSPECTED), [of("a"), of("b")]);
        assert_eq!(suspected.next(at(9), SUSPECTED, every), at(14), "as long as there is anything");
        // What was away meanwhile begins again.
        assert_eq!(suspected.look(vec![of("a")], at(14), SUSPECTED), [of("a")]);
        assert_eq!(suspected.look(vec![of("b")], at(16), SUSPECTED), []);
        assert_eq!((suspected.look(Vec::new(), at(21), SUSPECTED), suspected.next(at(21), SUSPECTED, every)), (Vec::new(), at(81)));
    }
}
