//! The state in short: enough to answer one attachment as all of it would, whatever is held.
//!
//! ```text
//!   Allocator::brief --> events: pools and blocks; of each pool some addresses, and all that is known of them
//!     + the lease of one attachment, if it had one then; where the lowest address comes next, those that were given back since, too
//!     + what came since, Event::is_brief of each
//!     --> an Allocator that knows this attachment, and grants it what it grants anybody
//! ```
//!
//! It never grants what all of it would refuse: what it hands out is free by all that it knows, and it knows all of what it hands
//! out ([`Event::Only`]). It may refuse what all of it would grant. So what it refuses, and what
//! [`Allocator::answers_in_short`] does not hold of, is asked of all of it.
//!
//! Which of a line of free addresses comes next is nobody's business, but the lowest one is the lowest one. Of a pool that hands
//! it out, everything is known up to the highest address that is told: what is free there, what rests, and all else is held by leases,
//! of which the caller tells those that have ended since ([`Allocator::learn`]).

use std::net::IpAddr;

use super::{Allocator, Ask, Pool, Want};
use crate::address_table::AddressTable;
use crate::family_pool::{FamilyPool, State};
use crate::{Event, Family, Lease, Order, Origin, Run, Spec, Unavailable, number};

impl Allocator {
    /// The events that make the state in short: each pool knows so many addresses that are free, or rest and come next, or fewer
    /// where there are not as many. A pool that hands out any address knows none, nor does a cluster's: whose a block is is not told
    /// in short.
    #[must_use]
    pub fn brief(&self, enough: u64) -> Vec<Event> {
        let mut events = self.terms();
        let nothing = AddressTable::default();
        for (name, pool) in &self.pools {
            let space = self.spaces.get(&pool.spec.network).unwrap_or(&nothing);
            let (mut runs, mut resting) = (Vec::new(), Vec::new());
            for family in Family::ALL.into_iter().filter(|_| pool.is_told_in_short()) {
                let half = pool.half(family);
                if pool.spec.reuse.order == Order::Lowest {
                    resting.extend(half.lowest_in_short(space, name, enough, &mut runs));
                    continue;
                }
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
        any && !self.is_mixed(&ask.wants) || self.leases.contains_key(&ask.key)
    }

    /// Whether the lowest address is asked of a pool, and another one has some of the same: what was given back in that one may be the lowest.
    fn is_mixed(&self, wants: &[Want]) -> bool {
        wants.iter().any(|want| {
            let Some(one) = self.pools.get(&want.pool).filter(|one| one.spec.reuse.order == Order::Lowest) else { return false };
            let mut beside = self.pools.iter().filter(|(name, other)| **name != want.pool && other.spec.network == one.spec.network);
            beside.any(|(_, other)| one.half(want.family).overlaps(other.half(want.family)))
        })
    }

    /// Whether leases that were given back since have to be told ([`Allocator::learn`]).
    #[must_use]
    pub fn learns(&self) -> bool {
        self.pools.values().any(|pool| pool.is_told_in_short() && pool.spec.reuse.order == Order::Lowest)
    }

    /// A lease that was there when the state was told in short: all that becomes of its addresses is known from here on.
    pub fn learn(&mut self, lease: &Lease) {
        self.apply(&Event::Leased(lease.clone()));
        for leased in &lease.addresses {
            let Some(network) = self.network(&leased.pool).map(str::to_owned) else { continue };
            for pool in self.pools.values_mut().filter(|pool| pool.spec.network == network && pool.spec.reuse.order == Order::Lowest) {
                let (half, spec) = pool.half_mut(Family::of(leased.address));
                half.learn(leased.address, spec);
            }
        }
    }

    pub(super) fn only(&mut self, pool: &str, runs: &[Run]) {
        let Some(pool) = self.pools.get_mut(pool) else { return };
        pool.in_short = true;
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
        self.spec.origin == Origin::File && self.spec.reuse.order != Order::Random && !self.gone
    }
}

// === impl FamilyPool ===

impl FamilyPool {
    /// Appends what is free, in order, until it is enough. How many addresses it is.
    fn free(&self, space: &AddressTable, enough: u64, runs: &mut Vec<Run>) -> u64 {
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
    fn first_to_rest<'s>(&'s self, space: &'s AddressTable) -> impl Iterator<Item = (IpAddr, &'s Unavailable)> {
        let usable = |number: &u128| self.area(*number).is_some_and(|area| area.is_usable(*number));
        let resting = self.cooling.iter().filter(usable).filter_map(|number| Some((number, space.get(self.family(), number)?)));
        let resting = resting.filter(|(_, taken)| matches!(taken, Unavailable::Cooling { .. }));
        resting.map(|(number, taken)| (self.family().address(number), taken))
    }

    /// Appends the lowest addresses that are free, until it is enough, and those that rest among them. All that rests is returned, as
    /// events; where that is more than enough nothing is told.
    fn lowest_in_short(&self, space: &AddressTable, pool: &str, enough: u64, runs: &mut Vec<Run>) -> Vec<Event> {
        let resting = self.resting(space, pool);
        if resting.len() as u64 > enough {
            return Vec::new();
        }
        let before = runs.len();
        let known = self.free(space, enough, runs);
        // Where there is not enough, nothing is free behind the last one.
        let end = runs.get(before..).and_then(<[Run]>::last).map(|run| run.numbers().1).filter(|_| known >= enough);
        let told = |n: u128| end.is_none_or(|end| n <= end) && self.area(n).is_some_and(|area| area.is_usable(n));
        let rests = |event: &Event| match event {
            Event::Cooling { address, taken, .. } | Event::Quarantined { address, taken, .. } => {
                Some(*address).filter(|address| told(number(*address)) && !matches!(taken, Unavailable::Held(_)))
            }
            _ => None,
        };
        runs.extend(resting.iter().filter_map(rests).map(Run::single));
        resting
    }

    /// It is known who has this address, which was held when the state was told in short.
    fn learn(&mut self, address: IpAddr, spec: &Spec) {
        let number = number(address);
        // Behind the last one that is told there may be lower ones that are free, and not known.
        let last = self.blocks.values().filter_map(|area| area.usable.last()).map(|run| run.numbers().1).max();
        if last.is_none_or(|last| number > last) || spec.usable(Run::single(address)).is_empty() {
            return;
        }
        let Some((_, area)) = self.blocks.range_mut(..=number).next_back() else { return };
        let is_own = area.block.run.contains(address) && area.block.claim.is_none() && area.state == State::Active;
        if is_own && !area.is_usable(number) {
            let at = area.usable.partition_point(|run| run.numbers().1 < number);
            area.usable.insert(at, Run::single(address));
        }
    }

    /// Whether both have an address.
    fn overlaps(&self, other: &FamilyPool) -> bool {
        let others = || other.blocks.values().map(|area| area.block.run);
        self.blocks.values().any(|area| others().any(|run| area.block.run.common(&run).is_some()))
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
