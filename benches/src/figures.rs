//! Times into figures.

use std::time::Duration;

use serde_json::{Value, json};

/// What is told of many times of the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spread {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

// === impl Spread ===

impl Spread {
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        // The nearest rank: a time that was really measured, also of few rounds.
        let rank = |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default();
        Spread { p50: rank(50), p99: rank(99) }
    }

    /// How many times as long the other one takes, by the medians.
    pub(crate) fn ratio(self, other: Spread) -> f64 {
        other.p50.as_secs_f64() / self.p50.as_secs_f64()
    }

    pub(crate) fn json(&self) -> Value {
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        json!({"p50_us": micros(self.p50), "p99_us": micros(self.p99)})
    }
}

/// A time in milliseconds, for a table.
pub(crate) fn ms(d: Duration) -> String {
    format!("{:.2}", d.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(list: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        list.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_measured_times_of_the_nearest_rank() {
        let spread = Spread::of(ms((1..=200).rev()));
        assert_eq!((spread.p50, spread.p99), (Duration::from_millis(100), Duration::from_millis(198)));
        let one = Spread::of(ms([7]));
        assert_eq!((one.p50, one.p99), (Duration::from_millis(7), Duration::from_millis(7)));
    }

    #[test]
    fn the_ratio_is_of_the_medians() {
        let (ours, theirs) = (Spread::of(ms([2, 2, 90])), Spread::of(ms([10, 30, 11])));
        assert!((ours.ratio(theirs) - 5.5).abs() < 1e-9);
    }
}
