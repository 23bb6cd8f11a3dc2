//! A lock that a network namespace itself is: `flock(2)` on its file in nsfs, which is one inode for all that look at the namespace, from
//! whatever mount or PID namespace.
//!
//! Any process in the namespace can have it. So nobody waits for it for long, and it guards nothing but what would otherwise depend on luck.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::{Inside, own};

const PAUSE: Duration = Duration::from_millis(2);

/// The lock of a namespace, until it is dropped or the process ends.
#[derive(Debug)]
pub struct NetnsLock {
    file: Flock<OwnedFd>,
}

/// The file of a namespace, opened and not locked.
#[derive(Debug)]
pub struct NetnsFile(OwnedFd);

// === impl NetnsFile ===

impl NetnsFile {
    /// Opens the file of the calling thread's namespace. Each call opens it anew, because a lock belongs to the open file.
    fn open(_: &Inside) -> Option<Self> {
        own().ok().map(NetnsFile)
    }

    /// The lock of the same namespace once more, as of [`NetnsLock::shared`].
    #[must_use]
    pub fn shared(self, by: Instant) -> Option<NetnsLock> {
        self.until(FlockArg::LockSharedNonblock, by)
    }

    fn until(self, how: FlockArg, by: Instant) -> Option<NetnsLock> {
        let NetnsFile(mut file) = self;
        loop {
            match Flock::lock(file, how) {
                Ok(file) => return Some(NetnsLock { file }),
                Err((again, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < by => file = again,
                Err(_) => return None,
            }
            std::thread::sleep(PAUSE);
        }
    }
}

// === impl NetnsLock ===

impl NetnsLock {
    /// The lock of the calling thread's namespace for one of many, which keeps off who wants it alone. `None`: somebody had it alone until `by`,
    /// or the kernel refused.
    #[must_use]
    pub fn shared(inside: &Inside, by: Instant) -> Option<Self> {
        NetnsFile::open(inside)?.shared(by)
    }

    /// The lock alone. `None`: others had it whenever it was tried until `by`, or the kernel refused.
    #[must_use]
    pub fn alone(inside: &Inside, by: Instant) -> Option<Self> {
        NetnsFile::open(inside)?.until(FlockArg::LockExclusiveNonblock, by)
    }

    /// Unlocks, and keeps what was opened for the next lock of the same namespace.
    #[must_use]
    pub fn unlock(self) -> Option<NetnsFile> {
        self.file.unlock().ok().map(NetnsFile)
    }
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
            assert!(other.enter(|inside| NetnsLock::alone(inside, now).is_some()).unwrap(), "another namespace");
            drop(many);
            let again = NetnsLock::shared(inside, now).unwrap().unlock().unwrap();
            drop(NetnsLock::alone(inside, now).unwrap());
            let again = again.shared(now).unwrap();
            assert!(NetnsLock::alone(inside, now).is_none());
            drop(again);
            let alone = NetnsLock::alone(inside, now).unwrap();
            let elsewhere = || one.enter(|inside| NetnsLock::shared(inside, now).is_some()).unwrap();
            std::thread::scope(|scope| assert!(!scope.spawn(elsewhere).join().unwrap()));
            drop(alone);
            std::thread::scope(|scope| assert!(scope.spawn(elsewhere).join().unwrap()));
        };
        one.enter(here).unwrap();
    }
}
