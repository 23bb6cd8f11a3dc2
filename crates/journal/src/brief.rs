//! What stands behind the records of a snapshot for who opens the journal for one thing ([`crate::Journal::open_part`]): the state
//! in short, and where the records are that have a name. It says nothing that the records do not say: where there is none, or
//! where it is damaged, all of them are read.
//!
//! ```text
//!   ...      the snapshot's frames, the last of them without records
//!   brief    a frame: records that stand for all others
//!   pages    512 bytes each, their entries in order of the names:
//!              CRC-32 u32 of all behind it, count u32, entries
//!              entry: name u32, length u32, CRC-32 u32 of the record, where it begins u64
//!   end      magic u64, number u64, where the brief begins u64, pages u32, CRC-32 u32 of all before it
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::frame::{self, ReadFrame};

const MAGIC: [u8; 8] = *b"netloomB";
const PAGE: usize = 512;
const ENTRY: usize = 20;
/// Entries of a page.
const ROOM: usize = (PAGE - 8) / ENTRY;
const END: usize = 32;
/// The most bytes of a brief: who has more to say in short reads all as fast.
const MOST: usize = 1 << 20;

/// What records of a snapshot are found by. Two things may have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(u32);

/// Of what a record is that is read for one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordSource {
    /// Of the state in short.
    Brief,
    /// Of those with the name.
    Named,
    /// Of the log: it came after.
    Log,
}

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    name: Name,
    length: u32,
    crc: u32,
    at: u64,
}

/// The records of a snapshot that have names, as it is written.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<Entry>);

// === impl Name ===

impl Name {
    /// That of something with these parts.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        for part in parts {
            hasher.update(&part.len().to_le_bytes());
            hasher.update(part);
        }
        Name(hasher.finalize())
    }
}

// === impl Entry ===

impl Entry {
    fn encode(&self, to: &mut Vec<u8>) {
        [self.name.0, self.length, self.crc].iter().for_each(|field| to.extend(field.to_le_bytes()));
        to.extend(self.at.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (fields, at) = bytes.split_first_chunk::<12>()?;
        let [name, length, crc] = *fields.as_chunks::<4>().0 else { return None };
        let [name, length, crc] = [name, length, crc].map(u32::from_le_bytes);
        Some(Entry { name: Name(name), length, crc, at: u64::from_le_bytes(*at.first_chunk()?) })
    }
}

// === impl Places ===

impl Places {
    /// A record with this name begins at this byte.
    pub(crate) fn add(&mut self, name: Name, record: &[u8], at: u64) {
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.0.push(Entry { name, length, crc: crc32fast::hash(record), at });
    }

    /// Writes all that stands behind the records, the first byte of it being `at`.
    pub(crate) fn write<R: AsRef<[u8]>>(
        mut self,
        out: &mut impl Write,
        number: u64,
        at: u64,
        brief: impl IntoIterator<Item = R>,
    ) -> io::Result<()> {
        let mut records = Vec::new();
        brief.into_iter().for_each(|record| frame::put_record(&mut records, record.as_ref()));
        if records.len() > MOST {
            return Ok(());
        }
        out.write_all(&frame::frame(0, 0, &records))?;
        self.0.sort_unstable();
        for entries in self.0.chunks(ROOM) {
            let mut page = u32::try_from(entries.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
            entries.iter().for_each(|entry| entry.encode(&mut page));
            page.resize(PAGE - 4, 0);
            out.write_all(&crc32fast::hash(&page).to_le_bytes())?;
            out.write_all(&page)?;
        }
        let pages = u32::try_from(self.0.len().div_ceil(ROOM)).unwrap_or(u32::MAX);
        let end = [MAGIC, number.to_le_bytes(), at.to_le_bytes()];
        let end = [end.as_flattened(), &pages.to_le_bytes()].concat();
        out.write_all(&end)?;
        out.write_all(&crc32fast::hash(&end).to_le_bytes())
    }
}

/// What stands behind a snapshot's records, open.
pub(crate) struct Behind {
    file: File,
    brief_at: u64,
    pages_at: u64,
    pages: u64,
}

// === impl Behind ===

impl Behind {
    /// `None`, as for all of it: it is not there, or not sound.
    pub(crate) fn open(path: &Path, number: u64) -> Option<Self> {
        let file = File::open(path).ok()?;
        let end_at = file.metadata().ok()?.len().checked_sub(END as u64)?;
        let mut end = [0; END];
        file.read_exact_at(&mut end, end_at).ok()?;
        let (said, crc) = end.split_last_chunk::<4>()?;
        let [magic, n, brief_at, ..] = *said.as_chunks::<8>().0 else { return None };
        let pages = u64::from(u32::from_le_bytes(*said.last_chunk()?));
        if crc32fast::hash(said) != u32::from_le_bytes(*crc) || magic != MAGIC || n != number.to_le_bytes() {
            return None;
        }
        let pages_at = end_at.checked_sub(pages.checked_mul(PAGE as u64)?)?;
        Some(Behind { file, brief_at: u64::from_le_bytes(brief_at), pages_at, pages })
    }

    /// How many bytes all that is told in short has.
    pub(crate) fn size(&self) -> u64 {
        self.brief_at
    }

    /// Gives the brief, record by record.
    pub(crate) fn brief(&self, each: impl FnMut(&[u8])) -> Option<()> {
        let length = self.pages_at.checked_sub(self.brief_at).and_then(|n| usize::try_from(n).ok())?;
        let brief = self.bytes(self.brief_at, length.min(MOST + PAGE))?;
        let ReadFrame::Frame(frame, whole) = frame::read(&brief) else { return None };
        if whole != length {
            return None;
        }
        frame.records().for_each(each);
        Some(())
    }

    /// Gives the snapshot's records of this name.
    pub(crate) fn named(&self, name: Name, mut each: impl FnMut(&[u8])) -> Option<()> {
        for entry in self.find(name)? {
            let record = self.bytes(entry.at, usize::try_from(entry.length).ok().filter(|n| *n <= frame::MOST)?)?;
            if crc32fast::hash(&record) != entry.crc {
                return None;
            }
            each(&record);
        }
        Some(())
    }

    fn bytes(&self, at: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    fn page(&self, number: u64) -> Option<Vec<Entry>> {
        let bytes = self.bytes(self.pages_at + number * PAGE as u64, PAGE)?;
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        if crc32fast::hash(rest) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (count, entries) = rest.split_first_chunk::<4>()?;
        entries.chunks_exact(ENTRY).take(usize::try_from(u32::from_le_bytes(*count)).ok()?).map(Entry::decode).collect()
    }

    /// Those of a name. A dozen pages are looked at where there are a hundred thousand.
    fn find(&self, name: Name) -> Option<Vec<Entry>> {
        let (mut low, mut high) = (0, self.pages);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.page(middle)?.last()?.name < name { low = middle + 1 } else { high = middle }
        }
        let mut found = Vec::new();
        for number in low..self.pages {
            let page = self.page(number)?;
            found.extend(page.iter().filter(|entry| entry.name == name));
            if page.last()?.name > name {
                break;
            }
        }
        Some(found)
    }
}
