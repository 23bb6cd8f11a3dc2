//! The addresses of one network that are not free on this node.

use std::collections::BTreeMap;

use crate::{Family, Run, Unavailable};

/// Who has which address, in one network.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressTable(BTreeMap<(Family, u128), Unavailable>);

// === impl AddressTable ===

impl AddressTable {
    pub(crate) fn get(&self, family: Family, number: u128) -> Option<&Unavailable> {
        self.0.get(&(family, number))
    }

    /// What was there before is told.
    pub(crate) fn insert(&mut self, family: Family, number: u128, taken: Unavailable) -> Option<Unavailable> {
        self.0.insert((family, number), taken)
    }

    pub(crate) fn remove(&mut self, family: Family, number: u128) {
        self.0.remove(&(family, number));
    }

    /// Those of a run, in order.
    pub(crate) fn of(&self, run: Run) -> impl Iterator<Item = (u128, &Unavailable)> {
        let (first, last) = run.numbers();
        self.0.range((run.family(), first)..=(run.family(), last)).map(|((_, number), taken)| (*number, taken))
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Family, u128, &Unavailable)> {
        self.0.iter().map(|((family, number), taken)| (*family, *number, taken))
    }
}
