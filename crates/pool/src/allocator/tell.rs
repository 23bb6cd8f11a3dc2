//! What an allocator tells of itself: pools, blocks, who holds what, how much is free. Nothing changes by it.

use std::net::IpAddr;

use super::{Allocator, Ask, Usage};
use crate::address_table::AddressTable;
use crate::family_pool::State;
use crate::{Block, Family, Key, Lease, Moment, Origin, Refused, Scaling, Spec, Unavailable, number};

impl Allocator {
    /// A pool's terms, `None` where there is no such pool.
    #[must_use]
    pub fn spec(&self, pool: &str) -> Option<&Spec> {
        self.pools.get(pool).filter(|p| !p.gone).map(|p| &p.spec)
    }

    /// The same, also of one that is not there any more while it has blocks or somebody has addresses of it: its last ones.
    #[must_use]
    pub fn last_spec(&self, pool: &str) -> Option<&Spec> {
        self.pools.get(pool).map(|p| &p.spec)
    }

    /// The names of all pools.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().filter(|(_, p)| !p.gone).map(|(name, _)| name.as_str())
    }

    /// Who says what a pool is, as for [`Allocator::last_spec`].
    #[must_use]
    pub fn origin(&self, pool: &str) -> Option<Origin> {
        self.last_spec(pool).map(|spec| spec.origin)
    }

    /// The network in which a pool's addresses are unique, as for [`Allocator::last_spec`].
    #[must_use]
    pub fn network(&self, pool: &str) -> Option<&str> {
        self.last_spec(pool).map(|spec| spec.network.as_str())
    }

    /// The names of all pools, also of those that are not there any more and of which something is left.
    pub fn every_pool(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }

    /// A pool's blocks of one family, in order, and what becomes of them.
    pub fn blocks(&self, pool: &str, family: Family) -> impl Iterator<Item = (&Block, State)> {
        self.pools.get(pool).into_iter().flat_map(move |p| p.half(family).blocks.values()).map(|area| (&area.block, area.state))
    }

    /// Whether an address of a block is held, cooling or in quarantine.
    #[must_use]
    pub fn is_used(&self, block: &Block) -> bool {
        let space = self.pools.get(&block.pool).and_then(|pool| self.spaces.get(&pool.spec.network));
        space.is_some_and(|space| space.of(block.run).next().is_some())
    }

    /// What an attachment holds.
    #[must_use]
    pub fn lease(&self, key: &Key) -> Option<&Lease> {
        self.leases.get(key)
    }

    /// Everything that is held, in no order.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// Why nobody gets this address of a network now; `None`: it is free, or none of this node's.
    #[must_use]
    pub fn taken(&self, network: &str, address: IpAddr) -> Option<&Unavailable> {
        self.spaces.get(network)?.get(Family::of(address), number(address))
    }

    /// All addresses of a network that are not free, in order.
    pub fn all_taken(&self, network: &str) -> impl Iterator<Item = (IpAddr, &Unavailable)> {
        self.spaces.get(network).into_iter().flat_map(AddressTable::all).map(|(family, number, taken)| (family.address(number), taken))
    }

    /// How much of a pool's family is what.
    #[must_use]
    pub fn usage(&self, pool: &str, family: Family) -> Usage {
        let Some(p) = self.pools.get(pool) else { return Usage::default() };
        let half = p.half(family);
        let waiting = self.waits.needed(pool, family);
        let sum = |state: Option<State>| {
            let areas = half.blocks.values().filter(|a| state.is_none_or(|s| a.state == s));
            areas.fold(0_u128, |sum, area| sum.saturating_add(area.block.run.count()))
        };
        Usage {
            granted: sum(None),
            held: half.held,
            cooling: half.cooling(),
            quarantined: half.quarantined.len() as u64,
            waiting,
            frozen: sum(Some(State::Frozen)),
            unusable: half.blocks.values().fold(0, |sum, area| sum.saturating_add(area.unusable())),
        }
    }

    /// A requested address that rests for longer than so many milliseconds: it is not worth to wait so long for it. What an attachment
    /// holds may be given back at any moment.
    #[must_use]
    pub fn rests_past(&self, ask: &Ask, millis: u64, now: &Moment) -> Option<Refused> {
        ask.wants.iter().find_map(|want| {
            let (network, address) = (self.network(&want.pool)?, want.address?);
            let taken = self.taken(network, address).filter(|taken| !ask.had(taken))?;
            // It rests in any pool of the network that has it: nobody knows in which one.
            let cooldowns = self.pools.values().filter(|pool| pool.spec.network == network).map(|pool| pool.spec.reuse.cooldown);
            let frees_in = taken.frees_in(cooldowns.min()?, now).filter(|frees_in| *frees_in > millis)?;
            Some(Refused::Taken { address, taken: Box::new(taken.clone()), frees_in: Some(frees_in) })
        })
    }

    /// In how many milliseconds the next address of a pool's family has rested long enough; `None` where none rests.
    #[must_use]
    pub fn next_free(&self, pool: &str, family: Family, now: &Moment) -> Option<u64> {
        let p = self.pools.get(pool)?;
        p.half(family).next_free(self.spaces.get(&p.spec.network)?, &p.spec, now)
    }

    /// How many addresses of a pool's family this node should have, in blocks of `block` addresses. What nobody can get of the blocks that
    /// are here counts as in use: a node whose block has one address of the pool needs another block for a second one.
    #[must_use]
    pub fn want(&self, pool: &str, family: Family, block: u64) -> u64 {
        self.spec(pool).map_or(0, |spec| self.wanted((pool, family), &spec.scaling, block))
    }

    /// The same without what it keeps in store: what it cannot do without.
    #[must_use]
    pub fn need(&self, pool: &str, family: Family, block: u64) -> u64 {
        self.spec(pool).map_or(0, |spec| self.wanted((pool, family), &Scaling { pre_allocate: 0, ..spec.scaling }, block))
    }

    fn wanted(&self, (pool, family): (&str, Family), scaling: &Scaling, block: u64) -> u64 {
        let usage = self.usage(pool, family);
        let busy = usage.busy().saturating_sub(self.claimed(pool, family));
        // Who needs no address needs no block for those that nobody can get.
        let beside = if busy == 0 && scaling.pre_allocate == 0 { 0 } else { usage.unusable };
        scaling.want(busy.saturating_add(beside), block)
    }

    /// How many addresses attachments have that are claims': they come one by one, and no block is needed for them.
    fn claimed(&self, pool: &str, family: Family) -> u64 {
        let Some(p) = self.pools.get(pool) else { return 0 };
        let Some(space) = self.spaces.get(&p.spec.network) else { return 0 };
        let runs = p.half(family).blocks.values().filter(|area| area.block.is_claimed()).map(|area| area.block.run);
        runs.map(|run| space.of(run).count() as u64).sum()
    }

    /// In how many blocks, of those that are for anybody, attachments have something. What cools down is free in a moment.
    #[must_use]
    pub fn blocks_held(&self, pool: &str, family: Family) -> u64 {
        let Some(p) = self.pools.get(pool) else { return 0 };
        let Some(space) = self.spaces.get(&p.spec.network) else { return 0 };
        let runs = p.half(family).blocks.values().filter(|area| area.block.claim.is_none()).map(|area| area.block.run);
        runs.filter(|run| space.of(*run).any(|(_, taken)| matches!(taken, Unavailable::Held(_)))).count() as u64
    }

    /// The highest epoch that a block of the pool has or had on this node; 0 without one.
    #[must_use]
    pub fn last_epoch(&self, pool: &str) -> u64 {
        let returned = self.returned.iter().filter(|((name, _), _)| name == pool).map(|(_, epoch)| *epoch);
        let blocks = Family::ALL.into_iter().flat_map(|family| self.blocks(pool, family)).map(|(block, _)| block.epoch);
        returned.chain(blocks).max().unwrap_or(0)
    }
}
