//! Ports that are not ACTIVE: when each of them is looked at.
//!
//! A port is looked at after a second, and the more seldom the longer it waits. Ports whose turn would come soon go with those whose turn it is: one
//! list is for a hundred ports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// How often a port is looked at: at first, and at the least.
const POLL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// Such ports, by ID.
#[derive(Debug, Default)]
pub(super) struct Waiting(BTreeMap<String, Turn>);

#[derive(Debug, Clone, Copy)]
struct Turn {
    since: Instant,
    next: Instant,
}

// === impl Waiting ===

impl Waiting {
    /// These ports wait now, and no others.
    pub(super) fn watch(&mut self, ids: &BTreeSet<String>, now: Instant) {
        self.0.retain(|id, _| ids.contains(id));
        for id in ids {
            if !self.0.contains_key(id) {
                self.0.insert(id.clone(), Turn { since: now, next: now + POLL.0 });
            }
        }
    }

    pub(super) fn since(&self, id: &str) -> Option<Instant> {
        self.0.get(id).map(|turn| turn.since)
    }

    /// When the next one is looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|turn| turn.next).min()
    }

    /// Those that are looked at now; none where it is nobody's turn.
    pub(super) fn due(&mut self, now: Instant) -> Vec<String> {
        if self.next().is_none_or(|next| next > now) {
            return Vec::new();
        }
        let pause = |turn: &Turn| (now.duration_since(turn.since) / 4).clamp(POLL.0, POLL.1);
        let due = self.0.iter_mut().filter(|(_, turn)| turn.next <= now + pause(turn) / 2);
        let due = due.map(|(id, turn)| {
            turn.next = now + pause(turn);
            id.clone()
        });
        due.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn an_old_port_is_looked_at_more_seldom_than_a_young_one() {
        let (start, mut waiting) = (Instant::now(), Waiting::default());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        waiting.watch(&ids(&["old"]), start);
        assert!(waiting.due(start).is_empty() && waiting.next() == Some(at(1)));
        let mut looks = 0;
        for second in 1..=600 {
            looks += waiting.due(at(second)).len();
        }
        assert!((40..80).contains(&looks), "{looks} looks in ten minutes");
        // Young ones come every few seconds from here on.
        let (mut old, mut young) = (0, 0);
        for second in 601..=660 {
            let name = format!("young-{}", second / 3);
            waiting.watch(&ids(&["old", &name]), at(second));
            for id in waiting.due(at(second)) {
                if id == "old" { old += 1 } else { young += 1 }
            }
        }
        assert!(old <= 10 && young >= 18, "{old} of the old one, {young} of young ones");
        waiting.watch(&ids(&[]), at(700));
        assert_eq!(waiting.next(), None);
    }

    #[test]
    fn ports_of_about_the_same_age_are_looked_at_together() {
        let (start, mut waiting) = (Instant::now(), Waiting::default());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let names: Vec<String> = (0..30).map(|n| format!("p{n:02}")).collect();
        let mut requests = 0;
        for second in 0..=300 {
            let there: BTreeSet<String> = names.iter().take(usize::try_from(second).unwrap_or(30) + 1).cloned().collect();
            waiting.watch(&there, at(second));
            requests += usize::from(!waiting.due(at(second)).is_empty());
        }
        assert!(requests < 100, "{requests} requests in five minutes");
    }
}
