//! How often the API server is written to: at once while there is little to say, once a second when there is much.

use std::time::{Duration, Instant};

/// So many writes may follow each other at once.
const BURST: u32 = 3;
/// One more after this time.
const EVERY: Duration = Duration::from_secs(1);
/// Between attempts after a failure, at the least and at the most.
const AFTER_FAILURE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A bucket of writes.
#[derive(Debug)]
pub(super) struct Pace {
    tokens: u32,
    filled: Instant,
    failures: u32,
    not_before: Instant,
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Pace { tokens: BURST, filled: now, failures: 0, not_before: now }
    }

    /// Takes a turn, or says how long to wait for one.
    pub(super) fn turn(&mut self, now: Instant) -> Result<(), Duration> {
        if now < self.not_before {
            return Err(self.not_before - now);
        }
        while self.tokens < BURST && now.duration_since(self.filled) >= EVERY {
            self.tokens += 1;
            self.filled += EVERY;
        }
        if self.tokens == BURST {
            self.filled = now;
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                Ok(())
            }
            None => Err((self.filled + EVERY).saturating_duration_since(now)),
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    pub(super) fn failed(&mut self, now: Instant) {
        let (least, most) = AFTER_FAILURE;
        self.not_before = now + least.saturating_mul(1 << self.failures.min(5)).min(most);
        self.failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_at_once_and_then_one_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert!((0..3).all(|_| pace.turn(start).is_ok()));
        assert_eq!(pace.turn(start), Err(EVERY));
        assert_eq!(pace.turn(start + EVERY), Ok(()));
        assert_eq!(pace.turn(start + EVERY * 3 / 2), Err(EVERY / 2));
        let later = start + EVERY * 60;
        assert!((0..3).all(|_| pace.turn(later).is_ok()) && pace.turn(later).is_err());
        pace.failed(later);
        assert_eq!(pace.turn(later + EVERY / 2), Err(EVERY / 2));
        (0..9).for_each(|_| pace.failed(later));
        assert_eq!(pace.turn(later), Err(Duration::from_secs(30)));
    }
}
