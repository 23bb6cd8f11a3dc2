//! What an event does.

use std::net::IpAddr;

use super::{Allocator, Pool};
use crate::family_pool::{FamilyPool, State};
use crate::{Block, Family, Key, Lease, Leased, Moment, Origin, Run, Spec, Unavailable, number};

impl Allocator {
    pub(super) fn set_pool(&mut self, spec: &Spec) {
        self.spaces.entry(spec.network.clone()).or_default();
        let new =
            || Pool { spec: spec.clone(), v4: FamilyPool::new(Family::V4), v6: FamilyPool::new(Family::V6), gone: false, in_short: false };
        let pool = self.pools.entry(spec.name.clone()).or_insert_with(new);
        pool.gone = false;
        // A pool of which there is anything stays in its network: its addresses are unique there.
        let network = if pool.is_empty() { &spec.network } else { &pool.spec.network }.clone();
        pool.spec = Spec { network, ..spec.clone() };
        pool.v4.follow(&pool.spec);
        pool.v6.follow(&pool.spec);
    }

    pub(super) fn end_pool(&mut self, name: &str) {
        let Some(pool) = self.pools.get_mut(name) else { return };
        pool.gone = true;
        for half in [&mut pool.v4, &mut pool.v6] {
            let active = half.blocks.iter().filter(|(_, area)| area.state == State::Active);
            let firsts: Vec<u128> = active.map(|(first, _)| *first).collect();
            firsts.into_iter().for_each(|first| half.set(first, State::Withdrawn));
        }
        self.forget_pool(name);
    }

    /// A pool that is gone is forgotten when nobody has anything of it, nor does this node.
    fn forget_pool(&mut self, name: &str) {
        let Some(pool) = self.pools.get(name).filter(|pool| pool.gone && pool.is_empty()) else { return };
        // A host's own pool counts its epochs by itself, and so does who comes after it under its name.
        if pool.spec.origin == Origin::File {
            self.returned.retain(|(pool, _), _| pool != name);
        }
        self.pools.remove(name);
    }

    pub(super) fn set_block(&mut self, block: &Block, state: State) {
        if self.admit(block).is_err() {
            return;
        }
        let Some(pool) = self.pools.get_mut(&block.pool) else { return };
        let (half, spec) = pool.half_mut(block.run.family());
        let first = block.run.numbers().0;
        match half.blocks.get(&first).map(|area| (area.state, area.block.claim == block.claim)) {
            // Frozen is for ever; a block that was withdrawn may come back.
            Some((State::Frozen, _)) => {}
            Some((now, true)) if now == state => {}
            // What stood in line for anybody may be one claim's now.
            Some(_) => {
                half.set(first, State::Withdrawn);
                half.insert(block.clone(), spec, state);
            }
            None => half.insert(block.clone(), spec, state),
        }
    }

    pub(super) fn set_state(&mut self, pool: &str, run: Run, epoch: u64, state: State) {
        let Some(pool) = self.pools.get_mut(pool) else { return };
        let (half, _) = pool.half_mut(run.family());
        let first = run.numbers().0;
        if half.blocks.get(&first).is_some_and(|area| area.block.run == run && area.block.epoch == epoch && area.state != State::Frozen) {
            half.set(first, state);
        }
    }

    pub(super) fn end_block(&mut self, name: &str, run: Run, epoch: u64) {
        let known = self.returned.entry((name.to_owned(), run)).or_default();
        *known = epoch.max(*known);
        let Some(pool) = self.pools.get_mut(name) else { return };
        let network = pool.spec.network.clone();
        let (half, _) = pool.half_mut(run.family());
        let first = run.numbers().0;
        if half.blocks.get(&first).is_none_or(|area| area.block.run != run || area.block.epoch > epoch) {
            return;
        }
        half.remove(first);
        // What rests is forgotten with its block; what is held stays its holder's.
        let Some(space) = self.spaces.get_mut(&network) else { return };
        let resting: Vec<u128> = space.of(run).filter(|(_, t)| !matches!(t, Unavailable::Held(_))).map(|(n, _)| n).collect();
        resting.into_iter().for_each(|n| space.remove(run.family(), n));
        self.forget_pool(name);
    }

    pub(super) fn hold(&mut self, lease: Lease) {
        self.next_generation = self.next_generation.max(lease.generation.saturating_add(1));
        if self.leases.get(&lease.key).is_some_and(|known| known.generation == lease.generation) {
            return;
        }
        for leased in &lease.addresses {
            let Some(pool) = self.pools.get_mut(&leased.pool) else { continue };
            let (family, number) = (Family::of(leased.address), number(leased.address));
            // It is there since the pool is.
            let Some(space) = self.spaces.get_mut(&pool.spec.network) else { continue };
            let before = space.insert(family, number, Unavailable::Held(lease.key.clone()));
            pool.half_mut(family).0.hold(number);
            match before {
                Some(Unavailable::Held(other)) if other != lease.key => self.forget(&other, leased),
                Some(Unavailable::Held(_)) | None => {}
                Some(_) => self.leave_others(&leased.pool, family, number),
            }
        }
        self.waits.holds(&lease.key, true);
        self.leases.insert(lease.key.clone(), lease);
    }

    /// An address that was resting is another pool's now, of the same network: what stands behind it in line elsewhere does not wait for
    /// that.
    fn leave_others(&mut self, pool: &str, family: Family, number: u128) {
        let Some(network) = self.network(pool).map(str::to_owned) else { return };
        for (_, other) in self.pools.iter_mut().filter(|(name, other)| *name != pool && other.spec.network == network) {
            other.half_mut(family).0.leave(number);
        }
    }

    /// Whoever had an address that somebody else was granted later has given it back: only that record was lost.
    fn forget(&mut self, key: &Key, given: &Leased) {
        let Some(lease) = self.leases.get_mut(key) else { return };
        lease.addresses.retain(|leased| leased.address != given.address);
        if lease.addresses.is_empty() {
            self.leases.remove(key);
            self.waits.holds(key, false);
            self.rested.remove(key);
        }
        if let Some(pool) = self.pools.get_mut(&given.pool) {
            pool.half_mut(Family::of(given.address)).0.unhold();
        }
    }

    pub(super) fn cool(&mut self, key: &Key, generation: u64, at: &Moment) {
        if self.leases.get(key).is_none_or(|lease| lease.generation != generation) {
            return;
        }
        let Some(lease) = self.leases.remove(key) else { return };
        self.waits.holds(key, false);
        self.rested.remove(key);
        for leased in &lease.addresses {
            let Some(pool) = self.pools.get_mut(&leased.pool) else { continue };
            let (family, number) = (Family::of(leased.address), number(leased.address));
            let space = self.spaces.entry(pool.spec.network.clone()).or_default();
            if pool.half_mut(family).0.cool(number) {
                space.insert(family, number, Unavailable::Cooling { since: *at, generation, pod: lease.pod.clone() });
            } else {
                space.remove(family, number);
            }
            self.forget_pool(&leased.pool);
        }
    }

    pub(super) fn rest(&mut self, name: &str, address: IpAddr, taken: &Unavailable) {
        let Some(pool) = self.pools.get_mut(name) else { return };
        let (family, number) = (Family::of(address), number(address));
        let space = self.spaces.entry(pool.spec.network.clone()).or_default();
        // Who holds an address keeps it, whoever else answers for it.
        if matches!(space.get(family, number), Some(Unavailable::Held(_))) {
            return;
        }
        if pool.half_mut(family).0.rest(number, taken) && space.insert(family, number, taken.clone()).is_some() {
            self.leave_others(name, family, number);
        }
    }
}
