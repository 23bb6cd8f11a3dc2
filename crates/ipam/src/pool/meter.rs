//! How long it took, counted: for whoever shows figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of the classes, in microseconds; the last class has none.
pub const CLASSES: [u64; 14] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 5_000_000, 10_000_000, 30_000_000];

/// Times, counted by class.
#[derive(Debug, Default)]
pub struct Times {
    classes: [AtomicU64; CLASSES.len() + 1],
    micros: AtomicU64,
}

/// What a store has counted since it was opened.
#[derive(Debug, Default)]
pub struct Meters {
    /// Calls that were granted what they asked for, from the call to the disk.
    pub granted: Times,
    /// Calls that were not.
    pub refused: Times,
    /// What of that was waiting for others who look at the store or change it.
    pub locked: Times,
    /// What of it was waiting for addresses.
    pub waited: Times,
    /// What of it was waiting for the disk.
    pub flushed: Times,
    /// From when this node needed more of its cluster's pools than it had, until it had that.
    pub refilled: Times,
    /// How often another machine had an address that was to be set.
    pub conflicts: AtomicU64,
    /// Leases that were given back although nobody had detached them.
    pub collected: Collected,
}

/// Leases that nobody had detached, by how that was found out.
#[derive(Debug, Default)]
pub struct Collected {
    /// The machine has started since.
    pub restart: AtomicU64,
    /// The runtime's GC names others.
    pub gc: AtomicU64,
    /// Neither this host nor any namespace knows of them.
    pub orphan: AtomicU64,
}

// === impl Times ===

impl Times {
    /// One more.
    pub fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let class = CLASSES.partition_point(|end| *end < micros);
        if let Some(class) = self.classes.get(class) {
            class.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How many took at most so many microseconds, by [`CLASSES`] and then all; and all of them together, in microseconds.
    #[must_use]
    pub fn read(&self) -> (Vec<u64>, u64) {
        let mut sum = 0;
        let upto = self.classes.iter().map(|class| {
            sum += class.load(Ordering::Relaxed);
            sum
        });
        (upto.collect(), self.micros.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_by_class() {
        let times = Times::default();
        [50, 51, 400, 60_000_000].iter().for_each(|micros| times.add(Duration::from_micros(*micros)));
        let (upto, micros) = times.read();
        assert_eq!((upto[0], upto[1], upto[3], upto[13], upto[14], micros), (1, 2, 3, 3, 4, 60_000_501));
    }
}
