//! Another machine has an address that was granted: nobody gets it for a while.
//!
//! ```text
//!   granted -> asked for on the wire -> somebody answers -> given back -> quarantine -> another one is granted
//!                                                                            `--> told to who holds the store (agent: log, Event)
//! ```

use std::net::IpAddr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use pool::{Key, Pod};

use super::error::PoolStoreError;
use super::store::PoolStore;

/// How long nobody gets an address that another machine has, in milliseconds: an hour. Then it is asked for again.
pub(super) const QUARANTINE: u64 = 3_600_000;
/// So many are kept for who asks; older ones go.
const MOST: usize = 64;

/// A machine outside has an address of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressConflict {
    /// The pool.
    pub pool: String,
    /// The address.
    pub address: IpAddr,
    /// The hardware address of who has it.
    pub by: String,
    /// Whose it was.
    pub was: Was,
    /// The attachment's pod.
    pub pod: Option<Pod>,
}

/// Whose an address was that a machine outside has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Was {
    /// An attachment was to have it, and gets another one.
    Granted(Key),
    /// An attachment has it, and keeps it.
    Held(Key),
    /// Nobody's.
    Free,
}

impl PoolStore {
    /// Takes from an attachment what it was granted, as another machine has one address of that; nobody gets this one for an hour.
    /// Nothing happens where the attachment does not hold it.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn conflict(&self, key: &Key, address: IpAddr, by: &str) -> Result<(), PoolStoreError> {
        let held = self.lease(key).and_then(|lease| Some((lease.addresses.iter().find(|l| l.address == address)?.pool.clone(), lease)));
        let Some((pool, lease)) = held else { return Ok(()) };
        self.release(key, Some(lease.generation))?;
        linux::crash_point!("pool-conflict");
        // Who has taken it in between asks the network, too.
        self.quarantine(&pool, address, QUARANTINE, by)?;
        linux::crash_point!("pool-quarantined");
        self.count_conflict(AddressConflict { pool, address, by: by.to_owned(), was: Was::Granted(key.clone()), pod: lease.pod });
        Ok(())
    }

    /// Counts one, and keeps it for who asks.
    pub(super) fn count_conflict(&self, conflict: AddressConflict) {
        self.meters.conflicts.fetch_add(1, Ordering::Relaxed);
        let mut met = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner);
        if met.len() >= MOST {
            met.pop_front();
        }
        met.push_back(conflict);
    }

    /// The conflicts since this was asked last.
    pub fn take_conflicts(&self) -> Vec<AddressConflict> {
        std::mem::take(&mut *self.conflicts.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }
}
