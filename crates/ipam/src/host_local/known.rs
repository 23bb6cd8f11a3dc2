//! What is known of a network's directory while it is locked: what the index says, or what all its files say.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::failure::IoFailure;
use super::files::{self, Entry, Reader};
use super::free::next_free;
use super::index::{Index, LEAST, Stamp, key};
use super::lock::Lock;
use super::owner::{Match, Owner};
use crate::range::{Range, RangeSet, address};

/// The files that name an owner, in no order, each with its content's key.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// Those that name container and interface.
    pub(super) exact: Vec<(Entry, u64)>,
    /// Those that name only the container.
    pub(super) by_id: Vec<(Entry, u64)>,
}

/// The index may be wrong: the files have to be read.
#[derive(Debug)]
pub(super) struct Doubt;

/// What is known. It is of use only while the lock is held.
#[derive(Debug)]
pub(super) struct AddressIndex<'a> {
    dir: &'a Path,
    /// Whether the lock lets us change something.
    write: bool,
    /// Open, to ask for its times and to set them; `None` if there is to be no index.
    handle: Option<File>,
    path: PathBuf,
    index: Index,
    /// All files have been read by this call: nothing can be known better.
    read: bool,
    /// Files with another name than ours for their address, as `0:0::1`. The reference plugin does not write them, and an
    /// index cannot tell two names of one address apart.
    odd: Vec<Entry>,
    /// Somebody who does not care for the lock has changed something since.
    outdated: bool,
    /// The first file that could not be read.
    pub(super) unread: Option<IoFailure>,
}

// === impl AddressIndex ===

impl<'a> AddressIndex<'a> {
    /// What the index says, if it can be believed.
    pub(super) fn indexed(dir: &'a Path, write: bool) -> Option<Self> {
        let path = index_path(dir)?;
        std::fs::symlink_metadata(&path).ok().filter(Metadata::is_file)?;
        let handle = File::open(dir).ok()?;
        let index = Index::open(&path, &handle, write)?;
        Some(AddressIndex { dir, write, handle: Some(handle), path, index, read: false, odd: Vec::new(), outdated: false, unread: None })
    }

    /// What the files say, all of them; each is shown with its content (`Err` if it cannot be read).
    pub(super) fn read(dir: &'a Path, write: bool, mut see: impl FnMut(&Entry, Result<&[u8], IoFailure>)) -> Result<Self, IoFailure> {
        let mut entries = files::list(dir)?;
        let mut handle = None;
        if write && entries.len() >= LEAST {
            // Reading many files takes a while: the stamp shows whether somebody came between who took no lock.
            handle = File::open(dir).ok().and_then(|handle| Some((Stamp::put(&handle).ok()??, handle)));
            entries = files::list(dir)?;
        }
        let (mut index, mut reader) = (Index::of_files(entries.len(), handle.is_some()), Reader::new(dir));
        let (mut unread, mut odd) = (None, Vec::new());
        for entry in entries {
            let content = match reader.read(&entry) {
                Ok(Some(content)) => Ok(content),
                Ok(None) => continue,
                Err(e) => Err(e),
            };
            let usual = entry.name == entry.ip.to_string();
            index.take(entry.ip, content.as_ref().ok().filter(|_| usual).map_or(&[], |content| content));
            if let Err(e) = &content {
                unread = unread.or(Some(e.clone()));
            }
            see(&entry, content);
            if !usual {
                odd.push(entry);
            }
        }
        let outdated = handle.as_ref().is_some_and(|(stamp, handle)| !stamp.is_of(handle));
        let (handle, path) = (handle.map(|(_, handle)| handle), index_path(dir).unwrap_or_default());
        Ok(AddressIndex { dir, write, handle, path, index, read: true, odd, outdated, unread })
    }

    /// What the index says, otherwise what the files say.
    pub(super) fn get(dir: &'a Path, write: bool) -> Result<Self, IoFailure> {
        AddressIndex::indexed(dir, write).map_or_else(|| AddressIndex::read(dir, write, |_, _| ()), Ok)
    }

    /// The files that name an owner at this moment.
    pub(super) fn holdings(&mut self, owner: &Owner) -> Result<Holdings, IoFailure> {
        loop {
            let (mut held, mut agrees) = (Holdings::default(), true);
            let mut reader = Reader::new(self.dir);
            for content in [owner.text().as_bytes(), owner.id.as_str().as_bytes()] {
                for ip in self.index.with_content(content) {
                    // A file that cannot be read is noted when all are read.
                    let entry = files::entry(self.dir, ip).ok().flatten();
                    agrees &= entry.is_some_and(|entry| held.add(owner, entry, &mut reader, Some(key(content))));
                }
            }
            if self.read || (agrees && !self.index.is_broken()) {
                for entry in &self.odd {
                    held.add(owner, entry.clone(), &mut reader, None);
                }
                return Ok(held);
            }
            *self = AddressIndex::read(self.dir, self.write, |_, _| ())?;
        }
    }

    /// The next address of a set in turn that is free and none of `never`; `None` if the files say that there is none, read
    /// by this call or a short while ago.
    pub(super) fn next_free<'s>(
        &mut self,
        set: &'s RangeSet,
        last: Option<IpAddr>,
        never: &HashSet<IpAddr>,
    ) -> Result<Option<(&'s Range, IpAddr)>, Doubt> {
        let free = |v4, mut from: u128, to| loop {
            match self.index.first_free(v4, from, to)? {
                n if never.contains(&address(v4, n)) => from = n.checked_add(1).filter(|next| *next <= to)?,
                n => return Some(n),
            }
        };
        let found = next_free(set, last, free);
        if self.read || ((found.is_some() || self.index.is_recent()) && !self.index.is_broken()) { Ok(found) } else { Err(Doubt) }
    }

    /// An address has been taken for an owner.
    pub(super) fn take(&mut self, ip: IpAddr, content: &str) {
        self.index.take(ip, content.as_bytes());
    }

    /// An address that was thought free has been taken by somebody.
    pub(super) fn taken_by_another(&mut self, ip: IpAddr) -> Result<(), Doubt> {
        self.outdated = true;
        self.index.take(ip, &[]);
        if self.read { Ok(()) } else { Err(Doubt) }
    }

    /// An address whose file's content had this key has been freed.
    pub(super) fn free(&mut self, ip: IpAddr, key: u64) {
        self.index.free(ip, key);
    }

    /// An address that has been taken is given back; `gone`: its file is.
    pub(super) fn take_back(&mut self, ip: IpAddr, content: &str, gone: bool) {
        self.index.free(ip, key(content.as_bytes()));
        self.outdated |= !gone;
    }

    /// Keeps it in the index for the next call; the directory is not changed any more by this one.
    pub(super) fn keep(self, lock: &Lock) {
        let whole = !self.outdated && self.odd.is_empty() && self.unread.is_none();
        if let Some(handle) = self.handle.filter(|_| whole && self.index.has_news() && lock.is_in(self.dir)) {
            // Without an index the next call reads the files.
            drop(self.index.commit(&self.path, &handle));
        }
    }
}

// === impl Holdings ===

impl Holdings {
    /// What an owner holds: the files that name both; if there are none, those that name only the container.
    pub(super) fn owned(self) -> Vec<(Entry, u64)> {
        if self.exact.is_empty() { self.by_id } else { self.exact }
    }

    /// Adds a file if it names the owner; whether its content is what it was found by.
    fn add(&mut self, owner: &Owner, entry: Entry, reader: &mut Reader<'_>, wanted: Option<u64>) -> bool {
        let Ok(Some(content)) = reader.read(&entry) else { return false };
        let key = key(content);
        match owner.matches(content) {
            Match::Exact => self.exact.push((entry, key)),
            Match::Container => self.by_id.push((entry, key)),
            // Another's may have the same key.
            Match::No => {}
        }
        wanted == Some(key)
    }
}

/// `<dataDir>/.<network>.index`: no network's name begins with a dot.
fn index_path(dir: &Path) -> Option<PathBuf> {
    Some(dir.with_file_name(format!(".{}.index", dir.file_name()?.to_str()?)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host_local::index::{WRITES_LEFT, believe};
    use crate::{AllocateError, Holder, RangeSources, RawRange, Store};

    const NONE: [IpAddr; 0] = [];

    struct Place(PathBuf, Store, Vec<RangeSet>);

    impl Drop for Place {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn owner(id: &str) -> Owner {
        Owner { id: id.parse().unwrap(), ifname: "eth0".parse().unwrap() }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    impl Place {
        /// c2 to c(n+1) hold 10.0.0.2 to 10.0.0.(n+1) of a /27, and there is an index.
        fn new(name: &str, n: u8) -> Self {
            let path = std::env::temp_dir().join(format!("netloom-ipam-known-{}-{name}", std::process::id()));
            drop(fs::remove_dir_all(&path));
            let ranges = vec![vec![RawRange { subnet: "10.0.0.0/27".into(), ..RawRange::default() }]];
            let sets = RangeSet::check_all(RangeSources { ranges: &ranges, ..RangeSources::default() }).unwrap();
            let place = Place(path.clone(), Store::open(&path, &"net".parse().unwrap()), sets);
            for n in 2..n + 2 {
                assert_eq!(place.add(&format!("c{n}")).unwrap(), ip(&format!("10.0.0.{n}")));
            }
            place.reads(0, 2, || assert_eq!(place.1.held(&owner("c2")).unwrap(), [ip("10.0.0.2")]));
            place
        }

        fn add(&self, id: &str) -> Result<IpAddr, AllocateError> {
            self.1.allocate(&owner(id), &self.2, &[]).map(|all| all[0].address.addr())
        }

        fn file(&self, name: &str) -> PathBuf {
            self.1.dir().join(name)
        }

        fn believe(&self) {
            believe(&index_path(self.1.dir()).unwrap(), self.1.dir(), 0);
        }

        /// How often the call lists the directory, and how many addresses' files it reads at most.
        fn reads(&self, lists: usize, at_most: usize, call: impl FnOnce()) {
            let (listed, read) = (files::LISTED.get(), files::READ.get());
            call();
            assert_eq!(files::LISTED.get() - listed, lists);
            assert!(files::READ.get() - read <= at_most, "{}", files::READ.get() - read);
        }
    }

    #[test]
    fn with_an_index_nothing_is_listed() {
        let place = Place::new("spared", 20);
        place.reads(0, 0, || assert_eq!(place.add("new").unwrap(), ip("10.0.0.22")));
        place.reads(0, 2, || assert!(matches!(place.add("new"), Err(AllocateError::Duplicate { .. }))));
        place.reads(0, 0, || assert_eq!(place.1.allocate(&owner("b"), &place.2, &[ip("10.0.0.28")]).unwrap().len(), 1));
        place.reads(0, 1, || assert_eq!(place.1.held(&owner("new")).unwrap(), [ip("10.0.0.22")]));
        place.reads(0, 1, || assert_eq!(place.1.release(&owner("new")).unwrap(), [ip("10.0.0.22")]));
        place.reads(0, 0, || assert_eq!(place.1.release(&owner("new")).unwrap(), NONE));
        place.reads(0, 0, || assert_eq!(place.1.held(&owner("new")).unwrap(), NONE));
        // STATUS reads and moves nothing.
        for _ in 0..2 {
            place.reads(0, 0, || place.1.is_usable().unwrap());
        }
        // What is rolled back is noted too.
        fs::remove_file(place.file("last_reserved_ip.0")).unwrap();
        fs::create_dir(place.file("last_reserved_ip.0")).unwrap();
        for lists in [2, 0, 0] {
            place.reads(lists, 21, || assert!(matches!(place.add("new"), Err(AllocateError::Io(_)))));
        }
        place.reads(0, 0, || assert_eq!(place.1.held(&owner("new")).unwrap(), NONE));
        fs::remove_dir(place.file("last_reserved_ip.0")).unwrap();
        place.reads(2, 21, || assert_eq!(place.add("new").unwrap(), ip("10.0.0.22")));
        place.reads(0, 0, || assert_eq!(place.add("newer").unwrap(), ip("10.0.0.23")));
    }

    #[test]
    fn an_old_index_is_not_believed() {
        let place = Place::new("old", 20);
        for (age, lists) in [(0, 0), (3500, 0), (3600, 2), (0, 0), (-60, 2), (0, 0)] {
            believe(&index_path(place.1.dir()).unwrap(), place.1.dir(), age);
            place.reads(lists, 40, || assert_eq!(place.1.release(&owner("nobody")).unwrap(), NONE));
        }
    }

    /// Somebody made a file without the lock just as the directory was stamped.
    #[test]
    fn an_address_that_was_taken_unseen_is_not_given_again() {
        let place = Place::new("taken", 20);
        fs::write(place.file("10.0.0.22"), "x\r\neth0").unwrap();
        place.believe();
        assert_eq!(place.add("new").unwrap(), ip("10.0.0.23"));
        place.reads(0, 1, || assert_eq!(place.1.release(&owner("x")).unwrap(), [ip("10.0.0.22")]));
        // Its owner is found when its address is met.
        fs::write(place.file("10.0.0.24"), "x\r\neth0").unwrap();
        place.believe();
        assert!(matches!(place.add("x"), Err(AllocateError::Duplicate { address, .. }) if address == ip("10.0.0.24")));
        // Whoever asks for it is told the truth.
        let asked = place.1.allocate(&owner("y"), &place.2, &[ip("10.0.0.24")]);
        assert!(matches!(asked, Err(AllocateError::Taken { holder, .. }) if *holder == Holder::Attachment(owner("x"))));
        // A collection mends what nothing else has met.
        place.believe();
        assert_eq!(place.1.gc(&[owner("x")]).unwrap().len(), 21);
        place.reads(0, 1, || assert_eq!(place.1.held(&owner("x")).unwrap(), [ip("10.0.0.24")]));
    }

    #[test]
    fn an_address_that_was_freed_unseen_is_not_lost() {
        let place = Place::new("freed", 29);
        fs::remove_file(place.file("10.0.0.9")).unwrap();
        believe(&index_path(place.1.dir()).unwrap(), place.1.dir(), 60);
        assert_eq!(place.add("new").unwrap(), ip("10.0.0.9"));
        fs::remove_file(place.file("10.0.0.11")).unwrap();
        fs::rename(place.file("10.0.0.12"), place.file("10.0.0.11")).unwrap();
        place.believe();
        assert_eq!(place.1.held(&owner("c12")).unwrap(), [ip("10.0.0.11")]);
        assert_eq!(place.1.release(&owner("c11")).unwrap(), NONE);
        assert_eq!(place.1.release(&owner("c12")).unwrap(), [ip("10.0.0.11")]);
        assert_eq!(place.add("c12").unwrap(), ip("10.0.0.11"));
        assert_eq!(place.add("more").unwrap(), ip("10.0.0.12"));
        place.reads(0, 0, || assert!(matches!(place.add("most"), Err(AllocateError::Exhausted { .. }))));
        place.reads(0, 1, || assert_eq!(place.1.release(&owner("more")).unwrap(), [ip("10.0.0.12")]));
        place.reads(0, 0, || assert_eq!(place.add("most").unwrap(), ip("10.0.0.12")));
    }

    /// Every refused ADD read all files, alone at the lock.
    #[test]
    fn a_full_range_is_read_once_a_minute() {
        let place = Place::new("full", 29);
        let refused = |id: &str, lists, at_most| {
            place.reads(lists, at_most, || assert!(matches!(place.add(id), Err(AllocateError::Exhausted { .. }))));
        };
        for (age, lists, at_most) in [(0, 0, 0), (30, 0, 0), (60, 2, 29), (3500, 2, 29)] {
            believe(&index_path(place.1.dir()).unwrap(), place.1.dir(), age);
            refused("more", lists, at_most);
            // What was read for a refusal is not read again by the next calls, whatever they do.
            refused("most", 0, 0);
            place.reads(0, 1, || assert_eq!(place.1.release(&owner("c9")).unwrap(), [ip("10.0.0.9")]));
            place.reads(0, 0, || assert_eq!(place.add("c9").unwrap(), ip("10.0.0.9")));
            refused("more", 0, 0);
        }
        // Whoever frees one without us is noticed.
        fs::remove_file(place.file("10.0.0.7")).unwrap();
        place.reads(2, 28, || assert_eq!(place.add("more").unwrap(), ip("10.0.0.7")));
        // An index that is garbled refuses nothing.
        let path = index_path(place.1.dir()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[512..].fill(0xff);
        fs::write(&path, bytes).unwrap();
        refused("most", 2, 29);
    }

    /// No name changes, so nothing shows it; still nobody loses an address to it.
    #[test]
    fn a_file_that_was_rewritten_belongs_to_whom_it_names() {
        let place = Place::new("rewritten", 20);
        fs::write(place.file("10.0.0.9"), "other\r\neth0").unwrap();
        assert_eq!(place.1.held(&owner("c9")).unwrap(), NONE);
        assert_eq!(place.1.release(&owner("c9")).unwrap(), NONE);
        place.reads(0, 1, || assert_eq!(place.1.release(&owner("other")).unwrap(), [ip("10.0.0.9")]));
        fs::write(place.file("10.0.0.10"), "other\r\neth0").unwrap();
        fs::write(place.file("192.0.2.1"), "anybody\r\neth0").unwrap();
        assert_eq!(place.1.release(&owner("other")).unwrap(), [ip("10.0.0.10")]);
    }

    /// Killed before any of the writes to the index, by then stamped or not: nothing is believed that is not so.
    #[test]
    fn a_writer_may_end_anywhere() {
        for (anew, left) in (0..6).map(|left| (false, left)).chain((0..3).map(|left| (true, left))) {
            let place = Place::new(&format!("ends-{anew}-{left}"), 20);
            for (step, id) in ["c5", "c9", "x", "c7", "y"].into_iter().enumerate() {
                if anew {
                    fs::write(place.file(&format!("192.0.2.{step}")), format!("unseen{step}\r\neth0")).unwrap();
                }
                WRITES_LEFT.set(left);
                if id.starts_with('c') {
                    place.1.release(&owner(id)).unwrap();
                } else {
                    place.add(id).unwrap();
                }
                WRITES_LEFT.set(usize::MAX);
                for (ip, holder) in place.1.all().unwrap() {
                    let Holder::Attachment(owner) = holder else { panic!() };
                    assert_eq!(place.1.held(&owner).unwrap(), [ip], "{anew} {left} {id}");
                }
                assert_eq!(place.1.held(&owner("c5")).unwrap(), NONE, "{anew} {left} {id}");
            }
            assert_eq!(place.1.release(&owner("x")).unwrap(), [ip("10.0.0.22")]);
            assert_eq!(place.add("z").unwrap(), ip("10.0.0.24"));
            assert_eq!(place.1.gc(&[owner("z")]).unwrap().len(), if anew { 23 } else { 18 });
        }
    }

    /// While all files were read, a file was made of an address that had been looked at already.
    #[test]
    fn who_comes_between_is_seen() {
        let place = Place::new("between", 20);
        let lock = super::super::lock::exclusive(place.1.dir(), None).unwrap();
        let known = AddressIndex::read(place.1.dir(), true, |_, _| fs::write(place.file("192.0.2.1"), "x\r\neth0").unwrap()).unwrap();
        assert!(known.outdated);
        known.keep(&lock);
        drop(lock);
        place.reads(2, 60, || assert_eq!(place.1.release(&owner("x")).unwrap(), [ip("192.0.2.1")]));
        place.reads(0, 0, || assert_eq!(place.1.release(&owner("x")).unwrap(), NONE));
    }

    /// Two names of one address, a file that names nobody, and a lock that is no longer the directory's.
    #[test]
    fn what_an_index_cannot_describe_has_none() {
        let place = Place::new("odd", 20);
        fs::write(place.file("::ffff:10.0.0.2"), "odd\r\neth0").unwrap();
        for _ in 0..2 {
            place.reads(1, 60, || assert_eq!(place.1.held(&owner("odd")).unwrap(), [ip("10.0.0.2")]));
            place.reads(2, 60, || assert_eq!(place.1.release(&owner("nobody")).unwrap(), NONE));
        }
        assert_eq!(place.1.release(&owner("odd")).unwrap(), [ip("10.0.0.2")]);
        assert!(place.file("10.0.0.2").exists() && !place.file("::ffff:10.0.0.2").exists());
        fs::write(place.file("10.0.0.30"), "").unwrap();
        assert_eq!(place.add("a").unwrap(), ip("10.0.0.22"));
        let lock = super::super::lock::exclusive(place.1.dir(), None).unwrap();
        fs::remove_file(place.file("lock")).unwrap();
        let mut known = AddressIndex::get(place.1.dir(), true).unwrap();
        known.take(ip("192.0.2.1"), "gone\r\neth0");
        known.keep(&lock);
        drop(lock);
        place.reads(2, 60, || assert_eq!(place.1.release(&owner("gone")).unwrap(), NONE));
        place.reads(0, 0, || assert_eq!(place.1.release(&owner("gone")).unwrap(), NONE));
    }
}
