//! The lock of a network's directory: flock(2) on its file `lock`, as the reference plugin takes it, so that both
//! exclude each other.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{CniError, Code};
use linux::file::IN_PLACE;

use super::failure::IoFailure;

/// The lock, held until this is dropped: closing the file releases it.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Whether it is still the one that others take: somebody may have removed the file and another made a new one.
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        let (ours, theirs) = (self.file.metadata(), std::fs::symlink_metadata(dir.join("lock")));
        ours.is_ok_and(|ours| theirs.is_ok_and(|theirs| (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())))
    }
}

/// A lock that was not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else kept it until the deadline.
    #[error("{path} stayed locked for {waited:.1?}, by {}", who(.path, .holder.as_ref()))]
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

/// The process that took a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Its ID.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`); empty if it has ended and a child of it holds on.
    pub name: String,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "process {}", self.pid),
            name => write!(f, "process {} ({name})", self.pid),
        }
    }
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
        Some(holder) => format!("{holder}: see what it waits for; the lock is free when it ends"),
        None => format!("a process that cannot be seen from here: find it with \"fuser -v {}\" or lslocks", path.display()),
    }
}

/// For a change: alone. The file is made if it is missing, with the reference plugin's mode.
pub(super) fn exclusive(dir: &Path, deadline: Option<Instant>) -> Result<Lock, LockError> {
    let path = dir.join("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o750).custom_flags(IN_PLACE);
    let file = options.open(&path).map_err(IoFailure::of("open", &path))?;
    acquire(file, path, deadline, File::lock, File::try_lock)
}

/// For reading: nobody changes anything meanwhile. `None` if there is no lock file, so nobody has changed anything ever;
/// it is not made, for reading has to work on a read-only file system.
pub(super) fn shared(dir: &Path, deadline: Option<Instant>) -> Result<Option<Lock>, LockError> {
    let path = dir.join("lock");
    match OpenOptions::new().read(true).custom_flags(IN_PLACE).open(&path) {
        Ok(file) => acquire(file, path, deadline, File::lock_shared, File::try_lock_shared).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(IoFailure::of("open", &path)(e).into()),
    }
}

/// flock(2) has no time limit of its own, hence the short sleeps; without a deadline the kernel wakes us.
fn acquire(
    file: File,
    path: PathBuf,
    deadline: Option<Instant>,
    block: fn(&File) -> io::Result<()>,
    attempt: fn(&File) -> Result<(), TryLockError>,
) -> Result<Lock, LockError> {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        let outcome = match deadline {
            None => block(&file).map_err(TryLockError::Error),
            Some(_) => attempt(&file),
        };
        match outcome {
            Ok(()) => return Ok(Lock { file }),
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(TryLockError::Error(e)) => return Err(IoFailure::of("lock", &path)(e).into()),
            Err(TryLockError::WouldBlock) => {}
        }
        let left = deadline.map_or(Duration::MAX, |d| d.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            let holder = find_holder(&file);
            return Err(LockError::Busy { path, waited: begun.elapsed(), holder });
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

fn find_holder(file: &File) -> Option<LockHolder> {
    let about = file.metadata().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_in(&locks, about.dev(), about.ino())?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(LockHolder { pid, name: name.trim().to_owned() })
}

/// The process that holds a lock, in the text of `/proc/locks` (proc_locks(5)):
/// `1: FLOCK  ADVISORY  WRITE 4711 fd:01:123 0 EOF`; a waiting one has `->` in the second column. The process is 0 if
/// it lives in a PID namespace that is not ours.
fn holder_in(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let (major, minor) = ((dev >> 8 & 0xfff) | (dev >> 32 & !0xfff), (dev & 0xff) | (dev >> 12 & 0xffff_ff00));
    let file = format!("{major:02x}:{minor:02x}:{ino}");
    let line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let flock = words.next()? == "FLOCK";
        let pid: u32 = words.nth(2)?.parse().ok()?;
        (flock && words.next()? == file && pid != 0).then_some(pid)
    };
    locks.lines().find_map(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fd:01:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 fd:01:77 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 4712 fd:01:77 0 EOF\n3: FLOCK  ADVISORY  READ 0 103:00101:78 0 EOF\n4: FLOCK\n";
        assert_eq!(holder_in(locks, 0xfd01, 77), Some(4711));
        assert_eq!(holder_in(locks, 0xfd02, 77), None);
        assert_eq!(holder_in(locks, 0xfd01, 78), None);
        assert_eq!(holder_in("", 1, 1), None);
    }

    #[test]
    fn messages_say_whom_to_look_at() {
        let path = PathBuf::from("/x/lock");
        let busy = |holder| LockError::Busy { path: path.clone(), waited: Duration::from_millis(2050), holder };
        let named = busy(Some(LockHolder { pid: 7, name: "host-local".into() }));
        assert_eq!(
            named.to_string(),
            "/x/lock stayed locked for 2.0s, by process 7 (host-local): see what it waits for; the lock is free when it ends"
        );
        assert!(busy(None).to_string().contains("fuser -v /x/lock"));
        assert_eq!(CniError::from(named).code, Code::TRY_AGAIN_LATER);
    }
}
