//! Points at which a test ends this process as the out-of-memory killer would, or lets it stand, and at which a benchmark
//! takes the time. In builds with debug assertions, and with the feature `crash-points`, which no release is built with: without
//! them [`crash_point!`](crate::crash_point) is nothing at all.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill, raise};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// Ends this process with SIGKILL where `NETLOOM_CRASH_AT` is `name`, or `name:N` the N-th time that it comes by, and stops
/// it with SIGSTOP where `NETLOOM_CRASH_STOP` is, until it gets SIGCONT. With `NETLOOM_CRASH_TRACE=FILE` a line is appended to
/// that file for each point that was reached, in order: the name, and the nanoseconds of `CLOCK_MONOTONIC`.
pub fn reached(name: &str) {
    static DEATHS: AtomicU32 = AtomicU32::new(0);
    static STOPS: AtomicU32 = AtomicU32::new(0);
    trace(name);
    if is_now("NETLOOM_CRASH_AT", name, &DEATHS) {
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
    if is_now("NETLOOM_CRASH_STOP", name, &STOPS) {
        // This very thread: another one of the process would let it run on for a moment.
        let _ = raise(Signal::SIGSTOP);
    }
}

/// The file is opened once: to open it each time would take longer than much of what lies between two points.
fn trace(name: &str) {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let path = std::env::var_os("NETLOOM_CRASH_TRACE")?;
        File::options().append(true).create(true).open(path).ok()
    });
    let Some(mut file) = file.as_ref() else { return };
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec());
    let _ = file.write_all(format!("{name} {now}\n").as_bytes());
}

fn is_now(variable: &str, name: &str, times: &AtomicU32) -> bool {
    let at = std::env::var(variable).unwrap_or_default();
    let (wanted, time) = at.split_once(':').unwrap_or((&at, "1"));
    wanted == name && Ok(times.fetch_add(1, Ordering::SeqCst) + 1) == time.parse()
}
