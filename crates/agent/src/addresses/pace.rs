//! How often the API server is written to: at once while there is little to say or a pod waits, once a second when there is much.

use std::time::{Duration, Instant};

/// How many writes may follow each other at once, and how long it takes until there may be one more.
#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: u32,
    every: Duration,
}

/// What nobody waits for.
const CALM: Rate = Rate { burst: 3, every: Duration::from_secs(1) };
/// What pods wait for. Their waits are gathered before, and each write brings more addresses than the one before.
const URGENT: Rate = Rate { burst: 20, every: Duration::from_millis(50) };
/// Between attempts after a failure, at the least and at the most.
const AFTER_FAILURE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// When this node's status may be written.
#[derive(Debug)]
pub(super) struct Pace {
    calm: Bucket,
    urgent: Bucket,
    failures: u32,
    not_before: Instant,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    tokens: u32,
    filled: Instant,
}

// === impl Bucket ===

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Bucket { rate, tokens: rate.burst, filled: now }
    }

    /// Takes a turn, or says how long to wait for one.
    fn turn(&mut self, now: Instant) -> Result<(), Duration> {
        let Rate { burst, every } = self.rate;
        while self.tokens < burst && now.duration_since(self.filled) >= every {
            self.tokens += 1;
            self.filled += every;
        }
        if self.tokens == burst {
            self.filled = now;
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                Ok(())
            }
            None => Err((self.filled + every).saturating_duration_since(now)),
        }
    }
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Pace { calm: Bucket::new(CALM, now), urgent: Bucket::new(URGENT, now), failures: 0, not_before: now }
    }

    /// Takes a turn, or says how long to wait for one. `is_urgent`: pods wait for what is to be written.
    pub(super) fn turn(&mut self, is_urgent: bool, now: Instant) -> Result<(), Duration> {
        if now < self.not_before {
            return Err(self.not_before - now);
        }
        let bucket = if is_urgent { &mut self.urgent } else { &mut self.calm };
        bucket.turn(now)
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// A write has failed. `within`: how soon it is to be tried again at the latest, where somebody waits for that.
    pub(super) fn failed(&mut self, now: Instant, within: Option<Duration>) {
        let (least, most) = AFTER_FAILURE;
        let most = within.unwrap_or(most).min(most);
        self.not_before = now + least.saturating_mul(1 << self.failures.min(5)).min(most);
        self.failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_at_once_and_then_one_a_second() {
        let (start, every) = (Instant::now(), CALM.every);
        let mut pace = Pace::new(start);
        assert!((0..3).all(|_| pace.turn(false, start).is_ok()));
        assert_eq!(pace.turn(false, start), Err(every));
        assert_eq!(pace.turn(false, start + every), Ok(()));
        assert_eq!(pace.turn(false, start + every * 3 / 2), Err(every / 2));
        let later = start + every * 60;
        assert!((0..3).all(|_| pace.turn(false, later).is_ok()) && pace.turn(false, later).is_err());
        pace.failed(later, None);
        assert_eq!(pace.turn(false, later + every / 2), Err(every / 2));
        (0..9).for_each(|_| pace.failed(later, None));
        assert_eq!(pace.turn(true, later), Err(Duration::from_secs(30)), "a server that fails is spared also where pods wait");
        pace.failed(later, Some(Duration::from_secs(2)));
        assert_eq!(pace.turn(true, later), Err(Duration::from_secs(2)), "and not where an agent counts as dead that says nothing");
    }

    #[test]
    fn what_pods_wait_for_is_written_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert!((0..3).all(|_| pace.turn(false, start).is_ok()) && pace.turn(false, start).is_err());
        assert!((0..20).all(|_| pace.turn(true, start).is_ok()));
        assert_eq!(pace.turn(true, start), Err(URGENT.every));
        assert_eq!(pace.turn(true, start + URGENT.every), Ok(()));
    }
}
