//! Which namespaces are a lab's own: `<state dir>/<lab>/namespaces`, a line appended for each thing that happens.
//!
//! ```text
//!   begin NAME            it is about to be made; whoever is killed now may have made it
//!   made NAME IDENTITY    it was made, and this is which one
//!   not NAME              it was not made
//! ```
//!
//! A name proves nothing: anybody may delete a lab's namespace and make another of its name. So only what this file
//! claims is ever removed, and only as long as it is the same namespace. It is a file of its own because it grows by a
//! line for each pod, where the description would be written anew, and because one of the two may be damaged.

use std::fs::{File, Metadata};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use linux::file::{self, IN_PLACE, Links, ReadError};
use linux::{Netns, NetnsError};

use crate::error::StateError;
use crate::labs::MAX_FILE;

/// The file, which is only ever appended to.
pub(crate) struct Journal {
    lab: String,
    file: PathBuf,
    netns: PathBuf,
}

/// A namespace could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CreateError {
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Journal(#[from] StateError),
}

/// What the file says of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    path: PathBuf,
    identity: Option<String>,
}

/// What is at the place of a claimed namespace.
pub(crate) enum NamespaceState {
    /// The namespace.
    Ours(Netns),
    /// The file that it is mounted on, or nothing at all.
    Gone,
    /// Something else.
    Foreign,
}

// === impl Journal ===

impl Journal {
    pub(crate) fn new(lab: &str, file: PathBuf, netns: PathBuf) -> Self {
        Journal { lab: lab.to_owned(), file, netns }
    }

    /// Begins the file: from now on, what it does not name is not the lab's.
    pub(crate) fn begin(&self) -> Result<(), StateError> {
        self.append("")
    }

    /// Makes a namespace of the lab.
    pub(crate) fn create(&self, path: &Path) -> Result<Netns, CreateError> {
        // What is there already must not be claimed, not even for the moment of an attempt.
        if path.symlink_metadata().is_ok() {
            return Err(NetnsError::Exists { path: path.to_owned() }.into());
        }
        let name = name_of(path);
        self.append(&format!("begin {name}\n"))?;
        match Netns::create(path) {
            Ok(netns) => {
                if let Some(identity) = identity_of(path) {
                    self.append(&format!("made {name} {identity}\n"))?;
                }
                Ok(netns)
            }
            Err(e) => {
                self.append(&format!("not {name}\n"))?;
                Err(e.into())
            }
        }
    }

    fn append(&self, line: &str) -> Result<(), StateError> {
        let open = || File::options().append(true).create(true).mode(0o644).custom_flags(IN_PLACE).open(&self.file);
        let fail = |e: std::io::Error| StateError::Io { step: "write", path: self.file.clone(), reason: e.to_string() };
        open().and_then(|mut file| file.write_all(line.as_bytes())).map_err(fail)
    }

    /// What the lab claims, in the order in which it was made.
    ///
    /// # Errors
    /// [`StateError::Broken`] without the file.
    pub(crate) fn read(&self) -> Result<Vec<Claim>, StateError> {
        let broken = |e: ReadError| StateError::Broken { name: self.lab.clone(), path: self.file.clone(), reason: e.to_string() };
        let text = file::read(&self.file, MAX_FILE, Links::Refused).map_err(broken)?;
        Ok(claims(&String::from_utf8_lossy(&text), &self.netns))
    }

    /// Whatever has a name of the lab, for want of anything better: another lab's names begin otherwise.
    pub(crate) fn by_name(&self) -> Vec<Claim> {
        let entries = std::fs::read_dir(&self.netns).into_iter().flatten().flatten();
        let prefix = format!("nl.{}.", self.lab);
        let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with(&prefix));
        ours.map(|e| Claim { path: e.path(), identity: None }).collect()
    }
}

fn claims(text: &str, netns: &Path) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    let mut at = std::collections::HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, identity) = match words.as_slice() {
            ["begin", name] => (*name, None),
            ["made", name, identity] => (*name, Some((*identity).to_owned())),
            ["not", name] => {
                let dropped = at.remove(*name).and_then(|i: usize| claims.get_mut(i));
                dropped.into_iter().for_each(|c| c.path = PathBuf::new());
                continue;
            }
            // Torn by a full disk; what it would have said was then not done.
            _ => continue,
        };
        // A name becomes a path below one directory, and no other.
        if name.is_empty() || name.contains('/') {
            continue;
        }
        match at.get(name).and_then(|i| claims.get_mut(*i)) {
            Some(claim) => claim.identity = identity,
            None => {
                at.insert(name.to_owned(), claims.len());
                claims.push(Claim { path: netns.join(name), identity });
            }
        }
    }
    claims.retain(|c| !c.path.as_os_str().is_empty());
    claims
}

// === impl Claim ===

impl Claim {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// As `ip netns` has it.
    pub(crate) fn name(&self) -> String {
        name_of(&self.path)
    }

    /// What is there now.
    ///
    /// # Errors
    /// If that cannot be told.
    pub(crate) fn find(&self) -> Result<NamespaceState, NetnsError> {
        match Netns::open(&self.path) {
            Ok(None) => Ok(NamespaceState::Gone),
            Ok(Some(netns)) => match &self.identity {
                Some(identity) if identity_of(&self.path).as_ref() != Some(identity) => Ok(NamespaceState::Foreign),
                _ => Ok(NamespaceState::Ours(netns)),
            },
            Err(NetnsError::NotANamespace { .. }) if is_bare(&self.path) => Ok(NamespaceState::Gone),
            Err(NetnsError::NotANamespace { .. }) => Ok(NamespaceState::Foreign),
            Err(e) => Err(e),
        }
    }

    /// Removes it. False: something else is there, and stays.
    ///
    /// # Errors
    /// As [`Netns::remove`].
    pub(crate) fn remove(&self) -> Result<bool, NetnsError> {
        match self.find()? {
            NamespaceState::Foreign => Ok(false),
            NamespaceState::Ours(_) | NamespaceState::Gone => Netns::remove(&self.path).map(|()| true),
        }
    }
}

/// The namespace that a lab claims at a path.
///
/// # Errors
/// If it cannot be told whether it is there. `None`: it is gone, or another one has its place.
pub(crate) fn open(claims: &[Claim], path: &Path) -> Result<Option<Netns>, NetnsError> {
    match claims.iter().find(|c| c.path == path).map(Claim::find).transpose()? {
        Some(NamespaceState::Ours(netns)) => Ok(Some(netns)),
        _ => Ok(None),
    }
}

/// What a half removal leaves: the empty file without permissions, no longer mounted upon.
fn is_bare(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.is_file() && m.len() == 0 && m.mode() & 0o777 == 0)
}

/// Device and inode are given to the next namespace as soon as this one is gone; the moment at which its file came to be,
/// which lasts as long as it is mounted, is not.
fn identity_of(path: &Path) -> Option<String> {
    let of = |m: Metadata| format!("{}:{}@{}.{:09}", m.dev(), m.ino(), m.ctime(), m.ctime_nsec());
    std::fs::metadata(path).ok().map(of)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_torn_lines_do_not() {
        let text = "begin a\nmade a 1:2@3\nbegin b\nnot b\nbegin c\nmade d\nbegin x/y\nbegin \nmade e 1:1@1 more\nbegin b\n\nbeg";
        let claim = |name: &str, identity: Option<&str>| Claim { path: Path::new("/n").join(name), identity: identity.map(str::to_owned) };
        assert_eq!(claims(text, Path::new("/n")), [claim("a", Some("1:2@3")), claim("c", None), claim("b", None)]);
    }
}
