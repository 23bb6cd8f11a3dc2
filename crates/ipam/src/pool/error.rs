//! Why a store does not do what it is asked for, and what a person can do then.

use std::path::{Path, PathBuf};

use cni::{CniError, Code};
use journal::{Failure, OpenError};
use linux::boot::BootIdError;
use linux::file::LockError;
use pool::{DecodeError, Key, Refused};

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolStoreError {
    /// The directory cannot be used.
    #[error("{}", told(.0))]
    Open(OpenError),
    /// What it has was written by another release, or is damaged.
    #[error("{}: {reason}{}", dir.display(), begin_anew(dir))]
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
    Refused(Box<Refused>),
    /// The pool's name is a file's on this node and a cluster's.
    #[error(
        "pool {pool:?} is granted by the cluster, but this node has a pool file of the same name: rename or remove the file \
            (docs/use/pools.md)"
    )]
    OfBoth {
        /// The pool.
        pool: String,
    },
    /// Nobody is granted anything at this moment.
    #[error("no address can be assigned on this node: {why}")]
    Closed {
        /// Why.
        why: String,
    },
    /// It takes more than what was read of it ([`crate::PoolStore::open_part`]).
    #[error("the addresses in use are not completely read yet")]
    Part,
    /// Nobody waits for it any more.
    #[error("the caller closed the connection while it waited for addresses")]
    Abandoned,
    /// The attachment gives back what it holds, at this moment.
    #[error("attachment {key} is releasing its addresses")]
    Leaving {
        /// The attachment.
        key: Key,
    },
}

// What it says has all that the other one says: as its source it would be said twice.
impl From<OpenError> for PoolStoreError {
    fn from(e: OpenError) -> Self {
        PoolStoreError::Open(e)
    }
}

impl From<Refused> for PoolStoreError {
    fn from(refused: Refused) -> Self {
        PoolStoreError::Refused(Box::new(refused))
    }
}

impl From<PoolStoreError> for CniError {
    fn from(e: PoolStoreError) -> Self {
        let code = match &e {
            PoolStoreError::Refused(refused) => code_of(refused),
            PoolStoreError::Leaving { .. }
            | PoolStoreError::Abandoned
            | PoolStoreError::Closed { .. }
            | PoolStoreError::Open(OpenError::Locked(LockError::TimedOut { .. })) => Code::TRY_AGAIN_LATER,
            PoolStoreError::OfBoth { .. } => Code::INVALID_CONFIG,
            _ => Code::IO,
        };
        CniError::new(code, e.to_string())
    }
}

/// A file's pool that is not taken in is nobody's.
pub(super) fn fits(refused: Vec<Refused>) -> Result<(), PoolStoreError> {
    refused.into_iter().next().map_or(Ok(()), |refused| Err(refused.into()))
}

/// As `host-local`'s for the same.
fn code_of(refused: &Refused) -> Code {
    match refused {
        Refused::Short { .. } | Refused::Taken { .. } | Refused::Unclaimed { .. } => Code::TRY_AGAIN_LATER,
        Refused::HoldsOther(_) => Code::INVALID_ENVIRONMENT,
        Refused::UnknownPool { .. }
        | Refused::Nothing { .. }
        | Refused::NotOfThisNode { .. }
        | Refused::Excluded { .. }
        | Refused::Reserved { .. }
        | Refused::Claimed { .. }
        | Refused::OtherNetwork { .. }
        | Refused::Twice { .. } => Code::INVALID_CONFIG,
        _ => Code::INTERNAL,
    }
}

fn told(e: &OpenError) -> String {
    match e {
        OpenError::Damaged { path, .. } | OpenError::Missing { path } => {
            format!("{e}{}", begin_anew(path.parent().unwrap_or(path)))
        }
        _ => e.to_string(),
    }
}

/// What a person can do where nobody knows any more who holds which address.
fn begin_anew(dir: &Path) -> String {
    let dir = dir.display();
    format!(": rebuild it from what runs on this host with `netloom ipam --dir {dir} check --rebuild` (docs/use/pools.md)")
}

// === impl PoolStoreError ===

impl PoolStoreError {
    /// Whether nobody knows any more what the journal knew.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, PoolStoreError::Open(OpenError::Damaged { .. } | OpenError::Missing { .. }) | PoolStoreError::Foreign { .. })
    }

    /// Whether another process has it.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        matches!(self, PoolStoreError::Open(OpenError::Locked(LockError::TimedOut { .. })))
    }

    /// Whether it may be otherwise in a moment, without anybody's help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, PoolStoreError::Refused(refused) if matches!(**refused, Refused::Short { .. } | Refused::Taken { .. }))
    }
}
