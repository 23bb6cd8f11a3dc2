//! Points at which a test ends this process as the out-of-memory killer would, or lets it stand. Without the feature `crash-points`, which
//! no release is built with, [`crash_point!`](crate::crash_point) is nothing at all.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;

/// Ends this process with SIGKILL where `NETLOOM_CRASH_AT` is `name`, or `name:N` the N-th time that it comes by, and stops
/// it with SIGSTOP where `NETLOOM_CRASH_STOP` is, until it gets SIGCONT. With `NETLOOM_CRASH_TRACE=FILE` the name is
/// appended to that file: a line for each point that was reached, in order.
pub fn reached(name: &str) {
    static DEATHS: AtomicU32 = AtomicU32::new(0);
    static STOPS: AtomicU32 = AtomicU32::new(0);
    if let Some(trace) = std::env::var_os("NETLOOM_CRASH_TRACE") {
        let file = std::fs::File::options().append(true).create(true).open(trace);
        let _ = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
    }
    if is_now("NETLOOM_CRASH_AT", name, &DEATHS) {
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
    if is_now("NETLOOM_CRASH_STOP", name, &STOPS) {
        // This very thread: another one of the process would let it run on for a moment.
        let _ = raise(Signal::SIGSTOP);
    }
}

fn is_now(variable: &str, name: &str, times: &AtomicU32) -> bool {
    let at = std::env::var(variable).unwrap_or_default();
    let (wanted, time) = at.split_once(':').unwrap_or((&at, "1"));
    wanted == name && Ok(times.fetch_add(1, Ordering::SeqCst) + 1) == time.parse()
}
