//! DELs that nobody could carry out when they came: kept on disk, and carried out by the agent when it is back.
//!
//! ```text
//!   <spool>/<container>@<interface>.del    netloom-spool 1 <checksum> <bytes>\n{"call":{...}}
//! ```
//!
//! Who keeps a DEL has told the runtime that it is done, which will not come again: so a file is on the disk, and its name in
//! the directory, before that is said. There is one file for each attachment; a second DEL takes the first one's place.
//! A reader removes a file only if it is still the one that it has carried out.
//!
//! An agent carries out what is kept as soon as it listens, in this order: who keeps a DEL tries to reach it once more
//! afterwards, so of the two one sees the other. And an ADD of an attachment comes after the DEL that is kept for it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use cni::{ContainerId, IfName};
use linux::file::{self, Durability, Links, ReadError};
use wire::{Call, MAX_MESSAGE, WireError};

/// Where DELs are kept.
pub const SPOOL: &str = "/var/lib/netloom/spool";

/// The first words of each file.
const HEAD: &str = "netloom-spool 1";

/// How long another process that is at the same directory is waited for. It takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The directory of DELs that wait.
#[derive(Debug, Clone)]
pub struct Spool {
    dir: PathBuf,
}

/// A DEL that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    /// As the runtime made it.
    pub call: Call,
    path: PathBuf,
    sum: u64,
}

/// A DEL could not be kept, found or forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// The file system refused: it is full, read-only, or there is something else.
    #[error("{step} {}: {reason}", path.display())]
    Io {
        /// What failed.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file that nobody has written whole.
    #[error(
        "cannot parse the stored DEL in {}: {reason}; it is not executed: remove the file, and GC frees the container's resources",
        path.display()
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

// === impl Spooled ===

impl Spooled {
    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

// === impl Spool ===

impl Default for Spool {
    fn default() -> Self {
        Spool::new(PathBuf::from(SPOOL))
    }
}

impl Spool {
    /// The DELs in a directory, which is made when it is first needed.
    pub fn new(dir: PathBuf) -> Self {
        Spool { dir }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps a DEL. When this returns it survives a power cut.
    ///
    /// # Errors
    /// [`SpoolError::Io`]; then nothing is kept, or what was kept before.
    pub fn keep(&self, container: &ContainerId, ifname: &IfName, call: &Call) -> Result<(), SpoolError> {
        self.make_dir()?;
        let _lock = self.lock()?;
        let path = self.path(container, ifname);
        let written = file::write_atomic(&path, &print(call), 0o600, Durability::Durable);
        written.map_err(|e| SpoolError::Io { step: "store the DEL in", path, reason: e.to_string() })
    }

    /// The files of all DELs that wait, the oldest first.
    ///
    /// # Errors
    /// [`SpoolError::Io`]. A directory that is not there holds none.
    pub fn files(&self) -> Result<Vec<PathBuf>, SpoolError> {
        let fail = |e: std::io::Error| io("list", &self.dir, e);
        let entries = match std::fs::read_dir(&self.dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(fail)?.path();
            // What a writer that was killed has left beside its file has another ending.
            if path.extension().is_some_and(|end| end == "del") {
                let written = path.symlink_metadata().and_then(|about| about.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                files.push((written, path));
            }
        }
        files.sort();
        Ok(files.into_iter().map(|(_, path)| path).collect())
    }

    /// The DEL in one of these files; `None` if it is gone.
    ///
    /// # Errors
    /// [`SpoolError`]; the other files can be read all the same.
    pub fn read(&self, path: &Path) -> Result<Option<Spooled>, SpoolError> {
        let torn = |reason: String| SpoolError::Torn { path: path.to_owned(), reason };
        let bytes = match file::read(path, MAX_MESSAGE + 100, Links::Refused) {
            Err(ReadError::NotFound { .. }) => return Ok(None),
            Err(e @ (ReadError::NotAFile { .. } | ReadError::TooLarge { .. })) => return Err(torn(e.to_string())),
            other => other.map_err(|e| io("read", path, e))?,
        };
        let (sum, call) = parse(&bytes).map_err(torn)?;
        Ok(Some(Spooled { call, path: path.to_owned(), sum }))
    }

    /// The DEL that waits for an attachment, which is to be carried out before an ADD of it.
    ///
    /// # Errors
    /// As [`Spool::read`].
    pub fn find(&self, container: &ContainerId, ifname: &IfName) -> Result<Option<Spooled>, SpoolError> {
        self.read(&self.path(container, ifname))
    }

    /// Forgets a DEL that was carried out, unless another one was kept in its place since.
    ///
    /// # Errors
    /// [`SpoolError::Io`]
    pub fn done(&self, spooled: &Spooled) -> Result<(), SpoolError> {
        let _lock = self.lock()?;
        match self.read(&spooled.path) {
            Ok(Some(there)) if there.sum == spooled.sum => {}
            _ => return Ok(()),
        }
        file::remove(&spooled.path).map_err(|e| io("remove the DEL from", &spooled.path, e))
    }

    fn path(&self, container: &ContainerId, ifname: &IfName) -> PathBuf {
        // No container ID has an "@" in it.
        self.dir.join(format!("{container}@{ifname}.del"))
    }

    fn lock(&self) -> Result<file::Lock, SpoolError> {
        let path = self.dir.join(".lock");
        file::lock(&path, Some(Instant::now() + PATIENCE)).map_err(|e| io("lock", &path, e))
    }

    /// Root's alone; and it is still there after a power cut.
    fn make_dir(&self) -> Result<(), SpoolError> {
        let fail = |e: std::io::Error| io("create the directory", &self.dir, e);
        if self.dir.is_dir() {
            return Ok(());
        }
        let parent = self.dir.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(parent).map_err(fail)?;
        match DirBuilder::new().mode(0o700).create(&self.dir) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(fail(e)),
            _ => {}
        }
        [self.dir.as_path(), parent].into_iter().try_for_each(|dir| file::sync_folder(dir).map_err(|e| io("sync", dir, e)))
    }
}

fn io(step: &'static str, path: &Path, e: impl std::fmt::Display) -> SpoolError {
    SpoolError::Io { step, path: path.to_owned(), reason: e.to_string() }
}

fn print(call: &Call) -> Vec<u8> {
    let json = wire::print(call);
    let mut bytes = format!("{HEAD} {:016x} {}\n", sum(&json), json.len()).into_bytes();
    bytes.extend_from_slice(&json);
    bytes
}

/// A DEL and its checksum; else why it is none.
fn parse(bytes: &[u8]) -> Result<(u64, Call), String> {
    let line = bytes.iter().position(|b| *b == b'\n').and_then(|end| Some((bytes.get(..end)?, bytes.get(end + 1..)?)));
    let (head, json) = line.ok_or("its first line does not end")?;
    let found = format!("{HEAD} {:016x} {}", sum(json), json.len());
    if head != found.as_bytes() {
        return Err(format!("its first line is {:?}, and would be {found:?}", String::from_utf8_lossy(head.get(..80).unwrap_or(head))));
    }
    let call = wire::parse(json).map_err(|e: WireError| e.to_string())?;
    Ok((sum(json), call))
}

/// FNV-1a: it is to notice what a disk has lost, not what somebody has forged.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(Spool);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("netloom-spool-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            Scratch(Spool::new(dir.join("a/spool")))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.0.dir.parent().unwrap().parent().unwrap());
        }
    }

    fn del(config: &[u8]) -> (ContainerId, IfName, Call) {
        let call = Call { protocol: 1, verb: "DEL".to_owned(), container_id: "c1".to_owned(), config: config.to_vec(), ..Call::default() };
        (ContainerId::parse("c1").unwrap(), IfName::parse("eth0").unwrap(), call)
    }

    #[test]
    fn kept_found_replaced_and_forgotten() {
        let scratch = Scratch::new("life");
        let spool = &scratch.0;
        let (container, ifname, call) = del(b"one");
        assert_eq!((spool.files(), spool.find(&container, &ifname)), (Ok(Vec::new()), Ok(None)));
        spool.keep(&container, &ifname, &call).unwrap();
        let first = spool.find(&container, &ifname).unwrap().unwrap();
        assert_eq!((spool.files().unwrap(), &first.call), (vec![spool.dir.join("c1@eth0.del")], &call));
        let (.., second) = del(b"\xff two");
        spool.keep(&container, &ifname, &second).unwrap();
        // The first one was carried out; the second one waits on.
        spool.done(&first).unwrap();
        let kept = spool.find(&container, &ifname).unwrap().unwrap();
        assert_eq!(kept.call, second);
        spool.done(&kept).unwrap();
        spool.done(&kept).unwrap();
        assert_eq!(spool.files(), Ok(Vec::new()));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&spool.dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    /// Whatever a disk loses or changes of a file, it is no DEL; and one bad file hides no other.
    #[test]
    fn a_torn_file_is_told() {
        let scratch = Scratch::new("torn");
        let spool = &scratch.0;
        let (container, ifname, call) = del(b"{}");
        spool.keep(&container, &ifname, &call).unwrap();
        let path = spool.path(&container, &ifname);
        let whole = std::fs::read(&path).unwrap();
        for keep in 0..whole.len() {
            std::fs::write(&path, whole.get(..keep).unwrap()).unwrap();
            assert!(matches!(spool.read(&path), Err(SpoolError::Torn { .. })), "{keep}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            *bytes.get_mut(at).unwrap() ^= 4;
            std::fs::write(&path, bytes).unwrap();
            assert!(matches!(spool.read(&path), Err(SpoolError::Torn { .. })), "{at}");
        }
        spool.keep(&container, &IfName::parse("net1").unwrap(), &call).unwrap();
        assert_eq!(spool.files().unwrap().iter().filter(|path| spool.read(path).is_ok()).count(), 1);
    }
}
