//! The lock of a network's directory: flock(2) on its file `lock`, as the reference plugin takes it, so that both
//! exclude each other.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{CniError, Code};
use linux::file::{self, Hold, IN_PLACE, LockHolder};

use super::failure::IoFailure;

/// The lock, held until this is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: file::Lock,
}

impl Lock {
    /// Whether it is still the one that others take: somebody may have removed the file and another made a new one.
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        let (ours, theirs) = (self.file.file().metadata(), std::fs::symlink_metadata(dir.join("lock")));
        ours.is_ok_and(|ours| theirs.is_ok_and(|theirs| (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())))
    }
}

/// A lock that was not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else kept it until the deadline.
    #[error("{path} stayed locked for {:.1} s, by {}", .waited.as_secs_f64(), who(.path, .holder.as_ref()))]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
        /// Who holds it, if that is to be seen from here.
        holder: Option<LockHolder>,
    },
    /// The lock file could not be used.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl From<LockError> for CniError {
    fn from(e: LockError) -> Self {
        match e {
            LockError::Busy { .. } => CniError::new(Code::TRY_AGAIN_LATER, e.to_string()),
            LockError::Io(e) => e.into(),
        }
    }
}

fn who(path: &Path, holder: Option<&LockHolder>) -> String {
    match holder {
        Some(holder) => format!("{holder}: the lock is released when that process ends"),
        None => format!("a process that is not visible from here: find it with \"fuser -v {}\" or lslocks", path.display()),
    }
}

/// For a change: alone. The file is made if it is missing, with the reference plugin's mode.
pub(super) fn exclusive(dir: &Path, deadline: Option<Instant>) -> Result<Lock, LockError> {
    let path = dir.join("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o750).custom_flags(IN_PLACE);
    let file = options.open(&path).map_err(IoFailure::of("open", &path))?;
    acquire(file, path, Hold::Alone, deadline)
}

/// For reading: nobody changes anything meanwhile. `None` if there is no lock file, so nobody has changed anything ever;
/// it is not made, for reading has to work on a read-only file system.
pub(super) fn shared(dir: &Path, deadline: Option<Instant>) -> Result<Option<Lock>, LockError> {
    let path = dir.join("lock");
    match OpenOptions::new().read(true).custom_flags(IN_PLACE).open(&path) {
        Ok(file) => acquire(file, path, Hold::Shared, deadline).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(IoFailure::of("open", &path)(e).into()),
    }
}

fn acquire(file: File, path: PathBuf, how: Hold, deadline: Option<Instant>) -> Result<Lock, LockError> {
    let begun = Instant::now();
    file::lock_open(file, &path, how, deadline).map(|file| Lock { file }).map_err(|e| match e {
        file::LockError::TimedOut { holder, .. } => LockError::Busy { holder, waited: begun.elapsed(), path },
        file::LockError::Open { errno, .. } | file::LockError::Refused { errno, .. } => IoFailure::of("lock", &path)(errno.into()).into(),
        e => IoFailure::of("lock", &path)(io::Error::other(e)).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_whom_to_look_at() {
        let path = PathBuf::from("/x/lock");
        let busy = |holder| LockError::Busy { path: path.clone(), waited: Duration::from_millis(2050), holder };
        let named = busy(Some(LockHolder { pid: 7, name: "host-local".into() }));
        assert_eq!(
            named.to_string(),
            "/x/lock stayed locked for 2.0 s, by process 7 (host-local): the lock is released when that process ends"
        );
        assert!(busy(None).to_string().contains("fuser -v /x/lock"));
        assert_eq!(CniError::from(named).code, Code::TRY_AGAIN_LATER);
    }
}
