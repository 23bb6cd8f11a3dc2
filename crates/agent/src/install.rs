//! What is put on a node, and taken off it, so that its runtime calls us.
//!
//! ```text
//!   install     netloom-cni -> bin_dir, links to it -> default network ready? -> 00-netloom.conflist -> config_dir
//!   agent       keeper: the same last step, again whenever something in these directories changes
//!   uninstall   00-netloom.conflist goes: the runtime uses what comes after it;  links and netloom-cni, when no pod needs them
//! ```
//!
//! Whatever is put in place is put there with one rename, over the old one: a runtime that looks, or executes, at that
//! moment finds the old or the new. Nobody else's file is changed, renamed or removed. The agent's end takes nothing away:
//! a node whose runtime's configuration went with the agent would make pods without their networks.

mod binary;
mod entry;
mod keeper;
mod network_types;
mod node;
mod uninstall;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{CniError, NetworkList, Version};
use linux::Watch;

pub use entry::{FILE, runtime_config};
use keeper::Keeper;
pub(crate) use node::start;
pub use node::{install, program_beside, uninstall};
pub use uninstall::uninstall_from;

/// The executable that runtimes run.
pub const PROGRAM: &str = "netloom-cni";
/// A file beside the agent's socket: nobody is to write the runtime's configuration until the next `install`.
pub(crate) const UNINSTALLED: &str = "uninstalled";
/// How long nobody looks who waits for the default network, should its directory not be watchable.
const LOOK: Duration = Duration::from_secs(1);

/// Where a node has what `install` puts there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The runtime's directory of configurations.
    pub config_dir: PathBuf,
    /// It is ours alone (S48), so that it is made where it is missing; otherwise the provider of the default network makes it.
    pub dedicated: bool,
    /// The runtime's directory of plugins.
    pub bin_dir: PathBuf,
    /// The agent's socket.
    pub socket: PathBuf,
    /// Records of sandboxes.
    pub records: PathBuf,
    /// The version of the runtime's configuration; none: 1.0.0, and newer for a runtime that knows newer.
    pub version: Option<Version>,
    /// A file that must be there before the default network is used (Multus's `readinessindicatorfile`).
    pub ready_file: Option<PathBuf>,
    /// How long the runtime's calls wait for an agent that is not there; none: as long as `netloom-cni` does by itself.
    pub agent_wait: Option<Duration>,
    /// Where `netloom-cni` keeps DELs for an agent that is not there; none: where it does by itself.
    pub spool: Option<PathBuf>,
}

/// What `install` is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The `netloom-cni` to be copied.
    pub source: PathBuf,
    /// Links for the built-in plugins, too: `bridge`, `host-local`, ...
    pub plugins: bool,
    /// Links `multus` and `multus-shim`, too, also where no configuration names them.
    pub multus: bool,
    /// Other programs of these names are replaced.
    pub force: bool,
    /// The runtime's configuration is written.
    pub configuration: bool,
    /// It is written before the default network is there: calls wait for it (S49).
    pub early: bool,
    /// How long the default network is waited for.
    pub timeout: Duration,
}

/// The default network, for who must wait for it.
pub struct Awaited<'a> {
    /// Looks it up.
    pub look: &'a dyn Fn() -> Result<NetworkList, CniError>,
    /// Where something changes when it comes.
    pub watched: Vec<PathBuf>,
}

/// What was done, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One thing that was done, or was not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A file or link is there now, as it should be.
    Put(PathBuf),
    /// It was there already.
    Unchanged(PathBuf),
    /// It is gone now.
    Removed(PathBuf),
    /// It stays as it was.
    Kept {
        /// What.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// Something that a person should know.
    Note(String),
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Put(path) => write!(f, "installed  {}", path.display()),
            Step::Unchanged(path) => write!(f, "unchanged  {}", path.display()),
            Step::Removed(path) => write!(f, "removed    {}", path.display()),
            Step::Kept { path, why } => write!(f, "kept       {}: {why}", path.display()),
            Step::Note(text) => write!(f, "note       {text}"),
        }
    }
}

/// A node could not be prepared, or cleared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The kernel refused.
    #[error("cannot {step} {}: {reason}", path.display())]
    Io {
        /// What was attempted.
        step: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the kernel said.
        reason: String,
    },
    /// Another program has the name.
    #[error("{} is another program; replace it with --force if it is not needed", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// What was copied does not run here; what was there before still is.
    #[error("{} does not run in {}: {reason}", source_path.display(), dir.display())]
    DoesNotRun {
        /// What was copied.
        source_path: PathBuf,
        /// Where to.
        dir: PathBuf,
        /// What became of `--version`, and what to look at.
        reason: String,
    },
    /// The default network did not come in time.
    #[error("the runtime's configuration is not written, because the default network is not ready after {} s: {reason}; check that its \
        provider runs, or set `install: early`", waited.as_secs())]
    NotReady {
        /// How long it was waited for.
        waited: Duration,
        /// What is missing.
        reason: String,
    },
    /// Nobody can say whether pods are still attached.
    #[error(transparent)]
    Records(#[from] attach::RecordError),
}

// === impl Places ===

impl Places {
    /// The runtime's configuration.
    pub fn entry(&self) -> PathBuf {
        self.config_dir.join(FILE)
    }

    /// Tells that the configuration is not wanted.
    pub(crate) fn marker(&self) -> PathBuf {
        self.socket.with_file_name(UNINSTALLED)
    }
}

// === impl Report ===

impl Report {
    fn add(&mut self, step: Step) {
        self.steps.push(step);
    }
}

/// Puts `netloom-cni` and its links in place, then the runtime's configuration as soon as the default network is ready
/// (S47-S49). `progress` is told what is waited for, each time that this changes.
///
/// # Errors
/// [`InstallError`]; what was there before still is, but for what the error says to be there already.
pub fn install_into(
    places: &Places,
    options: &Options,
    default: &Awaited<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, InstallError> {
    let mut report = Report::default();
    binary::put(places, options, &mut report)?;
    // Also where the agent writes the configuration: it writes none as long as this is there.
    let marker = places.marker();
    gone(&marker).map_err(|e| io("remove", &marker, &e))?;
    if !options.configuration {
        report.add(Step::Note("the runtime's configuration is left to the agent".to_owned()));
        return Ok(report);
    }
    let mut keeper = Keeper::new(places.clone(), options.early);
    let (begun, mut said) = (Instant::now(), String::new());
    let mut watched = default.watched.clone();
    watched.extend(keeper.watched());
    let mut watch = Watch::on(&watched).ok();
    loop {
        let reason = match keeper.look(|| (default.look)())? {
            keeper::Looked::Waits(reason) => reason,
            keeper::Looked::Stands { changed, .. } => {
                let entry = places.entry();
                report.add(if changed { Step::Put(entry) } else { Step::Unchanged(entry) });
                report.steps.extend(entry::before_ours(&places.config_dir).iter().map(|path| Step::Note(entry::is_before(path))));
                return Ok(report);
            }
        };
        let left = options.timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(InstallError::NotReady { waited: options.timeout, reason });
        }
        if reason != said {
            progress(&reason);
            said = reason;
        }
        wait(&mut watch, left.min(LOOK));
    }
}

/// Until something changes, or for that long.
fn wait(watch: &mut Option<Watch>, at_most: Duration) {
    match watch.as_mut().map(|watch| watch.wait(Some(at_most))) {
        Some(Ok(_)) => {}
        Some(Err(_)) => *watch = None,
        None => std::thread::sleep(at_most),
    }
}

/// Removes a file; one that is not there is gone already. Whether it was there.
fn gone(path: &Path) -> std::io::Result<bool> {
    match std::fs::remove_file(path) {
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Ok(false),
        other => other.map(|()| true),
    }
}

fn io(step: &'static str, path: &Path, reason: &dyn std::fmt::Display) -> InstallError {
    InstallError::Io { step, path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
