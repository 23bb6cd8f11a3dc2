//! Taking a lock of a file, and waiting for it.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::alarm::Alarm;
use super::waiting::{TURN, goes_on};

/// How often the lock is tried where the kernel's wait cannot be ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Who else may hold the lock meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Nobody.
    Alone,
    /// Whoever holds it like this.
    Shared,
}

// === impl Hold ===

impl Hold {
    fn at_once(self) -> FlockArg {
        match self {
            Hold::Alone => FlockArg::LockExclusiveNonblock,
            Hold::Shared => FlockArg::LockSharedNonblock,
        }
    }

    fn in_turn(self) -> FlockArg {
        match self {
            Hold::Alone => FlockArg::LockExclusive,
            Hold::Shared => FlockArg::LockShared,
        }
    }
}

/// The file unlocked at the deadline, and where [`goes_on`] says so.
///
/// Who waits sleeps in the kernel, which wakes one of all that wait for a lock when it is free: nobody tries in vain. flock(2) has no limit of
/// time: an [`Alarm`] ends it. Where the kernel gives none, the lock is tried again and again.
pub(super) fn take(mut file: File, path: &Path, how: Hold, deadline: Option<Instant>) -> Result<Result<Flock<File>, File>, Errno> {
    match Flock::lock(file, how.at_once()) {
        Ok(locked) => return Ok(Ok(locked)),
        Err((again, Errno::EWOULDBLOCK | Errno::EINTR)) => file = again,
        Err((_, e)) => return Err(e),
    }
    let alarm = deadline.and_then(|_| Alarm::new().ok());
    let (begun, mut turn) = (Instant::now(), TURN);
    loop {
        let how = match (deadline, &alarm) {
            (None, _) => how.in_turn(),
            (Some(deadline), alarm) => {
                let (left, waited) = (deadline.saturating_duration_since(Instant::now()), begun.elapsed());
                if left.is_zero() || (waited >= turn && !goes_on(Some(&file), path, waited)) {
                    return Ok(Err(file));
                }
                turn = if waited >= turn { waited + TURN } else { turn };
                match alarm.as_ref().filter(|alarm| alarm.set(left.min(turn.saturating_sub(waited))).is_ok()) {
                    Some(_) => how.in_turn(),
                    None => {
                        std::thread::sleep(PAUSE.min(left));
                        how.at_once()
                    }
                }
            }
        };
        match Flock::lock(file, how) {
            Ok(locked) => return Ok(Ok(locked)),
            Err((again, Errno::EWOULDBLOCK | Errno::EINTR)) => file = again,
            Err((_, e)) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use nix::sys::signal::{SigSet, Signal};

    use super::*;
    use crate::file::LockError;

    /// A file of nobody's, and a way to open it anew.
    fn opened() -> (File, impl Fn() -> File) {
        let file = nix::sys::memfd::memfd_create(c"lock", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).map(File::from).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        (file, move || File::open(&path).unwrap())
    }

    fn lock(file: File, how: Hold, millis: u64) -> Result<crate::file::Lock, LockError> {
        crate::file::lock_open(file, Path::new("it"), how, Some(Instant::now() + Duration::from_millis(millis)))
    }

    /// Nobody gets what is held alone, and each has waited; then one after the other has it.
    fn all_wait_in_turn() {
        let (_file, open) = opened();
        let held = lock(open(), Hold::Alone, 0).unwrap();
        for how in [Hold::Alone, Hold::Shared] {
            let by = Instant::now() + Duration::from_millis(30);
            assert!(matches!(lock(open(), how, 30), Err(LockError::TimedOut { .. })), "{how:?}");
            assert!(Instant::now() >= by, "{how:?}");
        }
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..8).map(|_| scope.spawn(|| lock(open(), Hold::Alone, 60_000).map(drop))).collect();
            // Sleeps: the lock is held for so long.
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
            waiting.into_iter().for_each(|waiting| waiting.join().unwrap().unwrap());
        });
        let shared = [lock(open(), Hold::Shared, 0).unwrap(), lock(open(), Hold::Shared, 0).unwrap()];
        assert!(lock(open(), Hold::Alone, 0).is_err());
        drop(shared);
        lock(open(), Hold::Alone, 60_000).unwrap();
    }

    #[test]
    fn who_waits_has_it_in_turn_or_gives_up() {
        all_wait_in_turn();
    }

    /// As whoever starts this process may have done: nothing interrupts a call then.
    #[test]
    fn a_signal_that_is_held_back_ends_the_wait_and_is_held_back_again() {
        let mut held_back = SigSet::empty();
        held_back.add(Signal::SIGALRM);
        held_back.thread_block().unwrap();
        all_wait_in_turn();
        assert!(SigSet::thread_get_mask().unwrap().contains(Signal::SIGALRM));
    }

    #[test]
    fn without_an_alarm_it_is_waited_for_all_the_same() {
        // For all threads, which then wait like this one.
        let (soft, hard) = getrlimit(Resource::RLIMIT_SIGPENDING).unwrap();
        setrlimit(Resource::RLIMIT_SIGPENDING, 0, hard).unwrap();
        assert_eq!(Alarm::new().err(), Some(Errno::EAGAIN));
        all_wait_in_turn();
        setrlimit(Resource::RLIMIT_SIGPENDING, soft, hard).unwrap();
    }
}
