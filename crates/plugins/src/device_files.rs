//! Where it is kept what the devices that containers have were before: a file each.

use std::io;
use std::path::{Path, PathBuf};

use cni::{CniError, Code};

/// Everything in such a directory; nothing if it is not there yet.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, CniError> {
    let fail = |e: io::Error| CniError::new(Code::IO, format!("list {}: {e}", dir.display()));
    match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(fail)?.map(|entry| Ok(entry.map_err(fail)?.path())).collect(),
    }
}
