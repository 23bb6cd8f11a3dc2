//! Where a journal was written: one that was copied, to another directory or with a whole disk, belongs to two agents.
//!
//! ```text
//!   note in the directory = this machine and this directory     nobody has copied it, whatever else is not known
//!   none                                                        it is new
//!   another one                                                 nothing of it is used before it is known that its agent is gone
//! ```

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linux::file::{self, Links};

/// The note, in the journal's directory.
const NOTE: &str = "place";
/// More than a note has.
const MAX_NOTE: usize = 256;
/// What the firmware says: another one where a disk was copied.
const FIRMWARE: &str = "/sys/class/dmi/id/product_uuid";
/// What the disk says.
const DISK: &str = "/etc/machine-id";

/// Where a store of pools is: a directory of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLocation {
    /// The machine; empty: nothing tells.
    pub machine: String,
    /// The machine itself says so, and no file that may have been copied.
    pub is_certain: bool,
    /// The directory's number: a copy of it beside it has another one.
    inode: u64,
}

// === impl StoreLocation ===

impl StoreLocation {
    /// The place of a directory that is there.
    ///
    /// # Errors
    /// It cannot be looked at, in words.
    pub fn of(dir: &Path) -> Result<Self, String> {
        let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let firmware = read(FIRMWARE);
        let is_certain = firmware.is_some();
        let machine = firmware.or_else(|| read(DISK)).unwrap_or_default();
        let inode = std::fs::metadata(dir).map_err(|e| format!("look at {}: {e}", dir.display()))?.ino();
        Ok(StoreLocation { machine, is_certain, inode })
    }

    /// Whether a note says that what is in the directory was written elsewhere. One without a note gets it.
    ///
    /// # Errors
    /// The note cannot be read, or not be written, in words.
    pub fn is_another(&self, dir: &Path) -> Result<bool, String> {
        match file::read(&note(dir), MAX_NOTE, Links::Refused) {
            Ok(there) if !there.is_empty() => Ok(there != self.to_string().as_bytes()),
            Ok(_) | Err(file::ReadError::NotFound { .. }) => self.write(dir).map(|()| false),
            Err(e) => Err(e.to_string()),
        }
    }

    /// What is in the directory is this place's from now on.
    ///
    /// # Errors
    /// As for [`StoreLocation::is_another`].
    pub fn take(&self, dir: &Path) -> Result<(), String> {
        if self.is_another(dir)? { self.write(dir) } else { Ok(()) }
    }

    fn write(&self, dir: &Path) -> Result<(), String> {
        file::write_atomic(&note(dir), self.to_string().as_bytes(), 0o600, file::Durability::Durable).map_err(|e| e.to_string())
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine {}, directory {}", self.machine, self.inode)
    }
}

fn note(dir: &Path) -> PathBuf {
    dir.join(NOTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_another_place_until_it_is_taken() {
        let dirs = ["", "-copy"].map(|end| std::env::temp_dir().join(format!("nl-place-{}{end}", std::process::id())));
        dirs.iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
        let [own, copy] = dirs.each_ref().map(|dir| StoreLocation::of(dir).unwrap());
        assert!(!own.is_another(&dirs[0]).unwrap() && !own.is_another(&dirs[0]).unwrap());
        std::fs::copy(note(&dirs[0]), note(&dirs[1])).unwrap();
        assert!(copy.is_another(&dirs[1]).unwrap());
        let moved = StoreLocation { machine: "another".to_owned(), ..own.clone() };
        assert!(moved.is_another(&dirs[0]).unwrap());
        copy.write(&dirs[1]).unwrap();
        assert!(!copy.is_another(&dirs[1]).unwrap());
        dirs.iter().for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
    }
}
