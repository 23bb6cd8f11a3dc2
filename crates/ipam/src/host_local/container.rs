//! What one container holds, of whatever network: for a caller that has lost everything but its ID.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use cni::{ContainerId, NetworkName};

use super::failure::IoFailure;
use super::owner::{Holder, Owner};
use super::{Store, StoreError};

/// Frees every address that a container holds of the networks below a data directory, and returns them. The addresses
/// must not be in use any more. Files from before interfaces were recorded stay for a collection.
///
/// # Errors
/// [`StoreError`], the first; what could be freed has been, and the call can be repeated.
pub fn release_container(data_dir: &Path, container: &ContainerId, by: Instant) -> Result<Vec<IpAddr>, StoreError> {
    let fail = IoFailure::of("list", data_dir);
    let entries = match fs::read_dir(data_dir).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(fail)?,
    };
    let (mut freed, mut failed) = (Vec::new(), None);
    for entry in entries.iter().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        let Ok(network) = NetworkName::parse(&entry.file_name().to_string_lossy()) else { continue };
        match release(&Store::open(data_dir, &network).lock_by(by), container) {
            Ok(of_network) => freed.extend(of_network),
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    failed.map_or(Ok(freed), Err)
}

fn release(store: &Store, container: &ContainerId) -> Result<Vec<IpAddr>, StoreError> {
    let all = store.all()?;
    let owner = |holder| if let Holder::Attachment(owner) = holder { Some(owner) } else { None };
    let owners: BTreeSet<Owner> = all.into_iter().filter_map(|(_, holder)| owner(holder)).filter(|o| o.id == *container).collect();
    let mut freed = Vec::new();
    for owner in &owners {
        freed.extend(store.release(owner)?);
    }
    Ok(freed)
}
