//! What happens to files and directories, told by the kernel (`inotify(7)`), as `inotifywait` shows it.
//!
//! ```text
//!   /etc/cni/net.d wanted:   /      only "etc"
//!                            /etc   only "cni"
//!                            /etc/cni   is not there yet: everything below is watched as soon as it is
//! ```
//!
//! A watch belongs to a directory and not to its path: whoever replaces the directory takes the watch away with the old
//! one. So every directory on the way to a path is watched as well, for the one name that matters in it, and the way is
//! walked anew after every change. A path may lie on the way to another one.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

/// What is told of a directory: names that come, go and are renamed, and files that were written and closed. Not every
/// single write: half a file is of no use.
const CHANGES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR);

/// The directory itself is meant.
const ITSELF: AddWatchFlags =
    AddWatchFlags::IN_DELETE_SELF.union(AddWatchFlags::IN_MOVE_SELF).union(AddWatchFlags::IN_UNMOUNT).union(AddWatchFlags::IN_IGNORED);

/// Nothing can be watched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The kernel gives no watch at all.
    #[error("cannot watch for changes: {errno} (see the sysctl fs.inotify.max_user_instances)")]
    Start {
        /// What the kernel said; `EMFILE` where there are too many.
        errno: Errno,
    },
    /// A directory cannot be watched.
    #[error("cannot watch {}: {errno} (see the sysctl fs.inotify.max_user_watches)", path.display())]
    Watch {
        /// The directory.
        path: PathBuf,
        /// What the kernel said; `ENOSPC` where there are too many.
        errno: Errno,
    },
    /// It cannot be waited any more.
    #[error("cannot wait for changes: {errno}")]
    Wait {
        /// What the kernel said.
        errno: Errno,
    },
}

/// Watches paths, of which none need exist. For a directory, everything in it is told, though not in its subdirectories;
/// for a file, what becomes of it. A symbolic link is followed, and told of when it is replaced; not told is what becomes of
/// a file that a link in a directory leads to elsewhere, nor a file system that is mounted over a directory.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    wanted: BTreeSet<PathBuf>,
    armed: HashMap<WatchDescriptor, Armed>,
}

/// A directory that is watched.
#[derive(Debug, Default)]
struct Armed {
    /// By which path it was found.
    path: PathBuf,
    /// It is wanted itself: whatever its name, what happens in it is told.
    all: bool,
    /// It lies on the way: names in it that are told.
    names: BTreeSet<OsString>,
}

// === impl Watch ===

impl Watch {
    /// Watches from now on.
    ///
    /// # Errors
    /// [`WatchError`]: the caller has to look from time to time instead.
    pub fn on(paths: &[PathBuf]) -> Result<Self, WatchError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(|errno| WatchError::Start { errno })?;
        let wanted = paths.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
        let mut watch = Watch { inotify, wanted, armed: HashMap::new() };
        watch.arm()?;
        Ok(watch)
    }

    /// Waits for a change, and returns what has changed: paths that are wanted, files in them, and names on the way to them.
    /// Nothing if the time is over first; without `timeout` there is no such time. What happens between two calls is told
    /// by the later one.
    ///
    /// # Errors
    /// [`WatchError`]
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<BTreeSet<PathBuf>, WatchError> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let events = self.events(until)?;
            if events.is_empty() {
                return Ok(BTreeSet::new());
            }
            let mut changed = BTreeSet::new();
            for event in &events {
                self.tell(event, &mut changed);
            }
            if !changed.is_empty() {
                self.arm()?;
                return Ok(changed);
            }
        }
    }

    /// What the kernel has to tell; nothing if the time is over.
    fn events(&self, until: Option<Instant>) -> Result<Vec<InotifyEvent>, WatchError> {
        let fail = |errno| WatchError::Wait { errno };
        loop {
            match self.inotify.read_events() {
                Ok(events) if !events.is_empty() => return Ok(events),
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(fail(errno)),
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Vec::new());
            }
            // Rounded up: a part of a millisecond must not be waited for in circles.
            let millis = left.map(|left| i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1);
            let patience = millis.and_then(|millis| PollTimeout::try_from(millis).ok()).unwrap_or(PollTimeout::NONE);
            match poll(&mut [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)], patience) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
    }

    fn tell(&self, event: &InotifyEvent, changed: &mut BTreeSet<PathBuf>) {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            // More than the kernel could keep: anything may have changed.
            changed.extend(self.wanted.iter().cloned());
        }
        let Some(armed) = self.armed.get(&event.wd) else { return };
        match &event.name {
            Some(name) if armed.all || armed.names.contains(name) => drop(changed.insert(armed.path.join(name))),
            Some(_) => {}
            None if event.mask.intersects(ITSELF) || armed.all => drop(changed.insert(armed.path.clone())),
            None => {}
        }
    }

    /// Watches every directory on the way to what is wanted, from the root on: what appears after its parent is watched is
    /// told, what was there before is found.
    fn arm(&mut self) -> Result<(), WatchError> {
        let mut armed: HashMap<WatchDescriptor, Armed> = HashMap::new();
        for wanted in &self.wanted {
            let mut here = PathBuf::new();
            let mut names = wanted.components().peekable();
            while let Some(component) = names.next() {
                here.push(component);
                let Some(wd) = add(&self.inotify, &here)? else { break };
                let armed = armed.entry(wd).or_insert_with(|| Armed { path: here.clone(), ..Armed::default() });
                match names.peek() {
                    Some(next) => drop(armed.names.insert(name(*next).to_owned())),
                    None => armed.all = true,
                }
            }
        }
        for stale in self.armed.keys().filter(|wd| !armed.contains_key(wd)) {
            // The kernel may have taken it away itself, with the directory.
            let _ = self.inotify.rm_watch(*stale);
        }
        self.armed = armed;
        Ok(())
    }
}

fn name(component: Component<'_>) -> &OsStr {
    component.as_os_str()
}

/// A directory that is there is watched; one that is not, is no directory or may not be entered, is not.
fn add(inotify: &Inotify, path: &Path) -> Result<Option<WatchDescriptor>, WatchError> {
    match inotify.add_watch(path, CHANGES) {
        Ok(wd) => Ok(Some(wd)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP) => Ok(None),
        Err(errno) => Err(WatchError::Watch { path: path.to_owned(), errno }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::os::unix::fs::symlink;

    const SOON: Option<Duration> = Some(Duration::from_secs(60));
    const NOT: Option<Duration> = Some(Duration::from_millis(30));

    /// A directory that goes with the test.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("nllx-watch-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Dir(path)
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// All that is told until a path is among it.
    fn until(watch: &mut Watch, path: &Path) {
        loop {
            let changed = watch.wait(SOON).unwrap();
            assert!(!changed.is_empty(), "nothing was told of {}", path.display());
            if changed.contains(path) {
                return;
            }
        }
    }

    /// Takes what is still to be told.
    fn drain(watch: &mut Watch) {
        while !watch.wait(NOT).unwrap().is_empty() {}
    }

    #[test]
    fn files_come_change_are_renamed_and_go() {
        let dir = Dir::new("files");
        let mut watch = Watch::on(std::slice::from_ref(&dir.0)).unwrap();
        assert!(watch.wait(NOT).unwrap().is_empty());
        fs::write(dir.at("a"), "1").unwrap();
        until(&mut watch, &dir.at("a"));
        drain(&mut watch);
        fs::write(dir.at("a"), "2").unwrap();
        until(&mut watch, &dir.at("a"));
        drain(&mut watch);
        fs::rename(dir.at("a"), dir.at("b")).unwrap();
        assert_eq!(watch.wait(SOON).unwrap(), BTreeSet::from([dir.at("a"), dir.at("b")]));
        fs::remove_file(dir.at("b")).unwrap();
        assert_eq!(watch.wait(SOON).unwrap(), BTreeSet::from([dir.at("b")]));
        assert!(watch.wait(NOT).unwrap().is_empty());
    }

    #[test]
    fn a_directory_that_is_made_later_is_watched() {
        let dir = Dir::new("later");
        let wanted = dir.at("cni/net.d");
        let mut watch = Watch::on(std::slice::from_ref(&wanted)).unwrap();
        // A neighbour is nobody's business.
        fs::write(dir.at("neighbour"), "").unwrap();
        assert!(watch.wait(NOT).unwrap().is_empty());
        fs::create_dir(dir.at("cni")).unwrap();
        until(&mut watch, &dir.at("cni"));
        fs::create_dir(&wanted).unwrap();
        until(&mut watch, &wanted);
        fs::write(wanted.join("10-a.conflist"), "{}").unwrap();
        until(&mut watch, &wanted.join("10-a.conflist"));
        // Made in one go: whoever is told looks at all, so it need not be told of each.
        fs::remove_dir_all(dir.at("cni")).unwrap();
        drain(&mut watch);
        fs::create_dir_all(&wanted).unwrap();
        assert!(!watch.wait(SOON).unwrap().is_empty());
        drain(&mut watch);
        fs::write(wanted.join("x"), "").unwrap();
        until(&mut watch, &wanted.join("x"));
    }

    #[test]
    fn a_directory_that_is_replaced_is_watched_in_its_new_form() {
        let dir = Dir::new("replaced");
        let wanted = dir.at("up/net.d");
        fs::create_dir_all(&wanted).unwrap();
        fs::create_dir_all(dir.at("new/net.d")).unwrap();
        let mut watch = Watch::on(std::slice::from_ref(&wanted)).unwrap();
        fs::rename(dir.at("up"), dir.at("old")).unwrap();
        fs::rename(dir.at("new"), dir.at("up")).unwrap();
        until(&mut watch, &dir.at("up"));
        drain(&mut watch);
        fs::write(dir.at("old/net.d/x"), "").unwrap();
        assert!(watch.wait(NOT).unwrap().is_empty(), "the old one is still watched");
        fs::write(wanted.join("x"), "").unwrap();
        until(&mut watch, &wanted.join("x"));
    }

    #[test]
    fn a_mounted_config_map_is_swapped() {
        let dir = Dir::new("swapped");
        for version in ["1", "2"] {
            fs::create_dir(dir.at(&format!("..{version}"))).unwrap();
            fs::write(dir.at(&format!("..{version}/agent.yaml")), version).unwrap();
        }
        symlink("..1", dir.at("..data")).unwrap();
        symlink("..data/agent.yaml", dir.at("agent.yaml")).unwrap();
        let mut watch = Watch::on(std::slice::from_ref(&dir.0)).unwrap();
        symlink("..2", dir.at("..data_tmp")).unwrap();
        fs::rename(dir.at("..data_tmp"), dir.at("..data")).unwrap();
        until(&mut watch, &dir.at("..data"));
        assert_eq!(fs::read_to_string(dir.at("agent.yaml")).unwrap(), "2");
    }

    #[test]
    fn a_link_to_a_directory_is_followed_and_may_be_swapped() {
        let dir = Dir::new("link");
        fs::create_dir(dir.at("one")).unwrap();
        fs::create_dir(dir.at("two")).unwrap();
        symlink("one", dir.at("net.d")).unwrap();
        let mut watch = Watch::on(&[dir.at("net.d")]).unwrap();
        fs::write(dir.at("one/a"), "").unwrap();
        until(&mut watch, &dir.at("net.d/a"));
        symlink("two", dir.at("tmp")).unwrap();
        fs::rename(dir.at("tmp"), dir.at("net.d")).unwrap();
        until(&mut watch, &dir.at("net.d"));
        drain(&mut watch);
        fs::write(dir.at("two/a"), "").unwrap();
        until(&mut watch, &dir.at("net.d/a"));
    }

    #[test]
    fn a_single_file_is_watched_in_its_directory() {
        let dir = Dir::new("file");
        let mut watch = Watch::on(&[dir.at("ready")]).unwrap();
        fs::write(dir.at("other"), "").unwrap();
        assert!(watch.wait(NOT).unwrap().is_empty());
        fs::write(dir.at("ready"), "").unwrap();
        until(&mut watch, &dir.at("ready"));
        drain(&mut watch);
        fs::remove_file(dir.at("ready")).unwrap();
        until(&mut watch, &dir.at("ready"));
    }

    #[test]
    fn one_path_may_lie_on_the_way_to_another() {
        let dir = Dir::new("way");
        let mut watch = Watch::on(&[dir.0.clone(), dir.at("sub/ready")]).unwrap();
        fs::create_dir(dir.at("sub")).unwrap();
        until(&mut watch, &dir.at("sub"));
        fs::write(dir.at("sub/ready"), "").unwrap();
        until(&mut watch, &dir.at("sub/ready"));
        fs::write(dir.at("x"), "").unwrap();
        until(&mut watch, &dir.at("x"));
    }
}
