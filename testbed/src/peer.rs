//! The executable that is all of Kubernetes, which `make peers` builds.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// The path of `kubernetes`, in the directory `NETLOOM_PEERS` or in `netloom-peers` of the user's cache.
///
/// # Errors
/// If it is not there; the message says what to run.
pub fn peer() -> Result<PathBuf> {
    let cache = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache/netloom-peers");
    let program = std::env::var_os("NETLOOM_PEERS").map_or_else(cache, PathBuf::from).join("kubernetes");
    if !program.is_file() {
        bail!("{} is missing: run `make peers`, or name in NETLOOM_PEERS the directory where it is", program.display());
    }
    Ok(program)
}
