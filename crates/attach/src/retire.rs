//! DEL in two steps, for a caller that outlives the call.
//!
//! ```text
//!   Attacher::retire   lock, tombstone -> rules, devices, links carry nothing -> the runtime is told that it is done
//!                      record and tombstone stay: to whoever comes now it is a DEL that did not come to its end
//!   Attacher::finish   many sandboxes: locks -> one teardown -> records and tombstones
//! ```
//!
//! What takes long in a DEL is that the kernel waits, once for each deletion of links, until no processor uses them any
//! more. Nobody has to wait for that with it: a pod whose links carry nothing is detached. Its addresses are free only when
//! its links are gone. Most runtimes delete the namespace next, and with it what is inside.
//!
//! As a retired sandbox looks like a DEL that was killed, nothing is new to those who come after a crash: the next ADD of
//! the container clears it, the next DEL finishes it. An ADD of another container into the same namespace finishes it
//! first. To rename the old links out of its way would be quicker (0.2 ms), but they would keep their addresses.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cni::{CniError, ContainerId};
use linux::{Netns, NetnsId};
use plugin::{Host, Teardown};

use crate::execute::busy;
use crate::idle_bridge::Left;
use crate::records::{SandboxLock, Tombstone};
use crate::{Attacher, DelError, Lost, Record, Sandbox};

/// What came of the first half of a DEL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retired {
    /// All of it was done: nothing is left.
    Gone,
    /// The pod is detached; [`Attacher::finish`] does the rest.
    Later,
}

/// The namespaces of retired sandboxes, so that an ADD need not read their records.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<HashMap<ContainerId, (Tombstone, NetnsIdentity)>>);

/// Which namespace: its number is used again, its cookie is not.
#[derive(Debug, Clone, Copy)]
struct NetnsIdentity {
    id: NetnsId,
    cookie: Option<u64>,
}

/// Until when a lock is waited for, and until when plugins are.
#[derive(Clone, Copy)]
struct Deadlines {
    lock: Instant,
    work: Instant,
}

/// How a sandbox is finished, whose lock is held.
enum Begun {
    /// There is nothing to do.
    Done,
    /// With the others.
    Together(Finishing),
    /// After the others, as it has external plugins, or no record that can be read. It is read again then: many may be large.
    Alone(SandboxLock),
}

/// What is collected of a sandbox.
struct Finishing {
    at: usize,
    /// Its numbers in the teardown.
    attachments: Range<usize>,
    errors: Vec<CniError>,
    _lock: SandboxLock,
}

// === impl NetnsIdentity ===

impl NetnsIdentity {
    fn of(record: &Record) -> Self {
        NetnsIdentity { id: record.netns_id, cookie: record.netns_cookie }
    }

    fn is(self, other: NetnsIdentity) -> bool {
        let differ = matches!((self.cookie, other.cookie), (Some(a), Some(b)) if a != b);
        self.id == other.id && !differ
    }
}

// === impl Places ===

impl Places {
    fn note(&self, sandbox: &ContainerId, tombstone: Tombstone, place: NetnsIdentity) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(sandbox.clone(), (tombstone, place));
    }

    /// Where a sandbox is that has this tombstone. Of another life of it nothing is known.
    fn get(&self, sandbox: &ContainerId, tombstone: &Tombstone) -> Option<NetnsIdentity> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(sandbox).filter(|(of, _)| of == tombstone).map(|(_, place)| *place)
    }

    pub(crate) fn forget(&self, sandbox: &ContainerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
    }
}

// === impl Attacher ===

impl Attacher {
    /// The part of [`Attacher::del`] that a runtime has to wait for: rule elements go, devices are given back, and the pod's
    /// links carry nothing any more. [`Attacher::finish`] does the rest; until then ADD, DEL and CHECK find a sandbox that
    /// is gone. Where that is not possible, because an external plugin has to be asked, say, it is [`Attacher::del`].
    ///
    /// For a container that is gone or going: a process that lives on in its namespace may still send over a macvlan.
    ///
    /// # Errors
    /// As [`Attacher::del`].
    pub fn retire(&self, sandbox: &ContainerId, lost: Lost<'_>, host: &mut Host, by: Instant) -> Result<Retired, DelError> {
        if !self.records.knows(sandbox) {
            return Ok(Retired::Gone);
        }
        let _lock = self.records.lock_to_remove(sandbox, by).map_err(|e| busy(e, self.records.tombstone_of(sandbox).is_some()))?;
        linux::crash_point!("retire-locked");
        let read = self.records.read(sandbox);
        if let Ok(Some(record)) = &read
            && let Some(tombstone) = self.tombstone_for(record)
            && self.retire_links(record, host, by)
        {
            self.records.places.note(sandbox, tombstone, NetnsIdentity::of(record));
            return Ok(Retired::Later);
        }
        self.remove(sandbox, read, lost, host, by).map(|()| Retired::Gone)
    }

    /// The tombstone of a sandbox that can be retired, if there is room for one: without it, the record would say that the
    /// sandbox is attached.
    fn tombstone_for(&self, record: &Record) -> Option<Tombstone> {
        let can = record.is_made() && record.steps.iter().all(|step| self.chain.is_builtin(&step.list));
        let tombstone_of = || self.records.tombstone_of(&record.sandbox);
        can.then(tombstone_of)?.or_else(|| {
            // Who had the lock before us has taken it away with what it meant.
            self.records.write_tombstone(&record.sandbox);
            tombstone_of()
        })
    }

    /// Whether its links carry nothing any more, and all before that is done. If not, DEL tries it again, and tells why.
    fn retire_links(&self, record: &Record, host: &mut Host, by: Instant) -> bool {
        let mut teardown = Teardown::new();
        // Bridges are for the second half.
        let collected = self.collect(record, &mut teardown, &mut Left::default(), host, by);
        linux::crash_point!("retire-collected");
        collected.is_ok_and(|errors| errors.is_empty()) && teardown.can_retire() && teardown.retire(host).is_ok()
    }

    /// Finishes what is retired, and any other DEL that did not come to its end: of all these sandboxes at once, which costs
    /// hardly more than one of them. A sandbox that is not retired, because it was attached again, is left alone.
    ///
    /// To be done before a GC, which frees the address of a sandbox that is not valid any more, but does not look for a
    /// macvlan in its namespace.
    ///
    /// # Errors
    /// For each sandbox [`DelError`] with everything that failed; its record is then kept. Code 11 if somebody else is at
    /// work on it: that is not waited for.
    pub fn finish(&self, sandboxes: &[ContainerId], host: &mut Host, by: Instant) -> Vec<(ContainerId, Result<(), DelError>)> {
        let done = self.finish_all(sandboxes, host, Deadlines { lock: Instant::now(), work: by });
        sandboxes.iter().cloned().zip(done).collect()
    }

    fn finish_all(&self, sandboxes: &[ContainerId], host: &mut Host, by: Deadlines) -> Vec<Result<(), DelError>> {
        let mut results = vec![Ok(()); sandboxes.len()];
        let (mut teardown, mut together, mut alone) = (Teardown::new(), Vec::new(), Vec::new());
        let mut bridges = Left::default();
        for ((at, sandbox), result) in sandboxes.iter().enumerate().zip(&mut results) {
            match self.begin_to_finish(sandbox, at, (&mut teardown, &mut bridges), host, by) {
                Ok(Begun::Together(one)) => together.push(one),
                Ok(Begun::Alone(lock)) => alone.push((at, lock)),
                Ok(Begun::Done) => {}
                Err(e) => *result = Err(e),
            }
        }
        let of_bridges = teardown.attachment();
        bridges.note(&self.records, &mut teardown);
        linux::crash_point!("finish-collected");
        for failure in teardown.commit_many(host) {
            let has_bridges = |one: &Finishing| sandboxes.get(one.at).is_some_and(|sandbox| bridges.has(sandbox));
            let is_of = |one: &Finishing, a: &usize| one.attachments.contains(a) || *a == of_bridges && has_bridges(one);
            let held_up = |one: &Finishing| failure.attachments.iter().any(|a| is_of(one, a));
            together.iter_mut().filter(|one| held_up(one)).for_each(|one| one.errors.push(failure.error.clone()));
        }
        for Finishing { at, errors, _lock, .. } in together {
            let (Some(sandbox), Some(result)) = (sandboxes.get(at), results.get_mut(at)) else { continue };
            linux::crash_point!("finish-unforgotten");
            *result = if errors.is_empty() { self.forget(sandbox) } else { Err(DelError { errors }) };
        }
        for (at, _lock) in alone {
            let (Some(sandbox), Some(result)) = (sandboxes.get(at), results.get_mut(at)) else { continue };
            *result = self.remove(sandbox, self.records.read(sandbox), Lost::EveryAddress, host, by.work);
        }
        results
    }

    fn begin_to_finish(
        &self,
        sandbox: &ContainerId,
        at: usize,
        (teardown, bridges): (&mut Teardown, &mut Left),
        host: &mut Host,
        by: Deadlines,
    ) -> Result<Begun, DelError> {
        if !self.records.is_retired(sandbox) {
            return Ok(Begun::Done);
        }
        let lock = self.records.lock(sandbox, by.lock).map_err(CniError::from)?;
        linux::crash_point!("finish-locked");
        // It may have been attached again before we had the lock.
        if !self.records.is_retired(sandbox) {
            return Ok(Begun::Done);
        }
        match self.records.read(sandbox) {
            // Before an external plugin's turn all that was collected commits, also what is not of this sandbox.
            Ok(Some(record)) if record.steps.iter().all(|step| self.chain.is_builtin(&step.list)) => {
                let begin = teardown.attachment();
                let errors = self.collect(&record, teardown, bridges, host, by.work)?;
                Ok(Begun::Together(Finishing { at, attachments: begin..teardown.attachment(), errors, _lock: lock }))
            }
            _ => Ok(Begun::Alone(lock)),
        }
    }

    /// What is retired in a namespace is finished before that is attached again by another name: its links, addresses and
    /// routes would be in the way. What cannot be finished is told by what it is in the way of.
    pub(crate) fn make_way(&self, sandbox: &Sandbox, host: &mut Host, by: Instant) -> Result<(), CniError> {
        let mut retired = self.records.retired()?;
        retired.retain(|id| *id != sandbox.id);
        if retired.is_empty() {
            return Ok(());
        }
        // The error of a namespace that is not there comes where it is needed.
        let Ok(Some(netns)) = Netns::open(&sandbox.netns) else { return Ok(()) };
        let here = NetnsIdentity { id: netns.id(), cookie: netns.cookie().ok().flatten() };
        retired.retain(|id| self.place_of(id).is_some_and(|place| place.is(here)));
        if !retired.is_empty() {
            // Whoever else is at it is waited for; all who wait do so in the same order.
            drop(self.finish_all(&retired, host, Deadlines { lock: by, work: by }));
            linux::crash_point!("attach-way-made");
        }
        Ok(())
    }

    fn place_of(&self, sandbox: &ContainerId) -> Option<NetnsIdentity> {
        let tombstone = self.records.tombstone_of(sandbox)?;
        self.records.places.get(sandbox, &tombstone).or_else(|| {
            let place = NetnsIdentity::of(&self.records.read(sandbox).ok()??);
            self.records.places.note(sandbox, tombstone, place);
            Some(place)
        })
    }
}
