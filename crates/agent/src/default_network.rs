//! The default network on the node's disk: whoever provides it writes its file, sooner or later, and may rewrite it.
//!
//! A file is looked at on every ADD, and so is the directory of plugins beside a list, which costs two or three `stat`s; they
//! are read again when they have changed. What has become unreadable does not take away what was read before: a provider that is
//! being updated writes half files.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use attach::ImplicitNetwork;
use chain::LoadError;
use cni::{CniError, Code, NetworkList};

use crate::lock;
use crate::log::Line;

/// How long a call sleeps that waits, should nobody tell it of a change.
const LOOK: Duration = Duration::from_millis(500);

/// What was read from files, and who waits for one.
#[derive(Default)]
pub(crate) struct DefaultNetwork {
    read: Mutex<BTreeMap<PathBuf, CachedDefault>>,
    /// Counts what has happened in the directories of configurations.
    changes: Mutex<u64>,
    changed: Condvar,
    /// How many calls wait.
    waiting: AtomicUsize,
}

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn of(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Waiting(all)
    }

    fn others(&self) -> usize {
        self.0.load(Ordering::Relaxed).saturating_sub(1)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct CachedDefault {
    /// What the answer depends on: the file, the directory of plugins beside it, and the files in that.
    depends: Vec<(PathBuf, Option<Stamp>)>,
    list: NetworkList,
}

/// What tells one content of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    ino: u64,
    size: u64,
    modified: (i64, i64),
}

// === impl Stamp ===

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let file = path.metadata().ok()?;
        Some(Stamp { ino: file.ino(), size: file.size(), modified: (file.mtime(), file.mtime_nsec()) })
    }
}

// === impl CachedDefault ===

impl CachedDefault {
    /// Everything is looked at before it is read: what changes meanwhile is read again.
    fn read(path: &Path) -> Result<Self, LoadError> {
        let named = chain::from_file(path, None)?;
        let depends = CachedDefault::stamps(path, &named);
        Ok(CachedDefault { depends, list: chain::from_file(path, None)? })
    }

    fn stamps(path: &Path, list: &NetworkList) -> Vec<(PathBuf, Option<Stamp>)> {
        let paths = std::iter::once(path.to_owned()).chain(chain::beside(path, list));
        paths.map(|path| (path.clone(), Stamp::of(&path))).collect()
    }

    fn is_current(&self) -> bool {
        self.depends.iter().all(|(path, stamp)| Stamp::of(path) == *stamp)
    }
}

// === impl DefaultNetwork ===

impl DefaultNetwork {
    /// Something has changed in a directory of configurations: whoever waits looks again.
    pub(crate) fn wake(&self) {
        *lock(&self.changes) += 1;
        self.changed.notify_all();
    }

    /// What `look` finds; where it says that it is to be tried again, when it finds something, until a moment at the latest.
    pub(crate) fn when_ready(
        &self,
        until: Instant,
        most: usize,
        look: impl Fn() -> Result<ImplicitNetwork, CniError>,
    ) -> Result<ImplicitNetwork, CniError> {
        let waiting = Waiting::of(&self.waiting);
        loop {
            let before = *lock(&self.changes);
            let e = match look() {
                Err(e) if e.code == Code::TRY_AGAIN_LATER => e,
                other => return other,
            };
            let now = Instant::now();
            // The others wait at their runtimes, which try again: the threads that serve calls are needed for DELs.
            if now >= until || waiting.others() >= most {
                return Err(e.within("have you checked that your default network is ready?"));
            }
            let changes = lock(&self.changes);
            if *changes == before {
                let wait = LOOK.min(until - now);
                drop(self.changed.wait_timeout(changes, wait).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Every path that an answer depends on, as they were read last.
    pub(crate) fn depends(&self) -> Vec<PathBuf> {
        lock(&self.read).values().flat_map(|seen| &seen.depends).map(|(path, _)| path.clone()).collect()
    }

    /// The network of a file, with the plugins beside it, as it is now; as it was, if it cannot be read any more.
    pub(crate) fn file(&self, path: &Path) -> Result<NetworkList, CniError> {
        let seen = lock(&self.read).get(path).cloned();
        if let Some(seen) = seen.as_ref().filter(|seen| path.exists() && seen.is_current()) {
            return Ok(seen.list.clone());
        }
        match (CachedDefault::read(path), seen) {
            (Ok(read), _) => {
                lock(&self.read).insert(path.to_owned(), read.clone());
                Ok(read.list)
            }
            (Err(e), Some(seen)) if path.exists() => {
                Line::warn("default network")
                    .with("file", path.display())
                    .with("error", e)
                    .with("now", "the previous configuration stays in use")
                    .end();
                // Told once for each content.
                let depends = CachedDefault::stamps(path, &seen.list);
                lock(&self.read).insert(path.to_owned(), CachedDefault { depends, list: seen.list.clone() });
                Ok(seen.list)
            }
            (Err(e), _) => {
                let place = format!("the default network {} does not exist", path.display());
                Err(CniError::new(Code::TRY_AGAIN_LATER, format!("{place}: {e}")))
            }
        }
    }

    /// The network of the first file of a directory, or of the one that is named. Ours and other meta-plugins' are not it.
    pub(crate) fn first_of(&self, dir: &Path, named: Option<&str>) -> Result<NetworkList, CniError> {
        if let Some(file) = named.filter(|file| !file.is_empty()) {
            return self.file(&dir.join(file));
        }
        let missing = |why: &str| CniError::new(Code::TRY_AGAIN_LATER, format!("no default network in {}: {why}", dir.display()));
        let entries = std::fs::read_dir(dir).map_err(|e| missing(&e.to_string()))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| is_candidate(path)).collect();
        files.sort();
        let first = files.first().ok_or_else(|| missing("it has no .conf, .conflist or .json file but Netloom's"))?;
        self.file(first)
    }
}

/// Whether a file is there, among our own files or, as the agent's container has not all of them, among the host's: those
/// of its first process.
pub(crate) fn is_on_host(path: &Path) -> bool {
    // A link to an absolute path, as /var/run mostly is, would lead out of the host's files again.
    let plain = path.strip_prefix("/var/run").map(|rest| Path::new("/run").join(rest)).unwrap_or_else(|_| path.to_owned());
    let below_host = plain.strip_prefix("/").map(|rest| Path::new("/proc/1/root").join(rest));
    path.exists() || below_host.is_ok_and(|path| path.symlink_metadata().is_ok())
}

fn is_candidate(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_configuration = path.extension().is_some_and(|e| e == "conf" || e == "conflist" || e == "json");
    is_configuration && !name.starts_with("00-netloom") && !name.starts_with("00-multus") && !name.starts_with('.') && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &str) -> String {
        format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{{"type":"bridge"}}]}}"#)
    }

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("netloom-default-network-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_bad_reload_keeps_the_previous_one() {
        let dir = dir("reload");
        let (networks, path) = (DefaultNetwork::default(), dir.join("10-a.conflist"));
        assert_eq!(networks.file(&path).unwrap_err().code, Code::TRY_AGAIN_LATER);
        std::fs::write(&path, network("one")).unwrap();
        assert_eq!(networks.file(&path).unwrap().name.as_str(), "one");
        std::fs::write(&path, &network("two")[..20]).unwrap();
        assert_eq!(networks.file(&path).unwrap().name.as_str(), "one");
        std::fs::write(&path, network("three")).unwrap();
        assert_eq!(networks.file(&path).unwrap().name.as_str(), "three");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_plugin_beside_a_list_comes_changes_and_goes() {
        let dir = dir("beside");
        let (networks, path, beside) = (DefaultNetwork::default(), dir.join("10-a.conflist"), dir.join("one"));
        let types = || networks.file(&path).unwrap().plugins.iter().map(|plugin| plugin.kind.to_string()).collect::<Vec<_>>();
        std::fs::write(&path, network("one")).unwrap();
        assert_eq!(types(), ["bridge"]);
        std::fs::create_dir(&beside).unwrap();
        std::fs::write(beside.join("20-tuning.conf"), r#"{"type":"tuning"}"#).unwrap();
        assert_eq!(types(), ["bridge", "tuning"]);
        std::fs::write(beside.join("20-tuning.conf"), r#"{"type":"portmap"}"#).unwrap();
        assert_eq!(types(), ["bridge", "portmap"]);
        std::fs::write(beside.join("10-first.conf"), r#"{"type":"sbr"}"#).unwrap();
        assert_eq!(types(), ["bridge", "sbr", "portmap"]);
        std::fs::write(beside.join("10-first.conf"), "{").unwrap();
        assert_eq!(types(), ["bridge", "sbr", "portmap"], "half a file");
        std::fs::remove_dir_all(&beside).unwrap();
        assert_eq!(types(), ["bridge"]);
        assert_eq!(networks.depends(), [path.clone(), beside]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_first_file_that_is_not_ours() {
        let dir = dir("first");
        let networks = DefaultNetwork::default();
        for (file, name) in [("00-netloom.conflist", "ours"), ("00-multus.conf", "theirs"), ("20-b.conflist", "b"), ("10-a.conflist", "a")]
        {
            std::fs::write(dir.join(file), network(name)).unwrap();
        }
        assert_eq!(networks.first_of(&dir, None).unwrap().name.as_str(), "a");
        assert_eq!(networks.first_of(&dir, Some("20-b.conflist")).unwrap().name.as_str(), "b");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn who_waits_gets_it_when_it_comes() {
        let dir = dir("wait");
        let path = dir.join("10-a.conflist");
        let networks = DefaultNetwork::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Sleeps: who waits is to wait already.
                std::thread::sleep(Duration::from_millis(30));
                std::fs::write(&path, network("late")).unwrap();
                networks.wake();
            });
            let look = || networks.file(&path).map(|list| ImplicitNetwork { list, definition: None });
            assert_eq!(networks.when_ready(Instant::now() + Duration::from_secs(60), 4, look).unwrap().list.name.as_str(), "late");
            let never = || networks.file(&dir.join("no")).map(|list| ImplicitNetwork { list, definition: None });
            let e = networks.when_ready(Instant::now(), 4, never).unwrap_err();
            assert!(e.msg.starts_with("have you checked that your default network is ready?"), "{}", e.msg);
        });
        std::fs::remove_dir_all(dir).unwrap();
    }
}
