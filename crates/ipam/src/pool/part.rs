//! A store that is opened for one call, by a process without an agent: what everybody else holds is not read, so a call takes as
//! long however many addresses are in use.
//!
//! ```text
//!   open_part(key)      the snapshot in short, the lease of `key`, the log since,     grants to `key`, gives back what it has
//!                       and where the lowest address comes next the leases that
//!                       were given back since
//!      | cannot say
//!   open_for_call       all of it                                                     everything, and now and then a snapshot
//!                                                                                     that can be told in short
//! ```
//!
//! What stands in short is part of the snapshot's file: it is there with it, or not at all. Another boot, a log that became long,
//! a pool that is another one now: all is read, and told in short anew.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use journal::{Journal, Name, RecordSource};
use pool::{Allocator, Ask, Event, Key, Moment};

use super::clock::Clock;
use super::error::PoolStoreError;
use super::store::{EVENT, LOG_SIZE, PoolStore};

/// Of fewer events no snapshot is told in short: all of them are read as fast.
const LEAST: usize = 16;
/// A log is not read for one call that is longer than an eighth of what a snapshot has, within these limits: a call reads it, and now and then
/// one writes a snapshot instead. The longest has some 600 leases.
const LOGS: (u64, u64) = (16 << 10, 128 << 10);
/// So many addresses of a pool are known in short: about as many as such a log can use up.
const KNOWN: u64 = 1024;

/// What a store is open for.
#[derive(Debug)]
pub(super) enum Span {
    /// The life of a process: a snapshot is for who opens it next, and that is far.
    Life,
    /// A call, with all that there is. Set: it could not be told in short.
    Call(AtomicBool),
    /// A call about one attachment, with what there is of that.
    Part,
}

/// How long a log may be beside a snapshot of so many bytes.
fn most_log(snapshot: u64) -> u64 {
    (snapshot / 8).clamp(LOGS.0, LOGS.1)
}

/// By what an attachment's lease is found in a snapshot.
pub(super) fn name(key: &Key) -> Name {
    Name::of(&[key.network.as_bytes(), key.container.as_bytes(), key.ifname.as_bytes()])
}

impl PoolStore {
    /// Opens the store for a call about one attachment, with what there is of that alone: [`PoolStore::take_by`],
    /// [`PoolStore::release`], [`PoolStore::lease`], and pools as they are. `None`: it cannot be told in short, and nothing has
    /// happened. What it refuses, and what is [`PoolStoreError::Part`], has not happened either: who has opened all of it
    /// ([`PoolStore::open_for_call`]) may get it.
    ///
    /// # Errors
    /// [`PoolStoreError::Open`]: another process has it. [`PoolStoreError::Boot`]
    pub fn open_part(dir: &Path, deadline: Instant, key: &Key) -> Result<Option<Self>, PoolStoreError> {
        PoolStore::open_part_by(Clock::of_the_machine()?, dir, deadline, key)
    }

    /// The same, by another clock than the machine's.
    ///
    /// # Errors
    /// As for [`PoolStore::open_part`].
    pub fn open_part_by(clock: Clock, dir: &Path, deadline: Instant, key: &Key) -> Result<Option<Self>, PoolStoreError> {
        let mut said = BriefState { boot: clock.now().boot, ..BriefState::default() };
        let journal = Journal::open_part(dir, deadline, name(key), most_log, |part, record| said.hear(part, record))?;
        let known = journal.and_then(|journal| Some((journal, said.all()?)));
        Ok(known.map(|(journal, allocator)| PoolStore::of(dir, journal, allocator, clock, Span::Part)))
    }

    /// Opens the store as [`PoolStore::open`], for one call. `anew`: it could not be told in short, and should be from now on.
    ///
    /// # Errors
    /// As for [`PoolStore::open`].
    pub fn open_for_call(dir: &Path, deadline: Instant, anew: bool) -> Result<Self, PoolStoreError> {
        PoolStore::open_for_call_by(Clock::of_the_machine()?, dir, deadline, anew)
    }

    /// The same, by another clock than the machine's.
    ///
    /// # Errors
    /// As for [`PoolStore::open`].
    pub fn open_for_call_by(clock: Clock, dir: &Path, deadline: Instant, anew: bool) -> Result<Self, PoolStoreError> {
        PoolStore::open_in(clock, dir, deadline, Span::Call(AtomicBool::new(anew)))
    }

    /// Who knows a part of it does nothing that takes all of it.
    pub(super) fn all_of_it(&self) -> Result<(), PoolStoreError> {
        if matches!(self.span, Span::Part) { Err(PoolStoreError::Part) } else { Ok(()) }
    }

    /// Who knows a part of it grants this as who knows all of it, unless it refuses it.
    pub(super) fn knows_enough(&self, allocator: &Allocator, ask: &Ask) -> Result<(), PoolStoreError> {
        if allocator.answers_in_short(ask) { Ok(()) } else { self.all_of_it() }
    }
}

// === impl Span ===

impl Span {
    /// With a shorter log it is not over.
    pub(super) fn least_log(&self) -> u64 {
        match self {
            Span::Life => LOG_SIZE,
            Span::Call(_) => 0,
            Span::Part => u64::MAX,
        }
    }

    /// Nothing is to be told in short before the log is long.
    pub(super) fn is_begun(&self) {
        if let Span::Call(anew) = self {
            anew.store(false, Ordering::Relaxed);
        }
    }

    /// Whether it is time for a snapshot, with so long a log and so many events.
    pub(super) fn is_over(&self, log: u64, size: usize) -> bool {
        match self {
            // About as long as the snapshot.
            Span::Life => log >= LOG_SIZE.max((EVENT * size) as u64),
            Span::Call(anew) => log > most_log((EVENT * size) as u64) || size >= LEAST && anew.swap(false, Ordering::Relaxed),
            Span::Part => false,
        }
    }

    /// Whether what is written is to be told in short.
    pub(super) fn is_short(&self, size: usize) -> bool {
        matches!(self, Span::Call(_)) && size >= LEAST
    }
}

/// What is told in short, with the boot for which it is so: what was held before is nobody's.
pub(super) fn brief(allocator: &Allocator, now: &Moment) -> Vec<Vec<u8>> {
    let events = allocator.brief(KNOWN);
    [now.boot.to_vec()].into_iter().chain(events.iter().map(Event::encode)).collect()
}

/// What was told in short.
#[derive(Default)]
struct BriefState {
    boot: [u8; 16],
    allocator: Allocator,
    /// The boot was the same.
    begun: bool,
    unfit: bool,
    /// Leases of this generation and later ones were made since.
    next: u64,
    /// What came since: it follows all that was there before.
    since: Vec<Event>,
}

// === impl BriefState ===

impl BriefState {
    /// Of a lease of the snapshot that was given back since: the name by which it is found, where it matters.
    fn hear(&mut self, part: RecordSource, record: &[u8]) -> Option<Name> {
        if part == RecordSource::Brief && !self.begun {
            self.begun = true;
            self.unfit = record != self.boot;
            return None;
        }
        let event = Event::decode(record).ok().filter(|event| !self.unfit && (part != RecordSource::Log || event.is_brief()));
        match (part, event) {
            (_, None) => self.unfit = true,
            (RecordSource::Log, Some(event)) => {
                let lost = self.lost(&event);
                self.since.push(event);
                return lost;
            }
            (RecordSource::Named, Some(Event::Leased(lease))) => self.allocator.learn(&lease),
            (_, Some(event)) => {
                if let Event::Generation(next) = event {
                    self.next = next;
                }
                self.allocator.apply(&event);
            }
        }
        None
    }

    fn lost(&self, event: &Event) -> Option<Name> {
        match event {
            Event::Released { key, generation, .. } if *generation < self.next && self.allocator.learns() => Some(name(key)),
            _ => None,
        }
    }

    /// `None`: it cannot be told in short.
    fn all(mut self) -> Option<Allocator> {
        self.since.iter().for_each(|event| self.allocator.apply(event));
        (self.begun && !self.unfit).then_some(self.allocator)
    }
}
