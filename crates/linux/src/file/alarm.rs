//! An end for a system call that has none of its own: a signal that does nothing interrupts it.

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};

/// The signal. Nothing that is not for a socket's urgent data sends it, and it does nothing to a program without a handler (signal(7)).
const SIGNAL: Signal = Signal::SIGURG;

/// `SIGEV_THREAD_ID` (include/uapi/asm-generic/siginfo.h).
const THREAD: libc::c_int = 4;

/// How long after the time that was set the call is interrupted once more: the thread may not have been in it yet.
const AGAIN: Duration = Duration::from_millis(20);

/// A timer that interrupts the system calls of the thread that made it (timer_create(2)).
#[derive(Debug)]
pub(super) struct Alarm {
    timer: libc::c_int,
    /// Whether the thread held the signal back before.
    was_blocked: bool,
    /// It belongs to a thread.
    _thread: std::marker::PhantomData<*const ()>,
}

extern "C" fn nothing(_: libc::c_int) {}

fn handle() -> Result<(), Errno> {
    static DONE: OnceLock<Result<(), Errno>> = OnceLock::new();
    // Without SA_RESTART: the call ends with EINTR.
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler touches nothing.
    *DONE.get_or_init(|| unsafe { sigaction(SIGNAL, &action) }.map(drop))
}

fn signal() -> SigSet {
    let mut signal = SigSet::empty();
    signal.add(SIGNAL);
    signal
}

fn timespec(time: Duration) -> libc::timespec {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    spec.tv_sec = time.as_secs().try_into().unwrap_or(i64::MAX);
    spec.tv_nsec = time.subsec_nanos().into();
    spec
}

// === impl Alarm ===

impl Alarm {
    /// # Errors
    /// What the kernel says: `EAGAIN` where this user has as many signals and timers as it may (`RLIMIT_SIGPENDING`).
    pub(super) fn new() -> Result<Self, Errno> {
        handle()?;
        // SAFETY: all its fields are numbers and pointers, which may be zero.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_signo = SIGNAL as libc::c_int;
        event.sigev_notify = THREAD;
        event.sigev_notify_thread_id = nix::unistd::gettid().as_raw();
        let mut timer: libc::c_int = 0;
        // SAFETY: the kernel reads an event and writes a number, and both live until it returns.
        Errno::result(unsafe { libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) })?;
        // The program that started this process may have blocked the signal.
        match signal().thread_swap_mask(SigmaskHow::SIG_UNBLOCK) {
            Ok(mask) => Ok(Alarm { timer, was_blocked: mask.contains(SIGNAL), _thread: std::marker::PhantomData }),
            Err(e) => {
                delete(timer);
                Err(e)
            }
        }
    }

    /// Has the thread's calls interrupted when so much time has passed, and again and again until it is stopped.
    pub(super) fn set(&self, after: Duration) -> Result<(), Errno> {
        // No time at all would stop it.
        self.settime(AGAIN, after.max(Duration::from_nanos(1)))
    }

    /// Nothing is interrupted any more.
    pub(super) fn stop(&self) {
        // There is such a timer, and these times are valid: nothing can be refused.
        let _ = self.settime(Duration::ZERO, Duration::ZERO);
    }

    fn settime(&self, interval: Duration, first: Duration) -> Result<(), Errno> {
        let times = libc::itimerspec { it_interval: timespec(interval), it_value: timespec(first) };
        let none: *mut libc::itimerspec = std::ptr::null_mut();
        // SAFETY: the kernel reads the times, which live until it returns, and writes nothing.
        Errno::result(unsafe { libc::syscall(libc::SYS_timer_settime, self.timer, 0, &raw const times, none) }).map(drop)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        delete(self.timer);
        if self.was_blocked {
            // A mask is never refused.
            let _ = signal().thread_block();
        }
    }
}

fn delete(timer: libc::c_int) {
    // SAFETY: a call with a number. There is such a timer: it is deleted once.
    unsafe { libc::syscall(libc::SYS_timer_delete, timer) };
}
