//! All addresses of a range, until the last one is somebody's.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};

use super::held::take;
use super::{Place, key};
use crate::figures::Spread;
use crate::namespace::Namespace;
use crate::network::Verb;
use crate::side::plugin_job;

/// The range, and how many addresses it has.
const RANGE: (&str, usize) = ("10.80.0.0-10.80.7.255", 2048);

/// How often at the most, each time from nothing.
pub(super) const ROUNDS: usize = 5;

/// One way of taking them.
pub(super) struct Range {
    pub(super) what: &'static str,
    pub(super) spread: Spread,
}

/// By 64 threads of a process, and by 16 processes at a time.
pub(super) fn run(installed: &Path, scratch: &Path, rounds: usize) -> Result<Vec<Range>> {
    let (mut threads, mut processes) = (Vec::new(), Vec::new());
    let container = Namespace::make("range")?;
    for round in 0..rounds.max(1) {
        let place = Place::make(&scratch.join(format!("range-{round}")), "range", RANGE.0)?;
        let store = place.open()?;
        let start = Instant::now();
        take(&store, 0, RANGE.1, 64)?;
        threads.push(start.elapsed());
        check(&store)?;
        let place = Place::make(&scratch.join(format!("range-processes-{round}")), "range", RANGE.0)?;
        processes.push(by_processes(installed, &container, &place, 16)?);
        check(&place.open()?)?;
    }
    Ok(vec![
        Range { what: "by 64 threads of one process", spread: Spread::of(threads) },
        Range { what: "by 16 processes at a time", spread: Spread::of(processes) },
    ])
}

fn by_processes(installed: &Path, container: &Namespace, place: &Place, callers: usize) -> Result<Duration> {
    let job = plugin_job(installed, "pool", Verb::Add, container, "eth0", &place.config());
    let share = |caller: usize| {
        let mut numbers = (caller..RANGE.1).step_by(callers);
        numbers.try_for_each(|number| job.with("CNI_CONTAINERID", &key(number).container).run(Verb::Add).map(drop))
    };
    let share = &share;
    let start = Instant::now();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|caller| scope.spawn(move || share(caller))).collect();
        callers.into_iter().try_for_each(|caller| caller.join().map_err(|_| anyhow!("a caller panicked"))?)
    })?;
    Ok(start.elapsed())
}

/// Each has one, and no two the same.
fn check(store: &ipam::PoolStore) -> Result<()> {
    let addresses: std::collections::BTreeSet<_> =
        store.look(|all| all.leases().flat_map(|lease| lease.addresses.iter().map(|l| l.address)).collect());
    ensure!(addresses.len() == RANGE.1, "{} of {} addresses are somebody's", addresses.len(), RANGE.1);
    Ok(())
}

// === impl Range ===

impl Range {
    pub(super) fn json(&self) -> Value {
        json!({"what": self.what, "addresses": RANGE.1, "time": self.spread.json()})
    }
}
