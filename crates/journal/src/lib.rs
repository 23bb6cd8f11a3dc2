//! What survives a crash: records in a directory, on the disk when their caller goes on.
//!
//! ```text
//!   append(record) -> Ticket        in memory, in the order of the calls
//!   wait(Ticket)                    one of those that wait writes what all of them have, with one flush
//!   turn() -> Turn, write(records)  a snapshot instead of all that was before it, while others append
//!
//!   0000000000000004.snapshot       the records of a snapshot: complete, or not there (written beside, renamed);
//!                                   behind them, where it was asked for, what stands for all of them in short
//!   0000000000000004.log            those that were appended since
//!   0000000000000005.log            those that were appended since the next snapshot was begun; the log before it ends in a
//!                                   frame without records, which says that there is one more
//!   begun                           there has been a log: from then on there is one, with its header and its room, or it is lost
//! ```
//!
//! A write that did not come to its end is dropped: nobody has been told that it had. A bit that flips in the very last one looks like
//! that; what ends too early does not, as a file has room before anything is written to it. Damage anywhere else is told
//! ([`OpenError::Damaged`]) and nothing is served from what is left: a journal with a hole knows less than nothing.
//!
//! One process at a time: the directory is locked. Who only looks ([`read`]) takes no lock, and nobody waits for it.

mod anew;
mod brief;
mod frame;
mod journal;
mod log;
mod reading;
mod snapshot;

pub use anew::{begin_anew, salvage};
pub use brief::{Name, RecordSource};
pub use journal::{Journal, PendingSnapshot, Ticket};
pub use reading::{Reading, read};

use std::io;
use std::path::{Path, PathBuf};

/// Something that was asked of the file system failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {step} {}: {reason}", path.display())]
pub struct Failure {
    /// What.
    pub step: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
    /// The error's number; 0 where it has none.
    pub errno: i32,
}

/// Why a journal cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file system says no.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// Another process has it.
    #[error(transparent)]
    Locked(#[from] linux::file::LockError),
    /// A file has a hole in it, or was changed: a disk that forgets, or somebody who has edited it.
    #[error("{} is damaged at byte {at}: its contents are lost", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the first part stands that cannot be read.
        at: u64,
    },
    /// A log is not there, and has been, or what was before one that is there.
    #[error("{} is missing: its contents are lost", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
}

// === impl Failure ===

impl Failure {
    pub(crate) fn new(step: &'static str, path: &Path, e: &io::Error) -> Self {
        Failure { step, path: path.to_owned(), reason: e.to_string(), errno: e.raw_os_error().unwrap_or(0) }
    }
}

impl From<linux::file::WriteError> for Failure {
    fn from(e: linux::file::WriteError) -> Self {
        Failure { step: e.step, path: e.path, reason: e.errno.desc().to_owned(), errno: e.errno as i32 }
    }
}

#[cfg(test)]
mod tests;
