//! What is asked of us, and whether this run shows it.

use crate::crowd::Crowd;
use crate::network::{Network, Verb};
use crate::rounds::Figure;
use crate::scale::{HELD, Scale};
use crate::table::ratios;

/// One goal.
#[derive(Debug)]
pub(crate) struct Goal {
    what: String,
    bound: f64,
    /// Whether more is better.
    at_least: bool,
    found: f64,
}

/// All goals that this run says something of.
pub(crate) fn of(figures: &[Figure], crowds: &[Crowd], scales: &[Scale]) -> Vec<Goal> {
    let found = |network, verb| figures.iter().find(|f| f.network == network && f.verb == verb).map(|f| ratios(&f.spreads));
    let mut goals = Vec::new();
    let mut goal = |what: &str, at_least, bound, found: Option<f64>| {
        goals.extend(found.map(|found| Goal { what: what.to_owned(), bound, at_least, found }));
    };
    goal("ADD: times faster than the reference", true, 6.0, found(Network::Bridge, Verb::Add).map(|r| r.0));
    goal("VERSION: times faster than the reference", true, 5.0, found(Network::Bridge, Verb::Version).map(|r| r.0));
    goal("ADD of a pod, by the floor's", false, 2.5, found(Network::Pod, Verb::Add).map(|r| r.1));
    goal("DEL of a pod, by one deletion of a link group", false, 1.4, found(Network::Pod, Verb::Del).map(|r| r.1));
    for crowd in crowds.iter().filter(|c| c.verb == Verb::Add) {
        if let [ours, _, floor] = crowd.spreads.as_slice() {
            let what = format!("ADDs a second of {} callers, by the floor's", crowd.callers);
            goal(&what, true, 0.7, Some(Crowd::a_second(*ours) / Crowd::a_second(*floor)));
        }
    }
    for scale in scales.iter().filter(|s| s.name == "netloom") {
        let what = format!("{} of an address: growth from {} to {} held", scale.verb.name(), HELD[0], HELD[1]);
        goal(&what, false, 1.3, Some(scale.growth()));
    }
    goals
}

// === impl Goal ===

impl Goal {
    /// What was found must not be more than `bound`.
    pub(crate) fn at_most(what: &str, bound: f64, found: f64) -> Self {
        Goal { what: what.to_owned(), bound, at_least: false, found }
    }

    /// What was found must be `bound` or more.
    pub(crate) fn at_least(what: &str, bound: f64, found: f64) -> Self {
        Goal { what: what.to_owned(), bound, at_least: true, found }
    }

    pub(crate) fn is_met(&self) -> bool {
        if self.at_least { self.found >= self.bound } else { self.found <= self.bound }
    }

    pub(crate) fn line(&self) -> String {
        let (bound, verdict) = (if self.at_least { "at least" } else { "at most" }, if self.is_met() { "met" } else { "MISSED" });
        format!("{:52} {bound:>8} {:>5.1} {:>8.2}   {verdict}\n", self.what, self.bound, self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_from_its_side() {
        let goal = |at_least, found| Goal { what: String::new(), bound: 6.0, at_least, found };
        assert!(goal(true, 6.0).is_met() && goal(true, 7.0).is_met() && !goal(true, 5.9).is_met());
        assert!(goal(false, 6.0).is_met() && !goal(false, 6.1).is_met() && !goal(false, f64::NAN).is_met());
        assert!(goal(true, 5.0).line().ends_with("MISSED\n"));
    }
}
