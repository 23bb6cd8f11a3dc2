//! A kernel with every module, in which a test's executable is run: `scripts/guest.sh`.
//!
//! The guest sees this machine's files, so what is executed there is what was built here. [`run`] shows what it prints
//! while it prints it, past libtest's capture: a guest that hangs shows how far it came.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// What a command in the guest did.
#[derive(Debug)]
pub struct GuestRun {
    /// Its exit code; 124 if the guest was killed for taking too long, 1 also if the guest did not come up.
    pub code: i32,
    /// What it wrote, both streams as one.
    pub output: String,
}

/// Whether this process runs in the guest.
pub fn in_guest() -> bool {
    std::env::var_os("NETLOOM_IN_GUEST").is_some()
}

/// How long to wait for what takes at most so long on this machine's own kernel: an emulated one takes its time.
pub fn patience(here: Duration) -> Duration {
    if in_guest() { here * 5 } else { here }
}

/// Runs a command in a guest of its own, in this process's directory. What it writes outside `target/guest` is gone with the guest.
///
/// # Panics
/// If `scripts/guest.sh` cannot be started.
pub fn run(argv: &[&str], limit: Duration) -> GuestRun {
    let script = checkout().join("scripts/guest.sh");
    // The guest ends with the thread that waits for it, also if that is killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(&script).args(argv).env("GUEST_TIMEOUT", limit.as_secs().to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("setpriv (util-linux) starts");
    let mut output = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8_lossy(&line.unwrap()).into_owned() + "\n";
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
        output.push_str(&line);
    }
    let code = child.wait().unwrap().code().unwrap_or(-1);
    GuestRun { code, output }
}

/// The executable of a test of this crate: cargo builds it, and where it was built before, the newest one is it.
///
/// # Panics
/// If it cannot be built, or is not there.
pub fn test_executable(name: &str) -> PathBuf {
    let Some(cargo) = std::env::var_os("CARGO") else { return newest(name) };
    let here = std::env::current_exe().unwrap();
    let target = here.ancestors().nth(3).expect("tests are in target/PROFILE/deps");
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--no-run", "--message-format", "json", "--package", "netloom-tests", "--test", name]);
    if here.ancestors().nth(2).is_some_and(|p| p.ends_with("release")) {
        command.arg("--release");
    }
    command.arg("--manifest-path").arg(checkout().join("Cargo.toml")).arg("--target-dir").arg(target);
    let output = command.output().unwrap();
    assert!(output.status.success(), "the test {name} cannot be built:\n{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = messages.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let path = messages.filter_map(|m| m["executable"].as_str().map(PathBuf::from)).next_back();
    path.expect("cargo names the executable")
}

/// The newest of a test's executables in the directory of this one: `NAME-` and sixteen digits.
fn newest(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let is_one = |path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        let digits = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).unwrap_or_default();
        digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let all = std::fs::read_dir(here.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).filter(is_one);
    let newest = all.max_by_key(|path| path.metadata().and_then(|status| status.modified()).unwrap());
    newest.unwrap_or_else(|| panic!("no executable of the test {name} lies beside {}", here.display()))
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is a directory of the checkout")
}
