//! One log: a file that grows at its end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::frame::{self, FILE_HEADER, ReadFrame};
use crate::{Failure, OpenError};

/// So much is made at once, with its blocks, so that a write in it changes no metadata: it costs one flush of data.
const CHUNK: u64 = 256 << 10;
/// So much is read at once.
const PIECE: usize = 16 << 10;

/// A log that is written to.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) path: PathBuf,
    file: File,
    /// Where the next frame begins.
    end: u64,
    /// How far there are blocks.
    made: u64,
    attempt: u32,
    /// The number of the next record.
    next: u64,
}

/// What a log has.
pub(crate) struct Scanned {
    pub(crate) end: u64,
    pub(crate) attempt: u32,
    first: u64,
    pub(crate) next: u64,
    /// Another log follows: nothing is appended to this one any more.
    pub(crate) closed: bool,
    /// It has no header yet.
    blank: bool,
}

/// How long a log must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// It got its name with its header and its room on the disk, and room is made before anything is written there: less was cut off.
    Whole,
    /// A release before this one may have been killed while it made it.
    Any,
}

/// Reads a log, record by record. `next` is the number that its first record must have, where that is known. What stands behind
/// the last frame is a write that was not finished, unless another frame stands behind that, or the file ends in it: then something
/// is lost.
pub(crate) fn scan(path: &Path, number: u64, next: Option<u64>, made: Length, mut each: impl FnMut(&[u8])) -> Result<Scanned, OpenError> {
    let (mut bytes, length) = read(path).map_err(|e| Failure::new("read", path, &e))?;
    let Some(first) = frame::first_of_file(&bytes, number) else {
        // One that was made just before a power cut may have nothing: nobody has been told of anything in it.
        let blank = made == Length::Any && bytes.iter().all(|b| *b == 0);
        let first = next.unwrap_or(0);
        let nothing = Scanned { end: FILE_HEADER as u64, attempt: 0, first, next: first, closed: false, blank: true };
        return if blank { Ok(nothing) } else { Err(damaged(path, 0)) };
    };
    if next.is_some_and(|next| next != first) {
        return Err(damaged(path, 0));
    }
    let mut scanned = Scanned { end: FILE_HEADER as u64, attempt: 0, first, next: first, closed: false, blank: false };
    let mut at = FILE_HEADER;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let ReadFrame::Frame(frame, size) = frame::read(rest) else {
            if bytes.len() == length || used(rest).is_none() {
                break;
            }
            // It may be a frame that ends in zeros.
            bytes.resize(length, 0);
            continue;
        };
        if frame.attempt < scanned.attempt {
            break;
        }
        if frame.first != scanned.next {
            return Err(damaged(path, at as u64));
        }
        scanned.attempt = frame.attempt;
        let before = scanned.next;
        for record in frame.records() {
            each(record);
            scanned.next += 1;
        }
        scanned.closed = scanned.next == before;
        at += size;
    }
    scanned.end = at as u64;
    let rest = bytes.get(at..).unwrap_or_default();
    let is_lost = is_followed(rest, &scanned) || (made == Length::Whole && is_cut(rest, &scanned, length));
    if is_lost { Err(damaged(path, scanned.end)) } else { Ok(scanned) }
}

/// Whether the end of a file is missing, which is so long: what stands behind its last frame.
fn is_cut(rest: &[u8], last: &Scanned, length: usize) -> bool {
    let chunk = usize::try_from(CHUNK).unwrap_or(usize::MAX);
    let end = usize::try_from(last.end).unwrap_or(usize::MAX);
    // A frame that was begun has had room for all of it. Other bytes are what is left of one that was not finished.
    let is_begun = |attempt, first| attempt >= last.attempt && first == last.next;
    let needs = frame::begun(rest).filter(|(attempt, first, _)| is_begun(*attempt, *first)).map_or(0, |(_, _, size)| size);
    // What somebody was killed over while he made room is never filled: room is made in whole pieces from there on.
    let is_odd = !length.is_multiple_of(chunk) && (end == length || used(rest).is_some() && end.saturating_add(frame::HEADER) > length);
    length < chunk || is_odd || end.saturating_add(needs) > length
}

/// What a log has, without zeros at its end, and its length with them. Most of it is room that nobody has written to: that gets no
/// memory.
fn read(path: &Path) -> io::Result<(Vec<u8>, usize)> {
    let mut file = File::open(path)?;
    let (mut bytes, mut length, mut piece) = (Vec::new(), 0, [0; PIECE]);
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => return Ok((bytes, length)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let piece = piece.get(..read).unwrap_or_default();
        if used(piece).is_some() {
            bytes.resize(length, 0);
            bytes.extend(piece);
        }
        length += read;
    }
}

fn damaged(path: &Path, at: u64) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), at }
}

/// Whether a frame that was finished stands further behind. One of an attempt before the last one's was not: it would have
/// followed what it stands behind now.
fn is_followed(rest: &[u8], last: &Scanned) -> bool {
    let Some(used) = used(rest) else { return false };
    (1..=used).any(|at| {
        let here = rest.get(at..).unwrap_or_default();
        // Each record that stands before it has its length there: other bytes are hardly ever such a number.
        let most = last.next.saturating_add(at as u64 / 4);
        let is_meant = |attempt, first| attempt >= last.attempt && first > last.next && first <= most;
        frame::may_begin(here, is_meant) && frame::read(here) != ReadFrame::Nothing
    })
}

/// The last byte that is not zero. Most of a log is: it is looked at by words.
fn used(bytes: &[u8]) -> Option<usize> {
    let words = bytes.rchunks_exact(16);
    let zeros = words.take_while(|word| word.first_chunk().is_some_and(|word| u128::from_ne_bytes(*word) == 0)).count();
    let rest = bytes.get(..bytes.len() - zeros * 16)?;
    rest.iter().rposition(|b| *b != 0)
}

// === impl Log ===

impl Log {
    /// A log that nobody has written to. It has its name when its header and its room are on the disk: whoever finds less in one has
    /// found damage, wherever who made it was killed.
    pub(crate) fn create(path: PathBuf, number: u64, next: u64) -> Result<Self, Failure> {
        let beside = path.with_extension("log.unfinished");
        let mut log = Log::make(&beside, number, next).inspect_err(|_| drop(std::fs::remove_file(&beside)))?;
        linux::crash_point!("journal-log-made");
        std::fs::rename(&beside, &path).map_err(|e| Failure::new("name", &path, &e))?;
        linux::crash_point!("journal-log-named");
        log.path = path;
        // Its name too: without it a power cut would take all that is appended.
        linux::file::sync_folder(&log.path)?;
        Ok(log)
    }

    fn make(path: &Path, number: u64, next: u64) -> Result<Self, Failure> {
        let file = options().create(true).truncate(true).open(path).map_err(|e| Failure::new("make", path, &e))?;
        let mut log = Log { path: path.to_owned(), file, end: FILE_HEADER as u64, made: 0, attempt: 1, next };
        log.grow(CHUNK)?;
        log.begin(number, next)?;
        Ok(log)
    }

    /// Goes on with one. What a release before this one was killed over while it made it is made whole, on the disk.
    pub(crate) fn resume(path: PathBuf, number: u64, scanned: &Scanned) -> Result<Self, Failure> {
        let file = options().open(&path).map_err(|e| Failure::new("open", &path, &e))?;
        let long = file.metadata().map_err(|e| Failure::new("look at", &path, &e))?.len();
        // A part of a piece is what somebody was killed over: it is made again as a whole.
        let made = (long - long % CHUNK).max(scanned.end);
        let mut log = Log { path, file, end: scanned.end, made, attempt: scanned.attempt.saturating_add(1), next: scanned.next };
        if long < CHUNK {
            log.grow(CHUNK)?;
        }
        if scanned.blank {
            log.begin(number, scanned.first)?;
        }
        Ok(log)
    }

    /// Its header comes first, and is part of what there is.
    fn begin(&self, number: u64, first: u64) -> Result<(), Failure> {
        self.file.write_all_at(&frame::file_header(number, first), 0).map_err(|e| Failure::new("write", &self.path, &e))?;
        self.file.sync_all().map_err(|e| Failure::new("flush", &self.path, &e))
    }

    /// Says that another log follows; before that there is room for this.
    pub(crate) fn close(&mut self) -> Result<(), Failure> {
        self.write(&[], 0)
    }

    /// Makes room for the end of it, so that nothing but a disk that is broken is in the way of [`Log::close`].
    pub(crate) fn prepare_close(&mut self) -> Result<(), Failure> {
        let end = self.end + frame::HEADER as u64;
        if end > self.made { self.grow(end.next_multiple_of(CHUNK)) } else { Ok(()) }
    }

    /// The number of the next record.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// How many bytes it has.
    pub(crate) fn size(&self) -> u64 {
        self.end
    }

    /// Writes `count` records; they are on the disk when it returns. After a failure none of them is, for who reads it again.
    pub(crate) fn write(&mut self, records: &[u8], count: u64) -> Result<(), Failure> {
        // Nobody would read it.
        if records.len() > frame::MOST {
            let reason = format!("a record has more than {} bytes", frame::MOST);
            return Err(Failure { step: "write", path: self.path.clone(), reason, errno: 0 });
        }
        let frame = frame::frame(self.attempt, self.next, records);
        let end = self.end + frame.len() as u64;
        let written = self.put(&frame, end);
        match written {
            Ok(()) => {
                self.end = end;
                self.next += count;
            }
            // What has reached the disk of it is written over, and known by its attempt where it is longer.
            Err(_) => self.attempt = self.attempt.saturating_add(1),
        }
        written
    }

    fn put(&mut self, frame: &[u8], end: u64) -> Result<(), Failure> {
        if end > self.made {
            self.grow(end.next_multiple_of(CHUNK))?;
        }
        linux::crash_point!("journal-unwritten");
        self.file.write_all_at(frame, self.end).map_err(|e| Failure::new("write", &self.path, &e))?;
        linux::crash_point!("journal-written");
        self.file.sync_data().map_err(|e| Failure::new("flush", &self.path, &e))?;
        linux::crash_point!("journal-flushed");
        Ok(())
    }

    fn grow(&mut self, to: u64) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::new("make room in", &self.path, &e);
        // Not `fallocate`: what it makes is not written yet for the file system, whose own journal each first write would change.
        let zeros = vec![0; usize::try_from(to.saturating_sub(self.made)).unwrap_or(0)];
        self.file.write_all_at(&zeros, self.made).map_err(failed)?;
        self.file.sync_all().map_err(failed)?;
        self.made = to;
        Ok(())
    }
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.write(true).mode(0o600).custom_flags(linux::file::IN_PLACE);
    options
}
