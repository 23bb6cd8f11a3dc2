//! A machine outside speaks with an address of this node's, and nobody has asked.
//!
//! ```text
//!   heard --> nobody has the address    quarantine, for an hour from when it was heard last
//!         `-> an attachment has it      it keeps it: told once, and kept beside the journal for an hour -> given back -> quarantine
//! ```
//!
//! The journal does not know of what is held and heard: nobody gets an address otherwise because of it, and who reads the journal of an
//! earlier release reads this one. A file beside it has it, for a person who asks and for an agent that begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::PoisonError;

use linux::file::{self, Durability, Links};
use pool::{Allocator, Event, Family, Key, Lease, Moment, Pod, Run, State, Unavailable};
use serde::{Deserialize, Serialize};

use super::conflict::{AddressConflict, QUARANTINE, Was};
use super::error::PoolStoreError;
use super::store::PoolStore;

/// Beside the journal.
const FILE: &str = "heard";
/// More than it ever is.
const MAX_FILE: usize = 1 << 20;
/// So many addresses that attachments have are kept.
const MOST: usize = 256;
/// Of so many machines it is told that they have the same one.
const MOST_STATIONS: usize = 4;
/// So many of a pool's family are put into quarantine because somebody was heard: who forges what he says gets no more.
const MOST_QUARANTINED: u64 = 1024;
/// How long an address is nobody's business after it was given back, in milliseconds: what its holder said last may still be heard.
const LAST_WORDS: u64 = 2_000;
/// In milliseconds: what is heard again and again is written no more often.
const REFRESHED: u64 = 600_000;

/// An address that an attachment has, and a machine outside as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedAddress {
    /// Where it is unique.
    pub network: String,
    /// Its pool.
    pub pool: String,
    /// Which.
    pub address: IpAddr,
    /// The machine that was heard last.
    pub by: String,
    boot: [u8; 16],
    millis: u64,
    /// All of whom it was told within an hour.
    #[serde(default)]
    told: BTreeSet<String>,
}

/// What is known of it.
#[derive(Debug)]
pub(super) struct Noted {
    pool: String,
    by: String,
    /// When that was.
    at: Moment,
    /// When it was written last.
    written: Moment,
    /// When it was told of whom.
    told: BTreeMap<String, Moment>,
}

/// Addresses by their network.
pub(super) type AllNoted = BTreeMap<(String, IpAddr), Noted>;

/// An address of this node's that somebody speaks with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedClaim {
    /// Where it is unique.
    pub network: String,
    /// Its pool.
    pub pool: String,
    /// Which.
    pub address: IpAddr,
    /// The attachment that has it; `None`: nobody.
    pub holder: Option<Key>,
    pod: Option<Pod>,
}

// === impl ObservedAddress ===

impl ObservedAddress {
    /// When it was heard last.
    #[must_use]
    pub fn at(&self) -> Moment {
        Moment { boot: self.boot, millis: self.millis }
    }

    fn of((network, address): &(String, IpAddr), noted: &Noted) -> Self {
        ObservedAddress {
            network: network.clone(),
            pool: noted.pool.clone(),
            address: *address,
            by: noted.by.clone(),
            boot: noted.at.boot,
            millis: noted.at.millis,
            told: noted.told.keys().cloned().collect(),
        }
    }
}

/// What is heard of the store in a directory, and holds: within the last hour. Nothing where nobody has listened, or it cannot be read.
pub(super) fn read(dir: &Path, now: &Moment) -> Vec<ObservedAddress> {
    let bytes = file::read(&dir.join(FILE), MAX_FILE, Links::Refused).unwrap_or_default();
    let mut all: Vec<ObservedAddress> = serde_json::from_slice(&bytes).unwrap_or_default();
    all.retain(|heard| is_fresh(&heard.at(), now));
    all.truncate(MOST);
    all
}

fn is_fresh(at: &Moment, now: &Moment) -> bool {
    at.elapsed(now) < QUARANTINE
}

/// Whether this node has an address of a pool, and nobody is to speak with it but who gets it here. That of a claim, or of whoever it is
/// kept for, others may have; a gateway speaks.
fn is_own(all: &Allocator, pool: &str, address: IpAddr, held: bool) -> bool {
    let Some(spec) = all.spec(pool) else { return false };
    let is_gateway = |name: &str| all.spec(name).is_some_and(|s| s.network == spec.network && is_gateway_of(s, address));
    let of_block = all.blocks(pool, Family::of(address)).find(|(block, _)| block.run.contains(address));
    match of_block {
        Some((block, State::Active | State::Withdrawn)) if held => block.claim.is_none(),
        Some((block, State::Active)) => {
            block.claim.is_none() && !spec.usable(Run::single(address)).is_empty() && !all.pools().any(is_gateway)
        }
        _ => false,
    }
}

fn is_gateway_of(spec: &pool::Spec, address: IpAddr) -> bool {
    spec.terms(Family::of(address)).gateway == Some(address)
}

// === impl PoolStore ===

impl PoolStore {
    /// Whose an address is that somebody speaks with, of these pools: once for each network. Nothing where there is nothing to be done
    /// for it: it is not this node's, it is a claim's, it was given back just now, it is in quarantine for long enough.
    pub fn spoken(&self, pools: &BTreeSet<String>, address: IpAddr) -> Vec<ObservedClaim> {
        let now = self.now();
        self.look(|all| {
            let mut found: BTreeMap<&str, ObservedClaim> = BTreeMap::new();
            for pool in pools {
                let Some(spec) = all.spec(pool) else { continue };
                let taken = all.taken(&spec.network, address);
                let lease = match taken {
                    Some(Unavailable::Held(key)) => all.lease(key),
                    Some(Unavailable::Cooling { since, .. }) if since.elapsed(&now) < LAST_WORDS => continue,
                    Some(Unavailable::Quarantined { .. }) if taken.and_then(|t| t.frees_in(0, &now)) > Some(QUARANTINE / 2) => continue,
                    _ => None,
                };
                // Two nodes may have it while the claim's pod migrates.
                if lease.is_some_and(|lease| lease.claim.is_some()) {
                    continue;
                }
                if is_own(all, pool, address, lease.is_some()) {
                    let (holder, pod) = (lease.map(|lease| lease.key.clone()), lease.and_then(|lease| lease.pod.clone()));
                    let one = ObservedClaim { network: spec.network.clone(), pool: pool.clone(), address, holder, pod };
                    found.entry(&spec.network).or_insert(one);
                }
            }
            found.into_values().collect()
        })
    }

    /// Notes that a machine outside has an address. Nobody gets it from now on; an attachment that has it keeps it. Whether it is told
    /// ([`PoolStore::take_conflicts`]), which is once an hour.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn heard(&self, spoken: &ObservedClaim, by: &str) -> Result<bool, PoolStoreError> {
        let told = match &spoken.holder {
            Some(_) => self.note(spoken, by),
            None => self.keep_from_all(spoken, by)?,
        };
        if told {
            let ObservedClaim { pool, address, holder, pod, .. } = spoken.clone();
            let was = holder.map_or(Was::Free, Was::Held);
            self.count_conflict(AddressConflict { pool, address, by: by.to_owned(), was, pod });
            // Who tells of what is wrong is to look again.
            self.tell(self.state());
        }
        Ok(told)
    }

    fn keep_from_all(&self, ObservedClaim { pool, address, .. }: &ObservedClaim, by: &str) -> Result<bool, PoolStoreError> {
        if self.look(|all| all.usage(pool, Family::of(*address)).quarantined) >= MOST_QUARANTINED {
            return Ok(false);
        }
        let new = self.quarantine(pool, *address, QUARANTINE, by)?;
        if !new {
            // It may be an attachment's by now: that is heard again.
            self.renew_quarantine(pool, *address, QUARANTINE, by)?;
        }
        Ok(new)
    }

    fn note(&self, ObservedClaim { network, pool, address, .. }: &ObservedClaim, by: &str) -> bool {
        let now = self.now();
        let mut all = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, noted| is_fresh(&noted.at, &now));
        let place = (network.clone(), *address);
        if all.len() >= MOST && !all.contains_key(&place) {
            return false;
        }
        let new = || Noted { pool: pool.clone(), by: String::new(), at: now, written: now, told: BTreeMap::new() };
        let noted = all.entry(place).or_insert_with(new);
        noted.told.retain(|_, at| is_fresh(at, &now));
        let is_new = noted.told.len() < MOST_STATIONS && !noted.told.contains_key(by);
        if is_new {
            noted.told.insert(by.to_owned(), now);
        }
        (noted.by, noted.at) = (by.to_owned(), now);
        if is_new || noted.written.elapsed(&now) >= REFRESHED {
            noted.written = now;
            self.write(&all);
        }
        is_new
    }

    /// As far as it can be written: what is lost with it is heard again.
    fn write(&self, all: &AllNoted) {
        let heard: Vec<ObservedAddress> = all.iter().map(|(place, noted)| ObservedAddress::of(place, noted)).collect();
        if let Ok(bytes) = serde_json::to_vec(&heard) {
            let _ = file::write_atomic(&self.dir().join(FILE), &bytes, 0o600, Durability::Volatile);
        }
    }

    /// Addresses that attachments have, and machines outside as well that were heard within the last hour.
    pub fn heard_addresses(&self) -> Vec<ObservedAddress> {
        let now = self.now();
        let all = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(_, noted)| is_fresh(&noted.at, &now)).map(|(place, noted)| ObservedAddress::of(place, noted)).collect()
    }

    /// What was heard before this process: what nobody has any more is in quarantine now.
    ///
    /// # Errors
    /// [`PoolStoreError`]
    pub fn recall_heard(&self) -> Result<(), PoolStoreError> {
        for heard in read(self.dir(), &self.now()) {
            let ObservedAddress { network, pool, address, by, .. } = &heard;
            let held = self
                .look(|all| is_own(all, pool, *address, true).then(|| matches!(all.taken(network, *address), Some(Unavailable::Held(_)))));
            match held {
                None => {}
                Some(false) => drop(self.quarantine(pool, *address, QUARANTINE, by)?),
                Some(true) => {
                    let at = heard.at();
                    let told = heard.told.iter().take(MOST_STATIONS).map(|by| (by.clone(), at)).collect();
                    let noted = Noted { pool: pool.clone(), by: by.clone(), at, written: at, told };
                    self.noted.lock().unwrap_or_else(PoisonError::into_inner).insert((network.clone(), *address), noted);
                }
            }
        }
        Ok(())
    }

    /// What becomes of a lease's addresses, when it is given back, that machines outside have as well.
    pub(super) fn given_back(&self, all: &Allocator, lease: &Lease) -> Vec<Event> {
        let now = self.now();
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.is_empty() {
            return Vec::new();
        }
        let mut events = Vec::new();
        for leased in &lease.addresses {
            let network = all.network(&leased.pool).unwrap_or_default().to_owned();
            if let Some(other) = noted.remove(&(network, leased.address)).filter(|noted| is_fresh(&noted.at, &now)) {
                let taken = Unavailable::Quarantined { since: now, millis: QUARANTINE, by: other.by };
                events.push(Event::Quarantined { pool: leased.pool.clone(), address: leased.address, taken });
            }
        }
        if !events.is_empty() {
            self.write(&noted);
        }
        events
    }
}
