//! Where clusters keep their files, and what is left of one whose maker was killed.
//!
//! Processes, mounts and links are gone then: see [`crate::Den`]. What stays is a directory, `/run/netloom-testbed/NAME`,
//! and the folders of control groups with that name. The directory says who made it; so whoever comes next can tell
//! what is left over from what is in use.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Where every cluster has a directory.
pub const PLACE: &str = "/run/netloom-testbed";

/// How long the kernel may take to empty the control groups of a cluster whose processes it kills.
const EMPTYING: Duration = Duration::from_secs(10);

/// The directory of one cluster or control plane, which is this process's until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    name: String,
    dir: PathBuf,
}

// === impl Claim ===

impl Claim {
    /// Makes the cluster's directory, after having removed what is left of clusters whose makers are gone.
    pub(crate) fn new(name: &str) -> Result<Self> {
        sweep();
        // Complete before it has its name: nobody takes it for a left-over.
        let (dir, new) = (Path::new(PLACE).join(name), Path::new(PLACE).join(format!(".{name}-{}", std::process::id())));
        // Who takes the last cluster away takes the place away, too, perhaps between the two directories.
        let mut builder = DirBuilder::new();
        let make = || builder.recursive(true).mode(0o700).create(&new);
        let missing = |error: &std::io::Error| error.kind() == ErrorKind::NotFound;
        let mut tries = std::iter::repeat_with(make).take(10).skip_while(|made| made.as_ref().is_err_and(missing));
        tries.next().context("somebody removes it")?.with_context(|| format!("{} cannot be made", new.display()))?;
        let me = std::process::id();
        std::fs::write(new.join("owner"), format!("{me} {}", began(me).unwrap_or_default())).context("the file `owner`")?;
        if let Err(error) = std::fs::rename(&new, &dir) {
            drop(std::fs::remove_dir_all(&new));
            if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) {
                bail!("a cluster {name:?} is up already: take it down, or give this one another name");
            }
            return Err(error).with_context(|| format!("{} cannot be made", dir.display()));
        }
        Ok(Claim { name: name.to_owned(), dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of the cluster's control groups in every hierarchy.
    pub(crate) fn cgroup(&self) -> String {
        cgroup(&self.name)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// The process that holds a cluster up; `None` if there is no such cluster, or its maker is gone.
pub fn owner(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(Path::new(PLACE).join(name).join("owner")).ok()?;
    let (pid, start) = text.trim().split_once(' ')?;
    let pid = pid.parse().ok()?;
    (began(pid)? == start).then_some(pid)
}

/// Removes what is left of clusters whose makers are gone. Returns their names.
pub fn sweep() -> Vec<String> {
    let entries = std::fs::read_dir(PLACE).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| owner(name).is_none() && !in_the_making(name)).collect();
    left.iter().for_each(|name| remove(name));
    left
}

/// Whether a directory has not yet its own name, `.NAME-PID`, and its maker lives.
fn in_the_making(name: &str) -> bool {
    let maker = name.strip_prefix('.').and_then(|name| name.rsplit('-').next());
    maker.is_some_and(|pid| Path::new("/proc").join(pid).exists())
}

fn remove(name: &str) {
    let end = Instant::now() + EMPTYING;
    while !cgroups_removed(&cgroup(name)) && Instant::now() < end {
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(20));
    }
    // The mark of who made it goes last, or with it.
    let dir = Path::new(PLACE).join(name);
    if let Ok(text) = std::fs::read_to_string(dir.join("link"))
        && let Some((link, index)) = text.trim().split_once(' ')
        && link_index(link).is_some_and(|now| now == index)
    {
        // The kernel would do it, a moment after the last process is gone; then another cluster may have the name.
        drop(Command::new("ip").args(["link", "delete", link]).output());
    }
    drop(std::fs::remove_dir_all(dir));
    drop(std::fs::remove_dir(PLACE));
}

/// The number of a link of this machine.
pub(crate) fn link_index(link: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/class/net/{link}/ifindex")).ok().map(|index| index.trim().to_owned())
}

fn cgroup(name: &str) -> String {
    format!("netloom-testbed-{name}")
}

/// When a process began, in the kernel's ticks since boot: with the ID, it names one process.
fn began(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, in parentheses, may contain anything; 20 fields later stands the time.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19).map(str::to_owned)
}

/// Removes a folder and those in it from every hierarchy, as far as they are empty; whether all are gone.
fn cgroups_removed(folder: &str) -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = hierarchies.chain([root.to_owned()]).map(|hierarchy| hierarchy.join(folder));
    folders.filter(|folder| !folder_removed(folder)).count() == 0
}

fn folder_removed(folder: &Path) -> bool {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folder_removed(&entry.path());
        }
    }
    drop(std::fs::remove_dir(folder));
    !folder.exists()
}
