//! The state in short: enough to answer one attachment as all of it would, whatever is held.
//!
//! ```text
//!   Allocator::brief --> events: pools and blocks; of each pool some addresses, and all that is known of them
//!     + the lease of one attachment, if it had one then
//!     + what came since, Event::is_brief of each
//!     --> an Allocator that knows this attachment, and grants it what it grants anybody
//! ```
//!
//! It never grants what all of it would refuse: what it hands out is free by all that it knows, and it knows all of what it hands
//! out ([`Event::Only`]). It may refuse what all of it would grant. So what it refuses, and what
//! [`Allocator::answers_in_short`] does not hold of, is asked of all of it.

use std::net::IpAddr;

use super::{Allocator, Ask, Pool};
use crate::half::{Half, State};
use crate::space::Space;
use crate::{Event, Family, Order, Origin, Run, Taken};

impl Allocator {
    /// The events that make the state in short: each pool knows so many addresses that are free, or rest and come next, or fewer
    /// where there are not as many. A pool that hands out the lowest address, or any, knows none, nor does a cluster's: the
    /// lowest one, and whose a block is, are not told in short.
    #[must_use]
    pub fn brief(&self, enough: u64) -> Vec<Event> {
        let mut events = self.terms();
        let nothing = Space::default();
        for (name, pool) in &self.pools {
            let space = self.spaces.get(&pool.spec.network).unwrap_or(&nothing);
            let (mut runs, mut resting) = (Vec::new(), Vec::new());
            for family in Family::ALL.into_iter().filter(|_| pool.is_told_in_short()) {
                let half = pool.half(family);
                let known = half.free(space, enough, &mut runs);
                let left = usize::try_from(enough.saturating_sub(known)).unwrap_or(0);
                for (address, taken) in half.first_to_rest(space).take(left) {
                    runs.push(Run::single(address));
                    resting.push(Event::Cooling { pool: name.clone(), address, taken: taken.clone() });
                }
            }
            runs.sort_unstable();
            events.push(Event::Only { pool: name.clone(), runs });
            events.extend(resting);
        }
        events.extend(self.gone());
        events
    }

    /// Whether the state in short answers this as all of it does, unless it refuses it.
    #[must_use]
    pub fn answers_in_short(&self, ask: &Ask) -> bool {
        let known = |pool: &str| self.pools.get(pool).is_some_and(Pool::is_told_in_short);
        let any = ask.claim.is_none() && ask.wants.iter().all(|want| want.address.is_none() && known(&want.pool));
        any || self.leases.contains_key(&ask.key)
    }

    pub(super) fn only(&mut self, pool: &str, runs: &[Run]) {
        let Some(pool) = self.pools.get_mut(pool) else { return };
        [&mut pool.v4, &mut pool.v6].into_iter().for_each(|half| half.only(runs));
    }
}

impl Event {
    /// Whether the state in short may be followed by it: it has to do with addresses that are known, or with none that is.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        matches!(self, Event::Leased(_) | Event::Released { .. })
    }
}

// === impl Pool ===

impl Pool {
    fn is_told_in_short(&self) -> bool {
        self.spec.origin == Origin::File && self.spec.reuse.order == Order::Fifo && !self.gone
    }
}

// === impl Half ===

impl Half {
    /// Appends what is free, in order, until it is enough. How many addresses it is.
    fn free(&self, space: &Space, enough: u64, runs: &mut Vec<Run>) -> u64 {
        let mut known: u64 = 0;
        let usable = self.blocks.values().filter(|area| area.state == State::Active).flat_map(|area| &area.usable);
        for run in usable {
            let (mut from, last) = run.numbers();
            let taken = space.of(*run).map(|(number, _)| Some(number)).chain([last.checked_add(1)]);
            for number in taken {
                let end = number.map_or(Some(last), |number| number.checked_sub(1));
                if let Some(free) = end.filter(|end| *end >= from).and_then(|end| Run::of_numbers(self.family(), from, end)) {
                    known = known.saturating_add(u64::try_from(free.count()).unwrap_or(u64::MAX));
                    runs.push(free);
                }
                if known >= enough {
                    return known;
                }
                // A run of IPv6 may end with the last number of all.
                let Some(next) = number.and_then(|number| number.checked_add(1)) else { break };
                from = next;
            }
        }
        known
    }

    /// Those that rest, the one first that comes next.
    fn first_to_rest<'s>(&'s self, space: &'s Space) -> impl Iterator<Item = (IpAddr, &'s Taken)> {
        let usable = |number: &u128| self.area(*number).is_some_and(|area| area.is_usable(*number));
        let resting = self.cooling.iter().filter(usable).filter_map(|number| Some((number, space.get(self.family(), number)?)));
        let resting = resting.filter(|(_, taken)| matches!(taken, Taken::Cooling { .. }));
        resting.map(|(number, taken)| (self.family().address(number), taken))
    }

    fn only(&mut self, runs: &[Run]) {
        for (first, area) in &mut self.blocks {
            area.usable = runs.iter().copied().filter(|run| area.block.run.common(run).is_some()).collect();
            if area.usable.is_empty() {
                self.fresh.remove(first);
            }
        }
    }
}
