//! The allocator and its journal, as one: what is answered is on the disk.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use journal::Journal;
use linux::file::TURN;
use pool::{Allocator, Ask, Event, Key, Lease, Moment, Refused, Run};

use super::clock::Clock;
use super::conflict::AddressConflict;
use super::error::{PoolStoreError, fits};
use super::grant::Pool;
use super::granted::{self, Changes, OfBoth};
use super::line::Line;
use super::meter::Meters;
use super::observed::AllNoted;
use super::part::{self, Span};
use super::recovery::Recovery;

/// Beside the journal: written after a release by who opens it for one call, so that others that wait, with the journal closed,
/// are told by the kernel.
pub const FREED: &str = "freed";
/// Beside the journal: the path of the socket of the agent that holds it, or did.
pub const AGENT: &str = "agent";
/// Beside the journal: the one before it was lost, and it is not known yet of all addresses whose they are. The agent that makes it
/// anew takes the mark away.
pub const RECOVERING: &str = "recovering";
/// A log is replaced by a snapshot when it is that long, and about as long as the snapshot.
pub(super) const LOG_SIZE: u64 = 1 << 20;
/// So many snapshots that were begun and are not there mean that there is something wrong.
const ATTEMPTS: u64 = 4;
/// About as long as an event is in a snapshot.
pub(super) const EVENT: usize = 160;

/// All pools of a host, open: nobody else has them meanwhile. Its calls may come from many threads.
#[derive(Debug)]
pub struct PoolStore {
    dir: PathBuf,
    pub(super) journal: Journal,
    state: Mutex<Guarded>,
    pub(super) changed: Condvar,
    clock: Clock,
    pub(super) span: Span,
    /// What has been counted.
    pub(super) meters: Meters,
    /// Whoever wants to know that something is different.
    listener: OnceLock<Listener>,
    waits: OnceLock<WaitObserver>,
    /// The store was lost: what makes it anew as far as there are blocks for it.
    pub(super) recovery: Mutex<Option<Recovery>>,
    /// Not told yet to who holds the store.
    pub(super) conflicts: Mutex<VecDeque<AddressConflict>>,
    /// Addresses that are held, and that machines outside speak with as well.
    pub(super) noted: Mutex<AllNoted>,
}

struct Listener(Box<dyn Fn() + Send + Sync>);

/// Hears of who begins to wait, and who goes on; and knows whether somebody waits for that.
struct WaitObserver {
    waits: Box<dyn Fn(bool) + Send + Sync>,
    goes_on: fn() -> bool,
}

#[derive(Debug, Default)]
pub(super) struct Guarded {
    pub(super) allocator: Allocator,
    /// They were granted what they asked for, and the journal does not know yet.
    pub(super) arriving: HashSet<Key>,
    /// They are giving back what they have, and the journal does not know yet.
    pub(super) leaving: HashSet<Key>,
    /// A pool becomes as its file or its cluster says, and the journal does not know yet.
    pub(super) following: bool,
    /// A snapshot begins: it has what the disk knows, and nothing else may be under way.
    pub(super) turning: bool,
    /// They were stopped, and the journal does not know yet: not to be told to anybody.
    pub(super) freezing: HashSet<(String, Run)>,
    pub(super) line: Line,
    /// Pools and blocks may come that are not here yet.
    pub(super) expecting: bool,
    /// How many wait for a pool that may come.
    pub(super) looking: usize,
    /// Who asks waits: what is held is just being found out.
    pub(super) paused: bool,
    /// Why nobody is granted anything.
    pub(super) closed: Option<String>,
    /// How often something has changed.
    version: u64,
}

impl fmt::Debug for WaitObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waits")
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

// === impl PoolStore ===

impl PoolStore {
    /// Opens the store in a directory, and makes it if there is none. Waits until the deadline for another process that has
    /// it. What was held when the machine was last started is given back: its namespaces are gone.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn open(dir: &Path, deadline: Instant) -> Result<Self, PoolStoreError> {
        PoolStore::open_by(Clock::of_the_machine()?, dir, deadline)
    }

    /// As [`PoolStore::open`], by another clock than the machine's.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn open_by(clock: Clock, dir: &Path, deadline: Instant) -> Result<Self, PoolStoreError> {
        PoolStore::open_in(clock, dir, deadline, Span::Life)
    }

    pub(super) fn open_in(clock: Clock, dir: &Path, deadline: Instant, span: Span) -> Result<Self, PoolStoreError> {
        let Moment { boot, millis } = clock.now();
        let mut allocator = Allocator::new(u64::from_le_bytes(*boot.first_chunk().unwrap_or(&[0; 8])) ^ millis);
        let mut foreign = None;
        let journal = Journal::open(dir, deadline, |record| match Event::decode(record) {
            Ok(event) => allocator.take_in(event),
            Err(reason) => foreign = foreign.take().or(Some(reason)),
        })?;
        if let Some(reason) = foreign {
            return Err(PoolStoreError::Foreign { dir: dir.to_owned(), reason });
        }
        // Snapshots cannot be written: not every call tries it again, before the log is long.
        if journal.behind() >= ATTEMPTS {
            span.is_begun();
        }
        let store = PoolStore::of(dir, journal, allocator, clock, span);
        store.end_other_boots()?;
        Ok(store)
    }

    pub(super) fn of(dir: &Path, journal: Journal, allocator: Allocator, clock: Clock, span: Span) -> Self {
        PoolStore {
            dir: dir.to_owned(),
            journal,
            state: Mutex::new(Guarded { allocator, ..Guarded::default() }),
            changed: Condvar::new(),
            clock,
            span,
            meters: Meters::default(),
            listener: OnceLock::new(),
            waits: OnceLock::new(),
            recovery: Mutex::default(),
            conflicts: Mutex::default(),
            noted: Mutex::default(),
        }
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn end_other_boots(&self) -> Result<(), PoolStoreError> {
        let (mut state, now) = (self.state(), self.now());
        let dead: Vec<Key> = state.allocator.leases().filter(|l| l.since.boot != now.boot).map(|l| l.key.clone()).collect();
        let events: Vec<Event> = dead.iter().filter_map(|key| state.allocator.release(key, None, &now)).collect();
        self.keep(state, &events).0?;
        self.meters.collected.restart.fetch_add(events.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// A pool of the cluster is not this node's any more: nothing of it is handed out, who has an address keeps it. What
    /// nobody has can be frozen as before.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn end(&self, pool: &str) -> Result<(), PoolStoreError> {
        let ended = |all: &Allocator| {
            let there = all.spec(pool).is_some();
            Ok(Changes { events: there.then(|| Event::PoolGone { pool: pool.to_owned() }).into_iter().collect(), ..Changes::default() })
        };
        self.make_so(pool, ended).map(drop)
    }

    /// Writes what makes a pool so, and makes it so.
    pub(super) fn make_so(
        &self,
        pool: &str,
        changes: impl Fn(&Allocator) -> Result<Changes, OfBoth>,
    ) -> Result<Vec<Refused>, PoolStoreError> {
        loop {
            let mut state = self.when(|state| !state.following);
            let Changes { events, refused, again } =
                changes(&state.allocator).map_err(|OfBoth| PoolStoreError::OfBoth { pool: pool.to_owned() })?;
            if events.is_empty() {
                return Ok(refused);
            }
            self.all_of_it()?;
            state.following = true;
            let (written, mut state) = self.keep(state, &events);
            // Not before it is on the disk: a lease of a pool that the disk does not know would not be found again.
            if written.is_ok() {
                events.iter().for_each(|event| state.allocator.apply(event));
            }
            state.following = false;
            if let Err(e) = written {
                // Others may write now; there is nothing that anybody has to hear of.
                drop(state);
                self.changed.notify_all();
                return Err(e);
            }
            self.tell(state);
            if !again {
                return Ok(refused);
            }
        }
    }

    /// Whether an ADD would be granted what it asks for, now, once the pool is as its file says, where it has one;
    /// nothing is kept.
    ///
    /// # Errors
    /// [`PoolStoreError::Refused`]
    pub fn would_grant(&self, pool: Option<&Pool>, ask: &Ask) -> Result<(), PoolStoreError> {
        self.all_of_it()?;
        let state = self.state();
        if let Some(why) = &state.closed {
            return Err(PoolStoreError::Closed { why: why.clone() });
        }
        let mut copy = state.allocator.clone();
        drop(state);
        if let Some(pool) = pool {
            let both = |OfBoth| PoolStoreError::OfBoth { pool: pool.spec.name.clone() };
            fits(granted::apply(&mut copy, |all| granted::of_file(all, pool)).map_err(both)?)?;
        }
        Ok(copy.reserve(ask, &self.now()).map(drop)?)
    }

    /// Gives back what an attachment holds, if it holds anything. The disk knows when this returns.
    ///
    /// # Errors
    /// [`PoolStoreError`]; it holds it still then.
    pub fn release(&self, key: &Key, generation: Option<u64>) -> Result<Option<Lease>, PoolStoreError> {
        self.state().line.detach(key);
        let mut state = self.when(|state| !state.arriving.contains(key) && !state.leaving.contains(key));
        let Some(lease) = state.allocator.lease(key).filter(|l| generation.is_none_or(|g| g == l.generation)).cloned() else {
            return Ok(None);
        };
        let mut events = vec![Event::Released { key: key.clone(), generation: lease.generation, at: self.now() }];
        events.extend(self.given_back(&state.allocator, &lease));
        state.leaving.insert(key.clone());
        let (written, mut state) = self.keep(state, &events);
        state.leaving.remove(key);
        if written.is_ok() {
            events.iter().for_each(|event| state.allocator.apply(event));
        }
        self.tell(state);
        written?;
        self.tidy();
        Ok(Some(lease))
    }

    /// Gives back what all attachments of a network hold but these.
    ///
    /// # Errors
    /// [`PoolStoreError`]: the first one; each was tried.
    pub fn release_others(&self, network: &str, valid: &HashSet<Key>) -> Result<(), PoolStoreError> {
        self.all_of_it()?;
        let of_network = |lease: &&Lease| lease.key.network == network && !valid.contains(&lease.key);
        let gone: Vec<Lease> = self.state().allocator.leases().filter(of_network).cloned().collect();
        let release = |lease: &Lease| -> Result<(), PoolStoreError> {
            let released = self.release(&lease.key, Some(lease.generation))?;
            self.meters.collected.gc.fetch_add(released.is_some().into(), Ordering::Relaxed);
            Ok(())
        };
        let released = gone.iter().map(release);
        released.fold(Ok(()), Result::and)
    }

    /// What an attachment holds.
    pub fn lease(&self, key: &Key) -> Option<Lease> {
        self.state().allocator.lease(key).cloned()
    }

    /// What the allocator knows, at this moment.
    pub fn look<T>(&self, at: impl FnOnce(&Allocator) -> T) -> T {
        at(&self.state().allocator)
    }

    /// Now, as leases and cooldowns are counted.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// A snapshot instead of a long log. One that cannot be written is nobody's failure: what was before it counts, and it is
    /// tried again when the next log is long.
    pub(super) fn tidy(&self) {
        if self.journal.log_size() < self.span.least_log() {
            return;
        }
        let mut state = self.state();
        if state.turning || !self.span.is_over(self.journal.log_size(), state.allocator.size()) {
            return;
        }
        // Others would come and come.
        state.turning = true;
        let under_way = |state: &mut Guarded| !state.arriving.is_empty() || !state.leaving.is_empty() || state.following;
        let mut state = self.changed.wait_while(state, under_way).unwrap_or_else(PoisonError::into_inner);
        let records = state.allocator.records(part::name);
        let brief = self.span.is_short(records.len()).then(|| part::brief(&state.allocator, &self.now()));
        let turn = self.journal.turn();
        state.turning = false;
        self.tell(state);
        if let Ok(turn) = turn {
            let _ = match brief {
                Some(brief) => turn.write_in_short(records, brief),
                None => turn.write(records.into_iter().map(|(_, record)| record)),
            };
        }
    }

    /// Something is different: whoever waits looks again.
    pub(super) fn tell(&self, mut state: MutexGuard<'_, Guarded>) {
        state.version = state.version.wrapping_add(1);
        drop(state);
        self.changed.notify_all();
        self.listen();
    }

    /// How often something has changed: for [`PoolStore::wait_past`].
    pub fn version(&self) -> u64 {
        self.state().version
    }

    /// Waits until something has changed since then, or the time is over. `false`: nobody waits for the call any more.
    #[must_use]
    pub fn wait_past(&self, version: u64, until: Instant) -> bool {
        self.look_out(1);
        self.waits(true);
        let (mut state, mut asked, mut goes_on) = (self.state(), Instant::now(), true);
        while goes_on && state.version == version {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (state, goes_on) = self.wait_a_turn(state, left, &mut asked);
        }
        drop(state);
        self.waits(false);
        self.look_out(-1);
        goes_on
    }

    /// Waits until something may have changed; whether anybody waits for the call any longer, which is asked at most once in a [`TURN`].
    pub(super) fn wait_a_turn<'s>(
        &'s self,
        state: MutexGuard<'s, Guarded>,
        left: Duration,
        asked: &mut Instant,
    ) -> (MutexGuard<'s, Guarded>, bool) {
        let Some(observer) = self.waits.get() else {
            return (self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0, true);
        };
        let state = self.changed.wait_timeout(state, left.min(TURN)).unwrap_or_else(PoisonError::into_inner).0;
        if asked.elapsed() < TURN {
            return (state, true);
        }
        drop(state);
        *asked = Instant::now();
        let goes_on = (observer.goes_on)();
        (self.state(), goes_on)
    }

    fn look_out(&self, more: isize) {
        let mut state = self.state();
        state.looking = state.looking.saturating_add_signed(more);
        drop(state);
        self.listen();
    }

    fn listen(&self) {
        if let Some(Listener(listener)) = self.listener.get() {
            listener();
        }
    }

    /// Calls this after every change of what is held, waited for or granted, by the thread that made it. Once in a store's life.
    pub fn when_changed(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.listener.set(Listener(Box::new(listener)));
    }

    /// Calls this when an attachment begins to wait for addresses or for a pool (`true`), and when it goes on, by the thread that waits, which
    /// holds no lock then. The same thread asks `goes_on` each second whether it waits any longer. Once in a store's life.
    pub fn when_waiting(&self, waits: impl Fn(bool) + Send + Sync + 'static, goes_on: fn() -> bool) {
        let _ = self.waits.set(WaitObserver { waits: Box::new(waits), goes_on });
    }

    pub(super) fn waits(&self, begins: bool) {
        if let Some(observer) = self.waits.get() {
            (observer.waits)(begins);
        }
    }

    /// The state, in a moment in which something holds and changes may begin.
    pub(super) fn when(&self, holds: impl Fn(&Guarded) -> bool) -> MutexGuard<'_, Guarded> {
        self.wait_until(self.state(), holds)
    }

    /// The same, of who has the state already.
    pub(super) fn wait_until<'s>(&self, state: MutexGuard<'s, Guarded>, holds: impl Fn(&Guarded) -> bool) -> MutexGuard<'s, Guarded> {
        self.changed.wait_while(state, |state| state.turning || !holds(state)).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes events while others work: whether they are on the disk, and the state again.
    pub(super) fn keep<'s>(
        &'s self,
        state: MutexGuard<'s, Guarded>,
        events: &[Event],
    ) -> (Result<(), PoolStoreError>, MutexGuard<'s, Guarded>) {
        let tickets: Vec<_> = events.iter().map(|event| self.journal.append(&event.encode())).collect();
        drop(state);
        let written = tickets.iter().try_for_each(|ticket| self.journal.wait(ticket));
        (written.map_err(PoolStoreError::from), self.state())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Guarded> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
