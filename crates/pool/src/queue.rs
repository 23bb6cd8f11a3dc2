//! Free addresses in line: each once, taken from the front or out of the middle.

use std::collections::BTreeMap;

/// Numbers of addresses, in the order of a place that each has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    line: BTreeMap<u128, u128>,
    places: BTreeMap<u128, u128>,
}

/// The place of the first one that joins an empty line: as far from either end as can be.
const MIDDLE: u128 = 1 << 127;

// === impl Queue ===

impl Queue {
    /// Behind all others; one that stood elsewhere moves.
    pub(crate) fn push(&mut self, number: u128) {
        let place = self.line.last_key_value().map_or(MIDDLE, |(last, _)| last.saturating_add(1));
        self.insert(place, number);
    }

    /// Before all others.
    pub(crate) fn push_front(&mut self, number: u128) {
        let place = self.line.first_key_value().map_or(MIDDLE, |(first, _)| first.saturating_sub(1));
        self.insert(place, number);
    }

    /// Where its own number places it.
    pub(crate) fn sort_in(&mut self, number: u128) {
        self.insert(number, number);
    }

    fn insert(&mut self, place: u128, number: u128) {
        self.remove(number);
        self.line.insert(place, number);
        self.places.insert(number, place);
    }

    pub(crate) fn front(&self) -> Option<u128> {
        self.line.first_key_value().map(|(_, number)| *number)
    }

    pub(crate) fn pop(&mut self) -> Option<u128> {
        let (_, number) = self.line.pop_first()?;
        self.places.remove(&number);
        Some(number)
    }

    pub(crate) fn remove(&mut self, number: u128) -> bool {
        self.places.remove(&number).is_some_and(|place| self.line.remove(&place).is_some())
    }

    pub(crate) fn contains(&self, number: u128) -> bool {
        self.places.contains_key(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u128> {
        self.line.values().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    /// Keeps those for which it holds, each in its place.
    pub(crate) fn retain(&mut self, keep: impl Fn(u128) -> bool) {
        self.line.retain(|_, number| keep(*number));
        self.places.retain(|number, _| keep(*number));
    }
}
