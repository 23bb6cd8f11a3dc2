//! Where the executables come from: ours from this workspace, the reference plugins from a cache of the machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A directory with `netloom-cni` under the name of every plugin, as `netloom-cni install` makes it.
///
/// # Panics
/// If `netloom-cni` cannot be built.
pub fn plugin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| installed(&built("netloom-cni", Target::Program)))
}

/// Installed once for all executables of tests that run side by side: a plugin that found another file under its delegate's name would
/// take that for another program, and execute it.
fn installed(program: &Path) -> PathBuf {
    let dir = program.with_file_name("netloom-tests-plugins");
    let lock = std::fs::File::create(program.with_file_name("netloom-tests-plugins.lock")).unwrap();
    lock.lock().unwrap();
    let is_there = std::fs::read(dir.join("netloom-cni")).is_ok_and(|there| there == std::fs::read(program).unwrap());
    if is_there && dir.join("whereabouts").exists() {
        return dir;
    }
    let status = Command::new(program).arg("install").arg(&dir).stdout(std::process::Stdio::null()).status();
    assert!(status.unwrap().success(), "{} install {} failed", program.display(), dir.display());
    dir
}

/// The command line, `netloom`.
///
/// # Panics
/// If it cannot be built.
pub fn netloom() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("netloom", Target::Program))
}

/// What holds a real Kubernetes up for a person, `netloom-testbed`.
///
/// # Panics
/// If it cannot be built.
pub fn netloom_testbed() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("netloom-testbed", Target::Program))
}

/// The example `sandbox` of the crate `attach`, which attaches a sandbox or detaches it.
///
/// # Panics
/// If it cannot be built.
pub fn sandbox_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("netloom-attach", Target::Example("sandbox")))
}

/// The directory of the reference plugins, `cnitool` and what `tests/peers` builds to: `NETLOOM_PEERS`, or `netloom-peers` in the user's cache.
///
/// # Panics
/// If they are not there; the message says what to run.
pub fn peers_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let cache = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache/netloom-peers");
        let dir = std::env::var_os("NETLOOM_PEERS").map_or_else(cache, PathBuf::from);
        for name in ["bridge", "macvlan", "loopback", "tuning", "host-local", "static", "cnitool", "convert"] {
            assert!(dir.join(name).is_file(), "{name} is not in {}: run `make peers`", dir.display());
        }
        dir
    })
}

/// What of a package is executed.
#[derive(Clone, Copy)]
enum Target {
    /// Its executable, which has its name.
    Program,
    /// An example.
    Example(&'static str),
}

/// An executable of a package of this workspace.
///
/// Cargo builds no other package's executables for a test. So the cargo that started this test is asked for it: it
/// takes a fraction of a second when there is nothing to do, and what is tested is never older than its sources. A test
/// that was started without cargo takes what lies beside it. Crash points are in it: it is a debug build.
fn built(package: &str, what: Target) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let profile_dir = here.ancestors().nth(2).expect("tests are in target/PROFILE/deps");
    let (target, profile) = (profile_dir.parent(), profile_dir.file_name());
    let (target, profile) = (target.expect("target/PROFILE has a parent"), profile.expect("it has a name"));
    let program = match what {
        Target::Program => target.join(profile).join(package),
        Target::Example(name) => target.join(profile).join("examples").join(name),
    };
    match std::env::var_os("CARGO") {
        Some(cargo) => build(Command::new(cargo), package, what, &target.join(profile)),
        None => assert!(program.is_file(), "{} is missing: run `cargo build -p {package}`", program.display()),
    }
    program
}

fn build(mut cargo: Command, package: &str, what: Target, profile_dir: &Path) {
    let profile = match profile_dir.file_name().and_then(|n| n.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("Cargo.toml");
    let target = profile_dir.parent().expect("target/PROFILE has a parent");
    cargo.args(["build", "--quiet", "--package", package, "--profile", profile]);
    if let Target::Example(name) = what {
        cargo.args(["--example", name]);
    }
    let output = cargo.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target).output().unwrap();
    assert!(output.status.success(), "{package} cannot be built:\n{}", String::from_utf8_lossy(&output.stderr));
}
