//! The first page of an index: of which state of which directory it speaks.

use std::fs::{File, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::table::{Extent, PAGE, checksum, mix};

/// The format; another one counts as no index.
const MAGIC: &[u8; 16] = b"netloom-index 1\n";

/// A stamp lies so far before the moment at which it is made. More than the coarsest clock of any file system, which
/// is 2 s, so that it differs from every time that the kernel writes.
const BACK: Duration = Duration::from_secs(10);

/// An index is believed no longer after its files were read. What it cannot see (see [`super`]) heals then.
const LONGEST: u64 = 3600;

/// So long it may also say that no address is free.
const RECENT: u64 = 60;

/// A directory's state: which it is, and when it was changed. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Stamp {
    dev: u64,
    ino: u64,
    modified: i128,
    changed: i128,
}

/// The first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) nonce: u64,
    pub(super) stamp: Stamp,
    /// When the addresses' files were read, in seconds since 1970.
    pub(super) read: u64,
    pub(super) owners: Extent,
    pub(super) blocks: Extent,
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether what was read at that time may refuse an address.
pub(super) fn is_recent(read: u64) -> bool {
    (read..read.saturating_add(RECENT)).contains(&now())
}

/// A number that no earlier index of this directory had.
pub(super) fn nonce() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    mix(now as u64) ^ mix(u64::from(std::process::id()))
}

/// What changes with a boot; `None` where it cannot be read. A process does not outlive a boot: once is enough.
fn boot() -> Option<u64> {
    static BOOT: OnceLock<Option<u64>> = OnceLock::new();
    *BOOT.get_or_init(|| std::fs::read("/proc/sys/kernel/random/boot_id").ok().map(|id| checksum(0, &id)))
}

// === impl Stamp ===

impl Stamp {
    fn of(about: &Metadata) -> Self {
        let time = |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Stamp {
            dev: about.dev(),
            ino: about.ino(),
            modified: time(about.mtime(), about.mtime_nsec()),
            changed: time(about.ctime(), about.ctime_nsec()),
        }
    }

    /// Marks a directory's present state: `touch -d '10 seconds ago' DIR`. `None` if its file system keeps no such time.
    pub(in super::super) fn put(dir: &File) -> io::Result<Option<Self>> {
        dir.set_times(FileTimes::new().set_modified(SystemTime::now() - BACK))?;
        let stamp = Stamp::of(&dir.metadata()?);
        Ok((stamp.modified < stamp.changed).then_some(stamp))
    }

    /// Whether the directory is still in that state.
    pub(in super::super) fn is_of(&self, dir: &File) -> bool {
        dir.metadata().is_ok_and(|about| Stamp::of(&about) == *self)
    }
}

// === impl Header ===

impl Header {
    /// Whether what follows it speaks of the directory as it is now.
    pub(super) fn fits(&self, dir: &File) -> bool {
        let now = now();
        (self.read..self.read.saturating_add(LONGEST)).contains(&now) && self.stamp.is_of(dir)
    }

    pub(super) fn encode(&self) -> Option<[u8; PAGE]> {
        let mut body = MAGIC.to_vec();
        let Stamp { dev, ino, modified, changed } = self.stamp;
        for number in [boot()?, self.nonce, dev, ino, self.read] {
            body.extend(number.to_le_bytes());
        }
        body.extend(modified.to_le_bytes().into_iter().chain(changed.to_le_bytes()));
        for Extent { first, total, records } in [self.owners, self.blocks] {
            body.extend(first.to_le_bytes().into_iter().chain(total.to_le_bytes()).chain(records.to_le_bytes()));
        }
        body.resize(PAGE - 8, 0);
        body.extend(checksum(0, &body).to_le_bytes());
        body.try_into().ok()
    }

    /// `None` if it is not whole, or was written before the last boot: what a power cut left of a file need not be of
    /// one moment.
    pub(super) fn decode(bytes: &[u8; PAGE]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk()?;
        let rest = body.strip_prefix(MAGIC).filter(|_| checksum(0, body) == u64::from_le_bytes(*sum))?;
        let mut words = rest.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w));
        let mut word = || words.next();
        let boot_then = word()?;
        let (nonce, dev, ino, read) = (word()?, word()?, word()?, word()?);
        let mut wide = || Some(i128::from(word()?) | i128::from(word()? as i64) << 64);
        let (modified, changed) = (wide()?, wide()?);
        let mut extent = || {
            let place = word()?;
            Some(Extent { first: place as u32, total: (place >> 32) as u32, records: word()? })
        };
        let (owners, blocks) = (extent()?, extent()?);
        let stamp = Stamp { dev, ino, modified, changed };
        (boot()? == boot_then).then_some(Header { nonce, stamp, read, owners, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_was_written_or_none() {
        let stamp = Stamp { dev: 1, ino: 2, modified: -5_000_000_000_000_000_000_000, changed: 1 << 70 };
        let owners = Extent { first: 1, total: u32::MAX, records: 1 << 40 };
        let header = Header { nonce: 3, stamp, read: 4, owners, blocks: Extent { first: 9, total: 8, records: 7 } };
        let good = header.encode().unwrap();
        assert_eq!(Header::decode(&good), Some(header));
        for bit in 0..PAGE * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bad), None, "{bit}");
        }
        assert_eq!(Header::decode(&[0; PAGE]), None);
        let mut older = good;
        older[16] ^= 1;
        let sum = checksum(0, &older[..PAGE - 8]);
        older[PAGE - 8..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Header::decode(&older), None, "of another boot");
    }
}
