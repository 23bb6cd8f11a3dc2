//! Where labs are kept: `<state dir>/<lab>/`, and one lock beside each.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use linux::file::{self, Links, Lock, LockError, ReadError};
use serde::{Deserialize, Serialize};

use crate::error::StateError;
use crate::state::{Lab, Node, Phase};

/// What a file of a lab may have, in bytes: no lab is so large.
pub(crate) const MAX_FILE: usize = 256 << 20;

/// Where labs are kept, and where namespaces are found by `ip netns`.
#[derive(Debug, Clone)]
pub struct Labs {
    dir: PathBuf,
    netns: PathBuf,
}

/// A lab's name: lower-case letters, digits and `-`, at most 32.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabName(String);

// === impl LabName ===

impl LabName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`StateError::BadName`]
    pub fn parse(s: &str) -> Result<Self, StateError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = !s.is_empty() && s.len() <= 32 && s.starts_with(plain) && s.chars().all(|c| plain(c) || c == '-');
        if good { Ok(LabName(s.to_owned())) } else { Err(StateError::BadName(s.chars().take(80).collect())) }
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Labs ===

impl Default for Labs {
    fn default() -> Self {
        Labs { dir: "/run/netloom/lab".into(), netns: "/run/netns".into() }
    }
}

impl Labs {
    /// Labs kept in another directory.
    pub fn in_dir(dir: PathBuf) -> Self {
        Labs { dir, ..Labs::default() }
    }

    /// One command at a time changes a lab.
    ///
    /// # Errors
    /// [`StateError::Io`]
    pub fn lock(&self, name: &LabName) -> Result<Lock, StateError> {
        let (path, lock) = self.lock_until(name, None)?;
        lock.inspect_err(|_| self.leave()).map_err(|e| StateError::Io { step: "lock", path, reason: e.to_string() })
    }

    /// The same, unless another command has it now.
    ///
    /// # Errors
    /// [`StateError::Io`]
    pub(crate) fn try_lock(&self, name: &LabName) -> Result<Option<Lock>, StateError> {
        let (path, lock) = self.lock_until(name, Some(Instant::now()))?;
        match lock {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::TimedOut { .. }) => Ok(None),
            Err(e) => Err(StateError::Io { step: "lock", path, reason: e.to_string() }),
        }
    }

    /// The lock's file, and the lock, if it can be had by then.
    fn lock_until(&self, name: &LabName, deadline: Option<Instant>) -> Result<(PathBuf, Result<Lock, LockError>), StateError> {
        make_dir(&self.dir)?;
        let path = self.lock_file(name);
        let lock = file::lock(&path, deadline);
        Ok((path, lock))
    }

    /// A lab without anything in it, whether there is one of that name or not.
    pub fn blank(&self, name: &LabName) -> Lab {
        Lab::blank(name.clone(), self.dir.join(name.as_str()), self.netns.clone())
    }

    /// Nothing of that name is there.
    ///
    /// # Errors
    /// [`StateError::Exists`], or [`StateError::Broken`] if what is there cannot be understood.
    pub fn must_not_be(&self, name: &LabName) -> Result<(), StateError> {
        match self.open(name) {
            Ok(_) => Err(StateError::Exists(name.to_string())),
            Err(StateError::NoLab { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// There is something of that name, or a command is at work on it: for a name that nobody knows no lock is made.
    ///
    /// # Errors
    /// [`StateError::NoLab`]
    pub(crate) fn may_be(&self, name: &LabName) -> Result<(), StateError> {
        match self.open(name) {
            Err(e @ StateError::NoLab { .. }) if !self.lock_file(name).exists() => Err(e),
            _ => Ok(()),
        }
    }

    /// A lab that is there.
    ///
    /// # Errors
    /// [`StateError::NoLab`] or [`StateError::Broken`]
    pub fn open(&self, name: &LabName) -> Result<Lab, StateError> {
        let blank = self.blank(name);
        let path = blank.description();
        let broken = |reason: String| StateError::Broken { name: name.to_string(), path: path.clone(), reason };
        let bytes = match file::read(&path, MAX_FILE, Links::Refused) {
            Err(ReadError::NotFound { .. }) => {
                return Err(StateError::NoLab { name: name.to_string(), there: self.names()?.iter().map(ToString::to_string).collect() });
            }
            other => other.map_err(|e| broken(e.to_string()))?,
        };
        let lab: Lab = serde_json::from_slice(&bytes).map_err(|e| broken(e.to_string()))?;
        if lab.name != *name {
            return Err(broken(format!("it describes lab {}", lab.name)));
        }
        match lab.odd_name() {
            None => Ok(lab.placed(blank)),
            Some(odd) => Err(broken(format!("{odd:?} is not a valid name in a lab"))),
        }
    }

    /// What can be known of a lab without its description: its nodes' names, by the state that they have on disk.
    pub(crate) fn salvage(&self, name: &LabName) -> Lab {
        let mut lab = self.blank(name);
        let nodes = std::fs::read_dir(lab.nodes_dir()).into_iter().flatten().flatten();
        let node = |name: String| Node { name, zone: String::new(), addresses: Vec::new(), pod_cidrs: Vec::new() };
        lab.nodes = nodes.map(|e| node(e.file_name().to_string_lossy().into_owned())).collect();
        lab.phase = Phase::GoingDown;
        lab
    }

    /// The labs that are there, by name, broken ones included.
    ///
    /// # Errors
    /// [`StateError::Io`]
    pub fn names(&self) -> Result<Vec<LabName>, StateError> {
        let fail = |e: std::io::Error| StateError::Io { step: "list", path: self.dir.clone(), reason: e.to_string() };
        let entries = match std::fs::read_dir(&self.dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = LabName::parse(&entry.map_err(fail)?.file_name().to_string_lossy()).ok();
            names.extend(name.filter(|name| self.blank(name).description().exists()));
        }
        names.sort();
        Ok(names)
    }

    /// Forgets a lab whose namespaces are gone, but not yet its lock.
    pub(crate) fn forget(&self, lab: &Lab) -> Result<(), StateError> {
        let gone = |path: PathBuf, done: std::io::Result<()>| match done {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(StateError::Io { step: "remove", path, reason: e.to_string() }),
            _ => Ok(()),
        };
        // Without its description there is no lab; what else is in the directory is only its own.
        let path = lab.description();
        gone(path.clone(), std::fs::remove_file(&path))?;
        gone(lab.dir().to_owned(), std::fs::remove_dir_all(lab.dir()))
    }

    /// Removes the lock of a name that no lab has, as its holder. Whoever waits for it makes a new one.
    pub(crate) fn forget_lock(&self, name: &LabName) {
        if self.blank(name).description().exists() {
            return;
        }
        let _ = std::fs::remove_file(self.lock_file(name));
        self.leave();
    }

    /// The last one puts the light out.
    fn leave(&self) {
        let _ = std::fs::remove_dir(&self.dir);
        let _ = self.dir.parent().map(std::fs::remove_dir);
    }

    fn lock_file(&self, name: &LabName) -> PathBuf {
        self.dir.join(format!("{name}.lock"))
    }
}

pub(crate) fn make_dir(dir: &Path) -> Result<(), StateError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(|e| StateError::Io { step: "create", path: dir.to_owned(), reason: e.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_as_files_and_as_parts_of_names() {
        for good in ["lab", "a", "0", "a-b-", &"a".repeat(32)] {
            assert_eq!(LabName::parse(good).map(|n| n.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "A", "a.b", "a/b", "a b", "..", "ü", &"a".repeat(33)] {
            assert!(LabName::parse(bad).is_err(), "{bad}");
        }
    }
}
