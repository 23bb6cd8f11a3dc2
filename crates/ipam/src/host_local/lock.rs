//! The lock of a network's directory: flock(2) on its file `lock`, as the reference plugin takes it, so that both
//! exclude each other.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cni::{CniError, Code};
use linux::file::{IN_PLACE, LockHolder, TURN, goes_on};

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

/// How often, and how long each time, a caller sleeps before it waits in the kernel: who has the lock needs a tenth of a millisecond, and a
/// thread to wait with costs more than that.
const NAPS: u32 = 10;
const NAP: Duration = Duration::from_micros(100);

/// How long a caller sleeps between two attempts where it cannot wait in the kernel.
const PAUSE: Duration = Duration::from_millis(5);

/// flock(2) has no time limit of its own: where somebody else has the lock, a thread waits for it, and we for the thread.
/// The lock belongs to the open file, not to the thread. One that still waits after the deadline takes it when it is free,
/// finds that nobody wants it, and closes the file. Where no thread can be had (memory, `pids.max`), we try again and again.
fn acquire(
    file: File,
    path: PathBuf,
    deadline: Option<Instant>,
    block: fn(&File) -> io::Result<()>,
    attempt: fn(&File) -> Result<(), TryLockError>,
) -> Result<Lock, LockError> {
    let failed = |e: io::Error| LockError::from(IoFailure::of("lock", &path)(e));
    let begun = Instant::now();
    // `false`: somebody else has it.
    let attempt = |file: &File| match attempt(file) {
        Ok(()) => Ok(true),
        Err(TryLockError::Error(e)) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        Err(_) => Ok(false),
    };
    if attempt(&file).map_err(failed)? {
        return Ok(Lock { file });
    }
    let patiently = move |file: &File| loop {
        match block(file) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    };
    let Some(deadline) = deadline else { return patiently(&file).map_err(failed).map(|()| Lock { file }) };
    let left = || deadline.saturating_duration_since(Instant::now());
    for _ in 0..NAPS {
        thread::sleep(NAP.min(left()));
        if attempt(&file).map_err(failed)? {
            return Ok(Lock { file });
        }
    }
    let (tell, told) = mpsc::channel();
    // That nobody listens any more is the only failure there is.
    let waiter = |same| thread::Builder::new().name("lock".to_owned()).spawn(move || drop(tell.send(patiently(&same))));
    let got = match file.try_clone().and_then(waiter) {
        Ok(_) => loop {
            match told.recv_timeout(left().min(TURN)) {
                Ok(done) => break done.map(|()| true),
                Err(_) if !left().is_zero() && goes_on(Some(&file), &path, begun.elapsed()) => {}
                Err(_) => break Ok(false),
            }
        },
        Err(_) => {
            let mut turn = TURN;
            loop {
                match attempt(&file) {
                    Ok(false) if left().is_zero() => break Ok(false),
                    Ok(false) if begun.elapsed() < turn => thread::sleep(PAUSE.min(left())),
                    Ok(false) if goes_on(Some(&file), &path, begun.elapsed()) => turn += TURN,
                    done => break done,
                }
            }
        }
    };
    match got.map_err(failed)? {
        true => Ok(Lock { file }),
        false => Err(LockError::Busy { holder: LockHolder::of(&file), waited: begun.elapsed(), path }),
    }
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
