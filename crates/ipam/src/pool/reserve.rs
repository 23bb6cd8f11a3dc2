//! An address for an attachment, at once or in line; and blocks that nobody gets an address of any more.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use pool::{Allocator, Ask, Block, Family, Granted, Key, Lease, Moment, Origin, Refused, Run, Spec, State};

use super::error::PoolStoreError;
use super::granted::Changes;
use super::line::LineTicket;
use super::meter::Meters;
use super::node::KeptFor;
use super::store::{FREED, Guarded, PoolStore};

impl PoolStore {
    /// Grants what is asked for, or nothing. It is on the disk when this returns. Does not wait for addresses.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn reserve(&self, ask: &Ask) -> Result<Lease, PoolStoreError> {
        self.reserve_by(ask, Instant::now())
    }

    /// The same; where addresses are short it waits for them until the deadline, behind those who came before: what there is of what they
    /// want stays for them. All that it wants counts as needed meanwhile, in both families, and it takes all at once.
    ///
    /// # Errors
    /// [`PoolStoreError`]: what was missing last. [`PoolStoreError::Leaving`] also where the attachment was detached meanwhile.
    pub fn reserve_by(&self, ask: &Ask, deadline: Instant) -> Result<Lease, PoolStoreError> {
        self.take_by(ask, deadline).map(Granted::lease)
    }

    /// The same, and whether the attachment had it before: what it had is not to be given back where an ADD fails that has asked for it
    /// again.
    ///
    /// # Errors
    /// As [`PoolStore::reserve_by`].
    pub fn take_by(&self, ask: &Ask, deadline: Instant) -> Result<Granted, PoolStoreError> {
        let begun = Instant::now();
        let done = self.grant_in_turn(ask, deadline, begun);
        self.waits(false);
        let meter = if done.is_ok() { &self.meters.granted } else { &self.meters.refused };
        meter.add(begun.elapsed());
        done
    }

    /// What was counted since it was opened.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    fn grant_in_turn(&self, ask: &Ask, deadline: Instant, begun: Instant) -> Result<Granted, PoolStoreError> {
        let mut state = self.state();
        self.meters.locked.add(begun.elapsed());
        self.knows_enough(&state.allocator, ask)?;
        let place = state.line.join(ask);
        let (mut state, granted) = self.wait_in_line(state, ask, place, deadline);
        // At the same moment: who comes next must not find somebody before it who has what he wanted.
        state.line.leave(place);
        if state.allocator.stop_waiting(&ask.key) {
            self.meters.waited.add(begun.elapsed());
        }
        let lease = match granted {
            Ok(Granted::New(lease)) => lease,
            // It is on the disk: nobody waits for it any more.
            Ok(again @ Granted::Again(_)) => {
                self.tell(state);
                return Ok(again);
            }
            Err(e) => {
                self.tell(state);
                return Err(e);
            }
        };
        self.land(state, lease).map(Granted::New)
    }

    /// What was granted, on the disk.
    pub(super) fn land(&self, mut state: MutexGuard<'_, Guarded>, lease: Lease) -> Result<Lease, PoolStoreError> {
        state.arriving.insert(lease.key.clone());
        let ticket = self.journal.append(&pool::Event::Leased(lease.clone()).encode());
        // The next one in line, before the disk is waited for: its flush is the same.
        self.tell(state);
        let flush = Instant::now();
        let written = self.journal.wait(&ticket);
        self.meters.flushed.add(flush.elapsed());
        let mut state = self.state();
        state.arriving.remove(&lease.key);
        if written.is_err() {
            state.allocator.undo(&lease.key, lease.generation);
        }
        self.tell(state);
        written?;
        self.tidy();
        Ok(lease)
    }

    /// The grant, in memory.
    fn wait_in_line<'s>(
        &'s self,
        state: MutexGuard<'s, Guarded>,
        ask: &Ask,
        place: LineTicket,
        deadline: Instant,
    ) -> (MutexGuard<'s, Guarded>, Result<Granted, PoolStoreError>) {
        // Whoever was granted the same may wait for the disk yet, and may have to give it back.
        let settled = |state: &Guarded| !state.arriving.contains(&ask.key);
        let mut state = self.wait_until(state, settled);
        let (mut asked, mut goes_on) = (Instant::now(), true);
        loop {
            if !goes_on {
                return (state, Err(PoolStoreError::Abandoned));
            }
            if state.leaving.contains(&ask.key) || state.line.is_detached(place) {
                return (state, Err(PoolStoreError::Leaving { key: ask.key.clone() }));
            }
            if let Some(why) = &state.closed {
                let why = why.clone();
                return (state, Err(PoolStoreError::Closed { why }));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.paused {
                if left.is_zero() {
                    let why = "its addresses are being rebuilt".to_owned();
                    return (state, Err(PoolStoreError::Closed { why }));
                }
                (state, goes_on) = self.wait_a_turn(state, left, &mut asked);
                continue;
            }
            let now = self.now();
            let refused = match state.turn(ask, place, &now) {
                Ok(granted) => return (state, Ok(granted)),
                Err(refused) => refused,
            };
            if left.is_zero() || !state.may_pass(&refused) {
                return (state, Err(PoolStoreError::Refused(refused)));
            }
            if let Some(refused) = state.in_vain(ask, &refused, left, &now) {
                return (state, Err(refused.into()));
            }
            state.line.stay(place);
            if state.allocator.wait(ask) {
                self.tell(state);
                self.waits(true);
                state = self.state();
            } else {
                let left = state.next_free(ask, &refused, &now).map_or(left, |soon| left.min(soon));
                (state, goes_on) = self.wait_a_turn(state, left, &mut asked);
            }
            state = self.wait_until(state, settled);
        }
    }

    /// Pools and blocks that are not here yet may come, and are waited for; or not any more.
    pub fn expect(&self, more: bool) {
        let mut state = self.state();
        if state.expecting != more {
            state.expecting = more;
            self.tell(state);
        }
    }

    /// Something else is known of pools now: whoever waits looks again.
    pub fn look_again(&self) {
        self.tell(self.state());
    }

    /// Whether that is so.
    pub fn expects(&self) -> bool {
        self.state().expecting
    }

    /// The terms of a pool that is no file's, as the cluster said last.
    pub fn cluster_pool(&self, pool: &str) -> Option<Spec> {
        self.look(|all| all.spec(pool).filter(|spec| spec.origin != Origin::File).cloned())
    }

    /// The names of all pools that a cluster has granted, also of those of which only something is left.
    pub fn cluster_pools(&self) -> Vec<String> {
        self.look(|all| {
            all.every_pool().filter(|pool| all.origin(pool).is_some_and(|origin| origin != Origin::File)).map(str::to_owned).collect()
        })
    }

    /// A pool's blocks, in order, and what becomes of them.
    pub fn blocks(&self, pool: &str) -> Vec<(Block, State)> {
        let of = |all: &Allocator, family| all.blocks(pool, family).map(|(b, s)| (b.clone(), s)).collect::<Vec<_>>();
        self.look(|all| Family::ALL.into_iter().flat_map(|family| of(all, family)).collect())
    }

    /// When something that was refused may have rested long enough.
    pub fn frees_in(&self, ask: &Ask, refused: &PoolStoreError) -> Option<Duration> {
        match refused {
            PoolStoreError::Refused(refused) => self.state().next_free(ask, refused, &self.now()),
            _ => None,
        }
    }

    /// What was refused cannot be had until then, and why: an address that was asked for rests for longer.
    pub fn in_vain(&self, ask: &Ask, refused: &PoolStoreError, until: Instant) -> Option<PoolStoreError> {
        let PoolStoreError::Refused(refused) = refused else { return None };
        let left = until.saturating_duration_since(Instant::now());
        Some(self.state().in_vain(ask, refused, left, &self.now())?.into())
    }

    /// What has rested long enough counts as needed no more. When the next one has.
    pub fn settle(&self) -> Option<Duration> {
        self.state().allocator.settle(&self.now()).map(|millis| Duration::from_millis(millis.max(1)))
    }

    /// Nobody is granted anything until it is opened again, and this is why; or is.
    pub fn close(&self, why: Option<String>) {
        let mut state = self.state();
        if state.closed != why {
            state.closed = why;
            self.tell(state);
        }
    }

    /// Why nobody is granted anything.
    pub fn closed(&self) -> Option<String> {
        self.state().closed.clone()
    }

    /// Others may be waiting with the journal closed: they are told that something was given back. Who is not told looks again
    /// in the end.
    pub fn tell_others(&self) {
        drop(std::fs::File::options().create(true).truncate(false).write(true).open(self.dir().join(FREED)));
    }

    /// How many attachments wait for addresses, or for a pool that may come.
    pub fn waiting(&self) -> usize {
        let state = self.state();
        state.allocator.waiting() + state.looking
    }

    /// Stops blocks of which nobody has anything, for ever: they can be given back. Returned are those of which that is so, and
    /// on the disk; of the others somebody has an address.
    ///
    /// # Errors
    /// [`PoolStoreError::Write`]: nobody gets an address of them any more, but they must not be given back yet:
    /// [`PoolStore::freeze_again`].
    pub fn freeze(&self, pool: &str, runs: &[Run]) -> Result<Vec<Run>, PoolStoreError> {
        self.all_of_it()?;
        let (mut state, now) = (self.state(), self.now());
        let (mut frozen, mut events) = (Vec::new(), Vec::new());
        for run in runs {
            // It is on the disk already: then there is nothing to write, and nothing new to tell.
            if state.allocator.is_frozen(pool, *run) && !state.freezing.contains(&(pool.to_owned(), *run)) {
                frozen.push(*run);
                continue;
            }
            // One lock: whether anybody has something of it, and that nobody will.
            if let Ok(event) = state.allocator.freeze(pool, *run, &now) {
                state.freezing.insert((pool.to_owned(), *run));
                frozen.push(*run);
                events.push(event);
            }
        }
        // Who follows what changes here asks again when it does: where nothing has, that would be for ever.
        if events.is_empty() {
            return Ok(frozen);
        }
        let (written, state) = self.keep(state, &events);
        written?;
        linux::crash_point!("pool-frozen");
        self.unsure(state, pool, &frozen);
        self.tidy();
        Ok(frozen)
    }

    /// Stops what is kept for an attachment that was made before this node's agent was there: it has no lease, and is detached now. How
    /// many addresses it were.
    ///
    /// # Errors
    /// As [`PoolStore::freeze`].
    pub fn return_kept(&self, key: &Key) -> Result<usize, PoolStoreError> {
        let of = |claim: &str| KeptFor::parse(claim).is_some_and(|of| of.container == key.container && of.ifname == key.ifname);
        let kept: Vec<(String, Run)> = self.look(|all| {
            let blocks = all.every_pool().flat_map(|pool| Family::ALL.map(|family| all.blocks(pool, family))).flatten();
            let kept = blocks.filter(|(block, state)| *state != State::Frozen && block.claim.as_deref().is_some_and(of));
            kept.map(|(block, _)| (block.pool.clone(), block.run)).collect()
        });
        kept.iter().try_fold(0, |done, (pool, run)| Ok(done + self.freeze(pool, &[*run])?.len()))
    }

    /// Writes what was stopped and could not be written then.
    ///
    /// # Errors
    /// [`PoolStoreError::Write`]: as for [`PoolStore::freeze`].
    pub fn freeze_again(&self) -> Result<(), PoolStoreError> {
        let unwritten = self.state().freezing.clone();
        for (pool, run) in unwritten {
            // One that comes again in another life is not meant.
            let is_stopped = self.blocks(&pool).iter().any(|(block, state)| block.run == run && *state == State::Frozen);
            if !is_stopped || self.freeze(&pool, &[run])?.is_empty() {
                self.unsure(self.state(), &pool, &[run]);
            }
        }
        Ok(())
    }

    fn unsure(&self, mut state: MutexGuard<'_, Guarded>, pool: &str, frozen: &[Run]) {
        state.freezing.retain(|(name, run)| name != pool || !frozen.contains(run));
        self.tell(state);
    }

    /// The blocks that this node will never use again: they may be given back.
    pub fn frozen(&self) -> Vec<Block> {
        let state = self.state();
        let pools: Vec<&str> = state.allocator.every_pool().collect();
        let blocks = pools.into_iter().flat_map(|pool| Family::ALL.map(|family| state.allocator.blocks(pool, family)));
        let frozen = blocks.flatten().filter(|(_, s)| *s == State::Frozen).map(|(block, _)| block);
        frozen.filter(|block| !state.freezing.contains(&(block.pool.clone(), block.run))).cloned().collect()
    }

    /// A block is not this node's any more; who has an address of it keeps it. What was given back in this epoch or an earlier
    /// one never comes again.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn forget(&self, block: &Block) -> Result<(), PoolStoreError> {
        let event = pool::Event::BlockGone { pool: block.pool.clone(), run: block.run, epoch: block.epoch };
        let gone = |_: &pool::Allocator| Ok(Changes { events: vec![event.clone()], ..Changes::default() });
        self.make_so(&block.pool, gone).map(drop)
    }
}

// === impl Guarded ===

impl Guarded {
    /// What an attachment gets now, behind those who came before it.
    fn turn(&mut self, ask: &Ask, place: LineTicket, now: &Moment) -> Result<Granted, Box<Refused>> {
        let Guarded { allocator, line, .. } = self;
        allocator.reserve_behind(ask, &|pool, family| line.before(place, pool, family), now).map_err(Box::new)
    }

    /// Whether it may be otherwise in a moment.
    fn may_pass(&self, refused: &Refused) -> bool {
        match refused {
            Refused::Short { .. } | Refused::Taken { .. } => true,
            Refused::UnknownPool { .. } | Refused::NotOfThisNode { .. } | Refused::Unclaimed { .. } => self.expecting,
            _ => false,
        }
    }

    /// Whether it cannot be otherwise so soon, and why not: a requested address rests for longer.
    fn in_vain(&self, ask: &Ask, refused: &Refused, left: Duration, now: &Moment) -> Option<Refused> {
        let waits = matches!(refused, Refused::Short { .. } | Refused::Taken { .. });
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if waits { self.allocator.rests_past(ask, millis, now) } else { None }
    }

    /// When something that it waits for has rested long enough.
    fn next_free(&self, ask: &Ask, refused: &Refused, now: &Moment) -> Option<Duration> {
        let millis = match refused {
            Refused::Short { .. } => ask.wants.iter().filter_map(|w| self.allocator.next_free(&w.pool, w.family, now)).min(),
            Refused::Taken { frees_in, .. } => *frees_in,
            _ => None,
        };
        // What has rested long enough by now, and is still not to be had, is not what is waited for.
        millis.map(|millis| Duration::from_millis(millis.max(1)))
    }
}
