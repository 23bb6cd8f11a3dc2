//! All leases of a daemon, and who looks after them.
//!
//! ```text
//!   ADD, DEL, CHECK, GC --a thread each--> Entry (one at a time) <--a few workers-- Turns: the next moment of each lease
//! ```
//!
//! Nothing of a namespace is open between two moments of its lease.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniError, Code, NetworkName};
use linux::Netns;

use crate::exchange::{self, LeaseRequest, Patience};
use crate::lease::{Lease, LeaseNetns};
use crate::link::{Link, internal};
use crate::log;
use crate::maintain::{self, Became};
use crate::store::Store;
use crate::times::Phase;
use crate::turns::{Moment, Turns, WorkerTask};
use crate::wanted::Wanted;

/// How many leases are renewed at once.
const WORKERS: usize = 8;
/// What a worker's stack may have.
const STACK: usize = 256 << 10;
/// The longest sleep: time goes on while the machine sleeps, and a condition variable's does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// After a failure that is nobody's fault, as when there are no descriptors left.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The leases.
pub(crate) struct Table {
    inner: Mutex<Inner>,
    wake: Condvar,
    pub(crate) store: Store,
    patience: Patience,
}

struct Inner {
    entries: HashMap<AttachmentId, Arc<Entry>>,
    turns: Turns,
}

/// What an ADD asks for.
pub(crate) struct AddRequest<'a> {
    pub(crate) id: &'a AttachmentId,
    pub(crate) netns: &'a Netns,
    pub(crate) wanted: &'a Wanted,
    /// When the caller's time is over.
    pub(crate) by: Instant,
    /// Whether the caller has left.
    pub(crate) gone: &'a (dyn Fn() -> bool + Sync),
}

/// One attachment's.
#[derive(Default)]
struct Entry {
    /// A DEL has come.
    deleted: AtomicBool,
    lease: Mutex<Option<Lease>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Table ===

impl Table {
    /// With what an earlier daemon has left.
    pub(crate) fn new(store: Store, patience: Patience) -> Result<Arc<Self>, CniError> {
        let found = store.load_all()?;
        for (path, why) in &found.unread {
            log::daemon(format_args!("ignored {}, which is not a lease: {why}", path.display()));
        }
        let mut inner = Inner { entries: HashMap::new(), turns: Turns::new(WORKERS) };
        let now = linux::boot::uptime();
        for lease in found.leases {
            log::lease(&lease.id, format_args!("kept: {}", lease.shown()));
            inner.turns.set(&lease.id, lease.moment(now));
            let id = lease.id.clone();
            inner.entries.insert(id, Arc::new(Entry { lease: Mutex::new(Some(lease)), ..Entry::default() }));
        }
        Ok(Arc::new(Table { inner: Mutex::new(inner), wake: Condvar::new(), store, patience }))
    }

    /// Starts the workers.
    pub(crate) fn work(self: &Arc<Self>) -> std::io::Result<()> {
        for number in 0..WORKERS {
            let table = Arc::clone(self);
            let builder = std::thread::Builder::new().name(format!("lease-{number}")).stack_size(STACK);
            builder.spawn(move || {
                loop {
                    table.one();
                }
            })?;
        }
        Ok(())
    }

    /// Waits for the next moment, and does what is due.
    fn one(&self) {
        let mut inner = locked(&self.inner);
        let (id, patient, entry) = loop {
            let now = linux::boot::uptime();
            let sleep = match inner.turns.next(now) {
                WorkerTask::Now { id, patient } => match inner.entries.get(&id).map(Arc::clone) {
                    Some(entry) => break (id, patient, entry),
                    None => {
                        inner.turns.done(&id.network, patient, None);
                        continue;
                    }
                },
                WorkerTask::At(at) => (at - now).min(LONGEST_SLEEP),
                WorkerTask::Never => LONGEST_SLEEP,
            };
            inner = self.wake.wait_timeout(inner, sleep).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(inner);
        let (moment, answered) = self.look_after(&id, &entry);
        let mut inner = locked(&self.inner);
        inner.turns.done(&id.network, patient, answered);
        if moment.is_some() && inner.entries.get(&id).is_some_and(|there| Arc::ptr_eq(there, &entry)) {
            inner.turns.set(&id, moment);
        }
        drop(inner);
        // A network that answers again has work for all.
        self.wake.notify_all();
    }

    /// What one lease needs now; returns when it needs something again, and whether its server answered, where it was asked.
    fn look_after(&self, id: &AttachmentId, entry: &Entry) -> (Option<Moment>, Option<bool>) {
        let mut kept = locked(&entry.lease);
        let Some(lease) = kept.as_mut().filter(|_| !entry.deleted.load(Ordering::SeqCst)) else { return (None, None) };
        if !self.store.has(id) {
            // A DEL has done it without us.
            log::lease(id, "dropping the lease, because its file is gone");
            *kept = None;
            self.forget(id, entry);
            return (None, None);
        }
        let stop = || entry.deleted.load(Ordering::SeqCst);
        match maintain::maintain(lease, self.patience, &stop) {
            Ok((Became::Gone, _)) => {
                *kept = None;
                self.forget(id, entry);
                self.tell(id, self.store.remove(id));
                log::lease(id, "dropping the lease, because its namespace or interface is gone");
                (None, None)
            }
            Ok((became, answered)) => {
                if became == Became::Changed {
                    self.tell(id, self.store.save(lease));
                }
                (lease.moment(linux::boot::uptime()), answered)
            }
            Err(e) => {
                log::lease(id, &e);
                let now = linux::boot::uptime();
                (lease.moment(now).map(|moment| Moment { at: now + AFTER_FAILURE, ..moment }), None)
            }
        }
    }

    fn tell(&self, id: &AttachmentId, done: Result<(), CniError>) {
        if let Err(e) = done {
            log::lease(id, e);
        }
    }

    /// Takes an entry out of the table, unless another one has its place.
    fn forget(&self, id: &AttachmentId, entry: &Entry) {
        let mut inner = locked(&self.inner);
        if inner.entries.get(id).is_some_and(|there| std::ptr::eq(&raw const **there, entry)) {
            inner.entries.remove(id);
            inner.turns.set(id, None);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        locked(&self.inner).entries.len()
    }

    /// ADD: the lease that there is, or a new one.
    pub(crate) fn add(&self, wish: &AddRequest<'_>) -> Result<AddResult, CniError> {
        loop {
            let entry = Arc::clone(locked(&self.inner).entries.entry(wish.id.clone()).or_default());
            let kept = locked(&entry.lease);
            // Who had the lock may have taken the entry out of the table: a lease in it would be nobody's.
            if locked(&self.inner).entries.get(wish.id).is_some_and(|there| Arc::ptr_eq(there, &entry)) {
                return self.add_to(&entry, kept, wish);
            }
        }
    }

    fn add_to(&self, entry: &Entry, mut kept: MutexGuard<'_, Option<Lease>>, wish: &AddRequest<'_>) -> Result<AddResult, CniError> {
        let AddRequest { id, netns, wanted, by, gone } = *wish;
        let place = LeaseNetns::of(netns)?;
        let link = netns.enter(|inside| Link::named(inside, id.ifname.as_str())).map_err(internal)?;
        if let Some(lease) = kept.as_ref().filter(|lease| lease.place == place) {
            let own = link.as_ref().is_ok_and(|link| (link.index, link.mac) == (lease.link, lease.mac));
            if !own {
                // The name is another interface's now, which this lease was not given to.
                log::lease(id, "its interface was replaced");
                give_back(lease);
                *kept = None;
            } else if lease.wanted == *wanted && lease.worst(linux::boot::uptime()) < Phase::Expired && self.store.has(id) {
                log::lease(id, format_args!("requesting again: {}", lease.shown()));
                return lease.result();
            }
        }
        let stop = || entry.deleted.load(Ordering::SeqCst) || gone();
        log::lease(id, "acquiring lease");
        let asked = LeaseRequest { id, netns, wanted, patience: self.patience, by, stop: &stop, old: kept.as_ref() };
        let acquired = exchange::acquire(&asked).and_then(|lease| {
            let result = lease.result()?;
            linux::crash_point!("dhcp-granted");
            self.store.save(&lease).inspect_err(|_| drop(exchange::release(&lease)))?;
            Ok((lease, result))
        });
        match acquired {
            Ok((lease, result)) => {
                linux::crash_point!("dhcp-kept");
                log::lease(id, format_args!("lease acquired: {}", lease.shown()));
                let moment = lease.moment(linux::boot::uptime());
                *kept = Some(lease);
                drop(kept);
                let mut inner = locked(&self.inner);
                inner.turns.done(&id.network, false, Some(true));
                if inner.entries.get(id).is_some_and(|there| std::ptr::eq(&raw const **there, entry)) {
                    inner.turns.set(id, moment);
                }
                drop(inner);
                self.wake.notify_all();
                Ok(result)
            }
            Err(e) => {
                log::lease(id, &e);
                // What was there before belonged to another namespace, or had ended.
                *kept = None;
                self.forget(id, entry);
                self.tell(id, self.store.remove(id));
                Err(e)
            }
        }
    }

    /// CHECK: whether the lease holds, and has the addresses that its ADD returned.
    pub(crate) fn check(&self, id: &AttachmentId, prev: Option<&AddResult>) -> Result<(), CniError> {
        let error = |why: String| CniError::new(Code::INTERNAL, format!("dhcp: {why}"));
        let entry = locked(&self.inner).entries.get(id).map(Arc::clone);
        let none = || error(format!("there is no lease of {id}: this daemon did not get it, or it was released"));
        let entry = entry.ok_or_else(none)?;
        let kept = locked(&entry.lease);
        let lease = kept.as_ref().filter(|_| self.store.has(id)).ok_or_else(none)?;
        if lease.worst(linux::boot::uptime()) == Phase::Expired {
            return Err(error(format!("the lease has expired, and is being requested again: {}", lease.shown())));
        }
        let own = lease.result()?;
        match prev.and_then(|prev| own.ips.iter().find(|ip| !prev.ips.iter().any(|p| p.address.addr() == ip.address.addr()))) {
            None => Ok(()),
            Some(ip) => Err(error(format!("the lease is of {}, which the result of the ADD does not have", ip.address))),
        }
    }

    /// DEL: gives the lease back. One that is not known is gone.
    pub(crate) fn del(&self, id: &AttachmentId) -> Result<(), CniError> {
        let mut inner = locked(&self.inner);
        let entry = inner.entries.remove(id);
        inner.turns.set(id, None);
        drop(inner);
        if let Some(entry) = entry {
            // An ADD that still asks, or a renewal, ends soon.
            entry.deleted.store(true, Ordering::SeqCst);
            if let Some(lease) = locked(&entry.lease).take() {
                give_back(&lease);
            }
        }
        linux::crash_point!("dhcp-released");
        self.store.remove(id)
    }

    /// GC: gives back what belongs to attachments of a network that are not valid.
    pub(crate) fn gc(&self, network: &NetworkName, valid: &[AttachmentId]) -> Result<(), CniError> {
        let known: Vec<AttachmentId> = locked(&self.inner).entries.keys().cloned().collect();
        // An ADD that is under way is nobody's rest: it has no file yet.
        let stale = |id: &&AttachmentId| id.network == *network && !valid.contains(id) && self.store.has(id);
        let stale: Vec<&AttachmentId> = known.iter().filter(stale).collect();
        CniError::first_of(stale.into_iter().filter_map(|id| self.del(id).err())).map_or(Ok(()), Err)
    }
}

/// Releases a lease; that it cannot be done is told, and no reason to keep it.
pub(crate) fn give_back(lease: &Lease) {
    match exchange::release(lease) {
        Ok(true) => log::lease(&lease.id, format_args!("released: {}", lease.shown())),
        Ok(false) => {
            let why = "its interface is gone, or it has expired";
            log::lease(&lease.id, format_args!("dropped without a DHCPRELEASE ({why}): {}", lease.shown()));
        }
        Err(e) => log::lease(&lease.id, format_args!("dropped without a DHCPRELEASE: {e}")),
    }
}
