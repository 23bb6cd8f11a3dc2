//! What DEL has retired goes for good: many pods' at a time, after their runtime has been answered.
//!
//! ```text
//!   DEL --Attacher::retire--> links down and off their bridge, record with its tombstone --> answered
//!                                  |
//!                                  v  after a moment, so that the namespace is gone by then, and others have come
//!                             Attacher::finish --> links deleted, addresses free, record gone
//! ```
//!
//! Who is here stands on disk as well, as a record with a tombstone: a restart goes on with them.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cni::{Code, ContainerId};
use plugin::{Dirs, Host};

use crate::log::Line;
use crate::{Agent, lock};

/// The kernel takes a deleted namespace apart in 13 to 16 ms, and the links in it with it: after this time most have gone
/// by themselves.
const MOMENT: Duration = Duration::from_millis(50);
/// After a failure, growing from the first to the last of these.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// How long one round may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sandboxes of which links are still there.
#[derive(Default)]
pub(crate) struct Retired {
    all: Mutex<All>,
    came: Condvar,
}

#[derive(Default)]
struct All {
    waiting: BTreeMap<ContainerId, RetrySchedule>,
    /// Those that are being finished now. One that comes again meanwhile waits as well.
    working: BTreeSet<ContainerId>,
}

/// When a sandbox is to be finished: each has its own, so that one that cannot be finished holds up nobody else's address.
#[derive(Debug, Clone, Copy)]
struct RetrySchedule {
    at: Instant,
    /// After the next failure.
    pause: Duration,
}

// === impl RetrySchedule ===

impl RetrySchedule {
    fn first() -> Self {
        RetrySchedule { at: Instant::now() + MOMENT, pause: PAUSES.0 }
    }

    fn next(self) -> Self {
        RetrySchedule { at: Instant::now() + self.pause, pause: (self.pause * 2).min(PAUSES.1) }
    }
}

// === impl Retired ===

impl Retired {
    /// One more.
    pub(crate) fn push(&self, sandbox: ContainerId) {
        lock(&self.all).waiting.entry(sandbox).or_insert_with(RetrySchedule::first);
        self.came.notify_one();
    }

    /// How many are not gone yet: they wait, or are being finished.
    pub(crate) fn left(&self) -> usize {
        let all = lock(&self.all);
        all.waiting.len() + all.working.iter().filter(|sandbox| !all.waiting.contains_key(*sandbox)).count()
    }

    /// It is gone.
    pub(crate) fn forget(&self, sandbox: &ContainerId) {
        lock(&self.all).waiting.remove(sandbox);
    }

    /// Those whose turn has come, taken out: one that comes again meanwhile is a new one.
    fn due(&self) -> Vec<(ContainerId, RetrySchedule)> {
        let mut all = lock(&self.all);
        loop {
            let now = Instant::now();
            let (due, later) = std::mem::take(&mut all.waiting).into_iter().partition::<BTreeMap<_, _>, _>(|(_, turn)| turn.at <= now);
            all.waiting = later;
            if !due.is_empty() {
                all.working = due.keys().cloned().collect();
                return due.into_iter().collect();
            }
            all = match all.waiting.values().map(|turn| turn.at).min() {
                Some(next) => self.came.wait_timeout(all, next - now).unwrap_or_else(PoisonError::into_inner).0,
                None => self.came.wait(all).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Those that were taken out are gone, or wait again.
    fn done(&self) {
        lock(&self.all).working.clear();
    }

    fn again(&self, sandbox: ContainerId, turn: RetrySchedule) {
        lock(&self.all).waiting.entry(sandbox).or_insert_with(|| turn.next());
    }
}

/// Finishes what is retired, for as long as the process lives.
pub(crate) fn finish(agent: &Arc<Agent>, dirs: Dirs) -> std::io::Result<()> {
    let agent = Arc::clone(agent);
    let work = move || {
        let mut host = Host::here(dirs);
        loop {
            let batch = agent.retired.due();
            let begun = Instant::now();
            let sandboxes: Vec<ContainerId> = batch.iter().map(|(sandbox, _)| sandbox.clone()).collect();
            let all = || agent.attacher_in_host().finish(&sandboxes, &mut host, begun + PATIENCE);
            let mut failed = 0_usize;
            match catch_unwind(AssertUnwindSafe(all)) {
                Ok(done) => {
                    for ((sandbox, turn), (_, done)) in batch.into_iter().zip(done) {
                        let Err(e) = done else { continue };
                        failed += 1;
                        // A runtime asks twice: its second DEL has the sandbox for a moment.
                        let is_busy = e.errors.iter().all(|e| e.code == Code::TRY_AGAIN_LATER);
                        let line = if is_busy { Line::info("finish") } else { Line::warn("finish") };
                        line.with("container", &sandbox).with("error", e).end();
                        agent.retired.again(sandbox, turn);
                    }
                }
                Err(_) => {
                    Line::error("finish").with("error", "this is a bug in the agent or in a plugin; please report it with the log").end();
                    host = Host::here(host.dirs.clone());
                    failed = batch.len();
                    batch.into_iter().for_each(|(sandbox, turn)| agent.retired.again(sandbox, turn));
                }
            }
            agent.retired.done();
            Line::debug("finish").with("sandboxes", sandboxes.len()).with("failed", failed).took("took", begun.elapsed()).end();
        }
    };
    std::thread::Builder::new().name("finish".to_owned()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ContainerId {
        ContainerId::parse(name).unwrap()
    }

    #[test]
    fn one_that_fails_holds_up_no_other() {
        let retired = Retired::default();
        retired.push(id("bad"));
        let [(bad, turn)] = retired.due().try_into().unwrap();
        retired.again(bad, RetrySchedule { pause: Duration::from_secs(60), ..turn });
        assert_eq!(retired.left(), 1, "it waits again, and its round is not over");
        retired.push(id("good"));
        let begun = Instant::now();
        assert_eq!(retired.due().into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [id("good")]);
        assert!(begun.elapsed() < Duration::from_secs(50));
        assert_eq!(retired.left(), 2, "one waits, one is being finished");
        retired.done();
        assert_eq!(retired.left(), 1);
    }

    #[test]
    fn one_that_comes_again_while_it_is_finished_stays() {
        let retired = Retired::default();
        retired.push(id("a"));
        assert_eq!(retired.due().len(), 1);
        retired.push(id("a"));
        retired.done();
        assert_eq!(retired.left(), 1);
    }
}
