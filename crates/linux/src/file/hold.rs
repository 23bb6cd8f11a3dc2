//! Taking a lock of a file, and waiting for it.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::statfs::{FUSE_SUPER_MAGIC, fstatfs};

use super::alarm::Alarm;
use super::errno;
use super::waiting::{TURN, goes_on, is_asked};

/// How often the lock is tried where the kernel's wait cannot be ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Who else may hold the lock meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Nobody.
    Alone,
    /// Every holder with a shared lock.
    Shared,
}

/// Locks a file; `false` at the deadline, and where [`goes_on`] says that nobody waits any longer.
///
/// The caller sleeps in the kernel, which wakes the next waiting caller when the lock is free. flock(2) has no time limit, so an [`Alarm`]
/// interrupts it. Without an alarm, the lock is tried every [`PAUSE`].
pub(super) fn take(file: &File, path: &Path, how: Hold, deadline: Option<Instant>) -> Result<bool, Errno> {
    if how.at_once(file)? {
        return Ok(true);
    }
    let Some(deadline) = deadline else {
        while !how.in_turn(file)? {}
        return Ok(true);
    };
    let left = || deadline.saturating_duration_since(Instant::now());
    let mut alarm = if left().is_zero() { None } else { alarm_for(file) };
    // A retry puts the caller behind later ones, so a wait that nobody asks about is not interrupted.
    let longest = if is_asked() { TURN } else { Duration::MAX };
    let (begun, mut turn) = (Instant::now(), longest);
    loop {
        let (left, waited) = (left(), begun.elapsed());
        if let Some(alarm) = alarm.as_ref().filter(|_| waited >= turn) {
            alarm.stop();
        }
        if left.is_zero() || (waited >= turn && !goes_on(Some(file), path, waited)) {
            return Ok(false);
        }
        turn = if waited >= turn { waited + longest } else { turn };
        let got = match &alarm {
            Some(alarm) => alarm.set(left.min(turn - waited)).and_then(|()| how.in_turn(file)),
            None => {
                std::thread::sleep(PAUSE.min(left));
                how.at_once(file)
            }
        };
        match got {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            // A file system may know flock(2), and no wait for it.
            Err(_) if alarm.is_some() => alarm = None,
            Err(e) => return Err(e),
        }
    }
}

/// A program that is a file system need not end a wait because it is interrupted.
fn alarm_for(file: &File) -> Option<Alarm> {
    let is_program = fstatfs(file).is_ok_and(|about| about.filesystem_type() == FUSE_SUPER_MAGIC);
    if is_program { None } else { Alarm::new().ok() }
}

// === impl Hold ===

impl Hold {
    /// `false`: another has it.
    fn at_once(self, file: &File) -> Result<bool, Errno> {
        loop {
            match if self == Hold::Alone { file.try_lock() } else { file.try_lock_shared() } {
                Ok(()) => return Ok(true),
                Err(TryLockError::WouldBlock) => return Ok(false),
                Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(e)) => return Err(errno(&e)),
            }
        }
    }

    /// Waits for it. `false`: a signal has ended the wait.
    fn in_turn(self, file: &File) -> Result<bool, Errno> {
        match if self == Hold::Alone { file.lock() } else { file.lock_shared() } {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(errno(&e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use nix::sys::signal::{SigSet, Signal};

    use super::*;
    use crate::file::{LockError, ask_while_waiting};

    /// A new file without a name, and a function that opens it once more.
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
            assert!((by..by + Duration::from_secs(20)).contains(&Instant::now()), "{how:?}");
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
        assert!(Alarm::new().is_ok());
        all_wait_in_turn();
    }

    /// A runtime may start this process with the signal blocked, and a blocked signal interrupts no call.
    #[test]
    fn a_signal_that_is_held_back_ends_the_wait_and_is_held_back_again() {
        let mut held_back = SigSet::empty();
        held_back.add(Signal::SIGURG);
        held_back.thread_block().unwrap();
        assert!(Alarm::new().is_ok());
        all_wait_in_turn();
        assert!(SigSet::thread_get_mask().unwrap().contains(Signal::SIGURG));
    }

    /// Runs a test that changes its whole process.
    fn in_a_process(test: &str) {
        let test = format!("file::hold::tests::{test}");
        let done = Command::new(std::env::current_exe().unwrap()).args(["--exact", &test, "--ignored", "--nocapture"]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn without_an_alarm_it_is_waited_for_all_the_same() {
        in_a_process("child_without_an_alarm");
    }

    #[test]
    #[ignore = "started by without_an_alarm_it_is_waited_for_all_the_same as a process of its own"]
    fn child_without_an_alarm() {
        let (_, hard) = getrlimit(Resource::RLIMIT_SIGPENDING).unwrap();
        setrlimit(Resource::RLIMIT_SIGPENDING, 0, hard).unwrap();
        assert_eq!(Alarm::new().err(), Some(Errno::EAGAIN));
        all_wait_in_turn();
    }

    #[test]
    fn a_lock_that_nobody_waits_for_any_longer_is_given_up() {
        in_a_process("child_that_is_asked");
    }

    #[test]
    #[ignore = "started by a_lock_that_nobody_waits_for_any_longer_is_given_up as a process of its own"]
    fn child_that_is_asked() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        ask_while_waiting(|wait| {
            assert!(wait.holder().is_some());
            ASKED.fetch_add(1, Ordering::Relaxed) == 0
        });
        let (_file, open) = opened();
        let _held = lock(open(), Hold::Alone, 0).unwrap();
        let begun = Instant::now();
        assert!(matches!(lock(open(), Hold::Alone, 600_000), Err(LockError::TimedOut { .. })));
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
        assert!((2 * TURN..100 * TURN).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
