//! A journal as it is at this moment, read while its owner writes: without a lock, and without anything that the owner notices.
//!
//! What the owner does meanwhile can be seen half: files of a list that are gone when they are opened, as a snapshot has replaced
//! them, and a log of which an earlier part was read before it was written and a later one after. All of it is past when the
//! same is read once more: what is found twice in the same place is damage.

use std::io::ErrorKind;
use std::path::Path;

use crate::journal::{self, Files};
use crate::{Failure, OpenError};

/// So often is read before the last word counts. Each time but the last two the owner must have written a snapshot meanwhile.
const READINGS: u32 = 20;

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Of the log that the last snapshot has replaced, as far as it can be read: what has been, and counts no more.
    pub past: Vec<Vec<u8>>,
    /// What counts, in order: as [`crate::Journal::open`] gives it.
    pub records: Vec<Vec<u8>>,
}

/// Reads the journal of a directory, whoever has it open; `None` where there is none. What is waited for when this begins is in
/// it, unless a write is not finished: that one is not there yet.
///
/// # Errors
/// [`OpenError`], never [`OpenError::Locked`]
pub fn read(dir: &Path) -> Result<Option<Reading>, OpenError> {
    let mut last = once(dir);
    for _ in 1..READINGS {
        let Err(before) = &last else { break };
        let again = once(dir);
        if again.as_ref().err() == Some(before) {
            break;
        }
        last = again;
    }
    last
}

fn once(dir: &Path) -> Result<Option<Reading>, OpenError> {
    match std::fs::symlink_metadata(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::new("look at", dir, &e).into()),
        Ok(_) => {}
    }
    let mut reading = Reading::default();
    let Files { base, last } = journal::files(dir, |record| reading.records.push(record.to_vec()))?;
    if last.is_none() {
        return Ok(None);
    }
    // It may be gone, or damaged: nobody's address depends on it.
    if let Some(past) = base.checked_sub(1) {
        let _ = journal::log_of(dir, past, |record| reading.past.push(record.to_vec()));
    }
    Ok(Some(reading))
}
