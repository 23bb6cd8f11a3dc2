//! What the journal of a host's pools says at this moment, read while others hand out addresses: nobody waits for it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use journal::{OpenError, Reading};
use pool::{Allocator, DecodeError, Event, Family, Key, Lease, Moment, Origin, Pod, Run, State, Unavailable, number};

use super::clock::Clock;
use super::error::{PoolStoreError, fits};
use super::grant::Pool;
use super::granted::{OfBoth, apply, of_file};
use super::node::KeptFor;
use super::observed::{self, ObservedAddress};

/// All pools of a host, as they were when they were looked at.
#[derive(Debug, Clone)]
pub struct HostPools {
    /// Who holds what. What was held when the machine was last started is given back here, as who opens the store does.
    pub allocator: Allocator,
    /// When they were looked at.
    pub now: Moment,
    /// Of the log that the last snapshot has replaced, then all that counts.
    events: Vec<Event>,
    heard: Vec<ObservedAddress>,
}

/// How many addresses of a pool's family are what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// That anybody may get: without exclusions, gateways, and what only claims get.
    pub capacity: u128,
    /// Attachments have them.
    pub held: u64,
    /// Attachments have them as well, and they are not of the pool any more: their block has left it, or they were excluded since. They
    /// take nothing of `capacity`.
    pub outside: u64,
    /// Attachments had them a moment ago.
    pub cooling: u64,
    /// Another machine answers for them.
    pub quarantined: u64,
    /// Of `capacity`, those that whoever asks now gets.
    pub free: u128,
    /// That claims alone get.
    pub reserved: u128,
    /// In blocks that are being given back.
    pub frozen: u128,
}

/// That an attachment had an address, or has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// The network in which the address is unique.
    pub network: String,
    /// The pool; empty where only its end is known.
    pub pool: String,
    /// Which of all leases.
    pub generation: u64,
    /// The attachment; `None` where only its end is known.
    pub key: Option<Key>,
    /// Its pod.
    pub pod: Option<Pod>,
    /// From when.
    pub since: Option<Moment>,
    /// Until when; `None`: it has it.
    pub until: Option<Moment>,
}

// === impl HostPools ===

impl HostPools {
    /// Looks at the store in a directory; nothing in it where there is none.
    ///
    /// # Errors
    /// [`PoolStoreError`], never that another process has it.
    pub fn read(dir: &Path) -> Result<Self, PoolStoreError> {
        let Reading { past, records } = journal::read(dir)?.unwrap_or_default();
        let now = Clock::of_the_machine()?.now();
        let foreign = |reason: DecodeError| PoolStoreError::Foreign { dir: dir.to_owned(), reason };
        let current: Vec<Event> = records.iter().map(|r| Event::decode(r)).collect::<Result<_, _>>().map_err(foreign)?;
        let mut allocator = Allocator::new(0);
        current.iter().for_each(|event| allocator.apply(event));
        let dead: Vec<Key> = allocator.leases().filter(|l| l.since.boot != now.boot).map(|l| l.key.clone()).collect();
        for key in &dead {
            allocator.release(key, None, &now);
        }
        // What another release wrote, long ago, harms nobody.
        let past = past.iter().filter_map(|r| Event::decode(r).ok());
        Ok(HostPools { allocator, now, events: past.chain(current).collect(), heard: observed::read(dir, &now) })
    }

    /// Nothing is known yet: what is applied to it makes a store ([`HostPools::begin_anew`]).
    ///
    /// # Errors
    /// [`PoolStoreError::Boot`]
    pub fn nothing() -> Result<Self, PoolStoreError> {
        Ok(HostPools { allocator: Allocator::new(0), now: Clock::of_the_machine()?.now(), events: Vec::new(), heard: Vec::new() })
    }

    /// The pools of which what can be read of a damaged journal tells, and of whom each is, where that can be read: the last ones that it
    /// had. There may have been others.
    ///
    /// # Errors
    /// [`PoolStoreError::Open`]: a file is there and cannot be read at all.
    pub fn named_in(dir: &Path) -> Result<BTreeMap<String, Option<Origin>>, PoolStoreError> {
        let mut named = BTreeMap::new();
        if !dir.exists() {
            return Ok(named);
        }
        let salvaged = journal::salvage(dir, |record| {
            let mut also = |pool: String| {
                named.entry(pool).or_insert(None);
            };
            match Event::decode(record) {
                Ok(Event::Pool(spec)) => drop(named.insert(spec.name, Some(spec.origin))),
                Ok(Event::PoolGone { pool }) => drop(named.remove(&pool)),
                Ok(Event::Block(block, _)) => also(block.pool),
                Ok(Event::Leased(lease)) => lease.addresses.into_iter().for_each(|leased| also(leased.pool)),
                Ok(Event::Cooling { pool, .. } | Event::Quarantined { pool, .. }) => also(pool),
                _ => {}
            }
        });
        salvaged.map_err(OpenError::from)?;
        Ok(named)
    }

    /// Makes this the store of a directory whose journal is damaged; the damaged one is kept where this says.
    ///
    /// # Errors
    /// [`PoolStoreError::Open`]
    pub fn begin_anew(&self, dir: &Path, deadline: Instant) -> Result<PathBuf, PoolStoreError> {
        Ok(journal::begin_anew(dir, deadline, self.allocator.events().iter().map(Event::encode))?)
    }

    /// A pool is as its file says, as it would be for the next ADD.
    ///
    /// # Errors
    /// [`PoolStoreError::OfBoth`], [`Refused::OtherNetwork`](pool::Refused::OtherNetwork)
    pub fn follow(&mut self, pool: &Pool) -> Result<(), PoolStoreError> {
        let both = |OfBoth| PoolStoreError::OfBoth { pool: pool.spec.name.clone() };
        fits(apply(&mut self.allocator, |all| of_file(all, pool)).map_err(both)?)
    }

    /// What is known of a machine outside that has an address of a network which an attachment has as well.
    #[must_use]
    pub fn heard(&self, network: &str, address: IpAddr) -> Option<&ObservedAddress> {
        self.heard.iter().find(|heard| heard.network == network && heard.address == address)
    }

    /// How many addresses of a pool's family are what.
    #[must_use]
    pub fn figures(&self, pool: &str, family: Family) -> Figures {
        Figures::of(&self.allocator, &self.now, pool, family)
    }

    /// Who had an address and who has it, in each network: the latest last. As far back as the journal reaches.
    #[must_use]
    pub fn tenures(&self, address: IpAddr) -> Vec<Tenure> {
        let mut networks: BTreeMap<&str, &str> = BTreeMap::new();
        let mut found: BTreeMap<u64, Tenure> = BTreeMap::new();
        for event in &self.events {
            match event {
                Event::Pool(spec) => {
                    networks.entry(&spec.name).or_insert(&spec.network);
                }
                Event::Leased(lease) => {
                    for leased in lease.addresses.iter().filter(|leased| leased.address == address) {
                        let network = networks.get(leased.pool.as_str()).copied().unwrap_or(&leased.pool);
                        let old = found.remove(&lease.generation);
                        let new = held(lease, network, &leased.pool);
                        found.insert(lease.generation, Tenure { until: old.and_then(|old| old.until), ..new });
                    }
                }
                Event::Released { generation, at, .. } => {
                    if let Some(tenure) = found.get_mut(generation) {
                        tenure.until = Some(*at);
                    }
                }
                Event::Cooling { pool, address: other, taken: Unavailable::Cooling { since, generation, pod } } if *other == address => {
                    let network = networks.get(pool.as_str()).copied().unwrap_or(pool).to_owned();
                    let known = found.entry(*generation).or_insert_with(|| Tenure {
                        network,
                        pool: pool.clone(),
                        generation: *generation,
                        key: None,
                        pod: pod.clone(),
                        since: None,
                        until: None,
                    });
                    known.until = Some(*since);
                }
                _ => {}
            }
        }
        self.ended(address, found.into_values().collect())
    }

    /// What the journal has no end of, and what nobody holds any more, has ended with the machine's last start.
    fn ended(&self, address: IpAddr, mut tenures: Vec<Tenure>) -> Vec<Tenure> {
        let start = Moment { millis: 0, ..self.now };
        for tenure in tenures.iter_mut().filter(|tenure| tenure.until.is_none()) {
            let lease = tenure.key.as_ref().and_then(|key| self.allocator.lease(key));
            let has = |lease: &Lease| lease.generation == tenure.generation && lease.addresses.iter().any(|l| l.address == address);
            if !lease.is_some_and(has) {
                tenure.until = Some(start);
            }
        }
        tenures
    }
}

// === impl Figures ===

impl Figures {
    /// Those of a pool's family, also of one that is not there any more.
    #[must_use]
    pub fn of(all: &Allocator, now: &Moment, pool: &str, family: Family) -> Self {
        let mut figures = Figures { held: all.usage(pool, family).held, ..Figures::default() };
        let Some(spec) = all.last_spec(pool) else { return figures };
        let is_gone = all.spec(pool).is_none();
        let (mut usable, mut of_pool) = (Vec::new(), Vec::new());
        let (mut blocks, mut kept) = (Vec::new(), 0);
        for (block, state) in all.blocks(pool, family) {
            blocks.push(block.run);
            let count = |runs: &[Run]| runs.iter().fold(0_u128, |sum, run| sum.saturating_add(run.count()));
            match state {
                State::Frozen => figures.frozen = figures.frozen.saturating_add(block.run.count()),
                State::Active if is_gone => {}
                State::Active if block.claim.is_none() => {
                    let (anybody, claims) = (spec.usable(block.run), spec.allowed(block.run));
                    figures.reserved = figures.reserved.saturating_add(count(&claims) - count(&anybody));
                    figures.capacity = figures.capacity.saturating_add(count(&anybody));
                    usable.extend(anybody);
                    of_pool.extend(claims);
                }
                State::Active => {
                    let claims = spec.allowed(block.run);
                    // A pod has it that another program attached: no lease says so.
                    if block.claim.as_deref().is_some_and(|name| KeptFor::parse(name).is_some()) {
                        figures.capacity = figures.capacity.saturating_add(count(&claims));
                        kept += if all.is_used(block) { 0 } else { count(&claims) };
                        usable.extend(claims.iter().copied());
                    } else {
                        figures.reserved = figures.reserved.saturating_add(count(&claims));
                    }
                    of_pool.extend(claims);
                }
                State::Withdrawn => {}
            }
        }
        usable.sort();
        of_pool.sort();
        if !is_gone && figures.held > 0 {
            let leased = all.leases().flat_map(|lease| &lease.addresses).filter(|l| l.pool == pool && Family::of(l.address) == family);
            figures.outside = leased.filter(|leased| !covered(&of_pool, leased.address)).count() as u64;
            figures.held = figures.held.saturating_sub(figures.outside);
        }
        let mut busy = 0;
        for (address, taken) in all.all_taken(&spec.network) {
            if !covered(&blocks, address) || taken.frees_in(spec.reuse.cooldown, now) == Some(0) {
                continue;
            }
            match taken {
                Unavailable::Held(_) => {}
                Unavailable::Cooling { .. } => figures.cooling += 1,
                Unavailable::Quarantined { .. } => figures.quarantined += 1,
            }
            busy += u128::from(covered(&usable, address));
        }
        figures.held = figures.held.saturating_add(u64::try_from(kept).unwrap_or(u64::MAX));
        figures.free = figures.capacity.saturating_sub(busy).saturating_sub(kept);
        figures
    }
}

fn held(lease: &Lease, network: &str, pool: &str) -> Tenure {
    let (network, pool) = (network.to_owned(), pool.to_owned());
    let (key, pod) = (Some(lease.key.clone()), lease.pod.clone());
    Tenure { network, pool, generation: lease.generation, key, pod, since: Some(lease.since), until: None }
}

/// Whether one of these runs, which are in order, has the address.
fn covered(runs: &[Run], address: IpAddr) -> bool {
    let (family, number) = (Family::of(address), number(address));
    let at = runs.partition_point(|run| run.numbers().1 < number);
    runs.get(at).is_some_and(|run| run.family() == family && run.numbers().0 <= number)
}

#[cfg(test)]
mod tests {
    use pool::{Block, Spec};

    use super::*;

    /// Of two addresses that a node was granted for somebody, a pod has the one; the other is a claim's.
    #[test]
    fn what_another_program_has_attached_is_held() {
        let mut all = Allocator::new(1);
        let mut spec = Spec::new("p", "p");
        spec.v4.prefix = 16;
        all.apply(&Event::Pool(spec));
        let kept = KeptFor { pod: "d/p1".to_owned(), container: "c".to_owned(), ifname: "net1".to_owned() }.to_string();
        for (address, claim) in [("10.9.0.1", Some(kept)), ("10.9.0.2", Some("d/vm".to_owned())), ("10.9.0.3", None)] {
            let block = Block { pool: "p".to_owned(), run: address.parse().unwrap(), epoch: 1, claim };
            all.apply(&Event::Block(block, State::Active));
        }
        let figures = Figures::of(&all, &Moment::default(), "p", Family::V4);
        assert_eq!((figures.capacity, figures.held, figures.free, figures.reserved), (2, 1, 1, 1), "{figures:?}");
    }
}
