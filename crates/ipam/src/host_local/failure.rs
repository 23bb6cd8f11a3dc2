//! A file or directory that could not be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use cni::{CniError, Code};

/// What failed, where, and why. Whatever was begun has been taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoFailure {
    /// What was being done, as in "cannot read".
    pub doing: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The system's error number, where there is one.
    pub errno: Option<i32>,
    /// The error in words.
    pub reason: String,
}

// === impl IoFailure ===

impl IoFailure {
    /// For `map_err`.
    pub(super) fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |e| IoFailure { doing, path: path.to_owned(), errno: e.raw_os_error(), reason: e.to_string() }
    }

    /// What to look at next, for the errors that have a usual cause.
    fn advice(&self) -> &'static str {
        match self.errno {
            Some(28) => ": free space or inodes (check with df and df -i)",
            Some(30) => ": the file system is mounted read-only; remount it, or set ipam.dataDir to a writable directory",
            Some(1 | 13) => ": run as root, or correct the directory's owner and mode",
            Some(40) => ": symbolic links are not followed here; put a real file or directory in its place",
            Some(6 | 20 | 21) => ": a file of another kind is in its place; move it away",
            _ => "",
        }
    }
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}{}", self.doing, self.path.display(), self.reason, self.advice())
    }
}

impl std::error::Error for IoFailure {}

impl From<IoFailure> for CniError {
    fn from(e: IoFailure) -> Self {
        CniError::new(Code::IO, e.to_string())
    }
}
