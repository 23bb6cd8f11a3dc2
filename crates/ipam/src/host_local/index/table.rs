//! A hash table in pages of a file. A look-up or a change touches one or two pages, whatever the table holds.
//!
//! ```text
//! page: checksum 8 | passed 4 | count 4 | records          little-endian, 512 bytes
//! ```
//!
//! A record lives in its home page or, if that is full, in the first page behind it that is not. `passed` says how many
//! records live behind a page though their home is that page or one before it, so a search knows where to end, and a
//! removal leaves no tombstone that would make later searches longer.
//!
//! A page that cannot be read, or is not what was written, counts as empty, and the file as broken: the caller looks at
//! [`Disk::is_broken`] before it believes anything.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

/// Bytes of a page.
pub(super) const PAGE: usize = 512;
const HEAD: usize = 16;

/// What stands in a table.
pub(super) trait Record: Copy {
    /// Bytes of one record.
    const SIZE: usize;
    /// A number that spreads the records over the pages.
    fn home(&self) -> u64;
    fn encode(&self, to: &mut Vec<u8>);
    fn decode(from: &[u8]) -> Option<Self>;
}

/// The file that pages are read from.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) file: File,
    /// Part of every checksum: a page of an older file in the same place is none.
    pub(super) nonce: u64,
    broken: Cell<bool>,
}

#[derive(Debug)]
struct Page<R> {
    records: Vec<R>,
    passed: u32,
    changed: bool,
}

#[derive(Debug)]
enum Pages<R> {
    /// All of them, in memory.
    Whole(Vec<Page<R>>),
    /// Those that were needed so far.
    Part(Rc<Disk>, BTreeMap<u32, Page<R>>),
}

/// The table.
#[derive(Debug)]
pub(super) struct Table<R> {
    pages: Pages<R>,
    /// Where in the file its first page is, counted in pages.
    first: u32,
    total: u32,
    records: u64,
}

/// Where a table is and what it holds, as it is noted in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    pub(super) first: u32,
    pub(super) total: u32,
    pub(super) records: u64,
}

/// A checksum over whole words; any change of one word changes it. Not against forgery: whoever may write the file may
/// write the addresses' files.
pub(super) fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let step = |h: u64, w: u64| (h ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let h = words.iter().fold(seed ^ bytes.len() as u64, |h, w| step(h, u64::from_le_bytes(*w)));
    mix(rest.iter().fold(h, |h, b| step(h, u64::from(*b))))
}

/// Spreads a number over all its bits (the finalizer of SplitMix64).
pub(super) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

// === impl Disk ===

impl Disk {
    pub(super) fn new(file: File, nonce: u64) -> Rc<Self> {
        Rc::new(Disk { file, nonce, broken: Cell::new(false) })
    }

    /// Whether a page was not what was written.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    fn read<R: Record>(&self, number: u32) -> Page<R> {
        let mut bytes = [0; PAGE];
        let read = self.file.read_exact_at(&mut bytes, offset(number));
        read.ok().and_then(|()| Page::decode(self.nonce, number, &bytes)).unwrap_or_else(|| {
            self.broken.set(true);
            Page::empty()
        })
    }
}

// Who cannot write does as little as who has been killed: so a test stops a writer before any of its writes.
#[cfg(test)]
thread_local! {
    pub(in super::super) static WRITES_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Writes pages, the first of which is `number`.
pub(super) fn write(file: &File, bytes: &[u8], number: u32) -> io::Result<()> {
    #[cfg(test)]
    WRITES_LEFT.set(WRITES_LEFT.get().checked_sub(1).ok_or(io::ErrorKind::Interrupted)?);
    file.write_all_at(bytes, offset(number))
}

/// Where a page begins, in bytes.
pub(super) fn offset(number: u32) -> u64 {
    u64::from(number) * PAGE as u64
}

// === impl Page ===

impl<R: Record> Page<R> {
    const ROOM: usize = (PAGE - HEAD) / R::SIZE;

    fn empty() -> Self {
        Page { records: Vec::new(), passed: 0, changed: false }
    }

    fn encode(&self, nonce: u64, number: u32, to: &mut Vec<u8>) {
        let begin = to.len();
        to.extend([0; 8]);
        to.extend(self.passed.to_le_bytes());
        to.extend((self.records.len() as u32).to_le_bytes());
        self.records.iter().for_each(|r| r.encode(to));
        to.resize(begin + PAGE, 0);
        let sum = to.get(begin + 8..).map(|body| checksum(nonce ^ mix(u64::from(number)), body)).unwrap_or_default();
        if let Some(place) = to.get_mut(begin..begin + 8) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
    }

    fn decode(nonce: u64, number: u32, bytes: &[u8; PAGE]) -> Option<Self> {
        let (sum, body) = bytes.split_first_chunk()?;
        if u64::from_le_bytes(*sum) != checksum(nonce ^ mix(u64::from(number)), body) {
            return None;
        }
        let (passed, rest) = body.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok().filter(|count| *count <= Self::ROOM)?;
        let records = rest.chunks_exact(R::SIZE).take(count).map(R::decode).collect::<Option<Vec<R>>>()?;
        Some(Page { records, passed: u32::from_le_bytes(*passed), changed: false })
    }
}

// === impl Table ===

impl<R: Record> Table<R> {
    /// An empty table in memory with room for so many records; it grows by itself.
    pub(super) fn with_room(records: usize) -> Self {
        let total = u32::try_from(records * 2 / Page::<R>::ROOM).unwrap_or(u32::MAX).max(4);
        Table { pages: Pages::Whole((0..total).map(|_| Page::empty()).collect()), first: 0, total, records: 0 }
    }

    /// The table in a file; nothing is read yet.
    pub(super) fn on(disk: &Rc<Disk>, extent: Extent) -> Self {
        let Extent { first, total, records } = extent;
        Table { pages: Pages::Part(Rc::clone(disk), BTreeMap::new()), first, total: total.max(1), records }
    }

    /// Where it will be in a file in which it begins at page `first`.
    pub(super) fn place(&mut self, first: u32) -> Extent {
        self.first = first;
        self.extent()
    }

    pub(super) fn extent(&self) -> Extent {
        Extent { first: self.first, total: self.total, records: self.records }
    }

    /// Whether all of it is in memory, so that none of it may be as the file has it.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.pages, Pages::Whole(_))
    }

    /// Shows every record of a home, and others that share its pages.
    pub(super) fn each_at(&mut self, home: u64, mut see: impl FnMut(&R)) {
        for number in self.walk(home) {
            let page = self.page(number);
            page.records.iter().for_each(&mut see);
            if page.passed == 0 {
                return;
            }
        }
    }

    pub(super) fn insert(&mut self, record: R) {
        // Beyond three quarters many pages would run over.
        if (self.records + 1) * 4 > u64::from(self.total) * Page::<R>::ROOM as u64 * 3 {
            self.grow();
        }
        for number in self.walk(record.home()) {
            let page = self.page(number);
            page.changed = true;
            if page.records.len() < Page::<R>::ROOM {
                page.records.push(record);
                self.records += 1;
                return;
            }
            page.passed += 1;
        }
    }

    /// Takes one record out.
    pub(super) fn remove(&mut self, home: u64, wanted: impl Fn(&R) -> bool) -> Option<R> {
        let mut passed = Vec::new();
        for number in self.walk(home) {
            let page = self.page(number);
            if let Some(at) = page.records.iter().position(&wanted) {
                let found = page.records.swap_remove(at);
                page.changed = true;
                for number in passed {
                    let page = self.page(number);
                    page.passed = page.passed.saturating_sub(1);
                    page.changed = true;
                }
                self.records = self.records.saturating_sub(1);
                return Some(found);
            }
            if page.passed == 0 {
                return None;
            }
            passed.push(number);
        }
        None
    }

    /// Brings all of it into memory.
    pub(super) fn load(&mut self) {
        if !self.is_whole() {
            let pages = (0..self.total).map(|n| std::mem::replace(self.page(n), Page::empty())).collect();
            self.pages = Pages::Whole(pages);
        }
    }

    /// Appends all pages; the table is whole.
    pub(super) fn encode(&self, nonce: u64, to: &mut Vec<u8>) {
        if let Pages::Whole(pages) = &self.pages {
            pages.iter().zip(self.first..).for_each(|(page, number)| page.encode(nonce, number, to));
        }
    }

    /// Writes the pages that have changed; the table is in a file.
    pub(super) fn write(&self) -> io::Result<()> {
        let Pages::Part(disk, pages) = &self.pages else { return Ok(()) };
        for (number, page) in pages.iter().filter(|(_, page)| page.changed) {
            let (number, mut bytes) = (self.first + number, Vec::with_capacity(PAGE));
            page.encode(disk.nonce, number, &mut bytes);
            write(&disk.file, &bytes, number)?;
        }
        Ok(())
    }

    /// The pages in which a record may be, in order.
    fn walk(&self, home: u64) -> impl Iterator<Item = u32> + use<R> {
        let total = self.total;
        let home = u32::try_from(mix(home) % u64::from(total)).unwrap_or_default();
        (home..total).chain(0..home)
    }

    fn page(&mut self, number: u32) -> &mut Page<R> {
        match &mut self.pages {
            Pages::Part(disk, pages) => pages.entry(number).or_insert_with(|| disk.read(self.first + number)),
            Pages::Whole(pages) => {
                let at = number as usize;
                if pages.len() <= at {
                    pages.resize_with(at + 1, Page::empty);
                }
                #[allow(clippy::indexing_slicing, reason = "made long enough above")]
                &mut pages[at]
            }
        }
    }

    /// Twice the pages. It costs as much as the table is large, and happens once for each doubling.
    fn grow(&mut self) {
        self.load();
        let total = self.total.saturating_mul(2);
        let larger = Table { pages: Pages::Whole((0..total).map(|_| Page::empty()).collect()), first: 0, total, records: 0 };
        let old = std::mem::replace(self, larger);
        if let Pages::Whole(pages) = old.pages {
            pages.into_iter().flat_map(|page| page.records).for_each(|record| self.insert(record));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Pair(u64, u64);

    impl Record for Pair {
        const SIZE: usize = 100;
        fn home(&self) -> u64 {
            self.0
        }
        fn encode(&self, to: &mut Vec<u8>) {
            to.extend(self.0.to_le_bytes().into_iter().chain(self.1.to_le_bytes()).chain([0; 84]));
        }
        fn decode(from: &[u8]) -> Option<Self> {
            let (a, rest) = from.split_first_chunk()?;
            Some(Pair(u64::from_le_bytes(*a), u64::from_le_bytes(*rest.first_chunk()?)))
        }
    }

    fn found(table: &mut Table<Pair>, home: u64) -> Vec<u64> {
        let mut all = Vec::new();
        table.each_at(home, |p| all.extend((p.0 == home).then_some(p.1)));
        all.sort();
        all
    }

    /// Pages with room for four run over all the time; still a search ends where nothing more can be.
    #[test]
    fn a_table_is_a_map() {
        let mut table: Table<Pair> = Table::with_room(0);
        let mut model: Vec<Pair> = Vec::new();
        let mut state = 1_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        for step in 0..20_000 {
            let pair = Pair(random(60), random(6));
            if random(2) == 0 && model.len() < 300 && !model.contains(&pair) {
                table.insert(pair);
                model.push(pair);
            } else {
                let was = model.iter().position(|p| *p == pair).map(|at| model.swap_remove(at));
                assert_eq!(table.remove(pair.0, |p| *p == pair), was, "{step}");
            }
            let mut expected: Vec<u64> = model.iter().filter(|p| p.0 == pair.0).map(|p| p.1).collect();
            expected.sort();
            assert_eq!(found(&mut table, pair.0), expected, "{step}");
        }
        for pair in model {
            assert_eq!(table.remove(pair.0, |p| *p == pair), Some(pair));
        }
        let Pages::Whole(pages) = &table.pages else { panic!() };
        assert!(pages.iter().all(|p| p.records.is_empty() && p.passed == 0));
        assert_eq!(table.records, 0);
    }

    #[test]
    fn every_changed_bit_of_a_page_is_seen() {
        let mut page: Page<Pair> = Page::empty();
        page.records = vec![Pair(1, 2), Pair(3, 4)];
        let mut bytes = Vec::new();
        page.encode(9, 7, &mut bytes);
        let good: [u8; PAGE] = bytes.try_into().unwrap();
        assert_eq!(Page::<Pair>::decode(9, 7, &good).unwrap().records, page.records);
        assert!(Page::<Pair>::decode(9, 8, &good).is_none() && Page::<Pair>::decode(8, 7, &good).is_none());
        for bit in 0..PAGE * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Page::<Pair>::decode(9, 7, &bad).is_none(), "{bit}");
        }
        assert!(Page::<Pair>::decode(0, 0, &[0; PAGE]).is_none());
    }
}
