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

/// The lock of the calling thread's namespace, until it is dropped or the process ends.
#[derive(Debug)]
pub struct NetnsLock {
    _file: Flock<OwnedFd>,
}

// === impl NetnsLock ===

impl NetnsLock {
    /// The lock for one of many, which keeps off who wants it alone. `None`: somebody had it alone until `by`, or the kernel refused.
    #[must_use]
    pub fn shared(_: &Inside, by: Instant) -> Option<Self> {
        Self::until(FlockArg::LockSharedNonblock, by)
    }

    /// The lock alone. `None`: others had it whenever it was tried until `by`, or the kernel refused.
    #[must_use]
    pub fn alone(_: &Inside, by: Instant) -> Option<Self> {
        Self::until(FlockArg::LockExclusiveNonblock, by)
    }

    fn until(how: FlockArg, by: Instant) -> Option<Self> {
        loop {
            match Self::at_once(how) {
                Err(Errno::EWOULDBLOCK | Errno::EINTR) if Instant::now() < by => std::thread::sleep(PAUSE),
                done => return done.ok(),
            }
        }
    }

    fn at_once(how: FlockArg) -> Result<Self, Errno> {
        // Each opens the file anew: the lock belongs to what was opened.
        Flock::lock(own()?, how).map(|file| NetnsLock { _file: file }).map_err(|(_, e)| e)
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
            let alone = NetnsLock::alone(inside, now).unwrap();
            let elsewhere = || one.enter(|inside| NetnsLock::shared(inside, now).is_some()).unwrap();
            std::thread::scope(|scope| assert!(!scope.spawn(elsewhere).join().unwrap()));
            drop(alone);
            std::thread::scope(|scope| assert!(scope.spawn(elsewhere).join().unwrap()));
        };
        one.enter(here).unwrap();
    }
}
