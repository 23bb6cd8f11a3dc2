//! What wakes the thread that keeps the network. That something is to be planned or kept is a flag, which no number of other events can
//! displace.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use linux::Notice;

use crate::lock;

/// How many of the kernel's notices wait at most. When there are more, all of them become one: anything may have changed.
const MOST: usize = 1 << 14;

/// What has happened since the thread looked last.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    pending: Mutex<Pending>,
    came: Condvar,
}

/// The same, taken by the thread.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Nodes or their ranges have changed, or a rotation of keys is requested.
    pub(crate) plan: bool,
    /// Rules of ours were removed.
    pub(crate) keep: bool,
    /// What the kernel has reported, in its order.
    pub(crate) notices: Vec<Notice>,
}

// === impl Wake ===

impl Wake {
    /// Nodes or their ranges have changed, or a rotation of keys is requested.
    pub(crate) fn plan(&self) {
        self.note(|pending| pending.plan = true);
    }

    /// Rules of ours were removed.
    pub(crate) fn keep(&self) {
        self.note(|pending| pending.keep = true);
    }

    /// The kernel reports something.
    pub(crate) fn notice(&self, notice: Notice) {
        self.note(|pending| {
            if pending.notices.len() >= MOST {
                pending.notices = vec![Notice::Lost];
            } else {
                pending.notices.push(notice);
            }
        });
    }

    /// Takes what has happened. If it is nothing, waits for it until this moment at most.
    pub(crate) fn wait(&self, until: Instant) -> Pending {
        let left = until.saturating_duration_since(Instant::now());
        let is_empty = |pending: &mut Pending| pending.is_empty();
        let (mut pending, _) = self.came.wait_timeout_while(lock(&self.pending), left, is_empty).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *pending)
    }

    fn note(&self, note: impl FnOnce(&mut Pending)) {
        note(&mut lock(&self.pending));
        self.came.notify_all();
    }
}

// === impl Pending ===

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        !self.plan && !self.keep && self.notices.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linux::{Object, Route};

    use super::*;

    #[test]
    fn a_change_of_nodes_is_not_lost_among_notices() {
        let wake = Wake::default();
        (0..2 * MOST).for_each(|_| wake.notice(Notice::Gone(Object::Route(Box::new(Route::to("10.1.1.0/24".parse().unwrap()))))));
        wake.plan();
        wake.keep();
        let pending = wake.wait(Instant::now());
        assert!(pending.plan && pending.keep && pending.notices.len() <= MOST);
        assert_eq!(pending.notices.first(), Some(&Notice::Lost), "they are too many to be looked at one by one");
        assert!(wake.wait(Instant::now()).is_empty(), "each is taken once");
    }

    #[test]
    fn what_happens_ends_the_wait() {
        let wake = Wake::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wake.wait(Instant::now() + Duration::from_secs(60)));
            wake.notice(Notice::Lost);
            assert_eq!(waits.join().unwrap().notices, [Notice::Lost]);
        });
    }
}
