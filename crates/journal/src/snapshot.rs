//! A snapshot: the records that make the state of a moment, complete or not there.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::frame::{self, FILE_HEADER, Found};
use crate::{Failure, OpenError};

/// So many bytes of records in a frame.
const PART: usize = 1 << 20;

/// Writes one beside its place, and renames it when it is on the disk. The last frame has no records, and the number behind
/// the last one's.
pub(crate) fn write<R: AsRef<[u8]>>(path: &Path, number: u64, records: impl IntoIterator<Item = R>) -> Result<(), Failure> {
    let beside = path.with_extension("unfinished");
    let failed = |step| move |e: std::io::Error| Failure::new(step, path, &e);
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).custom_flags(linux::file::IN_PLACE).open(&beside);
    let mut out = BufWriter::new(file.map_err(failed("make"))?);
    out.write_all(&frame::file_header(number, 0)).map_err(failed("write"))?;
    let (mut part, mut first, mut next) = (Vec::new(), 0, 0);
    for record in records {
        frame::put_record(&mut part, record.as_ref());
        next += 1;
        if part.len() >= PART {
            out.write_all(&frame::frame(0, first, &part)).map_err(failed("write"))?;
            part.clear();
            first = next;
        }
    }
    if !part.is_empty() {
        out.write_all(&frame::frame(0, first, &part)).map_err(failed("write"))?;
    }
    out.write_all(&frame::frame(0, next, &[])).map_err(failed("write"))?;
    let file = out.into_inner().map_err(|e| Failure::new("write", path, e.error()))?;
    file.sync_all().map_err(failed("flush"))?;
    linux::crash_point!("journal-snapshot-written");
    std::fs::rename(&beside, path).map_err(failed("name"))?;
    linux::crash_point!("journal-snapshot-named");
    Ok(linux::file::sync_folder(path)?)
}

/// Reads one, record by record.
pub(crate) fn read(path: &Path, number: u64, mut each: impl FnMut(&[u8])) -> Result<(), OpenError> {
    let bytes = std::fs::read(path).map_err(|e| Failure::new("read", path, &e))?;
    let damaged = |at: usize| OpenError::Damaged { path: path.to_owned(), at: at as u64 };
    if frame::first_of_file(&bytes, number).is_none() {
        return Err(damaged(0));
    }
    let (mut at, mut next) = (FILE_HEADER, 0);
    while let Found::Frame(frame, length) = frame::read(bytes.get(at..).unwrap_or_default()) {
        if frame.first != next {
            return Err(damaged(at));
        }
        let before = next;
        for record in frame.records() {
            each(record);
            next += 1;
        }
        at += length;
        if next == before && at == bytes.len() {
            return Ok(());
        }
    }
    Err(damaged(at))
}
