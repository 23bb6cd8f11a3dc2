//! `netloom-cni` and the links to it, in the runtime's directory of plugins.
//!
//! A file that is being executed cannot be written to ("text file busy"), and one that is half written cannot be
//! executed: so it is written beside its place, run once to see that it runs, and renamed. Those that run the old one go on
//! with it.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use linux::file;
use plugins::BUILTINS;

use super::{InstallError, Options, PROGRAM, Places, Report, Step, gone, io, network_types};

/// The name that the runtime's configuration has for us.
const OWN: &str = "netloom";
/// Names by which existing configurations may call us.
const MULTUS: [&str; 2] = ["multus", "multus-shim"];
/// How long `--version` may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every name that a link of ours may have.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    [OWN].into_iter().chain(MULTUS).chain(BUILTINS.iter().map(|plugin| plugin.about().name))
}

/// Only one process at a time changes a directory: the lock is the directory itself, so it leaves nothing behind.
pub(super) fn lock(dir: &Path) -> Result<File, InstallError> {
    let locked = File::open(dir).and_then(|dir| dir.lock().map(|()| dir));
    locked.map_err(|e| io("lock", dir, &e))
}

/// Puts everything in place that was asked for.
pub(super) fn put(places: &Places, options: &Options, report: &mut Report) -> Result<(), InstallError> {
    let dir = &places.bin_dir;
    fs::create_dir_all(dir).map_err(|e| io("make", dir, &e))?;
    let _one_writer = lock(dir)?;
    sweep(dir)?;
    let own = dir.join(OWN);
    if !options.force && is_foreign(&own, dir) {
        return Err(InstallError::Foreign { path: own });
    }
    let program = dir.join(PROGRAM);
    if same(&options.source, &program).map_err(|e| io("read", &options.source, &e))? {
        report.add(Step::Unchanged(program));
    } else {
        copy(&options.source, dir)?;
        report.add(Step::Put(program));
    }
    for name in wanted(places, options) {
        report.add(link(dir, name, options.force)?);
    }
    file::sync_folder(&own).map_err(|e| io(e.step, &e.path, &e.errno))
}

/// The links that are wanted. A configuration that names Multus means us, now.
fn wanted(places: &Places, options: &Options) -> Vec<&'static str> {
    let named = network_types::named_in(&places.config_dir);
    let multus = MULTUS.into_iter().filter(|name| options.multus || named.contains(*name));
    let plugins = BUILTINS.iter().map(|plugin| plugin.about().name).filter(|_| options.plugins);
    [OWN].into_iter().chain(multus).chain(plugins).collect()
}

/// What an install that was killed has left.
fn sweep(dir: &Path) -> Result<(), InstallError> {
    let left = names().chain([PROGRAM]).map(|name| beside(dir, name));
    left.into_iter().try_for_each(|path| gone(&path).map(drop).map_err(|e| io("remove", &path, &e)))
}

/// Runtimes look for plugins by name only: nobody finds this.
fn beside(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.netloom-new"))
}

/// Whether a name is somebody else's: neither a link to our executable nor that itself.
pub(super) fn is_foreign(path: &Path, dir: &Path) -> bool {
    let Ok(about) = path.symlink_metadata() else { return false };
    let ours = dir.join(PROGRAM);
    if about.is_symlink() {
        return !fs::read_link(path).is_ok_and(|to| dir.join(to) == ours);
    }
    !ours.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (about.dev(), about.ino()))
}

fn same(source: &Path, there: &Path) -> std::io::Result<bool> {
    let about = source.metadata()?;
    let Ok(old) = there.symlink_metadata() else { return Ok(false) };
    let is_ready = old.is_file() && old.mode() & 0o111 == 0o111;
    Ok(is_ready && about.len() == old.len() && fs::read(source)? == fs::read(there)?)
}

fn copy(source: &Path, dir: &Path) -> Result<(), InstallError> {
    let (new, place) = (beside(dir, PROGRAM), dir.join(PROGRAM));
    let made = fill(source, &new).and_then(|()| {
        linux::crash_point!("install-copied");
        runs(source, &new, dir)?;
        fs::rename(&new, &place).map_err(|e| io("replace", &place, &e))
    });
    if made.is_err() {
        // Gone already, or the next install takes it away.
        let _ = fs::remove_file(&new);
    }
    linux::crash_point!("install-replaced");
    made
}

fn fill(source: &Path, new: &Path) -> Result<(), InstallError> {
    let mut from = File::open(source).map_err(|e| io("read", source, &e))?;
    let mut to = File::options().write(true).create_new(true).mode(0o755).open(new).map_err(|e| io("make", new, &e))?;
    std::io::copy(&mut from, &mut to).map_err(|e| io("write", new, &e))?;
    // Not left to the umask.
    to.set_permissions(Permissions::from_mode(0o755)).map_err(|e| io("set the permissions of", new, &e))?;
    to.sync_all().map_err(|e| io("sync", new, &e))
}

/// Sees that it runs there: for this machine, whole, and on a file system from which programs may be executed.
fn runs(source: &Path, new: &Path, dir: &Path) -> Result<(), InstallError> {
    let fail = |reason: String| InstallError::DoesNotRun { source_path: source.to_owned(), dir: dir.to_owned(), reason };
    let output = version_of(new).map_err(|e| match e.kind() {
        ErrorKind::PermissionDenied => fail(format!("{e}: is its file system mounted noexec? (findmnt -T {})", dir.display())),
        _ if e.raw_os_error() == Some(8) => fail(format!("{e}: is it a program for {}?", std::env::consts::ARCH)),
        ErrorKind::NotFound => fail(format!("{e}: it is linked dynamically, and its loader is not here; take the static one")),
        _ => fail(e.to_string()),
    })?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && said.starts_with(PROGRAM) {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(fail(format!("with --version it exits with {} and prints {said:?} {error:?}", output.status)))
}

fn version_of(program: &Path) -> std::io::Result<Output> {
    let until = Instant::now() + PATIENCE;
    let mut command = Command::new(program);
    command.arg("--version").env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    linux::local::lower_limit_of(&mut command);
    let mut child = loop {
        match command.spawn() {
            // A child that another thread has just forked still has our descriptor open, until it executes its program.
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            other => break other?,
        }
    };
    while child.try_wait()?.is_none() {
        if Instant::now() >= until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(std::io::Error::new(ErrorKind::TimedOut, format!("--version does not finish within {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output()
}

fn link(dir: &Path, name: &str, force: bool) -> Result<Step, InstallError> {
    let place = dir.join(name);
    if is_foreign(&place, dir) {
        if !force {
            return Ok(Step::Kept { path: place, why: "another program; --force replaces it".to_owned() });
        }
    } else if place.symlink_metadata().is_ok() {
        return Ok(Step::Unchanged(place));
    }
    let new = beside(dir, name);
    symlink(PROGRAM, &new).map_err(|e| io("link", &new, &e))?;
    linux::crash_point!("install-linked");
    match fs::rename(&new, &place) {
        Ok(()) => Ok(Step::Put(place)),
        Err(e) => {
            let _ = fs::remove_file(&new);
            Err(io("replace", &place, &e))
        }
    }
}

/// Takes away what is ours: all links but those in `needed`, and the executable if none of them is left. What was done.
pub(super) fn remove(dir: &Path, needed: &BTreeSet<String>) -> Result<Vec<Step>, InstallError> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let _one_writer = lock(dir)?;
    sweep(dir)?;
    let (mut steps, mut kept) = (Vec::new(), false);
    for name in names() {
        let place = dir.join(name);
        if place.symlink_metadata().is_err() || is_foreign(&place, dir) {
            continue;
        }
        if needed.contains(name) {
            kept = true;
            steps.push(Step::Kept { path: place, why: "a network configuration of this node names it".to_owned() });
            continue;
        }
        gone(&place).map_err(|e| io("remove", &place, &e))?;
        steps.push(Step::Removed(place));
    }
    let program = dir.join(PROGRAM);
    if kept {
        steps.push(Step::Kept { path: program, why: "links to it are kept".to_owned() });
    } else if gone(&program).map_err(|e| io("remove", &program, &e))? {
        steps.push(Step::Removed(program));
    }
    Ok(steps)
}
