//! A snapshot: the records that make the state of a moment, complete or not there.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::brief::{Name, Places};
use crate::frame::{self, FILE_HEADER, ReadFrame};
use crate::{Failure, OpenError};

/// So many bytes of records in a frame.
const PART: usize = 1 << 20;

/// Writes one beside its place, and renames it when it is on the disk. The last frame has no records, and the number behind
/// the last one's. `brief`, if any, stands for all records, and those that have a name are found by it.
pub(crate) fn write<R: AsRef<[u8]>, B: AsRef<[u8]>>(
    path: &Path,
    number: u64,
    records: impl IntoIterator<Item = (Option<Name>, R)>,
    brief: Option<impl IntoIterator<Item = B>>,
) -> Result<(), Failure> {
    let beside = path.with_extension("unfinished");
    write_beside(&beside, path, number, records, brief).inspect_err(|_| drop(std::fs::remove_file(&beside)))?;
    linux::crash_point!("journal-snapshot-written");
    std::fs::rename(&beside, path).map_err(|e| Failure::new("name", path, &e))?;
    linux::crash_point!("journal-snapshot-named");
    Ok(linux::file::sync_folder(path)?)
}

/// Writes it, to the disk, under a name by which nobody takes it for one.
fn write_beside<R: AsRef<[u8]>, B: AsRef<[u8]>>(
    beside: &Path,
    path: &Path,
    number: u64,
    records: impl IntoIterator<Item = (Option<Name>, R)>,
    brief: Option<impl IntoIterator<Item = B>>,
) -> Result<(), Failure> {
    let failed = |step| move |e: std::io::Error| Failure::new(step, path, &e);
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).custom_flags(linux::file::IN_PLACE).open(beside);
    let mut out = BufWriter::new(file.map_err(failed("make"))?);
    write_all(&mut out, number, records, brief).map_err(failed("write"))?;
    let file = out.into_inner().map_err(|e| Failure::new("write", path, e.error()))?;
    file.sync_all().map_err(failed("flush"))
}

fn write_all<R: AsRef<[u8]>, B: AsRef<[u8]>>(
    out: &mut impl Write,
    number: u64,
    records: impl IntoIterator<Item = (Option<Name>, R)>,
    brief: Option<impl IntoIterator<Item = B>>,
) -> io::Result<()> {
    out.write_all(&frame::file_header(number, 0))?;
    let (mut part, mut first, mut next) = (Vec::new(), 0, 0);
    let (mut at, mut places) = (FILE_HEADER, Places::default());
    for (name, record) in records {
        let record = record.as_ref();
        frame::put_record(&mut part, record);
        if let Some(name) = name {
            places.add(name, record, (at + frame::HEADER + part.len() - record.len()) as u64);
        }
        next += 1;
        if part.len() >= PART {
            out.write_all(&frame::frame(0, first, &part))?;
            at += frame::HEADER + part.len();
            part.clear();
            first = next;
        }
    }
    if !part.is_empty() {
        out.write_all(&frame::frame(0, first, &part))?;
        at += frame::HEADER + part.len();
    }
    out.write_all(&frame::frame(0, next, &[]))?;
    brief.map_or(Ok(()), |brief| places.write(out, number, (at + frame::HEADER) as u64, brief))
}

/// Reads one, record by record: all of them.
pub(crate) fn read(path: &Path, number: u64, mut each: impl FnMut(&[u8])) -> Result<(), OpenError> {
    let bytes = std::fs::read(path).map_err(|e| Failure::new("read", path, &e))?;
    let damaged = |at: usize| OpenError::Damaged { path: path.to_owned(), at: at as u64 };
    if frame::first_of_file(&bytes, number).is_none() {
        return Err(damaged(0));
    }
    let (mut at, mut next) = (FILE_HEADER, 0);
    while let ReadFrame::Frame(frame, length) = frame::read(bytes.get(at..).unwrap_or_default()) {
        if frame.first != next {
            return Err(damaged(at));
        }
        let before = next;
        for record in frame.records() {
            each(record);
            next += 1;
        }
        at += length;
        // What stands behind it is a brief, and says nothing new.
        if next == before {
            return Ok(());
        }
    }
    Err(damaged(at))
}
