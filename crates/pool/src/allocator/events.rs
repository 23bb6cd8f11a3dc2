//! The whole state as the events that make it.

use super::{Allocator, Pool};
use crate::family_pool::FamilyPool;
use crate::{Event, Family, Key, Lease};

impl Allocator {
    /// How many events [`Allocator::events`] has, without making them.
    #[must_use]
    pub fn size(&self) -> usize {
        let half = |half: &FamilyPool| half.blocks.len() + half.cooling.len() + half.quarantined.len();
        let pool = |pool: &Pool| 1 + usize::from(pool.gone) + half(&pool.v4) + half(&pool.v6);
        1 + self.returned.len() + self.pools.values().map(pool).sum::<usize>() + self.leases.len()
    }

    /// The events that make this state out of nothing: what a journal's snapshot has.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let leases = self.in_order().into_iter().map(|lease| Event::Leased(lease.clone()));
        self.terms().into_iter().chain(leases).chain(self.rest_of_it()).collect()
    }

    /// The same as bytes, those of a lease with what `name` makes of its attachment. What is held is not copied for it.
    #[must_use]
    pub fn records<N>(&self, name: impl Fn(&Key) -> N) -> Vec<(Option<N>, Vec<u8>)> {
        let plain = |event: Event| (None, event.encode());
        let leases = self.in_order().into_iter().map(|lease| (Some(name(&lease.key)), Event::encode_leased(lease)));
        self.terms().into_iter().map(plain).chain(leases).chain(self.rest_of_it().into_iter().map(plain)).collect()
    }

    /// All leases, the first one first.
    fn in_order(&self) -> Vec<&Lease> {
        let mut leases: Vec<&Lease> = self.leases.values().collect();
        leases.sort_by_key(|lease| lease.generation);
        leases
    }

    /// What rests, and pools that are gone.
    fn rest_of_it(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (name, pool) in &self.pools {
            let Some(space) = self.spaces.get(&pool.spec.network) else { continue };
            events.extend(Family::ALL.into_iter().flat_map(|family| pool.half(family).resting(space, name)));
        }
        // When what is held of them is known: one of which nobody has anything is forgotten.
        events.extend(self.gone());
        events
    }

    /// All pools and blocks, as events.
    pub(super) fn terms(&self) -> Vec<Event> {
        let mut events = vec![Event::Generation(self.next_generation)];
        for ((pool, run), epoch) in &self.returned {
            events.push(Event::BlockGone { pool: pool.clone(), run: *run, epoch: *epoch });
        }
        for pool in self.pools.values() {
            events.push(Event::Pool(pool.spec.clone()));
            for family in Family::ALL {
                events.extend(pool.half(family).blocks.values().map(|area| Event::Block(area.block.clone(), area.state)));
            }
        }
        events
    }

    pub(super) fn gone(&self) -> impl Iterator<Item = Event> {
        self.pools.iter().filter(|(_, p)| p.gone).map(|(name, _)| Event::PoolGone { pool: name.clone() })
    }
}
