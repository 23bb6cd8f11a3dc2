//! What is to be said when a person presses Ctrl-C.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

/// Runs `last_words` on a thread of its own when SIGINT or SIGTERM comes, then ends the process with 128 and the signal's
/// number, as a shell shows it. To be called while the process has one thread: those that are started later take the
/// signals' mask from it; programs that are executed do not.
///
/// # Errors
/// If the signals cannot be held back, or no thread can be started (`EAGAIN`).
pub fn on_interrupt(last_words: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let wait = move || {
        let Ok(signal) = signals.wait() else { return };
        last_words();
        std::process::exit(128 + signal as i32);
    };
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait).map(drop).map_err(|_| Errno::EAGAIN)
}
