//! The directory of records: one file per sandbox.

use std::path::PathBuf;

use cni::{CniError, Code, ContainerId};
use linux::file::{self, Durability, Lock};

use crate::Record;
use crate::record::SCHEMA;

/// The directory of records.
#[derive(Debug, Clone)]
pub struct Records {
    dir: PathBuf,
}

/// A record that cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Reading, writing or removing failed.
    #[error("{step} the record {}: {reason}", path.display())]
    Io {
        /// What failed.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is no record.
    #[error("the record {} cannot be understood: {reason}; what it describes must be removed by hand", path.display())]
    Torn {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file was written by a newer version.
    #[error("the record {} has schema {found}, this version knows {SCHEMA}: use the version that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u64,
    },
}

impl From<RecordError> for CniError {
    fn from(e: RecordError) -> Self {
        CniError::new(Code::IO, e.to_string())
    }
}

/// A sandbox is being changed, until this is dropped.
#[derive(Debug)]
pub struct SandboxLock {
    path: PathBuf,
    _lock: Lock,
}

impl Drop for SandboxLock {
    fn drop(&mut self) {
        // While it is still held: whoever waits for it finds that it locks nothing any more, and makes a new one.
        let _ = std::fs::remove_file(&self.path);
    }
}

// === impl Records ===

impl Records {
    /// The records in a directory, which is made when it is first needed.
    pub fn new(dir: PathBuf) -> Self {
        Records { dir }
    }

    fn path(&self, sandbox: &ContainerId) -> PathBuf {
        self.dir.join(format!("{sandbox}.json"))
    }

    /// One caller at a time changes a sandbox: a DEL waits for an ADD that is still running. The lock's file goes with
    /// the lock.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub fn lock(&self, sandbox: &ContainerId) -> Result<SandboxLock, RecordError> {
        let path = self.dir.join(format!("{sandbox}.lock"));
        let fail = |reason: String| RecordError::Io { step: "lock", path: path.clone(), reason };
        self.make_dir().map_err(|e| fail(e.to_string()))?;
        let lock = file::lock(&path, None).map_err(|e| fail(e.to_string()))?;
        Ok(SandboxLock { path, _lock: lock })
    }

    fn make_dir(&self) -> std::io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// Writes a record as a whole.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub fn write(&self, record: &Record) -> Result<(), RecordError> {
        let path = self.path(&record.sandbox);
        let fail = |step, reason: String| RecordError::Io { step, path: path.clone(), reason };
        self.make_dir().map_err(|e| fail("make a place for", e.to_string()))?;
        let text = json::compact(&record.to_json());
        file::write_atomic(&path, text.as_bytes(), 0o600, Durability::Volatile).map_err(|e| fail("write", e.to_string()))
    }

    /// The record of a sandbox; `None` if there is none.
    ///
    /// # Errors
    /// [`RecordError`]
    pub fn read(&self, sandbox: &ContainerId) -> Result<Option<Record>, RecordError> {
        let path = self.path(sandbox);
        match std::fs::read(&path) {
            Ok(bytes) => Record::from_bytes(&bytes, &path).map(Some),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(RecordError::Io { step: "read", path, reason: e.to_string() }),
        }
    }

    /// Forgets a sandbox, also one whose record was never written to its end.
    ///
    /// # Errors
    /// [`RecordError::Io`]
    pub fn remove(&self, sandbox: &ContainerId) -> Result<(), RecordError> {
        let path = self.path(sandbox);
        file::remove(&path).map_err(|e| RecordError::Io { step: "remove", path, reason: e.to_string() })
    }

    /// Every sandbox that has a record.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the directory cannot be read; a missing one is empty.
    pub fn sandboxes(&self) -> Result<Vec<ContainerId>, RecordError> {
        let fail = |e: std::io::Error| RecordError::Io { step: "list", path: self.dir.clone(), reason: e.to_string() };
        let entries = match std::fs::read_dir(&self.dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(fail)?.file_name().to_string_lossy().into_owned();
            found.extend(name.strip_suffix(".json").and_then(|id| ContainerId::parse(id).ok()));
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
