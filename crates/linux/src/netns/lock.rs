//! A lock that a network namespace itself is: `flock(2)` on its file in nsfs, which is one inode for all that look at the namespace, from
//! whatever mount or PID namespace.
//!
//! Any process in the namespace can have it. So nobody waits for it for long, and it guards nothing but what would otherwise depend on luck.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, Flockable};

use super::{Inside, own};

const PAUSE: Duration = Duration::from_millis(2);

/// The lock of the calling thread's namespace, until it is dropped or the process ends.
#[derive(Debug)]
pub struct NetnsLock {
    _file: Flock<NetnsFile>,
}

/// The file of a namespace, opened once for locks of which one follows the other.
#[derive(Debug, Clone)]
pub struct NetnsFile(Arc<OwnedFd>);

// SAFETY: the descriptor stays the same, and belongs to one lock at a time.
unsafe impl Flockable for NetnsFile {}

impl AsRawFd for NetnsFile {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

// === impl NetnsFile ===

impl NetnsFile {
    /// That of the calling thread's namespace; `None` if the kernel refuses.
    #[must_use]
    pub fn open(_: &Inside) -> Option<Self> {
        own().ok().map(|file| NetnsFile(Arc::new(file)))
    }

    /// As [`NetnsLock::shared`].
    #[must_use]
    pub fn shared(&self, by: Instant) -> Option<NetnsLock> {
        // Another lock of this file would end with the first one.
        let is_free = Arc::strong_count(&self.0) == 1;
        NetnsLock::until(|| if is_free { Ok(self.clone()) } else { opened() }, FlockArg::LockSharedNonblock, by)
    }
}

// === impl NetnsLock ===

impl NetnsLock {
    /// The lock for one of many, which keeps off who wants it alone. `None`: somebody had it alone until `by`, or the kernel refused.
    #[must_use]
    pub fn shared(_: &Inside, by: Instant) -> Option<Self> {
        Self::until(opened, FlockArg::LockSharedNonblock, by)
    }

    /// The lock alone. `None`: others had it whenever it was tried until `by`, or the kernel refused.
    #[must_use]
    pub fn alone(_: &Inside, by: Instant) -> Option<Self> {
        Self::until(opened, FlockArg::LockExclusiveNonblock, by)
    }

    fn until(file: impl Fn() -> Result<NetnsFile, Errno>, how: FlockArg, by: Instant) -> Option<Self> {
        loop {
            match file().and_then(|file| Self::at_once(file, how)) {
                Err(Errno::EWOULDBLOCK | Errno::EINTR) if Instant::now() < by => std::thread::sleep(PAUSE),
                done => return done.ok(),
            }
        }
    }

    fn at_once(file: NetnsFile, how: FlockArg) -> Result<Self, Errno> {
        Flock::lock(file, how).map(|file| NetnsLock { _file: file }).map_err(|(_, e)| e)
    }
}

/// Opened anew: a lock belongs to what was opened.
fn opened() -> Result<NetnsFile, Errno> {
    own().map(|file| NetnsFile(Arc::new(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Netns;

    #[test]
    fn one_alone_or_many_of_one_namespace() {
        let (one, other) = (Netns::unnamed().unwrap(), Netns::unnamed().unwrap());
        let here = |inside: &Inside| {
            let now = Instant::now();
            let many = [NetnsLock::shared(inside, now), NetnsLock::shared(inside, now)];
            assert!(many.iter().all(Option::is_some));
            assert!(NetnsLock::alone(inside, now).is_none());
            let file = NetnsFile::open(inside).unwrap();
            let of_one_file = [file.shared(now).unwrap(), file.shared(now).unwrap()];
            assert!(other.enter(|inside| NetnsLock::alone(inside, now).is_some()).unwrap(), "another namespace");
            drop(many);
            let [first, second] = of_one_file;
            for lock in [first, second] {
                assert!(NetnsLock::alone(inside, now).is_none());
                drop(lock);
            }
            drop(file.shared(now).unwrap());
            let alone = NetnsLock::alone(inside, now).unwrap();
            let elsewhere = || one.enter(|inside| NetnsLock::shared(inside, now).is_some()).unwrap();
            std::thread::scope(|scope| assert!(!scope.spawn(elsewhere).join().unwrap()));
            drop(alone);
            std::thread::scope(|scope| assert!(scope.spawn(elsewhere).join().unwrap()));
        };
        one.enter(here).unwrap();
    }
}
