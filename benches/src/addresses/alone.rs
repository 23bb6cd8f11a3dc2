//! Each call is a process.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::held::take;
use super::{HELD, Place, SUBNET};
use crate::figures::Spread;
use crate::namespace::Namespace;
use crate::network::Verb;
use crate::options::Options;
use crate::scale;
use crate::side::plugin_job;

/// At most so many rounds: the reference reads every file in each.
pub(super) const ROUNDS: usize = 20;

const VERBS: [Verb; 2] = [Verb::Add, Verb::Del];

/// One verb of one implementation.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) verb: Verb,
    /// With each number of addresses held.
    pub(super) spreads: Vec<Spread>,
}

/// `pool` by `netloom-cni`, and the reference `host-local`.
pub(super) fn run(options: &Options, installed: &Path, scratch: &Path, rounds: usize, tell: &mut dyn FnMut(usize)) -> Result<Vec<Row>> {
    let container = Namespace::make("pool")?;
    let mut jobs = Vec::new();
    for held in HELD {
        let place = Place::make(&scratch.join(format!("alone-{held}")), "cidr", SUBNET)?;
        take(&place.open()?, 0, held, 64)?;
        jobs.push(("netloom", VERBS.map(|verb| plugin_job(installed, "pool", verb, &container, "eth0", &place.config()))));
    }
    for held in HELD {
        let config = scale::filled(&scratch.join(format!("alone-reference-{held}")), held)?;
        let job = |verb| plugin_job(&options.peers, "host-local", verb, &container, "eth0", &config);
        jobs.push(("reference", VERBS.map(job)));
    }
    let mut times = vec![[Vec::new(), Vec::new()]; jobs.len()];
    for round in 0..rounds + 2 {
        for ((_, jobs), times) in jobs.iter().zip(&mut times) {
            for ((job, verb), times) in jobs.iter().zip(VERBS).zip(times) {
                let time = job.run(verb)?;
                if round >= 2 {
                    times.push(time);
                }
            }
        }
        tell(round);
    }
    let mut rows = Vec::new();
    for (jobs, times) in jobs.chunks(HELD.len()).zip(times.chunks(HELD.len())) {
        let Some((name, _)) = jobs.first() else { continue };
        for (at, verb) in VERBS.into_iter().enumerate() {
            let of_verb = |times: &[Vec<Duration>; 2]| times.get(at).cloned().map(Spread::of);
            rows.push(Row { name, verb, spreads: times.iter().filter_map(of_verb).collect() });
        }
    }
    Ok(rows)
}

// === impl Row ===

impl Row {
    /// How many times as long it takes with the most as with the fewest.
    pub(super) fn growth(&self) -> f64 {
        match self.spreads.as_slice() {
            [few, .., many] => few.ratio(*many),
            _ => f64::NAN,
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "side": self.name, "verb": self.verb.name(), "held": HELD,
            "times": self.spreads.iter().map(|s: &Spread| s.json()).collect::<Vec<_>>(),
        })
    }
}
