//! What stands on the disk: frames, each with the records that one write made durable.
//!
//! ```text
//!   file    magic u64, number u64, first record's number u64, frame, frame, ..., zeros
//!   frame   length u32, CRC-32 u32 of all behind it, attempt u32, first record's number u64, records
//!   record  length u32, bytes
//! ```
//!
//! Numbers are little-endian. A frame is there as a whole or not at all: a power cut may leave any part of the last one. One
//! that was not finished is written over by the next attempt, whose number is higher, so that what is left of it behind the
//! new one is not taken for a frame that follows.

/// Begins every file of ours.
pub(crate) const MAGIC: [u8; 8] = *b"netloomJ";
/// Magic, number, and the first record's number.
pub(crate) const FILE_HEADER: usize = 24;
/// Length, CRC, attempt and first number.
pub(crate) const HEADER: usize = 20;
/// The most bytes of records in a frame.
pub(crate) const MOST: usize = 16 << 20;

/// A frame that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) attempt: u32,
    pub(crate) first: u64,
    records: &'a [u8],
}

/// What stands at a place of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadFrame<'a> {
    /// A frame, and how many bytes it has.
    Frame(Frame<'a>, usize),
    /// Nothing that can be read.
    Nothing,
}

/// The beginning of a file whose first record has this number.
pub(crate) fn file_header(number: u64, first: u64) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    let fields = [MAGIC, number.to_le_bytes(), first.to_le_bytes()];
    header.iter_mut().zip(fields.as_flattened()).for_each(|(to, from)| *to = *from);
    header
}

/// The number of the first record of the file with this number; `None`: it is no such file.
pub(crate) fn first_of_file(bytes: &[u8], number: u64) -> Option<u64> {
    let (fields, _) = bytes.as_chunks::<8>();
    match fields {
        [magic, n, first, ..] if *magic == MAGIC && *n == number.to_le_bytes() => Some(u64::from_le_bytes(*first)),
        _ => None,
    }
}

/// Records, one behind the other, as a frame takes them.
pub(crate) fn put_record(into: &mut Vec<u8>, record: &[u8]) {
    into.extend(u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes());
    into.extend(record);
}

/// How many bytes of a frame a record takes.
pub(crate) fn record_size(record: &[u8]) -> usize {
    4 + record.len()
}

/// A frame of these records, which are as [`put_record`] writes them and at most [`MOST`] bytes.
pub(crate) fn frame(attempt: u32, first: u64, records: &[u8]) -> Vec<u8> {
    let mut behind = Vec::with_capacity(HEADER + records.len());
    behind.extend(attempt.to_le_bytes());
    behind.extend(first.to_le_bytes());
    behind.extend(records);
    let length = u32::try_from(records.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(HEADER + records.len());
    frame.extend(length.to_le_bytes());
    frame.extend(sum(length, &behind).to_le_bytes());
    frame.extend(behind);
    frame
}

/// The length is part of it: with a wrong one other bytes would be summed, and by chance rightly.
fn sum(length: u32, behind: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(behind);
    hasher.finalize()
}

/// Whether a frame of such an attempt and first number may begin here, by its length, its numbers and its records' lengths: only where it may
/// is the sum of all of it looked at.
pub(crate) fn may_begin(bytes: &[u8], is_meant: impl Fn(u32, u64) -> bool) -> bool {
    let header = || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (_, behind) = rest.split_first_chunk::<4>()?;
        let (attempt, rest) = behind.split_first_chunk::<4>()?;
        let (first, records) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|n| *n <= MOST)?;
        is_meant(u32::from_le_bytes(*attempt), u64::from_le_bytes(*first)).then_some(records.get(..length)?)
    };
    header().is_some_and(|records| split(records).map(|record| 4 + record.len()).sum::<usize>() == records.len())
}

/// What the frame says that was begun here: its attempt, its first number, and how many bytes it has.
pub(crate) fn begun(bytes: &[u8]) -> Option<(u32, u64, usize)> {
    let mut header = [0; HEADER];
    header.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let (length, rest) = header.split_first_chunk::<4>()?;
    let (attempt, rest) = rest.get(4..)?.split_first_chunk::<4>()?;
    let records = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|n| *n <= MOST)?;
    Some((u32::from_le_bytes(*attempt), u64::from_le_bytes(*rest.first_chunk()?), HEADER + records))
}

/// The frame that begins here.
pub(crate) fn read(bytes: &[u8]) -> ReadFrame<'_> {
    parse(bytes).unwrap_or(ReadFrame::Nothing)
}

fn parse(bytes: &[u8]) -> Option<ReadFrame<'_>> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (crc, behind) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let long = usize::try_from(length).ok().filter(|n| *n <= MOST)?;
    let behind = behind.get(..long.checked_add(12)?)?;
    if sum(length, behind) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (attempt, rest) = behind.split_first_chunk::<4>()?;
    let (first, records) = rest.split_first_chunk::<8>()?;
    let frame = Frame { attempt: u32::from_le_bytes(*attempt), first: u64::from_le_bytes(*first), records };
    Some(ReadFrame::Frame(frame, HEADER + long))
}

// === impl Frame ===

impl<'a> Frame<'a> {
    /// Its records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        split(self.records)
    }
}

fn split(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (record, left) = behind.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        rest = left;
        Some(record)
    })
}
