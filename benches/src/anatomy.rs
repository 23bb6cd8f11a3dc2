//! Where an ADD's time goes: a build that tells each point it comes by, and when.
//!
//! ```text
//!   start --> point, point, ... --> result printed --> process gone        the time between two boundaries is a stage's
//! ```

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::figures::Spread;
use crate::namespace::Namespace;
use crate::network::{Network, Verb};
use crate::side::Side;

/// What is done until a point is reached for the last time, in order.
const STAGES: &[(&str, &str)] = &[
    ("allocate-unlocked", "the process starts, reads its configuration"),
    ("bridge-addresses-known", "host-local: lock, look, write one file"),
    ("bridge-there", "the bridge is looked at"),
    ("bridge-pair-made", "the pair is made, up, a port of the bridge"),
    ("bridge-pair-quiet", "the host's end takes no router advertisements"),
    ("bridge-gateway-there", "the gateway's address and forwarding are there"),
    ("netns-entered", "the container's namespace is entered"),
    ("address-unset", "its end takes no router advertisements"),
    ("address-set", "address, notice to neighbours, up, a look at it"),
    ("netns-left", "the default route; back on the host"),
    ("result-printed", "the result is printed"),
];

/// The last stage, which has no point.
const END: &str = "the process ends";

/// A stage and its times.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) spread: Spread,
}

/// How many rounds: the medians of short stages do not move any more.
pub(crate) const ROUNDS: usize = 200;

/// Takes an ADD of `bridge` + `host-local` apart; `traced` is built with crash points.
pub(crate) fn look(traced: &Path, scratch: &Path) -> Result<Vec<Stage>> {
    let side = Side::netloom("traced", traced, scratch)?;
    let mut times: HashMap<&str, Vec<Duration>> = HashMap::new();
    for round in 0..ROUNDS + 5 {
        let container = Namespace::make(&format!("t{round}"))?;
        let told = one(&side, &container, round, &scratch.join("trace"))?;
        if round >= 5 {
            told.into_iter().for_each(|(name, time)| times.entry(name).or_default().push(time));
        }
    }
    let stages = STAGES.iter().map(|(_, name)| *name).chain([END]);
    Ok(stages.filter_map(|name| Some(Stage { name, spread: Spread::of(times.remove(name)?) })).collect())
}

/// The stages of one ADD; its DEL is not looked at.
fn one(side: &Side, container: &Namespace, number: usize, trace: &Path) -> Result<Vec<(&'static str, Duration)>> {
    let jobs = |verb| side.jobs(Network::Bridge, verb, container, number);
    let (begin, end) = side.host().enter(|| {
        let begin = now()?;
        for job in jobs(Verb::Add) {
            job.traced(trace).run(Verb::Add)?;
        }
        let end = now()?;
        jobs(Verb::Del).iter().try_for_each(|job| job.run(Verb::Del).map(drop))?;
        Ok((begin, end))
    })?;
    let text = fs::read_to_string(trace).with_context(|| format!("read {} (was it built with crash points?)", trace.display()))?;
    fs::remove_file(trace).with_context(|| format!("remove {}", trace.display()))?;
    let line = |line: &str| line.split_once(' ').and_then(|(name, ns)| Some((name.to_owned(), Duration::from_nanos(ns.parse().ok()?))));
    // The last time counts of those that are reached more than once.
    let points: HashMap<String, Duration> = text.lines().filter_map(line).collect();
    let mut at = begin;
    let mut stages = Vec::with_capacity(STAGES.len() + 1);
    for (point, name) in STAGES {
        let reached = *points.get(*point).with_context(|| format!("an ADD does not come by {point} any more: change STAGES"))?;
        stages.push((*name, reached.saturating_sub(at)));
        at = reached;
    }
    stages.push((END, end.saturating_sub(at)));
    Ok(stages)
}

fn now() -> Result<Duration> {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).context("read the clock")
}

// === impl Stage ===

impl Stage {
    pub(crate) fn json(&self) -> Value {
        json!({"stage": self.name, "time": self.spread.json()})
    }
}
