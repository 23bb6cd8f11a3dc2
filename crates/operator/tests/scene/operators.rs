//! Operators that are killed, and several that all believe to lead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use netloom_operator::{Options, Running, start};
use objects::Store;

use super::{Fate, way};

/// An operator of which nothing comes through from one of its writes on: as one that is killed there.
pub(crate) struct Dying {
    _running: Running,
    writes: Arc<AtomicUsize>,
    at: usize,
}

/// Three operators that all believe to lead.
pub(crate) struct Rivals([Running; 3]);

// === impl Dying ===

impl Dying {
    /// Each of the first writes, and whether it is not carried out or nobody hears of it.
    pub(crate) fn at_any_of(writes: usize) -> impl Iterator<Item = (usize, Fate)> {
        (1..=writes).flat_map(|at| [(at, Fate::Hangs), (at, Fate::HangsBehind)])
    }

    /// Dies at that write, counted from 1. Events do not count: nothing depends on them.
    pub(crate) fn start(store: &Store, options: Options, at: usize, fate: Fate) -> Dying {
        let writes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&writes);
        let client = way(store, move |method, path| match method != "GET" && !path.contains("events") {
            true if count.fetch_add(1, Ordering::Relaxed) + 1 >= at => fate,
            _ => Fate::Arrives,
        });
        Dying { _running: start(client, options), writes, at }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.writes.load(Ordering::Relaxed) >= self.at
    }
}

// === impl Rivals ===

impl Rivals {
    pub(crate) fn start(store: &Store, options: impl Fn(&str) -> Options) -> Rivals {
        Rivals(["one", "two", "three"].map(|identity| start(store.client(), options(identity))))
    }

    /// Lets so many agents want something else again and again, each fewer than `most`, until one of the operators was slower than
    /// another one; all is checked in between.
    pub(crate) async fn compete(&self, agents: usize, most: usize, want: impl Fn(usize, usize), check: impl Fn()) {
        let begun = Instant::now();
        for round in (0..).take_while(|round| *round < 30 || !self.have_met() && begun.elapsed() < Duration::from_secs(600)) {
            (0..agents).for_each(|i| want(i, (i * 7 + round * 5) % most));
            // Sleeps: operators that compete get some time for each round.
            tokio::time::sleep(Duration::from_millis(25)).await;
            check();
        }
    }

    /// If none was slower than another one nothing was shown.
    pub(crate) fn assert_met(&self) {
        assert!(self.have_met(), "they never met");
    }

    fn have_met(&self) -> bool {
        self.0.iter().any(|one| one.metrics().contains("result=\"conflict\""))
    }
}
