//! Times into figures, figures into a table and into JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::side::Verb;

/// What is told of one side's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spread {
    p50: Duration,
    p99: Duration,
}

/// One verb on both sides.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    verb: Verb,
    ours: Spread,
    reference: Spread,
}

// === impl Spread ===

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        // The nearest rank: a time that was really measured, also of few rounds.
        let rank = |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default();
        Spread { p50: rank(50), p99: rank(99) }
    }

    fn json(&self) -> Value {
        json!({"p50_us": micros(self.p50), "p99_us": micros(self.p99)})
    }
}

// === impl Figures ===

impl Figures {
    pub(crate) fn new(verb: Verb, ours: Vec<Duration>, reference: Vec<Duration>) -> Self {
        Figures { verb, ours: Spread::of(ours), reference: Spread::of(reference) }
    }

    /// How many times as long the reference takes, by the medians.
    fn ratio(&self) -> f64 {
        self.reference.p50.as_secs_f64() / self.ours.p50.as_secs_f64()
    }
}

/// Times in milliseconds.
pub(crate) fn table(figures: &[Figures]) -> String {
    let row = |cells: [&str; 6]| {
        let [verb, a, b, c, d, ratio] = cells;
        format!("{verb:<24} {a:>9} {b:>9}   {c:>9} {d:>9}   {ratio:>7}\n")
    };
    let mut text = format!("{:<24} {:^19}   {:^19}\n", "bridge + host-local", "netloom", "reference v1.9.1");
    text += &row(["one process, ms", "p50", "p99", "p50", "p99", "ratio"]);
    for f in figures {
        let ms = |d: Duration| format!("{:.2}", d.as_secs_f64() * 1e3);
        let [a, b, c, d] = [f.ours.p50, f.ours.p99, f.reference.p50, f.reference.p99].map(ms);
        text += &row([f.verb.name(), &a, &b, &c, &d, &format!("{:.1}x", f.ratio())]);
    }
    text
}

/// Everything that the terminal shows, for a program. Times in microseconds.
pub(crate) fn report(machine: &Machine, rounds: usize, figures: &[Figures]) -> Value {
    let verb = |f: &Figures| {
        json!({
            "network": "bridge + host-local", "verb": f.verb.name(), "netloom": f.ours.json(), "reference": f.reference.json(),
            "ratio": (f.ratio() * 100.0).round() / 100.0,
        })
    };
    json!({"machine": machine.json(), "rounds": rounds, "reference": "v1.9.1", "figures": figures.iter().map(verb).collect::<Vec<_>>()})
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
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
        let figures = Figures::new(Verb::Add, ms([2, 2, 90]), ms([10, 30, 11]));
        assert!((figures.ratio() - 5.5).abs() < 1e-9);
        let text = table(&[figures]);
        let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["ADD", "2.00", "90.00", "11.00", "30.00", "5.5x"]);
    }
}
