//! Points at which a test ends this process as the out-of-memory killer would. Without the feature `crash-points`, which
//! no release is built with, [`crash_point!`](crate::crash_point) is nothing at all.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Ends this process with SIGKILL where `NETLOOM_CRASH_AT` is `name`, or `name:N` the N-th time that it comes by. With
/// `NETLOOM_CRASH_TRACE=FILE` the name is appended to that file: a line for each point that was reached, in order.
pub fn reached(name: &str) {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    if let Some(trace) = std::env::var_os("NETLOOM_CRASH_TRACE") {
        let file = std::fs::File::options().append(true).create(true).open(trace);
        let _ = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
    }
    let at = std::env::var("NETLOOM_CRASH_AT").unwrap_or_default();
    let (wanted, time) = at.split_once(':').unwrap_or((&at, "1"));
    if wanted == name && Ok(TIMES.fetch_add(1, Ordering::SeqCst) + 1) == time.parse() {
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
}
