//! Pools that come into a store, also into one that was lost and is made anew.
//!
//! ```text
//!   follow, grant, take_in --> Intake: nobody gets an address --> pools are there --> again: leases, quarantine --> go on
//! ```
//!
//! What the cluster grants comes in one intake, with all its pools: an attachment may have addresses of two of them, and gets both
//! back or neither.

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;
use std::sync::PoisonError;

use pool::{Allocator, Ask, Event, Granted as Leased, Lease, Origin, Refused, Unavailable};

use super::error::{PoolStoreError, fits};
use super::grant::Pool;
use super::granted::{self, Changes, Granted};
use super::store::PoolStore;

/// What makes a lost store anew.
pub(super) struct Recovery {
    again: Box<dyn FnMut(&Intake<'_>) -> bool + Send>,
    /// Who may grant something, and has not been taken in yet.
    missing: Vec<Origin>,
}

/// A store into which pools come: nobody gets an address until they are all there. Whoever has one calls [`Intake::follow`] and
/// [`Intake::grant`]; those of the store would wait for it.
#[derive(Debug)]
pub struct Intake<'s> {
    store: &'s PoolStore,
    complete: bool,
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("missing", &self.missing).finish_non_exhaustive()
    }
}

// === impl Intake ===

impl Intake<'_> {
    /// The store.
    pub fn store(&self) -> &PoolStore {
        self.store
    }

    /// Whether all that is granted is there, so that nothing more comes of which somebody has an address.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// As [`PoolStore::follow`].
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn follow(&self, pool: &Pool) -> Result<(), PoolStoreError> {
        fits(self.store.make_so(&pool.spec.name, |all| granted::of_file(all, pool))?)
    }

    /// As [`PoolStore::grant`].
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn grant(&self, granted: &Granted) -> Result<Vec<Refused>, PoolStoreError> {
        self.store.make_so(&granted.spec.name, |all| granted::of_cluster(all, granted))
    }
}

// === impl PoolStore ===

impl PoolStore {
    /// A pool is as its file says from now on. What its file has not any more is not handed out, and stays with who holds it.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn follow(&self, pool: &Pool) -> Result<(), PoolStoreError> {
        // As before, mostly: that is nobody's reason to wait.
        if self.look(|all| granted::of_file(all, pool).is_ok_and(|changes| changes.events.is_empty() && changes.refused.is_empty())) {
            return Ok(());
        }
        self.recovering(None, |intake| intake.follow(pool))
    }

    /// A pool of a cluster is so from now on, and these are all blocks of it that this node has. Returned are the blocks that
    /// are not taken in, and why: one that was given back in that epoch ([`Refused::Returned`]) is to be given back again.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn grant(&self, granted: &Granted) -> Result<Vec<Refused>, PoolStoreError> {
        self.recovering(None, |intake| intake.grant(granted))
    }

    /// Takes in all that somebody grants this node, in one go: where the store was lost, nobody gets any of it before it is
    /// known what of it is in use.
    ///
    /// # Errors
    /// That of `all`: it is not all there then.
    pub fn take_in<T, E>(&self, of: Origin, all: impl FnOnce(&Intake<'_>) -> Result<T, E>) -> Result<T, E> {
        self.recovering(Some(of), all)
    }

    /// The store was lost: calls this now and after each [`PoolStore::take_in`], [`PoolStore::grant`] and [`PoolStore::follow`],
    /// before anybody gets an address, until it says that nothing is left. `of`: all who may grant this node something.
    pub fn recover_with(&self, of: &[Origin], again: impl FnMut(&Intake<'_>) -> bool + Send + 'static) {
        let recovery = Recovery { again: Box::new(again), missing: of.to_vec() };
        *self.recovery.lock().unwrap_or_else(PoisonError::into_inner) = Some(recovery);
        self.recover();
    }

    /// Whether what was lost is not all there again.
    pub fn is_recovering(&self) -> bool {
        self.recovery.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Once more, where it is not over.
    pub fn recover(&self) {
        let _: Result<(), PoolStoreError> = self.recovering(None, |_| Ok(()));
    }

    fn recovering<T, E>(&self, all_of: Option<Origin>, take_in: impl FnOnce(&Intake<'_>) -> Result<T, E>) -> Result<T, E> {
        let mut recovery = self.recovery.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Recovery { again, missing }) = recovery.as_mut() else {
            drop(recovery);
            return take_in(&Intake { store: self, complete: true });
        };
        self.state().paused = true;
        let done = take_in(&Intake { store: self, complete: missing.is_empty() });
        missing.retain(|of| done.is_err() || all_of != Some(*of));
        if again(&Intake { store: self, complete: missing.is_empty() }) {
            *recovery = None;
        }
        let mut state = self.state();
        state.paused = false;
        self.tell(state);
        done
    }

    /// As [`PoolStore::reserve`], also while nobody is granted anything: what an attachment has, and only the store had forgotten.
    /// That an address is in quarantine is no hindrance: it is known now whose it is.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn adopt(&self, ask: &Ask) -> Result<Lease, PoolStoreError> {
        self.all_of_it()?;
        for (want, address) in ask.wants.iter().filter_map(|want| Some((want, want.address?))) {
            self.renew_quarantine(&want.pool, address, 0, "its holder")?;
        }
        let mut state = self.state();
        let lease = match state.allocator.reserve(ask, &self.now())? {
            Leased::Again(lease) => return Ok(lease),
            Leased::New(lease) => lease,
        };
        self.land(state, lease)
    }

    /// Nobody gets an address for so many milliseconds: somebody else has it. `false`: that is known, or an attachment has it.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn quarantine(&self, pool: &str, address: IpAddr, millis: u64, by: &str) -> Result<bool, PoolStoreError> {
        self.quarantine_where(pool, address, millis, by, |taken| {
            !matches!(taken, Some(Unavailable::Held(_) | Unavailable::Quarantined { .. }))
        })
    }

    /// An address that is in quarantine is so for so many milliseconds from now on. `false`: it is not in quarantine.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn renew_quarantine(&self, pool: &str, address: IpAddr, millis: u64, by: &str) -> Result<bool, PoolStoreError> {
        self.quarantine_where(pool, address, millis, by, |taken| matches!(taken, Some(Unavailable::Quarantined { .. })))
    }

    fn quarantine_where(
        &self,
        pool: &str,
        address: IpAddr,
        millis: u64,
        by: &str,
        is_due: impl Fn(Option<&Unavailable>) -> bool,
    ) -> Result<bool, PoolStoreError> {
        let taken = Unavailable::Quarantined { since: self.now(), millis, by: by.to_owned() };
        let event = Event::Quarantined { pool: pool.to_owned(), address, taken };
        let done = Cell::new(false);
        let changes = |all: &Allocator| {
            let network = all.spec(pool).map(|spec| spec.network.as_str()).unwrap_or_default();
            done.set(is_due(all.taken(network, address)));
            Ok(Changes { events: done.get().then(|| event.clone()).into_iter().collect(), ..Changes::default() })
        };
        self.make_so(pool, changes)?;
        Ok(done.get())
    }
}
