//! The store behind `host-local`: one file for each address that is held, in the reference plugin's format, so that a
//! node can move to this implementation and back, and both can even work on one directory at once.
//!
//! ```text
//! <dataDir>/<network>/            0755
//!     10.1.0.7                    0600  "<container ID>\r\n<interface>"; very old files hold only the ID
//!     last_reserved_ip.<set>      0600  the address of that set that was handed out last
//!     lock                        0750  empty; flock(2) by whoever reads or changes the directory
//! <dataDir>/.<network>.index      0600  ours alone, and no more than a short cut: `rm` it whenever you like
//! ```
//!
//! An address is held while its file exists. The index spares a call to read all files, so its time does not grow with
//! what is held; module `index` says when it is believed. Nothing is synced to disk: what a power cut takes from here it
//! has taken from the kernel too.

mod allocate;
mod container;
mod failure;
mod files;
mod free;
mod index;
mod known;
mod lock;
mod owner;

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cni::{CniError, Code, NetworkName};

pub use allocate::{AllocateError, Allocated, can_be_requested};
pub use container::release_container;
pub use failure::IoFailure;
pub use linux::file::LockHolder;
pub use lock::LockError;
pub use owner::{Holder, Owner};

use files::{Entry, Reader};
use known::AddressIndex;

/// Where addresses are kept unless `ipam.dataDir` says otherwise.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// The held addresses of one network. Every call is whole: it locks the directory, does its work and unlocks.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    network: NetworkName,
    deadline: Option<Instant>,
}

/// The store could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The lock was not to be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file or directory could not be used. Whatever else was to be released has been.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

/// A collection that left something behind; the rest is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} of the addresses to free are still held: {}", .failed.len(), list(.failed))]
pub struct GcError {
    /// What has been freed all the same.
    pub freed: Vec<IpAddr>,
    /// What could not be read or removed. An address whose file cannot be read stays held.
    pub failed: Vec<StoreError>,
}

impl From<StoreError> for CniError {
    fn from(e: StoreError) -> Self {
        match e {
            StoreError::Lock(e) => e.into(),
            StoreError::Io(e) => e.into(),
        }
    }
}

impl From<GcError> for CniError {
    fn from(e: GcError) -> Self {
        CniError::new(Code::IO, e.to_string())
    }
}

fn list(failed: &[StoreError]) -> String {
    failed.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

// === impl Store ===

impl Store {
    /// The store of a network below a data directory; nothing is touched yet. Waits for the lock without end unless
    /// [`Store::lock_by`] says otherwise.
    pub fn open(data_dir: &Path, network: &NetworkName) -> Self {
        Store { dir: data_dir.join(network.as_str()), network: network.clone(), deadline: None }
    }

    /// Gives up waiting for the lock at `deadline`, so that a stuck peer becomes an error that names it.
    #[must_use]
    pub fn lock_by(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The network's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Frees every address of an owner and returns them, sorted. What is not held is no error, nor is a directory that
    /// does not exist; neither is made.
    ///
    /// As in the reference plugin a file that holds only the container's ID is the owner's if no other is.
    ///
    /// # Errors
    /// [`StoreError`]; all that could be freed has been, and the call can be repeated.
    pub fn release(&self, owner: &Owner) -> Result<Vec<IpAddr>, StoreError> {
        if !files::exists(&self.dir)? {
            return Ok(Vec::new());
        }
        let lock = lock::exclusive(&self.dir, self.deadline)?;
        linux::crash_point!("release-locked");
        let mut known = AddressIndex::get(&self.dir, true)?;
        let held = known.holdings(owner)?.owned();
        let (mut failed, mut freed) = (known.unread.clone(), Vec::new());
        for (entry, key) in held {
            match files::remove(&self.dir.join(&entry.name)) {
                Ok(()) => {
                    known.free(entry.ip, key);
                    freed.push(entry.ip);
                }
                Err(e) => failed = failed.or(Some(e)),
            }
            linux::crash_point!("release-freed");
        }
        failed = failed.or(files::remove(&self.dir.join(files::HALF_WRITTEN)).err());
        known.keep(&lock);
        freed.sort();
        failed.map_or(Ok(freed), |e| Err(e.into()))
    }

    /// The addresses that an owner holds, sorted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn held(&self, owner: &Owner) -> Result<Vec<IpAddr>, StoreError> {
        if !files::exists(&self.dir)? {
            return Ok(Vec::new());
        }
        let _lock = lock::shared(&self.dir, self.deadline)?;
        let mut known = AddressIndex::get(&self.dir, false)?;
        let held = known.holdings(owner)?.owned();
        if let Some(e) = known.unread {
            return Err(e.into());
        }
        let mut held: Vec<IpAddr> = held.into_iter().map(|(entry, _)| entry.ip).collect();
        held.sort();
        Ok(held)
    }

    /// Who holds an address; `None` if it is free.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn holder(&self, ip: IpAddr) -> Result<Option<Holder>, StoreError> {
        if !files::exists(&self.dir)? {
            return Ok(None);
        }
        let _lock = lock::shared(&self.dir, self.deadline)?;
        Ok(files::holder(&self.dir, ip.to_canonical())?)
    }

    /// Every held address with its holder, sorted by address.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn all(&self) -> Result<Vec<(IpAddr, Holder)>, StoreError> {
        let mut all = Vec::new();
        self.each(|ip, content| all.push((ip, Holder::of(content))))?;
        all.sort_by_key(|(ip, _)| *ip);
        Ok(all)
    }

    /// Frees every address whose owner is not among `valid` and returns them, sorted (SPEC 1.1.0: GC). So goes what a
    /// reboot or a crash left behind, also an empty file: whoever writes holds the lock, so its writer died before
    /// anybody could use the address. A file that cannot be read keeps its address.
    ///
    /// # Errors
    /// [`GcError`] with what has been freed and what could not be.
    pub fn gc(&self, valid: &[Owner]) -> Result<Vec<IpAddr>, GcError> {
        let stop = |e: StoreError| GcError { freed: Vec::new(), failed: vec![e] };
        if !files::exists(&self.dir).map_err(|e| stop(e.into()))? {
            return Ok(Vec::new());
        }
        let lock = lock::exclusive(&self.dir, self.deadline).map_err(|e| stop(e.into()))?;
        linux::crash_point!("collect-locked");
        let owners: HashSet<&Owner> = valid.iter().collect();
        let containers: HashSet<&str> = valid.iter().map(|o| o.id.as_str()).collect();
        let (mut goes, mut freed, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        // Always from the files, so that it mends what an index could not see.
        let see = |entry: &Entry, content: Result<&[u8], IoFailure>| match content {
            Ok(content) => {
                let keep = match Holder::of(content) {
                    Holder::Attachment(owner) => owners.contains(&owner),
                    Holder::Container(id) => containers.contains(id.as_str()),
                    Holder::Unknown => false,
                };
                if !keep {
                    goes.push((entry.clone(), index::key(content)));
                }
            }
            Err(e) => failed.push(e.into()),
        };
        let mut known = AddressIndex::read(&self.dir, true, see).map_err(|e| stop(e.into()))?;
        for (entry, key) in goes {
            match files::remove(&self.dir.join(&entry.name)) {
                Ok(()) => {
                    known.free(entry.ip, key);
                    freed.push(entry.ip);
                }
                Err(e) => failed.push(e.into()),
            }
            linux::crash_point!("collect-freed");
        }
        if let Err(e) = files::remove(&self.dir.join(files::HALF_WRITTEN)) {
            failed.push(e.into());
        }
        known.keep(&lock);
        freed.sort();
        if failed.is_empty() { Ok(freed) } else { Err(GcError { freed, failed }) }
    }

    /// Reads every held address's file.
    fn each(&self, mut seen: impl FnMut(IpAddr, &[u8])) -> Result<(), StoreError> {
        if !files::exists(&self.dir)? {
            return Ok(());
        }
        let _lock = lock::shared(&self.dir, self.deadline)?;
        let mut reader = Reader::new(&self.dir);
        for entry in files::list(&self.dir)? {
            if let Some(content) = reader.read(&entry)? {
                seen(entry.ip, content);
            }
        }
        Ok(())
    }
}
