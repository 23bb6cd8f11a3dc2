//! Files that are whole or not there, and locks between processes.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;

mod alarm;
mod entries;
mod exchange;
mod hold;
mod holder;
mod unfinished;
mod waiting;

pub use entries::{Entry, entries};
pub use exchange::rename_new;
pub use hold::Hold;
pub use holder::LockHolder;
pub use unfinished::Unfinished;
pub use waiting::{GoesOn, LockWait, TURN, ask_while_waiting, goes_on};

/// What a file must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The end of any process. A power cut may take it, with everything it describes.
    Volatile,
    /// A power cut too (`fdatasync` of the file, `fsync` of its folder: about 1 ms).
    Durable,
}

/// A file could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {step} {}: {errno}", path.display())]
pub struct WriteError {
    /// What was attempted.
    pub step: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// What the kernel said.
    pub errno: Errno,
}

/// A small file that is there could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadSmallError {
    /// The kernel refused.
    #[error("cannot read {}: {errno}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the kernel said; `ELOOP` for a symbolic link, which is not followed.
        errno: Errno,
    },
    /// A directory, a pipe or a device.
    #[error("cannot read {}: it is not a regular file", path.display())]
    Irregular {
        /// What is in the file's place.
        path: PathBuf,
    },
    /// More bytes than were expected.
    #[error("cannot read {}: it has more than {max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes accepted.
        max: usize,
    },
}

/// A lock could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock's file could not be opened or made.
    #[error("cannot open the lock {}: {errno}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the kernel said; `ELOOP` for a symbolic link, which is not followed.
        errno: Errno,
    },
    /// The kernel refused.
    #[error("cannot lock {}: {errno}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// Someone else held it until the deadline.
    #[error("{} is locked by {}", path.display(), who(path, holder.as_ref()))]
    TimedOut {
        /// The file.
        path: PathBuf,
        /// Who held it then, if that is to be seen from here.
        holder: Option<LockHolder>,
    },
}

fn who(path: &Path, holder: Option<&LockHolder>) -> String {
    match holder {
        Some(holder) => holder.to_string(),
        None => format!("a process that is not visible from here (find it with: fuser -v {})", path.display()),
    }
}

/// A lock on a file (`flock(2)`), until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// A file could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is none.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// Something else has its place: a directory, a pipe, a device.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// What was to be a file.
        path: PathBuf,
    },
    /// It is larger than any file of its kind.
    #[error("{} has more than the maximum of {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: usize,
    },
    /// The kernel refused.
    #[error("cannot read {}: {errno}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the kernel said; `ELOOP` for a symbolic link that is not to be followed.
        errno: Errno,
    },
}

/// Flags with which a file of ours is opened, for `custom_flags`: a symbolic link in its place is not followed (`ELOOP`),
/// and a pipe is not waited for (`ENXIO`). To a regular file they mean nothing.
pub const IN_PLACE: i32 = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Whether a symbolic link may stand for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It may: the directory is somebody's who may arrange it as he likes.
    Followed,
    /// It may not: the file is one that we wrote.
    Refused,
}

/// Reads a regular file of at most `limit` bytes. Anything else in its place is refused, and never waited for, as a pipe
/// would have to be.
///
/// # Errors
/// [`ReadError`]
pub fn read(path: &Path, limit: usize, links: Links) -> Result<Vec<u8>, ReadError> {
    let refused = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => ReadError::NotFound { path: path.to_owned() },
        _ => ReadError::Refused { path: path.to_owned(), errno: errno(&e) },
    };
    let not_a_file = || ReadError::NotAFile { path: path.to_owned() };
    let flags = if links == Links::Refused { IN_PLACE } else { IN_PLACE & !libc::O_NOFOLLOW };
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        // A socket.
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Err(not_a_file()),
        opened => opened.map_err(refused)?,
    };
    let status = file.metadata().map_err(refused)?;
    if !status.is_file() {
        return Err(not_a_file());
    }
    // Files of /proc say that they have none.
    let room = usize::try_from(status.len()).unwrap_or(usize::MAX).min(limit);
    let mut bytes = Vec::with_capacity(room);
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() > limit {
        return Err(ReadError::TooLarge { path: path.to_owned(), limit });
    }
    Ok(bytes)
}

/// Replaces a file, or makes it, with exactly these permissions: whoever reads it sees the old or the new content, never a
/// part. A process that is killed in between may leave the old or the new one as `.NAME.tmp` beside it, which the next write, or [`remove`], takes
/// away. One writer at a time: of two for the same path one may fail.
///
/// # Errors
/// [`WriteError`] with the step; the old content is still there, unless the folder alone could not be synced.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32, durability: Durability) -> Result<(), WriteError> {
    let temporary = beside(path).ok_or_else(|| WriteError { step: "write to", path: path.to_owned(), errno: Errno::EISDIR })?;
    let result = fill(&temporary, bytes, mode, durability)
        .and_then(|()| replace(&temporary, path, durability).map_err(|e| failed("replace", path, &e)));
    crate::crash_point!("file-replaced");
    if result.is_err() {
        // Gone already, or it cannot be helped.
        let _ = fs::remove_file(&temporary);
        return result;
    }
    match durability {
        Durability::Volatile => Ok(()),
        Durability::Durable => sync_folder(path),
    }
}

/// Whether a file could be made in a directory, and written: it makes one of a page without a name (`O_TMPFILE`), so that nothing is seen of
/// it. A file system that knows no such files is not asked further.
///
/// # Errors
/// What the kernel says: `EROFS`, `EACCES`, `ENOSPC`, ...
pub fn can_make_files(dir: &Path) -> Result<(), Errno> {
    use nix::fcntl::OFlag;
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    match nix::fcntl::open(dir, flags, nix::sys::stat::Mode::from_bits_truncate(0o600)) {
        Ok(file) => File::from(file).write_all(&[0; 4096]).map_err(|e| errno(&e)),
        Err(Errno::EOPNOTSUPP | Errno::EISDIR) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes a file that [`write_atomic`] wrote, with what a writer that was killed has left beside it. What is not there is
/// removed already.
///
/// # Errors
/// [`WriteError`]; the file is then still there.
pub fn remove(path: &Path) -> Result<(), WriteError> {
    let gone = |path: &Path| match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed("remove", path, &e)),
        _ => Ok(()),
    };
    if let Some(temporary) = beside(path) {
        gone(&temporary)?;
    }
    crate::crash_point!("file-unremoved");
    gone(path)?;
    crate::crash_point!("file-removed");
    Ok(())
}

/// The whole of a regular file that somebody else wrote; `None` if it is not there. Neither is a symbolic link followed nor
/// a pipe waited for.
///
/// # Errors
/// [`ReadSmallError`], also for more than `max` bytes.
pub fn read_small(path: &Path, max: usize) -> Result<Option<Vec<u8>>, ReadSmallError> {
    let refused = |e: std::io::Error| ReadSmallError::Refused { path: path.to_owned(), errno: errno(&e) };
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(refused)?,
    };
    if !file.metadata().map_err(refused)?.is_file() {
        return Err(ReadSmallError::Irregular { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    file.take(max as u64 + 1).read_to_end(&mut bytes).map_err(refused)?;
    match bytes.len() > max {
        true => Err(ReadSmallError::TooLarge { path: path.to_owned(), max }),
        false => Ok(Some(bytes)),
    }
}

/// Where a file is written before it gets its name: always the same place, so that nothing has to be searched for.
fn beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    let text = name.to_string_lossy();
    // A file name has up to 255 bytes, and 5 are added.
    let short = if text.len() <= 250 && text.as_bytes() == name.as_encoded_bytes() {
        text.into_owned()
    } else {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    Some(path.with_file_name(format!(".{short}.tmp")))
}

/// Gives a file its name. What had that name before changes places with it and is removed then: were it overwritten, ext4
/// would begin to write the new file to the disk at once, and who removes it would wait for that (its mount option
/// `auto_da_alloc`; 0.2 to 6 ms). That is of use only where the file must survive a power cut.
fn replace(temporary: &Path, path: &Path, durability: Durability) -> std::io::Result<()> {
    let is_file = || path.symlink_metadata().is_ok_and(|about| about.is_file());
    if durability == Durability::Volatile && is_file() && exchange::exchange(temporary, path).is_ok() {
        crate::crash_point!("file-exchanged");
        // If the old one stays, the next writer takes it away.
        let _ = fs::remove_file(temporary);
        return Ok(());
    }
    // There was none, or the file system cannot do it.
    fs::rename(temporary, path)
}

fn fill(path: &Path, bytes: &[u8], mode: u32, durability: Durability) -> Result<(), WriteError> {
    let create = || {
        let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW;
        File::options().write(true).create_new(true).mode(mode & 0o600).custom_flags(flags).open(path)
    };
    let mut file = match create() {
        // Left by a process that was killed.
        Err(e) if e.raw_os_error() == Some(libc::EEXIST) => fs::remove_file(path).and_then(|()| create()),
        created => created,
    }
    .map_err(|e| failed("create", path, &e))?;
    crate::crash_point!("file-created");
    file.write_all(bytes).map_err(|e| failed("write to", path, &e))?;
    // Not left to the umask.
    file.set_permissions(Permissions::from_mode(mode)).map_err(|e| failed("set the permissions of", path, &e))?;
    crate::crash_point!("file-written");
    match durability {
        Durability::Volatile => Ok(()),
        Durability::Durable => file.sync_data().map_err(|e| failed("sync", path, &e)),
    }
}

/// Makes a directory for root alone, with those that it is in, where there is none. One that was there, `/run` say, keeps its mode.
///
/// # Errors
/// What the kernel says.
pub fn make_own_dir(dir: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes a folder's entries survive a power cut: those of the folder that holds `path`.
///
/// # Errors
/// [`WriteError`] with the step.
pub fn sync_folder(path: &Path) -> Result<(), WriteError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| failed("sync the folder", folder, &e))
}

fn failed(step: &'static str, path: &Path, e: &std::io::Error) -> WriteError {
    WriteError { step, path: path.to_owned(), errno: errno(e) }
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))
}

/// Locks a file, which is made (mode 0600) where it is missing, and waits for whoever holds it: at most until the deadline,
/// if one is given. Symbolic links are not followed.
///
/// # Errors
/// [`LockError::TimedOut`] at the deadline, and where [`ask_while_waiting`] says that nobody waits for it any more.
pub fn lock(path: &Path, deadline: Option<Instant>) -> Result<Lock, LockError> {
    loop {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(IN_PLACE)
            .open(path)
            .map_err(|e| LockError::Open { path: path.to_owned(), errno: errno(&e) })?;
        let lock = lock_open(file, path, Hold::Alone, deadline)?;
        // Whoever held it has deleted the file: it locks nothing any more, the next caller makes a new one.
        if lock.file.metadata().is_ok_and(|status| status.nlink() > 0) {
            crate::crash_point!("lock-taken");
            return Ok(lock);
        }
    }
}

/// Locks what is open already, and waits as [`lock`] does. `path` stands for it in errors. Whoever locks through a duplicate
/// of the same descriptor holds the same lock: let it be opened for this alone.
///
/// # Errors
/// As [`lock`].
pub fn lock_open(file: File, path: &Path, how: Hold, deadline: Option<Instant>) -> Result<Lock, LockError> {
    match hold::take(&file, path, how, deadline) {
        Ok(true) => Ok(Lock { file }),
        Ok(false) => Err(LockError::TimedOut { path: path.to_owned(), holder: LockHolder::of(&file) }),
        Err(errno) => Err(LockError::Refused { path: path.to_owned(), errno }),
    }
}

// === impl Lock ===

impl Lock {
    /// The file that is locked, to read or write it meanwhile.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Lets every program that this process starts hold it too, until it is dropped here. So the lock of a process that
    /// is killed while a program works for it is free only when that program has ended, with all that it has started.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pass_on(&self) -> Result<(), Errno> {
        fcntl(&self.file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        passed_on().insert(self.file.as_raw_fd());
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        passed_on().remove(&self.file.as_raw_fd());
        // Also for programs that were started and left something running. Where that is refused, the end of the last of them unlocks.
        drop(self.file.unlock());
    }
}

/// The descriptors that programs get besides the standard three.
pub(crate) fn passed_on() -> MutexGuard<'static, BTreeSet<RawFd>> {
    static PASSED_ON: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());
    PASSED_ON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a path is a directory (or file) or below it, also once the links on the way are followed, as far as it is there. Neither may
/// have a part `..`. A link that leads nowhere is within nothing.
pub fn is_within(path: &Path, dir: &Path) -> bool {
    let is_plain = |path: &Path| path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !is_plain(path) || !is_plain(dir) || !path.is_absolute() || !path.starts_with(dir) {
        return false;
    }
    matches!((followed(path), followed(dir)), (Some(path), Some(dir)) if path.starts_with(&dir))
}

/// A path with its links followed: what is not there yet is as it stands. `None` where a link leads nowhere.
fn followed(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    if path.symlink_metadata().is_ok() {
        return None;
    }
    Some(followed(path.parent()?)?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("nllx-file-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn names(&self) -> Vec<String> {
            fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = Folder::new("write");
        let path = folder.0.join("record");
        for (content, mode, durability) in [(&b"one"[..], 0o600, Durability::Volatile), (b"", 0o666, Durability::Durable)] {
            write_atomic(&path, content, mode, durability).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
            assert_eq!(folder.names(), ["record"]);
        }
        let long = folder.0.join("x".repeat(255));
        write_atomic(&long, b"1", 0o600, Durability::Volatile).unwrap();
        assert_eq!(fs::read(&long).unwrap(), b"1");
    }

    #[test]
    fn what_a_killed_writer_left_goes_with_the_file() {
        let folder = Folder::new("half");
        for name in ["record".to_owned(), "x".repeat(255)] {
            let path = folder.0.join(&name);
            let half = beside(&path).unwrap();
            fs::write(&half, b"ha").unwrap();
            write_atomic(&path, b"whole", 0o600, Durability::Volatile).unwrap();
            assert_eq!(folder.names(), std::slice::from_ref(&name));
            fs::write(&half, b"ha").unwrap();
            remove(&path).unwrap();
            assert!(folder.names().is_empty());
            remove(&path).unwrap();
        }
        fs::create_dir(folder.0.join("dir")).unwrap();
        assert_eq!(remove(&folder.0.join("dir")).unwrap_err().step, "remove");
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = Folder::new("failed");
        fs::create_dir(folder.0.join("taken")).unwrap();
        let error = write_atomic(&folder.0.join("taken"), b"1", 0o600, Durability::Volatile).unwrap_err();
        assert_eq!((error.step, error.errno), ("replace", Errno::EISDIR));
        assert_eq!(folder.names(), ["taken"]);
        let error = write_atomic(&folder.0.join("no/such"), b"1", 0o600, Durability::Volatile).unwrap_err();
        assert_eq!((error.step, error.errno), ("create", Errno::ENOENT));
        assert!(write_atomic(Path::new("/"), b"1", 0o600, Durability::Volatile).is_err());
    }

    #[test]
    fn a_small_file_is_read_and_nothing_else_is() {
        let folder = Folder::new("small");
        let path = folder.0.join("file");
        assert_eq!(read_small(&path, 3), Ok(None));
        fs::write(&path, b"abc").unwrap();
        assert_eq!(read_small(&path, 3), Ok(Some(b"abc".to_vec())));
        assert_eq!(read_small(&path, 2), Err(ReadSmallError::TooLarge { path: path.clone(), max: 2 }));
        let link = folder.0.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read_small(&link, 3), Err(ReadSmallError::Refused { path: link, errno: Errno::ELOOP }));
        let pipe = folder.0.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe, folder.0.clone()] {
            assert_eq!(read_small(&path, 3), Err(ReadSmallError::Irregular { path }));
        }
    }

    #[test]
    fn one_holds_the_lock_at_a_time() {
        let folder = Folder::new("lock");
        let path = folder.0.join("lock");
        let first = lock(&path, None).unwrap();
        assert_eq!(first.file().metadata().unwrap().mode() & 0o777, 0o600);
        let soon = Instant::now() + Duration::from_millis(20);
        let holder = LockHolder::of(first.file()).filter(|holder| holder.pid == std::process::id());
        assert!(holder.is_some());
        assert_eq!(lock(&path, Some(soon)).unwrap_err(), LockError::TimedOut { path: path.clone(), holder });
        assert!(Instant::now() >= soon);
        drop(first);
        // A process that another test starts may have it open for a moment.
        let end = Instant::now() + Duration::from_secs(60);
        while let Err(e) = lock(&path, Some(Instant::now())) {
            assert!(Instant::now() < end, "{e}");
        }

        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (path, inside) = (&path, &inside);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let deadline = (i % 2 == 0).then(|| Instant::now() + Duration::from_secs(120));
                        let held = lock(path, deadline).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        // Deleting it must not let a second one in.
                        fs::remove_file(path).unwrap();
                        drop(held);
                    }
                });
            }
        });
    }

    #[test]
    fn only_a_file_is_read() {
        let folder = Folder::new("read");
        let path = |name: &str| folder.0.join(name);
        fs::write(path("file"), b"text").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        drop(std::os::unix::net::UnixListener::bind(path("socket")).unwrap());
        assert_eq!(read(&path("file"), 4, Links::Refused).unwrap(), b"text");
        assert_eq!(read(&path("link"), 4, Links::Followed).unwrap(), b"text");
        assert!(matches!(read(&path("link"), 4, Links::Refused), Err(ReadError::Refused { errno: Errno::ELOOP, .. })));
        assert!(matches!(read(&path("file"), 3, Links::Refused), Err(ReadError::TooLarge { limit: 3, .. })));
        assert!(matches!(read(&path("none"), 3, Links::Refused), Err(ReadError::NotFound { .. })));
        for name in ["pipe", "socket", "."] {
            assert!(matches!(read(&path(name), 4, Links::Followed), Err(ReadError::NotAFile { .. })), "{name}");
        }
        assert!(matches!(read(Path::new("/dev/zero"), 4, Links::Followed), Err(ReadError::NotAFile { .. })));
        // It says that it is empty.
        assert!(!read(Path::new("/proc/self/status"), 1 << 20, Links::Refused).unwrap().is_empty());
    }

    #[test]
    fn a_lock_is_no_symbolic_link() {
        let folder = Folder::new("link");
        let path = folder.0.join("lock");
        std::os::unix::fs::symlink(folder.0.join("elsewhere"), &path).unwrap();
        assert_eq!(lock(&path, None).unwrap_err(), LockError::Open { path: path.clone(), errno: Errno::ELOOP });
        assert_eq!(folder.names(), ["lock"]);
    }
}
