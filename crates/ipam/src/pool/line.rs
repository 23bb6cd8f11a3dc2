//! Who waits for addresses, in order of arrival.

use pool::{Ask, Family, Key};

/// Attachments that wait, the first one first.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: Vec<Waiting>,
    next: u64,
}

/// A place in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineTicket(u64);

#[derive(Debug)]
struct Waiting {
    place: LineTicket,
    key: Key,
    /// Of which it takes whatever comes; who wants a certain address is in nobody's way.
    wants: Vec<(String, Family)>,
    /// It has looked, and there was not enough.
    short: bool,
    /// Its attachment was detached meanwhile.
    detached: bool,
}

// === impl Line ===

impl Line {
    /// Joins at the end.
    pub(super) fn join(&mut self, ask: &Ask) -> LineTicket {
        let place = LineTicket(self.next);
        self.next += 1;
        let wants = ask.wants_any().map(|w| (w.pool.clone(), w.family)).collect();
        self.waiting.push(Waiting { place, key: ask.key.clone(), wants, short: false, detached: false });
        place
    }

    /// There was not enough for it: from now on it is before those who come later.
    pub(super) fn stay(&mut self, place: LineTicket) {
        self.waiting.iter_mut().filter(|w| w.place == place).for_each(|w| w.short = true);
    }

    pub(super) fn leave(&mut self, place: LineTicket) {
        self.waiting.retain(|w| w.place != place);
    }

    /// How many of a pool's family those want who came before and have not got them. They take all that they want at once: what there is of
    /// it is theirs meanwhile, and what is more than that is not.
    pub(super) fn before(&self, place: LineTicket, pool: &str, family: Family) -> usize {
        let earlier = self.waiting.iter().take_while(|w| w.place != place).filter(|w| w.short).flat_map(|w| &w.wants);
        earlier.filter(|(name, of)| *of == family && name == pool).count()
    }

    /// The attachment is detached: it is not to get anything any more.
    pub(super) fn detach(&mut self, key: &Key) {
        self.waiting.iter_mut().filter(|w| w.key == *key).for_each(|w| w.detached = true);
    }

    pub(super) fn is_detached(&self, place: LineTicket) -> bool {
        self.waiting.iter().any(|w| w.place == place && w.detached)
    }
}
