//! The allocator and its journal, as one: what is answered is on the disk.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cni::{CniError, Code};
use journal::{Failure, Journal, OpenError};
use linux::boot::{self, BootIdError};
use pool::{Allocator, Ask, Block, DecodeError, Event, Family, Granted, Key, Lease, Moment, Refused, Run, State};

use super::grant::{Pool, pieces};

/// A log is replaced by a snapshot when it is that long, and this many times as long as the snapshot.
const LOG_SIZE: u64 = 1 << 20;

/// All pools of a host, open: nobody else has them meanwhile. Its calls may come from many threads.
#[derive(Debug)]
pub struct PoolStore {
    dir: PathBuf,
    journal: Journal,
    state: Mutex<Guarded>,
    changed: Condvar,
    boot: [u8; 16],
}

#[derive(Debug)]
struct Guarded {
    allocator: Allocator,
    /// They are giving back what they have, and the journal does not know yet.
    leaving: HashSet<Key>,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolStoreError {
    /// The directory cannot be used.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// What it has was written by another release, or is damaged.
    #[error("{}: {reason}", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// Why.
        reason: DecodeError,
    },
    /// The boot cannot be told.
    #[error(transparent)]
    Boot(#[from] BootIdError),
    /// It could not be written.
    #[error(transparent)]
    Write(#[from] Failure),
    /// It is not to be had.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The attachment gives back what it holds, at this moment.
    #[error("attachment {key} is giving back its addresses")]
    Leaving {
        /// The attachment.
        key: Key,
    },
}

impl From<PoolStoreError> for CniError {
    fn from(e: PoolStoreError) -> Self {
        let code = match &e {
            PoolStoreError::Refused(Refused::Short { .. } | Refused::Taken { .. }) | PoolStoreError::Leaving { .. } => Code::TRY_AGAIN_LATER,
            PoolStoreError::Refused(Refused::UnknownPool { .. }) => Code::INVALID_CONFIG,
            PoolStoreError::Open(OpenError::Locked(_)) => Code::TRY_AGAIN_LATER,
            PoolStoreError::Refused(_) => Code::INTERNAL,
            _ => Code::IO,
        };
        CniError::new(code, e.to_string())
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
        let boot = boot::boot_id()?.to_bytes();
        let mut allocator = Allocator::new(u64::from_le_bytes(*boot.first_chunk().unwrap_or(&[0; 8])) ^ boot::uptime().as_nanos() as u64);
        let mut foreign = None;
        let journal = Journal::open(dir, deadline, |record| match Event::decode(record) {
            Ok(event) => allocator.apply(&event),
            Err(reason) => foreign = foreign.take().or(Some(reason)),
        })?;
        if let Some(reason) = foreign {
            return Err(PoolStoreError::Foreign { dir: dir.to_owned(), reason });
        }
        let state = Mutex::new(Guarded { allocator, leaving: HashSet::new() });
        let store = PoolStore { dir: dir.to_owned(), journal, state, changed: Condvar::new(), boot };
        store.end_other_boots()?;
        Ok(store)
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn end_other_boots(&self) -> Result<(), PoolStoreError> {
        let (mut state, now) = (self.state(), self.now());
        let dead: Vec<Key> = state.allocator.leases().filter(|l| l.since.boot != now.boot).map(|l| l.key.clone()).collect();
        let events: Vec<Event> = dead.iter().filter_map(|key| state.allocator.release(key, None, &now)).collect();
        self.keep(state, &events)
    }

    /// A pool is as its file says from now on. What its file has not any more is not handed out, and stays with who holds it.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn follow(&self, pool: &Pool) -> Result<(), PoolStoreError> {
        let mut state = self.state();
        let events = changes(&state.allocator, pool);
        events.iter().for_each(|event| state.allocator.apply(event));
        self.keep(state, &events)
    }

    /// Grants what is asked for, or nothing. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn reserve(&self, ask: &Ask) -> Result<Lease, PoolStoreError> {
        let mut state = self.state();
        if state.leaving.contains(&ask.key) {
            return Err(PoolStoreError::Leaving { key: ask.key.clone() });
        }
        let granted = state.allocator.reserve(ask, &self.now())?;
        // Whoever was granted it first may wait for the disk yet: a record behind that one is there when both are.
        let (Granted::New(lease) | Granted::Again(lease)) = &granted;
        let ticket = self.journal.append(&Event::Leased(lease.clone()).encode());
        drop(state);
        let written = self.journal.wait(&ticket);
        let lease = match (granted, written) {
            (Granted::New(lease) | Granted::Again(lease), Ok(())) => lease,
            (Granted::New(lease), Err(e)) => {
                self.state().allocator.undo(&lease.key, lease.generation);
                return Err(e.into());
            }
            (Granted::Again(_), Err(e)) => return Err(e.into()),
        };
        self.tidy()?;
        Ok(lease)
    }

    /// Gives back what an attachment holds, if it holds anything. The disk knows when this returns.
    ///
    /// # Errors
    /// [`PoolStoreError`]; it holds it still then.
    pub fn release(&self, key: &Key, generation: Option<u64>) -> Result<Option<Lease>, PoolStoreError> {
        let mut state = self.state();
        let Some(lease) = state.allocator.lease(key).filter(|l| generation.is_none_or(|g| g == l.generation)).cloned() else { return Ok(None) };
        let event = Event::Released { key: key.clone(), generation: lease.generation, at: self.now() };
        state.leaving.insert(key.clone());
        let ticket = self.journal.append(&event.encode());
        drop(state);
        let written = self.journal.wait(&ticket);
        let mut state = self.state();
        state.leaving.remove(key);
        if written.is_ok() {
            state.allocator.apply(&event);
        }
        self.changed.notify_all();
        drop(state);
        written?;
        self.tidy()?;
        Ok(Some(lease))
    }

    /// Gives back what all attachments of a network hold but these.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn release_others(&self, network: &str, valid: &HashSet<Key>) -> Result<(), PoolStoreError> {
        let of_network = |lease: &&Lease| lease.key.network == network && !valid.contains(&lease.key);
        let gone: Vec<Lease> = self.state().allocator.leases().filter(of_network).cloned().collect();
        gone.iter().try_for_each(|lease| self.release(&lease.key, Some(lease.generation)).map(drop))
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
        Moment { boot: self.boot, millis: u64::try_from(boot::uptime().as_millis()).unwrap_or(u64::MAX) }
    }

    /// A snapshot instead of a long log.
    fn tidy(&self) -> Result<(), PoolStoreError> {
        if self.journal.log_size() < LOG_SIZE {
            return Ok(());
        }
        let mut state = self.state();
        while !state.leaving.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Another thread may have been here meanwhile.
        let events = state.allocator.events();
        if self.journal.log_size() < LOG_SIZE.max(64 * events.len() as u64) {
            return Ok(());
        }
        let turn = self.journal.turn()?;
        drop(state);
        Ok(turn.write(events.iter().map(Event::encode))?)
    }

    fn keep(&self, state: MutexGuard<'_, Guarded>, events: &[Event]) -> Result<(), PoolStoreError> {
        let tickets: Vec<_> = events.iter().map(|event| self.journal.append(&event.encode())).collect();
        drop(state);
        Ok(tickets.iter().try_for_each(|ticket| self.journal.wait(ticket))?)
    }

    fn state(&self) -> MutexGuard<'_, Guarded> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What makes a pool as its file says, of what there is. A block grows by others beside it, and shrinks by exclusions: it is
/// taken away when none of it is the pool's.
fn changes(now: &Allocator, pool: &Pool) -> Vec<Event> {
    let name = &pool.spec.name;
    let blocks: Vec<(Block, State)> = Family::ALL.into_iter().flat_map(|f| now.blocks(name, f)).map(|(b, s)| (b.clone(), s)).collect();
    let known: Vec<Run> = blocks.iter().map(|(block, _)| block.run).collect();
    let wanted = |run: &Run| pool.runs.iter().any(|r| r.common(run).is_some());
    let mut spec = pool.spec.clone();
    spec.exclude.extend(pieces(known.iter().copied().filter(wanted).collect(), &pool.runs));
    let mut events = Vec::new();
    if now.spec(name) != Some(&spec) {
        events.push(Event::Pool(spec));
    }
    let mut epoch = now.last_epoch(name);
    for (block, state) in blocks {
        match (wanted(&block.run), state) {
            (true, State::Withdrawn) => events.push(Event::Block(block, State::Active)),
            (false, State::Active) => events.push(Event::Withdrawn { pool: name.clone(), run: block.run, epoch: block.epoch }),
            _ => {}
        }
    }
    for run in pieces(pool.runs.clone(), &known) {
        epoch += 1;
        events.push(Event::Block(Block { pool: name.clone(), run, epoch, claim: None }, State::Active));
    }
    events
}
