//! Arithmetic with several runs.

use pool::{Family, Run};

/// What is left of runs without others.
#[must_use]
pub fn pieces(of: Vec<Run>, without: &[Run]) -> Vec<Run> {
    without.iter().fold(of, |left, other| left.into_iter().flat_map(|run| run.without(other)).collect())
}

/// The same addresses in order, none of them twice, runs that touch as one.
pub(crate) fn union(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort();
    let mut found: Vec<Run> = Vec::new();
    for run in runs {
        let joined = found.last().and_then(|last| join(last, &run));
        match (joined, found.last_mut()) {
            (Some(joined), Some(last)) => *last = joined,
            _ => found.push(run),
        }
    }
    found
}

/// Two runs as one, where nothing lies between them. The first one begins first.
fn join(a: &Run, b: &Run) -> Option<Run> {
    let ((first, end), (start, last)) = (a.numbers(), b.numbers());
    let touch = a.family() == b.family() && start <= end.saturating_add(1);
    touch.then(|| Run::of_numbers(a.family(), first, end.max(last))).flatten()
}

/// The parts of runs that lie in another one.
pub(crate) fn within(of: &[Run], place: &Run) -> Vec<Run> {
    of.iter().filter_map(|run| run.common(place)).collect()
}

/// How many addresses of a family.
pub(crate) fn count(of: &[Run], family: Family) -> u128 {
    of.iter().filter(|run| run.family() == family).fold(0, |sum, run| sum.saturating_add(run.count()))
}
