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
    waiting: Mutex<Vec<ContainerId>>,
    came: Condvar,
}

// === impl Retired ===

impl Retired {
    /// One more.
    pub(crate) fn push(&self, sandbox: ContainerId) {
        let mut waiting = lock(&self.waiting);
        if !waiting.contains(&sandbox) {
            waiting.push(sandbox);
        }
        self.came.notify_one();
    }

    /// Those that are waiting.
    pub(crate) fn waiting(&self) -> Vec<ContainerId> {
        lock(&self.waiting).clone()
    }

    /// It is gone.
    pub(crate) fn forget(&self, sandbox: &ContainerId) {
        lock(&self.waiting).retain(|other| other != sandbox);
    }

    fn wait(&self) -> Vec<ContainerId> {
        let mut waiting = lock(&self.waiting);
        while waiting.is_empty() {
            waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        drop(waiting);
        std::thread::sleep(MOMENT);
        self.waiting()
    }
}

/// Finishes what is retired, for as long as the process lives.
pub(crate) fn finish(agent: &Arc<Agent>, dirs: Dirs) -> std::io::Result<()> {
    let agent = Arc::clone(agent);
    let work = move || {
        let (mut host, mut pause) = (Host::here(dirs), PAUSES.0);
        loop {
            let batch = agent.retired.wait();
            let begun = Instant::now();
            let done = agent.attacher_in_host().finish(&batch, &mut host, begun + PATIENCE);
            let mut failed = 0_usize;
            for (sandbox, done) in done {
                match done {
                    Ok(()) => agent.retired.forget(&sandbox),
                    Err(e) => {
                        failed += 1;
                        // A runtime asks twice: its second DEL has the sandbox for a moment.
                        let is_busy = e.errors.iter().all(|e| e.code == Code::TRY_AGAIN_LATER);
                        let line = if is_busy { Line::info("finish") } else { Line::warn("finish") };
                        line.with("container", &sandbox).with("error", e).end();
                    }
                }
            }
            Line::debug("finish").with("sandboxes", batch.len()).with("failed", failed).took("took", begun.elapsed()).end();
            pause = if failed == 0 { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
            if failed > 0 {
                std::thread::sleep(pause);
            }
        }
    };
    std::thread::Builder::new().name("finish".to_owned()).spawn(work).map(drop)
}
