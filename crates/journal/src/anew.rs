//! A journal that is damaged: what can be read of it still, and another one in its place.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::frame::{self, ReadFrame};
use crate::journal::{log_name, mark_begun, numbers, snapshot_name, tidy, unnamed};
use crate::log::Log;
use crate::{Failure, OpenError, snapshot};

/// Begins a journal anew with these records, whatever is left of the one before. Its files are kept in a directory beside the new
/// ones, which is returned. Until the new ones are complete, the damage is told as before.
///
/// # Errors
/// [`OpenError::Locked`], [`OpenError::Failed`]
pub fn begin_anew<R: AsRef<[u8]>>(dir: &Path, deadline: Instant, records: impl IntoIterator<Item = R>) -> Result<PathBuf, OpenError> {
    linux::file::make_own_dir(dir).map_err(|e| Failure::new("make", dir, &e))?;
    let _lock = linux::file::lock(&dir.join("lock"), Some(deadline))?;
    let (snapshots, logs) = numbers(dir)?;
    // Never the first one: a log of that number alone would be a journal, and this one is none before its snapshot is there.
    let number = snapshots.last().max(logs.last()).map_or(1, |last| last + 1);
    let aside = dir.join(format!("damaged-{number:016x}"));
    linux::file::make_own_dir(&aside).map_err(|e| Failure::new("make", &aside, &e))?;
    for name in snapshots.iter().map(|n| snapshot_name(*n)).chain(logs.iter().map(|n| log_name(*n))) {
        let (from, to) = (dir.join(&name), aside.join(&name));
        match std::fs::hard_link(&from, &to) {
            // An attempt before this one has come so far.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            linked => linked.map_err(|e| Failure::new("keep", &from, &e))?,
        }
    }
    linux::file::sync_folder(&aside.join("kept")).map_err(Failure::from)?;
    Log::create(dir.join(log_name(number)), number, 0)?;
    linux::crash_point!("journal-anew-begun");
    snapshot::write(&dir.join(snapshot_name(number)), number, unnamed(records), None::<[&[u8]; 0]>)?;
    mark_begun(dir)?;
    tidy(dir, number)?;
    Ok(aside)
}

/// Gives to `each` the records of a journal that can be read, whatever stands between them: snapshots and logs that count or did, in
/// order. It is not what the journal knew; it says what it knew of.
///
/// # Errors
/// [`Failure`]: a file is there and cannot be read at all.
pub fn salvage(dir: &Path, mut each: impl FnMut(&[u8])) -> Result<(), Failure> {
    let (snapshots, logs) = numbers(dir)?;
    let mut files: Vec<(u64, String)> =
        snapshots.iter().map(|n| (*n, snapshot_name(*n))).chain(logs.iter().map(|n| (*n, log_name(*n)))).collect();
    files.sort_by_key(|(number, _)| *number);
    for (_, name) in files {
        let path = dir.join(name);
        let bytes = std::fs::read(&path).map_err(|e| Failure::new("read", &path, &e))?;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            // Most places are none where a frame may begin: the sum is looked at where one may.
            let found = if frame::may_begin(rest, |_, _| true) { frame::read(rest) } else { ReadFrame::Nothing };
            match found {
                ReadFrame::Frame(frame, length) => {
                    frame.records().for_each(&mut each);
                    at += length;
                }
                ReadFrame::Nothing => at += 1,
            }
        }
    }
    Ok(())
}
