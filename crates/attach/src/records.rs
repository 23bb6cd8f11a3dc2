//! The directory of records, and what it says of a sandbox's life.
//!
//! ```text
//!   ID.json    the record                    ID.lock    flock(2) by the ADD or DEL that is at work
//!   ID.del     the tombstone: it is to go    ID.old     a tombstone that is being looked at
//!
//!   lock held                     an ADD or a DEL is at work
//!   all steps of the record made  attached
//!   a step only intended          an ADD that was killed; nobody was told that it succeeded
//!   record and tombstone          a DEL that was killed, or failed; or it met an ADD, which was killed then; or the
//!                                 sandbox is retired: its DEL has succeeded, and is finished later
//!   tombstone alone               nothing: its writer was killed at the very end
//! ```
//!
//! A DEL leaves its tombstone before it waits for the lock. An ADD looks for one before each of its steps, and once more
//! after it has given the lock back; DEL tries the lock at least once after the tombstone is there. So of an ADD and a DEL
//! that meet, one always sees the other, and the ADD undoes itself even if that DEL is dead by then. What a killed or
//! failed one has left, the next ADD finishes as well as the next DEL.
//!
//! Each tombstone is a file of its own, so that an ADD can tell one that was there before it had the lock, and means an
//! earlier life of the sandbox, from one that means itself. Hence records need no generation: under the lock there is one
//! life only. Nor has a record a state "removing": the tombstone is that, and takes no rewriting, which a full disk would
//! refuse.
//!
//! DEL makes no file that it cannot do without: the tombstone is one more if there is room, and the lock's file stays as
//! long as the record does.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni::{CniError, Code, ContainerId};
use linux::Errno;
use linux::file::{self, Durability, Hold, Links, Lock, LockError, LockHolder, ReadError};

use crate::Record;
use crate::record::{MAX_FILE, SCHEMA};
use crate::retire::Places;

/// The directory of records. A copy is the same directory, and knows what the first one knows of it.
#[derive(Debug, Clone)]
pub struct Records {
    dir: PathBuf,
    pub(crate) places: Arc<Places>,
}

/// A record that cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Reading, writing or removing failed.
    #[error("{step} the record {}: {reason}", path.display())]
    Io {
        /// What failed.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Another ADD or DEL of the sandbox was at work until the deadline.
    #[error("sandbox {sandbox} is being changed by {}; retry when that has finished", holder.as_ref().map_or("another \
        process".to_owned(), ToString::to_string))]
    Busy {
        /// The sandbox.
        sandbox: ContainerId,
        /// Which process, if that is to be seen from here.
        holder: Option<LockHolder>,
    },
    /// The file is no record and is older than this boot: a power cut came before its content was on the disk.
    #[error("the record {} was lost in a power failure before this boot: DEL frees the sandbox's addresses and removes the record", path.display())]
    Lost {
        /// The file.
        path: PathBuf,
    },
    /// The file is no record.
    #[error(
        "cannot parse the record {}: {reason}; restore it, or delete the pod (its DEL frees addresses and rules but fails) and remove \
            the file",
        path.display()
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It would be larger than what is read again.
    #[error(
        "the record {} would be {size} bytes, but at most {MAX_FILE} are allowed: select fewer networks, or make their configurations smaller",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How many bytes.
        size: usize,
    },
    /// The file was written by a newer version.
    #[error("the record {} has schema {found}, but this version supports only {SCHEMA}: use the version that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u64,
    },
}

impl From<RecordError> for CniError {
    fn from(e: RecordError) -> Self {
        let code = if matches!(e, RecordError::Busy { .. }) { Code::TRY_AGAIN_LATER } else { Code::IO };
        CniError::new(code, e.to_string())
    }
}

/// How long a DEL waits for the lock before it sees to it that its tombstone is still there.
const WATCH: Duration = Duration::from_millis(50);

/// A sandbox is being changed, until this is dropped.
#[derive(Debug)]
pub struct SandboxLock {
    record: PathBuf,
    path: PathBuf,
    _lock: Lock,
}

impl Drop for SandboxLock {
    fn drop(&mut self) {
        if !is_there(&self.record) {
            // While it is still held: whoever waits for it finds that it locks nothing any more, and makes a new one.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// One file as it is: of two that have the same name one after the other, each is another, and so is one to which something was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileVersion {
    inode: u64,
    bytes: u64,
    made: (i64, i64),
}

/// The file that says that a sandbox is to go.
pub(crate) type Tombstone = FileVersion;

impl FileVersion {
    fn of(about: &Metadata) -> Self {
        // A later one may have an earlier one's inode number, but it was made at another time. What is added at once has the same time, on kernels
        // that count it in milliseconds.
        FileVersion { inode: about.ino(), bytes: about.len(), made: (about.mtime(), about.mtime_nsec()) }
    }

    fn at(path: &Path) -> Option<Self> {
        path.symlink_metadata().ok().as_ref().map(FileVersion::of)
    }
}

/// Also a file that cannot be looked at is one.
fn is_there(path: &Path) -> bool {
    !path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

// === impl Records ===

impl Records {
    /// The records in a directory, which is made when it is first needed.
    pub fn new(dir: PathBuf) -> Self {
        Records { dir, places: Arc::default() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, sandbox: &ContainerId) -> PathBuf {
        self.dir.join(format!("{sandbox}.json"))
    }

    fn tombstone(&self, sandbox: &ContainerId) -> PathBuf {
        self.dir.join(format!("{sandbox}.del"))
    }

    fn lock_file(&self, sandbox: &ContainerId) -> PathBuf {
        self.dir.join(format!("{sandbox}.lock"))
    }

    /// Whether there is a record that nobody can read.
    pub fn is_unreadable(&self, sandbox: &ContainerId) -> bool {
        matches!(self.read(sandbox), Err(RecordError::Torn { .. } | RecordError::Newer { .. } | RecordError::Io { .. }))
    }

    /// One caller at a time changes a sandbox. The lock's file goes with the lock, unless there is a record then.
    ///
    /// # Errors
    /// [`RecordError::Busy`] at the deadline, [`RecordError::Io`]
    pub fn lock(&self, sandbox: &ContainerId, by: Instant) -> Result<SandboxLock, RecordError> {
        let path = self.lock_file(sandbox);
        let fail = |reason: String| RecordError::Io { step: "lock", path: path.clone(), reason };
        let locked = match file::lock(&path, Some(by)) {
            Err(LockError::Open { errno: Errno::ENOENT, .. }) => {
                self.make_dir().map_err(|e| fail(e.to_string()))?;
                file::lock(&path, Some(by))
            }
            other => other,
        };
        match locked {
            Ok(lock) => {
                // An ADD may be killed, and the executable that it started for a step go on.
                lock.pass_on().map_err(|e| fail(e.to_string()))?;
                Ok(SandboxLock { record: self.path(sandbox), path, _lock: lock })
            }
            Err(LockError::Open { errno: Errno::EROFS, .. }) => self.lock_read_only(sandbox, by),
            Err(LockError::TimedOut { holder, .. }) => Err(RecordError::Busy { sandbox: sandbox.clone(), holder }),
            Err(e) => Err(fail(e.to_string())),
        }
    }

    /// The same on a disk that takes nothing: no file can be made, and those that are there cannot be written. Whoever comes locks the
    /// directory instead.
    fn lock_read_only(&self, sandbox: &ContainerId, by: Instant) -> Result<SandboxLock, RecordError> {
        let fail = |reason: String| RecordError::Io { step: "lock", path: self.dir.clone(), reason };
        let dir = std::fs::File::open(&self.dir).map_err(|e| fail(e.to_string()))?;
        match file::lock_open(dir, &self.dir, Hold::Alone, Some(by)) {
            Ok(lock) => Ok(SandboxLock { record: self.path(sandbox), path: self.lock_file(sandbox), _lock: lock }),
            Err(LockError::TimedOut { holder, .. }) => Err(RecordError::Busy { sandbox: sandbox.clone(), holder }),
            Err(e) => Err(fail(e.to_string())),
        }
    }

    /// The lock for a DEL: an ADD that has it is told to undo itself.
    ///
    /// # Errors
    /// As [`Records::lock`]; at the deadline the tombstone stays.
    pub(crate) fn lock_to_remove(&self, sandbox: &ContainerId, by: Instant) -> Result<SandboxLock, RecordError> {
        loop {
            // Each time: who had the lock until now may have taken it away with what it meant.
            self.write_tombstone(sandbox);
            linux::crash_point!("tombstone-there");
            match self.lock(sandbox, by.min(Instant::now() + WATCH)) {
                Err(RecordError::Busy { .. }) if Instant::now() < by => {}
                other => return other,
            }
        }
    }

    /// Leaves a tombstone, in place of the one that may be there. On a full disk there is none: then a DEL waits until an
    /// ADD has come to its end.
    pub(crate) fn write_tombstone(&self, sandbox: &ContainerId) {
        let _ = file::write_atomic(&self.tombstone(sandbox), b"", 0o600, Durability::Volatile);
    }

    /// The tombstone that is there.
    pub(crate) fn tombstone_of(&self, sandbox: &ContainerId) -> Option<Tombstone> {
        Tombstone::at(&self.tombstone(sandbox))
    }

    /// Takes the tombstone away, as the holder of the lock, and tells which it was.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub(crate) fn take_tombstone(&self, sandbox: &ContainerId) -> Result<Option<Tombstone>, RecordError> {
        let (path, aside) = (self.tombstone(sandbox), self.dir.join(format!("{sandbox}.old")));
        let fail = |e: std::io::Error| RecordError::Io { step: "remove the tombstone of", path: path.clone(), reason: e.to_string() };
        // Under its name another one could take its place between the look and the removal.
        match std::fs::rename(&path, &aside) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(fail)?,
        }
        let taken = Tombstone::at(&aside);
        linux::crash_point!("tombstone-aside");
        std::fs::remove_file(&aside).map_err(fail)?;
        Ok(taken)
    }

    /// Forgets what is left of a sandbox, as the holder of the lock: its record, also one that was never written to its
    /// end, then what says that it is to go. On a disk that is read-only it stays: nothing of the sandbox is there any more but what
    /// names it, and who looks for sandboxes without a namespace forgets it when the disk takes something again.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub(crate) fn forget(&self, sandbox: &ContainerId) -> Result<(), RecordError> {
        match file::remove(&self.path(sandbox)) {
            Err(e) if e.errno == Errno::EROFS => return Ok(()),
            other => other.map_err(|e| RecordError::Io { step: "remove", path: self.path(sandbox), reason: e.to_string() })?,
        }
        linux::crash_point!("tombstone-unremoved");
        for path in [self.tombstone(sandbox), self.dir.join(format!("{sandbox}.old"))] {
            file::remove(&path).map_err(|e| RecordError::Io { step: "remove the tombstone of", path, reason: e.to_string() })?;
        }
        Ok(())
    }

    /// Whether a sandbox is retired, or left by a DEL that did not come to its end: to the runtime it is gone, and
    /// [`crate::Attacher::finish`] does the rest. An ADD that is being told to undo itself counts too.
    pub fn is_retired(&self, sandbox: &ContainerId) -> bool {
        self.tombstone_of(sandbox).is_some() && is_there(&self.path(sandbox))
    }

    /// Every sandbox of which [`Records::is_retired`] says so, for a caller that begins.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the directory cannot be read; a missing one is empty.
    pub fn retired(&self) -> Result<Vec<ContainerId>, RecordError> {
        let mut found = self.named(&[".del"])?;
        found.retain(|id| is_there(&self.path(id)));
        Ok(found)
    }

    /// Takes away the tombstone and the lock's file of a sandbox that has no record, where nobody is at work on it: a DEL
    /// that was killed when it had removed the record has left them, and need not come again.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub fn tidy(&self, sandbox: &ContainerId) -> Result<(), RecordError> {
        match self.lock(sandbox, Instant::now()) {
            Ok(_lock) if is_there(&self.path(sandbox)) => Ok(()),
            Ok(_lock) => self.forget(sandbox),
            Err(RecordError::Busy { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Whether there is anything of a sandbox. An ADD that is at work has its lock, if nothing else.
    pub fn knows(&self, sandbox: &ContainerId) -> bool {
        [self.path(sandbox), self.lock_file(sandbox), self.tombstone(sandbox)].iter().any(|path| is_there(path))
    }

    /// Whether records can be written.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub fn are_writable(&self) -> Result<(), RecordError> {
        let there = self.dir.ancestors().find(|dir| is_there(dir)).unwrap_or(Path::new("/"));
        let fail = |e: linux::Errno| RecordError::Io { step: "create the directory of", path: self.dir.clone(), reason: e.to_string() };
        file::can_make_files(there).map_err(fail)
    }

    fn make_dir(&self) -> std::io::Result<()> {
        file::make_own_dir(&self.dir)
    }

    /// Writes a record as a whole.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub fn write(&self, record: &Record) -> Result<(), RecordError> {
        let path = self.path(&record.sandbox);
        let fail = |step, reason: String| RecordError::Io { step, path: path.clone(), reason };
        let text = json::compact(&record.to_json());
        if text.len() > MAX_FILE {
            return Err(RecordError::TooLarge { path, size: text.len() });
        }
        let write = || file::write_atomic(&path, text.as_bytes(), 0o600, Durability::Volatile);
        let written = match write() {
            Err(e) if e.errno == Errno::ENOENT => {
                self.make_dir().map_err(|e| fail("create the directory of", e.to_string()))?;
                write()
            }
            other => other,
        };
        written.map_err(|e| fail("write", e.to_string()))
    }

    /// Adds to a record that was written what came of its steps: by one write at the end of the file, so that no other file has to be made
    /// and to take its place. Of an ADD that is killed meanwhile there may be a part of it, which is passed over.
    ///
    /// # Errors
    /// [`RecordError`], also for a record that is not there any more; what the file said before it still says.
    pub(crate) fn write_outcome(&self, record: &Record) -> Result<(), RecordError> {
        let path = self.path(&record.sandbox);
        let fail = |e: std::io::Error| RecordError::Io { step: "add the results to", path: path.clone(), reason: e.to_string() };
        let text = format!("\n{}\n", record.outcome());
        let mut file = File::options().append(true).custom_flags(file::IN_PLACE).open(&path).map_err(fail)?;
        let size = usize::try_from(file.metadata().map_err(fail)?.len()).unwrap_or(usize::MAX).saturating_add(text.len());
        if size > MAX_FILE {
            return Err(RecordError::TooLarge { path, size });
        }
        linux::crash_point!("outcome-unwritten");
        file.write_all(text.as_bytes()).map_err(fail)?;
        linux::crash_point!("outcome-written");
        Ok(())
    }

    /// The record of a sandbox; `None` if there is none.
    ///
    /// # Errors
    /// [`RecordError`]
    pub fn read(&self, sandbox: &ContainerId) -> Result<Option<Record>, RecordError> {
        let path = self.path(sandbox);
        match file::read(&path, MAX_FILE, Links::Refused) {
            Ok(bytes) => match Record::from_bytes(&bytes, &path) {
                Err(RecordError::Torn { .. }) if linux::boot::is_of_an_earlier(&path) => Err(RecordError::Lost { path }),
                read => read.map(Some),
            },
            Err(ReadError::NotFound { .. }) => Ok(None),
            Err(e) => Err(RecordError::Io { step: "read", path, reason: e.to_string() }),
        }
    }

    /// Forgets a sandbox, also one whose record was never written to its end.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub fn remove(&self, sandbox: &ContainerId) -> Result<(), RecordError> {
        let path = self.path(sandbox);
        file::remove(&path).map_err(|e| RecordError::Io { step: "remove", path, reason: e.to_string() })
    }

    /// Every sandbox that has a record, or is not wholly forgotten.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the directory cannot be read; a missing one is empty.
    pub fn sandboxes(&self) -> Result<Vec<ContainerId>, RecordError> {
        self.named(&[".json", ".del", ".lock"])
    }

    /// The sandboxes that have a file whose name ends so.
    pub(crate) fn named(&self, suffixes: &[&str]) -> Result<Vec<ContainerId>, RecordError> {
        let names = self.file_names()?;
        let ids = names.iter().filter_map(|name| suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)));
        let mut found: Vec<ContainerId> = ids.filter_map(|id| ContainerId::parse(id).ok()).collect();
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// The sandboxes that have a record and that nobody has deleted, and those of `too` that have one: each with the version of its record. No
    /// file is opened.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the directory cannot be read; a missing one is empty.
    pub(crate) fn living(&self, too: &BTreeSet<ContainerId>) -> Result<Vec<(ContainerId, FileVersion)>, RecordError> {
        let names = self.file_names()?;
        let tombstones: BTreeSet<&str> = names.iter().filter_map(|name| name.strip_suffix(".del")).collect();
        let mut found = Vec::new();
        for id in names.iter().filter_map(|name| name.strip_suffix(".json")) {
            let Ok(sandbox) = ContainerId::parse(id) else { continue };
            // The tombstone that was listed may be that of an earlier life.
            if !too.contains(&sandbox) && tombstones.contains(id) && self.tombstone_of(&sandbox).is_some() {
                continue;
            }
            if let Some(version) = self.version(&sandbox)? {
                found.push((sandbox, version));
            }
        }
        Ok(found)
    }

    /// The version of the record of a sandbox that nobody has deleted, if it has one. No file is opened.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub(crate) fn living_version(&self, sandbox: &ContainerId) -> Result<Option<FileVersion>, RecordError> {
        if self.tombstone_of(sandbox).is_some() { Ok(None) } else { self.version(sandbox) }
    }

    fn version(&self, sandbox: &ContainerId) -> Result<Option<FileVersion>, RecordError> {
        let path = self.path(sandbox);
        match path.symlink_metadata() {
            Ok(about) => Ok(Some(FileVersion::of(&about))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(RecordError::Io { step: "look at", path, reason: e.to_string() }),
        }
    }

    /// The sandbox that a file of the directory says something of that [`Records::living_version`] depends on.
    pub(crate) fn sandbox_of(&self, file: &Path) -> Option<ContainerId> {
        let name = file.file_name()?.to_str().filter(|_| file.parent() == Some(&*self.dir))?;
        let id = [".json", ".del"].iter().find_map(|suffix| name.strip_suffix(suffix))?;
        ContainerId::parse(id).ok()
    }

    fn file_names(&self) -> Result<Vec<String>, RecordError> {
        let fail = |e: std::io::Error| RecordError::Io { step: "list", path: self.dir.clone(), reason: e.to_string() };
        let entries = match std::fs::read_dir(&self.dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        entries.map(|entry| Ok(entry.map_err(fail)?.file_name().to_string_lossy().into_owned())).collect()
    }
}

#[cfg(test)]
mod tests;
