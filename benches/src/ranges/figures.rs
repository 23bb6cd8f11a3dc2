//! What the passes say.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::plane::Requests;
use crate::figures::{Spread, ms};
use crate::goals::Goal;

/// All pods of a turn.
#[derive(Debug, Clone)]
pub(super) struct Pass {
    pub(super) pods: usize,
    /// Each ADD.
    pub(super) each: Vec<Duration>,
    /// From the first start to the last end.
    pub(super) all: Duration,
    /// Requests for addresses, of agents and operator, that are no watch.
    pub(super) requests: Requests,
    /// Processor time of agents and operator.
    pub(super) computed: Duration,
}

/// All of a run.
pub(super) struct Figures {
    rounds: usize,
    /// What each is called, its passes cold and warm.
    cases: Vec<(&'static str, Vec<Pass>, Vec<Pass>)>,
    /// Ten requests one after another.
    pub(super) theirs: Vec<Duration>,
}

// === impl Pass ===

impl Pass {
    fn a_second(&self) -> f64 {
        self.pods as f64 / self.all.as_secs_f64()
    }
}

/// The middle one, by something of it.
fn median(passes: &[Pass], of: impl Fn(&Pass) -> f64) -> f64 {
    let mut all: Vec<f64> = passes.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn each(passes: &[Pass]) -> Spread {
    Spread::of(passes.iter().flat_map(|pass| pass.each.iter().copied()).collect())
}

fn requests(passes: &[Pass]) -> f64 {
    median(passes, |pass| pass.requests.values().sum::<u64>() as f64 / pass.pods as f64)
}

// === impl Figures ===

impl Figures {
    pub(super) fn new(rounds: usize, cases: impl IntoIterator<Item = &'static str>) -> Self {
        Figures { rounds, cases: cases.into_iter().map(|what| (what, Vec::new(), Vec::new())).collect(), theirs: Vec::new() }
    }

    pub(super) fn keep(&mut self, case: usize, is_cold: bool, pass: Pass) {
        if let Some((_, cold, warm)) = self.cases.get_mut(case) {
            if is_cold { cold.push(pass) } else { warm.push(pass) }
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("a whereabouts range of a cluster, {} rounds; cold: the nodes have no address of it\n", self.rounds);
        let _ = writeln!(
            text,
            "{:24} {:5} {:>9} {:>9} {:>9} {:>13} {:>11}",
            "", "", "ADD p50", "p99 ms", "a second", "requests/ADD", "CPU ms/ADD"
        );
        for (what, cold, warm) in &self.cases {
            for (state, passes) in [("cold", cold), ("warm", warm)] {
                let spread = each(passes);
                let computed = median(passes, |pass| pass.computed.as_secs_f64() * 1e3 / pass.pods as f64);
                let rate = median(passes, Pass::a_second);
                let _ = writeln!(
                    text,
                    "{what:24} {state:5} {:>9} {:>9} {rate:>9.0} {:>13.2} {computed:>11.2}",
                    ms(spread.p50),
                    ms(spread.p99),
                    requests(passes)
                );
            }
        }
        for (what, cold, _) in &self.cases {
            if let Some(last) = cold.last() {
                let all: Vec<String> = last.requests.iter().map(|(what, count)| format!("{count} {what}")).collect();
                let _ = writeln!(text, "{what}, cold, {} pods: {}", last.pods, all.join(", "));
            }
        }
        let theirs = Spread::of(self.theirs.clone());
        let _ = writeln!(text, "{:30} {:>9} {:>9}", "ten requests, as whereabouts", ms(theirs.p50), ms(theirs.p99));
        text
    }

    pub(super) fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (at, (what, cold, warm)) in self.cases.iter().enumerate() {
            goals.push(Goal::at_most(&format!("{what}: requests an ADD, cold"), 0.2, requests(cold)));
            if at == 0 {
                goals.push(Goal::at_most(&format!("{what}: p50 in ms, cold"), 25.0, each(cold).p50.as_secs_f64() * 1e3));
            } else {
                let share = median(cold, Pass::a_second) / median(warm, Pass::a_second);
                goals.push(Goal::at_least(&format!("{what}: cold, of warm"), 0.8, share));
            }
        }
        goals
    }

    pub(super) fn json(&self) -> Value {
        let of = |passes: &[Pass]| {
            json!({
                "add": each(passes).json(), "a_second": median(passes, Pass::a_second), "requests_an_add": requests(passes),
                "computed_us_an_add": median(passes, |pass| pass.computed.as_secs_f64() * 1e6 / pass.pods as f64),
            })
        };
        let cases: Vec<Value> =
            self.cases.iter().map(|(what, cold, warm)| json!({"what": what, "cold": of(cold), "warm": of(warm)})).collect();
        json!({"rounds": self.rounds, "cases": cases, "ten_requests": Spread::of(self.theirs.clone()).json()})
    }
}
