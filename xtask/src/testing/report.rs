//! What is printed: a line for each process that has ended, what failed in full, and at the end the sum and how to repeat what failed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::job::Task;

/// What came of one process.
pub(super) struct Outcome {
    suite: &'static str,
    label: String,
    ok: bool,
    passed: usize,
    ignored: usize,
    failed: Vec<String>,
    output: String,
    took: Duration,
    /// Whether what failed passed when it was repeated alone.
    unsteady: bool,
}

/// What came of all of them.
pub(super) struct Report {
    filters: Vec<String>,
    outcomes: Vec<(Task, Outcome)>,
}

impl Outcome {
    /// Reads libtest's output where it is that.
    pub(super) fn of(suite: &'static str, label: &str, is_libtest: bool, ok: bool, output: String, took: Duration) -> Self {
        let (mut passed, mut ignored) = (0, 0);
        let mut failed = Vec::new();
        for line in output.lines().filter(|_| is_libtest) {
            if let Some(counts) = line.strip_prefix("test result: ") {
                passed += count(counts, " passed");
                ignored += count(counts, " ignored");
            } else if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
                failed.push(name.to_owned());
            }
        }
        Outcome { suite, label: label.to_owned(), ok, passed, ignored, failed, output, took, unsteady: false }
    }

    /// The tests that failed. None where something else went wrong: the process was ended, say.
    pub(super) fn failed(&self) -> &[String] {
        &self.failed
    }

    /// How many tests passed.
    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    /// What failed has passed when it was repeated alone: that is reported, and does not fail the run.
    pub(super) fn passed_alone(&mut self) {
        self.unsteady = true;
    }

    fn is_bad(&self) -> bool {
        !self.ok && !self.unsteady
    }

    /// What failed, without the lines of what passed.
    fn told(&self) -> String {
        let noise = |line: &&str| {
            !(line.starts_with("test ") && (line.ends_with("... ok") || line.contains("... ignored")) || line.starts_with("running "))
        };
        self.output.lines().filter(noise).collect::<Vec<_>>().join("\n")
    }
}

/// The number before a word.
fn count(counts: &str, word: &str) -> usize {
    let before = counts.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// A time of day's length: `0.4 s`, `96.5 s`, `12 min 5 s`.
pub(super) fn time(took: Duration) -> String {
    match took.as_secs() {
        0..120 => format!("{:.1} s", took.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

impl Report {
    pub(super) fn new(filters: &[String]) -> Self {
        Report { filters: filters.to_vec(), outcomes: Vec::new() }
    }

    /// Prints a line, and what failed. With filters an executable that has none of the tests says nothing.
    pub(super) fn add(&mut self, task: Task, outcome: Outcome) {
        let nothing = outcome.ok && outcome.passed == 0 && outcome.ignored == 0;
        if !nothing || self.filters.is_empty() && outcome.suite != "units" {
            let mut counts = Vec::new();
            if outcome.passed > 0 {
                counts.push(format!("{} passed", outcome.passed));
            }
            if !outcome.failed.is_empty() {
                counts.push(format!("{} failed", outcome.failed.len()));
            }
            if outcome.ignored > 0 {
                counts.push(format!("{} elsewhere", outcome.ignored));
            }
            let verdict = if outcome.ok { "ok" } else { "FAILED" };
            let line =
                format!("{verdict:<6} {:<12} {:<28} {:>12}  {}", outcome.suite, outcome.label, time(outcome.took), counts.join(", "));
            println!("{}", line.trim_end());
            if !outcome.ok {
                println!("{}\n", outcome.told());
            }
        }
        self.outcomes.push((task, outcome));
    }

    /// What failed, of everything that was run.
    pub(super) fn failures(&mut self) -> impl Iterator<Item = (&Task, &mut Outcome)> {
        self.outcomes.iter_mut().filter(|(_, outcome)| !outcome.ok).map(|(task, outcome)| (&*task, outcome))
    }

    /// Whether nothing failed, and something was run: with filters at least one test.
    pub(super) fn passed(&self) -> bool {
        !self.outcomes.iter().any(|(_, outcome)| outcome.is_bad()) && !self.outcomes.is_empty() && !self.missed()
    }

    /// Whether no test was run that the filters match.
    fn missed(&self) -> bool {
        let ran = |(_, outcome): &(Task, Outcome)| outcome.passed > 0 || !outcome.failed.is_empty();
        !self.filters.is_empty() && !self.outcomes.iter().any(ran)
    }

    /// The sum, by suite and of all, and how to repeat what failed.
    pub(super) fn print_sum(&self, took: Duration) {
        let mut suites: BTreeMap<&str, (usize, usize, Duration, bool)> = BTreeMap::new();
        for (_, outcome) in &self.outcomes {
            let sum = suites.entry(outcome.suite).or_insert((0, 0, Duration::ZERO, true));
            *sum = (sum.0 + outcome.passed, sum.1 + outcome.failed.len(), sum.2 + outcome.took, sum.3 && !outcome.is_bad());
        }
        println!("\n{:<12} {:>7} {:>7} {:>14}", "suite", "passed", "failed", "time");
        for (suite, (passed, failed, time_of, ok)) in &suites {
            println!("{suite:<12} {passed:>7} {failed:>7} {:>14}{}", time(*time_of), if *ok { "" } else { "  FAILED" });
        }
        let sum = |of: fn(&(usize, usize, Duration, bool)) -> usize| suites.values().map(of).sum::<usize>();
        println!("{} passed, {} failed in {}", sum(|s| s.0), sum(|s| s.1), time(took));
        if self.missed() {
            println!("failed: no test that these suites run has a name with one of these words: {}", self.filters.join(" "));
        }
        for (_, outcome) in self.outcomes.iter().filter(|(_, outcome)| !outcome.ok) {
            let verdict = if outcome.unsteady { "unsteady, failed beside others and passed alone" } else { "failed" };
            println!("{verdict}: {} {}", outcome.suite, outcome.label);
            let names = outcome.failed.join(" ");
            println!("   again: cargo xtask test {} {names}", outcome.suite);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest a::d ... ignored, needs Kubernetes\n\nfailures:\n\n\
        ---- a::c stdout ----\nwhy\n\ntest result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";

    #[test]
    fn libtests_output_is_counted_and_cut_to_what_failed() {
        let outcome = Outcome::of("s", "l", true, false, OUTPUT.to_owned(), Duration::ZERO);
        assert_eq!((outcome.passed, outcome.ignored, outcome.failed.as_slice()), (1, 1, ["a::c".to_owned()].as_slice()));
        let told = outcome.told();
        assert!(told.contains("why") && !told.contains("a::b") && !told.contains("a::d"), "{told}");
    }

    #[test]
    fn times_have_units() {
        assert_eq!([time(Duration::from_millis(400)), time(Duration::from_secs(725))], ["0.4 s", "12 min 5 s"]);
    }
}
