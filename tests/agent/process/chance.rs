//! Chance, of which a test says where it began; and how long a test is wanted to be.

use std::time::{Duration, SystemTime};

/// The N of `NETLOOM_SOAK=N`; 0 in a normal run.
pub(crate) fn soak() -> u64 {
    std::env::var("NETLOOM_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// Numbers that look as if by chance (xorshift64).
pub(crate) struct Chance(u64);

// === impl Chance ===

impl Chance {
    /// Begins where `NETLOOM_SEED` says, else anywhere.
    pub(crate) fn new(test: &str) -> Self {
        let any = || u64::from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos());
        let seed: u64 = std::env::var("NETLOOM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(any);
        eprintln!("{test}: NETLOOM_SEED={seed}");
        Chance(seed.max(1))
    }

    /// Another one, for another thread.
    pub(crate) fn split(&mut self) -> Self {
        Chance(self.below(u64::MAX - 1) + 1)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// A time below this one.
    pub(crate) fn time(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(limit.as_micros()).unwrap()))
    }
}
