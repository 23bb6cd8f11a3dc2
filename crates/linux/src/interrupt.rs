//! What is to be said when a person presses Ctrl-C.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

/// Whether this process holds the signals back.
static HELD_BACK: AtomicBool = AtomicBool::new(false);

fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals
}

/// Lets SIGINT and SIGTERM end a program that is about to be started.
pub(crate) fn let_end(command: &mut Command) {
    if HELD_BACK.load(Ordering::Relaxed) {
        // SAFETY: between fork and exec there is one system call, and an error is made of a number: nothing is allocated, no lock is taken.
        unsafe { command.pre_exec(|| signals().thread_unblock().map_err(std::io::Error::from)) };
    }
}

/// Runs `last_words` on a thread of its own when SIGINT or SIGTERM comes, then ends the process with 128 and the signal's
/// number, as a shell shows it. To be called while the process has one thread: those that are started later take the
/// signals' mask from it. So would programs that are executed, which then could not be ended: [`crate::process::run`] lets them be.
///
/// # Errors
/// If the signals cannot be held back, or no thread can be started (`EAGAIN`).
pub fn on_interrupt(last_words: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let signals = signals();
    signals.thread_block()?;
    HELD_BACK.store(true, Ordering::Relaxed);
    let wait = move || {
        let Ok(signal) = signals.wait() else { return };
        last_words();
        std::process::exit(128 + signal as i32);
    };
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait).map(drop).map_err(|_| Errno::EAGAIN)
}
