//! Who holds which address of which pool, on one node.
//!
//! ```text
//!   reserve(ask) --> a Lease, or nothing at all and why        release(key) --> its addresses cool down
//!   freeze(block) -> never used again, or who still does       want(pool) ----> how many addresses this node should have
//! ```
//!
//! Each change is an [`Event`]: a journal keeps them, and [`Allocator::apply`] makes the same state of them again. What is
//! done here is memory only; who calls it makes it last, or takes it back ([`Allocator::undo`]).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use self::waits::WaitList;
use crate::address_table::AddressTable;
use crate::family_pool::{Area, FamilyPool, State};
use crate::{Block, Event, Family, Key, Lease, Leased, Moment, Origin, Pod, Refused, Run, Spec, Unavailable, number};

/// All pools of a node, and who holds what of them.
#[derive(Debug, Clone, Default)]
pub struct Allocator {
    pools: BTreeMap<String, Pool>,
    spaces: BTreeMap<String, AddressTable>,
    leases: HashMap<Key, Lease>,
    /// What rested when it was granted to whoever follows the pod that had had it, until that is given back.
    rested: HashMap<Key, Vec<(Leased, Unavailable)>>,
    /// The epoch of each block that was given back.
    returned: BTreeMap<(String, Run), u64>,
    /// Attachments that wait, and others of pods that are being attached, with what they will ask for.
    waits: WaitList,
    next_generation: u64,
    chance: u64,
}

#[derive(Debug, Clone)]
struct Pool {
    spec: Spec,
    v4: FamilyPool,
    v6: FamilyPool,
    /// Deleted: nothing is handed out, what is held stays.
    gone: bool,
    /// Not all of it is known ([`Event::Only`]).
    in_short: bool,
}

/// What an attachment asks for. All of it is granted, or nothing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Who asks.
    pub key: Key,
    /// Its pod.
    pub pod: Option<Pod>,
    /// The claim that it comes with, which opens what is reserved; as [`migrating`](crate::migrating) has it where the pod migrates.
    pub claim: Option<String>,
    /// What it needs.
    pub wants: Vec<Want>,
}

/// One address that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Of which pool.
    pub pool: String,
    /// Of which family.
    pub family: Family,
    /// This one and no other.
    pub address: Option<IpAddr>,
}

/// What an address that is looked for has to do with others.
#[derive(Clone, Copy)]
struct SearchLimits<'a> {
    /// It is none of these, which are for other wants of the same ask.
    found: &'a [Leased],
    /// So many that are free stay for others, who came before.
    kept: usize,
    /// It may be one that the cursors have passed.
    behind: bool,
}

/// What is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Granted {
    /// It has it already: a runtime that calls again gets the same.
    Again(Lease),
    /// It has it now.
    New(Lease),
}

/// How much of a pool's family is what, on this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// In blocks of this node, whatever may be done with them.
    pub granted: u128,
    /// Attachments have them.
    pub held: u64,
    /// Attachments had them a moment ago.
    pub cooling: u64,
    /// Another machine answers for them.
    pub quarantined: u64,
    /// Attachments wait for so many, or will ask for them in a moment.
    pub waiting: u64,
    /// In blocks that are being given back.
    pub frozen: u128,
    /// In the other blocks, and for nobody: exclusions, gateways, what the pool has not any more. Those that are held nevertheless, as they
    /// were excluded later, are counted here as well.
    pub unusable: u64,
}

// === impl Granted ===

impl Granted {
    /// What it has, since when ever.
    #[must_use]
    pub fn lease(self) -> Lease {
        match self {
            Granted::Again(lease) | Granted::New(lease) => lease,
        }
    }
}

// === impl Pool ===

impl Pool {
    fn half(&self, family: Family) -> &FamilyPool {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Nobody has anything of it, nor does this node.
    fn is_empty(&self) -> bool {
        [&self.v4, &self.v6].iter().all(|half| half.held == 0 && half.blocks.is_empty())
    }

    fn half_mut(&mut self, family: Family) -> (&mut FamilyPool, &Spec) {
        match family {
            Family::V4 => (&mut self.v4, &self.spec),
            Family::V6 => (&mut self.v6, &self.spec),
        }
    }
}

// === impl Usage ===

impl Usage {
    /// Whether somebody waits, or will ask in a moment, for whom there is nothing.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let taken = u128::from(self.busy()) + u128::from(self.unusable);
        self.waiting > 0 && self.granted.saturating_sub(self.frozen) < taken
    }

    /// Those that nobody can get now.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.held + self.cooling + self.quarantined + self.waiting
    }
}

// === impl Allocator ===

impl Allocator {
    /// Nothing at all. The seed is for pools whose order is random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Allocator { chance: seed, ..Allocator::default() }
    }

    /// What has rested long enough is free. In how many milliseconds the next one has; `None` where none rests.
    pub fn settle(&mut self, now: &Moment) -> Option<u64> {
        let mut next: Option<u64> = None;
        for pool in self.pools.values_mut() {
            let Some(space) = self.spaces.get_mut(&pool.spec.network) else { continue };
            for half in [&mut pool.v4, &mut pool.v6] {
                half.settle(space, &pool.spec, now);
                next = [next, half.next_free(space, &pool.spec, now)].into_iter().flatten().min();
            }
        }
        next
    }

    // --- attachments ---

    /// Grants all of what is asked for, or nothing.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn reserve(&mut self, ask: &Ask, now: &Moment) -> Result<Granted, Refused> {
        self.reserve_behind(ask, &|_, _| 0, now)
    }

    /// The same, behind others who came before: of how many wants of a pool's family they are is told by `before`. Each of those that is there
    /// stays for them, as they take all that they ask for at once; what is more than that is for who asks.
    ///
    /// # Errors
    /// As for [`Allocator::reserve`].
    pub fn reserve_behind(&mut self, ask: &Ask, before: &dyn Fn(&str, Family) -> usize, now: &Moment) -> Result<Granted, Refused> {
        if let Some(lease) = self.leases.get(&ask.key) {
            return if lease.answers(&ask.wants) {
                Ok(Granted::Again(lease.clone()))
            } else {
                Err(Refused::HoldsOther(Box::new(lease.clone())))
            };
        }
        // Nothing is taken before there is all of it: of what rests nobody could say later how long it had.
        let mut addresses: Vec<Leased> = Vec::with_capacity(ask.wants.len());
        let (mut chance, mut behind) = (self.chance, Vec::new());
        for want in &ask.wants {
            let kept = before(&want.pool, want.family);
            let mut find = |all: &mut Self, behind| all.find(ask, want, SearchLimits { found: &addresses, kept, behind }, now, &mut chance);
            let found = match find(self, false) {
                Err(refused) if self.look_beside(&refused, want, now) => {
                    behind.push(want);
                    find(self, true)
                }
                found => found,
            };
            addresses.push(found?);
        }
        self.chance = chance;
        behind.into_iter().for_each(|want| self.rewind(want));
        let taken = |leased: &Leased| Some((leased.clone(), self.taken(self.network(&leased.pool)?, leased.address)?.clone()));
        let rested: Vec<(Leased, Unavailable)> = addresses.iter().filter_map(taken).collect();
        if !rested.is_empty() {
            self.rested.insert(ask.key.clone(), rested);
        }
        let generation = self.next_generation;
        let (key, pod, claim) = (ask.key.clone(), ask.pod.clone(), ask.claim.clone());
        let lease = Lease { key, generation, pod, claim, since: *now, addresses };
        self.apply(&Event::Leased(lease.clone()));
        Ok(Granted::New(lease))
    }

    /// An address for this want. Nothing becomes of it yet.
    fn find(&mut self, ask: &Ask, want: &Want, beside: SearchLimits<'_>, now: &Moment, chance: &mut u64) -> Result<Leased, Refused> {
        let SearchLimits { found, kept, behind } = beside;
        let same = |leased: &&Leased| Family::of(leased.address) == want.family && self.network(&leased.pool) == self.network(&want.pool);
        let mut chosen: Vec<u128> = found.iter().filter(same).map(|leased| number(leased.address)).collect();
        let unknown = || Refused::UnknownPool { pool: want.pool.clone() };
        let pool = self.pools.get_mut(&want.pool).filter(|p| !p.gone).ok_or_else(unknown)?;
        let waits = &self.waits;
        let waiting = || waits.beside(&ask.key, &want.pool, want.family);
        let network = pool.spec.network.clone();
        let space = self.spaces.entry(network).or_default();
        let in_short = pool.in_short;
        let (half, spec) = pool.half_mut(want.family);
        let number = match want.address {
            Some(address) => {
                half.settle(space, spec, now);
                requested(half, space, spec, ask, &chosen, address, now)?;
                number(address)
            }
            // Who has addresses of its own gets one of them, or waits for it.
            None => {
                half.settle(space, spec, now);
                let own = own_address(half, space, spec, ask, &chosen, now)?;
                if let (None, Some(claim)) = (own, &ask.claim) {
                    return Err(Refused::Unclaimed { pool: want.pool.clone(), family: want.family, claim: claim.clone() });
                }
                let next = own.or_else(|| half.next(space, spec.reuse.order, &chosen, chance));
                let next = next.or_else(|| if behind { half.behind(space, &chosen) } else { None });
                let free = next.map_or(0, |number| {
                    chosen.push(number);
                    1 + if own.is_none() { half.free_up_to(kept, space, &chosen, behind) } else { kept }
                });
                let (held, cooling, kept) = (half.held, half.cooling(), free as u64);
                let (name, family, origin) = (&want.pool, want.family, spec.origin);
                let is_usable = |area: &Area| area.state == State::Active && !spec.usable(area.block.run).is_empty();
                let short = || {
                    // What there is of a host's own pool is all that there is, until somebody makes it another one.
                    if origin == Origin::File && !in_short && !half.blocks.values().any(is_usable) {
                        let excluded = half.blocks.values().any(|area| area.state == State::Active);
                        return Refused::Nothing { pool: name.clone(), family, excluded };
                    }
                    let frees_in = half.next_free(space, spec, now);
                    Refused::Short { pool: name.clone(), family, origin, held, cooling, kept, waiting: waiting(), frees_in }
                };
                next.filter(|_| free > beside.kept).ok_or_else(short)?
            }
        };
        let epoch = half.area(number).map_or(0, |area| area.block.epoch);
        Ok(Leased { pool: want.pool.clone(), address: want.family.address(number), epoch })
    }

    /// Gives back what an attachment holds, of one generation or of any. What does not hold anything, or holds another
    /// generation, has nothing to give back: `None`. The event is applied already.
    pub fn release(&mut self, key: &Key, generation: Option<u64>, now: &Moment) -> Option<Event> {
        let lease = self.leases.get(key).filter(|lease| generation.is_none_or(|g| g == lease.generation))?;
        let event = Event::Released { key: key.clone(), generation: lease.generation, at: *now };
        self.apply(&event);
        Some(event)
    }

    /// Takes back a lease that could not be made to last: nobody has seen it, so its addresses need not cool down for it. What rested before
    /// goes on resting.
    pub fn undo(&mut self, key: &Key, generation: u64) {
        if self.leases.get(key).is_none_or(|lease| lease.generation != generation) {
            return;
        }
        let Some(lease) = self.leases.remove(key) else { return };
        self.waits.holds(key, false);
        for leased in &lease.addresses {
            let Some(pool) = self.pools.get_mut(&leased.pool) else { continue };
            let family = Family::of(leased.address);
            if let Some(space) = self.spaces.get_mut(&pool.spec.network) {
                space.remove(family, number(leased.address));
            }
            let (half, spec) = pool.half_mut(family);
            half.put_back(number(leased.address), spec);
        }
        for (leased, taken) in self.rested.remove(key).unwrap_or_default() {
            self.rest(&leased.pool, leased.address, &taken);
        }
    }

    /// An attachment waits for addresses: they count as needed until [`Allocator::stop_waiting`]. All families that it asks
    /// for count, also those of which there are some: it takes none of them alone.
    /// `false`: it was known already.
    pub fn wait(&mut self, ask: &Ask) -> bool {
        let wants = ask.wants_any().map(|w| (w.pool.clone(), w.family)).collect();
        self.waits.wait(&ask.key, wants)
    }

    /// An attachment will ask for these, when others of its pod have got theirs: they count as needed until it has them, or
    /// [`Allocator::unforesee`].
    pub fn reserve_hint(&mut self, key: Key, wants: Vec<(String, Family)>) {
        let holds = self.leases.contains_key(&key);
        self.waits.reserve_hint(&key, wants, holds);
    }

    /// It has asked, or never will. Whether it was foreseen.
    pub fn unforesee(&mut self, key: &Key) -> bool {
        self.waits.unforesee(key)
    }

    /// How many attachments wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waits.len()
    }

    /// It has got them, or has given up. Whether it waited.
    pub fn stop_waiting(&mut self, key: &Key) -> bool {
        self.waits.stop(key)
    }

    // --- blocks ---

    /// Whether a block may come: not one that was given back in this epoch or a later one, nor one over another.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn admit(&self, block: &Block) -> Result<(), Refused> {
        let returned = self.returned.get(&(block.pool.clone(), block.run)).copied();
        if let Some(epoch) = returned.filter(|epoch| block.epoch <= *epoch) {
            return Err(Refused::Returned { run: block.run, epoch });
        }
        let pool = self.pools.get(&block.pool).ok_or_else(|| Refused::UnknownPool { pool: block.pool.clone() })?;
        // Two pools of a host's own may have the same addresses: whoever has one has it in the network, not in the pool.
        let apart = |p: &Pool| p.spec.origin == Origin::File && pool.spec.origin == Origin::File && p.spec.name != pool.spec.name;
        let others = self.pools.values().filter(|p| p.spec.network == pool.spec.network && !apart(p));
        // Blocks of one pool have nothing in common: the last one that begins before the end of this one reaches farthest.
        let mut areas =
            others.filter_map(|p| p.half(block.run.family()).blocks.range(..=block.run.numbers().1).next_back()).map(|(_, a)| a);
        match areas.find(|area| area.block.run.common(&block.run).is_some() && !area.block.is_life_of(block)) {
            Some(other) => Err(Refused::Overlaps { run: block.run, pool: other.block.pool.clone(), other: other.block.run }),
            None => Ok(()),
        }
    }

    /// Stops a block of which nobody has anything, for ever: it can be given back. The event is applied already.
    ///
    /// # Errors
    /// [`Refused::InUse`] with an address of it that is held, cooling or in quarantine; [`Refused::NoBlock`].
    pub fn freeze(&mut self, pool: &str, run: Run, now: &Moment) -> Result<Event, Refused> {
        let no_block = || Refused::NoBlock { pool: pool.to_owned(), run };
        let p = self.pools.get_mut(pool).ok_or_else(no_block)?;
        let space = self.spaces.entry(p.spec.network.clone()).or_default();
        let (half, spec) = p.half_mut(run.family());
        half.settle(space, spec, now);
        let area = half.blocks.get(&run.numbers().0).filter(|area| area.block.run == run).ok_or_else(no_block)?;
        if let Some((number, taken)) = space.of(run).next() {
            return Err(Refused::InUse { address: run.family().address(number), taken: Box::new(taken.clone()) });
        }
        let event = Event::Frozen { pool: pool.to_owned(), run, epoch: area.block.epoch };
        self.apply(&event);
        Ok(event)
    }

    /// Whether a block is stopped for ever.
    #[must_use]
    pub fn is_frozen(&self, pool: &str, run: Run) -> bool {
        let area = self.pools.get(pool).and_then(|p| p.half(run.family()).blocks.get(&run.numbers().0));
        area.is_some_and(|area| area.block.run == run && area.state == State::Frozen)
    }

    // --- the journal's side ---

    /// Makes a change that was decided before. Applied in their order, the same events make the same state, whatever the
    /// machine; one that does not fit, as its pool is gone say, changes nothing.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Pool(spec) => self.set_pool(spec),
            Event::PoolGone { pool } => self.end_pool(pool),
            Event::Block(block, state) => self.set_block(block, *state),
            Event::Frozen { pool, run, epoch } => self.set_state(pool, *run, *epoch, State::Frozen),
            Event::Withdrawn { pool, run, epoch } => self.set_state(pool, *run, *epoch, State::Withdrawn),
            Event::BlockGone { pool, run, epoch } => self.end_block(pool, *run, *epoch),
            Event::Leased(lease) => self.hold(lease.clone()),
            Event::Released { key, generation, at } => self.cool(key, *generation, at),
            Event::Cooling { pool, address, taken } | Event::Quarantined { pool, address, taken } => self.rest(pool, *address, taken),
            Event::Generation(next) => self.next_generation = self.next_generation.max(*next),
            Event::Only { pool, runs } => self.only(pool, runs),
        }
    }

    /// The same with an event that nobody needs any more: a journal has very many.
    pub fn take_in(&mut self, event: Event) {
        match event {
            Event::Leased(lease) => self.hold(lease),
            other => self.apply(&other),
        }
    }
}

mod brief;
mod changes;
mod events;
mod shared;
mod tell;
mod waits;

impl Ask {
    /// Whether a block that is only this owner's is who asks's.
    fn owns(&self, claim: &str) -> bool {
        self.claim.as_deref() == Some(claim) || self.pod.as_ref().is_some_and(|pod| pod.is_pinned(claim))
    }

    /// What any address will do for: a claim gets its own ones and no others.
    pub fn wants_any(&self) -> impl Iterator<Item = &Want> {
        self.wants.iter().filter(|want| want.address.is_none() && self.claim.is_none())
    }

    /// Who follows a pod need not wait for what it had itself.
    fn had(&self, taken: &Unavailable) -> bool {
        let Unavailable::Cooling { pod: Some(had), .. } = taken else { return false };
        self.pod.as_ref().is_some_and(|pod| pod.is_named_as(had))
    }
}

/// An address of a block that is only who asks's, and that nobody has; `None` where there is no such block.
fn own_address(
    half: &FamilyPool,
    space: &AddressTable,
    spec: &Spec,
    ask: &Ask,
    chosen: &[u128],
    now: &Moment,
) -> Result<Option<u128>, Refused> {
    let owned = |area: &&Area| area.state == State::Active && area.block.claim.as_deref().is_some_and(|claim| ask.owns(claim));
    let mine = Unavailable::Held(ask.key.clone());
    let mut busy = None;
    for area in half.blocks.values().filter(owned) {
        for number in for_its_owner(&area.block, spec).into_iter().flat_map(|run| run.numbers().0..=run.numbers().1) {
            match space.get(half.family(), number) {
                _ if chosen.contains(&number) => busy = busy.or(Some((number, &mine))),
                Some(taken) if !ask.had(taken) => busy = busy.or(Some((number, taken))),
                _ => return Ok(Some(number)),
            }
        }
    }
    let Some((number, taken)) = busy else { return Ok(None) };
    let frees_in = taken.frees_in(spec.reuse.cooldown, now);
    Err(Refused::Taken { address: half.family().address(number), taken: Box::new(taken.clone()), frees_in })
}

/// What the owner of a block gets of it. A claim keeps what it has, whatever its pool excludes later; a pod's is of a network whose
/// edges nobody gets.
fn for_its_owner(block: &Block, spec: &Spec) -> Vec<Run> {
    let gateway = spec.terms(block.run.family()).gateway.map(Run::single);
    let excluded = spec.exclude.iter().filter(|_| !block.is_claimed());
    gateway.iter().chain(excluded).fold(vec![block.run], |left, other| left.into_iter().flat_map(|run| run.without(other)).collect())
}

/// Whether a requested address can be had.
fn requested(
    half: &FamilyPool,
    space: &AddressTable,
    spec: &Spec,
    ask: &Ask,
    chosen: &[u128],
    address: IpAddr,
    now: &Moment,
) -> Result<(), Refused> {
    let number = number(address);
    let area = half.area(number).filter(|_| half.family() == Family::of(address));
    let area = area.filter(|area| area.state == State::Active);
    let area = area.ok_or_else(|| Refused::NotOfThisNode { pool: spec.name.clone(), address })?;
    match (&area.block.claim, &ask.claim) {
        (Some(owner), _) if !ask.owns(owner) => return Err(Refused::Claimed { address, claim: owner.clone() }),
        (Some(_), _) if !for_its_owner(&area.block, spec).iter().any(|run| run.contains(address)) => {
            return Err(Refused::Excluded { pool: spec.name.clone(), address });
        }
        (Some(_), _) => {}
        (None, _) if spec.allowed(Run::single(address)).is_empty() => return Err(Refused::Excluded { pool: spec.name.clone(), address }),
        (None, None) if spec.usable(Run::single(address)).is_empty() => return Err(Refused::Reserved { pool: spec.name.clone(), address }),
        (None, _) => {}
    }
    match space.get(half.family(), number) {
        _ if chosen.contains(&number) => Err(Refused::Twice { address }),
        None => Ok(()),
        Some(taken) if ask.had(taken) => Ok(()),
        Some(taken) => Err(Refused::Taken { address, taken: Box::new(taken.clone()), frees_in: taken.frees_in(spec.reuse.cooldown, now) }),
    }
}
