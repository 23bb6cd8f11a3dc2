//! Who waits for a lock says so, and gives up where nobody waits for it.

use std::fs::File;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use super::LockHolder;

/// How often a wait is asked about.
pub const TURN: Duration = Duration::from_secs(1);

/// A lock that has been waited for, so long already.
pub struct LockWait<'a> {
    /// What is locked.
    pub path: &'a Path,
    /// For how long, in steps of about a second.
    pub waited: Duration,
    file: Option<&'a File>,
}

/// Whether it is waited for any longer.
pub type GoesOn = fn(&LockWait) -> bool;

static GOES_ON: RwLock<Option<GoesOn>> = RwLock::new(None);

// === impl LockWait ===

impl LockWait<'_> {
    /// Who has it, where that is to be seen from here.
    pub fn holder(&self) -> Option<LockHolder> {
        self.file.and_then(LockHolder::of)
    }
}

/// Has this asked about every wait for a lock of this process, each second, on the thread that waits. The last one that was named is asked.
pub fn ask_while_waiting(goes_on: GoesOn) {
    *GOES_ON.write().unwrap_or_else(PoisonError::into_inner) = Some(goes_on);
}

/// Whether anybody is asked.
pub(super) fn is_asked() -> bool {
    GOES_ON.read().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Whether who waits for the lock of a file goes on with it: to be called about once in each [`TURN`]. The file, opened, shows who has it; `None` where
/// it cannot be opened from here.
pub fn goes_on(file: Option<&File>, path: &Path, waited: Duration) -> bool {
    let asked = *GOES_ON.read().unwrap_or_else(PoisonError::into_inner);
    asked.is_none_or(|goes_on| goes_on(&LockWait { path, waited, file }))
}
